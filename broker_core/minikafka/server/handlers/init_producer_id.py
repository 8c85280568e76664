"""InitProducerId: an id and an epoch for a producer.

Without a transactional id, any broker answers with an id that was never used and epoch 0. If ZooKeeper gives
no ids (``producer_id_allocation``), the response is COORDINATOR_LOAD_IN_PROGRESS, which clients retry (as
with 3.x brokers without ids). With a transactional id, the transaction coordinator answers: the producer
keeps its id and gets the next epoch, and a transaction that is open is aborted first, with
CONCURRENT_TRANSACTIONS for the client to retry.

From version 3 on a request may have the producer's id and epoch (KIP-360); only one of the two is
INVALID_REQUEST. As in Kafka, a producer without a transactional id gets a new id all the same. From version 4
on a fenced producer gets PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH.

In a cluster that may have brokers of 0.10.1, a transactional id gets UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import logging

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch
from minikafka.server.context import RequestContext
from minikafka.server.core.producer_id_allocation import take_producer_id
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.transactions.decisions import Answer
from minikafka.wire.apis.init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_log = logging.getLogger(__name__)

_FENCED_SINCE = 4
"""The first version that knows PRODUCER_FENCED."""


def handle(
    transactions: TransactionCoordinator, context: RequestContext, request: InitProducerIdRequest
) -> None:
    """Serve one InitProducerId request; reply when there is an id."""

    def reply(answer: Answer) -> None:
        error = answer.error_at(context.version, _FENCED_SINCE)
        context.reply(InitProducerIdResponse(0, error, answer.producer_id, answer.producer_epoch))

    def answer_id(producer_id: int | None) -> None:
        if producer_id is None:
            reply(Answer(ErrorCode.GROUP_LOAD_IN_PROGRESS))
        else:
            reply(Answer(ErrorCode.NONE, producer_id, 0))

    transactional_id = request.transactional_id
    if transactional_id is not None and not transactions.is_served:
        _log.warning(
            "rejected transactional producer %s: transactions are not supported; remove transactional.id to "
            "use an idempotent producer",
            transactional_id,
        )
        reply(Answer(ErrorCode.UNSUPPORTED_VERSION))
    elif (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        reply(Answer(ErrorCode.INVALID_REQUEST))
    elif transactional_id is None:
        take_producer_id(transactions.broker, answer_id, context.exchange.close)
    else:
        expected = None
        if request.producer_id != NO_PRODUCER_ID:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        transactions.init_producer_id(
            transactional_id, request.transaction_timeout_ms, expected, reply, context.exchange.close
        )
