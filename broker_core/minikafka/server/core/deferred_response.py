"""Responses to requests that need ZooKeeper, which may be unreachable: jobs of the worker build them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from minikafka.base.errors import (
    BrokerError,
    CoordinationLost,
    ErrorCode,
    InconsistentClusterId,
    SessionExpired,
    without_frames,
)
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, DelayedRequest
from minikafka.server.workers.work_pool import Steps, begin_here

_log = logging.getLogger(__name__)

T = TypeVar("T")
Item = TypeVar("Item", bound=Hashable)

PATIENCE_MS = 20_000
"""The time that ZooKeeper may be unreachable: less than the 30 s after which most clients time out."""

_LATE = BrokerError(
    ErrorCode.REQUEST_TIMED_OUT,
    f"timed out after {PATIENCE_MS // 1_000} s waiting for ZooKeeper; the request may still take effect",
)

Refusal = Callable[[BrokerError], Any]
"""Builds the response in which an error applies to the whole request."""


class _DelayedResponse(DelayedRequest):
    """The delayed request; ``response`` is set when the jobs are done."""

    def __init__(self, broker: Broker, context: RequestContext, refusal: Refusal, answer_bytes: int) -> None:
        super().__init__(broker, context)
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


OFFSETS_PER_JOB = 100
"""The number of offsets in ZooKeeper in one job, whose reads or writes are in flight together."""


def portions(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return ``items`` in order, in portions of ``size``; the last may have fewer."""
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
    """Do ``work`` for each of ``items`` on the worker, in turn with other requests, and send ``response``.

    The response takes about ``answer_bytes`` of memory. After the first error that ``work`` raises, or
    REQUEST_TIMED_OUT after PATIENCE_MS, the response is ``refusal`` of the error, and no further item is
    started. ``work`` is run again after a lost connection, also after the time-out. ``elsewhere`` is the
    error code if ZooKeeper holds another cluster.
    """
    operation = _DelayedResponse(broker, context, refusal, answer_bytes)
    deadline_ms = broker.clock.monotonic_ms() + PATIENCE_MS
    done = 0
    started = False

    def answer(made: Callable[[], Any]) -> None:
        def step() -> None:
            operation.response = made
            broker.touch(operation)

        broker.run(step)

    def job(is_over: Callable[[], bool]) -> bool:
        nonlocal done, started
        try:
            while done < len(items):
                if broker.clock.monotonic_ms() >= deadline_ms and not started:
                    raise _LATE
                started = True
                work(items[done])
                done += 1
                started = False
                if is_over() and done < len(items):
                    return False
            answer(response)
        except (CoordinationLost, SessionExpired):
            raise  # the worker runs the job again
        except BrokerError as error:
            refused = without_frames(error)
            answer(lambda: refusal(refused))
        except InconsistentClusterId as error:  # logged already
            of_another = BrokerError(elsewhere, str(error))
            answer(lambda: refusal(of_another))
        except Exception as error:  # noqa: BLE001 - the client waits for a response in any case
            _log.exception("unexpected error while serving %s", context.header)
            unexpected = BrokerError(ErrorCode.UNKNOWN, f"{type(error).__name__}; see the broker's log")
            answer(lambda: refusal(unexpected))
        return True

    # A delayed request still refers to the memory of its frame.
    context.exchange.keep_counted()
    broker.run(lambda: broker.wait(operation, [operation], deadline_ms))
    broker.request_jobs.submit(job)


def answer_each(
    broker: Broker,
    context: RequestContext,
    items: Sequence[Item],
    work: Callable[[Item], None],
    response: Callable[[Mapping[Item, BrokerError]], Any],
) -> None:
    """Do ``work`` as ``answer_by_jobs``, but a BrokerError of it fails only its item.

    ``response`` gets the errors by item. It is sent at once without items.
    """
    failed: dict[Item, BrokerError] = {}

    def work_alone(item: Item) -> None:
        try:
            work(item)
        except BrokerError as error:
            failed[item] = without_frames(error)

    if items:
        answer_by_jobs(
            broker,
            context,
            items,
            work_alone,
            lambda: response(failed),
            lambda error: response(dict.fromkeys(items, error)),
        )
    else:
        context.reply(response({}))
