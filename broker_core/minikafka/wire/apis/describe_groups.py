"""DescribeGroups: state and members of groups. Sent to the coordinator of each.

Version 1: throttle_time_ms; 3: the operations that the client is authorized to do; 4: the instance ids of
static members. Versions 2 and 5 have no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import NO_OPERATIONS, Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since


@fast_value
class DescribeGroupsRequest:
    """The names of the groups."""

    groups: tuple[str, ...]
    include_authorized_operations: Annotated[bool, since(3)] = False


@fast_value
class DescribedGroupMember:
    """A member of a group. ``client_host`` begins with a slash, as Java prints addresses."""

    member_id: str
    group_instance_id: Annotated[str | None, since(4), "of a static member"] = field(
        default=None, kw_only=True
    )
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@fast_value
class DescribedGroup:
    """A group, with its members.

    ``group_state``: Stable, PreparingRebalance, AwaitingSync (CompletingRebalance from 1.1 on), Empty or
    Dead. ``protocol_data`` is the name of the chosen protocol.
    """

    error_code: Int16
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: Annotated[str, "the chosen protocol"]
    members: tuple[DescribedGroupMember, ...]
    authorized_operations: Annotated[Int32, since(3), "bits; -2^31: not requested"] = NO_OPERATIONS


@fast_value
class DescribeGroupsResponse:
    """The descriptions of the groups of the request."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    groups: tuple[DescribedGroup, ...]


DESCRIBE_GROUPS = Api(
    ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 5, DescribeGroupsRequest, DescribeGroupsResponse
)
