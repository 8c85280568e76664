"""Prometheus reads a cluster of three brokers, one of which is killed and comes back.

Every query of the dashboard has data then, and so have those of dashboards for kafka_exporter. Lag and
partitions are the same as in the commands, and in Kafka's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from ruamel.yaml import YAML

from minikafka.base.ids import TopicPartition
from minikafka.cli.commands import run
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.clients.produce.config import ACKS_ALL
from minikafka.embedded import Cluster
from minikafka.embedded.process import wait_until
from minikafka.net.ports import free_port
from tests.interop.releases import KAFKA_3_9
from tests.support.command_line import CommandLine
from tests.support.prometheus import ALERTS, MONITORING, Prometheus, needs_prometheus, panel_queries

pytestmark = [pytest.mark.interop, pytest.mark.slow, needs_prometheus]

PATIENCE_S = 60
TOPICS = {"orders": 4, "payments": 2}
GROUP = "billing"
BY_CLUSTER = "by-cluster"
VARIABLES = {
    "job": "minikafka",
    "instance": ".+",
    "topic": ".+",
    "group": ".+",
    "api": "Produce",
    "__rate_interval": "10s",
}
NEEDS_USERS = "minikafka_authentications_total"
"""It has no data in a cluster that is open to all."""
KAFKA_EXPORTER = [
    'sum(rate(kafka_topic_partition_current_offset{topic!="__consumer_offsets"}[1m])) by (topic)',
    'sum(rate(kafka_topic_partition_current_offset{instance="$i", topic=~"$t"}[1m])) by (topic)',
    'sum(delta(kafka_topic_partition_current_offset{instance=~"$i", topic=~"$t"}[5m])/5) by (topic)',
    "sum(kafka_consumergroup_lag) by (consumergroup, topic)",
    'sum(kafka_consumergroup_lag{instance="$i", topic=~"$t"}) by (consumergroup, topic)',
    'sum by (consumergroup, topic) (delta(kafka_consumergroup_current_offset{instance=~"$i"}[5m])/5)',
    'sum by(topic) (kafka_topic_partitions{topic!="__consumer_offsets"})',
    'sum by(topic) (kafka_topic_partitions{instance=~"$i", topic=~"$t"})',
]
"""The queries of dashboards to an exporter that speaks for the whole cluster."""


def configuration(targets: list[str]) -> dict[str, Any]:
    """Return the example's configuration, twice: as it is, and with the part that is commented out."""
    text = (MONITORING / "prometheus.yml").read_text("utf-8")
    plain, mark, commented = text.partition("    # metric_relabel_configs:")
    other = plain + (mark + commented).replace("    # ", "    ")
    found, relabelled = (YAML(typ="safe").load(form) for form in (plain, other))
    jobs = [*found["scrape_configs"], *relabelled["scrape_configs"]]
    jobs[1]["job_name"] = BY_CLUSTER
    assert "metric_relabel_configs" in jobs[1]
    for job in jobs:
        job["static_configs"][0]["targets"] = targets
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": jobs,
    }


@dataclass
class Watched:
    """A cluster and a Prometheus that has seen a failover of it."""

    cluster: Cluster
    prometheus: Prometheus
    client: ClusterClient
    started_s: float


class Traffic:
    """A producer and a group that reads what it sends."""

    def __init__(self, client: ClusterClient, producer: BatchingProducer) -> None:
        self._producer = producer
        settings = GroupConsumerConfig(GROUP, auto_offset_reset=Reset.EARLIEST, auto_commit_interval_ms=500)
        self.consumer = GroupConsumer(client, settings)
        self.consumer.subscribe(list(TOPICS))

    def send(self, count: int) -> None:
        """Send messages to each topic, and wait until they are acknowledged."""
        futures = [
            self._producer.send(topic, b"%d" % number, partition=number % partitions)
            for topic, partitions in TOPICS.items()
            for number in range(count)
        ]
        assert self._producer.wait(futures)
        for future in futures:
            future.result()

    def until(self, reached: Callable[[], bool]) -> bool:
        """Send and read until it is True."""

        def step() -> bool:
            self.send(20)
            self.consumer.poll_records(100)
            return reached()

        return wait_until(step, PATIENCE_S)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    ports = [free_port() for _ in range(3)]
    config = {
        "offsets.topic.num.partitions": "6",
        "zookeeper.session.timeout.ms": "2000",
        "log.flush.interval.messages": "50",
        "quota.producer.default": "1000000000",
    }
    own = {number: {"metrics.listeners": f"http://127.0.0.1:{port}"} for number, port in enumerate(ports)}
    targets = [f"127.0.0.1:{port}" for port in ports]
    with (
        Cluster(3, config=config, broker_configs=own) as cluster,
        Prometheus(tmp_path_factory.mktemp("prometheus"), configuration(targets)) as prometheus,
        ClusterClient(cluster.bootstrap_servers) as client,
        BatchingProducer(client, BatchingConfig(acks=ACKS_ALL)) as producer,
    ):
        started_s = time.time()
        for name, partitions in TOPICS.items():
            Admin(client).create_topic(NewTopic(name, partitions, replication_factor=3))
        traffic = Traffic(client, producer)
        old_group = (
            "--to-earliest",
            "--topic",
            "orders",
            "--execute",
            "--zookeeper",
            cluster.zookeeper_connect,
        )
        assert run(["group", "reset", "audit", *old_group]) == 0
        fail_over(cluster, prometheus, traffic)
        traffic.consumer.close()
        traffic.send(5)
        yield Watched(cluster, prometheus, client, started_s)


