"""Offsets that groups commit to ZooKeeper, by OffsetCommit and OffsetFetch of version 0.

For the jobs of the worker: every method can be run twice.
"""

from __future__ import annotations

from minikafka.base.errors import NodeExists, NoNode
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.store import Store


class ZooKeeperOffsets:
    """``/consumers/GROUP/offsets/TOPIC/PARTITION``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, group: str, topic_partition: TopicPartition) -> int | None:
        """What a group has committed; None when nothing, or nothing that is a number.

        Raises BrokerError INVALID_GROUP_ID.
        """
        path = paths.consumer_offset_path(group, *topic_partition)
        try:
            return int(self._store.read(path)[0])
        except (NoNode, ValueError):
            return None

    def write(self, group: str, topic_partition: TopicPartition, offset: int) -> None:
        """Commit. Raises BrokerError INVALID_GROUP_ID."""
        path, data = paths.consumer_offset_path(group, *topic_partition), str(offset).encode()
        try:
            self._store.create(path, data, make_parents=True)
        except NodeExists:
            self._store.write(path, data)
