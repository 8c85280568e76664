"""Producer ids, allocated from a block that ZooKeeper has reserved for this broker.

The rest of a block is never used when the broker stops: there are 2^63 ids. Neither is it used after the end
of a ZooKeeper session: a ZooKeeper that was restored meanwhile may have given the block to another broker.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.log.log import Log
from minikafka.server.zookeeper.counters import PRODUCER_IDS_BELIEVED, UNSEEN_PRODUCER_IDS


def highest_producer_id(logs: Iterable[Log]) -> int:
    """Return the largest producer id in the logs, without those that clients chose; -1 for none."""
    highest = -1
    for log in logs:
        known = log.producers.known_ids()
        highest = max(
            (producer_id for producer_id in known if highest < producer_id < PRODUCER_IDS_BELIEVED),
            default=highest,
        )
    return highest


class ProducerIds:
    """The producer ids that this broker has left. Used under the core's lock."""

    def __init__(self) -> None:
        self._free = iter(range(0))
        self.highest_taken = -1
        """The last id of the blocks of this process; -1 for none."""
        self.highest_of_transactions = -1
        """The largest id in the loaded partitions of ``__transaction_state``; -1 for none."""
        self.doubtful = False
        """True if ZooKeeper may have been restored from an older copy since the last block."""
        self.being_fetched = False
        """True if the next block was requested."""

    def take(self) -> int | None:
        """Return an unused id; None if a block must be fetched first."""
        return next(self._free, None)

    def add(self, block: range) -> None:
        """Add a block that was allocated."""
        self._free = iter(block)
        self.being_fetched = False
        if block:
            self.doubtful = False
            self.highest_taken = max(self.highest_taken, block[-1])

    def loaded(self, producer_id: int) -> bool:
        """Take the largest id of transactions that were loaded. Return whether it is the largest so far."""
        if not self.highest_of_transactions < producer_id < PRODUCER_IDS_BELIEVED:
            return False
        self.highest_of_transactions = producer_id
        return producer_id > self.highest_taken

    def compare(self, counted: int) -> None:
        """Discard the block if ``counted``, the next id in ZooKeeper, shows that ZooKeeper was restored.

        That is the case if it is not above the last block, or far above it because another broker noticed
        it: other brokers may have allocated the ids of this block then.
        """
        if (
            self.highest_taken >= 0
            and not self.highest_taken < counted <= self.highest_taken + UNSEEN_PRODUCER_IDS
        ):
            self.discard()

    def discard(self) -> None:
        """Discard the rest of the block: ZooKeeper may have been restored from an older copy."""
        self.doubtful = True
        self._free = iter(range(0))
