"""AlterReplicaLogDirs: move replicas between the data directories of a broker (KIP-113).

Versions 1 and 2 have no new fields.
"""

from collections.abc import Mapping
from typing import Annotated

from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32


@fast_value
class AlterReplicaLogDirTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[Int32, ...]


@fast_value
class AlterReplicaLogDir:
    """A data directory, and the partitions that move to it."""

    path: Annotated[str, "absolute path"]
    topics: tuple[AlterReplicaLogDirTopic, ...]


@fast_value
class AlterReplicaLogDirsRequest:
    """The data directories that get replicas."""

    dirs: tuple[AlterReplicaLogDir, ...]


@fast_value
class AlterReplicaLogDirPartitionResult:
    """The result for one partition: the move has begun."""

    partition_index: Int32
    error_code: Int16


@fast_value
class AlterReplicaLogDirTopicResult:
    """The results for the partitions of one topic."""

    topic_name: str
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]


@fast_value
class AlterReplicaLogDirsResponse:
    """The results for all topics."""

    throttle_time_ms: Int32
    results: tuple[AlterReplicaLogDirTopicResult, ...]


ALTER_REPLICA_LOG_DIRS = Api(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    "AlterReplicaLogDirs",
    0,
    2,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)


def log_dirs_of(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    """Return the data directory of each partition in a request: the last one that names it."""
    return {
        TopicPartition(topic.name, partition): log_dir.path
        for log_dir in request.dirs
        for topic in log_dir.topics
        for partition in topic.partitions
    }


def alter_log_dirs_response(codes: Mapping[TopicPartition, int]) -> AlterReplicaLogDirsResponse:
    """Return the response with the error code of each partition."""
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append(AlterReplicaLogDirPartitionResult(partition, code))
    return AlterReplicaLogDirsResponse(
        0, tuple(AlterReplicaLogDirTopicResult(name, tuple(rows)) for name, rows in topics.items())
    )
