"""Rates for quotas, as Kafka measures them: by totals of windows, or by tokens. Pure; times are monotonic
milliseconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

_LONGEST_MS = 0x7FFFFFFF
"""The largest value of ``throttle_time_ms`` in responses: 24 days."""


@dataclass(slots=True)
class _Window:
    began_ms: int
    total: float = 0


class Rate:
    """The rate over the last windows, as Kafka's ``Rate`` of sampled totals."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._count = windows
        self.window_ms = window_ms
        self._windows: deque[_Window] = deque(maxlen=windows)

    def record(self, count: float, now_ms: int) -> None:
        """Add ``count``, of bytes or whatever is limited; a negative one takes back what was added."""
        if not self._windows or now_ms - self._windows[-1].began_ms >= self.window_ms:
            self._windows.append(_Window(now_ms))
        self._windows[-1].total += count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time that what is above ``limit`` (a second) takes at the limit; 0 for none.

        Above a limit of 0 the pause is one window, again and again until all windows have passed.
        """
        if self.idle(now_ms):
            return 0
        span_ms = self._span_ms(now_ms)
        over = sum(window.total for window in self._windows) - limit * span_ms / 1000
        if over <= 0:
            return 0
        return min(round(over / limit * 1000), _LONGEST_MS) if limit else self.window_ms

    def per_second(self, now_ms: int) -> float:
        """Return what was recorded in the windows that count, a second."""
        if self.idle(now_ms):
            return 0.0
        return sum(window.total for window in self._windows) * 1000 / self._span_ms(now_ms)

    def idle(self, now_ms: int) -> bool:
        """Drop windows that have passed; return True if none is left."""
        while self._windows and now_ms - self._windows[0].began_ms >= self._count * self.window_ms:
            self._windows.popleft()
        return not self._windows

    @property
    def began_ms(self) -> int:
        """The start of the first window that counts; only valid if the rate is not ``idle``."""
        return self._windows[0].began_ms

    def _span_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - self.began_ms
        missing = max(0, self._count - 1 - elapsed_ms // self.window_ms)
        return max(1, elapsed_ms + missing * self.window_ms)


class SimpleRate(Rate):
    """A rate over the elapsed time only, so that unlike ``Rate`` it allows no initial burst."""

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        pause_ms = super().throttle_ms(limit, now_ms)
        # The first window counts as a whole one from its start on.
        return pause_ms and pause_ms + max(0, self.began_ms + self.window_ms - now_ms)

    def _span_ms(self, now_ms: int) -> int:
        return max(self.window_ms, now_ms - self.began_ms)


class TokenBucket:
    """A rate by tokens, as Kafka's ``TokenBucket``: ``limit`` of them are added in a second, up to those of
    ``burst_ms``.

    What is used at once may exceed the tokens that are left.
    """

    def __init__(self, limit: float, burst_ms: int) -> None:
        self._limit = limit
        self._burst_ms = burst_ms
        self._used = 0.0
        """The tokens that a full bucket would have beside those that are left."""
        self._since_ms = 0

    def set_limit(self, limit: float, now_ms: int) -> None:
        """Add ``limit`` tokens a second from now on."""
        self._refill(now_ms)
        self._limit = limit

    def record(self, count: float, now_ms: int) -> None:
        """Use ``count`` tokens."""
        self._refill(now_ms)
        self._used += count

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time until no tokens are owed; 0 if none are."""
        self._refill(now_ms)
        owed = self._used - self._limit * self._burst_ms / 1000
        return min(math.ceil(owed / self._limit * 1000), _LONGEST_MS) if owed > 0 else 0

    def idle(self, now_ms: int) -> bool:
        """Return True if the bucket is full."""
        self._refill(now_ms)
        return not self._used

    def _refill(self, now_ms: int) -> None:
        self._used = max(0.0, self._used - self._limit * (now_ms - self._since_ms) / 1000)
        self._since_ms = now_ms
