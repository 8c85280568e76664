"""Creating, extending and deleting topics: validation, and the delayed operation that waits for them."""

from __future__ import annotations

import logging
import random
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from minikafka.base.errors import (
    BadVersion,
    BrokerError,
    ConfigError,
    CoordinationError,
    CoordinationLost,
    ErrorCode,
    InconsistentClusterId,
    NoNode,
    SessionExpired,
    without_frames,
)
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition, check_topic_name
from minikafka.base.text import counted, shorten
from minikafka.controller.assignment import (
    assign_replicas,
    check_assignment,
    check_growth,
    racks_if_all_have_one,
)
from minikafka.controller.election import NO_LEADER
from minikafka.log.layout import NAME_MAX_BYTES
from minikafka.registry.store import DATA_MAX_BYTES
from minikafka.registry.topics import TopicAssignment
from minikafka.server.admin.dynamic_config import check_settings_size
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, DelayedRequest
from minikafka.server.core.topic_creations import CreationRequest
from minikafka.server.workers.request_admission import leave

T = TypeVar("T")

_log = logging.getLogger(__name__)

BROKER_DEFAULT = -1
"""Stands for ``num.partitions``, or ``default.replication.factor``."""

MAX_NEW_PARTITIONS = 10_000
"""The limit of new partitions for a request with several topics, as in later releases of Kafka."""
LARGE_OPERATION_NAMES = 1_000
MAX_WAITING_NAMES = 200_000
"""The limit of names in operations of at least ``LARGE_OPERATION_NAMES`` that wait. A name takes 0.5 kB, and
the client says for how long: above the limit the oldest operation is answered with REQUEST_TIMED_OUT early.
"""
_NEW_PARTITION_BYTES = 500
_DELETIONS_PER_JOB = 50
_MAX_LOGGED_REFUSALS = 50
"""The limit of rejected topics that are logged for one request."""

_PARTITION_BYTES_MIN = len('"0":[0],')


@dataclass(frozen=True, slots=True)
class PartitionsCreation:
    """Partitions to add to a topic; ``assignment`` has only the new ones."""

    name: str
    assignment: Mapping[int, tuple[int, ...]]


class NewPartitionsLimit:
    """Limits the new partitions of one request.

    A few kilobytes can ask for 300 topics of 60,000 partitions, whose assignment would take minutes and
    gigabytes.
    """

    def __init__(self) -> None:
        self._taken = 0

    def check(self, topic: str, count: int) -> None:
        """Raise POLICY_VIOLATION when ``count`` more partitions would exceed the limit."""
        if self._taken and self._taken + count > MAX_NEW_PARTITIONS:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"{count} partitions of topic {topic} exceed the limit of {MAX_NEW_PARTITIONS} new "
                "partitions a request: create fewer topics at a time",
            )

    def take(self, count: int) -> None:
        """Count partitions that were assigned."""
        self._taken += count


