"""OffsetForLeaderEpoch: the end offset of a leader epoch in a partition.

Followers cut their logs by it after a change of leaders, and consumers find out whether what they read was
cut. Version 1: the response names the epoch that the offset is of. Version 2: the leader epoch that the
client knows, and the throttle_time_ms.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, INT64, STRING, ArrayOf, Struct, field


@fast_value
class EpochPartition:
    """The epoch to look up in one partition."""

    index: int
    current_leader_epoch: int
    leader_epoch: int


@fast_value
class EpochTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[EpochPartition, ...]


@fast_value
class OffsetForLeaderEpochRequest:
    """The question."""

    topics: tuple[EpochTopic, ...]


@fast_value
class EpochPartitionResponse:
    """The largest epoch up to the one that was asked for, and where it ends; -1 and -1 when none is known."""

    error_code: int
    index: int
    leader_epoch: int
    end_offset: int


@fast_value
class EpochTopicResponse:
    """The partitions of one topic."""

    name: str
    partitions: tuple[EpochPartitionResponse, ...]


@fast_value
class OffsetForLeaderEpochResponse:
    """The answer."""

    throttle_time_ms: int
    topics: tuple[EpochTopicResponse, ...]


OFFSET_FOR_LEADER_EPOCH = Api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    "OffsetForLeaderEpoch",
    0,
    2,
    request=Struct(
        OffsetForLeaderEpochRequest,
        field(
            "topics",
            ArrayOf(
                Struct(
                    EpochTopic,
                    field("name", STRING),
                    field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                EpochPartition,
                                field("index", INT32),
                                field("current_leader_epoch", INT32, "-1: unknown", since=2, default=-1),
                                field("leader_epoch", INT32, "whose end is asked for"),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
    response=Struct(
        OffsetForLeaderEpochResponse,
        field("throttle_time_ms", INT32, since=2, default=0),
        field(
            "topics",
            ArrayOf(
                Struct(
                    EpochTopicResponse,
                    field("name", STRING),
                    field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                EpochPartitionResponse,
                                field("error_code", INT16),
                                field("index", INT32),
                                field("leader_epoch", INT32, "-1: unknown", since=1, default=-1),
                                field("end_offset", INT64, "-1: unknown"),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)
