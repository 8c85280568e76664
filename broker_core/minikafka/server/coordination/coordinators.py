"""The coordinators of a broker, as the replica manager sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minikafka.base.ids import TopicPartition


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
