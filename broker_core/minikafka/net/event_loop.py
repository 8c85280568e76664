"""Parts of the event loops: timers of connections, and a way to wake a selector.

Timers are lazy: activity does not move them. A busy connection costs one check in each of its periods, and a
thousand idle ones cost nothing between.
"""

from __future__ import annotations

import heapq
import itertools
import socket
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from minikafka.base.clock import NEVER_MS

_SPARE = 64


class Timed(Protocol):
    """An object that can have a timer."""

    timer_ms: int
    """The time at which the timer is due; maintained by ``Timers``. ``NEVER_MS`` at first and without one."""


Item = TypeVar("Item", bound=Timed)


class Timers(Generic[Item]):
    """One timer for each item. Not thread-safe; times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._numbers = itertools.count()
        self._set = 0
        """The number of items with a timer; other entries of the heap are stale."""

    def set(self, item: Item, at_ms: int) -> None:
        """Set the timer to ``at_ms``, unless it is due earlier."""
        if at_ms >= item.timer_ms:
            return
        self._set += item.timer_ms == NEVER_MS
        item.timer_ms = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), item))
        if len(self._heap) > 2 * self._set + _SPARE:
            self._heap = [entry for entry in self._heap if entry[2].timer_ms == entry[0]]
            heapq.heapify(self._heap)

    def clear(self, item: Item) -> None:
        """Remove the timer."""
        self._set -= item.timer_ms != NEVER_MS
        item.timer_ms = NEVER_MS

    def next_ms(self) -> int | None:
        """Return when the first timer is due (perhaps a stale one); None when there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Item]:
        """Yield the items whose timers are due, and remove those timers."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, item = heapq.heappop(self._heap)
            if item.timer_ms == at_ms:
                self.clear(item)
                yield item


class SelectorWakeup:
    """Wakes a ``select`` of another thread through a socket pair. Thread-safe.

    After any number of ``wake`` calls ``reader`` is readable until ``clear``.
    """

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Make the reader readable. Does nothing after ``close``."""
        try:
            self._writer.send(b"\0")
        except OSError:
            # Full: a wake-up is pending. Closed: there is no thread to wake.
            return

    def clear(self) -> None:
        """Consume all wake-ups. For the selecting thread, before it checks its queues."""
        try:
            while len(self.reader.recv(4096)) == 4096:
                pass
        except OSError:
            return

    def close(self) -> None:
        """Close both ends."""
        self.reader.close()
        self._writer.close()
