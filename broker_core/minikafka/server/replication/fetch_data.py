"""The data of one partition for one fetch, and its part of the response."""

from __future__ import annotations

import logging
from collections.abc import Container, Generator

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.reading import LogRead
from minikafka.log.transactions import aborted_steps
from minikafka.net.server import Exchange
from minikafka.partition.partition import Partition
from minikafka.partition.purgatory import PartialReads
from minikafka.records.format.compression import Codec
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.converted_records import converted
from minikafka.server.core.new_leaders import NO_LEADER, NewLeaders
from minikafka.server.metrics.broker_metrics import BYTES_OUT, FAILED_FETCHED, FETCHED, REPLICATION_BYTES_OUT
from minikafka.server.quotas.client_quotas import UNLIMITED
from minikafka.wire.apis.fetch import (
    NO_DIVERGENCE,
    NO_REPLICA,
    READ_COMMITTED,
    TOPIC_IDS_SINCE,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)
from minikafka.wire.fields import ZERO_UUID
from minikafka.wire.frame_parts import Part

_log = logging.getLogger(__name__)

NO_OFFSET = -1
WHOLE_MESSAGE_SINCE = 3
"""Since this version the first message of a response is returned whole, whatever its size. For a message of a
later partition that does not fit, nothing is returned, and the consumer fetches it again: a partial message
with nothing before it would look like a message that it can never read."""
MAGIC_1_SINCE = 2
"""Since this version consumers know messages of magic 1."""
MAGIC_2_SINCE = 4
"""Since this version consumers know batches of magic 2."""
STORAGE_ERROR_SINCE = 6
"""Since this version consumers know KAFKA_STORAGE_ERROR. Those of 0.10.1 would fail; NOT_LEADER_FOR_PARTITION
makes them refresh metadata and fetch again, as in Kafka."""
NEW_LEADERS_SINCE = 16
"""Since this version the response names the new leaders of partitions."""
_NOT_LOOKED_UP = {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
"""The errors whose aborted transactions are empty and not null, as in Kafka."""
_LEADER_ERRORS = {ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH}
"""The errors of a client that does not know the leader."""
ANY_REPLICA_SINCE = 11
"""Since this version consumers may read from followers."""
ZSTD_SINCE = 10
"""Since this version consumers may fetch a topic whose own ``compression.type`` is zstd. If producers chose
zstd, batches are returned since ``MAGIC_2_SINCE``: many consumers of Fetch 4 can decompress them."""


@fast_value
class FetchPartitionData:
    """The data of one partition, or its error."""

    error_code: ErrorCode
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    read: LogRead | None = None
    partition: Partition | None = None
    bound: int = NO_OFFSET
    """The end of the readable range."""
    throttled: bool = False
    """True if there is no data because the leader's replication rate is above its limit."""
    preferred_read_replica: int = NO_REPLICA
    """The follower that the consumer should read from; then there is no data."""
    diverging_epoch: EpochEndOffset = NO_DIVERGENCE
    """The end of this log's newest epoch up to the client's, if messages differ; then there is no data."""

    @property
    def is_final(self) -> bool:
        """True if the response says something other than how much there is to read, and does not wait."""
        return (
            self.error_code is not ErrorCode.NONE
            or self.preferred_read_replica != NO_REPLICA
            or self.diverging_epoch is not NO_DIVERGENCE
        )

    @property
    def size_bytes(self) -> int:
        return self.read.size_bytes if self.read is not None else 0


FetchData = dict[TopicPartition, FetchPartitionData]


def bound_of(request: FetchRequest, partition: Partition) -> int:
    """Return the end of the range that a follower or a consumer may read."""
    return partition.log.end_offset if request.follower_id >= 0 else partition.high_watermark


def read_partition(
    broker: Broker,
    context: RequestContext,
    request: FetchRequest,
    topic_partition: TopicPartition,
    part: FetchPartition,
    left: int,
    *,
    first: bool,
    topic_id: bytes = ZERO_UUID,
) -> FetchPartitionData:
    """Read at most ``left`` bytes of a partition; the ``first`` message of a response may be larger.

    ``topic_id``: of the topic that the client means, in versions with ids.
    """
    version, is_follower = context.version, request.follower_id >= 0
    whole_message = first and version >= WHOLE_MESSAGE_SINCE
    throttled, preferred, diverging = False, NO_REPLICA, NO_DIVERGENCE
    if version >= TOPIC_IDS_SINCE:
        outdated = log_id_error(broker, topic_partition, topic_id)
        if outdated is not None:
            return FetchPartitionData(outdated)
    try:
        partition = broker.partition(topic_partition)
        _check_codec(version, partition)
        if version >= ANY_REPLICA_SINCE and not is_follower:
            partition.check_replica(part.current_leader_epoch)
            preferred = _preferred_read_replica(broker, context, request, partition, part)
        else:
            partition.check_leader(part.current_leader_epoch)
        if part.last_fetched_epoch != UNKNOWN:
            found = partition.diverging_epoch(part.last_fetched_epoch, part.fetch_offset)
            diverging = NO_DIVERGENCE if found is None else EpochEndOffset(*found)
        # Taken before the read, so that the read has everything below them.
        last_stable_offset, high_watermark = partition.last_stable_offset, partition.high_watermark
        bound = partition.log.end_offset if is_follower else high_watermark
        if part.fetch_offset == bound or preferred != NO_REPLICA or diverging is not NO_DIVERGENCE:
            # The common case of followers, and of consumers at the end: there is nothing to look up.
            read = LogRead(None, bound)
        else:
            if is_follower and broker.replication_quotas.leader.active:
                allowed = _allowed(broker, request.follower_id, partition)
                throttled = allowed == 0
                if allowed < left:
                    left, whole_message = allowed, not throttled
            read = partition.read(
                part.fetch_offset,
                min(left, part.partition_max_bytes),
                at_least_one=whole_message,
                cut_first=version < WHOLE_MESSAGE_SINCE,
                committed_only=request.isolation_level == READ_COMMITTED,
                for_replica=is_follower,
            )
    except BrokerError as error:
        return FetchPartitionData(error.code)
    except StorageError as error:
        _log.error("failed to read %s at offset %d: %s", topic_partition, part.fetch_offset, error)
        return FetchPartitionData(ErrorCode.KAFKA_STORAGE_ERROR)
    return FetchPartitionData(
        ErrorCode.NONE,
        high_watermark,
        last_stable_offset,
        partition.log.start_offset,
        read,
        partition,
        bound,
        throttled,
        preferred,
        diverging,
    )


def error_response(partition: int, code: ErrorCode) -> FetchPartitionResponse:
    """Return the response for a partition that is not read."""
    aborted = () if code in _NOT_LOOKED_UP else None
    return FetchPartitionResponse(partition, code, NO_OFFSET, NO_OFFSET, NO_OFFSET, aborted, b"")


def topic_error(context: RequestContext, request: FetchRequest, topic: str) -> ErrorCode | None:
    """Return the error of a topic of which the client gets nothing; ``topic`` is "" for an unknown id."""
    if not topic and context.version >= TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if request.follower_id >= 0 or context.may_read(topic):
        return None
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def topic_id_error(broker: Broker, topic: str, topic_id: bytes) -> ErrorCode | None:
    """Return the error if a topic no longer has the id by which the client fetches it.

    The name was looked up before, perhaps long ago (``FetchSession.resolve``). INCONSISTENT_TOPIC_ID if the
    topic was made again, UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
    """
    known = broker.metadata_cache.topic_ids.get(topic)
    if known == topic_id:
        return None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.INCONSISTENT_TOPIC_ID


def log_id_error(broker: Broker, topic_partition: TopicPartition, topic_id: bytes) -> ErrorCode | None:
    """Return ``topic_id_error``, or INCONSISTENT_TOPIC_ID if the log is another topic's.

    LeaderAndIsr comes before UpdateMetadata: the log may be the next topic's already.
    """
    other = broker.logs.topic_incarnations.has_other_id(topic_partition, topic_id)
    error = topic_id_error(broker, topic_partition.topic, topic_id)
    return error or (ErrorCode.INCONSISTENT_TOPIC_ID if other else None)


def _preferred_read_replica(
    broker: Broker, context: RequestContext, request: FetchRequest, partition: Partition, part: FetchPartition
) -> int:
    """Return the follower in the consumer's rack that it should read from (KIP-392)."""
    config, rack = broker.config, request.rack_id
    if not (config.fetching.selects_by_rack and rack and partition.is_leader) or rack == config.rack:
        return NO_REPLICA
    brokers = broker.metadata_cache.addresses(context.listener)
    in_rack = [broker_id for broker_id, address in brokers.items() if address.rack == rack]
    found = partition.preferred_read_replica(part.fetch_offset, in_rack)
    return NO_REPLICA if found is None else found


def _check_codec(version: int, partition: Partition) -> None:
    limits = partition.log.config.message_limits
    # A topic of an older format stores no zstd, whatever its config says.
    if version < ZSTD_SINCE and limits.codec is Codec.ZSTD and limits.magic not in {0, 1}:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Fetch {version} does not support zstd, the compression.type of "
            f"{partition.topic_partition.topic}: use version {ZSTD_SINCE} or later",
        )


