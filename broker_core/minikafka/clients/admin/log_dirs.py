"""The data directories of brokers, the sizes of their logs (``kafka-log-dirs``), and moves between them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from minikafka.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """One log in a data directory."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    """Messages between its end and the high watermark; of a future log, and the end of the current log."""
    is_future: bool
    """True while it is being moved to this directory."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """One data directory of a broker."""

    broker_id: int
    path: str
    error: BrokerError | None
    """KAFKA_STORAGE_ERROR: the directory is offline."""
    replicas: tuple[LogDirReplica, ...]
    total_bytes: int | None = None
    """The size of its disk; None: unknown, as with brokers before 3.3."""
    usable_bytes: int | None = None
    """The free bytes on its disk."""


@dataclass(frozen=True, slots=True)
class OfflineLogDir:
    """A data directory that is offline, or that has offline logs."""

    broker_id: int
    path: str


def offline_log_dirs(
    cluster: ClusterClient, brokers: Iterable[int], deadline: Deadline
) -> tuple[OfflineLogDir, ...]:
    """Return the offline directories of ``brokers``, in order.

    A broker before 1.0, or one that denies the request, counts as having none.
    """
    found, wanted = [], list(brokers)
    for position, broker_id in enumerate(wanted):
        share = len(wanted) - position  # a broker that hangs leaves the others their time
        with contextlib.suppress(MinikafkaError):
            response = cluster.call(
                broker_id,
                DESCRIBE_LOG_DIRS,
                DescribeLogDirsRequest(topics=()),
                timeout_ms=max(1, deadline.remaining_ms() // share),
            )
            bad = [result.log_dir for result in response.results if result.error_code != ErrorCode.NONE]
            found += [OfflineLogDir(broker_id, path) for path in sorted(bad)]
    return tuple(found)


def describe_log_dirs(
    cluster: ClusterClient,
    brokers: Iterable[int],
    deadline: Deadline,
    partitions: Iterable[TopicPartition] | None = None,
) -> list[LogDir]:
    """Return all data directories of ``brokers``, with the logs of ``partitions`` (None: all), in order.

    Raises BrokerError: UNSUPPORTED_VERSION before Kafka 1.0, CLUSTER_AUTHORIZATION_FAILED without Describe on
    the cluster.
    """
    request = DescribeLogDirsRequest(topics=None)
    if partitions is not None:
        named = numbers_by_topic(partitions).items()
        request = DescribeLogDirsRequest(
            tuple(DescribableLogDirTopic(name, tuple(numbers)) for name, numbers in named)
        )
    return [
        _log_dir(broker_id, result)
        for broker_id in brokers
        for result in sorted(
            _results_of(cluster, broker_id, request, deadline), key=lambda result: result.log_dir
        )
    ]


def alter_replica_log_dirs(
    cluster: ClusterClient, broker_id: int, paths: Mapping[TopicPartition, str], deadline: Deadline
) -> dict[TopicPartition, BrokerError | None]:
    """Begin to move logs of a broker to data directories, each given by its absolute path; return the error
    of each, or None. The directory in which a log is drops its move.
    """
    dirs = tuple(
        AlterReplicaLogDir(path, (AlterReplicaLogDirTopic(key.topic, (key.partition,)),))
        for key, path in sorted(paths.items())
    )
    response = cluster.call(
        broker_id,
        ALTER_REPLICA_LOG_DIRS,
        AlterReplicaLogDirsRequest(dirs),
        timeout_ms=deadline.remaining_ms(),
    )
    codes = {
        TopicPartition(topic.topic_name, row.partition_index): ErrorCode.of(row.error_code)
        for topic in response.results
        for row in topic.partitions
    }

    def error_of(key: TopicPartition, path: str) -> BrokerError | None:
        code = codes.get(key)
        if code is None:
            return BrokerError(ErrorCode.UNKNOWN, f"broker {broker_id} returned no result")
        return None if code is ErrorCode.NONE else BrokerError(code, f"{key} to {path}")

    return {key: error_of(key, path) for key, path in paths.items()}


def _results_of(
    cluster: ClusterClient, broker_id: int, request: DescribeLogDirsRequest, deadline: Deadline
) -> tuple[DescribeLogDirsResult, ...]:
    response = cluster.call(broker_id, DESCRIBE_LOG_DIRS, request, timeout_ms=deadline.remaining_ms())
    # Every broker has a directory: before version 3 an empty response means denied.
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    code = ErrorCode.of(response.error_code) if response.error_code or response.results else denied
    if code is denied:
        raise BrokerError(
            code, f"broker {broker_id} returned no data directories: this needs Describe on the cluster"
        )
    if code is not ErrorCode.NONE:
        raise BrokerError(code, f"broker {broker_id} returned no data directories")
    return response.results


def _log_dir(broker_id: int, result: DescribeLogDirsResult) -> LogDir:
    code = ErrorCode.of(result.error_code)
    return LogDir(
        broker_id,
        result.log_dir,
        None if code is ErrorCode.NONE else BrokerError(code, result.log_dir),
        tuple(
            sorted(
                (
                    LogDirReplica(
                        TopicPartition(topic.name, row.partition_index),
                        row.partition_size,
                        row.offset_lag,
                        row.is_future_key,
                    )
                    for topic in result.topics
                    for row in topic.partitions
                ),
                key=lambda replica: (replica.topic_partition, replica.is_future),
            )
        ),
        None if result.total_bytes < 0 else result.total_bytes,
        None if result.usable_bytes < 0 else result.usable_bytes,
    )
