"""The total lag of groups over time, in memory: a ring of samples for each group that somebody looks at.

A thread adds a sample every ``INTERVAL_S``, as long as a group was looked at within ``WATCHED_S``; it starts
with the first group. Nothing is stored, and a console that starts again begins anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from minikafka.base.errors import MinikafkaError
from minikafka.base.times import utc_text
from minikafka.clients.admin.groups import PartitionLag, total_lag
from minikafka.clients.group.description import GroupDescription

INTERVAL_S = 15.0
WATCHED_S = 3600.0
SAMPLES_MAX = 240
GROUPS_MAX = 200
_TIMEOUT_MS = 10_000

WIDTH = 640
HEIGHT = 160
_MARGIN = 8
_STEPS = (1, 2, 5)

_log = logging.getLogger(__name__)


class Groups(Protocol):
    """The groups of a cluster (``GroupAdmin``)."""

    def describe_all(
        self,
        *,
        names: Container[str] | None = None,
        timeout_ms: int | None = None,
        failed: list[MinikafkaError] | None = None,
    ) -> list[GroupDescription]: ...

    def all_lags(
        self,
        descriptions: Iterable[GroupDescription],
        *,
        timeout_ms: int | None = None,
        failed: list[MinikafkaError] | None = None,
    ) -> dict[str, tuple[PartitionLag, ...]]: ...


@dataclass(frozen=True, slots=True)
class LagSample:
    """The total lag of a group at a time, in ms since the epoch."""

    time_ms: int
    lag: int


@dataclass(slots=True)
class _Watched:
    """The samples of a group, and the time at which somebody looked at it, on the monotonic clock."""

    looked_s: float = 0.0
    samples: deque[LagSample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))


class LagHistory:
    """The samples of the groups that are looked at. Thread-safe."""

    def __init__(
        self,
        groups: Groups,
        *,
        threads: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._groups = groups
        self._threads = threads
        self._monotonic = monotonic
        self._now = now
        self._watched: OrderedDict[str, _Watched] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, group: str, lags: Iterable[PartitionLag]) -> None:
        """Add a sample of a group that somebody looks at; from now on more follow."""
        with self._lock:
            watched = self._watched.setdefault(group, _Watched())
            watched.looked_s = self._monotonic()
            self._watched.move_to_end(group)
            while len(self._watched) > GROUPS_MAX:
                self._watched.popitem(last=False)
            self._add(watched, lags)
            if self._thread is None and self._threads and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self.sample_until_closed, name="console-lag-history", daemon=True
                )
                self._thread.start()

    def samples(self, group: str) -> list[LagSample]:
        """Return the samples of a group, the oldest first."""
        with self._lock:
            watched = self._watched.get(group)
            return [] if watched is None else list(watched.samples)

    def sample_all(self) -> None:
        """Add a sample of every group that was looked at lately; forget the others."""
        since = self._monotonic() - WATCHED_S
        with self._lock:
            for name in [name for name, watched in self._watched.items() if watched.looked_s < since]:
                del self._watched[name]
            names = set(self._watched)
        if not names:
            return
        failed: list[MinikafkaError] = []
        wanted = self._groups.describe_all(names=names, timeout_ms=_TIMEOUT_MS, failed=failed)
        for name, lags in self._groups.all_lags(wanted, timeout_ms=_TIMEOUT_MS, failed=failed).items():
            with self._lock:
                if name in self._watched:
                    self._add(self._watched[name], lags)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _add(self, watched: _Watched, lags: Iterable[PartitionLag]) -> None:
        rows = tuple(lags)
        if any(row.end_offset is None for row in rows):
            return  # a sum without a partition would look like progress
        lag = total_lag(rows)
        if lag is not None:
            watched.samples.append(LagSample(round(self._now() * 1000), lag))

    def sample_until_closed(self, interval_s: float = INTERVAL_S) -> None:
        """Add samples until ``close``, whatever fails."""
        while not self._closed.wait(interval_s):
            try:
                self.sample_all()
            except MinikafkaError as error:
                _log.debug("no sample of the lag: %s", error)
            except Exception:  # noqa: BLE001  # the thread must outlive it
                _log.exception("unexpected error while looking up the lag of groups; trying again later")


@dataclass(frozen=True, slots=True)
class LineChart:
    """A line of values over time as an SVG in the page, with the labels of its axes.

    The points are computed here; colours come from the style sheet.
    """

    points: str
    """The points of a polyline."""
    top: int
    """The value at the upper edge; the lower one is 0."""
    first: str
    last: str
    width: int = WIDTH
    height: int = HEIGHT

    @classmethod
    def of(cls, values: Sequence[tuple[int, int]]) -> LineChart | None:
        """Return the chart of (time in ms, value); None for fewer than two, which are no line."""
        if len(values) < 2:
            return None
        begin, end = values[0][0], values[-1][0]
        top = round_up(max(value for _, value in values))
        across = max(1, end - begin)
        points = (
            (
                _MARGIN + (time - begin) * (WIDTH - 2 * _MARGIN) / across,
                HEIGHT - _MARGIN - value * (HEIGHT - 2 * _MARGIN) / top,
            )
            for time, value in values
        )
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return cls(text, top, utc_text(begin) or "", utc_text(end) or "")


def round_up(value: int) -> int:
    """Return the next 1, 2 or 5 times a power of ten, at least 1."""
    power = 1
    while True:
        for step in _STEPS:
            if value <= step * power:
                return step * power
        power *= 10
