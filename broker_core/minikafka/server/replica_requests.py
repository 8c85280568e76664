"""The requests that a follower sends to a leader, and what the answers say."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.log.epochs import UNKNOWN
from minikafka.log.log import Log
from minikafka.server.config import ReplicationConfig
from minikafka.wire.apis.fetch import (
    FINAL_EPOCH,
    NO_SESSION,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from minikafka.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
)


def fetch(
    replica_id: int, wanted: Iterable[tuple[TopicPartition, int, Log]], config: ReplicationConfig
) -> FetchRequest:
    """From the ends of these logs on, in their order; each from the leader of an epoch and no other."""
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), leader_epoch, log in wanted:
        part = FetchPartition(
            partition, leader_epoch, log.end_offset, log.start_offset, config.fetch_max_bytes
        )
        topics.setdefault(topic, []).append(part)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=config.fetch_wait_max_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_response_max_bytes,
        isolation_level=READ_UNCOMMITTED,
        session_id=NO_SESSION,
        session_epoch=FINAL_EPOCH,
        topics=tuple(FetchTopic(topic, tuple(parts)) for topic, parts in topics.items()),
    )


def epoch_ends(wanted: Iterable[tuple[TopicPartition, int, int]]) -> OffsetForLeaderEpochRequest:
    """Where an epoch, the last number, ends on the leader of another one."""
    topics: dict[str, list[EpochPartition]] = {}
    for (topic, partition), leader_epoch, epoch in wanted:
        topics.setdefault(topic, []).append(EpochPartition(partition, leader_epoch, epoch))
    return OffsetForLeaderEpochRequest(
        tuple(EpochTopic(topic, tuple(parts)) for topic, parts in topics.items())
    )


def offset_at(replica_id: int, topic_partition: TopicPartition, time: int) -> ListOffsetsRequest:
    """The log's end (LATEST) or start (EARLIEST) on its leader."""
    part = ListOffsetsPartition(topic_partition.partition, UNKNOWN, time)
    return ListOffsetsRequest(
        replica_id, READ_UNCOMMITTED, (ListOffsetsTopic(topic_partition.topic, (part,)),)
    )


def told_offset(response: ListOffsetsResponse) -> int:
    """The one offset that was asked for. Raises BrokerError where the leader does not give it."""
    part = response.topics[0].partitions[0]
    if part.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode.of(part.error_code), "the leader does not tell its offsets")
    return part.offset
