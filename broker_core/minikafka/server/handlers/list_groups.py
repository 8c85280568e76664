"""ListGroups: the groups that this broker coordinates.

Versions: 1 adds throttle_time_ms. Behaviour: while a partition is loaded, GROUP_LOAD_IN_PROGRESS with the
groups of the others.
"""

from __future__ import annotations

from minikafka.server.context import RequestContext
from minikafka.server.coordinator import Coordinator
from minikafka.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(coordinator: Coordinator, context: RequestContext, request: ListGroupsRequest) -> None:
    """Serve one request."""
    error, groups = coordinator.groups()
    rows = tuple(ListedGroup(group_id, protocol_type) for group_id, protocol_type in groups)
    context.reply(ListGroupsResponse(throttle_time_ms=0, error_code=error, groups=rows))
