"""Produce: append message sets to partitions that this broker leads.

Versions: 1 adds throttle_time_ms, 2 the log-append time (and means magic 1), 3 a transactional id (and means
magic 2), 5 the log start offset; from 7 on batches may be compressed with zstd. 8 names the records for which
a batch is refused, 10 the new leader after NOT_LEADER_FOR_PARTITION.

Behaviour

    Up to version 2 a partition gets messages of magic 0 and 1, from version 3 on exactly one batch of magic 2
    (``ProduceRequest.validateRecords`` of 2.1). Internal topics are rejected with INVALID_TOPIC.

    A transactional batch needs a transactional id, otherwise it gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    Before the first batch of a transaction the coordinator is asked whether the partition is in it
    (``server.transactions.produced_transaction``). A broker that serves no transactions rejects them with
    UNSUPPORTED_VERSION.

    Validation (CRC, sizes, decompression, recompression or conversion for the topic) runs before the core's
    lock is taken, the append under it, a flush after it. A request that takes more than a few milliseconds
    (because of its size, many partitions, or large compressed content) continues in the broker's pool, where
    rewritten records are appended before too many are held. Errors are per partition: the others are
    appended. Nothing of rejected records is written. acks=0 has no response; an error closes the connection,
    the only way to report it (as in Kafka). acks=1 and acks=-1 are answered once the messages are as durable
    as ``flush.messages`` requires; acks=-1 also waits for every in-sync replica, or for ``timeout_ms`` with
    REQUEST_TIMED_OUT.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Hashable
from dataclasses import replace
from functools import partial
from itertools import repeat

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition
from minikafka.base.values import fast_value
from minikafka.log.log import Log
from minikafka.partition.partition import LogAppendResult, Partition
from minikafka.records.append.batch_fast_path import PlainBatch, survey
from minikafka.records.append.invalid_records import InvalidRecords
from minikafka.records.append.produced import Limits, OffsetMoved, ValidatedRecords
from minikafka.records.append.validation import memory_to_prepare, prepare, validate, validate_steps
from minikafka.records.format.compression import BudgetExceeded, ContentBudget
from minikafka.records.format.message_set import NO_TIMESTAMP, Codec
from minikafka.records.kernels import layout
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, DelayedRequest
from minikafka.server.core.new_leaders import NewLeaders
from minikafka.server.transactions.produced_transaction import ProducedTransaction, serve_verified
from minikafka.server.workers.request_admission import leave
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    RecordError,
)
from minikafka.wire.frame_parts import buffer_of
from minikafka.wire.framing import RequestHeader

_log = logging.getLogger(__name__)

NO_OFFSET = -1
BATCHES_SINCE = 3
"""The first version with magic 2."""
STORAGE_ERROR_SINCE = 4
"""The first version with KAFKA_STORAGE_ERROR. Older clients would give up; NOT_LEADER_FOR_PARTITION makes
them refresh metadata and retry, as in 2.1."""
ZSTD_SINCE = 7
"""The first version with zstd."""
NEW_LEADERS_SINCE = 10
"""The first version with the new leaders of partitions."""
_BATCH = layout.BATCH_FIELDS.struct("size", "magic", "attributes")
"""Size, magic and attributes."""
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics, as Kafka's tools do to repair them."""
_ERRORS_WITH_LOG_START = {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
"""Errors after which a producer checks whether its records were deleted. Without the log start offset in the
response, Java clients retry the batch until it expires."""
ALL_IN_SYNC = -1
"""``acks`` that waits for every in-sync replica."""
LIGHT_BYTES = 4 << 20
LIGHT_PARTITIONS = 500
LIGHT_CONTENT_BYTES = 1 << 20
"""Limits of a request that is served on the receiving thread: size, partitions, and decompressed content.
That takes a few milliseconds; a hand-off to another thread costs up to 0.1 ms."""
HELD_BYTES = 256 << 10
"""The limit of rewritten records before they are appended: the pool does not count the memory of a request
that waits for its next step."""
QUEUE_TIMEOUT_MS = 30_000
"""After this time in the pool's queue clients have timed out."""
MAX_LOGGED_ERRORS = 50
"""The limit of rejected partitions that are logged for one request."""
MAX_PREPARE_ATTEMPTS = 10
"""The limit of attempts to recompress wrappers of magic 0 when other requests append meanwhile."""

Answers = dict[TopicPartition, ProducePartitionResponse]
"""The results of partitions that are known."""


class _DelayedProduce(DelayedRequest):
    """A request that waits for the in-sync replicas (Kafka's DelayedProduce). Keeps no records in memory."""

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: ProduceRequest,
        answers: Answers,
        written: dict[Partition, tuple[int, int]],
    ) -> None:
        super().__init__(broker, context)
        self._request = request
        self._answers = answers
        self._waiting = written
        """Partition -> the last offset written, and the leader epoch."""

    def satisfied(self, key: Hashable | None = None) -> bool:
        for partition, (last_offset, leader_epoch) in list(self._waiting.items()):
            try:
                if not partition.is_committed(last_offset, leader_epoch):
                    continue
            except BrokerError as error:
                reject(self._broker, self._answers, partition.topic_partition, error)
            del self._waiting[partition]
        return not self._waiting

    def complete(self) -> None:
        text = "the in-sync replicas did not acknowledge the messages within the time-out"
        for partition in self._waiting:
            late = BrokerError(ErrorCode.REQUEST_TIMED_OUT, text)
            reject(self._broker, self._answers, partition.topic_partition, late)
        _answer(self._broker, self._context, self._request, self._answers)

    def wait(self) -> None:
        """Reply at once or later."""
        if self.satisfied():
            self.complete()
            return
        self._request = _without_records(self._request)

        def step() -> None:
            if self.satisfied():
                self._broker.answer(self)
                return
            keys: list[Hashable] = [partition.topic_partition for partition in self._waiting]
            deadline_ms = self._broker.clock.monotonic_ms() + max(0, self._request.timeout_ms)
            self._broker.wait(self, keys, deadline_ms)

        self._broker.run(step)
        leave(self._context.exchange)


