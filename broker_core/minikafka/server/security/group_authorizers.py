"""The permissions that the APIs of groups need (see ``request_authorizers``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from minikafka.base.acls import GROUP_OPERATIONS, Operation, ResourceType, operation_bits
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
from minikafka.wire.api import NO_OPERATIONS, ApiKey
from minikafka.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from minikafka.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from minikafka.wire.apis.find_coordinator import (
    Coordinator,
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
from minikafka.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from minikafka.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from minikafka.wire.apis.sync_group import SyncGroupResponse

_SEVERAL_KEYS_SINCE = 4
"""The first version of FindCoordinator with several keys."""
_SEVERAL_GROUPS_SINCE = 8
"""The first version of OffsetFetch with several groups."""


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
_fetch_topics_of_group = each_topic(Operation.DESCRIBE, _denied_offset, None)


def _offset_fetch(
    requester: Requester, version: int, request: OffsetFetchRequest
) -> AuthorizationResult | None:
    if version >= _SEVERAL_GROUPS_SINCE:
        return _offset_fetch_of_groups(requester, version, request)
    if not requester.may_on_group(Operation.DESCRIBE, request.group_id):
        # Versions 0 and 1 have no error field for the group: report it in each partition.
        named = (request.topics or ()) if version < 2 else ()
        rows = tuple(_denied_offset(topic, GROUP_DENIED) for topic in named)
        return AuthorizationResult(None, lambda _: OffsetFetchResponse(0, rows, GROUP_DENIED))
    if request.topics is None:
        return AuthorizationResult(request, only_topics(requester))
    return _fetch_topics(requester, version, request)


def _offset_fetch_of_groups(
    requester: Requester, version: int, request: OffsetFetchRequest
) -> AuthorizationResult | None:
    """Authorize version 8 and later, with several groups: each as the one of former versions."""
    served: list[OffsetFetchRequestGroup] = []
    outcomes: list[OffsetFetchResponseGroup | Callable[[Any], Any]] = []
    """For each group its row if it is denied, otherwise the change of its row."""
    for group in request.groups:
        if not requester.may_on_group(Operation.DESCRIBE, group.group_id):
            outcomes.append(OffsetFetchResponseGroup(group.group_id, (), GROUP_DENIED))
        elif group.topics is None:
            served.append(group)
            outcomes.append(only_topics(requester))
        elif (result := _fetch_topics_of_group(requester, version, group)) is None:
            served.append(group)
            outcomes.append(_unchanged)
        elif result.request is None:
            outcomes.append(result.answer(OffsetFetchResponseGroup(group.group_id, ())))
        else:
            served.append(result.request)
            outcomes.append(result.answer)
    if all(outcome is _unchanged for outcome in outcomes):
        return None

    def answer(response: OffsetFetchResponse | None) -> OffsetFetchResponse:
        base = OffsetFetchResponse(0, (), ErrorCode.NONE) if response is None else response
        rows = iter(base.groups)
        groups = (outcome(next(rows)) if callable(outcome) else outcome for outcome in outcomes)
        return replace(base, groups=tuple(groups))

    return AuthorizationResult(replace(request, groups=tuple(served)) if served else None, answer)


def _unchanged(row: Any) -> Any:
    return row


def _find_coordinator(
    requester: Requester, version: int, request: FindCoordinatorRequest
) -> AuthorizationResult | None:
    if request.key_type == CoordinatorType.TRANSACTION:
        code, resource, kind = TRANSACTIONAL_ID_DENIED, "transactional id", ResourceType.TRANSACTIONAL_ID
    else:
        code, resource, kind = GROUP_DENIED, "group", ResourceType.GROUP
    message = f"not authorized: Describe on the {resource}"

    def may(key: str) -> bool:
        return requester.may(Operation.DESCRIBE, kind, key)

    if version < _SEVERAL_KEYS_SINCE:
        if may(request.key):
            return None
        return AuthorizationResult(None, lambda _: FindCoordinatorResponse(0, code, message, -1, "", -1))
    allowed = tuple(key for key in request.coordinator_keys if may(key))
    if allowed == request.coordinator_keys:
        return None
    denied = tuple(
        Coordinator(key, -1, "", -1, code, message)
        for key in dict.fromkeys(request.coordinator_keys)
        if not may(key)
    )

    def answer(response: FindCoordinatorResponse | None) -> FindCoordinatorResponse:
        base = FindCoordinatorResponse(0, ErrorCode.NONE, None, -1, "", -1) if response is None else response
        return replace(base, coordinators=(*base.coordinators, *denied))

    return AuthorizationResult(replace(request, coordinator_keys=allowed) if allowed else None, answer)


_describe_each_group = each_item(
    "groups",
    lambda requester, name: requester.may_on_group(Operation.DESCRIBE, name),
    "groups",
    lambda name: DescribedGroup(GROUP_DENIED, name, "", "", "", ()),
    DescribeGroupsResponse(0, ()),
)


def _describe_groups(
    requester: Requester, version: int, request: DescribeGroupsRequest
) -> AuthorizationResult | None:
    result = _describe_each_group(requester, version, request)
    if not request.include_authorized_operations or (result is not None and result.request is None):
        return result

    def with_operations(row: DescribedGroup) -> DescribedGroup:
        if row.authorized_operations == NO_OPERATIONS:
            return row
        allowed = (one for one in GROUP_OPERATIONS if requester.may_on_group(one, row.group_id))
        return replace(row, authorized_operations=operation_bits(allowed))

    def answer(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        served = response if result is None else result.answer(response)
        return replace(served, groups=tuple(map(with_operations, served.groups)))

    return AuthorizationResult(request if result is None else result.request, answer)


_denied_deletion = denied_topic(
    OffsetDeleteResponseTopic, lambda part, code: OffsetDeleteResponsePartition(part.partition_index, code)
)
_delete_topics = each_topic(Operation.READ, _denied_deletion, OffsetDeleteResponse(ErrorCode.NONE, 0, ()))


def _offset_delete(
    requester: Requester, version: int, request: OffsetDeleteRequest
) -> AuthorizationResult | None:
    if not requester.may_on_group(Operation.DELETE, request.group_id):
        return AuthorizationResult(None, lambda _: OffsetDeleteResponse(GROUP_DENIED, 0, ()))
    return _delete_topics(requester, version, request)


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
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.OFFSET_DELETE: _offset_delete,
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
