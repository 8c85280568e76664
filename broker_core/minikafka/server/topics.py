"""Creating and deleting topics: the checks, and the request that waits for all of its topics."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ConfigError, CoordinationError, ErrorCode, NodeExists
from minikafka.base.ids import check_topic_name, names_collide
from minikafka.controller.assignment import assign_replicas, check_assignment
from minikafka.log.config import without_effect
from minikafka.registry.paths import TopicAssignment
from minikafka.registry.store import DATA_MAX_BYTES
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext

_log = logging.getLogger(__name__)

_PARTITION_BYTES_MIN = len('"0":[0],')


@dataclass(frozen=True, slots=True)
class CreationRequest:
    """A topic that may be created."""

    name: str
    assignment: Mapping[int, tuple[int, ...]]
    config: Mapping[str, str]


class TopicTicket:
    """A request about several topics, answered when each of them is done or has failed.

    Topics are done when ``is_done`` says so; those that are not at the deadline get REQUEST_TIMED_OUT.
    """

    def __init__(
        self,
        names: list[str],
        *,
        is_done: Callable[[str], bool],
        context: RequestContext,
        reply: Callable[[dict[str, ErrorCode]], None],
    ) -> None:
        self._names = names
        self._is_done = is_done
        self._context = context
        self._reply = reply
        self._failed: dict[str, ErrorCode] = {}
        self._done: set[str] = set()

    def fail(self, name: str, error: BrokerError) -> None:
        """This topic is answered with an error."""
        _log.info("the request for topic %s is refused: %s", name, error)
        self._failed[name] = error.code

    def failed_later(self, broker: Broker, name: str, error: BrokerError) -> None:
        """From within a step: a topic failed after the request began to wait."""
        self.fail(name, error)
        broker.touch(("topic", name))

    def start(self, broker: Broker, timeout_ms: int, submit: Callable[[], None]) -> None:
        """Submit the work and wait for it."""

        def step() -> None:
            if timeout_ms <= 0 or len(self._failed) == len(self._names):
                broker.answer(self)
            else:
                keys = [("topic", name) for name in self._names]
                broker.wait(self, list(keys), broker.clock.monotonic_ms() + timeout_ms)

        broker.run(step)
        submit()

    def satisfied(self) -> bool:
        self._done.update(name for name in self._names if self._is_done(name))
        return all(name in self._failed or name in self._done for name in self._names)

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)

    def complete(self) -> None:
        late = {
            name: ErrorCode.NONE if name in self._done else ErrorCode.REQUEST_TIMED_OUT
            for name in self._names
        }
        self._reply({**late, **self._failed})


def check_creation(
    broker: Broker,
    name: str,
    partitions: int,
    replication_factor: int,
    assignment: Mapping[int, tuple[int, ...]] | None,
    config: Mapping[str, str | None],
) -> CreationRequest:
    """What a new topic will be. Raises BrokerError with the reason why it cannot be."""
    check_topic_name(name)
    if name in broker.image.unreadable:
        raise BrokerError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists, but cannot be read; delete it"
        )
    for other in broker.image.topics:
        if other == name:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
        if names_collide(other, name):
            raise BrokerError(
                ErrorCode.INVALID_TOPIC, f"topic {name} collides with {other}: '.' and '_' look alike"
            )
    live = sorted(broker.image.brokers)
    _check_size(name, partitions if assignment is None else len(assignment))
    if assignment is not None:
        check_assignment(assignment, live)
    else:
        assignment = assign_replicas(
            live,
            partitions,
            replication_factor,
            start_index=random.randrange(1 << 16),
            start_shift=random.randrange(1 << 16),
        )
    _check_size(name, len(assignment), len(TopicAssignment(assignment).to_json()))
    overrides = {key: value for key, value in config.items() if value is not None}
    try:
        broker.config.log.with_overrides(overrides)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    idle = without_effect(overrides)
    if idle:
        _log.warning("topic %s: stored, but this version does not act on %s", name, ", ".join(idle))
    return CreationRequest(name, assignment, overrides)


def _check_size(name: str, partitions: int, znode_bytes: int = 0) -> None:
    """Raise INVALID_PARTITIONS for more than one znode tells; by the number alone before it is made."""
    if max(znode_bytes, partitions * _PARTITION_BYTES_MIN) > DATA_MAX_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions of topic {name} do not fit its znode of {DATA_MAX_BYTES} bytes",
        )


def submit_creation(broker: Broker, wish: CreationRequest, ticket: TopicTicket | None) -> None:
    """Write the topic's znodes on the worker; the controller's watch does the rest."""

    tried = False

    def job() -> None:
        nonlocal tried
        try:
            broker.registrar.create_topic(wish.name, wish.assignment, wish.config)
        except NodeExists:
            # After a lost connection the topic may be there because of us.
            if ticket is not None and not tried:
                failure = BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {wish.name} exists")
                broker.run(lambda: ticket.failed_later(broker, wish.name, failure))
        except CoordinationError:
            tried = True
            raise
        broker.being_created.discard(wish.name)

    broker.worker.submit(job)


def start_creation(broker: Broker, name: str) -> None:
    """Create a topic because somebody asked for its metadata. Raises BrokerError when it cannot be."""
    if name in broker.being_created:
        return
    config = broker.config
    wish = check_creation(
        broker, name, config.default_partitions, config.default_replication_factor, None, {}
    )
    broker.being_created.add(name)
    submit_creation(broker, wish, None)
