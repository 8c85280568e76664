"""InitProducerId: a producer id that was never used, with epoch 0.

Any broker serves it. A broker that has used up its block of ids takes the next one from ZooKeeper; requests
wait meanwhile, usually for a millisecond, at most ten seconds. Then, or at once while ZooKeeper belongs to
another cluster, they get COORDINATOR_LOAD_IN_PROGRESS, which clients retry (as with 3.x brokers without ids).

From version 3 on a request may have the producer's id and epoch. As in Kafka, a producer without a
transactional id gets a new id all the same; only one of the two is INVALID_REQUEST.

A transactional id gets UNSUPPORTED_VERSION: transactions are not supported.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from functools import partial

from minikafka.base.errors import (
    CoordinationLost,
    ErrorCode,
    InconsistentClusterId,
    MinikafkaError,
    SessionExpired,
)
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, DelayedRequest
from minikafka.wire.apis.init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_log = logging.getLogger(__name__)

MAX_WAIT_MS = 10_000
"""Clients time out after 30 s or more."""
_WAIT_KEY = "producer ids"
"""The key of the waiting requests."""


class _DelayedInitProducerId(DelayedRequest):
    """A request that waits for a producer id."""

    _producer_id: int | None = None

    def satisfied(self, key: Hashable | None = None) -> bool:
        self._producer_id = self._broker.producer_ids.take()
        return self._producer_id is not None

    def complete(self) -> None:
        if self._producer_id is None:
            _answer(self._context, ErrorCode.GROUP_LOAD_IN_PROGRESS)
        else:
            _answer(self._context, ErrorCode.NONE, self._producer_id, 0)


def handle(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> None:
    """Serve one InitProducerId request; reply when there is an id."""
    if request.transactional_id is not None:
        _log.warning(
            "rejected transactional producer %s: transactions are not supported; remove transactional.id to "
            "use an idempotent producer",
            request.transactional_id,
        )
        _answer(context, ErrorCode.UNSUPPORTED_VERSION)
        return
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        _answer(context, ErrorCode.INVALID_REQUEST)
        return
    operation = _DelayedInitProducerId(broker, context)

    def step() -> None:
        if operation.satisfied():
            broker.answer(operation)
        else:
            broker.wait(operation, [_WAIT_KEY], broker.clock.monotonic_ms() + MAX_WAIT_MS)
            _request_block(broker)

    broker.run(step)


def _answer(
    context: RequestContext,
    code: ErrorCode,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = NO_PRODUCER_EPOCH,
) -> None:
    context.reply(
        InitProducerIdResponse(
            throttle_time_ms=0, error_code=code, producer_id=producer_id, producer_epoch=epoch
        )
    )


def _request_block(broker: Broker) -> None:
    """Request the next block, once. Called within a step."""
    if not broker.producer_ids.being_fetched:
        broker.producer_ids.being_fetched = True
        broker.after(lambda: broker.worker.submit(partial(_fetch, broker)))


def _fetch(broker: Broker) -> None:
    """Allocate a block of producer ids. A job: the worker repeats it after a lost connection."""
    try:
        doubtful = broker.producer_ids.doubtful
        block = broker.zk_client.take_producer_ids(broker.highest_producer_id(), doubtful=doubtful)
    except (CoordinationLost, SessionExpired):
        raise
    except MinikafkaError as error:
        if not isinstance(error, InconsistentClusterId):  # logged already
            _log.error("failed to allocate a block of producer ids: %s", error)
        block = range(0)

    def arrived() -> None:
        broker.producer_ids.add(block)
        broker.touch(_WAIT_KEY)
        left = broker.purgatory.tickets_of(_WAIT_KEY)
        if block and left:
            _request_block(broker)  # more requests wait than the block has ids
            return
        for operation in left:
            broker.purgatory.remove(operation)
            broker.answer(operation)

    broker.run(arrived)
