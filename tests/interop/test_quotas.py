"""Quotas of client ids and users, set by the release's own tool: they hold here, and for real clients."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest

from minikafka import Producer
from minikafka.base.errors import NetworkError
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.net.connection import SocketConnection, connect
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.registry import paths
from minikafka.registry.entity_configs import change_config, read_config
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.framing import RequestHeader, split_response
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, RELEASES, Release
from tests.support import requests

PATIENCE_S = 20.0

pytestmark = [pytest.mark.timeout(180), pytest.mark.interop, pytest.mark.usefixtures("kafka_libs")]


class Limited:
    """A client whose bytes are counted."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.topic = f"{client_id}-topic"
        cluster.create_topic(self.topic)
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        self.connection: SocketConnection = connect(host, int(port))

    def alter(self, *options: str, user: str | None = None) -> None:
        """``kafka-configs --alter`` of 0.10.1.1 with these options, about the client id (of a user)."""
        whose = () if user is None else ("--entity-type", "users", "--entity-name", user)
        printed = KAFKA_0_10.run(
            "kafka.admin.ConfigCommand",
            *("--zookeeper", self.cluster.zookeeper_connect, "--alter", *whose),
            *("--entity-type", "clients", "--entity-name", self.client_id, *options),
        )
        assert "Updated config for entity" in printed.out

    def throttled_ms(self, size: int) -> int:
        """Return the throttle time of a request of about ``size`` bytes."""
        request = requests.produce(self.topic, build_message_set([Record(None, b"x" * size, 1)]))
        header = RequestHeader(int(request.key), request.version, 1, self.client_id)
        body = PRODUCE.encode_request(request.version, request.body)
        _, answer = split_response(self.connection.request([header.encode(), *body]).result())
        response = PRODUCE.decode_response(request.version, answer)
        assert response.topics[0].partitions[0].error_code == 0
        return response.throttle_time_ms


@pytest.fixture
def limited(apache_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Limited]:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.rpartition("_")[2])
    limited = Limited(apache_cluster, f"client-{name}")
    yield limited
    limited.connection.close()


def test_quota_set_by_tool_applies_and_ends_at_once(limited: Limited) -> None:
    assert limited.throttled_ms(10_000) == 0
    limited.alter("--add-config", "producer_byte_rate=1000,consumer_byte_rate=1000")
    assert wait_until(lambda: limited.throttled_ms(3000) > 0, PATIENCE_S)
    limited.alter("--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert wait_until(lambda: limited.throttled_ms(3000) == 0, PATIENCE_S)


def test_quota_of_a_client_of_a_user_wins_over_that_of_the_client(limited: Limited) -> None:
    limited.alter("--add-config", "producer_byte_rate=1000")
    assert wait_until(lambda: limited.throttled_ms(3000) > 0, PATIENCE_S)
    limited.alter("--add-config", "producer_byte_rate=100000000", user="ANONYMOUS")
    assert wait_until(lambda: limited.throttled_ms(3000) == 0, PATIENCE_S)
    limited.alter("--delete-config", "producer_byte_rate", user="ANONYMOUS")
    assert wait_until(lambda: limited.throttled_ms(3000) > 0, PATIENCE_S)
    limited.alter("--delete-config", "producer_byte_rate")


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_a_real_producer_gets_what_its_quota_allows_and_no_more(release: Release) -> None:
    release.libs()
    limit = 200_000
    # With the default of eleven windows, each of them begins with ten seconds' worth at once.
    config = {"quota.producer.default": limit, "quota.window.num": 3, "quota.window.size.seconds": 1}
    with Cluster(config=config) as cluster:
        cluster.create_topic("t")
        printed = release.run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "t", "--num-records", "4000", "--record-size", "1000", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}", "acks=1"),
        )
    found = re.search(r"^4000 records sent, (\d+\.\d+) records/sec ", printed.out, re.MULTILINE)
    assert found is not None, printed.out
    assert 0.9 <= float(found[1]) * 1000 / limit <= 1.1


