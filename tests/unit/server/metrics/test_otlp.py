"""Metrics that are pushed, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import gzip
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.exposition import MetricSink
from minikafka.base.metrics import BOUNDS_S, Kind, Metric, TimeHistogram
from minikafka.server.config.metrics import OtlpConfig
from minikafka.server.metrics import otlp
from minikafka.server.metrics.otlp import OtlpPusher
from tests.support.network import eventually

service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")

SENT = Metric("minikafka_sent_bytes_total", Kind.COUNTER, "Bytes.", ("topic",))
OPEN = Metric("minikafka_open", Kind.GAUGE, "Connections.")
TIMES = Metric("minikafka_wait_seconds", Kind.HISTOGRAM, "Times.")
HOUR_MS = 3_600_000


class Collector(ThreadingHTTPServer):
    """A collector that keeps what it receives; ``status`` is its answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[Any] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/metrics"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        collector: Any = self.server
        collector.received.append(service.ExportMetricsServiceRequest.FromString(body))
        self.send_response(collector.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Be silent."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def collect(out: MetricSink) -> None:
    times = TimeHistogram()
    times.observe(1)
    times.observe(70_000)
    out.add_all(SENT, [(('a "b"\n\\c',), 7), (("t",), 9)])
    out.add(OPEN, 3)
    out.add_histograms(TIMES, {(): times.read()})


def pusher(url: str, interval_ms: int = HOUR_MS) -> OtlpPusher:
    return OtlpPusher(OtlpConfig(url, interval_ms), collect, {"service.instance.id": "5"})


def test_metrics_arrive_with_their_types_and_labels(collector: Collector) -> None:
    pusher(collector.url).close()
    (request,) = collector.received
    (resource,) = request.resource_metrics
    attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert attributes["service.instance.id"] == "5"
    sent, opened, times = resource.scope_metrics[0].metrics
    assert (sent.name, sent.unit, sent.sum.is_monotonic) == ("minikafka_sent_bytes", "By", True)
    points = {point.attributes[0].value.string_value: point.as_int for point in sent.sum.data_points}
    assert points == {'a "b"\n\\c': 7, "t": 9}
    assert opened.gauge.data_points[0].as_int == 3
    (point,) = times.histogram.data_points
    assert (point.count, list(point.explicit_bounds)) == (2, list(BOUNDS_S))
    assert list(point.bucket_counts) == [1, 1] + [0] * (len(BOUNDS_S) - 1)


def test_metrics_are_pushed_again_and_again(collector: Collector) -> None:
    pushing = pusher(collector.url, 1)
    eventually(lambda: len(collector.received) >= 3, "three pushes have arrived")
    pushing.close()


def test_failure_is_logged_once_and_so_is_its_end(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "minikafka")
    pushing = pusher(collector.url)
    collector.status = 400
    pushing.push()
    pushing.push()
    collector.status = 200
    pushing.push()
    pushing.close()
    found = [record.getMessage() for record in caplog.records]
    assert found == [
        f"failed to push metrics to {collector.url}, retrying every 3600 s",
        f"metrics are pushed to {collector.url} again",
    ]


def test_missing_packages_are_named_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    monkeypatch.delitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'minikafka\[otel\]'"):
        otlp.check_packages(OtlpConfig("http://127.0.0.1:4318/v1/metrics", 1))
    otlp.check_packages(OtlpConfig("", 1))
