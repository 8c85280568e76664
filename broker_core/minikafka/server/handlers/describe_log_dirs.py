"""DescribeLogDirs: the data directories of this broker, with the size of each log.

Version 3 adds the error of a request that is not authorized, 4 the size of the disk of each directory. As
``ReplicaManager.describeLogDirs`` of 2.1: every directory is listed, also one without any of the requested
partitions; an offline directory is KAFKA_STORAGE_ERROR. One failed log makes its directory offline here, but
the other logs in it stay available and are listed, while 2.1 takes all of them offline. A log's lag is the
number of offsets that its end is below the high watermark; that of the copy of a log that moves to another
directory is what it lacks of the log.
"""

from __future__ import annotations

import os
from collections import defaultdict

from minikafka.base.errors import ErrorCode
from minikafka.base.files import DiskSpace
from minikafka.base.ids import TopicPartition
from minikafka.log.log import Log
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

STEP_PARTITIONS = 100
_UNKNOWN = DiskSpace(-1, -1)
UNKNOWN_LAG = -1
"""The lag of a future log whose current log cannot be opened."""


def handle(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> None:
    """Serve one DescribeLogDirs request, in the pool: disks are asked for their size."""
    begin(broker.pool, context.exchange, _serve(broker, context, request))


def _serve(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> Steps:
    yield 0
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        }
    results = []
    unusable = broker.logs.offline_paths
    for directory, logs in broker.logs.by_directory().items():
        topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
        for done, (topic_partition, log) in enumerate(logs):
            if done % STEP_PARTITIONS == STEP_PARTITIONS - 1:
                yield 0
            if wanted is None or topic_partition in wanted:
                topics[topic_partition.topic].append(_row(broker, topic_partition, log))
        rows = tuple(DescribeLogDirsTopic(name, tuple(parts)) for name, parts in topics.items())
        offline = directory.path in unusable or any(log.failure is not None for _, log in logs)
        code = ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NONE
        path, space = os.path.abspath(directory.path), directory.disk_space() or _UNKNOWN
        results.append(DescribeLogDirsResult(code, path, rows, space.total_bytes, space.usable_bytes))
    results += [
        DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, os.path.abspath(path), ())
        for path in unusable
        if path not in broker.logs.paths
    ]
    context.reply(DescribeLogDirsResponse(throttle_time_ms=0, results=tuple(results)))


def _row(broker: Broker, topic_partition: TopicPartition, log: Log) -> DescribeLogDirsPartition:
    current = broker.logs.get(topic_partition)
    if current is log:
        lag = max(0, broker.readable_up_to(topic_partition, log) - log.end_offset)
    else:
        lag = UNKNOWN_LAG if current is None else current.end_offset - log.end_offset
    return DescribeLogDirsPartition(
        topic_partition.partition, log.size_bytes, lag, is_future_key=current is not log
    )
