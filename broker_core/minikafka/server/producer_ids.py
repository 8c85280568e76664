"""Ids for producers: handed out from a block that ZooKeeper has given to this broker alone.

What is left of a block when the broker stops is never used: there are 2^63.
"""

from __future__ import annotations


class ProducerIds:
    """What one broker has left. Under the core's lock."""

    def __init__(self) -> None:
        self._free = iter(range(0))
        self.being_fetched = False
        """Whether the next block is on its way."""

    def take(self) -> int | None:
        """An id that nobody had; None where a block has to be fetched first."""
        return next(self._free, None)

    def add(self, block: range) -> None:
        """The next block has come."""
        self._free = iter(block)
        self.being_fetched = False
