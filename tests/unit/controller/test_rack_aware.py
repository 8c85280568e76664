"""The assignment of replicas to racks: the behaviours of the release's ``AdminRackAwareTest``."""

from collections import Counter

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.controller.assignment import (
    Assignment,
    assign_replicas,
    rack_alternated,
    racks_if_all_have_one,
)

SIX = {0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}
UNEVEN = {0: "rack1", 1: "rack1", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}
THREE_OF_SIX = {0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack2"}
DOCUMENTED = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
STARTS = [(0, 0), (2, 2), (5, 1), (11, 7)]


def assign(
    racks: dict[int, str], partitions: int, factor: int, start: tuple[int, int] = (0, 0), first: int = 0
) -> Assignment:
    return assign_replicas(
        list(racks),
        partitions,
        factor,
        start_index=start[0],
        start_shift=start[1],
        first_partition=first,
        racks=racks,
    )


def racks_of(assignment: Assignment, racks: dict[int, str]) -> list[int]:
    """Return the number of racks of each partition."""
    return [len({racks[replica] for replica in replicas}) for replicas in assignment.values()]


def leaders(assignment: Assignment) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values())


def loads(assignment: Assignment) -> Counter[int]:
    return Counter(replica for replicas in assignment.values() for replica in replicas)


def check_distinct(assignment: Assignment, factor: int) -> None:
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in assignment.values())


def test_the_row_of_brokers_takes_one_of_each_rack_in_turn() -> None:
    assert rack_alternated(DOCUMENTED) == [0, 3, 1, 5, 4, 2]
    assert rack_alternated({b: r for b, r in DOCUMENTED.items() if b != 5}) == [0, 3, 1, 4, 2]


def test_the_example_that_the_release_documents() -> None:
    assert assign(DOCUMENTED, 7, 3) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("racks", "partitions", "factor"),
    [
        (SIX, 6, 3),
        (SIX, 12, 2),
        (SIX, 6, 2),
        ({0: "rack1", 1: "rack2", 4: "rack3"}, 3, 2),
        ({broker: f"rack{broker % 3}" for broker in range(12)}, 96, 3),
    ],
)
def test_even_racks_spread_partitions_and_load_evenly(
    racks: dict[int, str], partitions: int, factor: int, start: tuple[int, int]
) -> None:
    assignment = assign(racks, partitions, factor, start)
    check_distinct(assignment, factor)
    assert set(racks_of(assignment, racks)) == {factor}
    assert set(leaders(assignment).values()) == {partitions // len(racks)}
    assert set(loads(assignment).values()) == {partitions * factor // len(racks)}


@pytest.mark.parametrize("start", STARTS)
def test_uneven_partitions_are_still_spread_over_racks(start: tuple[int, int]) -> None:
    assert set(racks_of(assign(SIX, 13, 3, start), SIX)) == {3}


@pytest.mark.parametrize("start", STARTS)
def test_uneven_racks_give_each_broker_as_many_leaders(start: tuple[int, int]) -> None:
    assignment = assign(UNEVEN, 12, 3, start)
    assert set(racks_of(assignment, UNEVEN)) == {3}
    assert set(leaders(assignment).values()) == {2}


def test_partitions_that_come_later_are_spread_as_evenly() -> None:
    racks = {broker + 6: rack for broker, rack in SIX.items()}
    assignment = assign(racks, 12, 2, first=12)
    assert list(assignment) == list(range(12, 24))
    assert set(racks_of(assignment, racks)) == {2}
    assert set(loads(assignment).values()) == {4}


@pytest.mark.parametrize("start", STARTS)
def test_more_replicas_than_racks_are_in_every_rack(start: tuple[int, int]) -> None:
    assignment = assign(THREE_OF_SIX, 6, 5, start)
    check_distinct(assignment, 5)
    assert set(racks_of(assignment, THREE_OF_SIX)) == {3}


@pytest.mark.parametrize("start", STARTS)
def test_fewer_replicas_than_racks_are_in_as_many_racks(start: tuple[int, int]) -> None:
    assert set(racks_of(assign(THREE_OF_SIX, 6, 2, start), THREE_OF_SIX)) == {2}


def test_a_single_rack_is_as_good_as_none() -> None:
    racks = dict.fromkeys(range(6), "rack1")
    assignment = assign(racks, 6, 3)
    check_distinct(assignment, 3)
    assert set(leaders(assignment).values()) == {1}
    assert assignment == assign_replicas(range(6), 6, 3, start_index=0, start_shift=0)


def test_a_broker_that_has_a_replica_already_is_passed_over() -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}
    assignment = assign(racks, 6, 4, (2, 2))
    check_distinct(assignment, 4)
    assert set(racks_of(assignment, racks)) == {3}


def test_racks_of_some_brokers_are_an_error_naming_the_others() -> None:
    with pytest.raises(BrokerError, match=r"brokers \[2\] have no broker.rack") as refused:
        assign_replicas([1, 2], 1, 1, start_index=0, start_shift=0, racks={1: "a", 2: None})
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_brokers_that_all_have_no_rack_are_assigned_without() -> None:
    given = assign_replicas([1, 2, 3], 4, 2, start_index=1, start_shift=1, racks={1: None, 2: None})
    assert given == assign_replicas([1, 2, 3], 4, 2, start_index=1, start_shift=1)


def test_racks_that_are_optional_count_only_where_all_brokers_have_one() -> None:
    assert racks_if_all_have_one([1, 2], {1: "a", 2: "b", 3: "c"}) == {1: "a", 2: "b"}
    assert racks_if_all_have_one([1, 2], {1: "a", 2: None}) == {}
    assert racks_if_all_have_one([1, 2], {1: "a"}) == {}
