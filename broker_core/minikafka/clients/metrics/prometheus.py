"""The metrics of clients as the text that Prometheus reads.

A metric has the name of its group and its own, with underscores: ``records-lag-max`` in the group
``consumer-fetch-manager-metrics`` is ``minikafka_consumer_fetch_manager_records_lag_max``. Where that group
is there for topics and partitions too, these have ``_topic`` or ``_partition`` behind the name of the group,
so that no sum counts anything twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache

from minikafka.base import metrics as base
from minikafka.base.exposition import TEXT, Exposition
from minikafka.clients.metrics import connections, consumer, producer
from minikafka.clients.metrics.registry import MetricGroup, Metrics

PROMETHEUS_TEXT = TEXT
"""The content type of the text."""
_GROUPS = (*producer.GROUPS, *consumer.GROUPS, *connections.GROUPS)
_NODE = "node-ID"
_LABELS = {"TOPIC": "topic", "PARTITION": "partition", _NODE: "node_id"}
_Definitions = Mapping[str, base.Metric]
"""By the name in the group."""


def prometheus_text(clients: Mapping[str, Metrics]) -> str:
    """Return the metrics of clients for Prometheus; serve them with the content type ``PROMETHEUS_TEXT``.

    clients: what ``metrics()`` of each client has returned, by a name that becomes its label ``client_id``.
    Values that are NaN, such as the mean of nothing, are left out. Raises ValueError for other metrics.
    """
    found: dict[base.Metric, list[tuple[base.LabelValues, float]]] = {}
    for client_id, groups in clients.items():
        for key, values in groups.items():
            definitions, tags = _definitions_of(key, values)
            for name, value in values.items():
                if not math.isnan(value):
                    found.setdefault(definitions[name], []).append(((client_id, *tags), value))
    out = Exposition()
    for metric, samples in found.items():
        out.add_all(metric, samples)
    return out.encode().decode()


def names() -> set[str]:
    """Return the names of all metrics."""
    return {metric.name for group in _GROUPS for _, metric in _defined(group)}


def _definitions_of(key: str, values: Mapping[str, float]) -> tuple[_Definitions, tuple[str, ...]]:
    """Return the definitions of a group's metrics, and the values of its tags."""
    name, _, tag = key.partition(".")
    for group, definitions in _known().get((name, bool(tag)), ()):
        if values.keys() <= definitions.keys():
            return definitions, _tags(group, tag)
    raise ValueError(f"unknown group of metrics {key!r}: expected what metrics() of a client returns")


def _tags(group: MetricGroup, text: str) -> tuple[str, ...]:
    if group.tags == (_NODE,):
        return (text.removeprefix("node-"),)
    # The name of a topic may have hyphens.
    return tuple(text.rsplit("-", len(group.tags) - 1)) if group.tags else ()


@cache
def _known() -> Mapping[tuple[str, bool], list[tuple[MetricGroup, _Definitions]]]:
    """Return all groups of a name, with tags or without, and their definitions."""
    found: dict[tuple[str, bool], list[tuple[MetricGroup, _Definitions]]] = {}
    for group in _GROUPS:
        found.setdefault((group.name, bool(group.tags)), []).append((group, dict(_defined(group))))
    return found


def _defined(group: MetricGroup) -> Iterator[tuple[str, base.Metric]]:
    is_part = group.tags and any(other.name == group.name and not other.tags for other in _GROUPS)
    part = f"{_LABELS[group.tags[-1]]}-" if is_part else ""
    prefix = f"minikafka-{group.name.removesuffix('metrics')}{part}"
    labels = ("client_id", *(_LABELS[tag] for tag in group.tags))
    for metric in group.metrics:
        kind = base.Kind.COUNTER if metric.stat.is_counter else base.Kind.GAUGE
        name = f"{prefix}{metric.name}".replace("-", "_")
        yield metric.name, base.Metric(name, kind, f"{metric.text}.", labels)
