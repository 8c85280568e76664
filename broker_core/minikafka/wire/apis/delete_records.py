"""DeleteRecords: make partitions start later. Both versions are the same."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.wire.api import Api
from minikafka.wire.keys import ApiKey
from minikafka.wire.schema import INT16, INT32, INT64, STRING, ArrayOf, Struct, field

HIGH_WATERMARK = -1
"""``offset`` that asks for everything that can be read."""


@dataclass(frozen=True, slots=True)
class DeleteRecordsPartition:
    """The first offset of one partition that is to stay."""

    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    """``timeout_ms``: how long to wait for the replicas."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class DeleteRecordsPartitionResult:
    """``low_watermark``: the smallest log start offset of the replicas."""

    index: int
    low_watermark: int
    error_code: int


@dataclass(frozen=True, slots=True)
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteRecordsResponse:
    """The answer."""

    throttle_time_ms: int
    topics: tuple[DeleteRecordsTopicResult, ...]


DELETE_RECORDS = Api(
    ApiKey.DELETE_RECORDS,
    "DeleteRecords",
    0,
    1,
    request=Struct(
        DeleteRecordsRequest,
        field(
            "topics",
            ArrayOf(
                Struct(
                    DeleteRecordsTopic,
                    field("name", STRING),
                    field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                DeleteRecordsPartition,
                                field("index", INT32),
                                field("offset", INT64, "the first that stays; -1: the high watermark"),
                            )
                        ),
                    ),
                )
            ),
        ),
        field("timeout_ms", INT32, "how long to wait for the replicas"),
    ),
    response=Struct(
        DeleteRecordsResponse,
        field("throttle_time_ms", INT32),
        field(
            "topics",
            ArrayOf(
                Struct(
                    DeleteRecordsTopicResult,
                    field("name", STRING),
                    field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                DeleteRecordsPartitionResult,
                                field("index", INT32),
                                field("low_watermark", INT64, "-1 with an error"),
                                field("error_code", INT16),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)
