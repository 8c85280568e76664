"""When to look at a connection that is paused, or may stall, idle or linger too long.

Looking is put off, not done each time something happens: a connection that was busy meanwhile costs one look
in each of its periods, and a thousand idle ones cost nothing between.
"""

from __future__ import annotations

import heapq
import itertools
import socket
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

NEVER_MS = 1 << 62
_SPARE = 64


class Timed(Protocol):
    """What can have an alarm."""

    timer_ms: int
    """When the next one rings; kept by ``Timers``, ``NEVER_MS`` at first and once all is over."""


Item = TypeVar("Item", bound=Timed)


class Timers(Generic[Item]):
    """One alarm for each item. Not thread-safe; times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._numbers = itertools.count()
        self._set = 0
        """How many items have an alarm; other entries of the heap are out of date."""

    def set(self, item: Item, at_ms: int) -> None:
        """Ring at ``at_ms``, or before when there is an earlier alarm already."""
        if at_ms >= item.timer_ms:
            return
        self._set += item.timer_ms == NEVER_MS
        item.timer_ms = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), item))
        if len(self._heap) > 2 * self._set + _SPARE:
            self._heap = [entry for entry in self._heap if entry[2].timer_ms == entry[0]]
            heapq.heapify(self._heap)

    def clear(self, item: Item) -> None:
        """Ring no more."""
        self._set -= item.timer_ms != NEVER_MS
        item.timer_ms = NEVER_MS

    def next_ms(self) -> int | None:
        """When the first rings (or would have); None when there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Item]:
        """The items whose alarms ring, which have none then."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, item = heapq.heappop(self._heap)
            if item.timer_ms == at_ms:
                self.clear(item)
                yield item


class Wakeup:
    """Thread-safe. ``wake`` any number of times makes ``reader`` readable until ``clear``."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Make the reader readable. After ``close`` nothing happens."""
        try:
            self._writer.send(b"\0")
        except OSError:
            # Full: the other thread has wakes enough. Closed: there is nobody to wake.
            return

    def clear(self) -> None:
        """Take back all wakes so far. For the selecting thread, before it looks at what it was woken for."""
        try:
            while len(self.reader.recv(4096)) == 4096:
                pass
        except OSError:
            return

    def close(self) -> None:
        """Close both ends."""
        self.reader.close()
        self._writer.close()
