"""ListGroups: the groups that this broker coordinates.

Version 1 adds throttle_time_ms, 4 a filter by state, and the states, 5 a filter by type, and the types: all
groups here are classic. Filters ignore case. While a partition is being loaded the error is
GROUP_LOAD_IN_PROGRESS, with the groups of the other partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

ROW_BYTES = 300
"""Estimated memory of a group until it is encoded."""
CLASSIC = "classic"
"""The type of groups whose members assign the partitions."""


def handle(coordinator: GroupCoordinator, context: RequestContext, request: ListGroupsRequest) -> None:
    """Serve one ListGroups request, in the pool: there may be many groups."""
    begin(coordinator.broker.pool, context.exchange, _serve(coordinator, context, request))


def _serve(coordinator: GroupCoordinator, context: RequestContext, request: ListGroupsRequest) -> Steps:
    yield 0
    error, groups = coordinator.groups()
    yield len(groups) * ROW_BYTES
    states, types = _folded(request.states_filter), _folded(request.types_filter)
    rows = tuple(
        ListedGroup(group.group_id, group.protocol_type, group.state.value, CLASSIC)
        for group in groups
        if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types)
    )
    context.reply(ListGroupsResponse(throttle_time_ms=0, error_code=error, groups=rows))


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)
