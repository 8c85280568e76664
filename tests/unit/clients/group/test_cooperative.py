"""Members with the cooperative-sticky assignor (KIP-429): they read on while partitions move."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.offsets import Committed
from minikafka.wire.api import ApiKey
from tests.support.group_consumer_harness import T0, T1, T2, T3, GroupHarness, Listener, everything

STICKY: dict[str, Any] = {"assignors": ("cooperative-sticky",)}


@pytest.mark.parametrize(
    ("assignors", "cooperative"),
    [(("cooperative-sticky",), True), (("range", "cooperative-sticky"), False), (("range",), False)],
)
def test_partitions_are_kept_with_cooperative_assignors_alone(
    assignors: tuple[str, ...], cooperative: bool
) -> None:
    assert GroupConsumerConfig("g", assignors=assignors).is_cooperative is cooperative


def test_javas_name_of_the_assignor_is_known() -> None:
    name = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    config = GroupConsumerConfig.from_properties({"group.id": "g", "partition.assignment.strategy": name})
    assert config.assignors == ("cooperative-sticky",)


def test_a_member_gives_up_only_what_another_one_gets(harness: GroupHarness) -> None:
    heard, other_heard = Listener(), Listener()
    one = harness.member(heard, **STICKY)
    assert heard.told == [("assigned", (T0, T1, T2, T3))]
    other = harness.consumer(other_heard, **STICKY)
    harness.read(one, other)
    assert len(one.assignment) == len(other.assignment) == 2
    assert heard.told[1:] == [("revoked", other.assignment), ("assigned", ()), ("assigned", ())]
    assert other_heard.told == [("assigned", ()), ("assigned", other.assignment)]


def test_every_record_is_read_once_though_partitions_move(harness: GroupHarness) -> None:
    one = harness.consumer(auto_commit=True, **STICKY)
    found = harness.read(one, rounds=3)
    other = harness.consumer(auto_commit=True, **STICKY)
    found += harness.read(one, other, rounds=24)
    one.close()
    found += harness.read(other, rounds=24)
    assert found == Counter(everything())
    assert other.assignment == (T0, T1, T2, T3)


def test_kept_partitions_are_read_during_the_rebalance(harness: GroupHarness) -> None:
    one = harness.member(**STICKY)
    other = harness.bare(**STICKY)
    other.subscribe(["t"])
    harness.read(other, one, rounds=1)
    for tp in (T0, T1, T2, T3):
        harness.brokers.fill(tp, b"new-%d" % tp.partition)
    while not one.poll(50):  # it waits for its own JoinGroup, and the other one says nothing
        assert len(harness.brokers.asked(ApiKey.JOIN_GROUP)) < 5
    assert one.assignment == (T0, T1, T2, T3)


def test_positions_of_kept_partitions_stay_without_a_commit(harness: GroupHarness) -> None:
    one = harness.member(**STICKY)
    other = harness.consumer(**STICKY)
    found = harness.read(one, other)
    kept = set(one.assignment)
    assert [one.position(tp) for tp in one.assignment] == [5, 5]
    assert set(found) == everything(*kept)  # only those that moved begin anew, as nobody has committed
    assert harness.committed() == {}


def test_a_commit_by_hand_waits_for_the_end_of_the_rebalance(harness: GroupHarness) -> None:
    one = harness.member(**STICKY)
    other = harness.bare(**STICKY)
    other.subscribe(["t"])
    harness.read(other, rounds=2)
    refused: list[ErrorCode] = []
    for _ in range(60):
        one.poll(50)
        try:
            one.commit_sync({T0: Committed(3)})
        except BrokerError as error:
            refused.append(error.code)
        other.poll(50)
    assert set(refused) <= {ErrorCode.REBALANCE_IN_PROGRESS}
    assert harness.committed() == {T0: 3}


def test_a_member_that_the_group_forgot_loses_its_partitions(harness: GroupHarness) -> None:
    heard = Listener()
    one = harness.member(heard, **STICKY)
    harness.brokers.remove_member("g", one.member_id)
    harness.read(one)
    assert heard.told[1:] == [("revoked", (T0, T1, T2, T3)), ("assigned", (T0, T1, T2, T3))]


def test_partitions_of_a_topic_that_is_dropped_are_given_up_first(harness: GroupHarness) -> None:
    heard = Listener()
    harness.brokers.add_topic("u", 1)
    one = harness.bare(heard, **STICKY)
    one.subscribe(["t", "u"])
    harness.read(one)
    one.subscribe(["t"])
    harness.read(one)
    assert heard.told[1:] == [("revoked", (TopicPartition("u", 0),)), ("assigned", ())]
    assert one.assignment == (T0, T1, T2, T3)


def test_an_error_of_the_listener_leaves_the_new_assignment(harness: GroupHarness) -> None:
    heard = Listener()
    one = harness.member(heard, **STICKY)
    heard.then["revoked"] = lambda: 1 // 0
    other = harness.consumer(**STICKY)
    raised = 0
    for _ in range(40):
        try:
            one.poll(50)
        except ZeroDivisionError:
            raised += 1
        other.poll(50)
    heard.then.clear()
    assert raised == 1
    assert len(one.assignment) == len(other.assignment) == 2


def test_members_with_range_and_sticky_move_all_partitions(harness: GroupHarness) -> None:
    heard = Listener()
    both: dict[str, Any] = {"assignors": ("range", "cooperative-sticky")}
    one = harness.member(heard, **both)
    other = harness.consumer(**both)
    harness.read(one, other)
    assert heard.told[1] == ("revoked", (T0, T1, T2, T3))
    assert {one.assignment, other.assignment} == {(T0, T1), (T2, T3)}


def test_a_member_that_leaves_costs_the_others_nothing(harness: GroupHarness) -> None:
    members: list[GroupConsumer] = [harness.member(**STICKY)]
    for _ in range(2):
        members.append(harness.consumer(**STICKY))
        harness.read(*members)
    before = [set(member.assignment) for member in members]
    members.pop().close()
    harness.read(*members)
    for member, had in zip(members, before, strict=False):
        assert set(member.assignment) >= had
    assert sorted(tp for member in members for tp in member.assignment) == [T0, T1, T2, T3]
