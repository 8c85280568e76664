"""ListGroups: the groups that this broker coordinates.

Versions: 1 adds throttle_time_ms. Behaviour: while a partition is loaded, GROUP_LOAD_IN_PROGRESS with the
groups of the others.
"""

from __future__ import annotations

from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

ROW_BYTES = 300
"""What a group takes in an answer until it is encoded."""


def handle(coordinator: GroupCoordinator, context: RequestContext, request: ListGroupsRequest) -> None:
    """Serve one request: in the pool, as there may be very many groups."""
    begin(coordinator.broker.pool, context.exchange, _serve(coordinator, context))


def _serve(coordinator: GroupCoordinator, context: RequestContext) -> Steps:
    yield 0
    error, groups = coordinator.groups()
    yield len(groups) * ROW_BYTES
    rows = tuple(ListedGroup(group_id, protocol_type) for group_id, protocol_type in groups)
    context.reply(ListGroupsResponse(throttle_time_ms=0, error_code=error, groups=rows))
