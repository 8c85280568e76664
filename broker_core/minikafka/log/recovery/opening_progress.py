"""How far the opening of a broker's logs is: one line in the broker's log every few seconds.

Checking what was not flushed reads gigabytes; whoever waits must see that something happens.
"""

from __future__ import annotations

import logging

from minikafka.base.clock import Clock
from minikafka.base.reports import report

INTERVAL_MS = 2_000


class OpeningProgress:
    """Counts logs and bytes. Any thread may call ``advance`` and ``opened``: a lost count does no harm."""

    def __init__(self, clock: Clock, logger: logging.Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._logs = 0
        self._opened = 0
        self._checked_bytes = 0
        self._began_ms = clock.monotonic_ms()
        self._said_ms = self._began_ms

    def expect(self) -> None:
        """One more log will be opened."""
        self._logs += 1

    def advance(self, size_bytes: int) -> None:
        """So much was checked."""
        self._checked_bytes += size_bytes
        self._say()

    def opened(self) -> None:
        """One more log is there."""
        self._opened += 1
        self._say()

    def _say(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._said_ms >= INTERVAL_MS:
            self._said_ms = now_ms
            self._logger.info("opening logs: %s", self._state())
            report("opening", opened=self._opened, of=self._logs, checked_bytes=self._checked_bytes)

    def end(self) -> None:
        """All are there."""
        seconds = (self._clock.monotonic_ms() - self._began_ms) / 1000
        if self._logs:
            self._logger.info("opened logs in %.1f s: %s", seconds, self._state())

    def _state(self) -> str:
        checked = f", {self._checked_bytes / (1 << 20):,.0f} MiB checked" if self._checked_bytes else ""
        return f"{self._opened:,} of {self._logs:,}{checked}"
