"""``rebalance_plan``: the partitions that one consumer releases and claims."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import (
    AssignmentContext,
    Owner,
    RangeAssignor,
    RebalancePlan,
    rebalance_plan,
)

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))
MINE, OTHERS = 1, 2


def plan(
    consumers: dict[str, int], owners: dict[TopicPartition, Owner], partitions: int = 4
) -> RebalancePlan:
    context = AssignmentContext.of(
        "g", "a", {name: {"t": threads} for name, threads in consumers.items()}, {"t": range(partitions)}
    )
    return rebalance_plan(context, RangeAssignor(), owners, MINE)


def test_the_first_of_a_group_owns_all() -> None:
    found = plan({"a": 1}, {})
    assert (found.release, found.claim, dict(found.held_by_others)) == ((), (T0, T1, T2, T3), {})
    assert {str(thread) for thread in found.my_assignment.values()} == {"a-0"}
    assert not found.is_unchanged


def test_owner_of_its_assignment_has_nothing_to_do() -> None:
    owners = {tp: Owner("a-0", MINE) for tp in (T0, T1)} | {tp: Owner("b-0", OTHERS) for tp in (T2, T3)}
    assert plan({"a": 1, "b": 1}, owners).is_unchanged


def test_partition_of_another_consumer_is_released() -> None:
    found = plan({"a": 1, "b": 1}, {tp: Owner("a-0", MINE) for tp in (T0, T1, T2, T3)})
    assert (found.release, found.claim) == ((T2, T3), ())


def test_partition_held_by_another_is_waited_for() -> None:
    found = plan({"a": 1}, {T0: Owner("a-0", MINE), T1: Owner("b-0", OTHERS)}, partitions=2)
    assert (found.release, found.claim, dict(found.held_by_others)) == ((), (T1,), {T1: "b-0"})


def test_partition_moving_between_own_threads_is_reowned() -> None:
    found = plan({"a": 2}, {T0: Owner("a-0", MINE), T1: Owner("a-0", MINE)}, partitions=2)
    assert (found.release, found.claim, dict(found.held_by_others)) == ((T1,), (T1,), {})


@pytest.mark.parametrize("partitions", [0, 2])
def test_ownership_from_a_lost_response_is_seen(partitions: int) -> None:
    found = plan({"a": 1}, {T3: Owner("a-0", MINE)}, partitions)
    assert T3 in found.release
    assert len(found.my_assignment) == partitions


def test_its_own_text_from_an_earlier_session_is_another_owner() -> None:
    found = plan({"a": 1}, {T0: Owner("a-0", OTHERS)}, partitions=1)
    assert (found.release, dict(found.held_by_others)) == ((), {T0: "a-0"})


def test_more_threads_than_partitions_leave_some_with_nothing() -> None:
    context = AssignmentContext.of("g", "b", {"a": {"t": 2}, "b": {"t": 1}}, {"t": [0, 1]})
    found = rebalance_plan(context, RangeAssignor(), {}, MINE)
    assert dict(found.my_assignment) == {}
    assert found.is_unchanged
