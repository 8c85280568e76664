"""Produce: append message sets to partitions that this broker leads.

Versions: 1 adds throttle_time_ms, 2 the log-append time (and means magic 1), 3 a transactional id (and means
magic 2), 5 the log start offset; from 7 on batches may be compressed with zstd.
Behaviour
    Up to version 2 a partition gets a set of messages of magic 0 and 1, from version 3 on exactly one batch
    of magic 2 (``ProduceRequest.validateRecords`` of 2.1). Transactions are refused with UNSUPPORTED_VERSION,
    the cluster's own topics with INVALID_TOPIC.
    Validation (CRC, sizes, decompression, another format or codec where the topic asks for it) runs before
    the core's lock is taken, the append under it, a flush after it. A partition's error is its own: the
    others are appended. Nothing of a refused message set is written. acks=0 has no response; an error then
    closes the connection, which is the only way to tell (as Kafka does). acks=1 and acks=-1 are answered once
    the messages are as safe as ``flush.messages`` asks; acks=-1 once every in-sync replica has them, too, or
    after ``timeout_ms`` with REQUEST_TIMED_OUT.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Hashable, Mapping
from dataclasses import replace
from itertools import repeat

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition
from minikafka.log.log import Log
from minikafka.partition.partition import Appended, Partition
from minikafka.records.batch import BATCH_HEADER_BYTES
from minikafka.records.message_set import (
    CODEC_MASK,
    ENTRY_HEADER_BYTES,
    NO_TIMESTAMP,
    Codec,
)
from minikafka.records.produced import ValidatedSet
from minikafka.records.survey import survey
from minikafka.records.validation import prepare, validate
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext
from minikafka.wire.apis.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from minikafka.wire.framing import RequestHeader
from minikafka.wire.parts import buffer_of

_log = logging.getLogger(__name__)

NO_OFFSET = -1
BATCHES_SINCE = 3
"""The version from which on producers send magic 2."""
STORAGE_ERROR_SINCE = 4
"""The version whose producers know KAFKA_STORAGE_ERROR. Older ones would give up; NOT_LEADER_FOR_PARTITION
has them ask who leads, and send again, as 2.1 has it."""
ZSTD_SINCE = 7
"""The version whose producers may use zstd."""
_BATCH = struct.Struct(">8xi4xb4xh")
"""Size, magic and attributes."""
_TRANSACTIONAL = 16
ADMIN_CLIENT_ID = "__admin_client"
"""Whose client id this is may write to internal topics: so the release's tools repair them."""
_TELLS_START = {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
"""Errors after which a producer looks whether what it wrote was deleted. Where the answer does not tell the
log's start, Java clients send the batch again and again, until they give it up."""
ALL_IN_SYNC = -1
"""``acks`` that waits for every in-sync replica."""

_Answers = dict[TopicPartition, ProducePartitionResponse]


class _AckTicket:
    """A request that waits for the in-sync replicas."""

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: ProduceRequest,
        answers: _Answers,
        written: Mapping[Partition, Appended],
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._answers = answers
        self._waiting = dict(written)

    def satisfied(self, key: Hashable | None = None) -> bool:
        for partition, done in list(self._waiting.items()):
            try:
                if not partition.committed(done.assigned.last_offset, done.leader_epoch):
                    continue
            except BrokerError as error:
                self._refuse(partition, error)
            del self._waiting[partition]
        return not self._waiting

    def _refuse(self, partition: Partition, error: BrokerError) -> None:
        topic_partition = partition.topic_partition
        self._answers[topic_partition] = _refusal(self._broker, topic_partition, error)

    def complete(self) -> None:
        for partition in self._waiting:
            text = "the in-sync replicas do not have the messages yet"
            self._refuse(partition, BrokerError(ErrorCode.REQUEST_TIMED_OUT, text))
        _answer(self._context, self._request, self._answers)

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)

    def wait(self) -> None:
        """Answer now or later."""
        if self.satisfied():
            self.complete()
            return

        def step() -> None:
            if self.satisfied():
                self._broker.answer(self)
                return
            keys: list[Hashable] = [partition.topic_partition for partition in self._waiting]
            deadline_ms = self._broker.clock.monotonic_ms() + max(0, self._request.timeout_ms)
            self._broker.wait(self, keys, deadline_ms)

        self._broker.run(step)


