"""DescribeGroups: the state and members of groups.

Version 1 adds throttle_time_ms, 3 the operations that the client may do, if it asks (``group_authorizers``
takes away those that it may not), 4 the instance ids of static members. Metadata and assignments are returned
for stable groups only; an unknown group is Dead, without an error. A repeated name is answered once.
"""

from __future__ import annotations

from minikafka.base.acls import GROUP_OPERATIONS, operation_bits
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.api import NO_OPERATIONS
from minikafka.wire.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

ROW_BYTES = 300
"""Estimated size of a group or member in the response, without metadata and assignment."""


def handle(coordinator: GroupCoordinator, context: RequestContext, request: DescribeGroupsRequest) -> Steps:
    """Serve one DescribeGroups request."""
    rows: list[DescribedGroup] = []
    answer_bytes = 0
    operations = operation_bits(GROUP_OPERATIONS) if request.include_authorized_operations else NO_OPERATIONS
    for group_id in dict.fromkeys(request.groups):
        yield 0
        row = _described(coordinator, group_id, operations)
        answer_bytes += ROW_BYTES + sum(
            ROW_BYTES + len(member.member_metadata) + len(member.member_assignment) for member in row.members
        )
        rows.append(row)
    yield answer_bytes
    context.reply(DescribeGroupsResponse(throttle_time_ms=0, groups=tuple(rows)))


def _described(coordinator: GroupCoordinator, group_id: str, operations: int) -> DescribedGroup:
    try:
        group = coordinator.describe(group_id)
    except BrokerError as error:
        return DescribedGroup(error.code, group_id, "", "", "", ())
    members = tuple(
        DescribedGroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.metadata,
            member.assignment,
            group_instance_id=member.group_instance_id,
        )
        for member in group.members
    )
    return DescribedGroup(
        ErrorCode.NONE, group_id, group.state.value, group.protocol_type, group.protocol, members, operations
    )
