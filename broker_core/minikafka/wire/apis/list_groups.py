"""ListGroups: the groups that a broker coordinates.

Version 1: throttle_time_ms; 2 is the same.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since


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

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Int16
    groups: tuple[ListedGroup, ...]


LIST_GROUPS = Api(ApiKey.LIST_GROUPS, "ListGroups", 0, 2, ListGroupsRequest, ListGroupsResponse)
