"""Pushes the metrics of a broker to a collector of OpenTelemetry, by OTLP over HTTP (the extra ``otel``).

They are the same as those of a scrape, under the same names. Headers, such as those of a login, come from the
environment (``OTEL_EXPORTER_OTLP_HEADERS``), as in every program with OpenTelemetry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from minikafka.base.errors import ConfigError
from minikafka.base.exposition import MetricSink
from minikafka.base.metrics import BOUNDS_S, Histogram, Kind, LabelValues, Metric
from minikafka.server.config.metrics import OTLP_ENDPOINT, OtlpConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export

_log = logging.getLogger(__name__)

_EXPORTER = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
_TIMEOUT_S = 5
"""The time limit for a push, with the retries of the library."""


def check_packages(config: OtlpConfig) -> None:
    """Raise ConfigError if metrics are to be pushed, and the packages of the extra are missing."""
    if not config.endpoint:
        return
    try:
        import_module(_EXPORTER)
    except ImportError as error:
        needed = f"needs more packages ({error}): pip install 'minikafka[otel]'"
        raise ConfigError(OTLP_ENDPOINT, config.endpoint, needed) from None


class OtlpMetrics:
    """Collects metrics in the form of OpenTelemetry. See ``base.exposition.MetricSink``."""

    def __init__(self, began_ns: int, now_ns: int) -> None:
        """began_ns, now_ns: the start of the process and the present, since the epoch."""
        from opentelemetry.sdk.metrics import export

        self._export = export
        self._times = began_ns, now_ns
        self.metrics: list[export.Metric] = []

    def add(self, metric: Metric, value: float, *label_values: object) -> None:
        """Add a metric with one sample."""
        self.add_all(metric, ((label_values, value),))

    def add_all(self, metric: Metric, samples: Iterable[tuple[LabelValues, float]]) -> None:
        """Add a metric with its samples, each with the values of its labels."""
        export = self._export
        points = [
            export.NumberDataPoint(_attributes(metric, values), *self._times, value)
            for values, value in samples
        ]
        if points:
            data = (
                export.Sum(points, export.AggregationTemporality.CUMULATIVE, is_monotonic=True)
                if metric.kind is Kind.COUNTER
                else export.Gauge(points)
            )
            self._add(metric, data)

    def add_rows(self, metrics: Sequence[Metric], rows: Sequence[tuple[Any, ...]]) -> None:
        """Add several metrics with the same labels."""
        for column, metric in enumerate(metrics, 1):
            self.add_all(metric, [(row[0], row[column]) for row in rows])

    def add_histograms(self, metric: Metric, samples: Mapping[LabelValues, Histogram]) -> None:
        """Add a histogram of times, by the values of its labels."""
        export = self._export
        points = [
            export.HistogramDataPoint(
                _attributes(metric, values),
                *self._times,
                histogram.count,
                histogram.sum_s,
                _counts(histogram),
                BOUNDS_S,
                0.0,
                0.0,
            )
            for values, histogram in samples.items()
        ]
        if points:
            self._add(metric, export.Histogram(points, export.AggregationTemporality.CUMULATIVE))

    def _add(self, metric: Metric, data: export.Sum | export.Gauge | export.Histogram) -> None:
        name = metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name
        unit = "s" if name.endswith("_seconds") else "By" if name.endswith("_bytes") else ""
        self.metrics.append(self._export.Metric(name, metric.help, unit, data))


def _attributes(metric: Metric, values: LabelValues) -> dict[str, str]:
    return dict(zip(metric.labels, map(str, values), strict=True))


def _counts(histogram: Histogram) -> list[int]:
    """Return the observations of each bucket alone, with the one above all bounds."""
    cumulative = (*histogram.cumulative, histogram.count)
    return [count - below for count, below in zip(cumulative, (0, *histogram.cumulative), strict=True)]


class OtlpPusher:
    """Pushes metrics from its construction until ``close``, and a last time then."""

    def __init__(
        self, config: OtlpConfig, collect: Callable[[MetricSink], None], resource: Mapping[str, str]
    ) -> None:
        """collect: adds the metrics. resource: attributes of this broker."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.resources import Resource

        self._exporter = OTLPMetricExporter(endpoint=config.endpoint, timeout=_TIMEOUT_S)
        self._endpoint, self._interval_s = config.endpoint, config.interval_ms / 1000
        self._resource = Resource.create(dict(resource))
        self._collect = collect
        self._began_ns = time.time_ns()
        self._failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Push a last time, and stop."""
        self._stopping.set()
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        # The library logs each attempt that fails; one line is enough.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        stopped = False
        while not stopped:
            stopped = self._stopping.wait(self._interval_s)
            if not (stopped and self._failing):  # a stop does not wait for a collector that is away
                self.push()

    def push(self) -> None:
        """Push the metrics now. A failure is logged when it begins and when it ends."""
        from opentelemetry.sdk.metrics import export
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        out = OtlpMetrics(self._began_ns, time.time_ns())
        try:
            self._collect(out)
            scope = export.ScopeMetrics(InstrumentationScope("minikafka"), out.metrics, "")
            data = export.MetricsData([export.ResourceMetrics(self._resource, [scope], "")])
            failed = self._exporter.export(data) is not export.MetricExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - the next push may succeed
            _log.exception("unexpected error while pushing metrics to %s", self._endpoint)
            failed = True
        if failed and not self._failing:
            text = "failed to push metrics to %s, retrying every %g s"
            _log.warning(text, self._endpoint, self._interval_s)
        elif self._failing and not failed:
            _log.info("metrics are pushed to %s again", self._endpoint)
        self._failing = failed
