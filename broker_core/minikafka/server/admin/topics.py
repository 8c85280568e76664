"""Topics made, grown and deleted: the checks, and the request that waits for all of its topics."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
)
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition, check_topic_name
from minikafka.base.text import counted, shorten
from minikafka.controller.assignment import (
    assign_replicas,
    check_assignment,
    check_growth,
    racks_if_all_have_one,
)
from minikafka.controller.election import NO_LEADER
from minikafka.log.layout import NAME_MAX_BYTES
from minikafka.registry.paths import TopicAssignment
from minikafka.registry.store import DATA_MAX_BYTES
from minikafka.server.admin.dynamic_config import check_settings_size
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.topic_creations import CreationRequest

_log = logging.getLogger(__name__)

BROKER_DEFAULT = -1
"""For the number of partitions or replicas: ``num.partitions``, ``default.replication.factor``."""

MAX_NEW_PARTITIONS = 10_000
"""What the topics of one request may get together, as in Kafka's later releases, where there are several."""
_NEW_PARTITION_BYTES = 500
_DELETIONS_PER_JOB = 50
_MAX_LOGGED_REFUSALS = 50
"""Of how many topics of one request the log says that they were refused."""

_PARTITION_BYTES_MIN = len('"0":[0],')


@dataclass(frozen=True, slots=True)
class PartitionsCreation:
    """A topic that may get more partitions; ``assignment`` is of the new ones."""

    name: str
    assignment: Mapping[int, tuple[int, ...]]


class NewPartitionsLimit:
    """Counts the new partitions of one request: 300 topics of 60,000 stand in a few kilobytes, and would take
    minutes and gigabytes to be given replicas.
    """

    def __init__(self) -> None:
        self._taken = 0

    def check(self, topic: str, count: int) -> None:
        """Before ``count`` partitions of one more topic cost anything: POLICY_VIOLATION where those would be
        too many.
        """
        if self._taken and self._taken + count > MAX_NEW_PARTITIONS:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"{count} partitions of topic {topic} would make more than {MAX_NEW_PARTITIONS} new ones in "
                "one request: ask for fewer topics at a time",
            )

    def take(self, count: int) -> None:
        """They have been given replicas."""
        self._taken += count


def assignment_cost_bytes(partitions: int) -> int:
    """What it takes to give so many new partitions replicas, at most what one znode tells."""
    return min(max(0, partitions), DATA_MAX_BYTES // _PARTITION_BYTES_MIN) * _NEW_PARTITION_BYTES


Outcomes = dict[str, BrokerError | None]
"""What became of each topic: None where it worked."""


def error_code_of(error: BrokerError | None) -> ErrorCode:
    """The code for a response."""
    return ErrorCode.NONE if error is None else error.code


def error_message_of(error: BrokerError | None) -> str | None:
    """What is wrong, in words, for a response."""
    return None if error is None else shorten(str(error.detail)) or None


class DelayedTopicOperation:
    """A request about several topics, answered when each of them is done or has failed.

    Topics are done when ``is_done`` says so; those that are not at the deadline get REQUEST_TIMED_OUT.
    """

    def __init__(
        self,
        names: list[str],
        *,
        is_done: Callable[[str], bool],
        context: RequestContext,
        reply: Callable[[Outcomes], None],
    ) -> None:
        self._names = names
        self._is_done = is_done
        self._context = context
        self._reply = reply
        self._failed: dict[str, BrokerError] = {}
        self._done: set[str] = set()
        self._left = set(names)

    def fail(self, name: str, error: BrokerError) -> None:
        """This topic is answered with an error."""
        if len(self._failed) < _MAX_LOGGED_REFUSALS:
            _log.info("the request for topic %s is refused: %s", name, shorten(str(error)))
        # With its traceback it would hold the whole request, which holds it: garbage for a full collection.
        self._failed[name] = error.with_traceback(None)
        self._left.discard(name)

    def succeed(self, name: str) -> None:
        """This topic needs nothing to be done."""
        self._done.add(name)
        self._left.discard(name)

    def fail_in_step(self, broker: Broker, name: str, error: BrokerError) -> None:
        """From within a step: a topic failed after the request began to wait."""
        self.fail(name, error)
        broker.touch(("topic", name))

    def start(self, broker: Broker, timeout_ms: int, submit: Callable[[], None]) -> None:
        """Submit the work and wait for it."""

        def step() -> None:
            if timeout_ms <= 0 or not self._left:
                broker.answer(self)
            else:
                keys = [("topic", name) for name in self._left]
                broker.wait(self, list(keys), broker.clock.monotonic_ms() + timeout_ms)

        broker.run(step)
        submit()

    def satisfied(self, key: Hashable | None = None) -> bool:
        # Something happened to one topic: a request of thousands must not look at all of them each time.
        named = list(self._left) if key is None else [key[1]] if isinstance(key, tuple) else []
        for name in named:
            if name in self._left and self._is_done(name):
                self.succeed(name)
        return not self._left

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)

    def complete(self) -> None:
        late = BrokerError(ErrorCode.REQUEST_TIMED_OUT, "not done within the time-out; it goes on")
        outcomes: Outcomes = {name: None if name in self._done else late for name in self._names}
        self._reply({**outcomes, **self._failed})


