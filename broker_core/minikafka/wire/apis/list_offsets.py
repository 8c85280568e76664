"""ListOffsets: offsets of a partition by time.

Version 0 returns offsets of segments that were last written before a time, newest first. Version 1 returns
the first offset whose message has that time or a later one. In all versions, time -1 is the log's end and -2
its start. Version 2 adds the isolation level and throttle_time_ms, version 4 leader epochs, version 7 time -3
(the record with the largest timestamp), version 8 time -4 (the start of what is on the broker's disks), and
version 9 time -5 (the end of what is in tiered storage). Versions 3, 5 and 6 have no new fields.
"""

from collections.abc import Callable, Mapping
from typing import Annotated

from minikafka.base.ids import TopicPartition, rows_by_topic
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32, Int64, since, until

LATEST = -1
"""The ``timestamp`` that requests the end of the log."""
EARLIEST = -2
"""The ``timestamp`` that requests the start of the log."""
MAX_TIMESTAMP = -3
"""The ``timestamp`` that requests the message with the largest timestamp."""
EARLIEST_LOCAL = -4
"""The ``timestamp`` that requests the start of what is on the broker's disks."""
LATEST_TIERED = -5
"""The ``timestamp`` that requests the end of what is in tiered storage."""
TIMES_SINCE: Mapping[int, int] = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}
"""Negative ``timestamp`` -> the first version that has it."""


@fast_value
class ListOffsetsPartition:
    """The timestamp to look up in one partition, in ms since the epoch."""

    index: Int32
    current_leader_epoch: Annotated[Int32, since(4, default=-1), "-1: unknown"]
    timestamp: Annotated[Int64, "ms; -1 the end, -2 the start, -3 the largest timestamp"]
    max_num_offsets: Annotated[Int32, until(0)] = 1


@fast_value
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


@fast_value
class ListOffsetsRequest:
    """The timestamps to look up. ``replica_id`` is -1 for consumers; ``isolation_level`` is as in Fetch."""

    replica_id: Annotated[Int32, "-1 for a consumer"]
    isolation_level: Annotated[Int8, since(2, default=0), "0 all, 1 committed"]
    topics: tuple[ListOffsetsTopic, ...]


@fast_value
class ListOffsetsPartitionResponse:
    """The result for one partition: ``offsets`` in version 0, ``timestamp`` and ``offset`` in later ones (-1
    and -1 for none).
    """

    index: Int32
    error_code: Int16
    offsets: Annotated[tuple[Int64, ...], until(0), "newest first"] = ()
    timestamp: Annotated[Int64, since(1), "-1: none, or not requested"] = -1
    offset: Annotated[Int64, since(1), "-1: none"] = -1
    leader_epoch: Annotated[Int32, since(4), "-1: unknown"] = -1


@fast_value
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]


@fast_value
class ListOffsetsResponse:
    """The offsets, by topic."""

    throttle_time_ms: Annotated[Int32, since(2, default=0)]
    topics: tuple[ListOffsetsTopicResponse, ...]


LIST_OFFSETS = Api(ApiKey.LIST_OFFSETS, "ListOffsets", 0, 9, ListOffsetsRequest, ListOffsetsResponse)


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
