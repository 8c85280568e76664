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
from minikafka.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.support import requests
from tests.support.access_cases import DESCRIBE, GROUP, READ
from tests.support.guarded_broker import OTHER, Guarded
from tests.support.requests import Request


@pytest.fixture
def world() -> Guarded:
    return Guarded()


def coordinate(world: Guarded) -> None:
    """Let the client describe group g, and have its coordinator here."""
    world.allow(DESCRIBE, GROUP)
    while world.call(requests.find_coordinator()).error_code:
        world.settle()


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
