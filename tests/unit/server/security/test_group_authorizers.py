"""Requests about several groups, of which the client may see some."""

from __future__ import annotations

import pytest

from minikafka.base.acls import operation_bits
from minikafka.base.errors import ErrorCode
from minikafka.server.security.authorization import GROUP_DENIED, TOPIC_DENIED
from minikafka.wire.api import NO_OPERATIONS
from minikafka.wire.api import ApiKey as K
from minikafka.wire.apis.describe_groups import DescribeGroupsRequest
from minikafka.wire.apis.find_coordinator import CoordinatorType, FindCoordinatorRequest
from minikafka.wire.apis.leave_group import LeaveGroupRequest
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
from tests.support import requests
from tests.support.requests import Request
from tests.unit.server.security.test_access_control import (
    DELETE,
    DENIALS,
    DESCRIBE,
    GROUP,
    OTHER,
    READ,
    TOPIC,
    Case,
    Guarded,
    codes,
)

COMMITTED_BY_GROUP = OffsetFetchRequest(
    "", (), (OffsetFetchRequestGroup("g", (OffsetFetchRequestTopic("t", (0,)),)),)
)
FORGOTTEN = OffsetDeleteRequest("g", (OffsetDeleteRequestTopic("t", (OffsetDeleteRequestPartition(0),)),))
CASES = [
    Case(K.OFFSET_FETCH, 9, COMMITTED_BY_GROUP, ((DESCRIBE, TOPIC), (DESCRIBE, GROUP)), GROUP_DENIED),
    Case(K.OFFSET_FETCH, 9, COMMITTED_BY_GROUP, ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)), TOPIC_DENIED),
    Case(K.OFFSET_DELETE, 0, FORGOTTEN, ((READ, TOPIC), (DELETE, GROUP)), GROUP_DENIED),
    Case(K.OFFSET_DELETE, 0, FORGOTTEN, ((DELETE, GROUP), (READ, TOPIC)), TOPIC_DENIED),
    Case(
        *(K.FIND_COORDINATOR, 6, FindCoordinatorRequest("", CoordinatorType.GROUP, ("g",))),
        ((DESCRIBE, GROUP),),
        GROUP_DENIED,
    ),
    Case(K.LEAVE_GROUP, 5, LeaveGroupRequest("g", "", ()), ((READ, GROUP),), GROUP_DENIED),
]


@pytest.fixture
def world() -> Guarded:
    return Guarded()


def coordinate(world: Guarded) -> None:
    """Let the client describe group g, and have its coordinator here."""
    world.allow(DESCRIBE, GROUP)
    while world.call(requests.find_coordinator()).error_code:
        world.settle()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_request_is_refused_with_the_code_of_what_it_lacks(world: Guarded, case: Case) -> None:
    for operation, resource in case.needs[:-1]:
        world.allow(operation, resource)
    answer = world.call(Request(case.key, case.version, case.body))
    assert codes(answer) - {ErrorCode.NONE} == {case.refusal}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_request_with_all_that_it_needs_is_not_refused(world: Guarded, case: Case) -> None:
    for operation, resource in case.needs:
        world.allow(operation, resource)
    assert not codes(world.call(Request(case.key, case.version, case.body))) & DENIALS


def test_groups_of_one_request_are_denied_each_for_itself(world: Guarded) -> None:
    coordinate(world)
    world.allow(DESCRIBE, OTHER)
    topics = tuple(OffsetFetchRequestTopic(name, (0,)) for name in ("t", "other"))
    groups = tuple(OffsetFetchRequestGroup(name, topics) for name in ("h", "g", "i"))
    answer = world.call(Request(K.OFFSET_FETCH, 8, OffsetFetchRequest("", (), groups)))
    assert [(group.group_id, group.error_code) for group in answer.groups] == [
        ("h", GROUP_DENIED),
        ("g", ErrorCode.NONE),
        ("i", GROUP_DENIED),
    ]
    codes_of_g = {topic.name: topic.partitions[0].error_code for topic in answer.groups[1].topics}
    assert codes_of_g == {"t": TOPIC_DENIED, "other": ErrorCode.NONE}
    found = world.call(
        Request(K.FIND_COORDINATOR, 4, FindCoordinatorRequest("", CoordinatorType.GROUP, ("h", "g")))
    )
    assert {row.key: row.error_code for row in found.coordinators} == {"h": GROUP_DENIED, "g": ErrorCode.NONE}


def test_all_offsets_of_a_group_are_those_of_topics_to_describe(world: Guarded) -> None:
    coordinate(world)
    request = OffsetFetchRequest("", (), (OffsetFetchRequestGroup("g", None),))
    (group,) = world.call(Request(K.OFFSET_FETCH, 8, request)).groups
    assert (group.error_code, group.topics) == (ErrorCode.NONE, ())


def test_operations_on_a_group_are_those_that_the_client_may_do(world: Guarded) -> None:
    coordinate(world)
    world.allow(READ, GROUP)
    answer = world.call(Request(K.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(("g", "h"), True)))
    rows = {row.group_id: row.authorized_operations for row in answer.groups}
    assert rows == {"g": operation_bits([READ, DESCRIBE]), "h": NO_OPERATIONS}
    answer = world.call(Request(K.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(("g",))))
    assert answer.groups[0].authorized_operations == NO_OPERATIONS
