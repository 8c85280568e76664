"""The table of a client's metrics: the name, the meaning, and the part of a sensor that each one shows.

A group of metrics is read from an object whose attributes are sensors, numbers, or ``Reading``s. The mapping
that ``metrics()`` of a client returns has the name of the group as its key, with the values of its tags
(topic, partition, node) behind a dot. ``GROUPS`` of each module has its groups, for the reference page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from minikafka.clients.metrics.sensor import Reading, Sensor

Metrics = dict[str, dict[str, float]]
"""Group -> name -> value."""

_NS_PER_MS = 1_000_000


class Stat(Enum):
    """The part of a sensor that a metric shows."""

    TOTAL = "sum of all numbers"
    COUNT = "number of numbers"
    RATE = "sum per second"
    COUNT_RATE = "numbers per second"
    AVG = "mean"
    MAX = "maximum"
    MIN = "minimum"
    TOTAL_NS = "sum of all times, in nanoseconds"
    VALUE = "the attribute itself, a number"

    @property
    def is_counter(self) -> bool:
        """True for a value that only rises."""
        return self in (Stat.TOTAL, Stat.COUNT, Stat.TOTAL_NS)


class Metric(NamedTuple):
    """One metric. ``source``: the attribute with the sensor."""

    name: str
    source: str
    stat: Stat
    text: str


class MetricGroup(NamedTuple):
    """Metrics that are read from one object. ``tags`` names what is behind the dot of the key."""

    name: str
    tags: tuple[str, ...]
    metrics: tuple[Metric, ...]

    def key(self, *tags: object) -> str:
        """Return the key for some values of the tags."""
        return f"{self.name}.{'-'.join(map(str, tags))}" if tags else self.name

    def read(self, source: object, now_ms: int) -> dict[str, float]:
        """Return the values of all metrics of an object at a monotonic time."""
        return read(self.metrics, source, now_ms)


def read(metrics: Iterable[Metric], source: object, now_ms: int) -> dict[str, float]:
    """Return the values of ``metrics`` of an object at a monotonic time."""
    return {metric.name: _value(getattr(source, metric.source), metric.stat, now_ms) for metric in metrics}


def _value(found: object, stat: Stat, now_ms: int) -> float:
    if stat is Stat.VALUE:
        assert isinstance(found, int | float)
        return float(found)
    reading = found.read(now_ms) if isinstance(found, Sensor) else found
    assert isinstance(reading, Reading)
    values = {
        Stat.TOTAL: reading.total,
        Stat.TOTAL_NS: reading.total * _NS_PER_MS,
        Stat.COUNT: reading.count,
        Stat.RATE: reading.rate,
        Stat.COUNT_RATE: reading.count_rate,
        Stat.AVG: reading.mean,
        Stat.MAX: reading.largest,
        Stat.MIN: reading.smallest,
    }
    return float(values[stat])


def summed(name: str, source: str, text: str) -> tuple[Metric, ...]:
    """Return ``…-total`` and ``…-rate`` of the sum of a sensor's numbers."""
    return (
        Metric(f"{name}-total", source, Stat.TOTAL, text),
        Metric(f"{name}-rate", source, Stat.RATE, f"{text}, per second"),
    )


def counted(name: str, source: str, text: str) -> tuple[Metric, ...]:
    """Return ``…-total`` and ``…-rate`` of the number of a sensor's numbers."""
    return (
        Metric(f"{name}-total", source, Stat.COUNT, text),
        Metric(f"{name}-rate", source, Stat.COUNT_RATE, f"{text}, per second"),
    )


def measured(name: str, source: str, text: str) -> tuple[Metric, ...]:
    """Return ``…-avg`` and ``…-max`` of a sensor's numbers."""
    return (
        Metric(f"{name}-avg", source, Stat.AVG, f"{text}, mean"),
        Metric(f"{name}-max", source, Stat.MAX, f"{text}, maximum"),
    )


def value(name: str, source: str, text: str) -> Metric:
    """Return a metric of a number."""
    return Metric(name, source, Stat.VALUE, text)


def merged_groups(*found: Metrics) -> Metrics:
    """Return the groups of several mappings; one that is in more than one has all of its metrics."""
    merged: Metrics = {}
    for metrics in found:
        for name, values in metrics.items():
            merged.setdefault(name, {}).update(values)
    return merged


def seconds_ago(last_ms: int | None, now_ms: int) -> float:
    """Return the seconds since a monotonic time; NaN without one."""
    return math.nan if last_ms is None else max(0, now_ms - last_ms) / 1000
