"""The requests of a member to its coordinator, and the events that their responses give ``Membership``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.assignors import ASSIGNORS, COOPERATIVE
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.member_subscriptions import (
    MemberSubscription,
    Subscriptions,
    to_consumer_partitions,
)
from minikafka.clients.group.membership import (
    AssignmentComputed,
    ComputeAssignment,
    JoinCompleted,
    SendJoinGroup,
    SendSyncGroup,
    SyncCompleted,
)
from minikafka.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from minikafka.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from minikafka.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)


def join_request(
    config: GroupConsumerConfig, effect: SendJoinGroup, protocols: tuple[JoinGroupRequestProtocol, ...]
) -> JoinGroupRequest:
    """Return JoinGroup. Version 0 has only the session time-out."""
    return JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=effect.member_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
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
        members=tuple((member.member_id, None, member.metadata) for member in response.members),
    )


def sync_request(config: GroupConsumerConfig, effect: SendSyncGroup) -> SyncGroupRequest:
    """Return SyncGroup; the leader's contains the assignments of all members."""
    shares = tuple(SyncGroupRequestAssignment(member, share) for member, share in effect.shares)
    return SyncGroupRequest(config.group_id, effect.generation, effect.member_id, shares)


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
    rows = decode_assignment(assignment).assigned_partitions
    return tuple(sorted(TopicPartition(row.topic, number) for row in rows for number in row.partitions))