def fail_over(cluster: Cluster, prometheus: Prometheus, traffic: Traffic) -> None:
    """Kill a broker and start it again, with some seconds of traffic before, between and after."""

    def scrapes() -> float:
        return prometheus.value('min(count_over_time(minikafka_scrape_seconds{job="minikafka"}[5m]))')

    under_replicated = 'sum(minikafka_under_replicated_partitions{job="minikafka"})'
    assert traffic.until(lambda: scrapes() >= 5)
    assert prometheus.value(under_replicated) == 0
    cluster.kill(1)
    assert traffic.until(lambda: prometheus.value(under_replicated) > 0)
    series = 'count(kafka_topic_partition_current_offset{job="minikafka", topic="orders"})'
    assert traffic.until(lambda: prometheus.value(series) == TOPICS["orders"])
    assert prometheus.value('sum(minikafka_controller_active{job="minikafka"})') == 1
    cluster.restart(1)
    assert traffic.until(lambda: prometheus.value(under_replicated) == 0 and scrapes() >= 10)


def test_every_panel_has_data(watched: Watched) -> None:
    prometheus, since_s = watched.prometheus, watched.started_s
    queries = [query for _, query in panel_queries(VARIABLES) if NEEDS_USERS not in query]
    assert [query for query in queries if not prometheus.has_data(query, since_s)] == []


@pytest.mark.parametrize("expression", KAFKA_EXPORTER)
def test_dashboards_for_kafka_exporter_have_data(watched: Watched, expression: str) -> None:
    query = expression.replace("$i", "my-cluster").replace("$t", ".+")
    found = watched.prometheus.query(query)
    topics = {values[-1] for values in found} - {"__consumer_offsets"}
    assert topics == set(TOPICS)


@pytest.mark.parametrize("job", ["minikafka", BY_CLUSTER])
def test_sums_over_brokers_count_each_partition_once(watched: Watched, job: str) -> None:
    prometheus = watched.prometheus
    partitions = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
    ends = list_offsets(watched.client, dict.fromkeys(partitions, LATEST), watched.client.deadline(10_000))
    wanted = sum(end or 0 for end in ends.values())
    end = f'sum(kafka_topic_partition_current_offset{{job="{job}", topic=~"orders|payments"}})'
    assert wait_until(lambda: prometheus.value(end) == wanted, PATIENCE_S), prometheus.query(end)
    found = prometheus.query(f'sum by (topic) (kafka_topic_partitions{{job="{job}"}})')
    assert found == {("orders",): 4, ("payments",): 2, ("__consumer_offsets",): 6}


def lags(watched: Watched, job: str) -> dict[TopicPartition, int]:
    """Return the lag of the group by partition, as Prometheus has it."""
    lag = f'kafka_consumergroup_lag{{job="{job}", consumergroup="{GROUP}"}}'
    found = watched.prometheus.query(f"sum by (topic, partition) ({lag})")
    return {TopicPartition(topic, int(partition)): int(value) for (partition, topic), value in found.items()}


@pytest.mark.parametrize("job", ["minikafka", BY_CLUSTER])
def test_lag_is_what_the_command_shows(
    watched: Watched, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = CommandLine(capsys)
    line.options = ("--bootstrap", watched.cluster.bootstrap_servers, "--format", "json")
    assert line.run("group", "describe", GROUP) == 0
    wanted = {TopicPartition(row["topic"], row["partition"]): row["lag"] for row in line.rows}
    assert sum(wanted.values()) >= 10
    assert wait_until(lambda: lags(watched, job) == wanted, PATIENCE_S), lags(watched, job)


def test_lag_is_what_the_tool_of_kafka_shows(watched: Watched) -> None:
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    options = ("--bootstrap-server", watched.cluster.bootstrap_servers, "--describe", "--group", GROUP)
    KAFKA_3_9.libs()
    header, *rows = (line.split() for line in KAFKA_3_9.run(tool, *options).out.splitlines() if line.strip())
    shown = [dict(zip(header, row, strict=False)) for row in rows]
    wanted = {TopicPartition(row["TOPIC"], int(row["PARTITION"])): int(row["LAG"]) for row in shown}
    assert len(wanted) == sum(TOPICS.values())
    assert wait_until(lambda: lags(watched, "minikafka") == wanted, PATIENCE_S), lags(watched, "minikafka")
