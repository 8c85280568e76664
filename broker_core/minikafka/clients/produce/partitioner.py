"""Which partition a record goes to.

A key decides by its murmur2 hash, with the same result as Java's ``DefaultPartitioner`` of every release, so
that records of one key meet in one partition whoever produced them. Records without a key stay with one
available partition while its batch takes them; each new batch goes to the next partition. Small batches cost
more than the short imbalance.
"""

from __future__ import annotations

import random

from minikafka.clients.network.metadata import TopicMetadata
from minikafka.records.format.hashes import partition_of_key


class DefaultPartitioner:
    """Java's choice for keys, sticky turns for the rest. Not thread-safe: the producer calls it under its
    lock.

    ``first_turn`` fixes where the turns begin; without it each producer begins elsewhere, because many
    short-lived producers that all begin at 0 would fill only the first partitions.
    """

    def __init__(self, first_turn: int | None = None) -> None:
        self._first_turn = random.randrange(1 << 30) if first_turn is None else first_turn
        # The turns that have had their batch, of each topic.
        self._turns: dict[str, int] = {}
        # What a topic's current turn came to, for as long as its metadata is the same.
        self._current: dict[str, tuple[TopicMetadata, int]] = {}

    def partition(self, topic: TopicMetadata, key: bytes | None) -> int:
        """The partition's number. ``topic`` must have partitions."""
        if key is not None:
            # Over all partitions, with a leader or without: a key must not move when a broker goes away.
            return partition_of_key(key, len(topic.partitions))
        current = self._current.get(topic.name)
        if current is None or current[0] is not topic:
            current = self._current[topic.name] = topic, self._choose(topic)
        return current[1]

    def partition_of_new_batch(self, topic: TopicMetadata) -> int:
        """Where a record without a key goes that would begin a batch: one batch a turn."""
        name = topic.name
        self._turns[name] = self._turns.get(name, -1) + 1
        self._current.pop(name, None)
        return self.partition(topic, None)

    def _choose(self, topic: TopicMetadata) -> int:
        turn = self._first_turn + max(0, self._turns.get(topic.name, 0))
        choice = topic.available
        return choice[turn % len(choice)] if choice else turn % len(topic.partitions)
