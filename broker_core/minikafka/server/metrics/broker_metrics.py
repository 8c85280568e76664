"""The counters of a broker. Any thread may count, without a lock."""

from __future__ import annotations

import gc
import time
from collections.abc import Container, Iterable, Mapping

from minikafka.base.errors import ErrorCode
from minikafka.base.exposition import MetricSink
from minikafka.base.metrics import (
    FIRST_NS,
    HISTOGRAM_WIDTH,
    SUM,
    LabelValues,
    Metric,
    ThreadCounters,
    TimeHistogram,
    bucket_of,
    histogram,
    observe,
)
from minikafka.net.interfaces import Exchange
from minikafka.net.request_times import RequestTimes
from minikafka.server.metrics import definitions as d
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS

_FETCH_FOLLOWER = -1
"""The key of a follower's fetches; other requests have that of their API."""
_TOTALS = (d.REQUESTS, d.REQUEST_BYTES, d.RESPONSE_BYTES)
"""The first counters of a row of requests."""
_STAGES = (
    d.TOTAL_TIME,
    d.QUEUE_TIME,
    d.LOCAL_TIME,
    d.REMOTE_TIME,
    d.THROTTLE_TIME,
    d.RESPONSE_QUEUE_TIME,
    d.RESPONSE_SEND_TIME,
)
_UNWAITED = len(_TOTALS)
"""The requests that have waited nowhere, which are in the first bucket of three stages."""
_AT = tuple(_UNWAITED + 1 + number * HISTOGRAM_WIDTH for number in range(len(_STAGES)))
"""The beginning of each stage's histogram in a row."""
_TOTAL, _QUEUE, _LOCAL, _REMOTE, _THROTTLE, _RESPONSE_QUEUE, _RESPONSE_SEND = _AT
_OF_WAITS = (_QUEUE, _REMOTE, _THROTTLE)
_TOTAL_SUM, _LOCAL_SUM, _RESPONSE_QUEUE_SUM, _SEND_SUM = (
    at + SUM for at in (_TOTAL, _LOCAL, _RESPONSE_QUEUE, _RESPONSE_SEND)
)
_REQUEST_WIDTH = _AT[-1] + HISTOGRAM_WIDTH


def api_label(api_key: int, *, from_follower: bool) -> str:
    """Return the name of an API in labels, with that of a follower's fetch."""
    return api_name(_FETCH_FOLLOWER if from_follower else api_key)


def api_name(api_key: int) -> str:
    """Return the name of an API in labels, as in Kafka's ``request=``."""
    if api_key == _FETCH_FOLLOWER:
        return "FetchFollower"
    return "FetchConsumer" if api_key == ApiKey.FETCH else APIS[ApiKey(api_key)].name


class RequestMetrics:
    """Counts requests and the times of their stages, by API. See ``net.interfaces.RequestObserver``."""

    counts_errors = True

    def __init__(self) -> None:
        self._rows: ThreadCounters[int] = ThreadCounters(_REQUEST_WIDTH)
        self._errors: ThreadCounters[tuple[int, int]] = ThreadCounters()

    def completed(self, exchange: Exchange, sent_ns: int) -> None:
        """Count a request whose response was sent."""
        # Every request passes here: the usual case calls little.
        times = exchange.times
        header = times.header
        if header is None:
            return
        key = _FETCH_FOLLOWER if times.from_follower else header.api_key
        row = self._rows.row(key)
        row[0] += 1
        row[1] += times.request_bytes
        row[2] += times.response_bytes
        start_ns, complete_ns, dequeue_ns = (
            times.start_ns,
            times.response_complete_ns,
            times.response_dequeue_ns,
        )
        total_ns, send_ns = sent_ns - start_ns, sent_ns - dequeue_ns
        if times.api_local_complete_ns or times.dequeue_ns or times.throttle_ms:
            self._observe_waits(row, times)
            total_ns += times.throttle_ms * 1_000_000
        else:
            row[_UNWAITED] += 1
            local_ns = complete_ns - start_ns
            row[_LOCAL_SUM] += local_ns
            row[_LOCAL if local_ns < FIRST_NS else _LOCAL + bucket_of(local_ns)] += 1
        queue_ns = dequeue_ns - complete_ns
        row[_TOTAL_SUM] += total_ns
        row[_TOTAL if total_ns < FIRST_NS else _TOTAL + bucket_of(total_ns)] += 1
        row[_SEND_SUM] += send_ns
        row[_RESPONSE_SEND if send_ns < FIRST_NS else _RESPONSE_SEND + bucket_of(send_ns)] += 1
        row[_RESPONSE_QUEUE_SUM] += queue_ns
        row[_RESPONSE_QUEUE if queue_ns < FIRST_NS else _RESPONSE_QUEUE + bucket_of(queue_ns)] += 1
        if times.errors:
            for code in times.errors:
                self._errors.add((key, code))

    @staticmethod
    def _observe_waits(row: list[int], times: RequestTimes) -> None:
        """Count the stages of a request that has waited somewhere."""
        observe(row, _LOCAL, times.local_ns)
        observe(row, _QUEUE, times.queue_ns)
        observe(row, _REMOTE, times.remote_ns)
        observe(row, _THROTTLE, times.throttle_ms * 1_000_000)

    def expose(self, out: MetricSink) -> None:
        """Add the metrics of requests."""
        rows = {(api_name(key),): row for key, row in sorted(self._rows.totals().items())}
        out.add_rows(_TOTALS, [(values, *row[: len(_TOTALS)]) for values, row in rows.items()])
        errors = sorted(self._errors.totals().items())
        out.add_all(
            d.REQUEST_ERRORS,
            [((api_name(key), ErrorCode.of(code).name), count) for (key, code), (count,) in errors],
        )
        for at, metric in zip(_AT, _STAGES, strict=True):
            waits = at in _OF_WAITS
            out.add_histograms(
                metric, {values: histogram(row, at, row[_UNWAITED] * waits) for values, row in rows.items()}
            )


