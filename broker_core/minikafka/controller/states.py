"""The states of partitions and of replicas, and which may follow which.

The tables are those of ``PartitionStateMachine`` and ``ReplicaStateMachine`` of Kafka 0.10.1. Text 003 gives
NonExistent -> New the work of New -> Online; see ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar


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


class ReplicaStatus(Enum):
    """Where one replica of a partition stands in its life."""

    NEW = "NewReplica"
    """Assigned just now, by a new topic or a reassignment; follows, if there is a leader."""
    ONLINE = "OnlineReplica"
    """Leads or follows."""
    OFFLINE = "OfflineReplica"
    """Its broker died or is stopping, or it is about to be deleted."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker was told to delete it."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker has deleted it."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """Its broker could not delete it, or was dead when this controller came."""
    NON_EXISTENT = "NonExistentReplica"
    """Never assigned, or deleted."""


P = PartitionStatus
R = ReplicaStatus

PARTITION_PREDECESSORS: Mapping[PartitionStatus, frozenset[PartitionStatus]] = {
    P.NON_EXISTENT: frozenset({P.OFFLINE}),
    P.NEW: frozenset({P.NON_EXISTENT}),
    P.ONLINE: frozenset({P.NEW, P.ONLINE, P.OFFLINE}),
    P.OFFLINE: frozenset({P.NEW, P.ONLINE, P.OFFLINE}),
}

REPLICA_PREDECESSORS: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = {
    R.NEW: frozenset({R.NON_EXISTENT}),
    R.ONLINE: frozenset({R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}),
    R.OFFLINE: frozenset({R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}),
    R.DELETION_STARTED: frozenset({R.OFFLINE}),
    R.DELETION_SUCCESSFUL: frozenset({R.DELETION_STARTED}),
    R.DELETION_INELIGIBLE: frozenset({R.DELETION_STARTED}),
    R.NON_EXISTENT: frozenset({R.DELETION_SUCCESSFUL}),
}

Status = TypeVar("Status", PartitionStatus, ReplicaStatus)


def check_move(
    what: object, now: Status, to: Status, predecessors: Mapping[Status, frozenset[Status]]
) -> None:
    """Raise AssertionError, for an error of ours, unless ``to`` may follow ``now``."""
    if now not in predecessors[to]:
        raise AssertionError(f"{what} cannot go from {now.value} to {to.value}")
