"""``clients/admin/groups``: the deletion of offsets and the removal of static members."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin, total_lag
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from minikafka.wire.apis.offset_delete import OffsetDeleteResponse
from tests.support.group_consumer_harness import T0, T1, T2, T3, GroupHarness


@pytest.fixture
def admin(harness: GroupHarness) -> GroupAdmin:
    return GroupAdmin(harness.brokers.client())


def test_offsets_of_a_group_without_members_are_deleted(harness: GroupHarness, admin: GroupAdmin) -> None:
    harness.brokers.commit("g", {T0: 5, T1: 6})
    gone = TopicPartition("gone", 0)
    assert admin.delete_offsets("g", [T0, gone]) == {
        T0: ErrorCode.NONE,
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert harness.committed() == {T1: 6}


def test_offsets_that_a_member_consumes_stay(harness: GroupHarness, admin: GroupAdmin) -> None:
    consumer = harness.member()
    consumer.commit_sync()
    assert admin.delete_offsets("g", [T0]) == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert harness.committed() == {T0: 5, T1: 5, T2: 5, T3: 5}


def test_offsets_of_no_group_are_not_deleted(admin: GroupAdmin) -> None:
    with pytest.raises(BrokerError, match="deleting offsets of group 'nobody'") as refused:
        admin.delete_offsets("nobody", [T0])
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_static_members_are_removed_by_their_names(harness: GroupHarness, admin: GroupAdmin) -> None:
    one = harness.member(group_instance_id="one")
    assert [member.group_instance_id for member in admin.describe("g").members] == ["one"]
    outcomes = admin.remove_static_members("g", ["one", "two"], reason="broken")
    assert outcomes == {"one": ErrorCode.NONE, "two": ErrorCode.UNKNOWN_MEMBER_ID}
    assert admin.describe("g").members == ()
    harness.read(one)
    assert one.assignment == (T0, T1, T2, T3)


def test_brokers_before_2_4_are_named(harness: GroupHarness, admin: GroupAdmin) -> None:
    harness.brokers.commit("g", {T0: 5})
    harness.brokers.newest[ApiKey.LEAVE_GROUP] = 2
    harness.brokers.unknown.add(ApiKey.OFFSET_DELETE)
    with pytest.raises(BrokerError, match=r"Kafka 2\.4") as refused:
        admin.remove_static_members("g", ["one"])
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(BrokerError) as refused:
        admin.delete_offsets("g", [T0])
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_denied_request_names_what_it_needs(harness: GroupHarness, admin: GroupAdmin) -> None:
    denied = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    harness.brokers.script(ApiKey.OFFSET_DELETE, lambda *_: OffsetDeleteResponse(denied, 0, ()))
    with pytest.raises(BrokerError, match="deleting offsets of group 'g'; not authorized: Delete on Group:g"):
        admin.delete_offsets("g", [T0])
    harness.brokers.script(
        ApiKey.DELETE_GROUPS, lambda *_: DeleteGroupsResponse(0, (DeletableGroupResult("g", denied),))
    )
    with pytest.raises(BrokerError, match="deleting group 'g'; not authorized: Delete on Group:g"):
        admin.delete_group("g")


def test_lags_of_all_groups_come_with_the_errors_of_brokers(harness: GroupHarness, admin: GroupAdmin) -> None:
    harness.brokers.commit("g", {T0: 3})
    harness.brokers.commit("h", {T1: 5})
    failed: list[MinikafkaError] = []
    groups = admin.describe_all(failed=failed)
    assert ([group.group_id for group in groups], failed) == (["g", "h"], [])
    lags = admin.all_lags(groups, failed=failed)
    assert {name: total_lag(rows) for name, rows in lags.items()} == {"g": 2, "h": 0}

    harness.brokers.always(ApiKey.LIST_OFFSETS, lambda *_: None)
    lags = admin.all_lags(groups, failed=failed, timeout_ms=1_000)
    assert {name: total_lag(rows) for name, rows in lags.items()} == {"g": None, "h": None}
    harness.brokers.always(ApiKey.LIST_GROUPS, lambda *_: None)
    assert admin.describe_all(failed=failed, timeout_ms=1_000) == []
    assert len(failed) >= 2


def test_only_groups_that_are_wanted_are_described(harness: GroupHarness, admin: GroupAdmin) -> None:
    harness.brokers.commit("g", {T0: 3})
    harness.brokers.commit("h", {T1: 5})
    assert [group.group_id for group in admin.describe_all(names={"h", "i"})] == ["h"]
    assert [request.groups for request in harness.brokers.asked(ApiKey.DESCRIBE_GROUPS)] == [("h",)]
