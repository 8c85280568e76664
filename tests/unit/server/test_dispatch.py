"""What of the requests that wait is work to be done, for which the network holds others back."""

from __future__ import annotations

import re
from collections import deque

import pytest

from minikafka.base.errors import RemoteWireError
from minikafka.net.request_times import RequestTimes
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.server import dispatch
from minikafka.server.admin import topics
from minikafka.server.context import RequestContext
from minikafka.server.dispatch import MOST_BYTES
from minikafka.server.workers.work_pool import SMALL_BYTES
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from minikafka.wire.apis.heartbeat import HeartbeatResponse
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartition, LeaderAndIsrRequest
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader
from tests.support import requests
from tests.support.recorded_exchange import RecordedExchange
from tests.support.requests import Request
from tests.support.simulation import Simulation
from tests.unit.server.handlers.test_produce import HoldingPool


class UncountedTimes(RequestTimes):
    counts_errors = False


def dispatched(world: Simulation, request: Request) -> RecordedExchange:
    return received(world, framed(request))


def received(world: Simulation, frame: bytes) -> RecordedExchange:
    server = world.machine._server
    assert server is not None
    exchange = RecordedExchange()
    server.handler.on_request(exchange, memoryview(bytearray(frame)))
    return exchange


def framed(request: Request, client_id: str | None = "test") -> bytes:
    header = RequestHeader(int(request.key), request.version, 1, client_id)
    return join([header.encode(), *APIS[request.key].encode_request(request.version, request.body)])


def test_a_long_poll_keeps_nobody_out_while_it_waits() -> None:
    world = Simulation.serving("t")
    waiting = dispatched(world, requests.fetch("t", wait_ms=30_000))
    assert (waiting.parked, waiting.answered) == (True, False)
    world.produce("t", b"x")
    assert waiting.answered


def test_request_waiting_for_zookeeper_counts_until_answered() -> None:
    world = Simulation.serving()
    asked = dispatched(world, requests.create_topic("t"))
    assert (asked.parked, asked.answered) == (False, False)
    world.settle()
    assert asked.answered


def test_a_request_that_names_many_partitions_is_served_in_the_pool() -> None:
    world = Simulation.serving("t")
    pool = world.machine.broker.pool = HoldingPool()  # type: ignore[assignment]
    names = tuple(f"topic-{number}" for number in range(2_000))
    asked = dispatched(world, requests.metadata(*names))
    assert (asked.parked, asked.answered, asked.kept) == (True, False, True)
    pool.run()
    assert (asked.answered, asked.kept) == (True, False)


def test_a_large_request_of_few_partitions_is_served_where_it_was_received() -> None:
    world = Simulation.serving("t")
    pool = world.machine.broker.pool = HoldingPool()  # type: ignore[assignment]
    records = build_message_set([Record(None, bytes(100_000), 1)], magic=2)
    assert dispatched(world, requests.produce("t", records, version=3)).answered
    assert not pool.jobs


def test_bytes_that_are_no_request_end_the_connection_from_the_pool_too() -> None:
    world = Simulation.serving()
    exchange = received(world, b"\0\3\0\2" + b"\x7f" * 20_000)
    assert re.search(r"string|end|byte", exchange.closed)


def test_request_larger_than_any_valid_one_closes_its_connection() -> None:
    world = Simulation.serving()
    request = requests.join_group("g", {"p": bytes(MOST_BYTES)})
    with pytest.raises(RemoteWireError, match="at most 16777216 without records"):
        dispatched(world, request)


def test_a_large_request_says_what_it_takes_before_it_is_decoded() -> None:
    world = Simulation.serving()
    pool = world.machine.broker.pool = HoldingPool()  # type: ignore[assignment]
    request = requests.metadata(*(f"topic-{number}" for number in range(200_000)))
    asked = dispatched(world, request)
    (steps,) = pool.jobs
    assert next(steps) > 20 << 20
    assert not asked.answered


MANY = 60_000


def fetched(replica_id: int, client_id: str | None, version: int = 3) -> bytes:
    partitions = (FetchPartition(0, -1, 0, -1, 1_000),) * MANY
    body = FetchRequest(replica_id, 0, 1, 1 << 20, 0, 0, -1, (FetchTopic("t", partitions),))
    return framed(Request(ApiKey.FETCH, version, body), client_id)


def elected() -> bytes:
    partitions = (LeaderAndIsrPartition("t", 0, 1, 0, 0, (0,), 0, (0,)),) * MANY
    return framed(Request(ApiKey.LEADER_AND_ISR, 0, LeaderAndIsrRequest(0, 1, partitions, ())), "0")


def asked_for(frame: bytes) -> int:
    """What a request asks of the pool before it is decoded."""
    world = Simulation.serving()
    pool = world.machine.broker.pool = HoldingPool()  # type: ignore[assignment]
    received(world, frame)
    (steps,) = pool.jobs
    return next(steps, 0)


@pytest.mark.parametrize("client_id", ["broker-1-fetcher-0", "", None])
def test_a_followers_large_fetch_waits_for_no_memory_of_clients_requests(client_id: str | None) -> None:
    assert asked_for(fetched(1, client_id)) == 0
    assert asked_for(fetched(-1, client_id)) > SMALL_BYTES


