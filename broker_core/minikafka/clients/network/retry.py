"""Retries: deadlines, back-off, the record of failed attempts, and the loop that repeats an operation.

No client waits forever: every operation has a ``Deadline`` and every pause goes through a ``Waiter``, so
that tests control both and that closing a client ends its pauses at once.
"""

from __future__ import annotations

import contextlib
import copy
import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    NoResponse,
    RemoteWireError,
)
from minikafka.base.text import counted
from minikafka.clients.network.response_errors import is_retriable

T = TypeVar("T")

UNKNOWN_TOPIC_TIMEOUT_MS = 5_000
"""The time for which a topic that no broker knows is requested again. The metadata of a new topic reaches
all brokers within it."""


SHORT_TIMEOUT_MS = 1_000
"""A time without a response that says less than another error of the same broker."""


class Waiter(Protocol):
    """Pauses between two attempts of a client."""

    def wait(self, milliseconds: int) -> None:
        """Return after ``milliseconds``, or earlier when the client is closed."""

    def stop(self) -> None:
        """End all pauses, current and future ones."""


class EventWaiter:
    """A waiter in real time.

    A signal may end ``wait`` anywhere. ``threading.Event`` could then keep its lock, and ``stop`` on the same
    thread would wait for ever; a ``SimpleQueue`` has no lock that a thread holds.
    """

    def __init__(self) -> None:
        self._stops: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopped = False

    def wait(self, milliseconds: int) -> None:
        if self._stopped:
            return
        with contextlib.suppress(queue.Empty):
            self._stops.get(timeout=max(0, milliseconds) / 1000)
            self._stops.put(None)  # for the threads that wait, too

    def stop(self) -> None:
        self._stopped = True
        self._stops.put(None)


