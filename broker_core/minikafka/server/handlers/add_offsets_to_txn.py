"""AddOffsetsToTxn: add the committed offsets of a group to a transaction.

They are a partition of ``__consumer_offsets``, which the transaction coordinator adds as any other. From
version 2 on a fenced producer gets PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch
from minikafka.server.context import RequestContext
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.transactions.decisions import Answer
from minikafka.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_SINCE = 2
"""The first version that knows PRODUCER_FENCED."""


def handle(
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
) -> None:
    """Serve one AddOffsetsToTxn request."""
    if not request.group_id:
        context.reply(AddOffsetsToTxnResponse(0, ErrorCode.INVALID_GROUP_ID))
        return

    def reply(answer: Answer) -> None:
        context.reply(AddOffsetsToTxnResponse(0, answer.error_at(context.version, _FENCED_SINCE)))

    transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [groups.partition_of(request.group_id)],
        reply,
    )
