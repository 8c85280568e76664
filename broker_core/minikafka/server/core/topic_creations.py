"""A bounded queue of topics to create, processed a few at a time between other jobs.

A metadata request may name any number of new topics. Each costs writes to ZooKeeper and then work of the
controller, so they must neither delay the election of a leader nor queue up without bound. One job of the
worker creates ``AT_ONCE`` of them, with their writes in flight together, and queues the rest behind all jobs
that were submitted meanwhile.

The offsets topic, without which groups cannot be served, goes first and is never rejected. Automatic creation
is rejected while ``AUTOMATIC_MAX`` topics are queued: the client gets LEADER_NOT_AVAILABLE, as for every
topic that is being created, and retries. CreateTopics is rejected while ``PENDING_MAX`` topics or
``PARTITIONS_MAX`` partitions are queued. A topic of such a request that times out before its turn is not
created.
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
from minikafka.base.text import counted, first_of
from minikafka.controller.assignment import Assignment
from minikafka.server.workers.worker import Worker

_log = logging.getLogger(__name__)

AT_ONCE = 50
"""The number of topics that one job creates: about 0.1 s with ZooKeeper on the same host."""
AUTOMATIC_MAX = 1_000
PENDING_MAX = 10_000
PARTITIONS_MAX = 200_000
"""The limit for the partitions of all queued topics. A single queued topic may have more."""
_NAMED = 5
"""The number of topics that one message names."""

Failed = Callable[[str, BrokerError], None]
Make = Callable[[Mapping[str, tuple[Assignment, Mapping[str, str]]]], frozenset[str]]


@dataclass(frozen=True, slots=True)
class CreationRequest:
    """A topic to be created, with its replica assignment and configs."""

    name: str
    assignment: Assignment
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A queued topic."""

    request: CreationRequest
    failed: Failed | None
    """Called with the reason if the topic is not created; None for automatic creation."""
    deadline_ms: int | None
    """Monotonic. A topic whose creation has not started by then is not created."""


