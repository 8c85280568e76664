"""Requests for producer ids that come faster than blocks of them."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.registry import paths
from minikafka.registry.paths import ProducerIdBlock
from minikafka.server.zookeeper import counters
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from tests.support.simulation import Client, Request, Simulation

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


@pytest.mark.parametrize("counts_to", [-1, 5_000_000])
def test_rest_of_a_block_is_not_given_out_once_zookeeper_counts_from_elsewhere(counts_to: int) -> None:
    world = Simulation()
    world.machine.start()
    first = world.call(WANTED).producer_id
    assert world.call(WANTED).producer_id == first + 1
    store = world.zookeeper.connect()  # the session goes on: nobody tells the broker
    data = ProducerIdBlock(9, counts_to - 999, counts_to).to_json() if counts_to >= 0 else b""
    store.write(paths.PRODUCER_IDS, data)
    for _ in range(140):
        world.clock.advance(500)
        world.settle()
    given = world.call(WANTED).producer_id
    assert given > max(first + 999, counts_to)
    assert ProducerIdBlock.from_json(store.read(paths.PRODUCER_IDS)[0]).last >= given


def test_block_is_used_up_while_zookeeper_counts_on() -> None:
    world = Simulation()
    world.machine.start()
    first = world.call(WANTED).producer_id
    store = world.zookeeper.connect()
    store.write(paths.PRODUCER_IDS, ProducerIdBlock(9, first + 1000, first + 1999).to_json())
    for _ in range(140):
        world.clock.advance(500)
        world.settle()
    assert world.call(WANTED).producer_id == first + 1


def test_producers_are_told_to_ask_again_while_another_cluster_is_in_zookeeper(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Simulation(seed=7)
    other.machine.start()
    world = Simulation()
    world.machine.start()
    copy = world.zookeeper.copy()
    world.zookeeper.restore(other.zookeeper.copy())
    for _ in range(40):
        world.clock.advance(500)
        world.settle()
    (client,) = begun(world, 1)
    answer = client.finish()
    assert answer.error_code == ErrorCode.GROUP_LOAD_IN_PROGRESS
    assert ErrorCode(answer.error_code).is_retriable
    assert "no ids for producers" not in caplog.text
    world.zookeeper.restore(copy)
    world.zookeeper.end_stray_sessions()
    for _ in range(40):
        world.clock.advance(500)
        world.settle()
    assert world.call(WANTED).producer_id >= 0
