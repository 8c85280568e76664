# ruff: noqa: E501
"""The pages of the metrics of brokers, and of clients and streaming queries, from the code's own tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from minikafka.base.metrics import Metric
from minikafka.clients.metrics import connections, consumer, producer
from minikafka.clients.metrics.registry import MetricGroup
from minikafka.server.metrics import definitions
from pyspark_minikafka.monitoring import prometheus
from scripts.reference_tables import NOTE, table

_SECTION = re.compile(r"^# --- (.+?) -+$", re.MULTILINE)
"""The heading of a section of ``definitions``."""
_NAME = re.compile(r"^(\w+) = Metric\(", re.MULTILINE)

BROKER_METRICS = (
    "What `/metrics` of a broker has, for Prometheus. The property `metrics.listeners` of [brokers](broker-properties.md#metrics-and-health) says where it is served; [monitor a cluster](../guides/monitor.md) has a dashboard and alerts. "
    "Names and labels of `kafka_…` are those of kafka_exporter. A partition is exposed by its leader and a group by its coordinator, so a sum over all brokers counts each once. "
    "A counter only rises while its process runs. Histograms are in seconds: `NAME_bucket` with the label `le`, `NAME_sum` and `NAME_count`. "
    "In the label `api` fetches of consumers are `FetchConsumer`, and those of followers `FetchFollower`; `error` is a name of [Error codes](error-codes.md)."
)
FROM_KAFKA = (
    "Kafka's brokers have MBeans (JMX), with a type, a name, and keys such as a topic. A meter of Kafka (`…PerSec`) is a counter here: take `rate(NAME[1m])`. "
    "Of a timer's percentile take `histogram_quantile(0.99, sum by (le) (rate(NAME_bucket[1m])))`. Milliseconds there are seconds here."
)
CLOSEST: Mapping[str, tuple[Metric, str]] = {
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent": (
        definitions.NETWORK_IDLE,
        "network threads serve most requests themselves",
    ),
    "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=…,topic=…,partition=…": (
        definitions.FOLLOWER_LAG,
        "by follower, on the leader",
    ),
    "kafka.server:type=KafkaServer,name=ClusterId": (definitions.CLUSTER_INFO, "a label"),
}
"""MBeans without a metric that has the same, and the closest one with the difference."""


def broker_metrics() -> str:
    """Return the page of the metrics of brokers."""
    parts = ["# Broker metrics", NOTE, BROKER_METRICS]
    for title, metrics in broker_sections().items():
        rows = (
            [
                f"`{metric.name}`",
                metric.kind.value,
                ", ".join(f"`{name}`" for name in metric.labels),
                metric.help,
            ]
            for metric in metrics
        )
        parts += [f"## {title[0].upper()}{title[1:]}", table("Metric | Type | Labels | Meaning", rows)]
    same = {metric.jmx: f"`{metric.name}`" for metric in definitions.all_metrics() if metric.jmx}
    closest = {mbean: f"`{metric.name}` ({how})" for mbean, (metric, how) in CLOSEST.items()}
    both = sorted({**same, **closest}.items())
    parts += ["## From Kafka's MBeans", FROM_KAFKA]
    parts.append(table("MBean | Metric", ([f"`{mbean}`", found] for mbean, found in both)))
    return "\n\n".join(parts) + "\n"


def broker_sections() -> dict[str, list[Metric]]:
    """Return the metrics of ``definitions`` by the headings of its sections. Raises SystemExit if one has none."""
    _, *parts = _SECTION.split(inspect.getsource(definitions))
    sections = {
        title: [getattr(definitions, name) for name in _NAME.findall(text)]
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }
    if [metric for metrics in sections.values() for metric in metrics] != definitions.all_metrics():
        raise SystemExit("definitions.py: not every metric stands below a heading `# --- … ---`")
    return sections


def client_metrics() -> str:
    """Return the page of the metrics of clients."""
    parts = [
        "# Client metrics",
        NOTE,
        (
            "The names in what `metrics()` of a client returns, group by group: see [client metrics](../guides/client-metrics.md). They are those of Kafka's Java clients. "
            "A group with a part in capital letters is there once for each topic, partition or broker. "
            "A counter only rises. Means, maxima and rates are of the last 30 to 60 seconds. "
            "For Prometheus (`minikafka.clients.metrics.prometheus_text`) a name begins with `minikafka_` and that of its group, and has underscores: `records-lag` of a partition is `minikafka_consumer_fetch_manager_partition_records_lag`, with the labels `client_id`, `topic` and `partition`."
        ),
        *map(_section, (*producer.GROUPS, *consumer.GROUPS, *connections.GROUPS)),
        "## Streaming queries",
        "What a [`MetricsListener`](../guides/query-lag.md#for-prometheus-and-for-programs) serves for Prometheus.",
        table(
            "Name | Kind | Labels | Meaning",
            (
                [f"`{metric.name}`", metric.kind.value, ", ".join(metric.labels), metric.help]
                for metric in prometheus.METRICS
            ),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _section(group: MetricGroup) -> str:
    title = ".".join([group.name, "-".join(group.tags)] if group.tags else [group.name])
    rows = (
        [f"`{metric.name}`", "counter" if metric.stat.is_counter else "gauge", metric.text]
        for metric in group.metrics
    )
    return f"## {title}\n\n" + table("Name | Kind | Meaning", rows)
