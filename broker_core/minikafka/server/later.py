"""A request that a job of the worker answers, because it needs ZooKeeper, which may be away."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext

PATIENCE_MS = 20_000
"""How long ZooKeeper may be away: less than the 30 seconds after which most clients give a request up."""


class _Ticket:
    def __init__(self, context: RequestContext, late: Callable[[], Any]) -> None:
        self._context = context
        self._late = late
        self.response: Any = None

    def satisfied(self, key: Hashable | None = None) -> bool:
        return self.response is not None

    def complete(self) -> None:
        self._context.reply(self._late() if self.response is None else self.response)

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)


def answer_by_job(
    broker: Broker, context: RequestContext, work: Callable[[], Any], late: Callable[[], Any]
) -> None:
    """Reply with what ``work`` gives, on the worker; with what ``late`` gives after PATIENCE_MS.

    ``work`` is run again after a lost connection, also when the answer was late.
    """
    ticket = _Ticket(context, late)

    def job() -> None:
        response = work()

        def step() -> None:
            ticket.response = response
            broker.touch(ticket)

        broker.run(step)

    broker.run(lambda: broker.wait(ticket, [ticket], broker.clock.monotonic_ms() + PATIENCE_MS))
    broker.worker.submit(job)
