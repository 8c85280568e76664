"""Commands on a cluster of three brokers, of which one dies and comes back."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from minikafka.cli.commands import run
from minikafka.cli.reassign import UNDER_WAY
from minikafka.clients.admin import throttles
from minikafka.clients.admin.zookeeper.partitions import ZooKeeperPartitions
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.registry.entity_configs import read_config
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.process

PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # The shortest session: that of a broker that was killed has to end first.
    config = {"zookeeper.session.timeout.ms": "1000"}
    with Cluster(3, tmp_path_factory.mktemp("three") / "d", config) as cluster:
        yield cluster


def test_a_dead_broker_is_seen_and_leads_again_and_partitions_move_away(
    cluster: Cluster, tmp_path: Path, cli: CommandLine
) -> None:
    at = ("--bootstrap", cluster.bootstrap_servers)

    def rows(*arguments: str, status: int = 0) -> list[dict[str, object]]:
        assert cli.run(*arguments, "--format", "json") == status, cli.err
        return cli.rows

    def healthy() -> bool:
        return cli.run("cluster", "health", *at) == 0

    assert cli.run("topic", "create", "t", "--replica-assignment", "1:0:2,0:1:2", *at) == 0
    assert healthy()
    cluster.kill(1)
    assert wait_until(lambda: not healthy(), PATIENCE_S)
    (found,) = rows("cluster", "health", *at, status=1)
    assert [broker["alive"] for broker in found["brokers"]] == [True, False, True]  # type: ignore[attr-defined]

    def wanting() -> list[tuple[object, object]]:
        found = rows("topic", "describe", "--under-replicated-partitions", *at)
        return [(row["partition"], row["replicas"]) for row in found]

    # The controller writes one partition after the other, and the broker that is asked hears of it later.
    assert wait_until(lambda: wanting() == [(0, [1, 0, 2]), (1, [0, 1, 2])], PATIENCE_S)
    assert wait_until(lambda: rows("topic", "describe", "--unavailable-partitions", *at) == [], PATIENCE_S)
    assert rows("elect", "t", *at, status=1)[0]["done"] is False

    cluster.restart(1)
    assert wait_until(healthy, PATIENCE_S)
    (elected,) = rows("elect", "--all", *at)
    assert (elected["leader"], elected["done"]) == (1, True)

    plan = tmp_path / "plan.json"
    assert cli.run("reassign", "generate", "t", "--brokers", "0,2", "--replicas", "2", *at) == 0
    plan.write_text(cli.out)
    moved = rows("reassign", "execute", "--file", str(plan), *at)
    assert [(sorted(row["in_sync"]), row["status"]) for row in moved] == [([0, 2], "done")] * 2  # type: ignore[call-overload]
    assert rows("reassign", "verify", "--file", str(plan), *at) == moved
    assert wait_until(lambda: not list((cluster.data_dir / "broker-1").glob("t_*")), PATIENCE_S)


def test_throttled_move_keeps_its_rate_and_removes_throttle(cluster: Cluster, tmp_path: Path) -> None:
    at, to = ("--bootstrap", cluster.bootstrap_servers), ("--zookeeper", cluster.zookeeper_connect)
    assert run(["topic", "create", "slow", "--replica-assignment", "0", *at]) == 0
    with Client(cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
        for number in range(10):
            producer.send("slow", bytes([number]) * 50_000).result(PATIENCE_S * 1000)
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions":[{"topic":"slow","partition":0,"replicas":[2,0]}]}')
    execute, verify = (["reassign", action, "--file", str(plan), *to] for action in ("execute", "verify"))

    def copied() -> int:
        return sum(file.stat().st_size for file in (cluster.data_dir / "broker-2" / "slow_0").glob("*.kafka"))

    def throttled() -> list[object]:
        with closing(ZooKeeperStore(cluster.zookeeper_connect)) as store:
            return [
                *throttles.rates(ZooKeeperPartitions(store), range(3)),
                *read_config(store, "topics", "slow").values(),
            ]

    # One message is whole, and at a byte a second more than this test lives to see.
    assert run([*execute, "--throttle", "1", "--no-wait"]) == 0
    assert wait_until(lambda: copied() > 0, PATIENCE_S)
    assert run(verify) == UNDER_WAY
    assert throttled() == [1, "0:0", "0:2"]
    assert 50_000 < copied() < 100_000
    assert run([*execute, "--throttle", "100000000"]) == 0
    assert wait_until(lambda: run(verify) != UNDER_WAY, PATIENCE_S)
    assert run(verify) == 0
    assert copied() > 500_000
    assert throttled() == []
    assert run(["topic", "delete", "slow", *at]) == 0


def test_messages_that_wait_for_more_replicas_are_told_of(cluster: Cluster) -> None:
    at = ("--bootstrap", cluster.bootstrap_servers)
    layout = ("--replica-assignment", "0", "--config", "min.insync.replicas=2")
    assert run(["topic", "create", "few", *layout, *at]) == 0
    command = [sys.executable, "-m", "minikafka.cli.main", "produce", "few", *at]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write("one\ntwo\n")
    process.stdin.flush()
    printed = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert printed.startswith("minikafka: 2 records for few-0 not acknowledged for ")
    assert "s: NOT_ENOUGH_REPLICAS: " in printed
    assert "than the topic's min.insync.replicas; retrying, for " in printed
    assert err.startswith("minikafka: 2 of 2 messages not acknowledged")
    assert process.returncode == 130
    assert run(["topic", "delete", "few", *at]) == 0
