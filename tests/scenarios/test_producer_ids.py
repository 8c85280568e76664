"""Requests for producer ids that come faster than blocks of them."""

from __future__ import annotations

import pytest

from minikafka.server import counters
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.keys import ApiKey
from tests.scenarios.simulation import Client, Request, Simulation

WANTED = Request(ApiKey.INIT_PRODUCER_ID, 1, InitProducerIdRequest(None, 60_000))


def begun(world: Simulation, count: int) -> list[Client]:
    """So many clients that wait for an id each."""
    clients = [world.another_client() for _ in range(count)]
    for client in clients:
        client.begin(WANTED)
    return clients


def test_more_requests_than_a_block_has_ids_get_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "PRODUCER_IDS_AT_ONCE", 2)
    world = Simulation()
    world.machine.start()
    world.zookeeper.suspend(world.machine.store)
    clients = begun(world, 5)
    world.settle()
    assert not any(client.answered() for client in clients)
    world.zookeeper.resume(world.machine.store)
    world.settle()
    ids = [client.finish().producer_id for client in clients]
    assert ids == list(range(ids[0], ids[0] + 5))
    assert world.call(WANTED).producer_id == ids[0] + 5


def test_a_broker_without_ids_leaves_out_those_that_others_had_before_zookeeper_went_back() -> None:
    world = Simulation()
    world.machine.start()
    world.machine_of(2).start()
    copy = world.zookeeper.copy()
    world.move_to("machine-2")
    used = world.call(WANTED).producer_id
    world.machine_of(2).kill()  # it cannot tell how far it had come
    world.zookeeper.restore(copy)
    for _ in range(40):
        world.clock.advance(500)
        world.settle()
    world.zookeeper.end_stray_sessions()
    for _ in range(20):
        world.clock.advance(500)
        world.settle()
    world.move_to(world.machine.host)
    assert world.call(WANTED).producer_id > used + 1000


def test_a_broker_that_stops_tells_those_who_wait_to_come_again() -> None:
    world = Simulation()
    world.machine.start()
    world.zookeeper.suspend(world.machine.store)
    (client,) = begun(world, 1)
    running = world.machine.running
    assert running is not None
    running.broker.stop_waiting()
    answer = client.finish()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (14, -1, -1)
