"""ListGroups: the groups that a broker coordinates.

Version 1: throttle_time_ms; 2 is the same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, STRING, Struct, array, field


@fast_value
class ListGroupsRequest:
    """A request without a body."""


@fast_value
class ListedGroup:
    """A group. ``protocol_type`` is empty for a group that only stores offsets."""

    group_id: str
    protocol_type: str


@fast_value
class ListGroupsResponse:
    """The groups that this broker coordinates."""

    throttle_time_ms: int
    error_code: int
    groups: tuple[ListedGroup, ...]


LIST_GROUPS = Api(
    ApiKey.LIST_GROUPS,
    "ListGroups",
    0,
    2,
    request=Struct(ListGroupsRequest),
    response=Struct(
        ListGroupsResponse,
        field("throttle_time_ms", INT32, since=1, default=0),
        field("error_code", INT16),
        array("groups", ListedGroup, field("group_id", STRING), field("protocol_type", STRING)),
    ),
)
