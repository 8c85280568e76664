"""LeaveGroup: a member leaves its group, so that the others need not wait for its session time-out.

Version 1 adds throttle_time_ms. See ``groups.group``.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError
from minikafka.groups import events
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(coordinator: GroupCoordinator, context: RequestContext, request: LeaveGroupRequest) -> None:
    """Serve one LeaveGroup request."""

    def answer(left: events.Left) -> None:
        ((_, error),) = left.members or ((None, left.error),)
        context.answer(lambda: LeaveGroupResponse(throttle_time_ms=0, error_code=error))

    leave = events.Leave(answer, (events.MemberIdentity(request.member_id),))
    try:
        coordinator.handle_event(request.group_id, leave)
    except BrokerError as error:
        answer(events.Left(answer, error.code))
