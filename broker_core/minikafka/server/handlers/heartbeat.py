"""Heartbeat: a member is alive; the response tells it of a rebalance.

Version 1 adds throttle_time_ms, 3 the instance ids of static members. See ``groups.group``. While the group
is being loaded every heartbeat succeeds, since its members are not known yet.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.groups import events
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(coordinator: GroupCoordinator, context: RequestContext, request: HeartbeatRequest) -> None:
    """Serve one Heartbeat request."""

    def answer(answered: events.Answered) -> None:
        context.answer(lambda: HeartbeatResponse(throttle_time_ms=0, error_code=answered.error))

    heartbeat = events.Heartbeat(answer, request.member_id, request.generation_id, request.group_instance_id)
    try:
        coordinator.handle_event(request.group_id, heartbeat)
    except BrokerError as error:
        loading = error.code is ErrorCode.GROUP_LOAD_IN_PROGRESS
        answer(events.Answered(answer, ErrorCode.NONE if loading else error.code))
