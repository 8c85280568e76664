"""DeleteGroups: delete groups without members, and their offsets.

Versions 0 and 1 are the same. NON_EMPTY_GROUP for a group with members, GROUP_ID_NOT_FOUND for an unknown
group.
"""

from __future__ import annotations

from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(coordinator: GroupCoordinator, context: RequestContext, request: DeleteGroupsRequest) -> Steps:
    """Serve one DeleteGroups request."""
    rows: list[DeletableGroupResult] = []
    for name in dict.fromkeys(request.groups_names):
        yield 0
        rows.append(DeletableGroupResult(name, coordinator.delete(name)))
    context.reply(DeleteGroupsResponse(throttle_time_ms=0, results=tuple(rows)))
