"""SyncGroup: distribute the leader's assignment. The response waits until the leader has sent it.

Version 1: throttle_time_ms; 2 is the same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import BYTES, INT16, INT32, STRING, Struct, array, field


@fast_value
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: str
    assignment: bytes


@fast_value
class SyncGroupRequest:
    """A member's request for its assignment. ``assignments``: those of all members if the leader sends it,
    else empty.
    """

    group_id: str
    generation_id: int
    member_id: str
    assignments: tuple[SyncGroupRequestAssignment, ...]


@fast_value
class SyncGroupResponse:
    """The assignment of this member; empty with an error."""

    throttle_time_ms: int
    error_code: int
    assignment: bytes


SYNC_GROUP = Api(
    ApiKey.SYNC_GROUP,
    "SyncGroup",
    0,
    2,
    request=Struct(
        SyncGroupRequest,
        field("group_id", STRING),
        field("generation_id", INT32),
        field("member_id", STRING),
        array(
            "assignments",
            SyncGroupRequestAssignment,
            field("member_id", STRING),
            field("assignment", BYTES),
            note="from the leader",
        ),
    ),
    response=Struct(
        SyncGroupResponse,
        field("throttle_time_ms", INT32, since=1, default=0),
        field("error_code", INT16),
        field("assignment", BYTES),
    ),
)
