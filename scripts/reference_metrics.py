# ruff: noqa: E501
"""The page of the clients' metrics, from the tables of ``minikafka.clients.metrics``."""

from __future__ import annotations

from minikafka.clients.metrics import connections, consumer, producer
from minikafka.clients.metrics.registry import MetricGroup
from scripts.reference_tables import NOTE, table


def client_metrics() -> str:
    """Return the page."""
    parts = [
        "# Client metrics",
        NOTE,
        (
            "The names in what `metrics()` of a client returns, group by group: see [client metrics](../guides/client-metrics.md). They are those of Kafka's Java clients. "
            "A group with a part in capital letters is there once for each topic, partition or broker. "
            "A counter only rises. Means, maxima and rates are of the last 30 to 60 seconds."
        ),
        *map(_section, (*producer.GROUPS, *consumer.GROUPS, *connections.GROUPS)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(group: MetricGroup) -> str:
    title = ".".join([group.name, "-".join(group.tags)] if group.tags else [group.name])
    rows = (
        [f"`{metric.name}`", "counter" if metric.stat.is_counter else "gauge", metric.text]
        for metric in group.metrics
    )
    return f"## {title}\n\n" + table("Name | Kind | Meaning", rows)
