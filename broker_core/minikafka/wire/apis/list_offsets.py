"""ListOffsets: offsets of a partition by time.

Version 0 returns offsets of segments that were last written before a time, newest first. Version 1 returns
the first offset whose message has that time or a later one. In all versions, time -1 is the log's end and -2
its start. Version 2 adds the isolation level and throttle_time_ms, version 4 leader epochs; version 3 is the
same as 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minikafka.base.ids import TopicPartition, rows_by_topic
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT8, INT16, INT32, INT64, ArrayOf, Struct, by_topic, field

LATEST = -1
"""The ``timestamp`` that requests the end of the log."""
EARLIEST = -2
"""The ``timestamp`` that requests the start of the log."""


@fast_value
class ListOffsetsPartition:
    """The timestamp to look up in one partition, in ms since the epoch."""

    index: int
    current_leader_epoch: int
    timestamp: int
    max_num_offsets: int = 1


@fast_value
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


@fast_value
class ListOffsetsRequest:
    """The timestamps to look up. ``replica_id`` is -1 for consumers; ``isolation_level`` is as in Fetch."""

    replica_id: int
    isolation_level: int
    topics: tuple[ListOffsetsTopic, ...]


@fast_value
class ListOffsetsPartitionResponse:
    """The result for one partition: ``offsets`` in version 0, ``timestamp`` and ``offset`` in later ones (-1
    and -1 for none).
    """

    index: int
    error_code: int
    offsets: tuple[int, ...] = ()
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@fast_value
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]


@fast_value
class ListOffsetsResponse:
    """The offsets, by topic."""

    throttle_time_ms: int
    topics: tuple[ListOffsetsTopicResponse, ...]


LIST_OFFSETS = Api(
    ApiKey.LIST_OFFSETS,
    "ListOffsets",
    0,
    4,
    request=Struct(
        ListOffsetsRequest,
        field("replica_id", INT32, "-1 for a consumer"),
        field("isolation_level", INT8, "0 all, 1 committed", since=2, default=0),
        by_topic(
            ListOffsetsTopic,
            ListOffsetsPartition,
            field("index", INT32),
            field("current_leader_epoch", INT32, "-1: unknown", since=4, default=-1),
            field("timestamp", INT64, "ms; -1 the end, -2 the start"),
            field("max_num_offsets", INT32, until=0, default=1),
        ),
    ),
    response=Struct(
        ListOffsetsResponse,
        field("throttle_time_ms", INT32, since=2, default=0),
        by_topic(
            ListOffsetsTopicResponse,
            ListOffsetsPartitionResponse,
            field("index", INT32),
            field("error_code", INT16),
            field("offsets", ArrayOf(INT64), "newest first", until=0, default=()),
            field("timestamp", INT64, "-1: none, or not requested", since=1, default=-1),
            field("offset", INT64, "-1: none", since=1, default=-1),
            field("leader_epoch", INT32, "-1: unknown", since=4, default=-1),
        ),
    ),
)


def offsets_request(
    timestamps: Mapping[TopicPartition, int],
    leader_epoch: Callable[[TopicPartition], int] = lambda _: -1,
    *,
    replica_id: int = -1,
    isolation_level: int = 0,
    max_num_offsets: int = 1,
) -> ListOffsetsRequest:
    """Return a request for the offsets at ``timestamps``. ``leader_epoch``: the one that the client knows."""
    topics = rows_by_topic(
        (tp, ListOffsetsPartition(tp.partition, leader_epoch(tp), timestamp, max_num_offsets))
        for tp, timestamp in timestamps.items()
    )
    rows = tuple(ListOffsetsTopic(topic, tuple(found)) for topic, found in topics.items())
    return ListOffsetsRequest(replica_id, isolation_level, rows)


def found_offset(partition: ListOffsetsPartitionResponse, version: int) -> int | None:
    """Return the newest offset in a response of ``version``; None for none."""
    if version == 0:
        return partition.offsets[0] if partition.offsets else None
    return partition.offset if partition.offset >= 0 else None
