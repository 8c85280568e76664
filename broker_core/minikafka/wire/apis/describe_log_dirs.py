"""DescribeLogDirs: the data directories of a broker, and the logs in them.

Version 3: the error of the request; 4: the size of the disks. Versions 1 and 2 have no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since


@fast_value
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: str
    partitions: tuple[Int32, ...]


@fast_value
class DescribeLogDirsRequest:
    """The partitions to describe."""

    topics: Annotated[tuple[DescribableLogDirTopic, ...] | None, "null: all"]


@fast_value
class DescribeLogDirsPartition:
    """A log."""

    partition_index: Int32
    partition_size: Annotated[Int64, "bytes"]
    offset_lag: Annotated[Int64, "messages"]
    is_future_key: Annotated[bool, "moving to this directory"]


@fast_value
class DescribeLogDirsTopic:
    """The logs of one topic."""

    name: str
    partitions: tuple[DescribeLogDirsPartition, ...]


@fast_value
class DescribeLogDirsResult:
    """A data directory."""

    error_code: Int16
    log_dir: Annotated[str, "absolute path"]
    topics: tuple[DescribeLogDirsTopic, ...]
    total_bytes: Annotated[Int64, since(4), "of the disk; -1: unknown"] = -1
    usable_bytes: Annotated[Int64, since(4), "free on the disk; -1: unknown"] = -1


@fast_value
class DescribeLogDirsResponse:
    """The data directories; empty ``results`` if the client is not authorized to describe the cluster, which
    ``error_code`` says too.
    """

    throttle_time_ms: Int32
    error_code: Annotated[Int16, since(3)] = field(default=0, kw_only=True)
    results: tuple[DescribeLogDirsResult, ...]


DESCRIBE_LOG_DIRS = Api(
    ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 0, 4, DescribeLogDirsRequest, DescribeLogDirsResponse
)
