"""DescribeLogDirs: the data directories of this broker, with the size of each log.

Both versions are the same. Behaviour (``ReplicaManager.describeLogDirs`` of 2.1): every directory is listed,
also one without any of the wanted partitions; one that cannot be used is KAFKA_STORAGE_ERROR. The lag of a
log is how far its end is below the high watermark. Logs do not move between directories, so none is a future
one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Container, Iterable

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.log.log import Log
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> None:
    """Serve one request."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        }
    results = [
        DescribeLogDirsResult(ErrorCode.NONE, os.path.abspath(path), _topics(broker, logs, wanted))
        for path, logs in broker.logs.by_directory().items()
    ]
    results += [
        DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, os.path.abspath(path), ())
        for path in broker.logs.unusable_paths
    ]
    context.reply(DescribeLogDirsResponse(throttle_time_ms=0, results=tuple(results)))


def _topics(
    broker: Broker, logs: Iterable[tuple[TopicPartition, Log]], wanted: Container[TopicPartition] | None
) -> tuple[DescribeLogDirsTopic, ...]:
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for topic_partition, log in logs:
        if wanted is None or topic_partition in wanted:
            high_watermark = broker.readable_up_to(topic_partition, log)
            topics[topic_partition.topic].append(
                DescribeLogDirsPartition(
                    topic_partition.partition,
                    log.size_bytes,
                    max(0, high_watermark - log.end_offset),
                    is_future_key=False,
                )
            )
    return tuple(DescribeLogDirsTopic(name, tuple(rows)) for name, rows in topics.items())
