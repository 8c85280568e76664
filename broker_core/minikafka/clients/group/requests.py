"""What a member asks its coordinator, and what the answers mean to ``Membership``."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from minikafka.base.errors import ErrorCode, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.assignors import ASSIGNORS
from minikafka.clients.group.config import GroupConsumerConfig
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
    ConsumerPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

logger = logging.getLogger("minikafka.clients.group")


def join_request(
    config: GroupConsumerConfig, effect: SendJoinGroup, topics: tuple[str, ...]
) -> JoinGroupRequest:
    """JoinGroup with the same subscription for each assignor. Version 0 has the session's time-out only."""
    subscription = encode_subscription(Subscription(topics))
    return JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=effect.member_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(JoinGroupRequestProtocol(name, subscription) for name in config.assignors),
    )


def join_completed(response: JoinGroupResponse) -> JoinCompleted:
    """What the answer to JoinGroup says."""
    return JoinCompleted(
        code=ErrorCode.of(response.error_code),
        generation=response.generation_id,
        protocol=response.protocol_name,
        leader=response.leader,
        member_id=response.member_id,
        members=tuple((one.member_id, one.metadata) for one in response.members),
    )


def sync_request(config: GroupConsumerConfig, effect: SendSyncGroup) -> SyncGroupRequest:
    """SyncGroup; with everybody's share from the leader."""
    shares = tuple(SyncGroupRequestAssignment(member, share) for member, share in effect.shares)
    return SyncGroupRequest(config.group_id, effect.generation, effect.member_id, shares)


def sync_completed(response: SyncGroupResponse) -> SyncCompleted:
    """What the answer to SyncGroup says."""
    return SyncCompleted(ErrorCode.of(response.error_code), response.assignment)


def member_subscriptions(effect: ComputeAssignment) -> dict[str, tuple[str, ...]]:
    """What the members want to read. One that cannot be understood gets nothing, and the log says so."""
    found: dict[str, tuple[str, ...]] = {}
    for member_id, data in effect.members:
        try:
            found[member_id] = decode_subscription(data).topics
        except RemoteWireError as error:
            logger.warning(
                "the subscription of %s makes no sense, it gets no partitions: %s", member_id, error
            )
            found[member_id] = ()
    return found


def compute_assignment(
    effect: ComputeAssignment, subscriptions: Mapping[str, tuple[str, ...]], partitions: Mapping[str, int]
) -> AssignmentComputed:
    """The shares of all members by the assignor that the coordinator has chosen among those that all know."""
    shares = ASSIGNORS[effect.protocol](subscriptions, partitions)
    return AssignmentComputed(tuple((member_id, _encoded(share)) for member_id, share in shares.items()))


def _encoded(share: tuple[TopicPartition, ...]) -> bytes:
    topics: dict[str, list[int]] = {}
    for tp in share:
        topics.setdefault(tp.topic, []).append(tp.partition)
    rows = tuple(ConsumerPartitions(topic, tuple(numbers)) for topic, numbers in topics.items())
    return encode_assignment(Assignment(rows))


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment, sorted. RemoteWireError for bytes that are none."""
    rows = decode_assignment(assignment).assigned_partitions
    return tuple(sorted(TopicPartition(row.topic, number) for row in rows for number in row.partitions))