class Deadline:
    """A point on the monotonic scale of a clock, ``timeout_ms`` after its creation."""

    __slots__ = ("_clock", "_end_ms", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + timeout_ms
        self.timeout_ms = timeout_ms

    def remaining_ms(self) -> int:
        """Return the milliseconds left, 0 once the deadline has passed."""
        return max(0, self._end_ms - self._clock.monotonic_ms())

    @property
    def expired(self) -> bool:
        """True when the deadline has passed."""
        return self.remaining_ms() == 0

    def at_most(self, milliseconds: int) -> int:
        """Return ``milliseconds``, or the time left if that is less."""
        return min(milliseconds, self.remaining_ms())


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first_ms`` up to ``longest_ms``."""

    first_ms: int = 50
    longest_ms: int = 1_000

    def delay_ms(self, failures: int) -> int:
        """Return the pause after ``failures`` failed attempts in a row (0 after none)."""
        if failures <= 0:
            return 0
        # The shift is bounded so that a long outage does not build huge integers.
        return min(self.longest_ms, self.first_ms << min(failures - 1, 30))


class FailedAttempts:
    """The reasons why an operation's attempts failed, for the message of its error: the last at each broker.

    An error that tells the same of a smaller operation, such as a look-up of metadata, counts as its reasons.
    """

    SHOWN = 6

    def __init__(self) -> None:
        self.count = 0
        self.advice = ""
        """The newest advice of the errors, such as what to check. An error of another kind removes it."""
        self._reasons: dict[str, MinikafkaError] = {}

    @classmethod
    def of(cls, error: MinikafkaError) -> FailedAttempts:
        """Return one failed attempt."""
        failed = cls()
        failed.add(error)
        return failed

    def add(self, error: MinikafkaError) -> None:
        """Count one failed attempt."""
        self.count += 1
        self.advice = error.advice or (self.advice if isinstance(error, NetworkError) else "")
        # A copy has no traceback, whose frames would hold everything that the attempt had.
        for reason in error.reasons or (copy.copy(error),):
            place = reason.peer or str(reason)
            known = self._reasons.pop(place, None)
            # The time left before a deadline may be too short for any response.
            tells_less = isinstance(reason, NoResponse) and reason.timeout_ms < SHORT_TIMEOUT_MS
            # Moved to the end: the newest reasons are worth showing.
            self._reasons[place] = known if known is not None and tells_less else reason

    def error(self, text: str, last: MinikafkaError | None = None) -> BrokerError | NetworkError:
        """Return the error of an operation: ``text``, which says that it failed, the reasons, and the advice.

        It has the code of ``last``, the error of the last attempt.
        """
        if not isinstance(last, BrokerError):
            return self.network_error(text)
        error = BrokerError(last.code, self._joined(text, last.code))
        error.reasons = tuple(self._reasons.values())
        return error

    def network_error(self, text: str) -> NetworkError:
        """Return the error of an operation, as ``error``, without a code."""
        error = NetworkError(self._joined(text), advice=self.advice)
        error.reasons = tuple(self._reasons.values())
        return error

    def __str__(self) -> str:
        return self._joined("") or "no attempt was made"

    def _joined(self, text: str, code: ErrorCode | None = None) -> str:
        reasons = [_reason_text(reason, code) for reason in self._reasons.values()]
        hidden = len(reasons) - self.SHOWN
        if hidden > 0:
            reasons = [*reasons[hidden:], f"and {counted(hidden, 'more reason')}"]
        return ": ".join(part for part in (text, "; ".join(reasons)) if part)


def unreachable_error(error: MinikafkaError) -> NetworkError:
    """Return the error of what could not be done as no broker was reached, for the reasons of ``error``."""
    return FailedAttempts.of(error).network_error("no broker could be reached")


def _reason_text(reason: MinikafkaError, code: ErrorCode | None) -> str:
    """Return the text of one reason; without its code if the message begins with that."""
    if isinstance(reason, BrokerError) and reason.code is code:
        return reason.detail or reason.code.name
    return reason.problem if isinstance(reason, NetworkError) else str(reason)


class Retrier:
    """Repeats the operations of one client with back-off, each until its deadline."""

    def __init__(
        self,
        clock: Clock,
        waiter: Waiter,
        *,
        timeout_ms: int = 30_000,
        unknown_topic_timeout_ms: int = UNKNOWN_TOPIC_TIMEOUT_MS,
        backoff: Backoff = Backoff(100, 1_000),
    ) -> None:
        self.clock = clock
        self.waiter = waiter
        self.backoff = backoff
        self.timeout_ms = timeout_ms
        self.closed = False
        self._unknown_topic_timeout_ms = unknown_topic_timeout_ms

    def deadline(self, timeout_ms: int | None = None) -> Deadline:
        """Return a deadline on this clock, after ``timeout_ms`` of the retrier by default."""
        return Deadline(self.clock, self.timeout_ms if timeout_ms is None else timeout_ms)

    def run(
        self,
        failure: str,
        deadline: Deadline,
        attempt: Callable[[], T],
        advice: Callable[[], str] | None = None,
    ) -> T:
        """Return the result of ``attempt``, repeated with back-off while its error is retriable.

        Raises the last error; after the deadline, that of ``FailedAttempts``, which begins with ``failure``
        (such as "looking up topic 't' failed") and the time, and ends with the advice of the errors or else
        ``advice()``.
        An unknown topic or partition is retried for ``unknown_topic_timeout_ms`` at most.
        """
        failed = FailedAttempts()
        unknown_topic_deadline = self.deadline(deadline.at_most(self._unknown_topic_timeout_ms))
        while True:
            try:
                return attempt()
            except (NetworkError, BrokerError, RemoteWireError) as error:
                if self.closed or not is_retriable(error):
                    raise
                failed.add(error)
                unknown = (
                    isinstance(error, BrokerError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                delay_ms = self.backoff.delay_ms(failed.count)
                if delay_ms >= (unknown_topic_deadline if unknown else deadline).remaining_ms():
                    if unknown:
                        raise
                    if advice and not failed.advice:
                        failed.advice = advice()
                    raise failed.error(f"{failure} for {deadline.timeout_ms} ms", error) from error
                self.waiter.wait(delay_ms)

    def close(self) -> None:
        """End all pauses; from now on nothing is repeated."""
        self.closed = True
        self.waiter.stop()