def _allowed(broker: Broker, replica_id: int, partition: Partition) -> int:
    """Return the bytes of a partition that the replication quota allows a follower to read now."""
    quota, leadership = broker.replication_quotas.leader, partition.leadership
    if leadership is None or replica_id in leadership.isr or not quota.covers(partition.topic_partition):
        return UNLIMITED
    # At least one message, even if the limit is less than one a second.
    return 0 if quota.pause_ms(broker.clock.monotonic_ms()) else max(1, quota.limit)


def record_sent(broker: Broker, request: FetchRequest, all_data: FetchData) -> None:
    """Count the bytes that are sent, for metrics, and those of throttled partitions for the quota."""
    topics, is_follower = broker.metrics.topics, request.follower_id >= 0
    for topic_partition, data in all_data.items():
        if data.error_code in _NOT_LOOKED_UP:
            continue  # there may be no such topic
        row = topics.row(topic_partition.topic)
        if is_follower:
            row[REPLICATION_BYTES_OUT] += data.size_bytes
        else:
            row[FETCHED] += 1
            row[BYTES_OUT] += data.size_bytes
            if data.error_code is not ErrorCode.NONE:
                row[FAILED_FETCHED] += 1
    quota = broker.replication_quotas.leader
    if request.follower_id < 0 or not quota.active:
        return
    count = sum(data.size_bytes for key, data in all_data.items() if quota.covers(key))
    if count:
        quota.record(count, broker.clock.monotonic_ms())


