"""The metrics of a producer.

All are recorded under the producer's own lock, which its callers hold anyway: those of sent batches once for
each request, when its response is handled, and the others when something rare happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from minikafka.base.clock import Clock
from minikafka.base.ids import TopicPartition
from minikafka.clients.metrics.connections import CONNECTION_METRICS, NODE_METRICS
from minikafka.clients.metrics.registry import (
    Metric,
    MetricGroup,
    Metrics,
    Stat,
    counted,
    measured,
    summed,
    value,
)
from minikafka.clients.metrics.sensor import Reading, Sensor, merged

PREFIX = "producer"
_SENT = (
    *summed("record-send", "records", "Records sent; again with each retry"),
    *summed("record-retry", "retries", "Records queued to be sent again"),
    *summed("record-error", "errors", "Records that failed, after all retries"),
    *summed("byte", "bytes_", "Bytes of the batches sent, compressed"),
)
_TRANSACTION_CALLS = {
    "init_transactions": "txn-init-time-ns-total",
    "begin": "txn-begin-time-ns-total",
    "send_offsets": "txn-send-offsets-time-ns-total",
    "commit": "txn-commit-time-ns-total",
    "abort": "txn-abort-time-ns-total",
}
PRODUCER_METRICS: tuple[Metric, ...] = (
    *_SENT,
    *measured("request-latency", "request_latency", "Milliseconds from a Produce request to its response"),
    *measured("record-queue-time", "queue_time", "Milliseconds for which a batch waited to be sent"),
    *measured("batch-size", "bytes_", "Bytes of a batch, compressed"),
    Metric("compression-rate-avg", "compression", Stat.AVG, "Size of a compressed batch by its size before"),
    *counted("batch-split", "splits", "Batches sent in halves, as they were too large"),
    Metric("records-per-request-avg", "request_records", Stat.AVG, "Records in a request, mean"),
    *measured("produce-throttle-time", "throttle", "Milliseconds for which a broker throttled a request"),
    value("requests-in-flight", "requests_in_flight", "Produce requests without a response"),
    value("buffer-total-bytes", "buffer_total_bytes", "buffer.memory"),
    value("buffer-available-bytes", "buffer_available_bytes", "The part of buffer.memory that is free"),
    *counted("buffer-exhausted", "buffer_exhausted", "Sends that failed, as no memory became free in time"),
    Metric("bufferpool-wait-time-ns-total", "buffer_wait", Stat.TOTAL_NS, "Time waited for free memory"),
    Metric("flush-time-ns-total", "flushes", Stat.TOTAL_NS, "Time spent in flush()"),
    *(
        Metric(name, call, Stat.TOTAL_NS, f"Time spent in {call}() of a TransactionalProducer")
        for call, name in _TRANSACTION_CALLS.items()
    ),
    value("metadata-age", "metadata_age", "Seconds since the newest metadata of the cluster"),
)
TOPIC = MetricGroup(
    "producer-topic-metrics",
    ("TOPIC",),
    (
        *_SENT,
        Metric("compression-rate", "compression", Stat.AVG, "Size of a compressed batch by its size before"),
    ),
)
PRODUCER = MetricGroup("producer-metrics", (), PRODUCER_METRICS)
GROUPS = (
    MetricGroup("producer-metrics", (), (*PRODUCER_METRICS, *CONNECTION_METRICS)),
    TOPIC,
    MetricGroup("producer-node-metrics", ("node-ID",), NODE_METRICS),
)


class SentBatch(Protocol):
    """The part of a batch that is recorded."""

    topic_partition: TopicPartition
    count: int
    encoded_bytes: int
    """The size as it was sent; 0: it was not, or is recorded already."""
    compression_ratio: float | None
    """That size by the one before compression; None if the latter is unknown."""


_SENT_SENSORS = ("records", "retries", "errors", "bytes_", "compression")


class _Sent:
    """Sensors of the records for one topic."""

    def __init__(self) -> None:
        self.records = Sensor()
        self.retries = Sensor()
        self.errors = Sensor()
        self.bytes_ = Sensor()
        self.compression = Sensor()


class ProducerMetrics:
    """The sensors of one producer. Every method is called under the producer's lock.

    What is sent is recorded by topic; the sums over all topics are made when somebody reads them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.topics: dict[str, _Sent] = {}
        self.records = self.retries = self.errors = self.bytes_ = self.compression = Reading()
        self.request_latency = Sensor()
        self.queue_time = Sensor()
        self.splits = Sensor()
        self.request_records = Sensor()
        self.throttle = Sensor()
        self.buffer_exhausted = Sensor()
        self.buffer_wait = Sensor()
        self.flushes = Sensor()
        self.init_transactions = Sensor()
        self.begin = Sensor()
        self.send_offsets = Sensor()
        self.commit = Sensor()
        self.abort = Sensor()
        self.requests_in_flight = 0
        self.buffer_total_bytes = 0
        self.buffer_available_bytes = 0
        self.metadata_age = 0.0

    def record_drained(self, created_ms: int, now_ms: int) -> None:
        """Record a batch that is sent now and was begun at ``created_ms``."""
        self.queue_time.record(now_ms - created_ms, now_ms)

    def record_request(
        self, batches: Iterable[SentBatch], latency_ms: int | None, throttle_ms: int = 0
    ) -> None:
        """Record the end of a request with these batches. ``latency_ms``: None without a response.

        Its records count as sent from then on, in Kafka from the time at which the request is made.
        """
        now_ms = self._clock.monotonic_ms()
        sent = 0
        for batch in batches:
            if not batch.encoded_bytes:
                continue
            sent += batch.count
            sensors = self.topic(batch.topic_partition.topic)
            sensors.records.record(batch.count, now_ms)
            sensors.bytes_.record(batch.encoded_bytes, now_ms)
            if batch.compression_ratio is not None:
                sensors.compression.record(batch.compression_ratio, now_ms)
            batch.encoded_bytes = 0  # a retry may fail before it is encoded again
        if sent:
            self.request_records.record(sent, now_ms)
        if latency_ms is not None:
            self.request_latency.record(latency_ms, now_ms)
            self.throttle.record(throttle_ms, now_ms)

    def record_retry(self, topic: str, count: int) -> None:
        """Record a batch of ``count`` records that is queued to be sent again."""
        self.topic(topic).retries.record(count, self._clock.monotonic_ms())

    def record_error(self, topic: str, count: int) -> None:
        """Record a batch of ``count`` records that has failed."""
        self.topic(topic).errors.record(count, self._clock.monotonic_ms())

    def record_event(self, sensor: Sensor, number: float = 1) -> None:
        """Record a number of one of the other sensors."""
        sensor.record(number, self._clock.monotonic_ms())

    def record_call(self, call: str, took_ms: int) -> None:
        """Record a call of a transaction that took ``took_ms``."""
        self.record_event(getattr(self, call), took_ms)

    def topic(self, name: str) -> _Sent:
        """Return the sensors of one topic."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = _Sent()
        return found

    def read(self) -> Metrics:
        """Return all values."""
        now_ms = self._clock.monotonic_ms()
        for name in _SENT_SENSORS:
            setattr(self, name, merged((getattr(topic, name) for topic in self.topics.values()), now_ms))
        found = {PRODUCER.key(): PRODUCER.read(self, now_ms)}
        for name, sensors in self.topics.items():
            found[TOPIC.key(name)] = TOPIC.read(sensors, now_ms)
        return found
