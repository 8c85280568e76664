"""The versions of the APIs of groups after Kafka 2.1: what each adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.acls import GROUP_OPERATIONS, operation_bits
from minikafka.base.errors import ErrorCode
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.describe_groups import DescribeGroupsRequest
from minikafka.wire.apis.find_coordinator import CoordinatorType, FindCoordinatorRequest
from minikafka.wire.apis.heartbeat import HeartbeatRequest
from minikafka.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from minikafka.wire.apis.list_groups import ListGroupsRequest
from minikafka.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from minikafka.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from minikafka.wire.consumer_protocol import Subscription, encode_subscription
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Simulation

K, E = ApiKey, ErrorCode
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
LOADING = {E.GROUP_LOAD_IN_PROGRESS, E.NOT_COORDINATOR_FOR_GROUP}
SUBSCRIPTION = encode_subscription(Subscription(("t",)))


@pytest.fixture
def world() -> Simulation:
    """A broker that coordinates group g, with topics t and u."""
    return started()


def started(more: dict[str, str] | None = None) -> Simulation:
    world = Simulation.serving(properties={**SETTINGS, **(more or {})})
    while world.call(requests.find_coordinator()).error_code:
        world.settle()
    for name in ("t", "u"):
        world.create_topic(name, partitions=2)
    return world


def join(world: Simulation, version: int = 9, member_id: str = "", **fields: Any) -> Any:
    body = requests.join_group("g", {"range": SUBSCRIPTION}, member_id=member_id).body
    return world.call(Request(K.JOIN_GROUP, version, replace(body, **fields)))


def sync(world: Simulation, member: Any, version: int = 5, shares: Any = None, **fields: Any) -> Any:
    body = requests.sync_group("g", member.generation_id, member.member_id, shares).body
    named = {"protocol_type": "consumer", "protocol_name": "range", **fields}
    return world.call(Request(K.SYNC_GROUP, version, replace(body, **named)))


def static_member(world: Simulation, name: str) -> Any:
    """A static member, alone in its group, with a share."""
    member = join(world, group_instance_id=name)
    assert member.error_code == E.NONE
    answer = sync(world, member, group_instance_id=name, shares={member.member_id: b"share"})
    assert (answer.error_code, answer.assignment) == (E.NONE, b"share")
    return member


def described(world: Simulation) -> list[tuple[str, str | None]]:
    (group,) = world.call(Request(K.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(("g",)))).groups
    return [(member.member_id, member.group_instance_id) for member in group.members]


# --- joining ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3])
def test_new_member_of_an_old_client_joins_at_once(world: Simulation, version: int) -> None:
    assert join(world, version).error_code == E.NONE


@pytest.mark.parametrize("version", [4, 9])
def test_new_member_joins_again_with_its_id(world: Simulation, version: int) -> None:
    told = join(world, version)
    assert (told.error_code, told.generation_id, told.leader) == (E.MEMBER_ID_REQUIRED, -1, "")
    assert told.protocol_name == (None if version >= 7 else "")
    member = join(world, version, told.member_id)
    assert (member.error_code, member.member_id, member.leader) == (E.NONE, told.member_id, told.member_id)


def test_join_and_sync_tell_the_protocol(world: Simulation) -> None:
    member = join(world, group_instance_id="one")
    assert (member.protocol_type, member.protocol_name) == ("consumer", "range")
    answer = sync(world, member, group_instance_id="one")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [row.group_instance_id for row in member.members] == ["one"]


@pytest.mark.parametrize("other", [{"protocol_name": None}, {"protocol_type": None}, {"protocol_name": "x"}])
def test_sync_must_name_the_protocol_of_the_group(world: Simulation, other: dict[str, Any]) -> None:
    member = join(world, group_instance_id="one")
    assert sync(world, member, **other).error_code == E.INCONSISTENT_GROUP_PROTOCOL


def test_the_reason_of_a_client_is_logged(world: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="minikafka.server.groups")
    join(world, group_instance_id="one", reason="new\nline" + "x" * 1_000)
    (line,) = [record.message for record in caplog.records if "rebalancing" in record.message]
    assert "g" in line
    assert r"new\nline" in line
    assert len(line) < 500


def test_a_full_group_refuses_new_members() -> None:
    world = started({"group.max.size": "1"})
    static_member(world, "one")
    refused = join(world, group_instance_id="two")
    assert (refused.error_code, refused.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")


# --- static members -----------------------------------------------------------------------------------------


def test_a_static_member_comes_back_and_fences_its_old_client(world: Simulation) -> None:
    old = static_member(world, "one")
    assert old.member_id.startswith("one-")
    new = join(world, group_instance_id="one")
    assert (new.error_code, new.generation_id, new.skip_assignment) == (E.NONE, old.generation_id, True)
    assert sync(world, new, group_instance_id="one").assignment == b"share"
    body = HeartbeatRequest("g", old.generation_id, old.member_id, "one")
    assert world.call(Request(K.HEARTBEAT, 3, body)).error_code == E.FENCED_INSTANCE_ID
    assert world.call(Request(K.HEARTBEAT, 4, replace(body, member_id=new.member_id))).error_code == E.NONE
    assert sync(world, old, group_instance_id="one").error_code == E.FENCED_INSTANCE_ID
    commit = requests.commit_offsets("t", generation=old.generation_id, member_id=old.member_id).body
    answer = world.call(Request(K.OFFSET_COMMIT, 7, replace(commit, group_instance_id="one")))
    assert answer.topics[0].partitions[0].error_code == E.FENCED_INSTANCE_ID


def test_clients_of_versions_5_to_8_are_told_another_leader(world: Simulation) -> None:
    old = static_member(world, "one")
    new = join(world, 8, group_instance_id="one")
    assert (new.leader, new.members, new.skip_assignment) == (old.member_id, (), False)


@pytest.mark.parametrize("release", ["", "2.1", "2.3"])
def test_static_members_survive_the_start_of_their_coordinator(release: str) -> None:
    properties = {"inter.broker.protocol.version": release} if release else {}
    world = started(properties)
    old = static_member(world, "one")
    world.machine.stop()
    world.machine.start({**SETTINGS, **properties})
    world.settle()
    while (new := join(world, group_instance_id="one")).error_code in LOADING:
        world.settle()
    assert (new.error_code, new.generation_id) == (E.NONE, old.generation_id)
    assert described(world) == [(new.member_id, "one")]


# --- leaving ------------------------------------------------------------------------------------------------


def test_members_leave_together_by_either_of_their_ids(world: Simulation) -> None:
    member = static_member(world, "one")
    told = join(world)
    body = LeaveGroupRequest(
        "g",
        "",
        (
            MemberIdentity(told.member_id),
            MemberIdentity("nobody"),
            MemberIdentity("", "one", "removed by an administrator"),
            MemberIdentity(member.member_id, "one"),
        ),
    )
    answer = world.call(Request(K.LEAVE_GROUP, 5, body))
    assert answer.error_code == E.NONE
    assert [(row.member_id, row.group_instance_id, row.error_code) for row in answer.members] == [
        (told.member_id, None, E.NONE),
        ("nobody", None, E.UNKNOWN_MEMBER_ID),
        ("", "one", E.NONE),
        (member.member_id, "one", E.UNKNOWN_MEMBER_ID),
    ]
    assert described(world) == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_unknown_member_that_leaves_is_told_in_each_version(world: Simulation, version: int) -> None:
    static_member(world, "one")
    body = LeaveGroupRequest("g", "x", (MemberIdentity("x"),))
    answer = world.call(Request(K.LEAVE_GROUP, version, body))
    rows = [row.error_code for row in answer.members]
    assert (answer.error_code, rows) == (
        (E.UNKNOWN_MEMBER_ID, []) if version < 3 else (E.NONE, [E.UNKNOWN_MEMBER_ID])
    )


# --- offsets and look-ups -----------------------------------------------------------------------------------


def test_offsets_of_several_groups_come_at_once(world: Simulation) -> None:
    world.call(requests.commit_offsets("t", group="g", offsets={0: 5, 1: 6}))
    world.call(requests.commit_offsets("u", group="h", offsets={0: 7}))
    groups = (
        OffsetFetchRequestGroup("g", (OffsetFetchRequestTopic("t", (1, 0)),)),
        OffsetFetchRequestGroup("h", None),
        OffsetFetchRequestGroup("nobody", None, member_id="m", member_epoch=3),
    )
    answer = world.call(Request(K.OFFSET_FETCH, 9, OffsetFetchRequest("", (), groups, require_stable=True)))
    found = {
        group.group_id: {
            (topic.name, part.partition_index): part.committed_offset
            for topic in group.topics
            for part in topic.partitions
        }
        for group in answer.groups
    }
    assert found == {"g": {("t", 1): 6, ("t", 0): 5}, "h": {("u", 0): 7}, "nobody": {}}
    assert {group.error_code for group in answer.groups} == {E.NONE}


def test_a_group_that_is_named_again_gets_an_error(world: Simulation) -> None:
    world.call(requests.commit_offsets("t", group="g", offsets={0: 5}))
    groups = (
        OffsetFetchRequestGroup("g", None),
        OffsetFetchRequestGroup("h", None),
        OffsetFetchRequestGroup("g", None, member_id="m"),
    )
    answer = world.call(Request(K.OFFSET_FETCH, 9, OffsetFetchRequest("", (), groups)))
    assert [(row.group_id, row.error_code, len(row.topics)) for row in answer.groups] == [
        ("g", E.NONE, 1),
        ("h", E.NONE, 0),
        ("g", E.INVALID_REQUEST, 0),
    ]


def test_each_group_that_is_not_here_has_its_own_error() -> None:
    groups = tuple(OffsetFetchRequestGroup(name, None) for name in ("g", "h"))
    request = Request(K.OFFSET_FETCH, 8, OffsetFetchRequest("", (), groups))
    fresh = Simulation.serving(properties=SETTINGS)
    answer = fresh.call(request)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [
        ("g", E.NOT_COORDINATOR_FOR_GROUP),
        ("h", E.NOT_COORDINATOR_FOR_GROUP),
    ]


@pytest.mark.parametrize("version", [4, 6])
def test_coordinators_of_several_groups_are_found_at_once(world: Simulation, version: int) -> None:
    body = FindCoordinatorRequest("", CoordinatorType.GROUP, ("g", "h", "g"))
    answer = world.call(Request(K.FIND_COORDINATOR, version, body))
    assert [(row.key, row.node_id, row.error_code) for row in answer.coordinators] == [
        ("g", 0, E.NONE),
        ("h", 0, E.NONE),
    ]


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [
        (5, CoordinatorType.SHARE, E.INVALID_REQUEST),
        (6, CoordinatorType.SHARE, E.GROUP_COORDINATOR_NOT_AVAILABLE),
        (6, 9, E.INVALID_REQUEST),
    ],
)
def test_other_coordinators_are_not_found(
    world: Simulation, version: int, key_type: int, error: ErrorCode
) -> None:
    body = FindCoordinatorRequest("", key_type, ("x",))
    (row,) = world.call(Request(K.FIND_COORDINATOR, version, body)).coordinators
    assert (row.error_code, row.node_id, row.host, row.port) == (error, -1, "", -1)


def delete(world: Simulation, *topics: str, group: str = "g", partitions: tuple[int, ...] = (0,)) -> Any:
    parts = tuple(map(OffsetDeleteRequestPartition, partitions))
    rows = tuple(OffsetDeleteRequestTopic(topic, parts) for topic in topics)
    return world.call(Request(K.OFFSET_DELETE, 0, OffsetDeleteRequest(group, rows)))


def test_offsets_are_deleted_unless_a_member_consumes_the_topic(world: Simulation) -> None:
    world.call(requests.commit_offsets("t", "u", offsets={0: 5, 1: 6}))
    static_member(world, "one")
    answer = delete(world, "t", "u", "nope", partitions=(0, 9))
    rows = {
        (topic.name, part.partition_index): part.error_code
        for topic in answer.topics
        for part in topic.partitions
    }
    assert rows == {
        ("t", 0): E.GROUP_SUBSCRIBED_TO_TOPIC,
        ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): E.NONE,
        ("u", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("nope", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("nope", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    left = world.call(requests.fetch_offsets()).topics
    assert [(topic.name, len(topic.partitions)) for topic in left] == [("t", 2), ("u", 1)]


def test_deleted_offsets_stay_deleted_after_a_start(world: Simulation) -> None:
    world.call(requests.commit_offsets("t", offsets={0: 5, 1: 6}))
    assert delete(world, "t").error_code == E.NONE
    world.machine.stop()
    world.machine.start(SETTINGS)
    while (answer := world.call(requests.fetch_offsets())).error_code:
        world.settle()
    assert [part.partition_index for topic in answer.topics for part in topic.partitions] == [1]


@pytest.mark.parametrize(("group", "error"), [("nobody", E.GROUP_ID_NOT_FOUND), ("", E.INVALID_GROUP_ID)])
def test_offsets_of_no_group_are_not_deleted(world: Simulation, group: str, error: ErrorCode) -> None:
    answer = delete(world, "t", group=group)
    assert (answer.error_code, answer.topics) == (error, ())


# --- administration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ((), (), {"g": "Stable", "h": "Empty"}),
        (("stable",), (), {"g": "Stable"}),
        (("Empty", "Dead"), ("Classic",), {"h": "Empty"}),
        ((), ("consumer",), {}),
    ],
)
def test_groups_are_listed_by_state_and_type(
    world: Simulation, states: tuple[str, ...], types: tuple[str, ...], found: dict[str, str]
) -> None:
    world.call(requests.commit_offsets("t", group="h"))
    static_member(world, "one")
    answer = world.call(Request(K.LIST_GROUPS, 5, ListGroupsRequest(states, types)))
    assert {group.group_id: group.group_state for group in answer.groups} == found
    assert {group.group_type for group in answer.groups} <= {"classic"}


def test_a_group_is_described_with_instance_ids_and_operations(world: Simulation) -> None:
    member = static_member(world, "one")
    assert described(world) == [(member.member_id, "one")]
    request = DescribeGroupsRequest(("g",), include_authorized_operations=True)
    (group,) = world.call(Request(K.DESCRIBE_GROUPS, 5, request)).groups
    assert group.authorized_operations == operation_bits(GROUP_OPERATIONS)
