"""Threads for requests that take long: large or compressed record batches, conversion, long arrays.

A processor thread serves many connections, so it does nothing that takes more than a few milliseconds. Longer
work is cut into steps and given to a pool. Each pool thread runs a job for ``SLICE_MS``, then the job goes
behind the others that wait, so that a short job never waits for the whole of a long one.

The pool bounds memory: a step says how much it needs, and begins only while all running steps together need
at most ``memory_bytes``; a step that needs more runs alone. Jobs wait in the order of arrival, but those
whose next step is small (``SMALL_BYTES``) pass the large ones: they have memory of their own
(``SMALL_TOTAL_BYTES``), and a thread where there is more than one, so that large content holds up only large
content. The queue itself is bounded from outside: each connection has one request in work, and the network
counts the bytes of requests that are not answered (``Exchange.keep_counted``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import Protocol, TypeVar

from minikafka.base.clock import Clock
from minikafka.base.errors import RemoteWireError
from minikafka.net.interfaces import Exchange

T = TypeVar("T")

_log = logging.getLogger(__name__)

Steps = Iterator[int]
"""A job: ``next`` does one step of at most about 50 ms, and gives the bytes of memory that the next one needs
beside what the request holds anyway; the first needs none. The job catches its own errors: nobody else can
answer its request.
"""

MEMORY_BYTES = 160 << 20
"""What all steps of a broker's pool may need together: one batch of the largest content, and some smaller."""
SMALL_BYTES = 8 << 20
"""A step that needs no more is small."""
SMALL_TOTAL_BYTES = 32 << 20
"""What all small steps may need together, beside the large ones."""
SLICE_MS = 20
"""How long a job runs before others have their turn."""
HERE_MS = 5
"""How long a processor itself does what may take longer (``begin_here``)."""
HERE_BYTES = 4 << 20
"""What a step may need that a processor does itself (``begin_here``)."""


class WorkPool(Protocol):
    """Runs jobs beside the processors."""

    def submit(self, steps: Steps) -> None:
        """Run ``steps`` to their end, in turn with other jobs. Any thread may call this. It does not wait."""

    def stop(self) -> None:
        """Begin no step any more. Jobs that have not ended are closed."""


class _Job:
    __slots__ = ("need_bytes", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.need_bytes = 0

    @property
    def is_large(self) -> bool:
        """Whether its next step needs much memory."""
        return self.need_bytes > SMALL_BYTES

    def run(self, stopping: Callable[[], bool]) -> bool:
        """Do steps until the slice is over or more memory is needed; whether there are more."""
        began, granted = time.monotonic_ns(), self.need_bytes
        try:
            for need_bytes in self.steps:
                self.need_bytes = need_bytes
                used_ms = (time.monotonic_ns() - began) // 1_000_000
                if need_bytes > granted or used_ms >= SLICE_MS or stopping():
                    return True
        except Exception:  # noqa: BLE001 - one job must not end the thread
            _log.exception("a job of the work pool failed")
        return False


class ThreadWorkPool:
    """A pool with threads of its own."""

    def __init__(self, name: str, threads: int, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._used_bytes = {False: 0, True: 0}
        """What running steps need: small ones, large ones."""
        self._running = {False: 0, True: 0}
        self._most_bytes = {False: min(memory_bytes, SMALL_TOTAL_BYTES), True: memory_bytes}
        self._most_large = max(1, threads - 1)
        self._large_before = False
        """Whether the job that was taken last was large."""
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, steps: Steps) -> None:
        with self._changed:
            if not self._stopping:
                self._jobs.append(_Job(steps))
                self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        jobs, self._jobs = self._jobs, deque()
        for job in jobs:
            _close(job.steps)

    def _run(self) -> None:
        while (job := self._take()) is not None:
            granted = job.need_bytes
            more = job.run(lambda: self._stopping)
            with self._changed:
                self._running[granted > SMALL_BYTES] -= 1
                self._used_bytes[granted > SMALL_BYTES] -= granted
                if more:
                    self._jobs.append(job)
                self._changed.notify_all()
            del job  # nothing of it stays while this thread waits

    def _take(self) -> _Job | None:
        """The next job, once there is one and memory for its step; None at the stop."""
        with self._changed:
            while not self._stopping:
                job = self._first()
                if job is not None:
                    self._jobs.remove(job)
                    large = self._large_before = job.is_large
                    self._running[large] += 1
                    self._used_bytes[large] += job.need_bytes
                    return job
                self._changed.wait()
            return None

    def _first(self) -> _Job | None:
        """The first job whose next step may begin now; after a large one a small one, if there is any."""
        may_begin = [job for job in self._firsts() if self._may_begin(job)]
        if self._large_before:
            may_begin.sort(key=lambda job: job.is_large)
        return may_begin[0] if may_begin else None

    def _firsts(self) -> Iterator[_Job]:
        """The first small and the first large job, in the order of the queue."""
        found: set[bool] = set()
        for job in self._jobs:
            if job.is_large not in found:
                found.add(job.is_large)
                yield job
                if len(found) == len(self._running):
                    return

    def _may_begin(self, job: _Job) -> bool:
        large = job.is_large
        if large and self._running[True] >= self._most_large:
            return False
        return (
            self._running[large] == 0 or self._used_bytes[large] + job.need_bytes <= self._most_bytes[large]
        )


class InlineWorkPool:
    """A pool for the single-threaded simulation: jobs run to their end in ``submit``."""

    def submit(self, steps: Steps) -> None:
        for _ in steps:
            pass

    def stop(self) -> None:
        pass


def begin(pool: WorkPool, exchange: Exchange, steps: Steps) -> None:
    """Serve ``exchange`` by ``steps``: on this thread up to their first yield, if there is one, then in the
    pool. To be called by the handler of a request, before it returns.
    """
    need_bytes = next(steps, None)
    if need_bytes is not None:
        exchange.keep_counted()
        pool.submit(_guarded(exchange, chain((need_bytes,), steps) if need_bytes else steps))


def begin_here(pool: WorkPool, exchange: Exchange, clock: Clock, steps: Steps) -> None:
    """As ``begin``, for what is mostly short: on this thread while the steps take little time and memory. Any
    thread may call this, where the request's own bytes are of no account.
    """
    until_ms = clock.monotonic_ms() + HERE_MS
    steps = _guarded(exchange, steps)
    for need_bytes in steps:
        if need_bytes > HERE_BYTES or clock.monotonic_ms() >= until_ms:
            pool.submit(chain((need_bytes,), steps))
            return


def finish(steps: Generator[int, None, T]) -> T:
    """Run ``steps`` to their end, on this thread, and return their value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def _guarded(exchange: Exchange, steps: Steps) -> Steps:
    try:
        yield from steps
    except RemoteWireError as error:
        exchange.close(str(error))
    except Exception:  # noqa: BLE001 - whatever goes wrong with one request ends its connection only
        _log.exception("a request of %s failed", exchange.client_host)
        exchange.close("its request failed")


def _close(steps: Steps) -> None:
    close = getattr(steps, "close", None)
    if close is not None:
        close()
