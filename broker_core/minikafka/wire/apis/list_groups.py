"""ListGroups: the groups that a broker coordinates.

Version 1: throttle_time_ms; 4: the states of groups, and a filter by them; 5: the same for their types.
Versions 2 and 3 have no new fields.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since


@fast_value
class ListGroupsRequest:
    """The groups to list. An empty filter lets all pass."""

    states_filter: Annotated[tuple[str, ...], since(4), "empty: all"] = ()
    types_filter: Annotated[tuple[str, ...], since(5), "empty: all"] = ()


@fast_value
class ListedGroup:
    """A group. ``protocol_type`` is empty for a group that only stores offsets."""

    group_id: str
    protocol_type: str
    group_state: Annotated[str, since(4)] = ""
    group_type: Annotated[str, since(5), "classic or consumer"] = ""


@fast_value
class ListGroupsResponse:
    """The groups that this broker coordinates."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Int16
    groups: tuple[ListedGroup, ...]


LIST_GROUPS = Api(ApiKey.LIST_GROUPS, "ListGroups", 0, 5, ListGroupsRequest, ListGroupsResponse)
