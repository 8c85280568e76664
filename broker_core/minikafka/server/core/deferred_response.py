"""A request that jobs of the worker answer, because it needs ZooKeeper, which may be away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from minikafka.base.errors import (
    BrokerError,
    CoordinationLost,
    ErrorCode,
    InconsistentClusterId,
    SessionExpired,
)
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.workers.work_pool import Steps, begin_here

_log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_MS = 20_000
"""How long ZooKeeper may be away: less than the 30 seconds after which most clients give a request up."""

_LATE = BrokerError(
    ErrorCode.REQUEST_TIMED_OUT,
    f"ZooKeeper has not done it within {PATIENCE_MS // 1_000} s; what was begun may still take effect",
)

Refusal = Callable[[BrokerError], Any]
"""The response in which an error stands for the whole request."""


class _Ticket:
    def __init__(self, broker: Broker, context: RequestContext, refusal: Refusal, answer_bytes: int) -> None:
        self._broker = broker
        self._context = context
        self._refusal = refusal
        self._answer_bytes = answer_bytes
        self.response: Callable[[], Any] | None = None

    def satisfied(self, key: Hashable | None = None) -> bool:
        return self.response is not None

    def complete(self) -> None:
        begin_here(self._broker.pool, self._context.exchange, self._broker.clock, self._reply())

    def _reply(self) -> Steps:
        if self._answer_bytes > 0:
            yield self._answer_bytes
        self._context.reply(self._refusal(_LATE) if self.response is None else self.response())

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)


def portions(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """``items`` in order, ``size`` in each portion, fewer in the last: one portion is one piece of work."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def answer_by_jobs(
    broker: Broker,
    context: RequestContext,
    items: Sequence[T],
    work: Callable[[T], None],
    response: Callable[[], Any],
    refusal: Refusal,
    answer_bytes: int = 0,
    elsewhere: ErrorCode = ErrorCode.REQUEST_TIMED_OUT,
) -> None:
    """Do ``work`` for each of ``items`` on the worker, in turn with other requests, and reply with
    ``response``, which takes about ``answer_bytes`` of memory.

    The reply is ``refusal`` of the first error that ``work`` raises, and of REQUEST_TIMED_OUT after
    PATIENCE_MS; nothing more is begun then. ``work`` is run again after a lost connection, also then.
    ``elsewhere`` is the error where ZooKeeper is another cluster's.
    """
    ticket = _Ticket(broker, context, refusal, answer_bytes)
    deadline_ms = broker.clock.monotonic_ms() + PATIENCE_MS
    done = 0
    begun = False

    def answer(made: Callable[[], Any]) -> None:
        def step() -> None:
            ticket.response = made
            broker.touch(ticket)

        broker.run(step)

    def job(is_over: Callable[[], bool]) -> bool:
        nonlocal done, begun
        try:
            while done < len(items):
                if broker.clock.monotonic_ms() >= deadline_ms and not begun:
                    raise _LATE
                begun = True
                work(items[done])
                done += 1
                begun = False
                if is_over() and done < len(items):
                    return False
            answer(response)
        except (CoordinationLost, SessionExpired):
            raise  # the worker runs the job again
        except BrokerError as error:
            refused = error.with_traceback(None)
            answer(lambda: refusal(refused))
        except InconsistentClusterId as error:  # the log has it already
            of_another = BrokerError(elsewhere, str(error))
            answer(lambda: refusal(of_another))
        except Exception as error:  # noqa: BLE001 - the client waits for an answer, whatever happened
            _log.exception("unexpected error while serving %s", context.header)
            unexpected = BrokerError(ErrorCode.UNKNOWN, f"{type(error).__name__}; see the broker's log")
            answer(lambda: refusal(unexpected))
        return True

    # What waits keeps what the request brought.
    context.exchange.keep_counted()
    broker.run(lambda: broker.wait(ticket, [ticket], deadline_ms))
    broker.request_jobs.submit(job)
