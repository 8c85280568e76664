"""LeaveGroup: a member leaves its group, so that the others need not wait for its session timeout.

Version 1: throttle_time_ms; 2 is the same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, STRING, Struct, field


@fast_value
class LeaveGroupRequest:
    """The member that leaves."""

    group_id: str
    member_id: str


@fast_value
class LeaveGroupResponse:
    """The error code; UNKNOWN_MEMBER_ID if it was not a member."""

    throttle_time_ms: int
    error_code: int


LEAVE_GROUP = Api(
    ApiKey.LEAVE_GROUP,
    "LeaveGroup",
    0,
    2,
    request=Struct(LeaveGroupRequest, field("group_id", STRING), field("member_id", STRING)),
    response=Struct(
        LeaveGroupResponse, field("throttle_time_ms", INT32, since=1, default=0), field("error_code", INT16)
    ),
)
