"""Requests for producer ids that arrive faster than blocks of ids."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.registry import paths
from minikafka.registry.cluster import ProducerIdBlock
from minikafka.server.zookeeper import counters
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.support import transaction_requests
from tests.support.requests import Request
from tests.support.simulation import Client, Simulation

WANTED = Request(ApiKey.INIT_PRODUCER_ID, 1, InitProducerIdRequest(None, 60_000))


def clients_with_requests(simulation: Simulation, count: int) -> list[Client]:
    """Return ``count`` clients, each with an open request for an id."""
    clients = [simulation.another_client() for _ in range(count)]
    for client in clients:
        client.begin(WANTED)
    return clients


@pytest.mark.parametrize("version", range(6))
def test_a_producer_without_a_transactional_id_gets_a_new_id(version: int) -> None:
    simulation = Simulation.serving()
    first, second = (
        simulation.call(Request(ApiKey.INIT_PRODUCER_ID, version, InitProducerIdRequest(None, 60_000, *old)))
        for old in ((NO_PRODUCER_ID, NO_PRODUCER_EPOCH), (7, 3))
    )
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id + 1, 0)


@pytest.mark.parametrize("old", [(7, NO_PRODUCER_EPOCH), (NO_PRODUCER_ID, 3)])
def test_an_id_without_an_epoch_is_refused(old: tuple[int, int]) -> None:
    request = InitProducerIdRequest(None, 60_000, *old)
    answer = Simulation.serving().call(Request(ApiKey.INIT_PRODUCER_ID, 3, request))
    assert answer == InitProducerIdResponse(0, ErrorCode.INVALID_REQUEST, -1, -1)


def test_more_requests_than_a_block_has_ids_get_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "PRODUCER_IDS_AT_ONCE", 2)
    simulation = Simulation.serving()
    simulation.zookeeper.suspend(simulation.machine.store)
    clients = clients_with_requests(simulation, 5)
    simulation.settle()
    assert not any(client.answered() for client in clients)
    simulation.zookeeper.resume(simulation.machine.store)
    simulation.settle()
    ids = [client.finish().producer_id for client in clients]
    assert ids == list(range(ids[0], ids[0] + 5))
    assert simulation.call(WANTED).producer_id == ids[0] + 5


def test_producer_ids_skip_blocks_lost_by_a_restore() -> None:
    simulation = Simulation.serving()
    simulation.machine_of(2).start()
    copy = simulation.zookeeper.copy()
    simulation.move_to("machine-2")
    used = simulation.call(WANTED).producer_id
    simulation.machine_of(2).kill()  # it cannot report its last block
    simulation.zookeeper.restore(copy)
    simulation.pass_time(20_000)
    simulation.end_stray_sessions()
    simulation.move_to(simulation.machine.host)
    assert simulation.call(WANTED).producer_id > used + 1000


def test_ids_that_only_transactions_have_are_not_given_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Their producers have written nothing, or the topics were deleted."""
    monkeypatch.setattr(counters, "PRODUCER_IDS_AT_ONCE", 2)
    simulation = Simulation.serving()
    simulation.call(transaction_requests.find("a"))  # creates the topic
    simulation.pass_time(1_000)
    assert simulation.call(transaction_requests.init("a")).error_code == 0
    copy = simulation.zookeeper.copy()
    used = [simulation.call(transaction_requests.init(name)).producer_id for name in "bcd"]
    simulation.machine.kill()
    simulation.zookeeper.restore(copy)
    simulation.end_stray_sessions()
    simulation.machine.start()
    simulation.pass_time(20_000)
    assert simulation.call(WANTED).producer_id > max(used)
    assert f"but {max(used)} is in use" in caplog.text


def test_stop_answers_waiting_producers_with_a_retriable_error() -> None:
    simulation = Simulation.serving()
    simulation.zookeeper.suspend(simulation.machine.store)
    (client,) = clients_with_requests(simulation, 1)
    simulation.machine.broker.stop_waiting()
    answer = client.finish()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (14, -1, -1)


@pytest.mark.parametrize("counts_to", [-1, 5_000_000])
def test_block_is_dropped_when_zookeeper_has_another_counter(counts_to: int) -> None:
    simulation = Simulation.serving()
    first = simulation.call(WANTED).producer_id
    assert simulation.call(WANTED).producer_id == first + 1
    store = simulation.zookeeper.connect()  # the session continues: the broker is not notified
    data = ProducerIdBlock(9, counts_to - 999, counts_to).to_json() if counts_to >= 0 else b""
    store.write(paths.PRODUCER_IDS, data)
    simulation.pass_time(70_000)
    given = simulation.call(WANTED).producer_id
    assert given > max(first + 999, counts_to)
    assert ProducerIdBlock.from_json(store.read(paths.PRODUCER_IDS)[0]).last >= given


def test_block_is_used_up_while_the_counter_rises() -> None:
    simulation = Simulation.serving()
    first = simulation.call(WANTED).producer_id
    store = simulation.zookeeper.connect()
    store.write(paths.PRODUCER_IDS, ProducerIdBlock(9, first + 1000, first + 1999).to_json())
    simulation.pass_time(70_000)
    assert simulation.call(WANTED).producer_id == first + 1


def test_producer_id_is_retriable_while_zookeeper_has_another_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Simulation(seed=7)
    other.machine.start()
    simulation = Simulation.serving()
    copy = simulation.zookeeper.copy()
    simulation.zookeeper.restore(other.zookeeper.copy())
    simulation.pass_time(20_000)
    (client,) = clients_with_requests(simulation, 1)
    answer = client.finish()
    assert answer.error_code == ErrorCode.GROUP_LOAD_IN_PROGRESS
    assert ErrorCode(answer.error_code).is_retriable
    assert "no ids for producers" not in caplog.text
    simulation.zookeeper.restore(copy)
    simulation.end_stray_sessions(20_000)
    assert simulation.call(WANTED).producer_id >= 0