@pytest.mark.parametrize(("version", "is_known"), [(12, True), (14, True), (15, False), (17, False)])
def test_follower_is_found_where_a_flexible_fetch_begins_with_it(version: int, is_known: bool) -> None:
    assert (asked_for(fetched(1, "broker-1-fetcher-0", version)) == 0) is is_known
    assert asked_for(fetched(-1, "consumer", version)) > SMALL_BYTES


def test_controller_request_does_not_wait_for_clients_memory() -> None:
    assert asked_for(elected()) == 0


# --- large requests that hold much until they are answered ------------------------------------------------

NAMES = tuple(f"none-{number}" for number in range(2_000))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """A broker that admits one such request at a time."""
    for name in ("NAMED_TOGETHER_BYTES", "IN_STEPS_TOGETHER_BYTES"):
        monkeypatch.setattr(dispatch, name, 1)
    monkeypatch.setattr(dispatch, "IN_STEPS_BYTES", 16 << 10)
    monkeypatch.setattr(dispatch, "MANY_PRODUCED", 1_000)
    return Simulation.serving(
        "t", properties={"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}
    )


def altered() -> Request:
    return requests.alter_configs(*NAMES)


def deleted(*names: str) -> Request:
    return requests.delete_topics(*names, *NAMES, timeout_ms=86_400_000)


def committed(version: int) -> Request:
    return requests.commit_offsets(*NAMES).at(version)


def test_large_requests_to_zookeeper_are_decoded_one_after_the_other(narrow: Simulation) -> None:
    asked = [dispatched(narrow, altered()) for _ in range(3)]
    assert len(narrow.machine.broker.request_jobs) == 1
    assert [exchange.answered for exchange in asked] == [False, False, False]
    assert all(exchange.kept for exchange in asked)
    narrow.settle()
    assert all(exchange.answered for exchange in asked)


def test_others_pass_large_requests_that_wait_for_zookeeper(narrow: Simulation) -> None:
    asked = [dispatched(narrow, altered()), dispatched(narrow, committed(0))]
    assert dispatched(narrow, requests.metadata(*NAMES)).answered
    assert dispatched(narrow, requests.fetch("t")).answered
    narrow.settle()
    assert all(exchange.answered for exchange in asked)


def test_a_request_that_waits_for_a_topic_keeps_no_other_waiting(narrow: Simulation) -> None:
    waiting = dispatched(narrow, deleted("t"))
    assert dispatched(narrow, deleted()).answered
    assert not waiting.answered
    narrow.settle()
    assert waiting.answered


def test_large_requests_in_steps_are_begun_one_after_the_other(narrow: Simulation) -> None:
    pool = narrow.machine.broker.pool = HoldingPool()  # type: ignore[assignment]
    parts = tuple(range(1, 3_000))
    asked = [
        dispatched(narrow, request)
        for request in (
            committed(2),
            requests.produce("t", b"", partitions=parts, version=7),
            requests.describe_groups(*NAMES),
            requests.metadata(*NAMES),
        )
    ]
    assert len(pool.jobs) == 1
    for number, exchange in enumerate(asked):
        assert not exchange.answered
        while not exchange.answered:
            assert len(pool.jobs) == 1, f"request {number}"
            deque(pool.jobs.popleft(), maxlen=0)
            narrow.settle()
    assert not pool.jobs


def test_bytes_that_are_no_request_let_the_next_request_begin(narrow: Simulation) -> None:
    exchange = received(narrow, framed(altered())[:-1])
    assert re.search(r"string|end|byte", exchange.closed)
    asked = dispatched(narrow, altered())
    narrow.settle()
    assert asked.answered


def test_a_followers_questions_wait_for_no_clients_request(narrow: Simulation) -> None:
    pool = narrow.machine.broker.pool = HoldingPool()  # type: ignore[assignment]
    dispatched(narrow, committed(2))
    for replica_id in (-1, 1):
        dispatched(narrow, requests.list_offsets("t", partitions=range(2_000), replica_id=replica_id))
    assert len(pool.jobs) == 2  # the commit, and the follower's


def test_large_requests_that_wait_long_are_answered_when_others_come(
    narrow: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MAX_WAITING_NAMES", 2 * len(NAMES) + 2)
    first, second = dispatched(narrow, deleted("t")), dispatched(narrow, deleted("t"))
    small = dispatched(narrow, requests.delete_topics("t", timeout_ms=86_400_000))
    assert [exchange.answered for exchange in (first, second, small)] == [False, False, False]
    third = dispatched(narrow, deleted("t"))
    assert [exchange.answered for exchange in (first, second, small, third)] == [True, False, False, False]
    narrow.settle()
    assert all(exchange.answered for exchange in (first, second, small, third))
    assert narrow.create_topic("t") == 0
    narrow.settle()
    fourth, fifth = dispatched(narrow, deleted("t")), dispatched(narrow, deleted("t"))
    assert (fourth.answered, fifth.answered) == (False, False)  # those that were answered do not count


@pytest.mark.parametrize(("times", "errors"), [(RequestTimes(), [3]), (UncountedTimes(), [])])
def test_errors_are_noted_for_who_counts_them(times: RequestTimes, errors: list[int]) -> None:
    exchange = RecordedExchange()
    exchange.times = times
    header = RequestHeader(ApiKey.HEARTBEAT, 0, 1, "")
    RequestContext(header, APIS[ApiKey.HEARTBEAT], exchange).reply(HeartbeatResponse(0, 3))
    assert list(times.errors) == errors
