"""The coordinators of a broker, as the replica manager sees them, and the partitions that they coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minikafka.base.ids import TopicPartition
from minikafka.records.format.hashes import partition_of_group
from minikafka.server.core.broker import Broker


def partition_for(broker: Broker, topic: str, partitions: int, name: str) -> TopicPartition:
    """Return the partition of an internal topic that the group or transactional id ``name`` belongs to.

    ``partitions``: how many the topic will have, while it does not exist.
    """
    known = broker.metadata_cache.topics.get(topic)
    return TopicPartition(topic, partition_of_group(name, max(known) + 1 if known else partitions))


class Coordinator(Protocol):
    """Coordinates what belongs to the partitions of an internal topic that this broker leads."""

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """Load or unload a partition of the topic after a leader change. Called within a step."""

    def partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """Forget deleted partitions. Called within a step."""


class Coordinators:
    """Several coordinators as one."""

    def __init__(self, *coordinators: Coordinator) -> None:
        self._coordinators = coordinators

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        for coordinator in self._coordinators:
            coordinator.leadership_changed(topic_partition)

    def partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        for coordinator in self._coordinators:
            coordinator.partitions_deleted(deleted)
