"""ListTransactions: the transactions that this broker coordinates.

Version 1 adds a filter by the time that a transaction has been open. Names of states that do not exist are
returned, as in Kafka: a filter of them alone lets nothing pass. While a partition is being loaded the error
is COORDINATOR_LOAD_IN_PROGRESS, with the transactions of the other partitions.
"""

from __future__ import annotations

from minikafka.server.context import RequestContext
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.server.workers.work_pool import Steps, begin
from minikafka.transactions.states import unknown_states
from minikafka.wire.apis.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ROW_BYTES = 300
"""Estimated memory of a transaction until it is encoded."""


def handle(
    transactions: TransactionCoordinator, context: RequestContext, request: ListTransactionsRequest
) -> None:
    """Serve one ListTransactions request, in the pool: there may be many transactions."""
    begin(transactions.broker.pool, context.exchange, _serve(transactions, context, request))


def _serve(
    transactions: TransactionCoordinator, context: RequestContext, request: ListTransactionsRequest
) -> Steps:
    yield 0
    unknown = unknown_states(request.state_filters)
    error, found = transactions.transactions(
        frozenset(request.state_filters), frozenset(request.producer_id_filters), request.duration_filter
    )
    yield len(found) * ROW_BYTES
    rows = tuple(ListedTransaction(row.transactional_id, row.producer_id, row.state.label) for row in found)
    context.reply(ListTransactionsResponse(0, error, unknown, rows))
