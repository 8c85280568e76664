"""The metrics of a client's connections: those of all brokers together, and those of each broker.

They belong to a ``ClusterClient``: producers and consumers that share one show the same numbers. Each request
and each response is recorded once, under a lock of its broker's metrics that is held for 1 or 2 µs;
the sums over all brokers are made when somebody reads them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from minikafka.clients.metrics.registry import (
    Metric,
    MetricGroup,
    Metrics,
    counted,
    measured,
    read,
    summed,
    value,
)
from minikafka.clients.metrics.sensor import Reading, Sensor, merged

_TRAFFIC = (
    *counted("request", "requests", "Requests sent"),
    *counted("response", "responses", "Responses received"),
    *summed("outgoing-byte", "requests", "Bytes of requests"),
    *summed("incoming-byte", "responses", "Bytes of responses"),
    *measured("request-size", "requests", "Bytes of a request"),
)
CONNECTION_METRICS: tuple[Metric, ...] = (
    value("connection-count", "connection_count", "Open connections"),
    *counted("connection-creation", "opened", "Connections opened"),
    *counted("connection-close", "closed", "Connections closed, by either side"),
    *counted("failed-authentication", "failed_logins", "Connections that a broker did not let in"),
    *_TRAFFIC,
)
"""Those of all brokers together."""
NODE_METRICS: tuple[Metric, ...] = (
    *_TRAFFIC,
    *measured("request-latency", "latency", "Milliseconds from a request to its response"),
)
"""Those of one broker."""

CLIENT = "client"
BOOTSTRAP_NODE = "node--1"
"""The name of a broker whose id is unknown."""
ADMIN = "admin-client"
GROUPS = tuple(
    group
    for prefix in (ADMIN, CLIENT)
    for group in (
        MetricGroup(f"{prefix}-metrics", (), CONNECTION_METRICS),
        MetricGroup(f"{prefix}-node-metrics", ("node-ID",), NODE_METRICS),
    )
)


_SENSORS = ("requests", "responses", "latency", "opened", "closed", "failed_logins")


class NodeMetrics:
    """The requests to one broker, over all connections to it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = Sensor()
        """The bytes of each request."""
        self.responses = Sensor()
        """The bytes of each response."""
        self.latency = Sensor()
        self.opened = Sensor()
        self.closed = Sensor()
        self.failed_logins = Sensor()

    def record_request(self, size_bytes: int, now_ms: int) -> None:
        """Record a request that was sent."""
        with self._lock:
            self.requests.record(size_bytes, now_ms)

    def record_response(self, size_bytes: int, latency_ms: int, now_ms: int) -> None:
        """Record a response."""
        with self._lock:
            self.responses.record(size_bytes, now_ms)
            self.latency.record(latency_ms, now_ms)

    def record(self, sensor: Sensor, now_ms: int) -> None:
        """Record an event of one of the other sensors."""
        with self._lock:
            sensor.record(1, now_ms)

    def add(self, other: NodeMetrics) -> None:
        """Include the totals of a broker that is no longer used."""
        with self._lock:
            for name in _SENSORS:
                getattr(self, name).add_totals(getattr(other, name))


class ConnectionReadings:
    """The sums over all brokers at one time."""

    def __init__(self, nodes: Iterable[NodeMetrics], connection_count: int, now_ms: int) -> None:
        every = list(nodes)

        def total(name: str) -> Reading:
            return merged([getattr(node, name) for node in every], now_ms)

        self.connection_count = connection_count
        self.requests = total("requests")
        self.responses = total("responses")
        self.opened = total("opened")
        self.closed = total("closed")
        self.failed_logins = total("failed_logins")


def connection_metrics(
    prefix: str, readings: ConnectionReadings, nodes: Iterable[tuple[str, NodeMetrics]], now_ms: int
) -> Metrics:
    """Return the metrics of the connections of a kind of client, with those of each of the named nodes."""
    found: Metrics = {f"{prefix}-metrics": read(CONNECTION_METRICS, readings, now_ms)}
    for name, node in nodes:
        found[f"{prefix}-node-metrics.{name}"] = read(NODE_METRICS, node, now_ms)
    return found
