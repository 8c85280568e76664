"""OffsetForLeaderEpoch: the end offset of a leader epoch in a partition.

Followers use it to truncate their logs after a change of leaders, and consumers to detect that records they
have read were truncated. Version 1: the response has the epoch that the end offset belongs to. Version 2: the
leader epoch that the client knows, and throttle_time_ms. Version 3: the follower that asks. Version 4 has no
new fields.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from minikafka.base.ids import TopicPartition, rows_by_topic
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since

CONSUMER = -1
"""``replica_id`` of a consumer."""
UNKNOWN_REPLICA = -2
"""``replica_id`` before version 3."""
FOR_CONSUMERS_SINCE = 2
"""The first version whose leader checks the leader epoch that the client knows."""


@fast_value
class EpochPartition:
    """The epoch to look up in one partition."""

    index: Int32
    current_leader_epoch: Annotated[Int32, since(2, default=-1), "-1: unknown"]
    leader_epoch: Annotated[Int32, "the epoch to look up"]


@fast_value
class EpochTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[EpochPartition, ...]


@fast_value
class OffsetForLeaderEpochRequest:
    """The epochs to look up, by topic."""

    replica_id: Annotated[Int32, since(3), "-1 for a consumer, -2 unknown"] = field(
        default=UNKNOWN_REPLICA, kw_only=True
    )
    topics: tuple[EpochTopic, ...]


@fast_value
class EpochPartitionResponse:
    """The largest epoch up to the requested one, and its end offset; -1 and -1 if none is known."""

    error_code: Int16
    index: Int32
    leader_epoch: Annotated[Int32, since(1, default=-1), "-1: unknown"]
    end_offset: Annotated[Int64, "-1: unknown"]


@fast_value
class EpochTopicResponse:
    """The partitions of one topic."""

    name: str
    partitions: tuple[EpochPartitionResponse, ...]


@fast_value
class OffsetForLeaderEpochResponse:
    """The end offsets, by topic."""

    throttle_time_ms: Annotated[Int32, since(2, default=0)]
    topics: tuple[EpochTopicResponse, ...]


OFFSET_FOR_LEADER_EPOCH = Api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    "OffsetForLeaderEpoch",
    0,
    4,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)


def epochs_request(
    partitions: Mapping[TopicPartition, EpochPartition], replica_id: int = CONSUMER
) -> OffsetForLeaderEpochRequest:
    """Return a request for ``partitions``. ``replica_id``: that of the follower that sends it."""
    topics = rows_by_topic(partitions.items())
    rows = tuple(EpochTopic(topic, tuple(rows)) for topic, rows in topics.items())
    return OffsetForLeaderEpochRequest(rows, replica_id=replica_id)
