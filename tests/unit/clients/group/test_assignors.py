"""``clients/group/assignors``: the shares that Kafka's own assignors give (``RangeAssignorTest`` and
``RoundRobinAssignorTest`` of 0.10.1 name the cases).
"""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.assignors import ASSIGNORS, assign_range, assign_round_robin
from minikafka.clients.group.cooperative_sticky import assign_cooperative_sticky
from minikafka.clients.group.member_subscriptions import Assignments, Assignor, MemberSubscription


def subscribed(**topics: list[str]) -> dict[str, MemberSubscription]:
    return {member: MemberSubscription(tuple(names)) for member, names in topics.items()}


def numbers(shares: Assignments) -> dict[str, list[str]]:
    return {member: [str(tp) for tp in share] for member, share in shares.items()}


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_one_member_gets_all_that_it_wants_and_nothing_else(assign: Assignor) -> None:
    assert numbers(assign(subscribed(a=["t"]), {"t": 3, "other": 3})) == {"a": ["t-0", "t-1", "t-2"]}


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_member_without_known_topics_gets_no_partitions(assign: Assignor) -> None:
    assert assign(subscribed(a=[], b=["gone"]), {"t": 2}) == {"a": (), "b": ()}


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_more_members_than_partitions_leave_the_last_ones_idle(assign: Assignor) -> None:
    assert numbers(assign(subscribed(b=["t"], a=["t"]), {"t": 1})) == {"a": ["t-0"], "b": []}


def test_range_assigns_consecutive_partitions_of_each_topic() -> None:
    both = subscribed(consumer2=["topic1", "topic2"], consumer1=["topic2", "topic1"])
    assert numbers(assign_range(both, {"topic1": 3, "topic2": 3})) == {
        "consumer1": ["topic1-0", "topic1-1", "topic2-0", "topic2-1"],
        "consumer2": ["topic1-2", "topic2-2"],
    }


def test_range_shares_a_topic_among_those_that_want_it_only() -> None:
    wanted = subscribed(consumer1=["topic1"], consumer2=["topic1", "topic2"], consumer3=["topic1"])
    assert numbers(assign_range(wanted, {"topic1": 3, "topic2": 2})) == {
        "consumer1": ["topic1-0"],
        "consumer2": ["topic1-1", "topic2-0", "topic2-1"],
        "consumer3": ["topic1-2"],
    }


def test_roundrobin_goes_on_with_the_next_member_at_the_next_topic() -> None:
    both = subscribed(consumer1=["topic1", "topic2"], consumer2=["topic1", "topic2"])
    assert numbers(assign_round_robin(both, {"topic1": 3, "topic2": 3})) == {
        "consumer1": ["topic1-0", "topic1-2", "topic2-1"],
        "consumer2": ["topic1-1", "topic2-0", "topic2-2"],
    }


def test_roundrobin_passes_over_members_that_do_not_want_a_topic() -> None:
    wanted = subscribed(consumer1=["topic1"], consumer2=["topic1", "topic2"], consumer3=["topic1"])
    assert numbers(assign_round_robin(wanted, {"topic1": 3, "topic2": 2})) == {
        "consumer1": ["topic1-0"],
        "consumer2": ["topic1-1", "topic2-0", "topic2-1"],
        "consumer3": ["topic1-2"],
    }


def test_a_topic_that_is_named_twice_counts_once() -> None:
    assert assign_range(subscribed(a=["t", "t"]), {"t": 1}) == {"a": (TopicPartition("t", 0),)}


def test_static_members_come_first_by_their_names() -> None:
    both = {
        "a": MemberSubscription(("t",)),
        "z-9": MemberSubscription(("t",), group_instance_id="one"),
        "z-1": MemberSubscription(("t",), group_instance_id="two"),
    }
    for assign in (assign_range, assign_round_robin):
        assert numbers(assign(both, {"t": 3})) == {"z-9": ["t-0"], "z-1": ["t-1"], "a": ["t-2"]}


def test_order_of_members_does_not_matter_when_loads_are_evened_out() -> None:
    wanted = subscribed(a=["t", "u"], b=["u"], c=["t"])
    others = {member: wanted[member] for member in "bca"}
    assert assign_cooperative_sticky(others, {"t": 1, "u": 3}) == assign_cooperative_sticky(
        wanted, {"t": 1, "u": 3}
    )


def test_order_of_members_does_not_matter_for_who_gives_up() -> None:
    first, second, third, fourth = (TopicPartition("t", number) for number in range(4))
    wanted = {
        "a": MemberSubscription(("t",), (first, second), 1),
        "b": MemberSubscription(("t",)),
        "c": MemberSubscription(("t",), (third, fourth), 1),
    }
    others = {member: wanted[member] for member in "bca"}
    assert assign_cooperative_sticky(others, {"t": 4}) == assign_cooperative_sticky(wanted, {"t": 4})
