"""Logs are moved between the disks of a broker by the tools of Apache Kafka 3.9.1 and 4."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.embedded.cluster import Cluster
from tests.interop.releases import KAFKA_3_9, KAFKA_4, Release


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / "disk1", tmp_path / "disk2"]


@pytest.fixture
def cluster(tmp_path: Path, disks: list[Path]) -> Iterator[Cluster]:
    """A cluster of one broker with two data directories."""
    own = {"log.dirs": ",".join(map(str, disks))}
    with Cluster(data_dir=tmp_path / "data", broker_configs={0: own}) as cluster:
        yield cluster


Run = Callable[..., str]
"""Runs a tool and returns its output."""


def described(run: Run) -> dict[str, list[dict[str, object]]]:
    """Directory -> its logs, as ``kafka-log-dirs`` prints them."""
    printed = run("LogDirsCommand", "--describe", "--topic-list", "t")
    found = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    (broker,) = found["brokers"]
    return {log_dir["logDir"]: log_dir["partitions"] for log_dir in broker["logDirs"]}


@pytest.mark.interop
@pytest.mark.timeout(180)
@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_kafka_reassign_partitions_moves_a_log_to_another_disk(
    cluster: Cluster, disks: list[Path], tmp_path: Path, release: Release
) -> None:
    def run(tool: str, *options: str) -> str:
        servers = ("--bootstrap-server", cluster.bootstrap_servers)
        return release.run(f"org.apache.kafka.tools.{tool}", *servers, *options).out

    cluster.create_topic("t")
    before = described(run)
    source = next(path for path, logs in before.items() if logs)
    target = next(str(disk) for disk in disks if str(disk) != source)
    plan = tmp_path / "plan.json"
    moved = {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [target]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    file = ("--reassignment-json-file", str(plan))
    rate = ("--replica-alter-log-dirs-throttle", "1000000")
    begun = run("reassign.ReassignPartitionsCommand", "--execute", *file, *rate)
    assert f"Successfully started moving log directory to {target} for replica t-0 with broker 0" in begun
    assert "The replica-alter-dir throttle limit was set to 1000000 B/s" in begun
    verified = run("reassign.ReassignPartitionsCommand", "--verify", *file)
    assert "Reassignment of replica t-0-0 completed successfully." in verified
    assert "Clearing broker-level throttles on broker 0" in verified
    after = described(run)
    assert after[source] == []
    assert [log["isFuture"] for log in after[target]] == [False]
