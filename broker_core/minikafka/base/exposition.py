"""The text of metrics for Prometheus, in its own form (0.0.4) and in that of OpenMetrics (1.0.0)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from minikafka.base.metrics import BOUNDS_S, Histogram, Kind, LabelValues, Metric

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


class MetricSink(Protocol):
    """Takes metrics in some form. Labels are given by their values: a metric's definition has the names.

    Metrics without samples are left out.
    """

    def add(self, metric: Metric, value: float, *label_values: object) -> None:
        """Add a metric with one sample."""

    def add_all(self, metric: Metric, samples: Iterable[tuple[LabelValues, float]]) -> None:
        """Add a metric with its samples, each with the values of its labels."""

    def add_rows(self, metrics: Sequence[Metric], rows: Sequence[tuple[Any, ...]]) -> None:
        """Add several metrics with the same labels: a row has their values, and that of each metric."""

    def add_histograms(self, metric: Metric, samples: Mapping[LabelValues, Histogram]) -> None:
        """Add a histogram of times, by the values of its labels."""


def _label_texts(names: Sequence[str], samples: Iterable[LabelValues]) -> list[str]:
    """Return the labels of samples in their brackets; "" without names."""
    template = "{" + ",".join(f'{name}="%s"' for name in names) + "}" if names else ""
    texts = [template % values for values in samples]
    joined = "".join(texts)
    if "\\" in joined or "\n" in joined or joined.count('"') != 2 * len(names) * len(texts):
        return [template % tuple(map(_escape, values)) for values in samples]
    return texts


def _escape(value: object) -> str:
    return str(value).translate(_LABEL_ESCAPES)


class Exposition:
    """The text of metrics, which is put together in the order of the calls. See ``MetricSink``."""

    def __init__(self, *, openmetrics: bool = False) -> None:
        self._openmetrics = openmetrics
        self._lines: list[str] = []
        self._known: dict[tuple[str, ...], dict[LabelValues, str]] = {}
        """The labels that are in the text already, by their names and values."""

    def add(self, metric: Metric, value: float, *label_values: object) -> None:
        """Add a metric with one sample."""
        self.add_all(metric, ((label_values, value),))

    def add_all(self, metric: Metric, samples: Iterable[tuple[LabelValues, float]]) -> None:
        """Add a metric with its samples, each with the values of its labels."""
        self.add_rows((metric,), list(samples))

    def add_rows(self, metrics: Sequence[Metric], rows: Sequence[tuple[Any, ...]]) -> None:
        """Add several metrics with the same labels: a row has their values, and that of each metric."""
        if not rows:
            return
        texts = self._labels(metrics[0], [row[0] for row in rows])
        for column, metric in enumerate(metrics, 1):
            name = metric.name
            self._begin(metric)
            self._lines += [f"{name}{text} {row[column]}" for text, row in zip(texts, rows, strict=True)]

    def add_histograms(self, metric: Metric, samples: Mapping[LabelValues, Histogram]) -> None:
        """Add a histogram of times, by the values of its labels."""
        if not samples:
            return
        self._begin(metric)
        name, texts = metric.name, self._labels(metric, list(samples))
        for text, histogram in zip(texts, samples.values(), strict=True):
            before = f"{text[1:-1]}," if text else ""
            self._lines += [
                f'{name}_bucket{{{before}le="{bound}"}} {count}'
                for bound, count in zip(_BOUNDS, (*histogram.cumulative, histogram.count), strict=True)
            ]
            self._lines.append(f"{name}_sum{text} {histogram.sum_s}")
            self._lines.append(f"{name}_count{text} {histogram.count}")

    def _labels(self, metric: Metric, samples: list[LabelValues]) -> list[str]:
        """Return the text of the labels of samples; that of one partition, for example, is made once."""
        known = self._known.setdefault(metric.labels, {})
        try:
            return [known[values] for values in samples]
        except KeyError:
            texts = _label_texts(metric.labels, samples)
            known.update(zip(samples, texts, strict=True))
            return texts

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
