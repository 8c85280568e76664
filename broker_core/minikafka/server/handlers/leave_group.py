"""LeaveGroup: members leave their group, so that the others need not wait for their session time-outs.

Version 1 adds throttle_time_ms. From 3 on several members may leave at once, and an administrator may remove
static members by their instance ids; the result of each has an error. 5 adds the client's reason. See
``groups.group``.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.groups import events
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_SEVERAL_MEMBERS_SINCE = 3


def handle(coordinator: GroupCoordinator, context: RequestContext, request: LeaveGroupRequest) -> None:
    """Serve one LeaveGroup request."""
    several = context.version >= _SEVERAL_MEMBERS_SINCE

    def answer(left: events.Left) -> None:
        error = left.error
        if not several and left.members:
            ((_, error),) = left.members
        context.answer(
            lambda: LeaveGroupResponse(0, error, tuple(map(_row, left.members)) if several else ())
        )

    if several:
        members = tuple(
            events.MemberIdentity(row.member_id, row.group_instance_id, row.reason or "")
            for row in request.members
        )
    else:
        members = (events.MemberIdentity(request.member_id),)
    try:
        coordinator.handle_event(request.group_id, events.Leave(answer, members))
    except BrokerError as error:
        answer(events.Left(answer, error.code))


def _row(outcome: tuple[events.MemberIdentity, ErrorCode]) -> MemberResponse:
    identity, error = outcome
    return MemberResponse(identity.member_id, identity.group_instance_id, error)
