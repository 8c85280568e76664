"""Counting what happens, and how often: a meter as the release's metrics have it, and a summary of sizes.

Both are thread-safe, and cheap when marked for many events at once.
"""

from __future__ import annotations

import math
import threading

from minikafka.base.clock import Clock, SystemClock

_TICK_MS = 5_000
_KEPT = math.exp(-_TICK_MS / 60_000)
"""How much of a minute's rate is left after one tick."""


class Meter:
    """How many there were, and how many a second: since the beginning, and of late.

    ``one_minute_rate`` weighs by age, as a Unix load average does, and moves every five seconds.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._begun_ms = self._ticked_ms = self._clock.monotonic_ms()
        self._count = 0
        self._since_tick = 0
        self._rate: float | None = None

    def mark(self, count: int = 1) -> None:
        """There were ``count`` more."""
        with self._lock:
            self._tick()
            self._count += count
            self._since_tick += count

    @property
    def count(self) -> int:
        """All so far."""
        return self._count

    @property
    def mean_rate(self) -> float:
        """Of a second, since the beginning."""
        passed_ms = self._clock.monotonic_ms() - self._begun_ms
        return self._count * 1000 / passed_ms if passed_ms else 0.0

    @property
    def one_minute_rate(self) -> float:
        """Of a second, of late; 0 in the first five seconds."""
        with self._lock:
            self._tick()
            return self._rate or 0.0

    def _tick(self) -> None:
        ticks = (self._clock.monotonic_ms() - self._ticked_ms) // _TICK_MS
        if not ticks:
            return
        of_late = self._since_tick * 1000 / _TICK_MS
        self._rate = of_late if self._rate is None else of_late + (self._rate - of_late) * _KEPT
        self._rate *= _KEPT ** (ticks - 1)
        self._ticked_ms += ticks * _TICK_MS
        self._since_tick = 0


class Summary:
    """Of some numbers: how many, their sum, mean, least and largest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._sum = 0
        self._least = 0
        self._largest = 0

    def add(self, number: int) -> None:
        """There was one more."""
        with self._lock:
            self._least = min(self._least, number) if self._count else number
            self._largest = max(self._largest, number)
            self._count += 1
            self._sum += number

    @property
    def count(self) -> int:
        """How many."""
        return self._count

    @property
    def sum(self) -> int:
        """All of them together."""
        return self._sum

    @property
    def mean(self) -> float:
        """0 for none."""
        return self._sum / self._count if self._count else 0.0

    @property
    def least(self) -> int:
        """0 for none."""
        return self._least

    @property
    def largest(self) -> int:
        """0 for none."""
        return self._largest