def max_wait_ms(
    broker: Broker,
    context: RequestContext,
    request: FetchRequest,
    named: Container[TopicPartition],
    *,
    throttled: bool,
) -> int:
    """Return the maximum wait of a delayed fetch of the partitions ``named``, in milliseconds.

    ``throttled``: one of them has no data because the leader's replication rate is above its limit.
    """
    # A client that disconnects is not noticed while its request is delayed.
    most_ms = min(request.max_wait_ms, broker.config.connection_idle_max_ms)
    now_ms, quota = broker.clock.monotonic_ms(), broker.replication_quotas.leader
    partial_reads = partial_reads_of(context.exchange, request)
    if partial_reads is not None:
        return partial_reads.max_wait_ms(named, most_ms, now_ms)
    if throttled and quota.active:
        return min(most_ms, max(1, quota.pause_ms(now_ms)))
    return most_ms


def partial_reads_of(exchange: Exchange, request: FetchRequest) -> PartialReads | None:
    """Return the connection's partial reads; None for a follower."""
    if request.follower_id >= 0:
        return None
    found: PartialReads | None = exchange.memory.get(__name__)
    if found is None:
        found = exchange.memory[__name__] = PartialReads()
    return found


def has_more(data: FetchPartitionData, given: FetchPartitionResponse) -> bool:
    """Return True if data of a partition remains after the response."""
    return data.read is not None and data.read.more and given.error_code == ErrorCode.NONE


def _records(
    broker: Broker, version: int, read: LogRead, offset: int, plain_bytes: int
) -> Generator[int, None, Part]:
    """Return the records in a format that the version knows: the slice, or its down-conversion, in steps."""
    if read.slice is None or version >= MAGIC_2_SINCE:
        return read.slice or b""
    if version >= MAGIC_1_SINCE:
        classic = yield from read.classic_steps()
        if classic:
            return read.slice
    magic = int(version >= MAGIC_1_SINCE)
    return (yield from converted(read.slice, magic, offset, plain_bytes, broker.pool, broker.pieces))


def partition_steps(
    broker: Broker,
    version: int,
    topic: str,
    asked: FetchPartition,
    data: FetchPartitionData,
    plain_bytes: int,
    leaders: NewLeaders,
    *,
    committed_only: bool,
) -> Generator[int, None, FetchPartitionResponse]:
    """Build a partition's part of the response, in steps. See ``converted`` for ``plain_bytes``."""
    code, current_leader = data.error_code, NO_LEADER
    sent: Part = b""
    aborted: tuple[AbortedTransaction, ...] | None = () if committed_only else None
    if data.read is not None and data.read.slice is not None:
        try:
            sent = yield from _records(broker, version, data.read, asked.fetch_offset, plain_bytes)
            if committed_only and data.partition is not None:
                found = yield from aborted_steps(data.partition.log, data.read)
                aborted = tuple(AbortedTransaction(*transaction) for transaction in found)
        except BrokerError as error:
            sent = b""
            level = logging.ERROR if error.code is ErrorCode.CORRUPT_MESSAGE else logging.INFO
            _log.log(
                level,
                "failed to convert records of %s-%d for Fetch %d: %s",
                topic,
                asked.index,
                version,
                error,
            )
            code = error.code
        except StorageError as error:
            sent = b""
            _log.error("failed to read %s-%d: %s", topic, asked.index, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
    if code is not ErrorCode.NONE:
        if code in _NOT_LOOKED_UP:
            return error_response(asked.index, code)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_FOR_PARTITION
        if code in _LEADER_ERRORS and version >= NEW_LEADERS_SINCE:
            current_leader = leaders.leader_of(TopicPartition(topic, asked.index))
    return FetchPartitionResponse(
        index=asked.index,
        error_code=code,
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        aborted_transactions=aborted,
        preferred_read_replica=data.preferred_read_replica,
        records=sent,
        diverging_epoch=data.diverging_epoch,
        current_leader=current_leader,
    )