class TopicCreations:
    """The queue of topics to be created. Any thread may add; the worker creates them. See the module."""

    def __init__(self, worker: Worker, clock: Clock, make: Make) -> None:
        """``make`` writes the znodes of topics and returns the topics that existed (``ZooKeeperClient``)."""
        self._worker = worker
        self._clock = clock
        self._make = make
        self._lock = threading.Lock()
        self._pending: deque[_Pending] = deque()
        self._partitions = 0
        """The number of partitions of the queued topics."""
        self._automatic: set[str] = set()
        """Names of topics whose automatic creation is queued or in progress."""
        self._scheduled = False
        self._batch: list[_Pending] = []
        """The topics of the current job, which is run again after a lost connection."""
        self._tried = False
        """True if an attempt at this batch failed: then an existing topic may be its own."""

    def __len__(self) -> int:
        return len(self._pending)

    def is_pending(self, name: str) -> bool:
        """Return True if the automatic creation of a topic is queued or in progress."""
        return name in self._automatic

    def check_room(self, name: str) -> None:
        """Raise LEADER_NOT_AVAILABLE if the queue has no room for another automatic creation."""
        if len(self._pending) >= AUTOMATIC_MAX and name not in INTERNAL_TOPICS:
            raise BrokerError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"too many topics are being created ({len(self._pending)}): retry topic {name} later",
            )

    def add_automatic(self, request: CreationRequest) -> None:
        """Queue the automatic creation of a topic."""
        with self._lock:
            if request.name in self._automatic:
                return
            self._automatic.add(request.name)
            self._partitions += len(request.assignment)
            pending = _Pending(request, None, None)
            if request.name in INTERNAL_TOPICS:
                self._pending.appendleft(pending)
            else:
                self._pending.append(pending)
        self._schedule()

    def add(self, requests: Sequence[CreationRequest], failed: Failed, deadline_ms: int | None) -> None:
        """Queue the topics of one request. ``failed`` is called later for each that is not created."""
        rejected = []
        with self._lock:
            for request in requests:
                if self._has_room(len(request.assignment)):
                    self._partitions += len(request.assignment)
                    self._pending.append(_Pending(request, failed, deadline_ms))
                else:
                    rejected.append(request.name)
        if rejected:
            self._worker.submit(lambda: self._reject(rejected, failed))
        self._schedule()

    def _has_room(self, partitions: int) -> bool:
        pending = len(self._pending)
        return not pending or (pending < PENDING_MAX and self._partitions + partitions <= PARTITIONS_MAX)

    def _reject(self, names: list[str], failed: Failed) -> None:
        pending = len(self._pending)
        _log.warning("rejected the creation of %d topics: %d topics are being created", len(names), pending)
        for name in names:
            failed(name, _not_created(f"too many topics are being created ({pending})"))

    def _schedule(self) -> None:
        with self._lock:
            if self._scheduled or not self._pending:
                return
            self._scheduled = True
        self._worker.submit(self._make_some)

    def _make_some(self) -> None:
        """Create one batch. A job: the next one is scheduled after it, unless it has to be run again."""
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
            self._automatic -= {pending.request.name for pending in done if pending.failed is None}
            self._scheduled = False
        self._schedule()  # behind the jobs that were submitted meanwhile
        for pending in done:
            if pending.request.name in failures:
                _report_failure(pending, failures[pending.request.name])

    def _make_batch(self) -> dict[str, BrokerError]:
        """Create the topics of the batch; return the errors of those that are not created.

        An error of one topic does not prevent the creation of the others: they are then tried one at a time.
        """
        try:
            return self._attempt(self._batch)
        except (CoordinationLost, SessionExpired):
            raise
        except Exception as error:  # noqa: BLE001 - otherwise no topic could be created until a restart
            errors = {self._batch[0].request.name: error} if self._batch else {}
        failures: dict[str, BrokerError] = {}
        if len(self._batch) > 1:
            self._tried = True  # the attempt may have created some
            errors = {}
            for pending in self._batch:
                try:
                    failures |= self._attempt([pending])
                except (CoordinationLost, SessionExpired):
                    raise
                except Exception as error:  # noqa: BLE001
                    errors[pending.request.name] = error
        if errors:
            _log_failure(errors)
        return failures | {name: _error_for(error) for name, error in errors.items()}

    def _attempt(self, batch: Sequence[_Pending]) -> dict[str, BrokerError]:
        """Create topics; return the errors of those that existed before. Raises the errors of ``make``."""
        requests = [pending.request for pending in batch]
        found = self._make({request.name: (request.assignment, request.config) for request in requests})
        if self._tried:
            return {}
        return {
            request.name: BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {request.name} exists")
            for request in requests
            if request.name in found
        }

    def _take(self) -> list[_Pending]:
        """Take the next batch from the queue: no name twice, without those that have timed out."""
        now_ms = self._clock.monotonic_ms()
        taken: dict[str, _Pending] = {}
        late: list[_Pending] = []
        with self._lock:
            while self._pending and len(taken) < AT_ONCE and self._pending[0].request.name not in taken:
                pending = self._pending.popleft()
                self._partitions -= len(pending.request.assignment)
                if pending.deadline_ms is not None and pending.deadline_ms <= now_ms:
                    late.append(pending)
                else:
                    taken[pending.request.name] = pending
        for pending in late:
            _report_failure(pending, _not_created("timed out behind other topics"))
        return list(taken.values())


def _report_failure(pending: _Pending, error: BrokerError) -> None:
    """Report to the request for a topic, if there is one, that the topic is not created."""
    if pending.failed is None:
        return
    try:
        pending.failed(pending.request.name, error)
    except Exception:  # noqa: BLE001 - the failures of other topics must be reported too
        _log.exception("failed to report that topic %s was not created: %s", pending.request.name, error)


def _error_for(error: Exception) -> BrokerError:
    """Return the error with which the request for a topic is answered after ``error``."""
    text = str(error) if isinstance(error, CoordinationError) else f"unexpected error: {error!r}"
    # In another cluster's ZooKeeper no broker is the controller: clients look for it, and retry.
    code = ErrorCode.NOT_CONTROLLER if isinstance(error, InconsistentClusterId) else ErrorCode.UNKNOWN
    return BrokerError(code, text)


def _log_failure(errors: Mapping[str, Exception]) -> None:
    """Log one message for all topics that were not created, with the first one's error."""
    names, first = list(errors), next(iter(errors.values()))
    _log.error(
        "failed to create %s (%s): %s",
        counted(len(names), "topic"),
        first_of(names, _NAMED),
        _error_for(first).detail,
        exc_info=None if isinstance(first, CoordinationError) else first,
    )


def _not_created(why: str) -> BrokerError:
    return BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"the topic was not created: {why}")
