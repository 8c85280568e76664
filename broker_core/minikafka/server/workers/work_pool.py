"""The thread pool for long requests: large or compressed record batches, conversion, long arrays.

A processor thread serves many connections, so it does nothing that takes more than a few milliseconds. Longer
work is divided into steps and passed to a pool. A pool thread runs a job for ``SLICE_MS``, then the job goes
to the end of the queue, so that a short job never waits for the whole of a long one.

The pool bounds memory: a job declares how much its next step needs, and the step starts only while all
running steps together need at most ``memory_bytes``; a step that needs more runs alone. Jobs wait in the
order of arrival, but those whose next step is small (``SMALL_BYTES``) overtake the large ones: they have
memory of their own (``SMALL_TOTAL_BYTES``), and a thread of their own if there is more than one, so that
large content delays only large content. The queue itself is bounded from outside: each connection has one
request in progress, and the network counts the bytes of unanswered requests (``Exchange.keep_counted``).
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
"""A job: ``next`` runs one step of at most about 50 ms, and returns the memory in bytes that the next step
needs beside that of the request; the first step needs none. The job catches its own errors: only the job can
answer its request.
"""

MEMORY_BYTES = 160 << 20
"""The memory limit for all steps of a broker's pool: one batch of the largest content, and some smaller."""
SMALL_BYTES = 8 << 20
"""The limit for small steps."""
SMALL_TOTAL_BYTES = 32 << 20
"""The memory limit for all small steps, beside the large ones."""
SLICE_MS = 20
"""The time that a job runs before others get their turn."""
HERE_MS = 5
"""The time that a processor itself runs a job that may take longer (``begin_here``)."""
HERE_BYTES = 4 << 20
"""The memory limit for a step that a processor runs itself (``begin_here``)."""


class WorkPool(Protocol):
    """Runs jobs outside of the processors."""

    def submit(self, steps: Steps) -> None:
        """Run ``steps`` to their end, in turn with other jobs. Any thread may call this. It does not wait."""

    def queued(self) -> int:
        """Return the number of jobs that wait for a thread."""

    def stop(self) -> None:
        """Start no further step. Unfinished jobs are closed."""


class _Job:
    """A job in the queue, and the memory that its next step needs."""

    __slots__ = ("need_bytes", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.need_bytes = 0

    @property
    def is_large(self) -> bool:
        """True if the next step needs more than ``SMALL_BYTES``."""
        return self.need_bytes > SMALL_BYTES

    def run(self, stopping: Callable[[], bool]) -> bool:
        """Run steps until the slice is over or more memory is needed; return True if steps are left."""
        began, granted = time.monotonic_ns(), self.need_bytes
        try:
            for need_bytes in self.steps:
                self.need_bytes = need_bytes
                used_ms = (time.monotonic_ns() - began) // 1_000_000
                if need_bytes > granted or used_ms >= SLICE_MS or stopping():
                    return True
        except Exception:  # noqa: BLE001 - one job must not end the thread
            _log.exception("unexpected error in a job of the work pool")
        return False


class ThreadWorkPool:
    """A pool with its own threads."""

    def __init__(self, name: str, threads: int, memory_bytes: int) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._used_bytes = {False: 0, True: 0}
        """The memory of running steps: small ones, large ones."""
        self._running = {False: 0, True: 0}
        self._most_bytes = {False: min(memory_bytes, SMALL_TOTAL_BYTES), True: memory_bytes}
        self._most_large = max(1, threads - 1)
        self._large_before = False
        """True if the job that was taken last was large."""
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

    def queued(self) -> int:
        return len(self._jobs)

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
            del job  # release its memory while this thread waits

    def _take(self) -> _Job | None:
        """Wait for the next job and the memory for its step; return None when the pool stops."""
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
        """Return the first job whose next step may start now; after a large job a small one, if any."""
        may_begin = [job for job in self._firsts() if self._may_begin(job)]
        if self._large_before:
            may_begin.sort(key=lambda job: job.is_large)
        return may_begin[0] if may_begin else None

    def _firsts(self) -> Iterator[_Job]:
        """Yield the first small and the first large job, in the order of the queue."""
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
    """A pool for the single-threaded simulation: ``submit`` runs a job to its end."""

    def submit(self, steps: Steps) -> None:
        for _ in steps:
            pass

    def queued(self) -> int:
        return 0

    def stop(self) -> None:
        pass


def begin(pool: WorkPool, exchange: Exchange, steps: Steps) -> None:
    """Run ``steps`` for ``exchange``: on this thread up to the first yield, the rest in the pool.

    Called by the handler of a request, before it returns.
    """
    need_bytes = next(steps, None)
    if need_bytes is not None:
        exchange.keep_counted()
        pool.submit(_guarded(exchange, chain((need_bytes,), steps) if need_bytes else steps))


def begin_here(pool: WorkPool, exchange: Exchange, clock: Clock, steps: Steps) -> None:
    """Run ``steps`` like ``begin``, but on this thread while they take little time and memory.

    Any thread may call this, for requests whose own bytes need not be counted.
    """
    until_ms = clock.monotonic_ms() + HERE_MS
    steps = _guarded(exchange, steps)
    for need_bytes in steps:
        if need_bytes > HERE_BYTES or clock.monotonic_ms() >= until_ms:
            pool.submit(chain((need_bytes,), steps))
            return


def finish(steps: Generator[int, None, T]) -> T:
    """Run ``steps`` to their end on this thread, and return their value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def _guarded(exchange: Exchange, steps: Steps) -> Steps:
    try:
        yield from steps if exchange.meter is None else exchange.meter.timed(steps)
        exchange.times.local_complete()
    except RemoteWireError as error:
        exchange.close(str(error))
    except Exception:  # noqa: BLE001 - an error of one request must only close its connection
        _log.exception("unexpected error while serving a request from %s", exchange.client_host)
        exchange.close("unexpected error while serving its request")


def _close(steps: Steps) -> None:
    close = getattr(steps, "close", None)
    if close is not None:
        close()
