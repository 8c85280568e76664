"""Two brokers with an authorizer: rules hold on both, and by ClusterAction they get along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.cli.commands import run
from minikafka.clients.admin.admin import Admin
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.registry import paths
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.process

PATIENCE_S = 60
EVERYBODY = ("--allow-principal", "User:ANONYMOUS", "--allow-host", "127.0.0.1")
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "zookeeper.session.timeout.ms": "1000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with EmbeddedZooKeeper(str(tmp_path / "zookeeper")) as zookeeper:
        connect = f"{zookeeper.connect}/rules"
        store = ZooKeeperStore(connect)
        store.create(paths.CONFIG_CHANGES, make_parents=True)  # as a cluster that was there before has it
        store.close()
        first = ("--operation", "ClusterAction", "--operation", "Create", "--operation", "Alter")
        assert run(["acl", "add", "--cluster", *EVERYBODY, *first, "--zookeeper", connect]) == 0
        with Cluster(2, tmp_path / "d", AUTHORIZER, connect) as cluster:
            yield cluster


def test_brokers_copy_and_take_over_and_clients_do_what_they_are_allowed(
    cluster: Cluster, cli: CommandLine
) -> None:
    at = ("--bootstrap", cluster.bootstrap_servers)

    def leader() -> int:
        with Client(cluster.bootstrap_servers) as client:
            topic = Admin(client).describe_topics(["t"])["t"]
        assert isinstance(topic, TopicMetadata)
        return topic.partitions[0].leader_id

    assert cli.run("topic", "create", "t", "--replica-assignment", "1:0", *at) == 0
    assert cli.run("consume", "t", "--max", "1", *at) == 1
    assert "there is no topic 't'" in cli.err, "what may not be described is not seen"
    assert cli.run("acl", "add", "--topic", "t", *EVERYBODY, *at) == 0
    assert wait_until(lambda: cli.run("topic", "describe", "t", *at) == 0, PATIENCE_S)
    assert cli.run("perf", "produce", "t", "--records", "100", *at) == 0
    cluster.kill(1)
    assert wait_until(lambda: leader() == 0, PATIENCE_S)
    assert cli.run("consume", "t", "--from", "beginning", "--max", "100", "--format", "json", *at) == 0
    rows = cli.rows
    assert [row["offset"] for row in rows] == list(range(100))
