"""OffsetCommit: store the offsets that a group has consumed.

Version 0 stores in ZooKeeper, later ones in the offsets topic. Version 1: generation and member, and a
timestamp for each partition; 2 to 4: a retention time for all of them instead; 3: throttle_time_ms; 6: the
leader epoch of the last record that was read.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, INT64, NULLABLE_STRING, STRING, Struct, by_topic, field

NO_GENERATION = -1
"""The generation of a consumer that assigns its partitions itself."""
DEFAULT_RETENTION = -1
"""``retention_time_ms`` or ``commit_timestamp`` for the broker's default."""


@fast_value
class OffsetCommitRequestPartition:
    """The next offset to read. ``commit_timestamp`` is in ms."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    commit_timestamp: int
    committed_metadata: str | None


@fast_value
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetCommitRequestPartition, ...]


@fast_value
class OffsetCommitRequest:
    """The offsets to commit. ``generation_id`` is -1 and ``member_id`` empty for a consumer that assigns its
    partitions itself.
    """

    group_id: str
    generation_id: int
    member_id: str
    retention_time_ms: int
    topics: tuple[OffsetCommitRequestTopic, ...]


@fast_value
class OffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: int
    error_code: int


@fast_value
class OffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


@fast_value
class OffsetCommitResponse:
    """The results, in the order of the request."""

    throttle_time_ms: int
    topics: tuple[OffsetCommitResponseTopic, ...]


OFFSET_COMMIT = Api(
    ApiKey.OFFSET_COMMIT,
    "OffsetCommit",
    0,
    6,
    request=Struct(
        OffsetCommitRequest,
        field("group_id", STRING),
        field("generation_id", INT32, "-1 without group management", since=1, default=NO_GENERATION),
        field("member_id", STRING, since=1, default=""),
        field(
            "retention_time_ms",
            INT64,
            "-1: the broker's default",
            since=2,
            until=4,
            default=DEFAULT_RETENTION,
        ),
        by_topic(
            OffsetCommitRequestTopic,
            OffsetCommitRequestPartition,
            field("partition_index", INT32),
            field("committed_offset", INT64, "of the next record to read"),
            field("committed_leader_epoch", INT32, "-1: unknown", since=6, default=-1),
            field(
                "commit_timestamp",
                INT64,
                "ms; -1: the time of arrival",
                since=1,
                until=1,
                default=DEFAULT_RETENTION,
            ),
            field("committed_metadata", NULLABLE_STRING),
        ),
    ),
    response=Struct(
        OffsetCommitResponse,
        field("throttle_time_ms", INT32, since=3, default=0),
        by_topic(
            OffsetCommitResponseTopic,
            OffsetCommitResponsePartition,
            field("partition_index", INT32),
            field("error_code", INT16),
        ),
    ),
)
