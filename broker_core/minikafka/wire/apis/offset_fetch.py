"""OffsetFetch: the committed offsets of a group.

Version 0 reads from ZooKeeper, later ones from the offsets topic. Version 2: null requests all partitions
with a committed offset, and the response has an error for the group; 3: throttle_time_ms; 5: leader epochs.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import (
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    ArrayOf,
    Struct,
    by_topic,
    field,
)

NO_OFFSET = -1
"""``committed_offset`` of a partition without a committed offset."""


@fast_value
class OffsetFetchRequestTopic:
    """The partitions of one topic."""

    name: str
    partition_indexes: tuple[int, ...]


@fast_value
class OffsetFetchRequest:
    """The partitions to look up. ``topics`` None: all with a committed offset (version 2 and later)."""

    group_id: str
    topics: tuple[OffsetFetchRequestTopic, ...] | None


@fast_value
class OffsetFetchResponsePartition:
    """The next offset to read; -1 and an empty ``metadata`` if the group has committed none."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


@fast_value
class OffsetFetchResponseTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


@fast_value
class OffsetFetchResponse:
    """The committed offsets. ``error_code`` is that of the group; versions without it have it at each
    partition.
    """

    throttle_time_ms: int
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: int


OFFSET_FETCH = Api(
    ApiKey.OFFSET_FETCH,
    "OffsetFetch",
    0,
    5,
    request=Struct(
        OffsetFetchRequest,
        field("group_id", STRING),
        *(
            field(
                "topics",
                ArrayOf(
                    Struct(
                        OffsetFetchRequestTopic,
                        field("name", STRING),
                        field("partition_indexes", ArrayOf(INT32)),
                    ),
                    nullable=nullable,
                ),
                "null: all" if nullable else "",
                since=since,
                until=until,
            )
            for nullable, since, until in ((False, 0, 1), (True, 2, None))
        ),
    ),
    response=Struct(
        OffsetFetchResponse,
        field("throttle_time_ms", INT32, since=3, default=0),
        by_topic(
            OffsetFetchResponseTopic,
            OffsetFetchResponsePartition,
            field("partition_index", INT32),
            field("committed_offset", INT64, "-1: none"),
            field("committed_leader_epoch", INT32, "-1: unknown", since=5, default=-1),
            field("metadata", NULLABLE_STRING),
            field("error_code", INT16),
        ),
        field("error_code", INT16, "of the whole group", since=2, default=0),
    ),
)
