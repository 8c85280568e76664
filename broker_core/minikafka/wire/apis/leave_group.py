"""LeaveGroup: a member leaves its group, so that the others need not wait for its session timeout.

Version 1: throttle_time_ms; 2 is the same.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since


@fast_value
class LeaveGroupRequest:
    """The member that leaves."""

    group_id: str
    member_id: str


@fast_value
class LeaveGroupResponse:
    """The error code; UNKNOWN_MEMBER_ID if it was not a member."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Int16


LEAVE_GROUP = Api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 2, LeaveGroupRequest, LeaveGroupResponse)
