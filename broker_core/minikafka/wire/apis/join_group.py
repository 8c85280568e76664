"""JoinGroup: become or remain a member of a group. The response waits for all members.

Version 1: a separate timeout for the rebalance; version 0 uses the session timeout. Version 2:
throttle_time_ms; 3 is the same. (From version 4 on a new member must join a second time with its id.)
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import BYTES, INT16, INT32, STRING, Struct, array, field


@fast_value
class JoinGroupRequestProtocol:
    """An assignment protocol that the member supports, with the member's metadata for the leader."""

    name: str
    metadata: bytes


@fast_value
class JoinGroupRequest:
    """A request to join a group. ``member_id`` is empty for a new member. ``rebalance_timeout_ms`` -1: the
    session timeout.
    """

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]


@fast_value
class JoinGroupResponseMember:
    """A member, for the leader."""

    member_id: str
    metadata: bytes


@fast_value
class JoinGroupResponse:
    """The new generation of the group. Only the leader gets ``members``. With an error: generation -1 and
    empty names.
    """

    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_name: str
    leader: str
    member_id: str
    members: tuple[JoinGroupResponseMember, ...]


JOIN_GROUP = Api(
    ApiKey.JOIN_GROUP,
    "JoinGroup",
    0,
    3,
    request=Struct(
        JoinGroupRequest,
        field("group_id", STRING),
        field("session_timeout_ms", INT32),
        field("rebalance_timeout_ms", INT32, since=1, default=-1),
        field("member_id", STRING, "empty: a new member"),
        field("protocol_type", STRING, "of consumers: consumer"),
        array(
            "protocols",
            JoinGroupRequestProtocol,
            field("name", STRING),
            field("metadata", BYTES),
            note="in order of preference",
        ),
    ),
    response=Struct(
        JoinGroupResponse,
        field("throttle_time_ms", INT32, since=2, default=0),
        field("error_code", INT16),
        field("generation_id", INT32),
        field("protocol_name", STRING),
        field("leader", STRING),
        field("member_id", STRING),
        array(
            "members",
            JoinGroupResponseMember,
            field("member_id", STRING),
            field("metadata", BYTES),
            note="for the leader",
        ),
    ),
)
