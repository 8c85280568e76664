"""SyncGroup: a member's share of the work; the leader brings everybody's.

Versions: 1 adds throttle_time_ms. Behaviour: see ``groups.group``; the answer waits until the leader's
assignment is stored. While the group is loaded, REBALANCE_IN_PROGRESS: its members have to join again anyway,
and older clients do not expect another answer here.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.groups import events
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(coordinator: GroupCoordinator, context: RequestContext, request: SyncGroupRequest) -> None:
    """Serve one request."""

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
