"""CopyBatches: append batches that this broker has in other logs, in a transaction.

Each batch is read, set back to what its producer sent, numbered for the producer that copies it, and appended
as ``produce`` appends one from the network. So rights, verification of the transaction, sequence numbers,
limits of the topic, replication and quotas are those of a produce request.

The source may be any replica, and above the high watermark: its bytes are compared with what the client says
that was sent. If this broker has no such replica, or other bytes, the partition gets
OPERATION_NOT_ATTEMPTED. Then the client fetches and sends the batch itself, and finds out what is wrong.

Batches are read in portions, so that a small request does not need much memory. Between two steps of the pool
a request holds a portion that nothing else counts. So requests are admitted: their portions have at most
``COPIES_BYTES`` together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.files import Buffer, FileSlice
from minikafka.base.ids import TopicPartition
from minikafka.net.interfaces import Exchange
from minikafka.records.format.batch import MAGIC, set_producer
from minikafka.records.format.stored_batch import (
    SENT_HEADER_AT,
    SENT_HEADER_BYTES,
    SENT_HEADER_END,
    OtherBatch,
    as_sent,
)
from minikafka.records.kernels import layout
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import portions
from minikafka.server.handlers import produce
from minikafka.server.transactions.produced_transaction import ProducedTransaction, serve_verified
from minikafka.server.workers.request_admission import leave
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.wire.api import partitions_of
from minikafka.wire.apis.copy_batches import CopyBatchesRequest, CopyPartition
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic

PORTION_BYTES = 2 << 20
"""The size of batches that are read and appended at a time, unless the first alone is larger. That takes a
few milliseconds.
"""
STEP_PARTITIONS = 500
"""Partitions whose sources are looked up in one step."""

_Row = tuple[TopicPartition, CopyPartition]
_Found = tuple[TopicPartition, CopyPartition, FileSlice]


def handle(broker: Broker, context: RequestContext, request: CopyBatchesRequest) -> None:
    """Serve one CopyBatches request."""
    rows = [(target, row) for target, row in partitions_of(request.topics)]
    headers = _produce_request(request, ((target, _header(row)) for target, row in rows))
    steps = partial(_serve, broker, context, request, rows, headers)
    if broker.verify_transaction is None:
        begin(broker.pool, context.exchange, steps(None))
        return
    serve_verified(broker, context, headers, broker.verify_transaction, steps)


def _serve(
    broker: Broker,
    context: RequestContext,
    request: CopyBatchesRequest,
    rows: Sequence[_Row],
    headers: ProduceRequest,
    transaction: ProducedTransaction | None,
) -> Steps:
    """Look up the batches of a request, and have them copied once there is memory for them. ``headers``: the
    same request without records.
    """
    answers: produce.Answers = {}
    _reject_repeated(broker, rows, answers)
    found: list[_Found] = []
    for number, some in enumerate(portions(rows, STEP_PARTITIONS)):
        if number:
            yield 0
        found += _found(broker, some, answers)
    parts = list(_portions(found))
    if not parts:
        produce.finish(broker, context, headers, answers, [])
        return

    def begin_copies(admitted: Exchange) -> None:
        # Always in the pool: it may run on the thread of another request.
        begin(broker.pool, admitted, copies(admitted))

    def copies(admitted: Exchange) -> Steps:
        try:
            appended = yield from _append(broker, context, request, parts, answers, transaction)
        finally:
            leave(admitted)
        produce.finish(broker, context, headers, answers, appended)

    context.exchange.keep_counted()
    broker.copies.admit(context.exchange, max(map(_size, parts)), begin_copies)


def _append(
    broker: Broker,
    context: RequestContext,
    request: CopyBatchesRequest,
    parts: Iterable[Sequence[_Found]],
    answers: produce.Answers,
    transaction: ProducedTransaction | None,
) -> Generator[int, None, list[produce.Written]]:
    """Copy one portion after the other; return what is in the logs."""
    appended: list[produce.Written] = []
    for portion in parts:
        yield 2 * _size(portion)
        copies = _produce_request(request, _copies(broker, context, portion, answers))
        appended += yield from produce.append(broker, context, copies, answers, transaction)
        del copies
    return appended


def _size(portion: Iterable[_Found]) -> int:
    return sum(source.length for _, _, source in portion)


def _reject_repeated(broker: Broker, rows: Iterable[_Row], answers: produce.Answers) -> None:
    for target, count in Counter(target for target, _ in rows).items():
        if count > 1:
            error = BrokerError(ErrorCode.INVALID_REQUEST, f"{target} appears more than once")
            produce.reject(broker, answers, target, error)


def _found(broker: Broker, rows: Iterable[_Row], answers: produce.Answers) -> Iterator[_Found]:
    """Yield the partitions whose source is in a log here, with the slice of it; reject the others."""
    for target, row in rows:
        if target in answers:
            continue
        try:
            if len(row.sent_header) != SENT_HEADER_BYTES:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"expected a header of {SENT_HEADER_BYTES} bytes, got {len(row.sent_header)}",
                )
            yield target, row, _source(broker, row)
        except BrokerError as error:
            produce.reject(broker, answers, target, error)


def _source(broker: Broker, row: CopyPartition) -> FileSlice:
    at = TopicPartition(row.source_topic, row.source_partition)
    try:
        # Whole, as it is the first entry of the read.
        found = broker.partition(at).log.read(row.source_offset, 1).slice
    except (BrokerError, StorageError) as error:
        raise _not_attempted(at, row, str(error)) from error
    if found is None:
        raise _not_attempted(at, row, "the log ends there")
    return found


def _not_attempted(at: TopicPartition, row: CopyPartition, why: str) -> BrokerError:
    text = f"cannot copy offset {row.source_offset} of {at}: {why}"
    return BrokerError(ErrorCode.OPERATION_NOT_ATTEMPTED, text)


def _portions(found: Iterable[_Found]) -> Iterator[list[_Found]]:
    portion: list[_Found] = []
    size_bytes = 0
    for entry in found:
        if portion and size_bytes + entry[2].length > PORTION_BYTES:
            yield portion
            portion, size_bytes = [], 0
        portion.append(entry)
        size_bytes += entry[2].length
    if portion:
        yield portion


def _copies(
    broker: Broker, context: RequestContext, portion: Iterable[_Found], answers: produce.Answers
) -> Iterator[tuple[TopicPartition, Buffer]]:
    """Yield the batches to append, and count their bytes; reject those that are not what was sent."""
    for target, row, source in portion:
        at = TopicPartition(row.source_topic, row.source_partition)
        try:
            copied = as_sent(source.read(), row.sent_header)
        except (OtherBatch, StorageError) as error:
            produce.reject(broker, answers, target, _not_attempted(at, row, str(error)))
            continue
        set_producer(copied, row.producer_id, row.producer_epoch, row.base_sequence, transactional=True)
        context.record_copied(len(copied))
        yield target, copied


def _header(row: CopyPartition) -> bytes:
    """Return the header of the copy, without its checksum: enough to verify the transaction."""
    header = bytearray(layout.BATCH_HEADER_BYTES)
    if len(row.sent_header) == SENT_HEADER_BYTES:
        header[SENT_HEADER_AT:SENT_HEADER_END] = row.sent_header
        header[layout.MAGIC_AT] = MAGIC
        producer = row.producer_id, row.producer_epoch, row.base_sequence
        set_producer(header, *producer, transactional=True, sealed=False)
    return bytes(header)


def _produce_request(
    request: CopyBatchesRequest, records: Iterable[tuple[TopicPartition, Buffer]]
) -> ProduceRequest:
    """Return the produce request for ``records``, in place of what ``request`` names."""
    topics: dict[str, list[ProducePartition]] = {}
    for target, data in records:
        topics.setdefault(target.topic, []).append(ProducePartition(target.partition, data))
    rows = tuple(ProduceTopic(name, tuple(parts)) for name, parts in topics.items())
    return ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, rows)
