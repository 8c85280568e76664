"""Producer ids for requests: from the broker's block, or once the next block has come from ZooKeeper.

Requests wait for a block usually for a millisecond, at most ten seconds; not at all while ZooKeeper belongs
to another cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from functools import partial

from minikafka.base.errors import CoordinationLost, InconsistentClusterId, MinikafkaError, SessionExpired
from minikafka.server.core.broker import Broker

_log = logging.getLogger(__name__)

MAX_WAIT_MS = 10_000
"""Clients time out after 30 s or more."""
_WAIT_KEY = "producer ids"
"""The key of the waiting requests."""


class _DelayedProducerId:
    """A request that waits for a producer id."""

    def __init__(
        self, broker: Broker, done: Callable[[int | None], None], abandon: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._done = done
        self._abandon = abandon
        self._producer_id: int | None = None

    def satisfied(self, key: Hashable | None = None) -> bool:
        self._producer_id = self._broker.producer_ids.take()
        return self._producer_id is not None

    def complete(self) -> None:
        self._done(self._producer_id)

    def abandon(self, reason: str) -> None:
        self._abandon(reason)


def take_producer_id(
    broker: Broker, done: Callable[[int | None], None], abandon: Callable[[str], None]
) -> None:
    """Call ``done``, now or later, with an id that was never used; with None if ZooKeeper gives none.

    ``abandon`` is called with the reason instead after an internal error. Neither is called within a step.
    """
    operation = _DelayedProducerId(broker, done, abandon)

    def step() -> None:
        if operation.satisfied():
            broker.answer(operation)
        else:
            broker.wait(operation, [_WAIT_KEY], broker.clock.monotonic_ms() + MAX_WAIT_MS)
            _request_block(broker)

    broker.run(step)


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
