"""A number that only rises, whoever raises it.

``x = max(x, y)`` by two threads can lose the larger one: the first reads, the second stores, the first stores
what it knew. Here no number is ever replaced by a smaller one. Each is added to a list, and only numbers
below one that was added are taken out; so the largest is always there, without a lock.
"""

from __future__ import annotations

import contextlib


class Highest:
    """The largest of the numbers that it was given. From any threads."""

    __slots__ = ("_given",)

    def __init__(self, first: int) -> None:
        self._given = [first]

    @property
    def value(self) -> int:
        """The largest one so far."""
        return max(tuple(self._given))

    def raise_to(self, number: int) -> None:
        """Make it ``number`` when that is larger."""
        if number <= self.value:
            return
        self._given.append(number)
        for smaller in tuple(self._given):
            if smaller < number:
                # Another thread may have taken it out.
                with contextlib.suppress(ValueError):
                    self._given.remove(smaller)
