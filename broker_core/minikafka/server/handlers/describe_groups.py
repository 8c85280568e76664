"""DescribeGroups: state and members of groups.

Versions: 1 adds throttle_time_ms. Behaviour: metadata and assignments are told of stable groups only; a group
that there is not is Dead, without an error.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.coordinator import Coordinator
from minikafka.wire.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(coordinator: Coordinator, context: RequestContext, request: DescribeGroupsRequest) -> None:
    """Serve one request."""
    rows = tuple(_described(coordinator, group_id) for group_id in request.groups)
    context.reply(DescribeGroupsResponse(throttle_time_ms=0, groups=rows))


def _described(coordinator: Coordinator, group_id: str) -> DescribedGroup:
    try:
        group = coordinator.describe(group_id)
    except BrokerError as error:
        return DescribedGroup(error.code, group_id, "", "", "", ())
    members = tuple(
        DescribedGroupMember(
            member.member_id, member.client_id, member.client_host, member.metadata, member.assignment
        )
        for member in group.members
    )
    return DescribedGroup(
        ErrorCode.NONE, group_id, group.state.value, group.protocol_type, group.protocol, members
    )
