"""Time as a port, so that tests can run everything on a clock that they advance themselves."""

from __future__ import annotations

import time
from typing import Protocol

NEVER_MS = 1 << 62
"""A time that does not come."""


class Clock(Protocol):
    """A source of time. All values are milliseconds."""

    def now_ms(self) -> int:
        """Wall time since the epoch: for timestamps in messages and znodes."""

    def monotonic_ms(self) -> int:
        """Time that never goes back: for deadlines and intervals."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until ``advance`` is called."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, milliseconds: int) -> None:
        """Let ``milliseconds`` pass on both scales."""
        if milliseconds < 0:
            raise ValueError(f"time cannot go back by {-milliseconds} ms")
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds

    def adjust_wall_clock(self, milliseconds: int) -> None:
        """Set the wall clock forward, or back by a negative number. The monotonic time does not change."""
        self._now_ms += milliseconds
