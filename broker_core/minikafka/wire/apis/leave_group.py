"""LeaveGroup: a member leaves its group, so that the others need not wait for its session timeout.

Version 1: throttle_time_ms; 3: several members, among them static ones; 5: their reasons. Versions 2 and 4
have no new fields.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since, until


@fast_value
class MemberIdentity:
    """A member that leaves. ``member_id`` may be empty if it has an instance id."""

    member_id: str
    group_instance_id: Annotated[str | None, "of a static member"] = None
    reason: Annotated[str | None, since(5), "for the broker's log"] = None


@fast_value
class LeaveGroupRequest:
    """The member that leaves, or from version 3 on ``members``."""

    group_id: str
    member_id: Annotated[str, until(2, default="")]
    members: Annotated[tuple[MemberIdentity, ...], since(3)] = ()


@fast_value
class MemberResponse:
    """The result for one member."""

    member_id: str
    group_instance_id: str | None
    error_code: Int16


@fast_value
class LeaveGroupResponse:
    """The error code; UNKNOWN_MEMBER_ID if it was not a member."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Int16
    members: Annotated[tuple[MemberResponse, ...], since(3)] = ()


LEAVE_GROUP = Api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, LeaveGroupRequest, LeaveGroupResponse)