def test_a_real_consumer_gets_what_its_quota_allows_and_no_more() -> None:
    KAFKA_3_9.libs()
    limit, count = 200_000, 4000
    config = {"quota.consumer.default": limit, "quota.window.num": 3, "quota.window.size.seconds": 1}
    with Cluster(config=config) as cluster:
        cluster.create_topic("t")
        properties = {"metadata.broker.list": cluster.bootstrap_servers}
        with Producer(properties) as producer:
            producer.send_values("t", [b"x" * 1000] * count)
        printed = KAFKA_3_9.run(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--hide-header"),
            *("--messages", str(count), "--timeout", "30000"),
        )
    *_, fetched, per_second, _, _, _, _ = printed.out.strip().splitlines()[-1].split(", ")
    assert int(fetched) == count
    assert 0.6 <= float(per_second) * 1000 / limit <= 1.1


def alter(cluster: Cluster, *options: str) -> None:
    """``kafka-configs --alter`` of 3.9.1 with these options."""
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    KAFKA_3_9.run("kafka.admin.ConfigCommand", *servers, "--alter", *options)


def test_quotas_of_time_and_of_partitions_set_by_the_tool_of_3_9(limited: Limited) -> None:
    KAFKA_3_9.libs()
    client = ("--entity-type", "clients", "--entity-name", limited.client_id)
    assert limited.throttled_ms(100) == 0
    alter(limited.cluster, *client, "--add-config", "request_percentage=0.001,controller_mutation_rate=0.5")
    assert wait_until(lambda: limited.throttled_ms(100) > 0, PATIENCE_S)
    store = ZooKeeperStore(limited.cluster.zookeeper_connect)
    with contextlib.closing(store):
        stored = read_config(store, paths.CLIENTS, limited.client_id)
    assert stored == {"request_percentage": "0.001", "controller_mutation_rate": "0.5"}
    alter(limited.cluster, *client, "--delete-config", "request_percentage,controller_mutation_rate")
    assert wait_until(lambda: limited.throttled_ms(100) == 0, PATIENCE_S)


def test_a_rate_of_an_address_set_by_the_tool_of_3_9_closes_connections(apache_cluster: Cluster) -> None:
    KAFKA_3_9.libs()
    host, _, port = apache_cluster.bootstrap_servers.rpartition(":")

    def is_served() -> bool:
        with contextlib.closing(connect(host, int(port))) as connection:
            header = RequestHeader(int(API_VERSIONS.key), 0, 1, "a")
            body = API_VERSIONS.encode_request(0, ApiVersionsRequest())
            try:
                connection.request([header.encode(), *body]).result()
            except NetworkError:
                return False
            return True

    # Eleven windows begin with ten seconds' worth: the tool itself needs a few connections.
    address = ("--entity-type", "ips", "--entity-name", host)
    alter(apache_cluster, *address, "--add-config", "connection_creation_rate=2")
    assert wait_until(lambda: not is_served(), PATIENCE_S)
    assert wait_until(is_served, PATIENCE_S)
    with contextlib.closing(ZooKeeperStore(apache_cluster.zookeeper_connect)) as store:
        assert read_config(store, paths.IPS, host) == {"connection_creation_rate": "2"}
        change_config(store, paths.IPS, host, lambda _: {})
    assert wait_until(lambda: all(is_served() for _ in range(20)), PATIENCE_S)


def test_a_tool_of_3_9_above_its_rate_of_new_partitions_is_refused() -> None:
    KAFKA_3_9.libs()
    rate = {"controller_mutation_rate": "0.1"}
    with Cluster() as cluster, contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store:
        change_config(store, paths.CLIENTS, "<default>", lambda _: rate)

        def create(name: str) -> None:
            to = ("--bootstrap-server", cluster.bootstrap_servers, "--create", "--topic", name)
            KAFKA_3_9.run("org.apache.kafka.tools.TopicCommand", *to, "--partitions", "8")

        # Eleven seconds' worth may be used at once, and one request may exceed it.
        create("first")
        with pytest.raises(AssertionError, match="the throttling quota has been exceeded"):
            create("second")
