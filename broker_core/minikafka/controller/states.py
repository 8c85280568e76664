"""The states of a partition, and which may follow which.

The table is ``PartitionStateMachine`` of Kafka 0.10.1. ReplicaStateMachine's joins it with replication.
"""

from __future__ import annotations

from enum import Enum


class PartitionStatus(Enum):
    """Where a partition stands in its life."""

    NON_EXISTENT = "NonExistentPartition"
    """Never created, or created and then deleted."""
    NEW = "NewPartition"
    """Has replicas assigned, but no leader yet."""
    ONLINE = "OnlinePartition"
    """Has a leader."""
    OFFLINE = "OfflinePartition"
    """Had a leader, and the leader died."""


VALID_PREDECESSORS: dict[PartitionStatus, frozenset[PartitionStatus]] = {
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset(
        {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
    ),
}
