"""EndTxn: commit or abort a transaction.

The response is sent as soon as every in-sync replica of ``__transaction_state`` has the outcome; the markers
follow. From version 2 on a fenced producer gets PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from minikafka.base.ids import ProducerIdAndEpoch
from minikafka.server.context import RequestContext
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.transactions.decisions import Answer
from minikafka.wire.apis.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_SINCE = 2
"""The first version that knows PRODUCER_FENCED."""


def handle(transactions: TransactionCoordinator, context: RequestContext, request: EndTxnRequest) -> None:
    """Serve one EndTxn request."""

    def reply(answer: Answer) -> None:
        context.reply(EndTxnResponse(0, answer.error_at(context.version, _FENCED_SINCE)))

    transactions.end_txn(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        reply,
        commit=request.committed,
    )