def _without_records(request: ProduceRequest) -> ProduceRequest:
    """Return the request without its records, so that their memory is released."""
    topics = (
        ProduceTopic(topic.name, tuple(ProducePartition(part.index, b"") for part in topic.partitions))
        for topic in request.topics
    )
    return replace(request, topics=tuple(topics))


def handle(broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
    """Serve one produce request."""
    if request.transactional_id is None or broker.verify_transaction is None:
        begin(broker.pool, context.exchange, serve(broker, context, request))
    else:
        serve_verified(
            broker, context, request, broker.verify_transaction, partial(serve, broker, context, request)
        )


def serve(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    transaction: ProducedTransaction | None = None,
) -> Steps:
    """Serve one produce request: a small one at once, others in steps for the pool.

    ``transaction``: that of the request, verified.
    """
    answers: Answers = {}
    appended = yield from append(broker, context, request, answers, transaction)
    finish(broker, context, request, answers, appended)


def append(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    answers: Answers,
    transaction: ProducedTransaction | None,
) -> Generator[int, None, list[Written]]:
    """Append the records of a request, in steps; return what is in the logs. Errors go to ``answers``."""
    asked = yield from _asked(broker, context.header, request, answers, transaction)
    validation = _Validation(broker, context.version, asked, answers, transaction)
    writer = _Append(broker, transaction, all_in_sync=request.acks == ALL_IN_SYNC, now_ms=validation.now_ms)
    if validation.at_once():
        writer.at_once(validation.valid, answers)
    else:
        began_ms = broker.clock.monotonic_ms()
        yield 0
        yield from validation.steps(broker.clock.monotonic_ms() - began_ms, writer)
    return writer.appended


def finish(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    answers: Answers,
    appended: list[Written],
) -> None:
    """Flush what was appended, and reply, once the replicas have it if the request says so."""
    for written_to in appended:
        answers[written_to.partition.topic_partition] = _accepted(broker, written_to)
    if request.acks == ALL_IN_SYNC and appended:
        written = {
            append_result.partition: (append_result.last_offset, append_result.leader_epoch)
            for append_result in appended
            if answers[append_result.partition.topic_partition].error_code == ErrorCode.NONE
        }
        _DelayedProduce(broker, context, request, answers, written).wait()
    else:
        _answer(broker, context, request, answers)


_Asked = dict[TopicPartition, tuple[Log, memoryview]]


def _asked(
    broker: Broker,
    header: RequestHeader,
    request: ProduceRequest,
    answers: Answers,
    transaction: ProducedTransaction | None,
) -> Generator[int, None, _Asked]:
    """Return the log and the records of each valid partition; reject the others.

    In steps of ``LIGHT_PARTITIONS``.
    """
    asked: _Asked = {}
    seen = 0
    rejected: BrokerError | None = None
    if request.acks not in {-1, 0, 1}:
        rejected = BrokerError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}"
        )
    elif request.transactional_id is not None and transaction is None:
        rejected = _no_transactions()
    unverified = {} if transaction is None else transaction.errors
    for topic in request.topics:
        internal = topic.name in INTERNAL_TOPICS and header.client_id != ADMIN_CLIENT_ID
        for part in topic.partitions:
            seen += 1
            if seen % LIGHT_PARTITIONS == 0:
                yield 0
            topic_partition = TopicPartition(topic.name, part.index)
            try:
                if topic_partition in asked or topic_partition in answers:
                    asked.pop(topic_partition, None)
                    raise BrokerError(ErrorCode.INVALID_REQUEST, f"{topic_partition} appears twice")
                if rejected is not None:
                    raise rejected
                if unverified and topic_partition in unverified:
                    raise unverified[topic_partition]
                if internal:
                    raise BrokerError(
                        ErrorCode.INVALID_TOPIC, f"clients cannot write to internal topic {topic.name}"
                    )
                asked[topic_partition] = broker.partition(topic_partition).log, buffer_of(part.records)
            except BrokerError as error:
                reject(broker, answers, topic_partition, error)
    return asked


