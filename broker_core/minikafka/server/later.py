"""A request that a job of the worker answers, because it needs ZooKeeper, which may be away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any

from minikafka.base.errors import BrokerError, CoordinationLost, ErrorCode, SessionExpired
from minikafka.server.broker import Broker
from minikafka.server.context import RequestContext

_log = logging.getLogger(__name__)

PATIENCE_MS = 20_000
"""How long ZooKeeper may be away: less than the 30 seconds after which most clients give a request up."""


_LATE = BrokerError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper does not answer; a change may still take effect")

Refusal = Callable[[BrokerError], Any]
"""The response in which an error stands for the whole request."""


class _Ticket:
    def __init__(self, context: RequestContext, refusal: Refusal) -> None:
        self._context = context
        self._refusal = refusal
        self.response: Any = None

    def satisfied(self, key: Hashable | None = None) -> bool:
        return self.response is not None

    def complete(self) -> None:
        self._context.reply(self._refusal(_LATE) if self.response is None else self.response)

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)


def answer_by_job(broker: Broker, context: RequestContext, work: Callable[[], Any], refusal: Refusal) -> None:
    """Run ``work`` on the worker and reply with its response.

    The reply is ``refusal`` of the error that ``work`` raises, and of REQUEST_TIMED_OUT after PATIENCE_MS.
    ``work`` is run again after a lost connection, also when the request was already answered.
    """
    ticket = _Ticket(context, refusal)

    def job() -> None:
        try:
            response = work()
        except (CoordinationLost, SessionExpired):
            raise  # the worker runs the job again
        except BrokerError as error:
            response = refusal(error)
        except Exception as error:  # noqa: BLE001 - the client waits for an answer, whatever happened
            _log.exception("unexpected error while serving %s", context.header)
            response = refusal(
                BrokerError(ErrorCode.UNKNOWN, f"{type(error).__name__}; see the broker's log")
            )

        def step() -> None:
            ticket.response = response
            broker.touch(ticket)

        broker.run(step)

    broker.run(lambda: broker.wait(ticket, [ticket], broker.clock.monotonic_ms() + PATIENCE_MS))
    broker.worker.submit(job)
