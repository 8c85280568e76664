"""DeleteRecords: advance the log start offset of partitions; records before it can no longer be read.

All versions are the same. As ``ReplicaManager.deleteRecordsOnLocalLog`` of 2.1: offset -1 stands for the
high watermark, an offset beyond it is OFFSET_OUT_OF_RANGE, and an offset below the log start changes nothing.
The topic's cleanup.policy must include delete (POLICY_VIOLATION); internal topics get INVALID_TOPIC. The new
start is checkpointed before the response; whole segments below it are deleted at the next check of retention.
Followers are not waited for.
"""

from __future__ import annotations

import logging

from minikafka.base.errors import BrokerError, ErrorCode, OffsetOutOfRange, StorageError
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.apis.delete_records import (
    HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_log = logging.getLogger(__name__)

NO_WATERMARK = -1


def handle(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> None:
    """Serve one DeleteRecords request, in the pool: each partition costs a flush."""
    begin(broker.pool, context.exchange, _serve(broker, context, request))


def _serve(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> Steps:
    yield 0
    topics = []
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            rows.append(_result(broker, topic.name, part))
            yield 0
        topics.append(DeleteRecordsTopicResult(topic.name, tuple(rows)))
    context.reply(DeleteRecordsResponse(throttle_time_ms=0, topics=tuple(topics)))


def _result(broker: Broker, topic: str, part: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    topic_partition = TopicPartition(topic, part.index)
    code, watermark = ErrorCode.NONE, NO_WATERMARK
    try:
        watermark = _delete_before(broker, topic_partition, part.offset)
    except BrokerError as error:
        _log.info("rejected the deletion of records of %s: %s", topic_partition, error)
        code = error.code
    except StorageError as error:
        _log.error("failed to checkpoint the log start offset of %s: %s", topic_partition, error)
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return DeleteRecordsPartitionResult(index=part.index, low_watermark=watermark, error_code=code)


def _delete_before(broker: Broker, topic_partition: TopicPartition, offset: int) -> int:
    """Advance the log start offset and return it."""
    if topic_partition.topic in INTERNAL_TOPICS:
        raise BrokerError(ErrorCode.INVALID_TOPIC, f"{topic_partition} is an internal topic")
    partition = broker.partition(topic_partition)
    partition.check_leader()
    log = partition.log
    if not log.config.deletion_policies:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic_partition} does not include delete"
        )
    # The high watermark only rises while this broker leads, and the log's start never passes it.
    high_watermark = partition.high_watermark
    wanted = high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= wanted <= high_watermark:
        raise OffsetOutOfRange(offset, log.start_offset, high_watermark)
    broker.logs.increment_start_offset(topic_partition, wanted)
    broker.run(lambda: broker.touch(topic_partition))  # followers learn the new start
    return log.start_offset
