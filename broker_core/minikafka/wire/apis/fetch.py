"""Fetch: read message sets of partitions from given offsets. Followers replicate with it too.

Versions 0 and 1 carry messages of magic 0 only, so newer ones are converted down. Version 1: throttle_time_ms
in the response. Version 2: magic 1. Version 3: a limit for the whole response; the order of the partitions
matters, as the first of them that has data gets at least one message whatever its size. Version 4: magic 2,
and the isolation level: a consumer that reads only committed records gets nothing at or above the last stable
offset, and a list of the aborted transactions. Version 5: log start offsets. Version 7: sessions, in which
only changes are sent; a session id of 0 in the response declines. Version 9: the leader epoch that the client
knows. Version 10: zstd. Version 11: the consumer's rack, and a replica that is better to read from. Version
12: the epoch of the last record, and where logs diverge. Version 13: topic ids instead of names. Version 15:
the follower's epoch. Version 16: the addresses of new leaders. Version 17: the follower's directory. Versions
6, 8 and 14 have no new fields. The limit may cut off the last message of ``records``.
"""

from collections.abc import Mapping
from dataclasses import field
from itertools import groupby
from typing import Annotated

from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint
from minikafka.wire.fields import ZERO_UUID, Int8, Int16, Int32, Int64, Records, Uuid, since, tagged, until
from minikafka.wire.framing import MAX_FRAME_BYTES

NO_LIMIT = 0x7FFFFFFF
"""``max_bytes`` in versions without this field."""
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""``isolation_level``."""
ISOLATION_SINCE = 4
"""The first version with ``isolation_level``."""
NO_REPLICA = -1
"""``preferred_read_replica`` of a partition that is read from its leader."""
NO_SESSION = 0
"""``session_id`` of a request without a session."""
NEW_SESSION_EPOCH = 0
"""``session_epoch`` of a request for a new session."""
FINAL_EPOCH = -1
"""``session_epoch`` of a request outside of any session, as all are before version 7."""
LAST_EPOCH = 0x7FFFFFFF
"""The largest ``session_epoch``; 1 follows it."""

LARGEST_MESSAGE_BYTES = 128 << 20
"""More than any broker accepts by default: a request has at most 100 MiB. A larger response is rejected,
unless the fetch itself requests that many bytes.
"""
_BESIDE_RECORDS_BYTES = 16 << 20
"""The limit of a response without its records."""
REPLICA_ID_UNTIL = 14
"""The last version that begins with the replica id; ``replica_state`` has it in newer ones."""
NAMES_UNTIL = 12
"""The last version in which topics have names."""
TOPIC_IDS_SINCE = 13
"""The first version in which topics have ids instead of names."""
NO_IDS: Mapping[str, bytes] = {}
"""The topic ids of a request by names."""
WHOLE_MESSAGE_SINCE = 3
"""The first version with ``max_bytes``, and with a complete first message whatever its size."""


@fast_value
class FetchPartition:
    """A partition to read: the start offset, and the maximum bytes."""

    index: Int32
    current_leader_epoch: Annotated[Int32, since(9, default=-1), "-1: unknown"]
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, since(12), "-1: unknown"] = field(default=-1, kw_only=True)
    log_start_offset: Annotated[Int64, since(5, default=-1), "of a follower"]
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, tagged(0, 17), "of a follower"] = ZERO_UUID


@fast_value
class FetchTopic:
    """The partitions of one topic."""

    name: Annotated[str, until(NAMES_UNTIL, default="")]
    topic_id: Annotated[Uuid, since(TOPIC_IDS_SINCE)] = field(default=ZERO_UUID, kw_only=True)
    partitions: tuple[FetchPartition, ...]


@fast_value
class ForgottenTopic:
    """Partitions that leave a session."""

    name: Annotated[str, until(NAMES_UNTIL, default="")]
    topic_id: Annotated[Uuid, since(TOPIC_IDS_SINCE)] = field(default=ZERO_UUID, kw_only=True)
    partitions: tuple[Int32, ...]


@fast_value
class ReplicaState:
    """The follower that fetches; -1 and -1 for a consumer."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@fast_value
class FetchRequest:
    """A request for messages that waits up to ``max_wait_ms`` for ``min_bytes``."""

    replica_id: Annotated[
        Int32, until(REPLICA_ID_UNTIL, default=-1), "-1 for a consumer, the broker id of a follower"
    ]
    """Of these versions only: ``follower_id`` is that of any version."""
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, since(3, default=NO_LIMIT), "limit of the whole response"]
    isolation_level: Annotated[Int8, since(4, default=READ_UNCOMMITTED), "0 all, 1 committed"]
    session_id: Annotated[Int32, since(7, default=NO_SESSION), "0: none"]
    session_epoch: Annotated[Int32, since(7, default=FINAL_EPOCH), "0: new session, -1: no session"]
    topics: tuple[FetchTopic, ...]
    forgotten_topics: Annotated[tuple[ForgottenTopic, ...], since(7), "that leave the session"] = ()
    rack_id: Annotated[str, since(11), "of the consumer"] = ""
    cluster_id: Annotated[str | None, tagged(0, 12), "null: not checked"] = None
    replica_state: Annotated[ReplicaState, tagged(1, 15)] = ReplicaState()

    @property
    def follower_id(self) -> int:
        """The id of the broker that fetches; -1 for a consumer."""
        return self.replica_state.replica_id if self.replica_id < 0 else self.replica_id


