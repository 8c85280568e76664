"""The states of partitions and of replicas, and their valid predecessors.

The tables are those of ``PartitionStateMachine`` and ``ReplicaStateMachine`` of Kafka 0.10.1. Text 003 gives
NonExistent -> New the work of New -> Online; see docs/deviations/from-the-texts.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar


class PartitionStatus(Enum):
    """The state of a partition in its life cycle."""

    NON_EXISTENT = "NonExistentPartition"
    """Never created, or created and then deleted."""
    NEW = "NewPartition"
    """Has replicas assigned, but no leader yet."""
    ONLINE = "OnlinePartition"
    """Has a leader."""
    OFFLINE = "OfflinePartition"
    """Had a leader, and the leader died."""


class ReplicaStatus(Enum):
    """The state of a replica of a partition in its life cycle."""

    NEW = "NewReplica"
    """Assigned just now, by a new topic or a reassignment; follows, if there is a leader."""
    ONLINE = "OnlineReplica"
    """Leads or follows."""
    OFFLINE = "OfflineReplica"
    """Its broker died or is stopping, or it is about to be deleted."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker was requested to delete it."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker has deleted it."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """Its broker could not delete it, or was dead when this controller was elected."""
    NON_EXISTENT = "NonExistentReplica"
    """Never assigned, or deleted."""


_P = PartitionStatus
_R = ReplicaStatus

PARTITION_PREDECESSORS: Mapping[PartitionStatus, frozenset[PartitionStatus]] = {
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
}

REPLICA_PREDECESSORS: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}

Status = TypeVar("Status", PartitionStatus, ReplicaStatus)


def check_transition(
    what: object, now: Status, to: Status, predecessors: Mapping[Status, frozenset[Status]]
) -> None:
    """Raise AssertionError, as a bug in the controller, unless ``to`` may follow ``now``."""
    if now not in predecessors[to]:
        raise AssertionError(f"{what} cannot go from {now.value} to {to.value}")
