"""The metrics of clients, as Prometheus's own parser reads them."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from minikafka.clients.admin.admin import Admin
from minikafka.clients.metrics import connections, consumer, producer, prometheus, prometheus_text
from minikafka.clients.metrics.registry import Metrics
from tests.support.broker_harness import BrokerHarness
from tests.support.group_consumer_harness import T0, GroupHarness

FETCH = "consumer-fetch-manager-metrics"
GROUPS = (*producer.GROUPS, *consumer.GROUPS, *connections.GROUPS)


def parsed(**clients: Metrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return the samples by name, and by their labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(prometheus_text(clients)):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.items())] = sample.value
    return found


def test_metrics_of_a_consumer_have_their_topic_and_partition_as_labels() -> None:
    harness = GroupHarness()
    client = harness.bare()
    client.assign([T0])
    client.poll_records(100, 2)
    found = parsed(audit=client.metrics())
    client.close()
    own, topic, partition = ("client_id", "audit"), ("topic", "t"), ("partition", "0")
    assert found["minikafka_consumer_fetch_manager_records_consumed_total"] == {(own,): 2}
    assert found["minikafka_consumer_fetch_manager_topic_records_consumed_total"] == {(own, topic): 2}
    assert found["minikafka_consumer_fetch_manager_partition_records_lag"] == {(own, topic, partition): 3}


def test_several_clients_are_told_apart() -> None:
    with BrokerHarness(1, {"t": 1}).client() as cluster:
        cluster.metadata(["t"])
        metrics = Admin(cluster).metrics()
    found = parsed(a=metrics, b=metrics)["minikafka_admin_client_request_total"]
    assert set(found) == {(("client_id", "a"),), (("client_id", "b"),)}


@pytest.mark.parametrize("topic", ["t", "node-1", "a-0", "a.b-c"])
def test_names_of_topics_are_kept(topic: str) -> None:
    partition: Metrics = {f"{FETCH}.{topic}-7": {"records-lag": 3.0}}
    sent: Metrics = {f"producer-topic-metrics.{topic}": {"byte-total": 4.0}}
    own = ("client_id", "c"), ("topic", topic)
    assert parsed(c=partition) == {
        "minikafka_consumer_fetch_manager_partition_records_lag": {(*own, ("partition", "7")): 3}
    }
    assert parsed(c=sent) == {"minikafka_producer_topic_byte_total": {own: 4}}


def test_node_has_its_id_and_no_value_is_no_sample() -> None:
    values = {"request-total": 3.0, "request-latency-avg": math.nan}
    assert parsed(c={"consumer-node-metrics.node--1": values}) == {
        "minikafka_consumer_node_request_total": {(("client_id", "c"), ("node_id", "-1")): 3}
    }


def test_every_metric_of_the_tables_has_a_name_of_its_own() -> None:
    everything = {
        group.key(*(["t", "0"] if len(group.tags) > 1 else group.tags)): {
            metric.name: 1.0 for metric in group.metrics
        }
        for group in GROUPS
    }
    found = parsed(c=everything)
    assert found.keys() == prometheus.names()
    assert len(found) == sum(map(len, everything.values()))
    assert {tuple(samples.values()) for samples in found.values()} == {(1,)}


def test_what_no_client_returns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^unknown group of metrics 'no-metrics': expected what metrics"):
        prometheus_text({"c": {"no-metrics": {"a": 1.0}}})
