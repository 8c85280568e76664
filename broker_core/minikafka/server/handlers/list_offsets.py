"""ListOffsets: the start or end offset of a partition, or the offset for a timestamp.

Version 0 returns up to max_num_offsets segment boundaries before a time, newest first (``getOffsetsBefore``
of the texts); 1 returns the offset of the first message with the timestamp or a later one; 2 adds the
isolation level and throttle_time_ms; 4 adds leader epochs, of the offset and of the client's metadata. From
version 1 on a repeated partition is rejected, as its results cannot be distinguished. Timestamp -1 asks for
the latest offset: the high watermark for consumers, the last stable offset with READ_COMMITTED, the log end
for followers; -2 asks for the earliest. While a new leader's high watermark may be below what its predecessor
reported, versions from 1 on get LEADER_NOT_AVAILABLE for the latest offset, and for a timestamp without a
match (KIP-207).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator
from itertools import chain

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.search import LOOK_UP_BYTES
from minikafka.partition.partition import Partition
from minikafka.records.format.message_set import NO_TIMESTAMP
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import begin, begin_here
from minikafka.wire.apis.fetch import READ_COMMITTED
from minikafka.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_log = logging.getLogger(__name__)

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
NO_OFFSET = -1
STEP_PARTITIONS = 100
"""Partitions whose start or end is looked up in one step."""


def handle(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> None:
    """Serve one ListOffsets request. Logs are only read, so the core's lock is not needed."""
    steps = _serve(broker, context, request)
    if context.version and any(part.timestamp >= 0 for topic in request.topics for part in topic.partitions):
        # A lookup by timestamp may decompress a batch for each partition.
        begin(broker.pool, context.exchange, chain((0,), steps))
    else:
        begin_here(broker.pool, context.exchange, broker.clock, steps)


def _serve(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> Generator[int, None, None]:
    committed_only, replica = request.isolation_level == READ_COMMITTED, request.replica_id >= 0
    repeated = _repeated(request) if context.version else frozenset()
    topics = []
    for topic in request.topics:
        parts = []
        once = {part.index: part for part in topic.partitions}.values()
        for part in once if context.version else topic.partitions:
            if TopicPartition(topic.name, part.index) in repeated:
                parts.append(ListOffsetsPartitionResponse(part.index, ErrorCode.INVALID_REQUEST))
                continue
            if context.version and part.timestamp >= 0:
                yield LOOK_UP_BYTES
            elif not context.version or len(parts) % STEP_PARTITIONS == 0:
                yield 0  # version 0 reads all segments
            parts.append(
                (
                    yield from _look_up(
                        broker,
                        context.version,
                        topic.name,
                        part,
                        committed_only=committed_only,
                        replica=replica,
                    )
                )
            )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(parts)))
    context.reply(ListOffsetsResponse(throttle_time_ms=0, topics=tuple(topics)))


def _repeated(request: ListOffsetsRequest) -> frozenset[TopicPartition]:
    """Return the partitions that appear more than once in the request."""
    times = Counter(
        TopicPartition(topic.name, part.index) for topic in request.topics for part in topic.partitions
    )
    return frozenset(topic_partition for topic_partition, count in times.items() if count > 1)


def _look_up(
    broker: Broker,
    version: int,
    topic: str,
    part: ListOffsetsPartition,
    *,
    committed_only: bool,
    replica: bool,
) -> Generator[int, None, ListOffsetsPartitionResponse]:
    try:
        partition = broker.partition(TopicPartition(topic, part.index))
        partition.check_leader(part.current_leader_epoch)
        if version == 0:
            offsets = _offsets_before(partition, part.timestamp, part.max_num_offsets, broker.clock.now_ms())
            return ListOffsetsPartitionResponse(index=part.index, error_code=ErrorCode.NONE, offsets=offsets)
        if replica and part.timestamp == LATEST_TIMESTAMP:
            timestamp, offset = NO_TIMESTAMP, partition.log.end_offset
        else:
            timestamp, offset = yield from _offset_at(
                partition, part.timestamp, committed_only=committed_only
            )
        return ListOffsetsPartitionResponse(
            index=part.index,
            error_code=ErrorCode.NONE,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=UNKNOWN if offset == NO_OFFSET else partition.log.epochs.epoch_for_offset(offset),
        )
    except BrokerError as error:
        return ListOffsetsPartitionResponse(index=part.index, error_code=error.code)
    except StorageError as error:
        _log.error("failed to look up offsets of %s-%d: %s", topic, part.index, error)
        return ListOffsetsPartitionResponse(index=part.index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)


def _offsets_before(partition: Partition, timestamp_ms: int, limit: int, now_ms: int) -> tuple[int, ...]:
    high_watermark = partition.high_watermark
    if timestamp_ms == EARLIEST_TIMESTAMP:
        return (partition.log.start_offset,)[:limit]
    found = partition.log.offsets_before(timestamp_ms, limit, now_ms=now_ms)
    return tuple(dict.fromkeys(min(offset, high_watermark) for offset in found))


def _offset_at(
    partition: Partition, timestamp_ms: int, *, committed_only: bool
) -> Generator[int, None, tuple[int, int]]:
    readable = partition.last_stable_offset if committed_only else partition.high_watermark
    if timestamp_ms == EARLIEST_TIMESTAMP:
        return NO_TIMESTAMP, partition.log.start_offset
    if timestamp_ms == LATEST_TIMESTAMP:
        _check_lag(partition)
        return NO_TIMESTAMP, readable
    found = yield from partition.log.steps_to_timestamp(timestamp_ms)
    if found is None or found[0] >= readable:
        _check_lag(partition)
        return NO_TIMESTAMP, NO_OFFSET
    offset, at_ms = found
    return at_ms, offset


def _check_lag(partition: Partition) -> None:
    """Raise LEADER_NOT_AVAILABLE when an earlier leader may have reported a higher end offset (KIP-207).

    A consumer that used the lower offset would read messages again.
    """
    if partition.is_high_watermark_behind:
        raise BrokerError(
            ErrorCode.LEADER_NOT_AVAILABLE, f"the high watermark of {partition.topic_partition} lags behind"
        )
