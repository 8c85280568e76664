"""InitProducerId: an id that no producer had before, with epoch 0.

Behaviour: any broker answers. One that has used up its block of ids takes the next one from ZooKeeper, and
the requests that come meanwhile wait: a millisecond mostly, or until ZooKeeper is back; after ten seconds
they get COORDINATOR_LOAD_IN_PROGRESS, which clients try again (as brokers of 3.x do while they have no ids);
so they do at once while ZooKeeper holds another cluster.
A transactional id is refused with UNSUPPORTED_VERSION: there are no transactions here.
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
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_log = logging.getLogger(__name__)

WAIT_MOST_MS = 10_000
"""Clients give a request up after 30 s or more."""
_NEWS = "producer ids"
"""What waiting requests are filed under."""


class _Ticket:
    """A request that gets an id, or has to wait for one."""

    def __init__(self, broker: Broker, context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        self._producer_id: int | None = None

    def satisfied(self, key: Hashable | None = None) -> bool:
        self._producer_id = self._broker.producer_ids.take()
        return self._producer_id is not None

    def complete(self) -> None:
        if self._producer_id is None:
            _answer(self._context, ErrorCode.GROUP_LOAD_IN_PROGRESS)
        else:
            _answer(self._context, ErrorCode.NONE, self._producer_id, 0)

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)


def handle(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> None:
    """Serve one request, when there is an id."""
    if request.transactional_id is not None:
        _log.warning(
            "producer %s wants transactions, which this broker does not have: without transactional.id it "
            "can be idempotent",
            request.transactional_id,
        )
        _answer(context, ErrorCode.UNSUPPORTED_VERSION)
        return
    ticket = _Ticket(broker, context)

    def step() -> None:
        if ticket.satisfied():
            broker.answer(ticket)
        else:
            broker.wait(ticket, [_NEWS], broker.clock.monotonic_ms() + WAIT_MOST_MS)
            _want(broker)

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


def _want(broker: Broker) -> None:
    """From within a step: have the next block fetched, once."""
    if not broker.producer_ids.being_fetched:
        broker.producer_ids.being_fetched = True
        broker.after(lambda: broker.worker.submit(partial(_fetch, broker)))


def _fetch(broker: Broker) -> None:
    """A job of the worker, which does it again after a lost connection."""
    try:
        doubtful = broker.producer_ids.doubtful
        block = broker.registrar.take_producer_ids(broker.highest_producer_id(), doubtful=doubtful)
    except (CoordinationLost, SessionExpired):
        raise
    except MinikafkaError as error:
        if not isinstance(error, InconsistentClusterId):  # the log has that already
            _log.error("there are no ids for producers: %s", error)
        block = range(0)

    def arrived() -> None:
        broker.producer_ids.add(block)
        broker.touch(_NEWS)
        left = broker.waiting.tickets_of(_NEWS)
        if block and left:
            _want(broker)  # more have come than a block has ids
            return
        for ticket in left:
            broker.waiting.remove(ticket)
            broker.answer(ticket)

    broker.run(arrived)
