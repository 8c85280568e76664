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


def begun(simulation: Simulation, count: int) -> list[Client]:
    """So many clients that wait for an id each."""
    clients = [simulation.another_client() for _ in range(count)]
    for client in clients:
        client.begin(WANTED)
    return clients


def test_more_requests_than_a_block_has_ids_get_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "PRODUCER_IDS_AT_ONCE", 2)
    simulation = Simulation()
    simulation.machine.start()
    simulation.zookeeper.suspend(simulation.machine.store)
    clients = begun(simulation, 5)
    simulation.settle()
    assert not any(client.answered() for client in clients)
    simulation.zookeeper.resume(simulation.machine.store)
    simulation.settle()
    ids = [client.finish().producer_id for client in clients]
    assert ids == list(range(ids[0], ids[0] + 5))
    assert simulation.call(WANTED).producer_id == ids[0] + 5


def test_a_broker_without_ids_leaves_out_those_that_others_had_before_zookeeper_went_back() -> None:
    simulation = Simulation()
    simulation.machine.start()
    simulation.machine_of(2).start()
    copy = simulation.zookeeper.copy()
    simulation.move_to("machine-2")
    used = simulation.call(WANTED).producer_id
    simulation.machine_of(2).kill()  # it cannot tell how far it had come
    simulation.zookeeper.restore(copy)
    for _ in range(40):
        simulation.clock.advance(500)
        simulation.settle()
    simulation.zookeeper.end_stray_sessions()
    for _ in range(20):
        simulation.clock.advance(500)
        simulation.settle()
    simulation.move_to(simulation.machine.host)
    assert simulation.call(WANTED).producer_id > used + 1000


def test_a_broker_that_stops_tells_those_who_wait_to_come_again() -> None:
    simulation = Simulation()
    simulation.machine.start()
    simulation.zookeeper.suspend(simulation.machine.store)
    (client,) = begun(simulation, 1)
    running = simulation.machine.running
    assert running is not None
    running.broker.stop_waiting()
    answer = client.finish()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (14, -1, -1)


@pytest.mark.parametrize("counts_to", [-1, 5_000_000])
def test_rest_of_a_block_is_not_given_out_once_zookeeper_counts_from_elsewhere(counts_to: int) -> None:
    simulation = Simulation()
    simulation.machine.start()
    first = simulation.call(WANTED).producer_id
    assert simulation.call(WANTED).producer_id == first + 1
    store = simulation.zookeeper.connect()  # the session goes on: nobody tells the broker
    data = ProducerIdBlock(9, counts_to - 999, counts_to).to_json() if counts_to >= 0 else b""
    store.write(paths.PRODUCER_IDS, data)
    for _ in range(140):
        simulation.clock.advance(500)
        simulation.settle()
    given = simulation.call(WANTED).producer_id
    assert given > max(first + 999, counts_to)
    assert ProducerIdBlock.from_json(store.read(paths.PRODUCER_IDS)[0]).last >= given


def test_block_is_used_up_while_zookeeper_counts_on() -> None:
    simulation = Simulation()
    simulation.machine.start()
    first = simulation.call(WANTED).producer_id
    store = simulation.zookeeper.connect()
    store.write(paths.PRODUCER_IDS, ProducerIdBlock(9, first + 1000, first + 1999).to_json())
    for _ in range(140):
        simulation.clock.advance(500)
        simulation.settle()
    assert simulation.call(WANTED).producer_id == first + 1


def test_producers_are_told_to_ask_again_while_another_cluster_is_in_zookeeper(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Simulation(seed=7)
    other.machine.start()
    simulation = Simulation()
    simulation.machine.start()
    copy = simulation.zookeeper.copy()
    simulation.zookeeper.restore(other.zookeeper.copy())
    for _ in range(40):
        simulation.clock.advance(500)
        simulation.settle()
    (client,) = begun(simulation, 1)
    answer = client.finish()
    assert answer.error_code == ErrorCode.GROUP_LOAD_IN_PROGRESS
    assert ErrorCode(answer.error_code).is_retriable
    assert "no ids for producers" not in caplog.text
    simulation.zookeeper.restore(copy)
    simulation.zookeeper.end_stray_sessions()
    for _ in range(40):
        simulation.clock.advance(500)
        simulation.settle()
    assert simulation.call(WANTED).producer_id >= 0
