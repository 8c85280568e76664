"""Warnings about failures that repeat: nothing for one that is soon over, then one warning an interval.

The error of an operation may be a minute away, so a lasting outage is logged before, as Kafka's clients do.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from minikafka.base.clock import Clock
from minikafka.base.errors import BrokerError, MinikafkaError

REPEAT_INTERVAL_MS = 30_000
"""Interval of a FailureLog's warnings. A failure that does not recur for that long has ended."""


class OutageLog:
    """One outage: failures without a success in between. Times are monotonic, in ms.

    The first warning is due when it has lasted ``warn_after_ms``, the next ones every ``warn_interval_ms``.
    Threads may share it: an outage that ends meanwhile may be warned of once too often.
    """

    __slots__ = ("_warn_after_ms", "_warn_interval_ms", "_warned_ms", "failures", "since_ms")

    def __init__(self, warn_after_ms: int, warn_interval_ms: int) -> None:
        self._warn_after_ms = warn_after_ms
        self._warn_interval_ms = warn_interval_ms
        self._warned_ms: int | None = None
        self.since_ms: int | None = None
        """Start of the first attempt that failed; None after a success."""
        self.failures = 0

    @property
    def warned(self) -> bool:
        """True if a warning about this outage was logged."""
        return self._warned_ms is not None

    def is_due(self, since_ms: int, now_ms: int) -> bool:
        """Return True if a warning is due about an outage that began at ``since_ms``."""
        warned_ms = self._warned_ms
        if warned_ms is None:
            return now_ms - since_ms >= self._warn_after_ms
        return now_ms - warned_ms >= self._warn_interval_ms

    def record_warning(self, now_ms: int) -> None:
        """Record that a warning about this outage is logged now."""
        self._warned_ms = now_ms

    def record_failure(self, started_ms: int, now_ms: int) -> bool:
        """Record an attempt that began at ``started_ms`` and has failed. Return True if a warning is due,
        which the caller logs.
        """
        self.failures += 1
        since_ms = self.since_ms
        if since_ms is None:
            since_ms = self.since_ms = started_ms
        due = self.is_due(since_ms, now_ms)
        if due:
            self.record_warning(now_ms)
        return due

    def record_success(self) -> None:
        """Record that the outage, if there was one, is over."""
        self.since_ms = self._warned_ms = None
        self.failures = 0

    def lasted_ms(self, now_ms: int) -> int:
        """Return how long the outage has lasted; 0 without one."""
        return 0 if self.since_ms is None else now_ms - self.since_ms


@dataclass(slots=True)
class _Failure:
    kind: object
    outage: OutageLog
    last_ms: int


class FailureLog:
    """The failures of several threads, partitions or consumers, by name: logs the first one of an outage,
    then one in each ``REPEAT_INTERVAL_MS``, and the recovery. Thread-safe.
    """

    def __init__(self, clock: Clock, logger: logging.Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._lock = threading.Lock()
        self._failures: dict[str, _Failure] = {}

    def record_failure(self, name: str, error: MinikafkaError, doing: str = "") -> None:
        """Log ``error`` as a warning, unless one of the same kind was logged for ``name`` within
        ``REPEAT_INTERVAL_MS``.
        """
        kind = error.code if isinstance(error, BrokerError) else type(error)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            failure = self._failures.get(name)
            if failure is None or failure.kind != kind or now_ms - failure.last_ms > REPEAT_INTERVAL_MS:
                failure = self._failures[name] = _Failure(kind, OutageLog(0, REPEAT_INTERVAL_MS), now_ms)
            failure.last_ms, outage = now_ms, failure.outage
            due = outage.record_failure(now_ms, now_ms)
        if due:
            lasted = f"{outage.failures} times in {outage.lasted_ms(now_ms) // 1000} s; retrying"
            self._logger.warning(
                "%s: %s%s%s", name, doing, error, f" ({lasted})" if outage.failures > 1 else ""
            )

    def record_recovery(self, name: str) -> None:
        """Log the recovery of ``name``: as a warning if its failure occurred more than once, else as info."""
        if name not in self._failures:
            return
        with self._lock:
            failure = self._failures.pop(name, None)
        if failure is not None:
            level = logging.WARNING if failure.outage.failures > 1 else logging.INFO
            lasted_ms = failure.outage.lasted_ms(self._clock.monotonic_ms())
            self._logger.log(level, "%s: recovered after %.1f s", name, lasted_ms / 1000)
