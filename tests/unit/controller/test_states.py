"""The valid transitions of partitions and replicas, those of 0.10.1."""

import pytest

from minikafka.controller.states import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    PartitionStatus,
    ReplicaStatus,
    check_transition,
)

P, R = PartitionStatus, ReplicaStatus


@pytest.mark.parametrize(
    ("to", "before"),
    [
        (P.NON_EXISTENT, {P.OFFLINE}),
        (P.NEW, {P.NON_EXISTENT}),
        (P.ONLINE, {P.NEW, P.ONLINE, P.OFFLINE}),
        (P.OFFLINE, {P.NEW, P.ONLINE, P.OFFLINE}),
    ],
)
def test_a_partition_comes_to_a_state_only_from_these(
    to: PartitionStatus, before: set[PartitionStatus]
) -> None:
    assert PARTITION_PREDECESSORS[to] == before


@pytest.mark.parametrize(
    ("to", "before"),
    [
        (R.NEW, {R.NON_EXISTENT}),
        (R.ONLINE, {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}),
        (R.OFFLINE, {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}),
        (R.DELETION_STARTED, {R.OFFLINE}),
        (R.DELETION_SUCCESSFUL, {R.DELETION_STARTED}),
        (R.DELETION_INELIGIBLE, {R.DELETION_STARTED}),
        (R.NON_EXISTENT, {R.DELETION_SUCCESSFUL}),
    ],
)
def test_a_replica_comes_to_a_state_only_from_these(to: ReplicaStatus, before: set[ReplicaStatus]) -> None:
    assert REPLICA_PREDECESSORS[to] == before


def test_an_impossible_transition_is_an_error_of_ours() -> None:
    with pytest.raises(AssertionError, match="t-0 cannot go from OnlinePartition to NewPartition"):
        check_transition("t-0", P.ONLINE, P.NEW, PARTITION_PREDECESSORS)