class _Validation:
    """Validates a request's records: errors go to ``answers``, valid records to ``valid``."""

    def __init__(
        self,
        broker: Broker,
        version: int,
        asked: _Asked,
        answers: Answers,
        transaction: ProducedTransaction | None,
    ) -> None:
        self._broker = broker
        self._transaction = transaction
        self._version = version
        self._answers = answers
        self._asked = asked
        self._unprepared: dict[TopicPartition, ValidatedRecords] = {}
        self.now_ms = broker.clock.now_ms()
        self.valid: dict[TopicPartition, ValidatedRecords] = {}

    def at_once(self) -> bool:
        """Validate all records unless that takes long. Return False when ``steps`` must continue."""
        asked = self._asked
        if len(asked) > LIGHT_PARTITIONS or sum(len(records) for _, records in asked.values()) > LIGHT_BYTES:
            return False
        newer = self._version >= BATCHES_SINCE
        surveyed = survey([records for _, records in asked.values()]) if newer else repeat(None)
        budget = ContentBudget(LIGHT_CONTENT_BYTES)
        try:
            for (topic_partition, (log, records)), batch in zip(asked.items(), surveyed, strict=False):
                try:
                    limits = self._limits(log, records, batch)
                    valid = validate(records, limits, self.now_ms, batch, budget)
                    if valid.wrappers:
                        self._unprepared[topic_partition] = valid
                        valid = prepare(valid, log.end_offset, budget)
                    self.valid[topic_partition] = valid
                except BrokerError as error:
                    reject(self._broker, self._answers, topic_partition, error)
        except BudgetExceeded:
            return False
        return True

    def steps(self, waited_ms: int, append: _Append) -> Steps:
        """Validate the remaining records, after the request waited ``waited_ms``, and append all.

        Rewritten records are appended before more than ``HELD_BYTES`` are held: a request of a few kilobytes
        may expand to gigabytes.
        """
        late = waited_ms > QUEUE_TIMEOUT_MS
        held_bytes = sum(_held_bytes(valid, self._asked[key][1]) for key, valid in self.valid.items())
        # Computed first: appended partitions leave both, and none may be validated twice.
        unchecked = [key for key in self._asked if key not in self.valid and key not in self._answers]
        for topic_partition in unchecked:
            log, records = self._asked[topic_partition]
            try:
                if late:
                    text = f"waited more than {QUEUE_TIMEOUT_MS} ms behind slow requests: retry"
                    raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, text)
                # Validated records are not validated again: they may have their append time already.
                valid = self._unprepared.get(topic_partition) or (
                    yield from validate_steps(records, self._limits(log, records, None), self.now_ms)
                )
                if valid.wrappers:
                    yield memory_to_prepare(valid)
                self.valid[topic_partition] = valid = prepare(valid, log.end_offset)
                held_bytes += _held_bytes(valid, records)
                del valid
            except BrokerError as error:
                reject(self._broker, self._answers, topic_partition, error)
            if held_bytes > HELD_BYTES:
                yield from append.steps(self.valid, self._answers)
                held_bytes = 0
        yield from append.steps(self.valid, self._answers)

    def _limits(self, log: Log, records: memoryview, batch: PlainBatch | None) -> Limits:
        limits = log.config.message_limits
        if self._version < BATCHES_SINCE:
            return replace(limits, max_magic=1)
        if batch is None and _check_one_batch(records, self._version) and self._transaction is None:
            raise _no_transactions() if self._broker.verify_transaction is None else _no_transactional_id()
        return limits


