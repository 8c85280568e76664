"""The tools of Apache Kafka 3.9.1 and 4 administer three of our brokers by ``--bootstrap-server`` alone."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.clients.admin.admin import Admin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from tests.interop.releases import KAFKA_3_9, KAFKA_4, Printed, Release

PATIENCE_S = 60

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=[KAFKA_3_9, KAFKA_4], ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    found.libs()
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    KAFKA_3_9.libs()
    with Cluster(brokers=3, config={"auto.leader.rebalance.enable": "false"}) as made:
        yield made


class Tools:
    """The tools of a release, used on a cluster."""

    def __init__(self, release: Release, cluster: Cluster) -> None:
        self._release = release
        self._servers = ("--bootstrap-server", cluster.bootstrap_servers)

    def topics(self, *options: str) -> Printed:
        return self._release.run("org.apache.kafka.tools.TopicCommand", *self._servers, *options)

    def configs(self, *options: str) -> Printed:
        return self._release.run("kafka.admin.ConfigCommand", *self._servers, *options)

    def elect(self, *options: str) -> Printed:
        return self._release.run("org.apache.kafka.tools.LeaderElectionCommand", *self._servers, *options)

    def reassign(self, *options: str) -> Printed:
        command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        return self._release.run(command, *self._servers, *options)


@pytest.fixture
def tools(release: Release, cluster: Cluster) -> Tools:
    return Tools(release, cluster)


@pytest.fixture
def topic(tools: Tools, cluster: Cluster) -> str:
    """A topic of one partition, on brokers 0 and 1, with a record."""
    name = f"moved-{uuid.uuid4().hex[:8]}"
    tools.topics("--create", "--topic", name, "--replica-assignment", "0:1")
    return name


def partition(cluster: Cluster, topic: str) -> tuple[int, list[int]]:
    """Leader and replicas of the topic's only partition."""
    with ClusterClient(cluster.bootstrap_servers) as client:
        described = Admin(client).describe_topics([topic])[topic]
    assert not isinstance(described, Exception)
    (only,) = described.partitions
    return only.leader_id, list(only.replicas)


def plan(folder: Path, topic: str, *replicas: int) -> str:
    file = folder / "plan.json"
    wanted = {"topic": topic, "partition": 0, "replicas": replicas}
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    return str(file)


def test_a_partition_moves_and_its_preferred_replica_is_elected(
    tools: Tools, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    file = ("--reassignment-json-file", plan(tmp_path, topic, 2, 0))
    assert "Successfully started partition reassignment" in tools.reassign("--execute", *file).out
    assert wait_until(
        lambda: f"Reassignment of partition {topic}-0 is completed." in tools.reassign("--verify", *file).out,
        PATIENCE_S,
    )
    assert partition(cluster, topic) == (0, [2, 0])
    assert "No partition reassignments found." in tools.reassign("--list").out
    one = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert (
        f"Successfully completed leader election (PREFERRED) for partitions {topic}-0"
        in tools.elect(*one).out
    )
    assert partition(cluster, topic)[0] == 2
    assert "Valid replica already elected for partitions" in tools.elect(*one).out


def test_a_reassignment_in_progress_is_listed_and_cancelled(
    tools: Tools, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    with ClusterClient(cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
        for _ in range(4):
            producer.send(topic, b"x" * 50_000).result(PATIENCE_S * 1000)
    file = ("--reassignment-json-file", plan(tmp_path, topic, 1, 2))
    tools.reassign("--execute", *file, "--throttle", "1000")
    listed = tools.reassign("--list").out
    assert re.search(rf"{topic}-0: replicas: 1,2,0\. adding: 2\. removing: 0\.", listed), listed
    assert "Successfully cancelled partition reassignment" in tools.reassign("--cancel", *file).out
    assert wait_until(lambda: partition(cluster, topic)[1] == [1, 0], PATIENCE_S)
    assert "No partition reassignments found." in tools.reassign("--list").out


def test_quotas_of_users_and_clients_are_set_shown_and_removed(tools: Tools) -> None:
    user, client = ("--entity-type", "users", "--entity-name", "al ice"), ("--entity-type", "clients")
    app = (*client, "--entity-name", "app/1")
    for whose in (user, app, (*user, *app), (*client, "--entity-default")):
        tools.configs("--alter", *whose, "--add-config", "producer_byte_rate=1024")
        assert "producer_byte_rate=1024.0" in tools.configs("--describe", *whose).out
        tools.configs("--alter", *whose, "--delete-config", "producer_byte_rate")
        assert "producer_byte_rate" not in tools.configs("--describe", *whose).out


def test_scram_users_are_made_shown_and_deleted(tools: Tools) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    added = "SCRAM-SHA-256=[iterations=8192,password=alice-secret]"
    assert (
        "Completed updating config for user alice."
        in tools.configs("--alter", *user, "--add-config", added).out
    )
    described = tools.configs("--describe", *user).out
    assert (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192" in described
    )
    tools.configs("--alter", *user, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in tools.configs("--describe", *user).out


def test_settings_of_topics_and_brokers_are_changed_and_described(tools: Tools, topic: str) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    tools.configs("--alter", *of_topic, "--add-config", "retention.ms=100000")
    assert "retention.ms=100000" in tools.configs("--describe", *of_topic).out
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    rate = "leader.replication.throttled.rate"
    tools.configs("--alter", *of_broker, "--add-config", f"{rate}=1000000")
    assert f"{rate}=1000000" in tools.configs("--describe", *of_broker).out
    tools.configs("--alter", *of_broker, "--delete-config", rate)
    assert "log.retention.hours=168" in tools.configs("--describe", "--all", *of_broker).out


def test_topics_are_grown_described_and_deleted(tools: Tools, topic: str) -> None:
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tools.topics("--describe", "--topic", topic).out
    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").out
