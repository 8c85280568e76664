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
    __slots__ = ("began_ms", "count", "maximum", "minimum", "sum")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self.count = 0
        self.sum = 0.0
        self.minimum = math.inf
        self.maximum = -math.inf


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

    __slots__ = ("_current", "_previous", "count", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0
        self._current: _Window | None = None
        self._previous: _Window | None = None

    def record(self, value: float, now_ms: int) -> None:
        """Record a number at a monotonic time."""
        window = self._current
        if window is None or now_ms - window.began_ms >= WINDOW_MS:
            self._previous = window
            window = self._current = _Window(now_ms)
        window.count += 1
        window.sum += value
        if value > window.maximum:
            window.maximum = value
        if value < window.minimum:
            window.minimum = value
        self.count += 1
        self.total += value

    def read(self, now_ms: int) -> Reading:
        """Return the values at a monotonic time."""
        return merged([self], now_ms)

    def _windows(self) -> tuple[_Window, ...]:
        current, previous = self._current, self._previous
        return tuple({id(w): w for w in (current, previous) if w is not None}.values())


def merged(sensors: Iterable[Sensor], now_ms: int) -> Reading:
    """Return the values of several sensors as if all their numbers were those of one."""
    found = Reading()
    for sensor in sensors:
        found.total += sensor.total
        found.count += sensor.count
        for window in sensor._windows():
            found.add(window, now_ms)
    return found
