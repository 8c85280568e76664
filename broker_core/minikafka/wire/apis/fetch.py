"""Fetch: read message sets of partitions from given offsets; also how followers copy from their leader.

Versions 0 and 1 carry messages of magic 0 only, so that newer ones are converted down. Version 1: the
response tells the throttle time. Version 2: magic 1. Version 3: a limit for the whole response; the order
of the partitions counts, as the first of them that has data gets at least one message whatever its size.
The last message of ``records`` may be cut off by the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.wire.api import Api
from minikafka.wire.keys import ApiKey
from minikafka.wire.parts import Part
from minikafka.wire.schema import INT16, INT32, INT64, NULLABLE_RECORDS, STRING, ArrayOf, Struct, field

NO_LIMIT = 0x7FFFFFFF
"""``max_bytes`` of the versions that do not send one."""


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """From where to read one partition, and at most how much."""

    index: int
    fetch_offset: int
    partition_max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[FetchPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Waits up to ``max_wait_ms`` for ``min_bytes``. ``replica_id`` is -1 for consumers."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    topics: tuple[FetchTopic, ...]


@dataclass(frozen=True, slots=True)
class FetchPartitionResponse:
    """Messages of one partition. Decoded, ``records`` is a view of the response, None where it has null."""

    index: int
    error_code: int
    high_watermark: int
    records: Part | None


@dataclass(frozen=True, slots=True)
class FetchTopicResponse:
    """The partitions of one topic."""

    name: str
    partitions: tuple[FetchPartitionResponse, ...]


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The answer, in the order of the request."""

    throttle_time_ms: int
    topics: tuple[FetchTopicResponse, ...]


FETCH = Api(
    ApiKey.FETCH,
    "Fetch",
    0,
    3,
    request=Struct(
        FetchRequest,
        field("replica_id", INT32, "-1 for a consumer, the broker id of a follower"),
        field("max_wait_ms", INT32),
        field("min_bytes", INT32),
        field("max_bytes", INT32, "limit of the whole response", since=3, default=NO_LIMIT),
        field(
            "topics",
            ArrayOf(
                Struct(
                    FetchTopic,
                    field("name", STRING),
                    field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                FetchPartition,
                                field("index", INT32),
                                field("fetch_offset", INT64),
                                field("partition_max_bytes", INT32),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
    response=Struct(
        FetchResponse,
        field("throttle_time_ms", INT32, since=1, default=0),
        field(
            "topics",
            ArrayOf(
                Struct(
                    FetchTopicResponse,
                    field("name", STRING),
                    field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                FetchPartitionResponse,
                                field("index", INT32),
                                field("error_code", INT16),
                                field("high_watermark", INT64, "-1 with an error"),
                                field("records", NULLABLE_RECORDS),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)
