"""The text of metrics for Prometheus, in its own form (0.0.4) and in that of OpenMetrics (1.0.0)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from minikafka.base.metrics import BOUNDS_S, Histogram, Kind, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""Content types."""

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_BOUNDS = (*(repr(bound) for bound in BOUNDS_S), "+Inf")
_WANTS_OPENMETRICS = re.compile(r"application/openmetrics-text(?!\s*;[^,]*\bq=0(?:\.0*)?(?:[;,\s]|\Z))")


def wants_openmetrics(accept: str) -> bool:
    """Return True if the header ``Accept`` of a request names the form of OpenMetrics."""
    return _WANTS_OPENMETRICS.search(accept) is not None


def escape(value: str) -> str:
    """Return the value of a label as it stands between the quotation marks."""
    return value.translate(_LABEL_ESCAPES)


def labels(**values: object) -> str:
    """Return labels, as ``Exposition.add`` takes them."""
    return ",".join(f'{name}="{escape(str(value))}"' for name, value in values.items())


def _head(text: str) -> str:
    return f"{{{text}}}" if text else ""


class MetricSink(Protocol):
    """Takes metrics in some form; ``label_text`` is from ``labels``. Metrics without samples are left out."""

    def add(self, metric: Metric, value: float, label_text: str = "") -> None:
        """Add a metric with one sample."""

    def add_all(self, metric: Metric, samples: Iterable[tuple[str, float]]) -> None:
        """Add a metric with its samples, each with its labels."""

    def add_rows(self, metrics: Sequence[Metric], rows: Sequence[tuple[Any, ...]]) -> None:
        """Add several metrics of the same things: each row has the labels, and the value of each metric."""

    def add_histograms(self, metric: Metric, samples: Mapping[str, Histogram]) -> None:
        """Add a histogram of times, by labels."""


class Exposition:
    """The text of metrics, which is put together in the order of the calls."""

    def __init__(self, *, openmetrics: bool = False) -> None:
        self._openmetrics = openmetrics
        self._lines: list[str] = []

    def add(self, metric: Metric, value: float, label_text: str = "") -> None:
        """Add a metric with one sample. label_text: from ``labels``."""
        self.add_all(metric, ((label_text, value),))

    def add_all(self, metric: Metric, samples: Iterable[tuple[str, float]]) -> None:
        """Add a metric with its samples, each with its labels; without samples it is left out."""
        name = metric.name
        lines = [f"{name}{{{text}}} {value}" if text else f"{name} {value}" for text, value in samples]
        if lines:
            self._begin(metric)
            self._lines += lines

    def add_rows(self, metrics: Sequence[Metric], rows: Sequence[tuple[Any, ...]]) -> None:
        """Add several metrics of the same things: each row has the labels, and the value of each metric."""
        for column, metric in enumerate(metrics, 1):
            if rows:
                name = metric.name
                self._begin(metric)
                self._lines += [f"{name}{{{row[0]}}} {row[column]}" for row in rows]

    def add_histograms(self, metric: Metric, samples: Mapping[str, Histogram]) -> None:
        """Add a histogram of times, by labels; without samples it is left out."""
        if not samples:
            return
        self._begin(metric)
        name = metric.name
        for text, histogram in samples.items():
            before = f"{text}," if text else ""
            self._lines += [
                f'{name}_bucket{{{before}le="{bound}"}} {count}'
                for bound, count in zip(_BOUNDS, (*histogram.cumulative, histogram.count), strict=True)
            ]
            self._lines.append(f"{name}_sum{_head(text)} {histogram.sum_s}")
            self._lines.append(f"{name}_count{_head(text)} {histogram.count}")

    def _begin(self, metric: Metric) -> None:
        name = metric.name
        if self._openmetrics and metric.kind is Kind.COUNTER:
            name = name.removesuffix("_total")
        self._lines.append(f"# HELP {name} {metric.help.translate(_HELP_ESCAPES)}")
        self._lines.append(f"# TYPE {name} {metric.kind.value}")

    @property
    def content_type(self) -> str:
        """The content type of the text."""
        return OPENMETRICS if self._openmetrics else TEXT

    def encode(self) -> bytes:
        """Return the whole text."""
        end = ("# EOF", "") if self._openmetrics else ("",)
        return "\n".join((*self._lines, *end)).encode("utf-8", "backslashreplace")
