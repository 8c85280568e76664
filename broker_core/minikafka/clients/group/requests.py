"""The requests of a member to its coordinator, and the events that their responses give ``Membership``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.assignors import ASSIGNORS, COOPERATIVE
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.member_subscriptions import (
    MemberSubscription,
    Subscriptions,
    from_consumer_partitions,
    to_consumer_partitions,
)
from minikafka.clients.group.membership import (
    AssignmentComputed,
    ComputeAssignment,
    JoinCompleted,
    SendJoinGroup,
    SendLeaveGroup,
    SendSyncGroup,
    SyncCompleted,
)
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from minikafka.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from minikafka.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from minikafka.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

_STATIC_MEMBERS_SINCE = 5
"""The first version of JoinGroup with instance ids."""
_REASON_CHARS = 255
"""The longest reason that is sent, as in Kafka's clients."""


def join_request(
    config: GroupConsumerConfig,
    effect: SendJoinGroup,
    protocols: tuple[JoinGroupRequestProtocol, ...],
    version: int,
) -> JoinGroupRequest:
    """Return JoinGroup. Version 0 has only the session time-out.

    Raises UNSUPPORTED_VERSION (BrokerError) for a static member of a broker that has none.
    """
    if config.group_instance_id is not None and version < _STATIC_MEMBERS_SINCE:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"group {config.group_id!r} cannot have static members: its broker has JoinGroup up to version "
            f"{version}, and group.instance.id needs {_STATIC_MEMBERS_SINCE} (Kafka 2.3); leave it out",
        )
    return JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=effect.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=effect.reason[:_REASON_CHARS],
    )


def join_protocols(
    assignors: Iterable[str], subscription: MemberSubscription
) -> tuple[JoinGroupRequestProtocol, ...]:
    """Return the assignors with one subscription for all; only cooperative ones get the owned partitions."""
    plain = encode_subscription(Subscription(subscription.topics))
    return tuple(
        JoinGroupRequestProtocol(name, subscription.encode() if name in COOPERATIVE else plain)
        for name in assignors
    )


def join_completed(response: JoinGroupResponse) -> JoinCompleted:
    """Return the event of a JoinGroup response."""
    return JoinCompleted(
        code=ErrorCode.of(response.error_code),
        generation=response.generation_id,
        protocol=response.protocol_name or "",
        leader=response.leader,
        member_id=response.member_id,
        members=tuple(
            (member.member_id, member.group_instance_id, member.metadata) for member in response.members
        ),
        skip_assignment=response.skip_assignment,
    )


def sync_request(config: GroupConsumerConfig, effect: SendSyncGroup) -> SyncGroupRequest:
    """Return SyncGroup; the leader's contains the assignments of all members."""
    shares = tuple(SyncGroupRequestAssignment(member, share) for member, share in effect.shares)
    return SyncGroupRequest(
        group_id=config.group_id,
        generation_id=effect.generation,
        member_id=effect.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=effect.protocol,
        assignments=shares,
    )


def leave_request(config: GroupConsumerConfig, effect: SendLeaveGroup) -> LeaveGroupRequest:
    """Return LeaveGroup, in every version."""
    reason = (effect.why or "the consumer leaves")[:_REASON_CHARS]
    return LeaveGroupRequest(
        config.group_id, effect.member_id, (MemberIdentity(effect.member_id, reason=reason),)
    )


def sync_completed(response: SyncGroupResponse) -> SyncCompleted:
    """Return the event of a SyncGroup response."""
    return SyncCompleted(ErrorCode.of(response.error_code), response.assignment)


def compute_assignment(
    effect: ComputeAssignment, subscriptions: Subscriptions, partitions: Mapping[str, int]
) -> AssignmentComputed:
    """Return the assignments of all members by the assignor that the coordinator has chosen."""
    shares = ASSIGNORS[effect.protocol](subscriptions, partitions)
    return encoded_assignment(shares)


def encoded_assignment(shares: Mapping[str, Iterable[TopicPartition]]) -> AssignmentComputed:
    """Return the event of the partitions that each member gets."""
    return AssignmentComputed(tuple((member_id, _encoded(share)) for member_id, share in shares.items()))


def _encoded(share: Iterable[TopicPartition]) -> bytes:
    return encode_assignment(Assignment(to_consumer_partitions(share)))


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in an assignment, sorted. Raises RemoteWireError for invalid bytes."""
    return tuple(sorted(from_consumer_partitions(decode_assignment(assignment).assigned_partitions)))
