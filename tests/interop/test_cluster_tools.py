"""Apache Kafka's own tools administer our brokers: 0.10.1.1's through ZooKeeper, 3.9's by the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from minikafka.clients.admin import throttles
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.zookeeper.partitions import ZooKeeperPartitions
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.wire.apis.describe_configs import ConfigResourceType, ConfigSource
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, Printed

PATIENCE_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    KAFKA_0_10.libs()
    with Cluster(brokers=3) as made:
        yield made


def run(cluster: Cluster, command: str, *options: str) -> Printed:
    """One of the tools."""
    return KAFKA_0_10.run(f"kafka.admin.{command}", "--zookeeper", cluster.zookeeper_connect, *options)


def partitions(cluster: Cluster, topic: str) -> list[tuple[int, set[int]]]:
    """Leader and replicas in sync of each partition; nothing as long as the topic is not known."""
    with Client(cluster.bootstrap_servers) as client:
        described = Admin(client).describe_topics([topic])[topic]
    if isinstance(described, Exception):
        return []
    return [(partition.leader_id, set(partition.in_sync)) for partition in described.partitions]


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_topics_are_made_described_grown_and_deleted(cluster: Cluster) -> None:
    new = ("--topic", "made", "--partitions", "2", "--replication-factor", "3")
    assert 'Created topic "made".' in run(cluster, "TopicCommand", "--create", *new).out
    assert wait_until(lambda: [isr for _, isr in partitions(cluster, "made")] == [{0, 1, 2}] * 2, PATIENCE_S)
    run(cluster, "TopicCommand", "--alter", "--topic", "made", "--partitions", "4")
    assert wait_until(lambda: len(partitions(cluster, "made")) == 4, PATIENCE_S)
    described = run(cluster, "TopicCommand", "--describe", "--topic", "made").out
    assert "PartitionCount:4\tReplicationFactor:3" in described
    assert "Leader: -1" not in described
    assert run(cluster, "TopicCommand", "--describe", "--under-replicated-partitions").out == ""
    assert run(cluster, "TopicCommand", "--describe", "--unavailable-partitions").out == ""
    run(cluster, "TopicCommand", "--delete", "--topic", "made")
    assert wait_until(lambda: "made" not in run(cluster, "TopicCommand", "--list").out, PATIENCE_S)


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_a_partition_is_reassigned_and_then_led_by_its_preferred_replica(
    cluster: Cluster, tmp_path: Path
) -> None:
    run(cluster, "TopicCommand", "--create", "--topic", "moved", "--replica-assignment", "0:1")
    assert wait_until(lambda: partitions(cluster, "moved") == [(0, {0, 1})], PATIENCE_S)
    plan, wanted = tmp_path / "plan.json", {"topic": "moved", "partition": 0, "replicas": [2, 0]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    arguments = ("--reassignment-json-file", str(plan))
    begun = run(cluster, "ReassignPartitionsCommand", "--execute", *arguments).out
    assert "Successfully started reassignment" in begun

    def done() -> bool:
        told = run(cluster, "ReassignPartitionsCommand", "--verify", *arguments).out
        return "Reassignment of partition [moved,0] completed successfully" in told

    assert wait_until(done, PATIENCE_S, every_s=0.5)
    assert wait_until(lambda: partitions(cluster, "moved")[0][1] == {2, 0}, PATIENCE_S)
    elected = tmp_path / "elected.json"
    elected.write_text(json.dumps({"partitions": [{"topic": "moved", "partition": 0}]}))
    told = run(cluster, "PreferredReplicaLeaderElectionCommand", "--path-to-json-file", str(elected)).out
    assert "Successfully started preferred replica election" in told
    assert wait_until(lambda: partitions(cluster, "moved") == [(2, {0, 2})], PATIENCE_S)


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_a_topic_gets_settings(cluster: Cluster) -> None:
    run(cluster, "TopicCommand", "--create", "--topic", "set", "--replica-assignment", "1:2")
    one = ("--entity-type", "topics", "--entity-name", "set")
    run(cluster, "ConfigCommand", "--alter", *one, "--add-config", "retention.ms=12345")
    assert "retention.ms=12345" in run(cluster, "ConfigCommand", "--describe", *one).out
    with_overrides = run(cluster, "TopicCommand", "--describe", "--topics-with-overrides").out
    assert "Topic:set\tPartitionCount:1\tReplicationFactor:2\tConfigs:retention.ms=12345" in with_overrides


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_a_broker_gets_rates_of_replication(cluster: Cluster) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "1")
    rates = {"leader.replication.throttled.rate": "1000000", "follower.replication.throttled.rate": "2000000"}

    def dynamic() -> dict[str, str | None]:
        with Client(cluster.bootstrap_servers) as client:
            settings = Admin(client).describe_configs(ConfigResourceType.BROKER, "1")
        return {found.name: found.value for found in settings if found.source is ConfigSource.DYNAMIC_BROKER}

    given = ",".join(f"{name}={value}" for name, value in rates.items())
    run(cluster, "ConfigCommand", "--alter", *one, "--add-config", given)
    assert wait_until(lambda: dynamic() == rates, PATIENCE_S)
    with Client(cluster.bootstrap_servers) as client:
        Admin(client).change_configs(
            ConfigResourceType.BROKER, "1", {"leader.replication.throttled.rate": None}
        )
    told = run(cluster, "ConfigCommand", "--describe", *one).out
    assert told.strip() == "Configs for brokers '1' are follower.replication.throttled.rate=2000000"
    run(cluster, "ConfigCommand", "--alter", *one, "--delete-config", "follower.replication.throttled.rate")
    assert wait_until(lambda: dynamic() == {}, PATIENCE_S)


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_a_reassignment_is_throttled_until_it_is_verified(cluster: Cluster, tmp_path: Path) -> None:
    run(cluster, "TopicCommand", "--create", "--topic", "slow", "--replica-assignment", "0")
    assert wait_until(lambda: partitions(cluster, "slow") == [(0, {0})], PATIENCE_S)
    with Client(cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
        for _ in range(4):
            producer.send("slow", b"x" * 50_000).result(PATIENCE_S * 1000)
    plan, wanted = tmp_path / "plan.json", {"topic": "slow", "partition": 0, "replicas": [2, 0]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))

    def reassign(*options: str) -> str:
        return run(cluster, "ReassignPartitionsCommand", "--reassignment-json-file", str(plan), *options).out

    def described(kind: str) -> str:
        return run(cluster, "ConfigCommand", "--describe", "--entity-type", kind).out

    assert "The throttle limit was set to 1 B/s" in reassign("--execute", "--throttle", "1")
    assert "Reassignment of partition [slow,0] is still in progress" in reassign("--verify")
    assert partitions(cluster, "slow") == [(0, {0})]
    lists = "leader.replication.throttled.replicas=0:0,follower.replication.throttled.replicas=0:2"
    assert f"'slow' are {lists}" in described("topics")
    # Ours sees and says the same.
    with closing(ZooKeeperStore(cluster.zookeeper_connect)) as store:
        assert throttles.rates(ZooKeeperPartitions(store), [0, 1, 2]) == [1]
    assert "The throttle limit was set to 100000000 B/s" in reassign("--execute", "--throttle", "100000000")
    assert wait_until(lambda: "Throttle was removed." in reassign("--verify"), PATIENCE_S, every_s=0.5)
    assert partitions(cluster, "slow") == [(0, {0, 2})] or partitions(cluster, "slow") == [(2, {0, 2})]
    assert "throttled" not in described("brokers") + described("topics")


def test_properties_of_brokers_changed_by_the_tool_of_3_9(apache_cluster: Cluster) -> None:
    KAFKA_3_9.libs()

    def tool(*options: str) -> str:
        to = ("--bootstrap-server", apache_cluster.bootstrap_servers, "--entity-type", "brokers")
        return KAFKA_3_9.run("kafka.admin.ConfigCommand", *to, *options).out

    tool("--entity-default", "--alter", "--add-config", "message.max.bytes=2000000,max.connections=500")
    tool("--entity-name", "0", "--alter", "--add-config", "message.max.bytes=3000000")
    told = tool("--entity-default", "--describe")
    assert "message.max.bytes=2000000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:" in told
    assert "max.connections=500" in told
    told = tool("--entity-name", "0", "--describe")
    assert "{DYNAMIC_BROKER_CONFIG:message.max.bytes=3000000, DYNAMIC_DEFAULT_BROKER_CONFIG:" in told
    tool("--entity-name", "0", "--alter", "--delete-config", "message.max.bytes")
    tool("--entity-default", "--alter", "--delete-config", "message.max.bytes,max.connections")
    assert "message.max.bytes" not in tool("--entity-default", "--describe")
