"""Retries: deadlines, back-off, and the record of failed attempts.

No client waits forever: every operation has a ``Deadline`` and every pause goes through a ``Waiter``, so
that tests control both and that closing a client ends its pauses at once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from minikafka.base.clock import Clock


class Waiter(Protocol):
    """Pauses between two attempts of a client."""

    def wait(self, milliseconds: int) -> None:
        """Return after ``milliseconds``, or earlier when the client is closed."""

    def stop(self) -> None:
        """End all pauses, current and future ones."""


class EventWaiter:
    """A waiter in real time."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def wait(self, milliseconds: int) -> None:
        self._stopped.wait(max(0, milliseconds) / 1000)

    def stop(self) -> None:
        self._stopped.set()


class Deadline:
    """A point on the monotonic scale of a clock, ``timeout_ms`` after its creation."""

    __slots__ = ("_clock", "_end_ms", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + timeout_ms
        self.timeout_ms = timeout_ms

    def remaining_ms(self) -> int:
        """Return the milliseconds left, 0 once the deadline has passed."""
        return max(0, self._end_ms - self._clock.monotonic_ms())

    @property
    def expired(self) -> bool:
        """True when the deadline has passed."""
        return self.remaining_ms() == 0

    def at_most(self, milliseconds: int) -> int:
        """Return ``milliseconds``, or the time left if that is less."""
        return min(milliseconds, self.remaining_ms())


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first_ms`` up to ``longest_ms``."""

    first_ms: int = 50
    longest_ms: int = 1_000

    def delay_ms(self, failures: int) -> int:
        """Return the pause after ``failures`` failed attempts in a row (0 after none)."""
        if failures <= 0:
            return 0
        # The shift is bounded so that a long outage does not build huge integers.
        return min(self.longest_ms, self.first_ms << min(failures - 1, 30))


class FailedAttempts:
    """The reasons of failed attempts, each reason once, for the message of the final error."""

    KEPT = 6

    def __init__(self) -> None:
        self.count = 0
        self._counts: dict[str, int] = {}

    def add(self, description: str) -> None:
        """Count one failed attempt."""
        self.count += 1
        count = self._counts.pop(description, 0)
        # Moved to the end: the newest reasons are worth keeping.
        self._counts[description] = count + 1
        if len(self._counts) > self.KEPT:
            del self._counts[next(iter(self._counts))]

    def __str__(self) -> str:
        if not self._counts:
            return "no attempt was made"
        return "; ".join(
            text if count == 1 else f"{text} ({count} times)" for text, count in self._counts.items()
        )
