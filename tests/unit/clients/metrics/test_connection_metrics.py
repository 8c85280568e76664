"""The metrics of connections, and the table of all names."""

from __future__ import annotations

from minikafka.clients.admin.admin import Admin
from minikafka.clients.metrics import connections, consumer, producer
from tests.support.broker_harness import BrokerHarness


def test_an_admin_client_shows_each_node_by_its_id() -> None:
    brokers = BrokerHarness(2, {"t": 1})
    with brokers.client() as cluster:
        admin = Admin(cluster)
        cluster.metadata(["t"])
        found = admin.metrics()
        assert "admin-client-node-metrics.node--1" not in found
        (node,) = [name for name in found if name.startswith("admin-client-node-metrics.")]
        assert found[node]["request-total"] == found[node]["response-total"] == 1
        assert found["admin-client-metrics"]["connection-creation-total"] == 1
        assert found["admin-client-metrics"]["incoming-byte-total"] == found[node]["incoming-byte-total"]


def test_totals_stay_when_a_connection_is_closed() -> None:
    brokers = BrokerHarness(1, {"t": 1})
    cluster = brokers.client()
    cluster.metadata(["t"])
    before = cluster.metrics()["client-metrics"]
    cluster.close()
    after = cluster.metrics()
    assert after["client-metrics"]["request-total"] == before["request-total"] > 0
    assert after["client-metrics"]["connection-count"] == 0
    assert after["client-metrics"]["connection-close-total"] == 1
    assert list(after) == ["client-metrics"]


def test_the_table_names_each_metric_once_in_its_group() -> None:
    for group in (*producer.GROUPS, *consumer.GROUPS, *connections.GROUPS):
        names = [metric.name for metric in group.metrics]
        assert len(names) == len(set(names)), group.name
        assert all(metric.text for metric in group.metrics)
