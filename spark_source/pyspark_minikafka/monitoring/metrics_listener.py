"""Keeps the metrics of the streaming queries of a session: for the program, and for Prometheus.

    listener = MetricsListener(port=9309)
    spark.streams.addListener(listener)
    stream = spark.readStream.format("minikafka").options(**listener.reader_options()).option(…).load()
    …
    listener.metrics()["counts"].sources[0].max_offsets_behind_latest

Threads: Spark calls a listener in a thread of the user's program; the HTTP server has its own; one more takes
the reports of tasks. A lock guards the sums of the queries, which is never held during a look-up. Another one
guards the look-ups: those who ask meanwhile wait for the same answer, at most two seconds.

Memory: queries that have ended are dropped, but for the last ``ENDED_MAX``; a query has a few hundred bytes
for each partition that it reads.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.exposition import Exposition, wants_openmetrics
from minikafka.clients.network.retry import Deadline
from minikafka.net.datagrams import DatagramReceiver
from minikafka.net.http_server import HttpServer, HttpText
from pyspark_minikafka import report
from pyspark_minikafka.monitoring import prometheus
from pyspark_minikafka.monitoring.lag import Options, check_options, with_present_ends
from pyspark_minikafka.monitoring.query_metrics import QueryMetrics, RunTotals
from pyspark_minikafka.monitoring.query_progress import QueryProgress, query_progress
from pyspark_minikafka.reading import task_reports
from pyspark_minikafka.reading.task_reports import ReportAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

ENDED_MAX = 16
"""The ended queries that ``metrics`` still has."""
_ACTIVE_MAX = 1_000
"""A limit in case Spark drops the events of queries that end."""
_LOOK_UP_EVERY_MS = 5_000
_LOOK_UP_TIMEOUT_MS = 2_000
_INDEX = b"<!doctype html><title>minikafka queries</title><a href=/metrics>/metrics</a>\n"


class MetricsListener(StreamingQueryListener):
    """Keeps the metrics of each query that reads minikafka, from Spark's events and the reports of tasks.

    options: those of a reader, to look up the present ends of the logs when somebody asks for the metrics;
    the lag is that of the last batch without them, or if the brokers do not answer within two seconds.
    port: serves ``http://host:port/metrics`` for Prometheus; 0 is a free one, see ``url``.
    task_host, task_port: the address of this host at which the tasks of ``reader_options`` reach it.

    Raises TypeError for options that are no mapping, NetworkError for an address that cannot be used.
    """

    def __init__(
        self,
        *options: Options,
        port: int | None = None,
        host: str = "127.0.0.1",
        task_host: str = "127.0.0.1",
        task_port: int = 0,
        clock: Clock | None = None,
        look_up: Callable[..., QueryProgress] = with_present_ends,
    ) -> None:
        check_options(options)
        self._options = options
        self._task_address = task_host, task_port
        self._clock = clock or SystemClock()
        self._look_up = look_up
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, RunTotals] = OrderedDict()
        """By the id of the query, the last one to start or to end at the end."""
        self._present: dict[str, tuple[int, QueryProgress]] = {}
        """By the id of the query, the present ends, and the time at which they were looked up."""
        self._look_up_lock = threading.Lock()
        """Guards ``_present``."""
        self._token = task_reports.new_token()
        self._reports: DatagramReceiver | None = None
        self._server = None if port is None else HttpServer(host, port, self._respond)

    @property
    def url(self) -> str | None:
        """The address of the HTTP server, without a path; None without ``port``."""
        return None if self._server is None else self._server.url

    def reader_options(self) -> dict[str, str]:
        """Return the options with which the tasks of a reader report to this listener. The first call opens a
        UDP port at ``task_host``, which executors must reach. Raises NetworkError if that is impossible.
        """
        with self._lock:
            if self._reports is None:
                self._reports = DatagramReceiver(*self._task_address, self._add_report)
            address = ReportAddress(self._task_address[0], self._reports.port, self._token)
            return {"minikafka.metrics.address": str(address)}

    def metrics(self) -> dict[str, QueryMetrics]:
        """Return the metrics of each query by its name, or its id without one: of those that run, and of the
        last ones that have ended. Thread-safe.
        """
        present: dict[str, QueryProgress] = {}
        if self._options:
            with self._look_up_lock:
                present = self._present_ends()
        found: dict[str, QueryMetrics] = {}
        with self._lock:
            for query_id, totals in self._queries.items():
                metrics = totals.metrics(present.get(query_id))
                if metrics.title in found and found[metrics.title].is_active:
                    found[query_id] = metrics  # of another session
                else:
                    found[metrics.title] = metrics
        return found

    def close(self) -> None:
        """Close the ports. The listener goes on counting until ``spark.streams.removeListener``."""
        with self._lock:
            reports, self._reports = self._reports, None
        if reports is not None:
            reports.close()
        if self._server is not None:
            self._server.stop()

    # --- Spark's events

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        with self._lock:
            totals = self._of_run(str(event.id), str(event.runId))
            totals.name = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        try:
            document = json.loads(event.progress.json)
            progress = query_progress(document["id"], document["name"], document)
            with self._lock:
                self._of_run(document["id"], document["runId"]).add_batch(progress, document)
        except Exception as problem:  # noqa: BLE001  # the query has no part in it
            report.warn_once(f"cannot count a batch: {str(problem) or type(problem).__name__}")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._lock:
            totals = self._queries.get(str(event.id))
            if totals is None or totals.run_id != str(event.runId):
                return
            totals.is_active = False
            self._queries.move_to_end(totals.query_id)
            ended = [query_id for query_id, each in self._queries.items() if not each.is_active]
            for query_id in ended[:-ENDED_MAX]:
                del self._queries[query_id]

    def _of_run(self, query_id: str, run_id: str) -> RunTotals:
        """Return the sums of a run, which begin with the first that is heard of it."""
        totals = self._queries.get(query_id)
        if totals is not None and not totals.run_id:
            totals.run_id = run_id  # a task had reported before
        if totals is None or (run_id and totals.run_id != run_id):
            totals = self._queries[query_id] = RunTotals(query_id, run_id)
            self._queries.move_to_end(query_id)
            while len(self._queries) > _ACTIVE_MAX:
                self._queries.popitem(last=False)
        return totals

    def _add_report(self, datagram: bytes) -> None:
        found = task_reports.parse(datagram, self._token)
        if found is not None and found.query_id:
            with self._lock:
                self._of_run(found.query_id, "").add_report(found)

    # --- the present ends, and Prometheus

    def _present_ends(self) -> dict[str, QueryProgress]:
        """Return what the queries with sources have read, with the present ends of the logs. Those that are
        not known within the time for all of them are those of the last batch.
        """
        deadline = Deadline(self._clock, _LOOK_UP_TIMEOUT_MS)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            wanted = {
                query_id: totals.progress
                for query_id, totals in self._queries.items()
                if totals.is_active and totals.progress is not None and totals.progress.sources
            }
        present: dict[str, QueryProgress] = {}
        for query_id, progress in wanted.items():
            known = self._present.get(query_id)
            if (
                known is not None
                and now_ms - known[0] < _LOOK_UP_EVERY_MS
                and known[1].batch == progress.batch
            ):
                present[query_id] = known[1]
                continue
            self._present[query_id] = now_ms, self._looked_up(progress, deadline)
            present[query_id] = self._present[query_id][1]
        for query_id in self._present.keys() - wanted.keys():
            del self._present[query_id]
        return present

    def _looked_up(self, progress: QueryProgress, deadline: Deadline) -> QueryProgress:
        if deadline.expired:
            return progress
        try:
            return self._look_up(progress, self._options, times=False, timeout_ms=deadline.remaining_ms())
        except Exception as problem:  # noqa: BLE001  # the program has asked for metrics, not for this
            report.warn_once(f"cannot look up the lag of a query: {str(problem) or type(problem).__name__}")
            return progress

    def _respond(self, path: str, accept: str) -> HttpText | None:
        if path == "/metrics":
            out = Exposition(openmetrics=wants_openmetrics(accept))
            prometheus.add(out, self.metrics())
            return HttpText(200, out.content_type, out.encode())
        return HttpText(200, "text/html; charset=utf-8", _INDEX) if path == "/" else None
