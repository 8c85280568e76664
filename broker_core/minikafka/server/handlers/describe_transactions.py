"""DescribeTransactions: the states and the partitions of transactions that this broker coordinates.

A repeated id is answered once. An id that does not exist, or has expired, is TRANSACTIONAL_ID_NOT_FOUND.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import numbers_by_topic
from minikafka.server.context import RequestContext
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.server.workers.work_pool import Steps
from minikafka.wire.apis.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

ROW_BYTES = 300
"""Estimated memory of a transaction or a partition until it is encoded."""


def handle(
    transactions: TransactionCoordinator, context: RequestContext, request: DescribeTransactionsRequest
) -> Steps:
    """Serve one DescribeTransactions request."""
    rows: list[DescribedTransaction] = []
    parts = 0
    for transactional_id in dict.fromkeys(request.transactional_ids):
        yield parts * ROW_BYTES
        row, partitions = _described(transactions, transactional_id)
        parts += 1 + partitions
        rows.append(row)
    context.reply(DescribeTransactionsResponse(0, tuple(rows)))


def _described(
    transactions: TransactionCoordinator, transactional_id: str
) -> tuple[DescribedTransaction, int]:
    """Return the row of a transaction, and the number of its partitions."""
    found = transactions.describe(transactional_id)
    if found.error is not ErrorCode.NONE:
        return DescribedTransaction(found.error, transactional_id, "", 0, 0, 0, 0, ()), 0
    topics = numbers_by_topic(found.partitions)
    row = DescribedTransaction(
        ErrorCode.NONE,
        transactional_id,
        found.state.label,
        found.timeout_ms,
        found.start_ms,
        found.producer_id,
        found.producer_epoch,
        tuple(DescribedTransactionTopic(topic, tuple(numbers)) for topic, numbers in topics.items()),
    )
    return row, len(found.partitions)