def handle(broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
    """Serve one produce request."""
    answers: _Answers = {}
    now_ms = broker.clock.now_ms()
    version = context.header.api_version
    valid = _validated(broker, _asked(broker, context.header, request, answers), version, answers, now_ms)
    appended: list[tuple[Partition, Appended, bool]] = []
    all_in_sync = request.acks == ALL_IN_SYNC

    def append() -> None:
        for topic_partition, message_set in valid.items():
            try:
                partition = broker.partition(topic_partition)
                done = partition.append(message_set, all_in_sync=all_in_sync, now_ms=now_ms)
                appended.append((partition, done, message_set.stamped))
                broker.touch(topic_partition)
            except (BrokerError, StorageError) as error:
                answers[topic_partition] = _refusal(broker, topic_partition, error)

    broker.run(append)
    for partition, done, stamped in appended:
        answers[partition.topic_partition] = _accepted(broker, partition, done, stamped=stamped)
    if all_in_sync and appended:
        written = {
            partition: done
            for partition, done, _ in appended
            if answers[partition.topic_partition].error_code == ErrorCode.NONE
        }
        _AckTicket(broker, context, request, answers, written).wait()
    else:
        _answer(context, request, answers)


_Asked = dict[TopicPartition, tuple[Log, memoryview]]


def _asked(broker: Broker, header: RequestHeader, request: ProduceRequest, answers: _Answers) -> _Asked:
    """The logs that the request may write to, and what to each; the others get their answers here."""
    asked: _Asked = {}
    refused: BrokerError | None = None
    if request.acks not in {-1, 0, 1}:
        refused = BrokerError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
    elif request.transactional_id is not None:
        refused = _no_transactions()
    for topic in request.topics:
        internal = topic.name in INTERNAL_TOPICS and header.client_id != ADMIN_CLIENT_ID
        for part in topic.partitions:
            topic_partition = TopicPartition(topic.name, part.index)
            try:
                if topic_partition in asked or topic_partition in answers:
                    asked.pop(topic_partition, None)
                    raise BrokerError(ErrorCode.INVALID_REQUEST, f"{topic_partition} is named twice")
                if refused is not None:
                    raise refused
                if internal:
                    raise BrokerError(
                        ErrorCode.INVALID_TOPIC, f"{topic.name} is written by brokers, not by clients"
                    )
                asked[topic_partition] = broker.partition(topic_partition).log, buffer_of(part.records)
            except BrokerError as error:
                answers[topic_partition] = _refusal(broker, topic_partition, error)
    return asked


def _validated(
    broker: Broker, asked: _Asked, version: int, answers: _Answers, now_ms: int
) -> dict[TopicPartition, ValidatedSet]:
    """What may be appended; the others get their answers here."""
    valid: dict[TopicPartition, ValidatedSet] = {}
    newer = version >= BATCHES_SINCE
    surveyed = survey([records for _, records in asked.values()]) if newer else repeat(None)
    for (topic_partition, (log, records)), batch in zip(asked.items(), surveyed, strict=False):
        limits = log.config.message_limits
        try:
            if not newer:
                limits = replace(limits, max_magic=1)
            elif batch is None:
                _check_one_batch(records, version)
            valid[topic_partition] = prepare(validate(records, limits, now_ms, batch), log.end_offset)
        except BrokerError as error:
            answers[topic_partition] = _refusal(broker, topic_partition, error)
    return valid


def _check_one_batch(records: memoryview, version: int) -> None:
    """What is asked of a partition's records before anything is looked at in them."""
    size, magic, attributes = (0, -1, 0)
    if len(records) >= BATCH_HEADER_BYTES:
        size, magic, attributes = _BATCH.unpack_from(records)
    if magic != 2 or size + ENTRY_HEADER_BYTES != len(records):
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Produce {version} takes exactly one batch of magic 2 for each partition, not these "
            f"{len(records)} bytes",
        )
    if attributes & _TRANSACTIONAL:
        raise _no_transactions()
    if attributes & CODEC_MASK == Codec.ZSTD and version < ZSTD_SINCE:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce {version} has no zstd: that needs version {ZSTD_SINCE}",
        )


def _no_transactions() -> BrokerError:
    return BrokerError(
        ErrorCode.UNSUPPORTED_VERSION, "this broker has no transactions: set no transactional.id"
    )


def _accepted(
    broker: Broker, partition: Partition, done: Appended, *, stamped: bool
) -> ProducePartitionResponse:
    topic_partition = partition.topic_partition
    if done.must_flush:
        try:
            end_offset = partition.log.flush()
        except StorageError as error:
            return _refusal(broker, topic_partition, error)

        def flushed() -> None:
            if partition.flushed(end_offset):
                broker.touch(topic_partition)

        broker.run(flushed)
    return ProducePartitionResponse(
        index=topic_partition.partition,
        error_code=ErrorCode.NONE,
        base_offset=done.assigned.first_offset if done.assigned.count else NO_OFFSET,
        log_append_time_ms=done.assigned.max_timestamp_ms if stamped else NO_TIMESTAMP,
        log_start_offset=partition.log.start_offset,
    )


def _refusal(
    broker: Broker, topic_partition: TopicPartition, error: BrokerError | StorageError
) -> ProducePartitionResponse:
    code = error.code if isinstance(error, BrokerError) else ErrorCode.KAFKA_STORAGE_ERROR
    level = logging.ERROR if isinstance(error, StorageError) else logging.INFO
    if isinstance(error, StorageError):
        broker.log_failed(topic_partition)
    _log.log(level, "produce to %s refused: %s", topic_partition, error)
    partition = broker.partitions.get(topic_partition) if code in _TELLS_START else None
    return ProducePartitionResponse(
        index=topic_partition.partition,
        error_code=code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        log_start_offset=NO_OFFSET if partition is None else partition.log.start_offset,
    )


def _as_known_before(answer: ProducePartitionResponse) -> ProducePartitionResponse:
    if answer.error_code != ErrorCode.KAFKA_STORAGE_ERROR:
        return answer
    return replace(answer, error_code=ErrorCode.NOT_LEADER_FOR_PARTITION)


def _answer(context: RequestContext, request: ProduceRequest, answers: _Answers) -> None:
    if request.acks == 0:
        refused = [answer.error_code for answer in answers.values() if answer.error_code != ErrorCode.NONE]
        if refused:
            context.exchange.close(f"a produce request with acks=0 failed: {ErrorCode.of(refused[0]).name}")
        else:
            context.no_reply()
        return
    if context.version < STORAGE_ERROR_SINCE:
        answers = {key: _as_known_before(answer) for key, answer in answers.items()}
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
