"""SyncGroup: a member gets its assignment; the leader sends the assignments of all members.

Version 1 adds throttle_time_ms, 3 the instance ids of static members, 5 the protocol that the assignment is
for, which the request must name. See ``groups.group``; the response waits until the leader's assignment is
stored. While the group is being loaded the error is REBALANCE_IN_PROGRESS: its members must join again
anyway, and older clients expect no other error here.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.groups import events
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

_NAMES_PROTOCOL_SINCE = 5


def handle(coordinator: GroupCoordinator, context: RequestContext, request: SyncGroupRequest) -> None:
    """Serve one SyncGroup request."""

    def answer(synced: events.Synced) -> None:
        context.answer(
            lambda: SyncGroupResponse(
                throttle_time_ms=0,
                error_code=synced.error,
                protocol_type=synced.protocol_type,
                protocol_name=synced.protocol,
                assignment=synced.assignment,
            )
        )

    if context.version >= _NAMES_PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        answer(events.Synced(answer, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    sync = events.Sync(
        answer,
        request.member_id,
        request.generation_id,
        {row.member_id: row.assignment for row in request.assignments},
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
    )
    try:
        coordinator.handle_event(request.group_id, sync)
    except BrokerError as error:
        loading = error.code is ErrorCode.GROUP_LOAD_IN_PROGRESS
        answer(events.Synced(answer, ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code))