def assignment_cost_bytes(partitions: int) -> int:
    """Return the memory needed to assign ``partitions`` new partitions, capped by what one znode can hold."""
    return min(max(0, partitions), DATA_MAX_BYTES // _PARTITION_BYTES_MIN) * _NEW_PARTITION_BYTES


Outcomes = dict[str, BrokerError | None]
"""Topic, or user -> its error; None on success."""


def error_code_of(error: BrokerError | None) -> ErrorCode:
    """Return the error code for a response."""
    return ErrorCode.NONE if error is None else error.code


def error_message_of(error: BrokerError | None) -> str | None:
    """Return the error message for a response."""
    return None if error is None else shorten(str(error.detail)) or None


def results_of(outcomes: Outcomes, row: Callable[[str, ErrorCode, str | None], T]) -> tuple[T, ...]:
    """Return the rows of a response: name, error code and error message of each outcome."""
    return tuple(row(name, error_code_of(error), error_message_of(error)) for name, error in outcomes.items())


class DelayedTopicOperation(DelayedRequest):
    """A request about several topics, completed when each has succeeded or failed.

    ``is_done`` tells whether a topic is done; topics that are not done at the deadline get REQUEST_TIMED_OUT.
    """

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        names: list[str],
        *,
        is_done: Callable[[str], bool],
        reply: Callable[[Outcomes], None],
    ) -> None:
        super().__init__(broker, context)
        self._names = names
        self._is_done = is_done
        self._reply = reply
        self._failed: dict[str, BrokerError] = {}
        self._done: set[str] = set()
        self._left = set(names)

    @property
    def size(self) -> int:
        """The number of topics."""
        return len(self._names)

    def fail(self, name: str, error: BrokerError) -> None:
        """Fail one topic."""
        if len(self._failed) < _MAX_LOGGED_REFUSALS:
            _log.info("rejected the request for topic %s: %s", name, shorten(str(error)))
        self._failed[name] = without_frames(error)
        self._left.discard(name)

    def succeed(self, name: str) -> None:
        """Mark one topic as done."""
        self._done.add(name)
        self._left.discard(name)

    def fail_in_step(self, name: str, error: BrokerError) -> None:
        """Fail a topic after the request began to wait. Called within a step."""
        self.fail(name, error)
        self._broker.touch(("topic", name))

    def start(self, timeout_ms: int, submit: Callable[[], None]) -> None:
        """Wait for the topics, then submit the work."""
        broker = self._broker

        def step() -> None:
            if timeout_ms <= 0 or not self._left:
                broker.answer(self)
            else:
                keys = [("topic", name) for name in self._left]
                broker.wait(self, list(keys), broker.clock.monotonic_ms() + timeout_ms)
                if self.size >= LARGE_OPERATION_NAMES:
                    _bound_large_operations(broker, self)

        broker.run(step)
        submit()
        leave(self._context.exchange)

    def satisfied(self, key: Hashable | None = None) -> bool:
        # An event concerns one topic: a request with thousands must not check all of them each time.
        named = list(self._left) if key is None else [key[1]] if isinstance(key, tuple) else []
        for name in named:
            if name in self._left and self._is_done(name):
                self.succeed(name)
        return not self._left

    def complete(self) -> None:
        late = BrokerError(
            ErrorCode.REQUEST_TIMED_OUT, "not finished within timeout_ms; the operation continues"
        )
        outcomes: Outcomes = {name: None if name in self._done else late for name in self._names}
        self._reply({**outcomes, **self._failed})


def _bound_large_operations(broker: Broker, operation: DelayedTopicOperation) -> None:
    """In a step: register a large operation that waits, and answer the oldest if there are too many names."""
    known = [found for ref in broker.large_operations if (found := ref()) is not None]
    waiting: deque[DelayedTopicOperation] = deque(found for found in known if found in broker.purgatory)
    waiting.append(operation)
    names = sum(found.size for found in waiting)
    while names > MAX_WAITING_NAMES and len(waiting) > 1:
        oldest = waiting.popleft()
        names -= oldest.size
        broker.purgatory.remove(oldest)
        broker.answer(oldest)
    broker.large_operations = [weakref.ref(found) for found in waiting]


def is_ready(broker: Broker, name: str, partitions: int, first: int = 0) -> bool:
    """Return True if a topic has ``partitions`` partitions, with leaders from ``first`` on."""
    known = broker.metadata_cache.topics.get(name, {})
    return len(known) >= partitions and all(
        leadership.leader != NO_LEADER
        and (leadership.leader != broker.broker_id or TopicPartition(name, index) in broker.partitions)
        for index, leadership in known.items()
        if index >= first
    )


def check_controller(broker: Broker) -> None:
    """Raise NOT_CONTROLLER unless this broker is the controller."""
    if not broker.controller.active:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, f"broker {broker.broker_id} is not the controller")


