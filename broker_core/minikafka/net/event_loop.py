"""When to look at a connection that is paused, or may stall, idle or linger too long.

Looking is put off, not done each time something happens: a connection that was busy meanwhile costs one look
in each of its periods, and a thousand idle ones cost nothing between.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

NEVER_MS = 1 << 62
_SPARE = 64


class Watched(Protocol):
    """What can have an alarm."""

    alarm_ms: int
    """When the next one rings; kept by ``Alarms``, ``NEVER_MS`` at first and once all is over."""


Item = TypeVar("Item", bound=Watched)


class Alarms(Generic[Item]):
    """One alarm for each item. Not thread-safe; times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._numbers = itertools.count()
        self._set = 0
        """How many items have an alarm; other entries of the heap are out of date."""

    def set(self, item: Item, at_ms: int) -> None:
        """Ring at ``at_ms``, or before when there is an earlier alarm already."""
        if at_ms >= item.alarm_ms:
            return
        self._set += item.alarm_ms == NEVER_MS
        item.alarm_ms = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), item))
        if len(self._heap) > 2 * self._set + _SPARE:
            self._heap = [entry for entry in self._heap if entry[2].alarm_ms == entry[0]]
            heapq.heapify(self._heap)

    def clear(self, item: Item) -> None:
        """Ring no more."""
        self._set -= item.alarm_ms != NEVER_MS
        item.alarm_ms = NEVER_MS

    def next_ms(self) -> int | None:
        """When the first rings (or would have); None when there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Item]:
        """The items whose alarms ring, which have none then."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, item = heapq.heappop(self._heap)
            if item.alarm_ms == at_ms:
                self.clear(item)
                yield item
