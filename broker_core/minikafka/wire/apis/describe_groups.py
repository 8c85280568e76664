"""DescribeGroups: state and members of groups. Sent to the coordinator of each.

Version 1: throttle_time_ms; 2 is the same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import BYTES, INT16, INT32, STRING, ArrayOf, Struct, array, field


@fast_value
class DescribeGroupsRequest:
    """The names of the groups."""

    groups: tuple[str, ...]


@fast_value
class DescribedGroupMember:
    """A member of a group. ``client_host`` begins with a slash, as Java prints addresses."""

    member_id: str
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

    error_code: int
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedGroupMember, ...]


@fast_value
class DescribeGroupsResponse:
    """The descriptions of the groups of the request."""

    throttle_time_ms: int
    groups: tuple[DescribedGroup, ...]


DESCRIBE_GROUPS = Api(
    ApiKey.DESCRIBE_GROUPS,
    "DescribeGroups",
    0,
    2,
    request=Struct(DescribeGroupsRequest, field("groups", ArrayOf(STRING))),
    response=Struct(
        DescribeGroupsResponse,
        field("throttle_time_ms", INT32, since=1, default=0),
        array(
            "groups",
            DescribedGroup,
            field("error_code", INT16),
            field("group_id", STRING),
            field("group_state", STRING),
            field("protocol_type", STRING),
            field("protocol_data", STRING, "the chosen protocol"),
            array(
                "members",
                DescribedGroupMember,
                field("member_id", STRING),
                field("client_id", STRING),
                field("client_host", STRING),
                field("member_metadata", BYTES),
                field("member_assignment", BYTES),
            ),
        ),
    ),
)
