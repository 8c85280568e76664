"""DeleteRecords: advance the log start offset of partitions. Both versions are the same."""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, INT64, Struct, by_topic, field

HIGH_WATERMARK = -1
"""The ``offset`` that requests the deletion of everything below the high watermark."""


@fast_value
class DeleteRecordsPartition:
    """A partition, and the first offset in it that is kept."""

    index: int
    offset: int


@fast_value
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@fast_value
class DeleteRecordsRequest:
    """A request to delete records. ``timeout_ms``: the time to wait for the replicas."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: int


@fast_value
class DeleteRecordsPartitionResult:
    """The result for one partition. ``low_watermark``: the smallest log start offset of the replicas."""

    index: int
    low_watermark: int
    error_code: int


@fast_value
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@fast_value
class DeleteRecordsResponse:
    """The results, by topic."""

    throttle_time_ms: int
    topics: tuple[DeleteRecordsTopicResult, ...]


DELETE_RECORDS = Api(
    ApiKey.DELETE_RECORDS,
    "DeleteRecords",
    0,
    1,
    request=Struct(
        DeleteRecordsRequest,
        by_topic(
            DeleteRecordsTopic,
            DeleteRecordsPartition,
            field("index", INT32),
            field("offset", INT64, "the first that is kept; -1: the high watermark"),
        ),
        field("timeout_ms", INT32, "the time to wait for the replicas"),
    ),
    response=Struct(
        DeleteRecordsResponse,
        field("throttle_time_ms", INT32),
        by_topic(
            DeleteRecordsTopicResult,
            DeleteRecordsPartitionResult,
            field("index", INT32),
            field("low_watermark", INT64, "-1 with an error"),
            field("error_code", INT16),
        ),
    ),
)