@fast_value
class AbortedTransaction:
    """An aborted transaction: the producer's batches from ``first_offset`` to its next marker are invalid."""

    producer_id: Int64
    first_offset: Int64


@fast_value
class EpochEndOffset:
    """The end of the newest epoch that the follower's log has too; -1 and -1 if the logs agree."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


NO_DIVERGENCE = EpochEndOffset()


@fast_value
class SnapshotId:
    """A snapshot to read first, which only KRaft controllers have."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


@fast_value
class FetchPartitionResponse:
    """Messages of one partition. Decoded, ``records`` is a view of the response; None if it is null there."""

    index: Int32
    error_code: Int16
    high_watermark: Annotated[Int64, "-1 with an error"]
    last_stable_offset: Annotated[Int64, since(4, default=-1), "-1 with an error"]
    log_start_offset: Annotated[Int64, since(5, default=-1), "-1 with an error"]
    aborted_transactions: Annotated[
        tuple[AbortedTransaction, ...] | None, since(4), "null for isolation level 0"
    ]
    preferred_read_replica: Annotated[Int32, since(11), "-1: none"] = field(default=NO_REPLICA, kw_only=True)
    records: Records | None
    diverging_epoch: Annotated[EpochEndOffset, tagged(0, 12)] = NO_DIVERGENCE
    current_leader: Annotated[LeaderIdAndEpoch, tagged(1, 12)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, tagged(2, 12)] = SnapshotId()


@fast_value
class FetchTopicResponse:
    """The partitions of one topic."""

    name: Annotated[str, until(NAMES_UNTIL, default="")]
    topic_id: Annotated[Uuid, since(TOPIC_IDS_SINCE)] = field(default=ZERO_UUID, kw_only=True)
    partitions: tuple[FetchPartitionResponse, ...]


@fast_value
class FetchResponse:
    """The messages, in the order of the request."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    error_code: Annotated[Int16, since(7, default=0), "of the session"]
    session_id: Annotated[Int32, since(7, default=NO_SESSION), "0: there is none"]
    topics: tuple[FetchTopicResponse, ...]
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], tagged(0, 16), "of the new leaders"] = ()


def response_bytes(version: int, request: FetchRequest) -> int:
    """Return the size limit of the response to ``request``: the requested bytes, or one larger message."""
    requested = sum(part.partition_max_bytes for topic in request.topics for part in topic.partitions)
    if version >= WHOLE_MESSAGE_SINCE:
        requested = max(min(requested, request.max_bytes), LARGEST_MESSAGE_BYTES)
    return min(requested + _BESIDE_RECORDS_BYTES, MAX_FRAME_BYTES)


FETCH = Api(ApiKey.FETCH, "Fetch", 0, 17, FetchRequest, FetchResponse, response_bytes=response_bytes)


def next_session_epoch(epoch: int) -> int:
    """Return the ``session_epoch`` of the request after that of ``epoch``."""
    return epoch % LAST_EPOCH + 1


def consumer_partition(partition: int, offset: int, max_bytes: int, leader_epoch: int = -1) -> FetchPartition:
    """Return the row of a consumer for one partition."""
    return FetchPartition(partition, leader_epoch, offset, -1, max_bytes)


def fetch_topics(
    partitions: Mapping[TopicPartition, FetchPartition], topic_ids: Mapping[str, bytes] = NO_IDS
) -> tuple[FetchTopic, ...]:
    """Return the rows of a request for ``partitions``, in their order: a topic is repeated if others are
    between its partitions. The broker fills its response in this order.
    """
    by_topic = groupby(partitions.items(), lambda row: row[0].topic)
    return tuple(
        FetchTopic(topic, tuple(part for _, part in rows), topic_id=topic_ids.get(topic, ZERO_UUID))
        for topic, rows in by_topic
    )


def consumer_request(
    partitions: Mapping[TopicPartition, FetchPartition],
    *,
    max_bytes: int,
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    isolation_level: int = READ_UNCOMMITTED,
    replica_id: int = -1,
    rack_id: str = "",
    topic_ids: Mapping[str, bytes] = NO_IDS,
) -> FetchRequest:
    """Return a request for ``partitions``, in their order and outside of any session.

    ``topic_ids``: of all their topics; without them the request can be sent up to version ``NAMES_UNTIL``.
    """
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=NO_SESSION,
        session_epoch=FINAL_EPOCH,
        topics=fetch_topics(partitions, topic_ids),
        rack_id=rack_id,
    )
