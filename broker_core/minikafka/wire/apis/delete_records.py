"""DeleteRecords: advance the log start offset of partitions. All versions are the same."""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64

HIGH_WATERMARK = -1
"""The ``offset`` that requests the deletion of everything below the high watermark."""


@fast_value
class DeleteRecordsPartition:
    """A partition, and the first offset in it that is kept."""

    index: Int32
    offset: Annotated[Int64, "the first that is kept; -1: the high watermark"]


@fast_value
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@fast_value
class DeleteRecordsRequest:
    """A request to delete records."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: Annotated[Int32, "the time to wait for the replicas"]


@fast_value
class DeleteRecordsPartitionResult:
    """The result for one partition. ``low_watermark``: the smallest log start offset of the replicas."""

    index: Int32
    low_watermark: Annotated[Int64, "-1 with an error"]
    error_code: Int16


@fast_value
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@fast_value
class DeleteRecordsResponse:
    """The results, by topic."""

    throttle_time_ms: Int32
    topics: tuple[DeleteRecordsTopicResult, ...]


DELETE_RECORDS = Api(
    ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, DeleteRecordsRequest, DeleteRecordsResponse
)
