"""What of the requests that wait is work to be done, for which the network holds others back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minikafka.base.errors import RemoteWireError
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.server.dispatch import MOST_BYTES
from minikafka.server.workers.work_pool import SMALL_BYTES
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartition, LeaderAndIsrRequest
from minikafka.wire.frame_parts import Part, join
from minikafka.wire.framing import RequestHeader
from tests.support import simulation
from tests.support.simulation import Request, Simulation
from tests.unit.server.handlers.test_produce import HoldingPool


class Recording:
    """An exchange that remembers."""

    client_host = "somewhere"
    listener = "PLAINTEXT"

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}
        self.parked = False
        self.answered = False
        self.kept = False

    def park(self) -> None:
        self.parked = True

    def keep_counted(self, kept: bool = True) -> None:
        self.kept = kept

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        self.answered = True

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def dispatched(world: Simulation, request: Request) -> Recording:
    server = world.machine._server
    assert server is not None
    exchange = Recording()
    server.handler.on_request(exchange, memoryview(bytearray(framed(request))))
    return exchange


def framed(request: Request, client_id: str | None = "test") -> bytes:
    header = RequestHeader(int(request.key), request.version, 1, client_id)
    return join([header.encode(), *APIS[request.key].encode_request(request.version, request.body)])


def test_a_long_poll_keeps_nobody_out_while_it_waits() -> None:
    world = Simulation()
    world.machine.start()
    world.create_topic("t")
    waiting = dispatched(world, simulation.fetch("t", wait_ms=30_000))
    assert (waiting.parked, waiting.answered) == (True, False)
    world.produce("t", b"x")
    assert waiting.answered


def test_what_zookeeper_has_yet_to_be_told_counts_until_it_is_answered() -> None:
    world = Simulation()
    world.machine.start()
    asked = dispatched(world, simulation.create_topic("t"))
    assert (asked.parked, asked.answered) == (False, False)
    world.settle()
    assert asked.answered


def test_a_request_that_names_many_partitions_is_served_in_the_pool() -> None:
    world = Simulation()
    world.machine.start()
    world.create_topic("t")
    assert world.machine.running is not None
    pool = world.machine.running.broker.pool = HoldingPool()  # type: ignore[assignment]
    names = tuple(f"topic-{number}" for number in range(2_000))
    asked = dispatched(world, simulation.metadata(*names))
    assert (asked.parked, asked.answered, asked.kept) == (True, False, True)
    pool.run()
    assert (asked.answered, asked.kept) == (True, False)


def test_a_large_request_of_few_partitions_is_served_where_it_was_received() -> None:
    world = Simulation()
    world.machine.start()
    world.create_topic("t")
    assert world.machine.running is not None
    pool = world.machine.running.broker.pool = HoldingPool()  # type: ignore[assignment]
    records = build_message_set([Record(None, bytes(100_000), 1)], magic=2)
    assert dispatched(world, simulation.produce("t", records, version=3)).answered
    assert not pool.jobs


def test_bytes_that_are_no_request_end_the_connection_from_the_pool_too() -> None:
    world = Simulation()
    world.machine.start()
    server = world.machine._server
    assert server is not None
    exchange = Recording()
    with pytest.raises(AssertionError, match=r"string|end|byte"):
        server.handler.on_request(exchange, memoryview(bytearray(b"\0\3\0\2" + b"\x7f" * 20_000)))


def test_request_larger_than_any_valid_one_closes_its_connection() -> None:
    world = Simulation()
    world.machine.start()
    protocols = (JoinGroupRequestProtocol("p", bytes(MOST_BYTES)),)
    join_group = JoinGroupRequest("g", 10_000, 10_000, "", "consumer", protocols)
    with pytest.raises(RemoteWireError, match="at most 16777216 without records"):
        dispatched(world, Request(ApiKey.JOIN_GROUP, 1, join_group))


def test_a_large_request_says_what_it_takes_before_it_is_decoded() -> None:
    world = Simulation()
    world.machine.start()
    assert world.machine.running is not None
    pool = world.machine.running.broker.pool = HoldingPool()  # type: ignore[assignment]
    request = simulation.metadata(*(f"topic-{number}" for number in range(200_000)))
    asked = dispatched(world, request)
    (steps,) = pool.jobs
    assert next(steps) > 20 << 20
    assert not asked.answered


MANY = 60_000


def fetched(replica_id: int, client_id: str | None) -> bytes:
    partitions = tuple(FetchPartition(number, -1, 0, -1, 1_000) for number in range(MANY))
    body = FetchRequest(replica_id, 0, 1, 1 << 20, 0, 0, -1, (FetchTopic("t", partitions),))
    return framed(Request(ApiKey.FETCH, 3, body), client_id)


def elected() -> bytes:
    partitions = tuple(LeaderAndIsrPartition("t", number, 1, 0, 0, (0,), 0, (0,)) for number in range(MANY))
    return framed(Request(ApiKey.LEADER_AND_ISR, 0, LeaderAndIsrRequest(0, 1, partitions, ())), "0")


def asked_for(frame: bytes) -> int:
    """What a request asks of the pool before it is decoded."""
    world = Simulation()
    world.machine.start()
    server = world.machine._server
    assert server is not None
    assert world.machine.running is not None
    pool = world.machine.running.broker.pool = HoldingPool()  # type: ignore[assignment]
    server.handler.on_request(Recording(), memoryview(bytearray(frame)))
    (steps,) = pool.jobs
    return next(steps, 0)


@pytest.mark.parametrize("client_id", ["broker-1-fetcher-0", "", None])
def test_a_followers_large_fetch_waits_for_no_memory_of_clients_requests(client_id: str | None) -> None:
    assert asked_for(fetched(1, client_id)) == 0
    assert asked_for(fetched(-1, client_id)) > SMALL_BYTES


def test_controller_request_does_not_wait_for_clients_memory() -> None:
    assert asked_for(elected()) == 0
