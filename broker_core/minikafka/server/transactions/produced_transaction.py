"""The transaction of a produce request: its batches, and their verification before the first is appended.

Only headers are read here, before the records are validated. A batch of an open transaction needs nothing.
For the others the coordinator is asked (``add_partitions_verifier``). At the append, under the log's mutex,
each batch is checked again with its guard (``log.producers.producer_state``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.log.producers.producer_state import OPEN_TRANSACTION, Guard, VerificationGuard
from minikafka.records.format.batch import MAGIC
from minikafka.records.kernels import layout
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, VerifyTransaction
from minikafka.server.core.deferred_response import portions
from minikafka.server.transactions.add_partitions_verifier import Results, error_for_producer
from minikafka.server.workers.work_pool import Steps, begin, begin_here
from minikafka.wire.apis.produce import ProduceRequest
from minikafka.wire.frame_parts import buffer_of

ABORTABLE_SINCE = 11
"""The first version of Produce with TRANSACTION_ABORTABLE."""
STEP_PARTITIONS = 500
"""Partitions whose verification begins in one step."""

_HEADER = layout.BATCH_FIELDS.struct("magic", "attributes", "producer_id", "producer_epoch", "base_sequence")
_UNVERIFIED = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.GROUP_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR_FOR_GROUP,
}
"""Errors of a verification that may succeed later. Producers get NOT_ENOUGH_REPLICAS instead, which all of
them retry without asking for new metadata."""


class ProducedTransaction:
    """The transactional batches of one produce request."""

    def __init__(self, broker: Broker, request: ProduceRequest, version: int) -> None:
        self._knows_abortable = version >= ABORTABLE_SINCE
        self._verifies = broker.config.verify_transactions
        self._guards: dict[TopicPartition, VerificationGuard] = {}
        self.errors: dict[TopicPartition, BrokerError] = {}
        """The errors of partitions whose records are not to be appended."""
        self.producer = ProducerIdAndEpoch(-1, -1)
        """The producer of the transaction; -1 if no batch is transactional."""
        batches = dict(_transactional_batches(request))
        producers = {producer for producer, _ in batches.values()}
        if len(producers) > 1:
            text = f"the request has batches of several producers: {sorted(producers)}"
            error = BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
            self.errors = dict.fromkeys(batches, error)
        elif producers:
            (self.producer,) = producers
            if self._verifies:
                for portion in portions(list(batches.items()), STEP_PARTITIONS):
                    broker.run(partial(self._start, broker, portion))

    def _start(
        self, broker: Broker, batches: Sequence[tuple[TopicPartition, tuple[ProducerIdAndEpoch, int]]]
    ) -> None:
        now_ms = broker.clock.now_ms()
        for topic_partition, (producer, sequence) in batches:
            try:
                partition = broker.partition(topic_partition)
                guard = partition.start_transaction_verification(*producer, sequence, now_ms)
                self._guards[topic_partition] = guard
            except BrokerError as error:
                self.errors[topic_partition] = error

    @property
    def unverified(self) -> list[TopicPartition]:
        """The partitions for which the coordinator is to be asked."""
        return [key for key, guard in self._guards.items() if guard is not OPEN_TRANSACTION]

    def verified(self, results: Results) -> None:
        """Take the coordinator's results."""
        for topic_partition, result in results.items():
            if result is not ErrorCode.NONE:
                error = error_for_producer(result, knows_abortable=self._knows_abortable)
                text = (
                    f"cannot verify that the partition is in the transaction of producer {self.producer[0]}"
                )
                if error in _UNVERIFIED:
                    text, error = f"{text}: {error.name}, retry", ErrorCode.NOT_ENOUGH_REPLICAS
                self.errors[topic_partition] = BrokerError(error, text)

    def guard(self, topic_partition: TopicPartition) -> Guard:
        """Return the guard with which to append; None if transactions are not verified."""
        return self._guards.get(topic_partition, OPEN_TRANSACTION) if self._verifies else None


def serve_verified(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    verify: VerifyTransaction,
    serve: Callable[[ProducedTransaction], Steps],
) -> None:
    """Serve a request with a transactional id, once the coordinator has verified its batches."""
    transaction = ProducedTransaction(broker, request, context.version)
    unverified = transaction.unverified
    if not unverified:
        begin(broker.pool, context.exchange, serve(transaction))
        return

    def proceed(results: Results) -> None:
        transaction.verified(results)
        begin_here(broker.pool, context.exchange, broker.clock, serve(transaction))

    assert request.transactional_id is not None
    context.exchange.keep_counted()
    verify(request.transactional_id, transaction.producer, unverified, proceed)


def _transactional_batches(
    request: ProduceRequest,
) -> list[tuple[TopicPartition, tuple[ProducerIdAndEpoch, int]]]:
    """Return the producer and the first sequence number of each transactional batch. What is no batch of
    magic 2 is left out; its validation refuses it.
    """
    found = []
    for topic in request.topics:
        for part in topic.partitions:
            records = buffer_of(part.records)
            if len(records) >= layout.BATCH_HEADER_BYTES:
                magic, attributes, producer_id, epoch, sequence = _HEADER.unpack_from(records)
                if magic == MAGIC and attributes & layout.TRANSACTIONAL_BIT:
                    producer = ProducerIdAndEpoch(producer_id, epoch)
                    found.append((TopicPartition(topic.name, part.index), (producer, sequence)))
    return found
