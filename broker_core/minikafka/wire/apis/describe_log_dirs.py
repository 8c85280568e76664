"""DescribeLogDirs: the data directories of a broker, and the logs in them.

Both versions are the same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    ArrayOf,
    Struct,
    array,
    by_topic,
    field,
)


@fast_value
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: str
    partitions: tuple[int, ...]


@fast_value
class DescribeLogDirsRequest:
    """The partitions to describe. ``topics`` None: all partitions."""

    topics: tuple[DescribableLogDirTopic, ...] | None


@fast_value
class DescribeLogDirsPartition:
    """A log. ``partition_size`` is in bytes; ``offset_lag`` is its lag in messages."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


@fast_value
class DescribeLogDirsTopic:
    """The logs of one topic."""

    name: str
    partitions: tuple[DescribeLogDirsPartition, ...]


@fast_value
class DescribeLogDirsResult:
    """A data directory."""

    error_code: int
    log_dir: str
    topics: tuple[DescribeLogDirsTopic, ...]


@fast_value
class DescribeLogDirsResponse:
    """The data directories; empty ``results`` if the client is not authorized to describe the cluster."""

    throttle_time_ms: int
    results: tuple[DescribeLogDirsResult, ...]


DESCRIBE_LOG_DIRS = Api(
    ApiKey.DESCRIBE_LOG_DIRS,
    "DescribeLogDirs",
    0,
    1,
    request=Struct(
        DescribeLogDirsRequest,
        field(
            "topics",
            ArrayOf(
                Struct(DescribableLogDirTopic, field("topic", STRING), field("partitions", ArrayOf(INT32))),
                nullable=True,
            ),
            "null: all",
        ),
    ),
    response=Struct(
        DescribeLogDirsResponse,
        field("throttle_time_ms", INT32),
        array(
            "results",
            DescribeLogDirsResult,
            field("error_code", INT16),
            field("log_dir", STRING, "absolute path"),
            by_topic(
                DescribeLogDirsTopic,
                DescribeLogDirsPartition,
                field("partition_index", INT32),
                field("partition_size", INT64, "bytes"),
                field("offset_lag", INT64, "messages"),
                field("is_future_key", BOOLEAN, "moving to this directory"),
            ),
        ),
    ),
)