def plan_creation(
    broker: Broker,
    name: str,
    partitions: int,
    replication_factor: int,
    assignment: Mapping[int, tuple[int, ...]] | None,
    config: Mapping[str, str],
    *,
    room: NewPartitionsLimit | None = None,
    racks_are_optional: bool = False,
) -> CreationRequest:
    """Validate a new topic and assign its replicas. Raises BrokerError with the reason when it is invalid.

    -1 partitions, and a replication factor of -1, stand for the broker's defaults (KIP-464). ``room`` is
    shared by the topics of a request; a topic that is rejected before its assignment uses none of it.
    ``racks_are_optional``: ignore racks when only some brokers have one; otherwise that is an error.
    """
    check_topic_name(name)
    if name in broker.metadata_cache.unreadable:
        raise BrokerError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"topic {name} exists, but its znode cannot be read: delete it first",
        )
    if name in broker.metadata_cache.topics:
        raise topic_exists_error(broker, name)
    other = broker.metadata_cache.alike(name)
    if other is not None:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC,
            f"topic {name} collides with {other}: '.' and '_' are the same in metric names",
        )
    live = sorted(broker.metadata_cache.brokers)
    partitions = broker.config.default_partitions if partitions == BROKER_DEFAULT else partitions
    if replication_factor == BROKER_DEFAULT:
        replication_factor = broker.config.default_replication_factor
    count = partitions if assignment is None else len(assignment)
    _check_size(name, count)
    _check_settings(broker, name, config)
    room = room or NewPartitionsLimit()
    room.check(name, count)
    if assignment is not None:
        check_assignment(assignment, live)
    else:
        racks = {broker_id: address.rack for broker_id, address in broker.metadata_cache.brokers.items()}
        assignment = assign_replicas(
            live,
            partitions,
            replication_factor,
            start_index=random.randrange(1 << 16),
            start_shift=random.randrange(1 << 16),
            racks=racks_if_all_have_one(live, racks) if racks_are_optional else racks,
        )
    room.take(count)
    _check_size(name, count, len(TopicAssignment(assignment).to_json()))
    return CreationRequest(name, assignment, config)


