"""AddPartitionsToTxn: add partitions to a transaction, or verify that they are in it.

A producer adds partitions before it writes to them: all of them, or none. If one is unknown, or of an
internal topic, the others get OPERATION_NOT_ATTEMPTED. From version 4 on, a broker asks for several
transactions, each to be added to or verified (KIP-890); what is verified was added, and need not be known to
this broker yet. From version 2 on a fenced producer gets PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS, ProducerIdAndEpoch, TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.server.workers.work_pool import Steps
from minikafka.transactions.decisions import Answer
from minikafka.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

PARTITION_BYTES = 500
"""Estimated memory of a partition until it is answered."""
_FENCED_SINCE = 2
"""The first version that knows PRODUCER_FENCED."""
_SEVERAL_TRANSACTIONS_SINCE = 4

_Errors = dict[TopicPartition, ErrorCode]


def handle(
    coordinator: TransactionCoordinator, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps:
    """Serve one AddPartitionsToTxn request."""
    transactions = request.transactions
    if context.version < _SEVERAL_TRANSACTIONS_SINCE:
        transactions = (
            AddPartitionsToTxnTransaction(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                verify_only=False,
                topics=request.topics,
            ),
        )
    total = sum(len(topic.partitions) for row in transactions for topic in row.topics)
    results = _Results(coordinator, context, transactions)
    for number, transaction in enumerate(transactions):
        yield total * PARTITION_BYTES
        results.begin(number, transaction)
    if not transactions:
        context.reply(AddPartitionsToTxnResponse(0))


class _Results:
    """The results of all transactions of a request, which is answered with the last one."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        context: RequestContext,
        transactions: Sequence[AddPartitionsToTxnTransaction],
    ) -> None:
        self._coordinator = coordinator
        self._context = context
        self._transactions = transactions
        self._errors: dict[int, _Errors] = {}

    def begin(self, number: int, transaction: AddPartitionsToTxnTransaction) -> None:
        """Serve one transaction, now or later."""
        partitions = list(dict.fromkeys(_partitions(transaction.topics)))
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        refused = {} if transaction.verify_only else self._refused(partitions)

        def added(answer: Answer) -> None:
            error = answer.error_at(self._context.version, _FENCED_SINCE)
            self._add(number, dict.fromkeys(partitions, error))

        if refused:
            others = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            self._add(number, {**others, **refused})
        elif transaction.verify_only:
            errors = self._coordinator.verify_partitions(transaction.transactional_id, producer, partitions)
            self._add(number, errors)
        else:
            self._coordinator.add_partitions(transaction.transactional_id, producer, partitions, added)

    def _refused(self, partitions: Iterable[TopicPartition]) -> _Errors:
        """Return the errors of the partitions that cannot be in a transaction."""
        errors: _Errors = {}
        is_client = self._context.version < _SEVERAL_TRANSACTIONS_SINCE
        for topic_partition in partitions:
            if is_client and topic_partition.topic in INTERNAL_TOPICS:
                errors[topic_partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif self._coordinator.broker.leadership(topic_partition) is None:
                errors[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return errors

    def _add(self, number: int, errors: _Errors) -> None:
        def step() -> bool:
            self._errors[number] = errors
            return len(self._errors) == len(self._transactions)

        if self._coordinator.broker.run(step):
            self._context.answer(self._response)

    def _response(self) -> AddPartitionsToTxnResponse:
        rows = tuple(
            _topic_results(row.topics, self._errors[number]) for number, row in enumerate(self._transactions)
        )
        if self._context.version < _SEVERAL_TRANSACTIONS_SINCE:
            return AddPartitionsToTxnResponse(0, results_by_topic=rows[0])
        return AddPartitionsToTxnResponse(
            0,
            results_by_transaction=tuple(
                AddPartitionsToTxnResult(transaction.transactional_id, row)
                for transaction, row in zip(self._transactions, rows, strict=True)
            ),
        )


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)


def _topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: _Errors
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            topic.name,
            tuple(
                AddPartitionsToTxnPartitionResult(number, errors[TopicPartition(topic.name, number)])
                for number in topic.partitions
            ),
        )
        for topic in topics
    )
