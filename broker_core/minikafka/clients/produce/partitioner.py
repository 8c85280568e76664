"""The default partitioner: chooses the partition of a record.

A key decides by its murmur2 hash, with the same result as Java's ``DefaultPartitioner`` of every release, so
that all producers send records of one key to one partition. Records without a key go to one available
partition while its batch has room; each new batch goes to the next partition. Small batches cost more than
the short imbalance.
"""

from __future__ import annotations

import random

from minikafka.clients.network.metadata import TopicMetadata
from minikafka.records.format.hashes import partition_of_key


class StickyPartitioner:
    """Java's choice for keys, sticky partitions for the rest. Not thread-safe: the producer calls it under
    its lock.

    ``first_turn`` fixes the first partition; without it each producer starts at a random one, because many
    short-lived producers that all start at 0 would fill only the first partitions.
    """

    def __init__(self, first_turn: int | None = None) -> None:
        self._first_turn = random.randrange(1 << 30) if first_turn is None else first_turn
        # The number of finished batches of each topic.
        self._turns: dict[str, int] = {}
        # The current partition of each topic, valid while its metadata is the same.
        self._current: dict[str, tuple[TopicMetadata, int]] = {}

    def partition(self, topic: TopicMetadata, key: bytes | None) -> int:
        """Return the partition number for ``key``. ``topic`` must have partitions."""
        if key is not None:
            # Over all partitions, with or without a leader: a key must not move when a broker stops.
            return partition_of_key(key, len(topic.partitions))
        current = self._current.get(topic.name)
        if current is None or current[0] is not topic:
            current = self._current[topic.name] = topic, self._choose(topic)
        return current[1]

    def partition_of_new_batch(self, topic: TopicMetadata) -> int:
        """Return the next partition for a record without a key that starts a batch."""
        name = topic.name
        self._turns[name] = self._turns.get(name, -1) + 1
        self._current.pop(name, None)
        return self.partition(topic, None)

    def _choose(self, topic: TopicMetadata) -> int:
        turn = self._first_turn + max(0, self._turns.get(topic.name, 0))
        choice = topic.available
        return choice[turn % len(choice)] if choice else turn % len(topic.partitions)