def is_ready(broker: Broker, name: str, partitions: int, first: int = 0) -> bool:
    """Whether a topic has so many partitions, those from ``first`` on with leaders."""
    known = broker.image.topics.get(name, {})
    return len(known) >= partitions and all(
        leadership.leader != NO_LEADER
        and (leadership.leader != broker.broker_id or TopicPartition(name, index) in broker.partitions)
        for index, leadership in known.items()
        if index >= first
    )


def check_controller(broker: Broker) -> None:
    """Raise NOT_CONTROLLER unless this broker decides about topics."""
    if not broker.controller.active:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, f"broker {broker.broker_id} is not the controller")


def plan_creation(
    broker: Broker,
    name: str,
    partitions: int,
    replication_factor: int,
    assignment: Mapping[int, tuple[int, ...]] | None,
    config: Mapping[str, str | None],
    *,
    room: NewPartitionsLimit | None = None,
    racks_are_optional: bool = False,
) -> CreationRequest:
    """What a new topic will be. Raises BrokerError with the reason why it cannot be.

    -1 partitions, and a replication factor of -1, are the broker's defaults (KIP-464). ``room``: what other
    topics of the same request have left; one that is refused before it costs anything takes none of it.
    ``racks_are_optional``: where only some brokers have racks, nobody's counts; else that is an error.
    """
    check_topic_name(name)
    if name in broker.image.unreadable:
        raise BrokerError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists, but cannot be read; delete it"
        )
    if name in broker.image.topics:
        raise topic_exists_error(broker, name)
    other = broker.image.alike(name)
    if other is not None:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC, f"topic {name} collides with {other}: '.' and '_' look alike"
        )
    live = sorted(broker.image.brokers)
    partitions = broker.config.default_partitions if partitions == BROKER_DEFAULT else partitions
    if replication_factor == BROKER_DEFAULT:
        replication_factor = broker.config.default_replication_factor
    count = partitions if assignment is None else len(assignment)
    _check_size(name, count)
    overrides = _checked_settings(broker, name, config)
    room = room or NewPartitionsLimit()
    room.check(name, count)
    if assignment is not None:
        check_assignment(assignment, live)
    else:
        racks = {broker_id: address.rack for broker_id, address in broker.image.brokers.items()}
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
    return CreationRequest(name, assignment, overrides)


def _checked_settings(broker: Broker, name: str, config: Mapping[str, str | None]) -> dict[str, str]:
    """The settings that a new topic is given. Raises INVALID_CONFIG."""
    overrides = {key: value for key, value in config.items() if value is not None}
    try:
        broker.config.log.with_overrides(overrides)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    check_settings_size(name, overrides)
    return overrides


def topic_exists_error(broker: Broker, name: str) -> BrokerError:
    """Why a topic that exists is not made."""
    going = broker.controller.assignment_of(name) is None and not broker.controller.is_unknown(name)
    words = " and is marked for deletion: it goes once all brokers that have it are there" if going else ""
    return BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists{words}")


def _check_size(name: str, partitions: int, znode_bytes: int = 0) -> None:
    """Raise INVALID_PARTITIONS for more than one znode tells, by the number alone before it is made, or than
    directories can be named for.
    """
    if len(name) + 1 + len(str(partitions - 1)) > NAME_MAX_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"the name of topic {name} is too long for {partitions} partitions: the name of a directory has "
            f"at most {NAME_MAX_BYTES} bytes",
        )
    if max(znode_bytes, partitions * _PARTITION_BYTES_MIN) > DATA_MAX_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions of topic {name} do not fit its znode of {DATA_MAX_BYTES} bytes",
        )


def submit_creations(
    broker: Broker, wishes: Sequence[CreationRequest], ticket: DelayedTopicOperation, timeout_ms: int
) -> None:
    """Have the topics' znodes written; the controller's watch does the rest."""

    def failed(name: str, error: BrokerError) -> None:
        why = topic_exists_error(broker, name) if error.code is ErrorCode.TOPIC_ALREADY_EXISTS else error
        broker.run(lambda: ticket.fail_in_step(broker, name, why))

    deadline_ms = broker.clock.monotonic_ms() + timeout_ms if timeout_ms > 0 else None
    broker.creations.add(wishes, failed, deadline_ms)


