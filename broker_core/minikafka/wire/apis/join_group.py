"""JoinGroup: become or remain a member of a group. The response waits for all members.

Version 1: a separate timeout for the rebalance; version 0 uses the session timeout. Version 2:
throttle_time_ms; 4: a new member must join a second time with its id; 5: static members; 7: the response has
the protocol type; 8: the reason of the member; 9: the leader may keep the assignment. Versions 3 and 6 have
no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since


@fast_value
class JoinGroupRequestProtocol:
    """An assignment protocol that the member supports, with the member's metadata for the leader."""

    name: str
    metadata: bytes


@fast_value
class JoinGroupRequest:
    """A request to join a group. ``rebalance_timeout_ms`` -1: the session timeout."""

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1, default=-1)]
    member_id: Annotated[str, "empty: a new member"]
    group_instance_id: Annotated[str | None, since(5), "of a static member"] = field(
        default=None, kw_only=True
    )
    protocol_type: Annotated[str, "of consumers: consumer"]
    protocols: Annotated[tuple[JoinGroupRequestProtocol, ...], "in order of preference"]
    reason: Annotated[str | None, since(8), "for the broker's log"] = None


@fast_value
class JoinGroupResponseMember:
    """A member, for the leader."""

    member_id: str
    group_instance_id: Annotated[str | None, since(5), "of a static member"] = field(
        default=None, kw_only=True
    )
    metadata: bytes


@fast_value
class JoinGroupResponse:
    """The new generation of the group. Only the leader gets ``members``. With an error: generation -1 and
    empty names.
    """

    throttle_time_ms: Annotated[Int32, since(2, default=0)]
    error_code: Int16
    generation_id: Int32
    protocol_type: Annotated[str | None, since(7)] = field(default=None, kw_only=True)
    protocol_name: Annotated[str | None, since(7, earlier=str)]
    leader: str
    skip_assignment: Annotated[bool, since(9), "the leader keeps the assignment"] = field(
        default=False, kw_only=True
    )
    member_id: str
    members: Annotated[tuple[JoinGroupResponseMember, ...], "for the leader"]


JOIN_GROUP = Api(ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, JoinGroupRequest, JoinGroupResponse)