def _check_settings(broker: Broker, name: str, config: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG unless a new topic may have these configs."""
    try:
        broker.logs.defaults.with_overrides(config)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    check_settings_size(name, config)


def topic_exists_error(broker: Broker, name: str) -> BrokerError:
    """Return the error for creating a topic that exists."""
    going = broker.controller.assignment_of(name) is None and not broker.controller.is_unknown(name)
    words = " and is marked for deletion, which completes when all its brokers are online" if going else ""
    return BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists{words}")


def _check_size(name: str, partitions: int, znode_bytes: int = 0) -> None:
    """Raise INVALID_PARTITIONS when the topic does not fit its znode, or a directory name.

    Without ``znode_bytes`` the minimum for the number of partitions is used.
    """
    if len(name) + 1 + len(str(partitions - 1)) > NAME_MAX_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"the name of topic {name} is too long for {partitions} partitions: directory names are "
            f"limited to {NAME_MAX_BYTES} bytes",
        )
    if max(znode_bytes, partitions * _PARTITION_BYTES_MIN) > DATA_MAX_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions of topic {name} do not fit into a znode of {DATA_MAX_BYTES} bytes",
        )


def submit_creations(
    broker: Broker, creations: Sequence[CreationRequest], operation: DelayedTopicOperation, timeout_ms: int
) -> None:
    """Submit the writes of the topics' znodes. The controller's watch does the rest."""

    def failed(name: str, error: BrokerError) -> None:
        why = topic_exists_error(broker, name) if error.code is ErrorCode.TOPIC_ALREADY_EXISTS else error
        broker.run(lambda: operation.fail_in_step(name, why))

    deadline_ms = broker.clock.monotonic_ms() + timeout_ms if timeout_ms > 0 else None
    broker.creations.add(creations, failed, deadline_ms)


def start_auto_creation(
    broker: Broker,
    name: str,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    config: Mapping[str, str] | None = None,
) -> None:
    """Start to create a topic that is needed, unless its creation is in progress.

    Raises BrokerError when that is not possible: LEADER_NOT_AVAILABLE when it may be possible later.
    """
    if broker.creations.is_pending(name):
        return
    broker.creations.check_room(name)
    creation = plan_creation(
        broker, name, partitions, replication_factor, None, config or {}, racks_are_optional=True
    )
    broker.creations.add_automatic(creation)


def plan_new_partitions(
    broker: Broker,
    name: str,
    count: int,
    assignments: Sequence[tuple[int, ...]] | None,
    room: NewPartitionsLimit,
) -> PartitionsCreation:
    """Return the partitions to add so that a topic has ``count``. Raises BrokerError when that is invalid.

    Assignment starts at the broker of the first partition's preferred leader, as in
    ``AdminUtils.addPartitions`` of 0.10.1.
    """
    known = broker.controller.assignment_of(name)
    if not known:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if name in INTERNAL_TOPICS:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name} must keep its {len(known)} partitions: groups and transactional ids are mapped to "
            "partitions by their number",
        )
    if any(key.topic == name for key in broker.controller.reassignments()):
        raise BrokerError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"topic {name} is being reassigned: retry later"
        )
    if count <= len(known):
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name} has {len(known)} partitions, so {count} is no increase; partitions cannot "
            "be removed",
        )
    if sorted(known) != list(range(len(known))):
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name} has only partitions {sorted(known)}: its znode was edited by hand, so no "
            "partitions can be added",
        )
    live = sorted(broker.metadata_cache.brokers)
    _check_size(name, count)
    room.check(name, count - len(known))
    replicas = known[min(known)]
    if assignments is None:
        start = next((index for index, broker_id in enumerate(live) if broker_id >= replicas[0]), 0)
        added = assign_replicas(
            live,
            count - len(known),
            len(replicas),
            start_index=start,
            start_shift=start,
            first_partition=len(known),
            racks={broker_id: address.rack for broker_id, address in broker.metadata_cache.brokers.items()},
        )
    else:
        added = dict(enumerate(assignments, start=len(known)))
        check_growth(added, count - len(known), len(replicas), live)
    room.take(len(added))
    _check_size(name, count, len(TopicAssignment({**known, **added}).to_json()))
    return PartitionsCreation(name, added)


def submit_deletions(broker: Broker, names: Iterable[str]) -> None:
    """Submit the deletion requests, unless they are in progress. The controller does the rest."""
    jobs = broker.request_jobs
    wanted = [name for name in names if jobs.claim("delete", name)]
    done = 0

    def job(is_over: Callable[[], bool]) -> bool:
        nonlocal done
        while done < len(wanted):
            some = wanted[done : done + _DELETIONS_PER_JOB]
            try:
                broker.zk_client.request_deletions(some)
            except (CoordinationLost, SessionExpired):
                raise  # the worker runs this job again
            except CoordinationError as error:
                _log.error("failed to delete %s: %s", counted(len(some), "topic"), error)
            except Exception:  # noqa: BLE001 - the claims must be released
                _log.exception("failed to delete %s", counted(len(some), "topic"))
            done += len(some)
            for name in some:
                jobs.release("delete", name)
            if is_over():
                break
        return done == len(wanted)

    if wanted:
        jobs.submit(job)


def submit_partition_creations(
    broker: Broker, creations: Sequence[PartitionsCreation], operation: DelayedTopicOperation
) -> None:
    """Submit the writes of new partitions to the topics' znodes. The controller does the rest.

    A topic whose earlier request is in progress gets REQUEST_TIMED_OUT, which clients retry.
    """
    jobs = broker.request_jobs
    claimed = []
    for creation in creations:
        if jobs.claim("grow", creation.name):
            claimed.append(creation)
        else:
            busy = BrokerError(
                ErrorCode.REQUEST_TIMED_OUT, f"another request is adding partitions to topic {creation.name}"
            )
            broker.run(partial(operation.fail_in_step, creation.name, busy))
    done = 0

    def job(is_over: Callable[[], bool]) -> bool:
        nonlocal done
        while done < len(claimed):
            add(claimed[done])
            jobs.release("grow", claimed[done].name)
            done += 1
            if is_over():
                break
        return done == len(claimed)

    def add(creation: PartitionsCreation) -> None:
        try:
            broker.zk_client.add_partitions(creation.name, creation.assignment)
            return
        except NoNode:
            failure = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {creation.name}")
        except BadVersion as error:
            failure = BrokerError(ErrorCode.INVALID_PARTITIONS, str(error))
        except (CoordinationLost, SessionExpired):
            raise  # the worker runs this job again
        except InconsistentClusterId as error:
            failure = BrokerError(ErrorCode.NOT_CONTROLLER, str(error))
        except Exception as error:  # noqa: BLE001 - the claims must be released
            if not isinstance(error, CoordinationError):
                _log.exception("failed to add partitions to topic %s", creation.name)
            failure = BrokerError(ErrorCode.UNKNOWN, str(error))
        broker.run(lambda: operation.fail_in_step(creation.name, failure))

    if claimed:
        jobs.submit(job)
