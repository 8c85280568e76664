"""Writes a line about each streaming query to the driver's log, at most one in an interval, and a last one.

    query dashboard: topics clicks, orders, 1,234 rows/s, lag 203 records, most in orders-0: 120

Spark calls a listener in a thread of the user's program, after each batch, and every ten seconds while a
query has no new data. It never fails: errors are warned of, once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from minikafka.base.clock import Clock, SystemClock
from pyspark_minikafka import report
from pyspark_minikafka.monitoring.lag import Options, check_options, with_present_ends
from pyspark_minikafka.monitoring.query_progress import QueryProgress, query_progress, summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_TIMEOUT_MS = 2_000
"""The longest time for which a line waits for the brokers: Spark calls other listeners after this one."""


@dataclass(slots=True)
class _Watched:
    """A run of a query: its last progress, and the rows since the last line."""

    since_ms: int
    progress: QueryProgress | None = None
    rows: int = 0


class LagListener(StreamingQueryListener):
    """Logs the lag of each query that reads minikafka.

    every_s: the shortest time between two lines of a query. options: those of a reader, to look up the
    present ends of the logs; without them the lag is that of the last batch, as Spark reports it. Raises
    TypeError or ValueError for others.
    """

    def __init__(
        self,
        *options: Options,
        every_s: float = 60.0,
        clock: Clock | None = None,
        write: Callable[[str], None] = lambda line: report.note(line, shown=True),
    ) -> None:
        check_options(options)
        self._every_ms = _milliseconds(every_s)
        self._options = options
        self._clock = clock or SystemClock()
        self._write = write
        self._watched: dict[str, _Watched] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self._watched[str(event.runId)] = _Watched(self._clock.monotonic_ms())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self._safely(self._note_batch, event.progress.json)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        self._safely(self._log_if_due, str(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._safely(self._end, str(event.runId))

    def _safely(self, handle: Callable[[str], None], text: str) -> None:
        try:
            handle(text)
        except Exception as problem:  # noqa: BLE001  # the query has no part in it
            report.warn_once(f"cannot log the lag of a query: {str(problem) or type(problem).__name__}")

    def _note_batch(self, reported: str) -> None:
        document = json.loads(reported)
        # A query that was running when this listener was added has not been announced.
        watched = self._watched.setdefault(document["runId"], _Watched(self._clock.monotonic_ms()))
        watched.progress = query_progress(document["id"], document["name"], document)
        watched.rows += watched.progress.rows
        self._log_if_due(document["runId"])

    def _log_if_due(self, run_id: str) -> None:
        watched = self._watched.get(run_id)
        if watched is not None and self._clock.monotonic_ms() - watched.since_ms >= self._every_ms:
            self._log(watched, self._options)

    def _end(self, run_id: str) -> None:
        """Log the rows since the last line. The brokers may have gone with the query, so nobody asks them."""
        watched = self._watched.pop(run_id, None)
        if watched is not None and watched.rows:
            self._log(watched, ())

    def _log(self, watched: _Watched, options: tuple[Options, ...]) -> None:
        now_ms, found = self._clock.monotonic_ms(), watched.progress
        if found is None or not found.sources:
            return
        rate = watched.rows * 1_000 / max(1, now_ms - watched.since_ms)
        watched.rows, watched.since_ms = 0, now_ms
        if options:
            found = with_present_ends(found, options, times=False, timeout_ms=_TIMEOUT_MS)
        self._write(summary(found, rate))


def _milliseconds(every_s: object) -> float:
    if not isinstance(every_s, int | float):
        raise TypeError(f"every_s must be a number of seconds, not {every_s!r}")
    if not every_s > 0:  # NaN too
        raise ValueError(f"every_s must be positive, not {every_s}")
    return every_s * 1_000


def log_progress(spark: SparkSession, *options: Options, every_s: float) -> LagListener:
    """Add a ``LagListener`` to the session and return it, for ``spark.streams.removeListener``.

    Raise TypeError for what is no session, and as ``LagListener``.
    """
    if not hasattr(type(spark), "streams"):
        raise TypeError(f"expected a SparkSession, not {type(spark).__name__}")
    listener = LagListener(*options, every_s=every_s)
    spark.streams.addListener(listener)
    return listener
