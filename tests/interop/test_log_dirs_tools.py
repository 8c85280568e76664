"""Logs are moved between the disks of a broker by Kafka 3.9.1's tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.embedded.cluster import Cluster
from tests.interop.releases import KAFKA_3_9, Printed


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / "disk1", tmp_path / "disk2"]


@pytest.fixture
def cluster(tmp_path: Path, disks: list[Path]) -> Iterator[Cluster]:
    """A cluster of one broker with two data directories."""
    own = {"log.dirs": ",".join(map(str, disks))}
    with Cluster(data_dir=tmp_path / "data", broker_configs={0: own}) as cluster:
        yield cluster


def run(cluster: Cluster, tool: str, *options: str) -> Printed:
    return KAFKA_3_9.run(
        f"org.apache.kafka.tools.{tool}", "--bootstrap-server", cluster.bootstrap_servers, *options
    )


def described(cluster: Cluster) -> dict[str, list[dict[str, object]]]:
    """Directory -> its logs, as ``kafka-log-dirs`` prints them."""
    printed = run(cluster, "LogDirsCommand", "--describe", "--topic-list", "t").out
    found = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    (broker,) = found["brokers"]
    return {log_dir["logDir"]: log_dir["partitions"] for log_dir in broker["logDirs"]}


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_kafka_reassign_partitions_moves_a_log_to_another_disk(
    cluster: Cluster, disks: list[Path], tmp_path: Path
) -> None:
    cluster.create_topic("t")
    before = described(cluster)
    source = next(path for path, logs in before.items() if logs)
    target = next(str(disk) for disk in disks if str(disk) != source)
    plan = tmp_path / "plan.json"
    moved = {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [target]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    file = ("--reassignment-json-file", str(plan))
    rate = ("--replica-alter-log-dirs-throttle", "1000000")
    begun = run(cluster, "reassign.ReassignPartitionsCommand", "--execute", *file, *rate).out
    assert f"Successfully started moving log directory to {target} for replica t-0 with broker 0" in begun
    assert "The replica-alter-dir throttle limit was set to 1000000 B/s" in begun
    verified = run(cluster, "reassign.ReassignPartitionsCommand", "--verify", *file).out
    assert "Reassignment of replica t-0-0 completed successfully." in verified
    assert "Clearing broker-level throttles on broker 0" in verified
    after = described(cluster)
    assert after[source] == []
    assert [log["isFuture"] for log in after[target]] == [False]
