"""Offsets that groups commit to ZooKeeper with OffsetCommit and OffsetFetch of version 0.

For the jobs of the worker: every method can be run twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from minikafka.base.errors import NodeExists
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.store import Store

AT_ONCE = 100
"""The number of offsets in one call, whose reads and writes are in flight together."""


class ZooKeeperOffsets:
    """Reads and writes ``/consumers/GROUP/offsets/TOPIC/PARTITION``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, group: str, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return a group's committed offsets, without partitions that have none, or an invalid one.

        Raises BrokerError INVALID_GROUP_ID.
        """
        by_path = {paths.consumer_offset_path(group, *key): key for key in topic_partitions}
        found = {}
        for path, (data, _) in self._store.read_all(by_path).items():
            with contextlib.suppress(ValueError):
                found[by_path[path]] = int(data)
        return found

    def write(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group. Raises BrokerError INVALID_GROUP_ID."""
        data = {
            paths.consumer_offset_path(group, *key): str(offset).encode() for key, offset in offsets.items()
        }
        absent = self._store.write_all({path: (text, -1) for path, text in data.items()})
        for path in sorted(absent):
            try:
                self._store.create(path, data[path], make_parents=True)
            except NodeExists:
                self._store.write(path, data[path])
