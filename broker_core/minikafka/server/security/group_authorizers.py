"""The permissions that the APIs of groups need (see ``request_authorizers``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minikafka.base.acls import Operation, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.server.security.authorization import (
    GROUP_DENIED,
    NO_OFFSET,
    TRANSACTIONAL_ID_DENIED,
    AuthorizationResult,
    RequestAuthorizer,
    Requester,
    all_or_nothing,
    denied_topic,
    each_item,
    each_topic,
    only,
    only_topics,
)
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from minikafka.wire.apis.describe_groups import DescribedGroup, DescribeGroupsResponse
from minikafka.wire.apis.find_coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from minikafka.wire.apis.heartbeat import HeartbeatResponse
from minikafka.wire.apis.join_group import JoinGroupResponse
from minikafka.wire.apis.leave_group import LeaveGroupResponse
from minikafka.wire.apis.list_groups import ListGroupsRequest
from minikafka.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from minikafka.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from minikafka.wire.apis.sync_group import SyncGroupResponse


def _group_member_request(denial: Callable[[Any], Any]) -> RequestAuthorizer:
    return all_or_nothing(
        lambda requester, request: requester.may_on_group(Operation.READ, request.group_id), denial
    )


_denied_commit = denied_topic(
    OffsetCommitResponseTopic, lambda part, code: OffsetCommitResponsePartition(part.partition_index, code)
)
_commit_topics = each_topic(Operation.READ, _denied_commit, OffsetCommitResponse(0, ()))


def _offset_commit(
    requester: Requester, version: int, request: OffsetCommitRequest
) -> AuthorizationResult | None:
    if requester.may_on_group(Operation.READ, request.group_id):
        return _commit_topics(requester, version, request)
    rows = tuple(_denied_commit(topic, GROUP_DENIED) for topic in request.topics)
    return AuthorizationResult(None, lambda _: OffsetCommitResponse(0, rows))


_denied_offset = denied_topic(
    OffsetFetchResponseTopic,
    lambda index, code: OffsetFetchResponsePartition(index, NO_OFFSET, NO_OFFSET, "", code),
    "partition_indexes",
)
_fetch_topics = each_topic(Operation.DESCRIBE, _denied_offset, OffsetFetchResponse(0, (), ErrorCode.NONE))


def _offset_fetch(
    requester: Requester, version: int, request: OffsetFetchRequest
) -> AuthorizationResult | None:
    if not requester.may_on_group(Operation.DESCRIBE, request.group_id):
        # Versions 0 and 1 have no error field for the group: report it in each partition.
        named = (request.topics or ()) if version < 2 else ()
        rows = tuple(_denied_offset(topic, GROUP_DENIED) for topic in named)
        return AuthorizationResult(None, lambda _: OffsetFetchResponse(0, rows, GROUP_DENIED))
    if request.topics is None:
        return AuthorizationResult(request, only_topics(requester))
    return _fetch_topics(requester, version, request)


def _find_coordinator(
    requester: Requester, version: int, request: FindCoordinatorRequest
) -> AuthorizationResult | None:
    if request.key_type == CoordinatorType.TRANSACTION:
        allowed = requester.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, request.key)
        code, resource = TRANSACTIONAL_ID_DENIED, "transactional id"
    else:
        allowed = requester.may_on_group(Operation.DESCRIBE, request.key)
        code, resource = GROUP_DENIED, "group"
    if allowed:
        return None
    message = f"not authorized: Describe on the {resource}"
    return AuthorizationResult(None, lambda _: FindCoordinatorResponse(0, code, message, -1, "", -1))


def _list_groups(
    requester: Requester, version: int, request: ListGroupsRequest
) -> AuthorizationResult | None:
    if requester.may_on_cluster(Operation.DESCRIBE):
        return None
    seen = only("groups", lambda group: requester.may_on_group(Operation.DESCRIBE, group.group_id))
    return AuthorizationResult(request, seen)


GROUP_AUTHORIZERS: Mapping[ApiKey, RequestAuthorizer] = {
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _group_member_request(
        lambda request: JoinGroupResponse(0, GROUP_DENIED, -1, "", "", request.member_id, ())
    ),
    ApiKey.HEARTBEAT: _group_member_request(lambda request: HeartbeatResponse(0, GROUP_DENIED)),
    ApiKey.LEAVE_GROUP: _group_member_request(lambda request: LeaveGroupResponse(0, GROUP_DENIED)),
    ApiKey.SYNC_GROUP: _group_member_request(lambda request: SyncGroupResponse(0, GROUP_DENIED, b"")),
    ApiKey.DESCRIBE_GROUPS: each_item(
        "groups",
        lambda requester, name: requester.may_on_group(Operation.DESCRIBE, name),
        "groups",
        lambda name: DescribedGroup(GROUP_DENIED, name, "", "", "", ()),
        DescribeGroupsResponse(0, ()),
    ),
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DELETE_GROUPS: each_item(
        "groups_names",
        lambda requester, name: requester.may_on_group(Operation.DELETE, name),
        "results",
        lambda name: DeletableGroupResult(name, GROUP_DENIED),
        DeleteGroupsResponse(0, ()),
    ),
}
"""The authorizer of each API of groups."""
