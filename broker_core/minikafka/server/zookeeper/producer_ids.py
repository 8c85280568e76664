"""Ids for producers: handed out from a block that ZooKeeper has given to this broker alone.

What is left of a block when the broker stops is never used: there are 2^63. Neither is what is left when the
session with ZooKeeper has ended: a ZooKeeper that was restored meanwhile may have given the block to another.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.log.log import Log
from minikafka.server.zookeeper.counters import PRODUCER_IDS_BELIEVED, UNSEEN_PRODUCER_IDS


def highest_producer_id(logs: Iterable[Log]) -> int:
    """The largest id of a producer that the logs know; -1 for none. Those that no broker gives do not
    count.
    """
    highest = -1
    for log in logs:
        known = log.producers.known_ids()
        highest = max((one for one in known if highest < one < PRODUCER_IDS_BELIEVED), default=highest)
    return highest


class ProducerIds:
    """What one broker has left. Under the core's lock."""

    def __init__(self) -> None:
        self._free = iter(range(0))
        self.highest_taken = -1
        """The last id of the blocks that this process had; -1 for none."""
        self.doubtful = False
        """Whether ZooKeeper may have gone back to an older copy since the last block."""
        self.being_fetched = False
        """Whether the next block is on its way."""

    def take(self) -> int | None:
        """An id that nobody had; None where a block has to be fetched first."""
        return next(self._free, None)

    def add(self, block: range) -> None:
        """The next block has come."""
        self._free = iter(block)
        self.being_fetched = False
        if block:
            self.doubtful = False
            self.highest_taken = max(self.highest_taken, block[-1])

    def compare(self, counted: int) -> None:
        """ZooKeeper counts on from here. Where that is not above the last block it went back, and where it is
        far above another broker found that it had: others may have got the ids of the block then.
        """
        if (
            self.highest_taken >= 0
            and not self.highest_taken < counted <= self.highest_taken + UNSEEN_PRODUCER_IDS
        ):
            self.discard()

    def discard(self) -> None:
        """Give out nothing of the block that is left: ZooKeeper may have gone back."""
        self.doubtful = True
        self._free = iter(range(0))