def _held_bytes(valid: ValidatedRecords, records: memoryview) -> int:
    """Return the memory of rewritten records, beside that of the request."""
    written_anew = 0 if valid.data.obj is records.obj else len(valid.data)
    return written_anew + (0 if valid.prepared is None else len(valid.prepared[1]))


@fast_value
class Written:
    """The outcome of an append to one partition, without the records."""

    partition: Partition
    first_offset: int
    """-1 when there were no records."""
    last_offset: int
    append_time_ms: int
    """-1 unless the topic uses LogAppendTime."""
    must_flush: bool
    leader_epoch: int


class _Append:
    """Appends valid records, in portions, so that the core's lock is held only briefly."""

    def __init__(
        self, broker: Broker, transaction: ProducedTransaction | None, *, all_in_sync: bool, now_ms: int
    ) -> None:
        self._broker = broker
        self._transaction = transaction
        self._all_in_sync = all_in_sync
        self._now_ms = now_ms
        self.appended: list[Written] = []

    def at_once(self, valid: dict[TopicPartition, ValidatedRecords], answers: Answers) -> None:
        """Append a small request's records in one step. Its wrappers are too small to raise OffsetMoved."""
        self._broker.run(lambda: self._append(valid, answers, {}))

    def steps(self, valid: dict[TopicPartition, ValidatedRecords], answers: Answers) -> Steps:
        """Append all of ``valid``, which is empty afterwards. Errors go to ``answers``."""
        tries = 0
        while valid:
            moved: dict[TopicPartition, ValidatedRecords] = {}
            while valid:
                portion = _portion_of(valid)
                self._broker.run(partial(self._append, portion, answers, moved))
                if valid:
                    yield 0
            tries += 1
            for topic_partition, records in moved.items():
                try:
                    if tries == MAX_PREPARE_ATTEMPTS:
                        text = f"too many concurrent appends to {topic_partition}: retry"
                        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, text)
                    yield memory_to_prepare(records)
                    log = self._broker.partition(topic_partition).log
                    valid[topic_partition] = prepare(records, log.end_offset)
                except BrokerError as error:
                    reject(self._broker, answers, topic_partition, error)

    def _append(
        self,
        portion: dict[TopicPartition, ValidatedRecords],
        answers: Answers,
        moved: dict[TopicPartition, ValidatedRecords],
    ) -> None:
        broker, transaction = self._broker, self._transaction
        for topic_partition, records in portion.items():
            try:
                partition = broker.partition(topic_partition)
                guard = None if transaction is None else transaction.guard(topic_partition)
                done = partition.append(
                    records, all_in_sync=self._all_in_sync, now_ms=self._now_ms, guard=guard
                )
                broker.metrics.produced(topic_partition.topic, done.append_info.count, records.size_bytes)
                self.appended.append(_written(partition, done, stamped=records.stamped))
                broker.touch(topic_partition)
            except OffsetMoved:
                moved[topic_partition] = records
            except (BrokerError, StorageError) as error:
                reject(broker, answers, topic_partition, error)


def _portion_of(valid: dict[TopicPartition, ValidatedRecords]) -> dict[TopicPartition, ValidatedRecords]:
    """Take the records to append under one lock: as much as a small request has."""
    portion: dict[TopicPartition, ValidatedRecords] = {}
    size_bytes = 0
    while valid and len(portion) < LIGHT_PARTITIONS and size_bytes < LIGHT_BYTES:
        topic_partition = next(iter(valid))
        portion[topic_partition] = valid.pop(topic_partition)
        size_bytes += portion[topic_partition].size_bytes
    return portion


def _check_one_batch(records: memoryview, version: int) -> bool:
    """Check the batch header of a partition's records before they are read. Return True if it is
    transactional.
    """
    size, magic, attributes = (0, -1, 0)
    if len(records) >= layout.BATCH_HEADER_BYTES:
        size, magic, attributes = _BATCH.unpack_from(records)
    if magic != 2 or size + layout.ENTRY_HEADER_BYTES != len(records):
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"Produce {version} requires exactly one batch of magic 2 for each partition, got "
            f"{len(records)} bytes of another form",
        )
    if attributes & layout.CODEC_MASK == Codec.ZSTD and version < ZSTD_SINCE:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce {version} does not support zstd: use version {ZSTD_SINCE} or later",
        )
    return bool(attributes & layout.TRANSACTIONAL_BIT)


