"""The topics that wait to be made: a bounded queue, worked off a few at a time between other jobs.

A request for metadata may name any number of new topics. Each costs writes to ZooKeeper, then a place in the
controller's work, so they must neither stand before the election of a leader nor wait without bound. One job
of the worker makes ``AT_ONCE`` of them, their writes under way together, and puts the rest behind all jobs
that came meanwhile.

What is needed to serve at all (the offsets topic) goes first and is never refused. Automatic creation is
refused while ``AUTOMATIC_MAX`` wait: the client hears LEADER_NOT_AVAILABLE, as of every topic that is to
come, and asks again. CreateTopics is refused while ``PENDING_MAX`` wait, or ``PARTITIONS_MAX`` partitions. A
topic of such a request whose time-out comes before its turn is not made.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    BrokerError,
    CoordinationError,
    CoordinationLost,
    ErrorCode,
    InconsistentClusterId,
    SessionExpired,
)
from minikafka.base.ids import INTERNAL_TOPICS
from minikafka.base.text import counted
from minikafka.controller.assignment import Assignment
from minikafka.server.workers.worker import Worker

_log = logging.getLogger(__name__)

AT_ONCE = 50
"""Topics of one job: some 0.1 s with ZooKeeper on the same host."""
AUTOMATIC_MAX = 1_000
PENDING_MAX = 10_000
PARTITIONS_MAX = 200_000
"""Of all topics that wait for requests; one alone may have more."""
_NAMED = 5
"""Topics that a message about many names."""

Failed = Callable[[str, BrokerError], None]
Make = Callable[[Mapping[str, tuple[Assignment, Mapping[str, str]]]], frozenset[str]]


@dataclass(frozen=True, slots=True)
class CreationRequest:
    """A topic that may be created."""

    name: str
    assignment: Assignment
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    wish: CreationRequest
    failed: Failed | None
    """Told why the topic is not made; None: nobody waits for it."""
    deadline_ms: int | None
    """Monotonic. What is not begun by then is not made."""


class TopicCreations:
    """See the module. Any thread may add; topics are made on the worker."""

    def __init__(self, worker: Worker, clock: Clock, make: Make) -> None:
        """``make`` writes the znodes of topics and returns the topics that existed (``ZooKeeperClient``)."""
        self._worker = worker
        self._clock = clock
        self._make = make
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._partitions = 0
        """How many the waiting topics will have."""
        self._automatic: set[str] = set()
        """Names that are waiting, or being made, because somebody needs them."""
        self._scheduled = False
        self._batch: list[_Waiting] = []
        """What the present job makes: a job that met a lost connection is run again."""
        self._tried = False
        """Whether an attempt at this batch failed: then a topic that is there may be its own."""

    def __len__(self) -> int:
        return len(self._waiting)

    def is_wanted(self, name: str) -> bool:
        """Whether a topic is to be made already because somebody needs it."""
        return name in self._automatic

    def check_room(self, name: str) -> None:
        """Raise LEADER_NOT_AVAILABLE where one more topic cannot be made because somebody needs it."""
        if len(self._waiting) >= AUTOMATIC_MAX and name not in INTERNAL_TOPICS:
            raise BrokerError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"topic {name} is not made now: {len(self._waiting)} topics wait to be made, ask again later",
            )

    def add_automatic(self, wish: CreationRequest) -> None:
        """Have a topic made because somebody needs it."""
        with self._lock:
            if wish.name in self._automatic:
                return
            self._automatic.add(wish.name)
            self._partitions += len(wish.assignment)
            waiting = _Waiting(wish, None, None)
            if wish.name in INTERNAL_TOPICS:
                self._waiting.appendleft(waiting)
            else:
                self._waiting.append(waiting)
        self._schedule()

    def add(self, wishes: Sequence[CreationRequest], failed: Failed, deadline_ms: int | None) -> None:
        """Have topics made for one request. ``failed`` is told of each that is not; not within this call."""
        refused = []
        with self._lock:
            for wish in wishes:
                if self._has_room(len(wish.assignment)):
                    self._partitions += len(wish.assignment)
                    self._waiting.append(_Waiting(wish, failed, deadline_ms))
                else:
                    refused.append(wish.name)
        if refused:
            self._worker.submit(lambda: self._refuse(refused, failed))
        self._schedule()

    def _has_room(self, partitions: int) -> bool:
        waiting = len(self._waiting)
        return not waiting or (waiting < PENDING_MAX and self._partitions + partitions <= PARTITIONS_MAX)

    def _refuse(self, names: list[str], failed: Failed) -> None:
        waiting = len(self._waiting)
        _log.warning("%d new topics are refused: %d wait to be made", len(names), waiting)
        for name in names:
            failed(name, _not_begun(f"{waiting} topics wait to be made, and no more can"))

    def _schedule(self) -> None:
        with self._lock:
            if self._scheduled or not self._waiting:
                return
            self._scheduled = True
        self._worker.submit(self._make_some)

    def _make_some(self) -> None:
        """The job. After it the next one can come, whatever happened, unless it is to be run again."""
        if not self._batch:
            self._batch = self._take()
            self._tried = False
        try:
            failures = self._make_batch()
        except (CoordinationLost, SessionExpired):
            self._tried = True
            raise
        done, self._batch = self._batch, []
        with self._lock:
            self._automatic -= {one.wish.name for one in done if one.failed is None}
            self._scheduled = False
        self._schedule()  # behind what was submitted meanwhile
        for one in done:
            if one.wish.name in failures:
                _tell(one, failures[one.wish.name])

    def _make_batch(self) -> dict[str, BrokerError]:
        """Make the topics of the batch; give those that are not made, and why.

        What one topic raises does not keep the others from being made: they are tried one at a time then.
        """
        try:
            return self._attempt(self._batch)
        except (CoordinationLost, SessionExpired):
            raise
        except Exception as error:  # noqa: BLE001 - or no topic would be made again until a restart
            errors = {self._batch[0].wish.name: error} if self._batch else {}
        failures: dict[str, BrokerError] = {}
        if len(self._batch) > 1:
            self._tried = True  # the attempt may have made some
            errors = {}
            for one in self._batch:
                try:
                    failures |= self._attempt([one])
                except (CoordinationLost, SessionExpired):
                    raise
                except Exception as error:  # noqa: BLE001
                    errors[one.wish.name] = error
        if errors:
            _log_failure(errors)
        return failures | {name: _refusal(error) for name, error in errors.items()}

    def _attempt(self, batch: Sequence[_Waiting]) -> dict[str, BrokerError]:
        """Make topics; give those that were there before. Raises what ``make`` raises."""
        found = self._make({one.wish.name: (one.wish.assignment, one.wish.config) for one in batch})
        if self._tried:
            return {}
        return {
            name: BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
            for name in (one.wish.name for one in batch)
            if name in found
        }

    def _take(self) -> list[_Waiting]:
        """The next few, no name twice, and without those whose request has ended."""
        now_ms = self._clock.monotonic_ms()
        taken: dict[str, _Waiting] = {}
        late: list[_Waiting] = []
        with self._lock:
            while self._waiting and len(taken) < AT_ONCE and self._waiting[0].wish.name not in taken:
                one = self._waiting.popleft()
                self._partitions -= len(one.wish.assignment)
                if one.deadline_ms is not None and one.deadline_ms <= now_ms:
                    late.append(one)
                else:
                    taken[one.wish.name] = one
        for one in late:
            _tell(one, _not_begun("others were made before it"))
        return list(taken.values())


def _tell(waiting: _Waiting, error: BrokerError) -> None:
    """Tell whoever waits for a topic that it is not made."""
    if waiting.failed is None:
        return
    try:
        waiting.failed(waiting.wish.name, error)
    except Exception:  # noqa: BLE001 - it must not keep the others from being told
        _log.exception("the request for topic %s cannot be told: %s", waiting.wish.name, error)


def _refusal(error: Exception) -> BrokerError:
    """What the request for a topic is told when ``error`` was met."""
    words = str(error) if isinstance(error, CoordinationError) else f"unexpected error: {error!r}"
    # In another cluster's ZooKeeper nobody is the controller: clients look for it, and ask again.
    code = ErrorCode.NOT_CONTROLLER if isinstance(error, InconsistentClusterId) else ErrorCode.UNKNOWN
    return BrokerError(code, words)


def _log_failure(errors: Mapping[str, Exception]) -> None:
    """One message for all topics that cannot be made, with the first one's error."""
    names, first = list(errors), next(iter(errors.values()))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    _log.error(
        "%s (%s%s) cannot be made: %s",
        counted(len(names), "topic"),
        ", ".join(names[:_NAMED]),
        more,
        _refusal(first).detail,
        exc_info=None if isinstance(first, CoordinationError) else first,
    )


def _not_begun(why: str) -> BrokerError:
    return BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"the topic is not made, not later either: {why}")