TOPIC_COUNTERS = (
    d.MESSAGES_IN,
    d.BYTES_IN,
    d.BYTES_OUT,
    d.REPLICATION_BYTES_IN,
    d.REPLICATION_BYTES_OUT,
    d.PRODUCED,
    d.FETCHED,
    d.FAILED_PRODUCED,
    d.FAILED_FETCHED,
)
"""The counters of a topic, in the order of its row."""
(
    MESSAGES_IN,
    BYTES_IN,
    BYTES_OUT,
    REPLICATION_BYTES_IN,
    REPLICATION_BYTES_OUT,
    PRODUCED,
    FETCHED,
    FAILED_PRODUCED,
    FAILED_FETCHED,
) = range(len(TOPIC_COUNTERS))


class BrokerMetrics:
    """All that a broker counts."""

    def __init__(self) -> None:
        self.requests = RequestMetrics()
        self.topics: ThreadCounters[str] = ThreadCounters(len(TOPIC_COUNTERS))
        """The counters of each topic, ``TOPIC_COUNTERS``."""
        self.flushes = TimeHistogram()
        """Of logs."""
        self.zookeeper_requests = TimeHistogram()
        self.gc_pauses = TimeHistogram()
        self._events: ThreadCounters[tuple[Metric, LabelValues]] = ThreadCounters()

    def count(self, metric: Metric, *label_values: str, count: int = 1) -> None:
        """Add to a counter of what happens seldom. label_values: few different ones."""
        self._events.add((metric, label_values), count)

    def count_throttled(self, quota: str) -> None:
        """Count a request that a quota pauses. quota: Kafka's name of its config."""
        self.count(d.THROTTLED, quota)

    def produced(self, topic: str, messages: int, size_bytes: int) -> None:
        """Count a partition of a produce request that was appended."""
        row = self.topics.row(topic)
        row[PRODUCED] += 1
        row[MESSAGES_IN] += messages
        row[BYTES_IN] += size_bytes

    def produce_failed(self, topic: str) -> None:
        """Count a partition of a produce request that was refused, of a topic that exists."""
        row = self.topics.row(topic)
        row[PRODUCED] += 1
        row[FAILED_PRODUCED] += 1

    def expose_events(self, out: MetricSink, metrics: Iterable[Metric]) -> None:
        """Add counters; those without labels are 0 if nothing has happened."""
        totals = self._events.totals()
        for metric in metrics:
            samples = [(values, row[0]) for (counted, values), row in totals.items() if counted is metric]
            out.add_all(metric, sorted(samples) or ([] if metric.labels else [((), 0)]))

    def expose_topics(self, out: MetricSink, topics: Iterable[str]) -> None:
        """Add the counters of topics, in their order."""
        totals = self.topics.totals()
        out.add_rows(TOPIC_COUNTERS, [((topic,), *totals[topic]) for topic in topics if topic in totals])

    def forget_topics(self, existing: Container[str]) -> None:
        """Forget the counters of topics that do not exist any more."""
        self.topics.discard(lambda topic: topic not in existing)


class GcPauses:
    """Measures the collections of garbage of this process, which stop all its threads."""

    def __init__(self, pauses: TimeHistogram) -> None:
        self._pauses = pauses
        self._began_ns = 0
        gc.callbacks.append(self._on_collection)

    def close(self) -> None:
        """Stop measuring."""
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        elif self._began_ns:
            self._pauses.observe(time.perf_counter_ns() - self._began_ns)
