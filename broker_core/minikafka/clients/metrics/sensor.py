"""A sensor: the total of a number, and its rate, mean, minimum and maximum over the last windows of time.

As in Kafka's clients with their defaults there are two windows of 30 seconds: values are of the last 30 to 60
seconds. Before the first number, and when all windows have passed, a rate is 0, and mean, minimum and maximum
are NaN.

Cost: ``record`` is for each batch or request, never for each record. It allocates nothing but a window
every 30 seconds, and takes no lock: all calls come from one thread, or under a lock that their caller holds.
``read`` may be called from any other thread; it may miss the number that is being recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

WINDOW_MS = 30_000
_WINDOWS = 2


class _Window:
    """The numbers of one window, and the totals of all before it, so that both are replaced together."""

    __slots__ = ("began_ms", "count", "count_before", "ends_ms", "maximum", "minimum", "sum", "sum_before")

    def __init__(self, began_ms: float, sum_before: float = 0.0, count_before: int = 0) -> None:
        self.sum_before = sum_before
        self.count_before = count_before
        self.began_ms = began_ms
        self.ends_ms = began_ms + WINDOW_MS
        self.count = 0
        self.sum = 0.0
        self.minimum = math.inf
        self.maximum = -math.inf


_BEFORE = _Window(-math.inf)
"""The window before the first number of every sensor, to which none is added."""


class Reading:
    """The values of a sensor at one time, or of several sensors together."""

    __slots__ = ("count", "maximum", "minimum", "span_ms", "total", "window_count", "window_sum")

    def __init__(self) -> None:
        self.total = 0.0
        """The sum of all numbers so far."""
        self.count = 0
        """The number of numbers so far."""
        self.window_count = 0
        self.window_sum = 0.0
        self.minimum = math.inf
        self.maximum = -math.inf
        self.span_ms: float = WINDOW_MS

    @property
    def rate(self) -> float:
        """The sum of the numbers per second."""
        return self.window_sum * 1000 / self.span_ms

    @property
    def count_rate(self) -> float:
        """The numbers per second."""
        return self.window_count * 1000 / self.span_ms

    @property
    def mean(self) -> float:
        """The mean; NaN for none."""
        return self.window_sum / self.window_count if self.window_count else math.nan

    @property
    def largest(self) -> float:
        """The maximum; NaN for none."""
        return self.maximum if self.window_count else math.nan

    @property
    def smallest(self) -> float:
        """The minimum; NaN for none."""
        return self.minimum if self.window_count else math.nan

    def add(self, window: _Window, now_ms: int) -> None:
        """Include a window, unless it has passed."""
        elapsed_ms = now_ms - window.began_ms
        if elapsed_ms < _WINDOWS * WINDOW_MS:
            self.window_count += window.count
            self.window_sum += window.sum
            self.minimum = min(self.minimum, window.minimum)
            self.maximum = max(self.maximum, window.maximum)
            # A young sensor counts as if it were one window old, so that its first numbers are no burst.
            self.span_ms = max(self.span_ms, elapsed_ms)


class Sensor:
    """Measures one number."""

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current = self._previous = _BEFORE

    def record(self, value: float, now_ms: int) -> None:
        """Record a number at a monotonic time."""
        window = self._current
        if now_ms >= window.ends_ms:
            window = self._begin_window(now_ms)
        window.count += 1
        window.sum += value
        if value > window.maximum:
            window.maximum = value
        if value < window.minimum:
            window.minimum = value

    def read(self, now_ms: int) -> Reading:
        """Return the values at a monotonic time."""
        return merged([self], now_ms)

    def add_totals(self, other: Sensor) -> None:
        """Include the numbers of another sensor in the totals. Nothing else may be recorded."""
        found = merged([self, other], 0)
        self._current = self._previous = _Window(-math.inf, found.total, found.count)

    def add_to(self, found: Reading, now_ms: int) -> None:
        """Add the values at a monotonic time to those of other sensors."""
        current, previous = self._current, self._previous
        found.total += current.sum_before + current.sum
        found.count += current.count_before + current.count
        found.add(current, now_ms)
        if previous is not current:  # else another thread is beginning a window
            found.add(previous, now_ms)

    def _begin_window(self, now_ms: int) -> _Window:
        ended = self._current
        begun = _Window(now_ms, ended.sum_before + ended.sum, ended.count_before + ended.count)
        self._previous, self._current = ended, begun
        return begun


def merged(sensors: Iterable[Sensor], now_ms: int) -> Reading:
    """Return the values of several sensors as if all their numbers were those of one."""
    found = Reading()
    for sensor in sensors:
        sensor.add_to(found, now_ms)
    return found
