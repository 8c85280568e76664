from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from minikafka.base.errors import ErrorCode, NetworkError
from minikafka.base.ids import BrokerAddress, TopicPartition
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

BROKERS = {number: BrokerAddress(number, "h", 9000 + number, None) for number in range(3)}
BACKOFF_MS = 5_000
DONE = ControlledShutdownResponse(ErrorCode.NONE, ())
LEFT = ControlledShutdownResponse(ErrorCode.NONE, (RemainingPartition("t", 0),))


class World:
    """Broker 1, which is to stop, and a controller that gives ``answers``; None for none at all."""

    def __init__(self, *answers: ControlledShutdownResponse | None) -> None:
        self.broker = SimpleNamespace(
            broker_id=1,
            image=MetadataCache("c", 0, BROKERS),
            registrar=SimpleNamespace(connected=True),
            config=SimpleNamespace(
                control=SimpleNamespace(shutdown_retries=3, shutdown_backoff_ms=BACKOFF_MS),
                replication=SimpleNamespace(controller_timeout_ms=30_000),
            ),
        )
        self.answers = list(answers)
        self.asked: list[str] = []
        self.waited_ms = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.closed = False

    def connect(self, host: str, port: int) -> World:
        self.asked.append(f"{host}:{port}")
        return self

    def request(self, parts: object) -> Any:
        return _Pending(self.answers.pop(0), len(self.asked))

    def close(self) -> None:
        pass

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        if any(one.done() for one in pending):
            return True
        self.waited_ms += timeout_ms
        self.meanwhile()
        return False

    def request_controlled_shutdown(self) -> None:
        request_controlled_shutdown(cast(Broker, self.broker), cast(Connector, self))

    def leave(self, *broker_ids: int) -> None:
        left = {number: BROKERS[number] for number in BROKERS if number not in broker_ids}
        self.broker.image = self.broker.image.updated(left, {})


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


def test_the_controller_is_asked_and_nothing_is_waited_for_once_others_lead() -> None:
    world = World(DONE)
    world.withdraw()
    assert (world.asked, world.waited_ms) == (["h:9000"], 0)


def test_what_none_other_can_lead_is_asked_for_again_after_the_backoff() -> None:
    world = World(LEFT, LEFT, DONE)
    world.withdraw()
    assert (len(world.asked), world.waited_ms) == (3, 2 * BACKOFF_MS)


def test_the_tries_have_an_end() -> None:
    world = World(LEFT, LEFT, LEFT, LEFT)
    world.withdraw()
    assert (len(world.asked), world.waited_ms) == (4, 3 * BACKOFF_MS)


def test_what_has_no_other_replica_alive_is_not_waited_for() -> None:
    world = World(LEFT, DONE)
    alone = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), replicas=(1, 2), controller_epoch=1)
    world.broker.image = world.broker.image.updated(BROKERS, {TopicPartition("t", 0): alone})
    world.leave(2)
    world.withdraw()
    assert (len(world.asked), world.waited_ms) == (1, 0)


def test_a_live_replica_may_come_into_sync() -> None:
    world = World(LEFT, DONE)
    shrunk = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), replicas=(1, 2), controller_epoch=1)
    world.broker.image = world.broker.image.updated(BROKERS, {TopicPartition("t", 0): shrunk})
    world.withdraw()
    assert (len(world.asked), world.waited_ms) == (2, BACKOFF_MS)


def test_the_last_broker_asks_nobody() -> None:
    world = World()
    world.leave(0, 2)
    world.withdraw()
    assert (world.asked, world.waited_ms) == ([], 0)


def test_who_becomes_the_last_one_waits_no_longer() -> None:
    world = World(LEFT)
    world.meanwhile = lambda: world.leave(0, 2)
    world.withdraw()
    assert len(world.asked) == 1
    assert world.waited_ms < 100


def test_without_zookeeper_nobody_can_take_over_so_nothing_is_waited_for() -> None:
    world = World(None)

    def lose() -> None:
        world.broker.registrar.connected = False

    world.meanwhile = lose
    world.withdraw()
    assert len(world.asked) == 1
    assert world.waited_ms < 100
    world.withdraw()
    assert len(world.asked) == 1


def test_a_broker_that_may_not_ask_stops_at_once() -> None:
    world = World(ControlledShutdownResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ()))
    world.withdraw()
    assert (len(world.asked), world.waited_ms) == (1, 0)