def _no_transactional_id() -> BrokerError:
    return BrokerError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "a transactional batch needs a transactional id in its request",
    )


def _no_transactions() -> BrokerError:
    return BrokerError(
        ErrorCode.UNSUPPORTED_VERSION, "transactions are not supported: remove transactional.id"
    )


def _written(partition: Partition, done: LogAppendResult, *, stamped: bool) -> Written:
    assigned = done.append_info
    return Written(
        partition,
        assigned.first_offset if assigned.count else NO_OFFSET,
        assigned.last_offset,
        assigned.max_timestamp_ms if stamped else NO_TIMESTAMP,
        done.must_flush,
        done.leader_epoch,
    )


def _accepted(broker: Broker, written: Written) -> ProducePartitionResponse:
    partition = written.partition
    topic_partition = partition.topic_partition
    if written.must_flush:
        try:
            end_offset = partition.log.flush()
        except StorageError as error:
            return _error_response(broker, topic_partition, error)

        def flushed() -> None:
            if partition.complete_flush(end_offset):
                broker.touch(topic_partition)

        broker.run(flushed)
    return ProducePartitionResponse(
        index=topic_partition.partition,
        error_code=ErrorCode.NONE,
        base_offset=written.first_offset,
        log_append_time_ms=written.append_time_ms,
        log_start_offset=partition.log.start_offset,
    )


def reject(
    broker: Broker, answers: Answers, topic_partition: TopicPartition, error: BrokerError | StorageError
) -> None:
    """Enter the error of a partition, and log it."""
    answers[topic_partition] = _error_response(
        broker, topic_partition, error, log=len(answers) < MAX_LOGGED_ERRORS
    )


def _error_response(
    broker: Broker, topic_partition: TopicPartition, error: BrokerError | StorageError, *, log: bool = True
) -> ProducePartitionResponse:
    code = error.code if isinstance(error, BrokerError) else ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(error, StorageError):
        broker.log_failed(topic_partition, f"produce to {topic_partition} failed: {error}")
    elif log:
        _log.info("rejected produce to %s: %s", topic_partition, error)
    if topic_partition.topic in broker.metadata_cache.topics:
        broker.metrics.produce_failed(topic_partition.topic)
    partition = broker.partitions.get(topic_partition) if code in _ERRORS_WITH_LOG_START else None
    invalid = error.records if isinstance(error, InvalidRecords) else ()
    return ProducePartitionResponse(
        index=topic_partition.partition,
        error_code=code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        log_start_offset=NO_OFFSET if partition is None else partition.log.start_offset,
        record_errors=tuple(RecordError(*record) for record in invalid),
        error_message=error.detail if isinstance(error, InvalidRecords) else None,
    )


def _for_older_client(answer: ProducePartitionResponse) -> ProducePartitionResponse:
    if answer.error_code != ErrorCode.KAFKA_STORAGE_ERROR:
        return answer
    return replace(answer, error_code=ErrorCode.NOT_LEADER_FOR_PARTITION)


def _answer(broker: Broker, context: RequestContext, request: ProduceRequest, answers: Answers) -> None:
    if request.acks == 0:
        rejected = [answer.error_code for answer in answers.values() if answer.error_code != ErrorCode.NONE]
        if rejected:
            context.exchange.close(f"a produce request with acks=0 failed: {ErrorCode.of(rejected[0]).name}")
        else:
            context.no_reply()
        return
    if context.version < STORAGE_ERROR_SINCE:
        answers = {key: _for_older_client(answer) for key, answer in answers.items()}
    leaders = NewLeaders(broker, context.listener)
    if context.version >= NEW_LEADERS_SINCE:
        answers = {
            key: replace(answer, current_leader=leaders.leader_of(key))
            if answer.error_code == ErrorCode.NOT_LEADER_FOR_PARTITION
            else answer
            for key, answer in answers.items()
        }
    context.reply(
        ProduceResponse(
            node_endpoints=leaders.endpoints(),
            topics=tuple(
                ProduceTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        answers[TopicPartition(topic.name, part.index)] for part in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )
    )
