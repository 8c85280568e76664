"""Controlled shutdown as the stopping broker sees it: retries, waits, and when it gives up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.net.interfaces import Connector, PendingResponse
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.control.controlled_shutdown import request_controlled_shutdown
from minikafka.server.core.broker import Broker
from minikafka.server.core.metadata_cache import MetadataCache
from minikafka.wire.apis.controlled_shutdown import (
    CONTROLLED_SHUTDOWN,
    ControlledShutdownResponse,
    RemainingPartition,
)
from minikafka.wire.framing import response_header

BROKERS = {number: LiveBroker.plaintext(number, "h", 9000 + number, None) for number in range(3)}
BACKOFF_MS = 5_000
DONE = ControlledShutdownResponse(ErrorCode.NONE, ())
LEFT = ControlledShutdownResponse(ErrorCode.NONE, (RemainingPartition("t", 0),))


class ShutdownHarness:
    """Broker 1, which stops, and a controller that returns ``answers``; None: no answer at all."""

    def __init__(self, *answers: ControlledShutdownResponse | None) -> None:
        self.broker = SimpleNamespace(
            broker_id=1,
            metadata_cache=MetadataCache("c", 0, BROKERS),
            zk_client=SimpleNamespace(connected=True),
            config=SimpleNamespace(
                control=SimpleNamespace(shutdown_retries=3, shutdown_backoff_ms=BACKOFF_MS),
                replication=SimpleNamespace(controller_timeout_ms=30_000),
                inter_broker=SimpleNamespace(listener="PLAINTEXT"),
            ),
        )
        self.answers = list(answers)
        self.asked: list[str] = []
        self.waited_ms = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.closed = False

    def connect(self, host: str, port: int) -> ShutdownHarness:
        self.asked.append(f"{host}:{port}")
        return self

    def request(self, parts: object) -> Any:
        return _Pending(self.answers.pop(0), len(self.asked))

    def close(self) -> None:
        pass

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        if any(response.done() for response in pending):
            return True
        self.waited_ms += timeout_ms
        self.meanwhile()
        return False

    def shut_down(self) -> None:
        request_controlled_shutdown(cast(Broker, self.broker), cast(Connector, self))

    def leave(self, *broker_ids: int) -> None:
        left = {number: BROKERS[number] for number in BROKERS if number not in broker_ids}
        self.broker.metadata_cache = self.broker.metadata_cache.updated(left, {}, {})


class _Pending:
    def __init__(self, answer: ControlledShutdownResponse | None, number: int) -> None:
        self._answer = answer
        self._number = number

    def done(self) -> bool:
        return self._answer is not None

    def result(self, timeout_ms: int | None = None) -> memoryview:
        if self._answer is None:
            raise NetworkError("no answer")
        body = b"".join(map(bytes, CONTROLLED_SHUTDOWN.encode_response(1, self._answer)))  # type: ignore[arg-type]
        return memoryview(response_header(1) + body)


def test_shutdown_returns_at_once_when_others_lead() -> None:
    harness = ShutdownHarness(DONE)
    harness.shut_down()
    assert (harness.asked, harness.waited_ms) == (["h:9000"], 0)


def test_remaining_partitions_are_retried_after_the_backoff() -> None:
    harness = ShutdownHarness(LEFT, LEFT, DONE)
    harness.shut_down()
    assert (len(harness.asked), harness.waited_ms) == (3, 2 * BACKOFF_MS)


def test_retries_are_limited() -> None:
    harness = ShutdownHarness(LEFT, LEFT, LEFT, LEFT)
    harness.shut_down()
    assert (len(harness.asked), harness.waited_ms) == (4, 3 * BACKOFF_MS)


def test_partition_without_live_replica_is_not_retried() -> None:
    harness = ShutdownHarness(LEFT, DONE)
    alone = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), replicas=(1, 2), controller_epoch=1)
    harness.broker.metadata_cache = harness.broker.metadata_cache.updated(
        BROKERS, {TopicPartition("t", 0): alone}, {}
    )
    harness.leave(2)
    harness.shut_down()
    assert (len(harness.asked), harness.waited_ms) == (1, 0)


def test_partition_with_live_replica_is_retried() -> None:
    harness = ShutdownHarness(LEFT, DONE)
    shrunk = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), replicas=(1, 2), controller_epoch=1)
    harness.broker.metadata_cache = harness.broker.metadata_cache.updated(
        BROKERS, {TopicPartition("t", 0): shrunk}, {}
    )
    harness.shut_down()
    assert (len(harness.asked), harness.waited_ms) == (2, BACKOFF_MS)


def test_last_broker_asks_nobody() -> None:
    harness = ShutdownHarness()
    harness.leave(0, 2)
    harness.shut_down()
    assert (harness.asked, harness.waited_ms) == ([], 0)


def test_wait_ends_when_other_brokers_leave() -> None:
    harness = ShutdownHarness(LEFT)
    harness.meanwhile = lambda: harness.leave(0, 2)
    harness.shut_down()
    assert len(harness.asked) == 1
    assert harness.waited_ms < 100


def test_wait_ends_when_zookeeper_connection_is_lost() -> None:
    harness = ShutdownHarness(None)

    def lose() -> None:
        harness.broker.zk_client.connected = False

    harness.meanwhile = lose
    harness.shut_down()
    assert len(harness.asked) == 1
    assert harness.waited_ms < 100
    harness.shut_down()
    assert len(harness.asked) == 1


def test_denied_shutdown_is_not_retried() -> None:
    harness = ShutdownHarness(ControlledShutdownResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ()))
    harness.shut_down()
    assert (len(harness.asked), harness.waited_ms) == (1, 0)
