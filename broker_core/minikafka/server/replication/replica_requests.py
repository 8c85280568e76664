"""The requests that a follower sends to a leader, and the parsing of their responses."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.log.log import Log
from minikafka.server.config.replication import ReplicationConfig
from minikafka.server.inter_broker_connection import Peer
from minikafka.wire.apis.fetch import (
    FETCH,
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    consumer_partition,
    consumer_request,
)
from minikafka.wire.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse, offsets_request
from minikafka.wire.fetch_session_handler import FetchSessionHandler


def fetch_version(peer: Peer) -> int:
    """Return the version in which to fetch from a broker: by names, as a broker learns the id of a topic only
    after it has begun to follow its partitions.
    """
    return min(peer.version(FETCH), TOPIC_IDS_SINCE - 1)


def fetch_parts(
    wanted: Iterable[tuple[TopicPartition, int, Log]], config: ReplicationConfig
) -> dict[TopicPartition, FetchPartition]:
    """Return the fetch positions at the ends of these logs, in order, each with its leader epoch."""
    most = config.fetch_max_bytes
    return {
        name: FetchPartition(name.partition, leader_epoch, log.end_offset, log.start_offset, most)
        for name, leader_epoch, log in wanted
    }


def fetch_in_session(
    session: FetchSessionHandler,
    replica_id: int,
    parts: dict[TopicPartition, FetchPartition],
    config: ReplicationConfig,
) -> FetchRequest:
    """Return the next fetch of exactly these partitions."""
    return session.request(
        parts,
        replica_id=replica_id,
        max_wait_ms=config.fetch_wait_max_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_response_max_bytes,
    )


def one_entry(topic_partition: TopicPartition, leader_epoch: int, offset: int) -> FetchRequest:
    """Return a consumer fetch of the entry that holds an offset; it does not change the follower's state."""
    part = consumer_partition(topic_partition.partition, offset, 1, leader_epoch)
    return consumer_request({topic_partition: part}, max_bytes=1)


def entry_in(response: FetchResponse) -> FetchPartitionResponse:
    """Return the partition of the response to ``one_entry``."""
    return response.topics[0].partitions[0]


def offset_at(replica_id: int, topic_partition: TopicPartition, time: int) -> ListOffsetsRequest:
    """Return the request for the leader's log end offset (LATEST) or log start offset (EARLIEST)."""
    return offsets_request({topic_partition: time}, replica_id=replica_id)


def offset_in(response: ListOffsetsResponse) -> int:
    """Return the offset that was requested. Raises BrokerError if the leader returned an error."""
    part = response.topics[0].partitions[0]
    if part.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode.of(part.error_code), "the leader returned no offset")
    return part.offset
