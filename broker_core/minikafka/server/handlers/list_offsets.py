"""ListOffsets: the start or end offset of a partition, or the offset for a timestamp.

Version 0 returns up to max_num_offsets segment boundaries before a time, newest first (``getOffsetsBefore``
of the texts); 1 returns the offset of the first message with the timestamp or a later one; 2 adds the
isolation level and throttle_time_ms; 4 adds leader epochs, of the offset and of the client's metadata. From
version 1 on a repeated partition is rejected, as its results cannot be distinguished.

A negative timestamp means: -1 the latest offset, which is the high watermark for consumers, the last stable
offset with READ_COMMITTED, the log end for followers; -2 the earliest; since version 7, -3 the first message
with the largest timestamp; since 8, -4 the earliest offset on this broker's disks, which is that of -2; since
9, -5 the latest offset in tiered storage, which is none. Others get UNSUPPORTED_VERSION.

While a new leader's high watermark may be below what its predecessor reported, consumers get
OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE, for the latest offset, and for a timestamp
without a match (KIP-207).
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
from minikafka.wire.api import NEVER, partitions_of
from minikafka.wire.apis.fetch import READ_COMMITTED
from minikafka.wire.apis.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    TIMES_SINCE,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_log = logging.getLogger(__name__)

NO_OFFSET = -1
NOT_AVAILABLE_SINCE = 5
"""The first version whose clients know OFFSET_NOT_AVAILABLE."""
STEP_PARTITIONS = 100
"""Partitions whose start or end is looked up in one step."""


def handle(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> None:
    """Serve one ListOffsets request. Logs are only read, so the core's lock is not needed."""
    steps = _serve(broker, context, request)
    if context.version and any(_is_search(part) for topic in request.topics for part in topic.partitions):
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
            if context.version and _is_search(part):
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
    times = Counter(topic_partition for topic_partition, _ in partitions_of(request.topics))
    return frozenset(topic_partition for topic_partition, count in times.items() if count > 1)


def _is_search(part: ListOffsetsPartition) -> bool:
    """Return True if messages are read for it."""
    return part.timestamp >= 0 or part.timestamp == MAX_TIMESTAMP


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
        leader_epoch = partition.check_leader(part.current_leader_epoch).leader_epoch
        if version == 0:
            offsets = _offsets_before(partition, part.timestamp, part.max_num_offsets, broker.clock.now_ms())
            return ListOffsetsPartitionResponse(index=part.index, error_code=ErrorCode.NONE, offsets=offsets)
        _check_timestamp(part.timestamp, version)
        if replica:
            readable, may_lag = partition.log.end_offset, False
        else:
            readable = partition.last_stable_offset if committed_only else partition.high_watermark
            may_lag = partition.is_high_watermark_behind
        timestamp, offset = yield from _offset_at(partition, part.timestamp, readable)
        if may_lag and (offset == NO_OFFSET or part.timestamp == LATEST) and part.timestamp != LATEST_TIERED:
            raise _not_available(partition, version)
        if part.timestamp != LATEST:
            known = offset != NO_OFFSET
            leader_epoch = partition.log.epochs.epoch_for_offset(offset) if known else UNKNOWN
        return ListOffsetsPartitionResponse(
            index=part.index,
            error_code=ErrorCode.NONE,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=leader_epoch,
        )
    except BrokerError as error:
        return ListOffsetsPartitionResponse(index=part.index, error_code=error.code)
    except StorageError as error:
        _log.error("failed to look up offsets of %s-%d: %s", topic, part.index, error)
        return ListOffsetsPartitionResponse(index=part.index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)


def _check_timestamp(timestamp_ms: int, version: int) -> None:
    if timestamp_ms < 0 and version < TIMES_SINCE.get(timestamp_ms, NEVER):
        text = f"ListOffsets {version} does not have the timestamp {timestamp_ms}"
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, text)


def _offsets_before(partition: Partition, timestamp_ms: int, limit: int, now_ms: int) -> tuple[int, ...]:
    high_watermark = partition.high_watermark
    if timestamp_ms == EARLIEST:
        return (partition.log.start_offset,)[:limit]
    found = partition.log.offsets_before(timestamp_ms, limit, now_ms=now_ms)
    return tuple(dict.fromkeys(min(offset, high_watermark) for offset in found))


def _offset_at(
    partition: Partition, timestamp_ms: int, readable: int
) -> Generator[int, None, tuple[int, int]]:
    """Return the timestamp and the offset, below ``readable``; ``NO_OFFSET`` if there is none."""
    if timestamp_ms == LATEST:
        return NO_TIMESTAMP, readable
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return NO_TIMESTAMP, partition.log.start_offset
    if timestamp_ms == MAX_TIMESTAMP:
        timestamp_ms = max(segment.max_timestamp()[0] for segment in partition.log.segments)
    found = None
    if timestamp_ms >= 0:  # otherwise there is no message with a timestamp, or the one of LATEST_TIERED
        found = yield from partition.log.steps_to_timestamp(timestamp_ms)
    if found is None or found[0] >= readable:
        return NO_TIMESTAMP, NO_OFFSET
    offset, at_ms = found
    return at_ms, offset


def _not_available(partition: Partition, version: int) -> BrokerError:
    """Return the error for a consumer to which an earlier leader may have reported a higher end offset
    (KIP-207). If it used the lower offset, it would read messages again.
    """
    code = ErrorCode.LEADER_NOT_AVAILABLE
    if version >= NOT_AVAILABLE_SINCE:
        code = ErrorCode.OFFSET_NOT_AVAILABLE
    return BrokerError(code, f"the high watermark of {partition.topic_partition} lags behind")
