"""OffsetCommit: store the offsets that a group has consumed.

Version 0 stores in ZooKeeper, later ones in the offsets topic. Version 1: generation and member, and a
timestamp for each partition; 2 to 4: a retention time for all of them instead; 3: throttle_time_ms; 6: the
leader epoch of the last record that was read; 7: the instance id of a static member. Versions 5, 8 and 9 have
no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since

NO_GENERATION = -1
"""The generation of a consumer that assigns its partitions itself."""
DEFAULT_RETENTION = -1
"""``retention_time_ms`` or ``commit_timestamp`` for the broker's default."""


@fast_value
class OffsetCommitRequestPartition:
    """The next offset to read. ``commit_timestamp`` is in ms."""

    partition_index: Int32
    committed_offset: Annotated[Int64, "of the next record to read"]
    committed_leader_epoch: Annotated[Int32, since(6, default=-1), "-1: unknown"]
    commit_timestamp: Annotated[
        Int64, since(1, until=1, default=DEFAULT_RETENTION), "ms; -1: the time of arrival"
    ]
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
    generation_id: Annotated[Int32, since(1, default=NO_GENERATION), "-1 without group management"]
    member_id: Annotated[str, since(1, default="")]
    group_instance_id: Annotated[str | None, since(7), "of a static member"] = field(
        default=None, kw_only=True
    )
    retention_time_ms: Annotated[
        Int64, since(2, until=4, default=DEFAULT_RETENTION), "-1: the broker's default"
    ]
    topics: tuple[OffsetCommitRequestTopic, ...]


@fast_value
class OffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: Int32
    error_code: Int16


@fast_value
class OffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


@fast_value
class OffsetCommitResponse:
    """The results, in the order of the request."""

    throttle_time_ms: Annotated[Int32, since(3, default=0)]
    topics: tuple[OffsetCommitResponseTopic, ...]


OFFSET_COMMIT = Api(ApiKey.OFFSET_COMMIT, "OffsetCommit", 0, 9, OffsetCommitRequest, OffsetCommitResponse)
