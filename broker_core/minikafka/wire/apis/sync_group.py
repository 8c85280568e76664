"""SyncGroup: distribute the leader's assignment. The response waits until the leader has sent it.

Version 1: throttle_time_ms; 3: the instance id of a static member; 5: the protocol. Versions 2 and 4 have no
new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since


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
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3), "of a static member"] = field(
        default=None, kw_only=True
    )
    protocol_type: Annotated[str | None, since(5)] = field(default=None, kw_only=True)
    protocol_name: Annotated[str | None, since(5)] = field(default=None, kw_only=True)
    assignments: Annotated[tuple[SyncGroupRequestAssignment, ...], "from the leader"]


@fast_value
class SyncGroupResponse:
    """The assignment of this member; empty with an error."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Int16
    protocol_type: Annotated[str | None, since(5)] = field(default=None, kw_only=True)
    protocol_name: Annotated[str | None, since(5)] = field(default=None, kw_only=True)
    assignment: bytes


SYNC_GROUP = Api(ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, SyncGroupRequest, SyncGroupResponse)
