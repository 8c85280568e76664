"""The progress of opening a broker's logs: one line in the broker's log every few seconds.

The check of unflushed segments may read gigabytes; the operator must see that it advances.
"""

from __future__ import annotations

import logging

from minikafka.base.clock import Clock
from minikafka.base.reports import report

INTERVAL_MS = 2_000


class OpeningProgress:
    """Counts opened logs and checked bytes. Any thread may call ``advance`` and ``opened``, without a lock:
    a lost count does no harm.
    """

    def __init__(self, clock: Clock, logger: logging.Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._logs = 0
        self._opened = 0
        self._checked_bytes = 0
        self._began_ms = clock.monotonic_ms()
        self._reported_ms = self._began_ms

    def expect(self) -> None:
        """Count one more log to open."""
        self._logs += 1

    def advance(self, size_bytes: int) -> None:
        """Count bytes that were checked."""
        self._checked_bytes += size_bytes
        self._report()

    def opened(self) -> None:
        """Count one more opened log."""
        self._opened += 1
        self._report()

    def _report(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._reported_ms >= INTERVAL_MS:
            self._reported_ms = now_ms
            self._logger.info("opening logs: %s", self._state())
            report("opening", opened=self._opened, of=self._logs, checked_bytes=self._checked_bytes)

    def end(self) -> None:
        """Log that all logs are opened."""
        seconds = (self._clock.monotonic_ms() - self._began_ms) / 1000
        if self._logs:
            self._logger.info("opened logs in %.1f s: %s", seconds, self._state())

    def _state(self) -> str:
        checked = f", {self._checked_bytes / (1 << 20):,.0f} MiB checked" if self._checked_bytes else ""
        return f"{self._opened:,} of {self._logs:,}{checked}"
