"""Groups in ZooKeeper, as the consumer and the tool of Apache Kafka 0.10.1.1 and our commands see them."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minikafka.cli.commands import run
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.java import find_java
from minikafka.embedded.process import wait_until
from tests.interop.releases import JVM, KAFKA_0_10, java_environment

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    KAFKA_0_10.libs()
    with Cluster() as made, Client(made.bootstrap_servers) as client:
        Admin(client).create_topic(NewTopic("t", 2))
        with BatchingProducer(client) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number, partition=number % 2).result(PATIENCE_S * 1000)
        yield made


@pytest.fixture
def group(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> Callable[..., list[dict[str, Any]]]:
    """Runs ``minikafka group``; what it printed."""

    def run_it(*arguments: str, status: int = 0) -> list[dict[str, Any]]:
        capfd.readouterr()
        at = ("--zookeeper", cluster.zookeeper_connect, "--format", "json")
        assert run(["group", *arguments, *at]) == status, capfd.readouterr().err
        return [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    return run_it


def described(cluster: Cluster, name: str) -> dict[tuple[str, int], tuple[str, ...]]:
    """Return the output of the release's tool: topic and partition -> offset, end, lag, owner."""
    printed = tool(cluster, "--describe", "--group", name)
    rows = [line.split() for line in printed.splitlines() if line.startswith(f"{name} ")]
    return {(row[1], int(row[2])): tuple(row[3:]) for row in rows}


def tool(cluster: Cluster, *options: str) -> str:
    at = ("--zookeeper", cluster.zookeeper_connect)
    return KAFKA_0_10.run("kafka.admin.ConsumerGroupCommand", *at, *options).out


@contextlib.contextmanager
def scala_consumer(cluster: Cluster, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The release's own consumer, which commits to both places; it ends cleanly."""
    settings = {
        "group.id": name,
        "consumer.id": "c1",
        "offsets.storage": "kafka",
        "dual.commit.enabled": "true",
        "auto.commit.interval.ms": "200",
    }
    given = [part for key, value in settings.items() for part in ("--consumer-property", f"{key}={value}")]
    at = ("--zookeeper", cluster.zookeeper_connect, "--topic", "t")
    command = [find_java().path, *JVM, "-cp", f"{KAFKA_0_10.libs()}/*", "kafka.tools.ConsoleConsumer"]
    with subprocess.Popen(
        [*command, *at, *given, *options], stdout=subprocess.PIPE, text=True, env=java_environment()
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_group_of_the_scala_consumer_is_described_reset_and_deleted(
    cluster: Cluster, group: Callable[..., list[dict[str, Any]]]
) -> None:
    def offsets() -> list[tuple[int, int]]:
        with contextlib.suppress(AssertionError):
            return [(row["offset_zookeeper"], row["offset_kafka"]) for row in group("describe", "scala")]
        return []

    with scala_consumer(cluster, "scala", "--from-beginning"):
        assert wait_until(lambda: offsets() == [(5, 5), (5, 5)], PATIENCE_S, every_s=0.3)
        ours = {
            (row["topic"], row["partition"]): (
                *(str(row[name]) for name in ("offset", "end_offset", "lag")),
                row["owner"],
            )
            for row in group("describe", "scala")
        }
        assert ours == described(cluster, "scala")
        assert {row["owner"] for row in group("describe", "scala")} == {"scala_c1-0"}
        assert group("reset", "scala", "--to-earliest", "--execute", status=1) == []
        assert group("delete", "scala", status=1) == []

    found = [(row["kind"], row["state"]) for row in group("list") if row["group"] == "scala"]
    assert found == [("kafka", "Empty"), ("zookeeper", "Empty")]
    (one, other) = group("reset", "scala", "--to-offset", "3", "--execute")
    assert one["stores"] == other["stores"] == ["zookeeper", "kafka"]
    with scala_consumer(cluster, "scala", "--max-messages", "4") as process:
        assert process.stdout is not None
        assert sorted(int(line) for line in process.stdout.read().split()) == [6, 7, 8, 9]
    (deleted,) = group("delete", "scala")
    assert deleted["stores"] == ["zookeeper", "kafka"]
    assert "scala" not in [row["group"] for row in group("list")]


def test_a_group_that_we_made_is_described_and_deleted_by_the_release(
    cluster: Cluster, group: Callable[..., list[dict[str, Any]]]
) -> None:
    group("reset", "ours", "--to-offset", "2", "--topic", "t", "--execute")
    assert described(cluster, "ours") == {
        ("t", 0): ("2", "5", "3", "none"),
        ("t", 1): ("2", "5", "3", "none"),
    }
    told = tool(cluster, "--delete", "--group", "ours")
    assert "Deleted all consumer group information for group ours in zookeeper." in told
    assert "ours" not in [row["group"] for row in group("list")]
