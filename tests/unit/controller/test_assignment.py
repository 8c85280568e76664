"""The assignment of replicas to brokers."""

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.controller.assignment import assign_replicas, check_assignment, check_growth


def test_ten_partitions_of_three_replicas_spread_as_documented() -> None:
    # The worked example in the comment of AdminUtils: brokers 0 to 4, both random numbers 0.
    assignment = assign_replicas(range(5), 10, 3, start_index=0, start_shift=0)
    assert assignment == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_the_start_index_turns_the_first_replicas_round_the_brokers() -> None:
    assignment = assign_replicas([7, 8, 9], 3, 1, start_index=2, start_shift=0)
    assert assignment == {0: (9,), 1: (7,), 2: (8,)}


def test_single_broker_holds_every_partition() -> None:
    assert assign_replicas([4], 3, 1, start_index=11, start_shift=5) == {0: (4,), 1: (4,), 2: (4,)}


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-1, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers_are_refused(partitions: int, replication_factor: int, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refused:
        assign_replicas([1, 2], partitions, replication_factor, start_index=0, start_shift=0)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ({}, "without gaps"),
        ({1: (1,)}, "without gaps"),
        ({0: (1,), 1: (1, 2)}, "same number"),
        ({0: ()}, "same number"),
        ({0: (1, 1)}, "twice"),
        ({0: (9,)}, r"not alive: \[9\]"),
    ],
)
def test_a_senseless_assignment_is_refused(assignment: dict[int, tuple[int, ...]], complaint: str) -> None:
    with pytest.raises(BrokerError, match=complaint):
        check_assignment(assignment, [1, 2])


def test_a_usable_assignment_passes() -> None:
    check_assignment({0: (1, 2), 1: (2, 1)}, [1, 2, 3])


def test_partitions_that_come_later_go_on_round_the_brokers() -> None:
    # As AdminUtils.addPartitions: partition 0 begins at broker 7, so partition 3 begins there again.
    first = assign_replicas([7, 8, 9], 2, 2, start_index=0, start_shift=0)
    later = assign_replicas([7, 8, 9], 2, 2, start_index=0, start_shift=0, first_partition=2)
    assert {**first, **later} == {0: (7, 8), 1: (8, 9), 2: (9, 7), 3: (7, 9)}


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ({2: (1,)}, "expected replicas for 2 new partitions, not for 1"),
        ({2: (1,), 3: (1, 2)}, "partition 3 has 2 replicas, the existing partitions have 1"),
        ({2: (1,), 3: (9,)}, r"not alive: \[9\]"),
    ],
)
def test_replicas_given_for_partitions_that_come_later_must_fit(
    added: dict[int, tuple[int, ...]], complaint: str
) -> None:
    with pytest.raises(BrokerError, match=complaint) as refused:
        check_growth(added, 2, 1, [1, 2])
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
