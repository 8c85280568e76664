"""A consumer with ``group.instance.id``: it leaves without telling, and comes back to its partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ConfigErrors, ErrorCode
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.membership import SendJoinGroup
from minikafka.clients.group.requests import join_request
from minikafka.wire.api import ApiKey
from tests.support.group_consumer_harness import T0, T1, T2, T3, GroupHarness, Listener, everything

STICKY: dict[str, Any] = {"assignors": ("cooperative-sticky",)}


def two_members(harness: GroupHarness, heard: Listener, **settings: Any) -> list[GroupConsumer]:
    members = [
        harness.consumer(heard, group_instance_id="one", **settings),
        harness.consumer(group_instance_id="two", **settings),
    ]
    harness.read(*members)
    assert sorted(tp for member in members for tp in member.assignment) == [T0, T1, T2, T3]
    return members


@pytest.mark.parametrize("settings", [{}, STICKY], ids=["range", "sticky"])
@pytest.mark.parametrize("who", [0, 1])
def test_a_member_that_restarts_has_its_partitions_and_no_other_notices(
    harness: GroupHarness, settings: dict[str, Any], who: int
) -> None:
    heard = Listener()
    members = two_members(harness, heard, **settings)
    before, told, generation = members[who].assignment, len(heard.told), members[0].generation
    name = ("one", "two")[who]
    members[who].close()
    left = len(harness.brokers.asked(ApiKey.LEAVE_GROUP))
    members[who] = harness.consumer(group_instance_id=name, **settings)
    harness.read(*members)
    assert left == 0
    assert members[who].assignment == before
    assert members[who].generation == generation
    assert len(heard.told) == told + (who == 0)  # only its own farewell


def test_members_that_restart_read_on_where_they_have_committed(harness: GroupHarness) -> None:
    found: Counter[bytes | None] = Counter()
    for _ in range(3):
        consumer = harness.consumer(group_instance_id="one", auto_commit=True)
        found += harness.read(consumer, rounds=8)
        consumer.close()
    assert found == Counter(everything())


def test_a_restarted_leader_still_notices_new_partitions(harness: GroupHarness) -> None:
    members = two_members(harness, Listener())
    members[0].close()
    members[0] = harness.consumer(group_instance_id="one")
    harness.read(*members)
    members[0].subscribe(["t", "u"])
    harness.brokers.add_topic("u", 1)
    harness.read(*members, rounds=40)
    assert "u" in {tp.topic for tp in members[0].assignment}


def test_the_second_of_one_name_ends_the_first(harness: GroupHarness) -> None:
    one = harness.member(group_instance_id="one")
    other = harness.consumer(group_instance_id="one")
    harness.read(other)
    with pytest.raises(BrokerError, match=r"group\.instance\.id=one") as fenced:
        harness.read(one)
    assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
    with pytest.raises(BrokerError, match="FENCED"):
        harness.read(one)
    harness.read(other)
    assert other.assignment == (T0, T1, T2, T3)


def test_a_fenced_member_cannot_commit(harness: GroupHarness) -> None:
    one = harness.member(group_instance_id="one")
    harness.read(harness.consumer(group_instance_id="one"))
    with pytest.raises(BrokerError) as fenced:
        one.commit_sync()
    assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert harness.committed() == {}


def test_a_broker_without_static_members_is_named() -> None:
    config = GroupConsumerConfig("g", group_instance_id="one")
    with pytest.raises(
        BrokerError, match=r"JoinGroup up to version 4, and group\.instance\.id needs 5"
    ) as refused:
        join_request(config, SendJoinGroup(""), (), 4)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_the_name_must_not_be_empty() -> None:
    with pytest.raises(ConfigErrors, match=r"group\.instance\.id"):
        GroupConsumerConfig("g", group_instance_id="")


def test_coordinator_hears_why_a_member_joins_and_leaves(harness: GroupHarness) -> None:
    one = harness.member()
    one.close()
    joins = harness.brokers.asked(ApiKey.JOIN_GROUP)
    assert {request.reason for request in joins} == {"the subscription has changed"}
    (leave,) = harness.brokers.asked(ApiKey.LEAVE_GROUP)
    assert [member.reason for member in leave.members] == ["the consumer leaves"]
