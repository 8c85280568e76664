"""Counters without locks, and histograms, for metrics that are read seldom and counted often.

Each thread counts in cells of its own. Reading sums the cells of all threads: the sum may be a moment old,
and it never falls.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
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
    asked for it, and must not be passed to another one. Keys stay for good, so their number must be bounded.
    """

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._lock = threading.Lock()
        self._threads: list[tuple[threading.Thread, dict[K, list[int]]]] = []
        self._ended: dict[K, list[int]] = {}
        """The sums of threads that have ended."""
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
            for thread, by_key in self._threads:
                if not thread.is_alive():
                    _add(self._ended, by_key)
            self._threads = [pair for pair in self._threads if pair[0].is_alive()]
            sums = {key: list(row) for key, row in self._ended.items()}
            for _, by_key in self._threads:
                _add(sums, by_key)
        return sums

    def discard(self, keys: Iterable[K]) -> None:
        """Forget keys that nothing counts for any more."""
        with self._lock:
            for key in keys:
                self._ended.pop(key, None)
                for _, by_key in self._threads:
                    by_key.pop(key, None)

    def register(self, by_key: dict[K, list[int]]) -> None:
        """Add the cells of the present thread to the sums."""
        with self._lock:
            self._threads.append((threading.current_thread(), by_key))


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
"""Where the sum of a histogram is."""


def observe(row: list[int], at: int, elapsed_ns: int) -> None:
    """Add a time to the histogram that begins at ``row[at]``.

    The first bucket is not counted: it has the rest of all observations, whose number is known otherwise.
    """
    row[at + SUM] += elapsed_ns
    if elapsed_ns >= FIRST_NS:
        count_in_bucket(row, at, elapsed_ns)


def count_in_bucket(row: list[int], at: int, elapsed_ns: int) -> None:
    """Add a time of ``FIRST_NS`` or more to its bucket, and not to the sum."""
    row[at + min((elapsed_ns // FIRST_NS).bit_length(), BUCKETS)] += 1


@dataclass(frozen=True, slots=True)
class Histogram:
    """The counts of a histogram of times, in the form in which they are exposed."""

    cumulative: Sequence[int]
    """For each of ``BOUNDS_S`` the observations up to it."""
    count: int
    sum_s: float


def histogram(row: Sequence[int], at: int, count: int) -> Histogram:
    """Return the histogram that begins at ``row[at]``, of ``count`` observations."""
    counts = row[at + 1 : at + BUCKETS + 1]
    below = count - sum(counts)
    cumulative = [below]
    for of_bucket in counts[:-1]:
        below += of_bucket
        cumulative.append(below)
    return Histogram(cumulative, count, row[at + SUM] / 1e9)


class TimeHistogram:
    """A histogram of times that any thread adds to, by the text of its labels."""

    def __init__(self) -> None:
        self._rows: ThreadCounters[str] = ThreadCounters(1 + HISTOGRAM_WIDTH)

    def observe(self, elapsed_ns: int, label_text: str = "") -> None:
        """Add a time. label_text: of few different values."""
        row = self._rows.row(label_text)
        row[0] += 1
        observe(row, 1, elapsed_ns)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the time of the block."""
        began_ns = perf_counter_ns()
        try:
            yield
        finally:
            self.observe(perf_counter_ns() - began_ns)

    def histograms(self) -> dict[str, Histogram]:
        """Return the histogram of each text of labels; an empty one, without labels, if there is nothing."""
        totals = self._rows.totals() or {"": [0] * (1 + HISTOGRAM_WIDTH)}
        return {text: histogram(row, 1, row[0]) for text, row in sorted(totals.items())}


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