def start_auto_creation(
    broker: Broker,
    name: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str | None] | None = None,
) -> None:
    """Create a topic because somebody needs it, unless that is under way.

    Raises BrokerError when it cannot be: LEADER_NOT_AVAILABLE where that holds for now only.
    """
    if broker.creations.is_wanted(name):
        return
    broker.creations.check_room(name)
    wish = plan_creation(
        broker, name, partitions, replication_factor, None, config or {}, racks_are_optional=True
    )
    broker.creations.add_automatic(wish)


def plan_new_partitions(
    broker: Broker,
    name: str,
    count: int,
    assignments: Sequence[tuple[int, ...]] | None,
    room: NewPartitionsLimit,
) -> PartitionsCreation:
    """What a topic will get to have ``count`` partitions. Raises BrokerError with the reason why it cannot.

    The new ones go round the brokers from where the first partition has its preferred leader, as
    ``AdminUtils.addPartitions`` of 0.10.1 has it.
    """
    known = broker.controller.assignment_of(name)
    if not known:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if name == OFFSETS_TOPIC:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name} keeps its {len(known)} partitions: on their number depends which one has a group",
        )
    if count <= len(known):
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name} has {len(known)} partitions; {count} are not more, and it cannot get fewer",
        )
    if sorted(known) != list(range(len(known))):
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name} has only the partitions {sorted(known)}, as its znode was written by hand: it "
            "cannot get more",
        )
    live = sorted(broker.image.brokers)
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
            racks={broker_id: address.rack for broker_id, address in broker.image.brokers.items()},
        )
    else:
        added = dict(enumerate(assignments, start=len(known)))
        check_growth(added, count - len(known), len(replicas), live)
    room.take(len(added))
    _check_size(name, count, len(TopicAssignment({**known, **added}).to_json()))
    return PartitionsCreation(name, added)


def submit_deletions(broker: Broker, names: Iterable[str]) -> None:
    """Mark topics for deletion on the worker, unless that is under way; the controller does the rest."""
    jobs = broker.request_jobs
    wanted = [name for name in names if jobs.claim("delete", name)]
    done = 0

    def job(is_over: Callable[[], bool]) -> bool:
        nonlocal done
        while done < len(wanted):
            some = wanted[done : done + _DELETIONS_PER_JOB]
            try:
                broker.registrar.request_deletions(some)
            except (CoordinationLost, SessionExpired):
                raise  # the worker runs this job again
            except CoordinationError as error:
                _log.error("%s cannot be deleted: %s", counted(len(some), "topic"), error)
            except Exception:  # noqa: BLE001 - it would keep what is claimed
                _log.exception("%s cannot be deleted", counted(len(some), "topic"))
            done += len(some)
            for name in some:
                jobs.release("delete", name)
            if is_over():
                break
        return done == len(wanted)

    if wanted:
        jobs.submit(job)


def submit_partition_creations(
    broker: Broker, wishes: Sequence[PartitionsCreation], ticket: DelayedTopicOperation
) -> None:
    """Add the partitions to the topics' znodes on the worker; the controller does the rest. A topic that is
    about to get some gets no more: REQUEST_TIMED_OUT, after which clients ask again.
    """
    jobs = broker.request_jobs
    claimed = []
    for wish in wishes:
        if jobs.claim("grow", wish.name):
            claimed.append(wish)
        else:
            busy = BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"topic {wish.name} is just getting partitions")
            broker.run(partial(ticket.fail_in_step, broker, wish.name, busy))
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

    def add(wish: PartitionsCreation) -> None:
        try:
            broker.registrar.add_partitions(wish.name, wish.assignment)
            return
        except NoNode:
            failure = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wish.name}")
        except BadVersion as error:
            failure = BrokerError(ErrorCode.INVALID_PARTITIONS, str(error))
        except (CoordinationLost, SessionExpired):
            raise  # the worker runs this job again
        except InconsistentClusterId as error:
            failure = BrokerError(ErrorCode.NOT_CONTROLLER, str(error))
        except Exception as error:  # noqa: BLE001 - it would keep what is claimed
            if not isinstance(error, CoordinationError):
                _log.exception("topic %s gets no partitions", wish.name)
            failure = BrokerError(ErrorCode.UNKNOWN, str(error))
        broker.run(lambda: ticket.fail_in_step(broker, wish.name, failure))

    if claimed:
        jobs.submit(job)
