"""SyncGroup: a member gets its assignment; the leader sends the assignments of all members.

Version 1 adds throttle_time_ms. See ``groups.group``; the response waits until the leader's assignment is
stored. While the group is being loaded the error is REBALANCE_IN_PROGRESS: its members must join again
anyway, and older clients expect no other error here.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.groups import events
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(coordinator: GroupCoordinator, context: RequestContext, request: SyncGroupRequest) -> None:
    """Serve one SyncGroup request."""

    def answer(synced: events.Synced) -> None:
        context.answer(
            lambda: SyncGroupResponse(
                throttle_time_ms=0, error_code=synced.error, assignment=synced.assignment
            )
        )

    assignments = {row.member_id: row.assignment for row in request.assignments}
    try:
        coordinator.handle_event(
            request.group_id, events.Sync(answer, request.member_id, request.generation_id, assignments)
        )
    except BrokerError as error:
        loading = error.code is ErrorCode.GROUP_LOAD_IN_PROGRESS
        answer(events.Synced(answer, ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code))
