"""ListGroups: the groups that this broker coordinates.

Version 1 adds throttle_time_ms. While a partition is being loaded the error is GROUP_LOAD_IN_PROGRESS, with
the groups of the other partitions.
"""

from __future__ import annotations

from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

ROW_BYTES = 300
"""Estimated memory of a group until it is encoded."""


def handle(coordinator: GroupCoordinator, context: RequestContext, request: ListGroupsRequest) -> None:
    """Serve one ListGroups request, in the pool: there may be many groups."""
    begin(coordinator.broker.pool, context.exchange, _serve(coordinator, context))


def _serve(coordinator: GroupCoordinator, context: RequestContext) -> Steps:
    yield 0
    error, groups = coordinator.groups()
    yield len(groups) * ROW_BYTES
    rows = tuple(ListedGroup(group.group_id, group.protocol_type) for group in groups)
    context.reply(ListGroupsResponse(throttle_time_ms=0, error_code=error, groups=rows))
