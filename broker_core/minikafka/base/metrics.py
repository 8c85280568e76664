"""Counters without locks, and histograms, for metrics that are read seldom and counted often.

Each thread counts in cells of its own. Reading sums the cells of all threads: the sum may be a moment old,
and it never falls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from time import perf_counter_ns
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class _ThreadCells(threading.local, Generic[K]):
    """The cells of the present thread, by key."""

    def __init__(self, counters: ThreadCounters[K]) -> None:
        self.by_key: dict[K, list[int]] = {}
        counters.register(self.by_key)


class ThreadCounters(Generic[K]):
    """Rows of ``width`` counters, by key.

    The hot path is ``row = counters.row(key)`` and then ``row[N] += count``: a row belongs to the thread that
    asked for it, and must not be passed to another one. It takes no lock, so a garbage collection may count
    too, wherever it interrupts a thread. Keys stay until they are discarded.
    """

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._lock = threading.Lock()
        """Held while cells are summed, and not while they are counted or registered."""
        self._threads: list[tuple[threading.Thread, dict[K, list[int]]]] = []
        self._ended: dict[K, list[int]] = {}
        """The sums of threads that have ended."""
        self._fold_at = _MANY_THREADS
        self._local = _ThreadCells(self)

    def row(self, key: K) -> list[int]:
        """Return the counters of the present thread for a key."""
        by_key = self._local.by_key
        found = by_key.get(key)
        if found is None:
            found = by_key[key] = [0] * self._width
        return found

    def add(self, key: K, count: int = 1) -> None:
        """Add to the first counter of a key."""
        self.row(key)[0] += count

    def totals(self) -> dict[K, list[int]]:
        """Return the sums of all threads, by key."""
        with self._lock:
            self._fold_ended()
            sums = {key: list(row) for key, row in self._ended.items()}
            for _, by_key in list(self._threads):
                _add(sums, by_key)
        return sums

    def discard(self, is_unwanted: Callable[[K], bool]) -> None:
        """Forget keys that nothing counts for any more."""
        with self._lock:
            for by_key in (self._ended, *(by_key for _, by_key in list(self._threads))):
                for key in list(by_key):
                    if is_unwanted(key):
                        by_key.pop(key, None)

    def register(self, by_key: dict[K, list[int]]) -> None:
        """Add the cells of the present thread to the sums."""
        self._threads.append((threading.current_thread(), by_key))
        if len(self._threads) > self._fold_at and self._lock.acquire(blocking=False):
            try:
                self._fold_ended()
            finally:
                self._lock.release()
            self._fold_at = 2 * len(self._threads) + _MANY_THREADS

    def _fold_ended(self) -> None:
        """Move the cells of threads that have ended to their sums."""
        for pair in [pair for pair in list(self._threads) if not pair[0].is_alive()]:
            _add(self._ended, pair[1])
            self._threads.remove(pair)


_MANY_THREADS = 64
"""The number of threads from which on those that have ended are looked for, although nobody sums."""


def _add(sums: dict[K, list[int]], by_key: dict[K, list[int]]) -> None:
    for key, row in list(by_key.items()):  # its thread may add keys meanwhile
        found = sums.setdefault(key, [0] * len(row))
        for number, count in enumerate(row):
            found[number] += count


BUCKETS = 19
"""The buckets of a histogram of times, without the last one, which has no upper bound."""
FIRST_NS = 64_000
"""The upper bound of the first bucket."""
BOUNDS_S = tuple(FIRST_NS * (1 << number) / 1e9 for number in range(BUCKETS))
"""The upper bounds in seconds: 64 µs, and each twice the one before, up to 16.8 s."""
HISTOGRAM_WIDTH = BUCKETS + 2
"""The counters of a histogram of times: the buckets, and the sum in nanoseconds."""
SUM = BUCKETS + 1
"""The place of the sum in a histogram's row."""


def observe(row: list[int], at: int, elapsed_ns: int) -> None:
    """Add a time to the histogram that begins at ``row[at]``."""
    row[at + SUM] += elapsed_ns
    row[at + bucket_of(elapsed_ns)] += 1


def bucket_of(elapsed_ns: int) -> int:
    """Return the number of the bucket of a time."""
    return min((elapsed_ns // FIRST_NS).bit_length(), BUCKETS)


@dataclass(frozen=True, slots=True)
class Histogram:
    """The counts of a histogram of times, in the form in which they are exposed."""

    cumulative: Sequence[int]
    """For each of ``BOUNDS_S`` the observations up to it."""
    count: int
    sum_s: float


def histogram(row: Sequence[int], at: int, more: int = 0) -> Histogram:
    """Return the histogram that begins at ``row[at]``; ``more`` belongs to its first bucket.

    All of it comes from the buckets, none of which ever falls: Prometheus takes a fall for a restart.
    """
    cumulative = list(accumulate(row[at : at + BUCKETS + 1], initial=more))[1:]
    return Histogram(cumulative[:-1], cumulative[-1], row[at + SUM] / 1e9)


class TimeHistogram:
    """A histogram of times that any thread adds to."""

    def __init__(self) -> None:
        self._rows: ThreadCounters[None] = ThreadCounters(HISTOGRAM_WIDTH)

    def observe(self, elapsed_ns: int) -> None:
        """Add a time."""
        observe(self._rows.row(None), 0, elapsed_ns)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the time of the block."""
        began_ns = perf_counter_ns()
        try:
            yield
        finally:
            self.observe(perf_counter_ns() - began_ns)

    def read(self) -> Histogram:
        """Return the histogram."""
        return histogram(self._rows.totals().get(None, [0] * HISTOGRAM_WIDTH), 0)


LabelValues = tuple[object, ...]
"""The values of a metric's labels, in the order of their names in its definition."""


class Kind(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a metric, for its exposition and for the reference."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    jmx: str = ""
    """The MBean of Kafka that has the same; "" for none."""
