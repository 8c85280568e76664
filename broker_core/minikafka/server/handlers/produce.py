"""Produce: append message sets to partitions that this broker leads.

Versions: 1 adds throttle_time_ms, 2 the log-append time (and means magic 1).
Behaviour
    Validation (CRC, sizes, decompression, another format or codec where the topic asks for it) runs before
    the core's lock is taken, the append under it, a flush after it. A partition's error is its own: the
    others are appended. Nothing of a refused message set is written. acks=0 has no response; an error then
    closes the connection, which is the only way to tell (as Kafka does). acks=1 and acks=-1 are answered once
    the messages are as safe as ``flush.messages`` asks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.ids import TopicPartition
from minikafka.log.config import LogConfig
from minikafka.partition.partition import Appended, Partition
from minikafka.records.message_set import NO_TIMESTAMP, Codec, TimestampType
from minikafka.records.validation import Limits, ValidatedSet, prepare, validate
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.wire.apis.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from minikafka.wire.parts import buffer_of

_log = logging.getLogger(__name__)

NO_OFFSET = -1
ALL_IN_SYNC = -1
"""``acks`` that waits for every in-sync replica."""

_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
}
"""``compression.type`` of a topic -> what its messages are stored in."""

_Answers = dict[TopicPartition, ProducePartitionResponse]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A message set, and whether it got append times: the settings may change before the answer."""

    message_set: ValidatedSet
    append_time: bool


def handle(broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
    """Serve one produce request."""
    answers: _Answers = {}
    now_ms = broker.clock.now_ms()
    valid = _validated(broker, request, answers, now_ms)
    appended: dict[TopicPartition, tuple[Partition, Appended]] = {}
    all_in_sync = request.acks == ALL_IN_SYNC

    def append() -> None:
        for topic_partition, checked in valid.items():
            try:
                partition = broker.partition(topic_partition)
                done = partition.append(checked.message_set, all_in_sync=all_in_sync, now_ms=now_ms)
                appended[topic_partition] = partition, done
                broker.touch(topic_partition)
            except (BrokerError, StorageError) as error:
                answers[topic_partition] = _refusal(topic_partition, error)

    broker.run(append)
    for topic_partition, (partition, done) in appended.items():
        append_time = valid[topic_partition].append_time
        answers[topic_partition] = _accepted(broker, partition, done, append_time=append_time)
    _answer(context, request, answers)


def _validated(
    broker: Broker, request: ProduceRequest, answers: _Answers, now_ms: int
) -> dict[TopicPartition, _Checked]:
    valid: dict[TopicPartition, _Checked] = {}
    for topic in request.topics:
        for part in topic.partitions:
            topic_partition = TopicPartition(topic.name, part.index)
            try:
                if topic_partition in valid or topic_partition in answers:
                    valid.pop(topic_partition, None)
                    raise BrokerError(ErrorCode.INVALID_REQUEST, f"{topic_partition} is named twice")
                if request.acks not in {-1, 0, 1}:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}"
                    )
                log = broker.partition(topic_partition).log
                limits = _limits(log.config)
                checked = prepare(validate(buffer_of(part.records), limits, now_ms), log.end_offset)
                append_time = limits.timestamp_type is TimestampType.LOG_APPEND_TIME
                valid[topic_partition] = _Checked(checked, append_time)
            except BrokerError as error:
                answers[topic_partition] = _refusal(topic_partition, error)
    return valid


def _limits(config: LogConfig) -> Limits:
    return Limits(
        max_message_bytes=config.max_message_bytes,
        timestamp_type=config.message_timestamp_type,
        max_timestamp_difference_ms=config.message_timestamp_difference_max_ms,
        compacted=config.compacted,
        magic=config.message_magic,
        codec=_CODECS[config.compression_type],
    )


def _accepted(
    broker: Broker, partition: Partition, done: Appended, *, append_time: bool
) -> ProducePartitionResponse:
    topic_partition = partition.topic_partition
    if done.must_flush:
        try:
            end_offset = partition.log.flush()
        except StorageError as error:
            return _refusal(topic_partition, error)

        def flushed() -> None:
            if partition.flushed(end_offset):
                broker.touch(topic_partition)

        broker.run(flushed)
    return ProducePartitionResponse(
        index=topic_partition.partition,
        error_code=ErrorCode.NONE,
        base_offset=done.assigned.first_offset if done.assigned.count else NO_OFFSET,
        log_append_time_ms=done.assigned.max_timestamp_ms if append_time else NO_TIMESTAMP,
    )


def _refusal(topic_partition: TopicPartition, error: BrokerError | StorageError) -> ProducePartitionResponse:
    code = error.code if isinstance(error, BrokerError) else ErrorCode.KAFKA_STORAGE_ERROR
    level = logging.ERROR if isinstance(error, StorageError) else logging.INFO
    _log.log(level, "produce to %s refused: %s", topic_partition, error)
    return ProducePartitionResponse(
        index=topic_partition.partition,
        error_code=code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
    )


def _answer(context: RequestContext, request: ProduceRequest, answers: _Answers) -> None:
    if request.acks == 0:
        refused = [answer.error_code for answer in answers.values() if answer.error_code != ErrorCode.NONE]
        if refused:
            context.exchange.close(f"a produce request with acks=0 failed: {ErrorCode.of(refused[0]).name}")
        else:
            context.no_reply()
        return
    context.reply(
        ProduceResponse(
            topics=tuple(
                ProduceTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        answers[TopicPartition(topic.name, part.index)] for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )
    )
