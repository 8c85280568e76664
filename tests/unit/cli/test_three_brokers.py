"""Commands on a cluster of three brokers, of which one dies and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.cli.commands import run
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until

pytestmark = pytest.mark.process

PATIENCE_S = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    # The shortest session: that of a broker that was killed has to end first.
    config = {"zookeeper.session.timeout.ms": "1000"}
    with Cluster(3, tmp_path / "d", config) as cluster:
        yield cluster


def test_a_dead_broker_is_seen_and_leads_again_and_partitions_move_away(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    at = ("--bootstrap", cluster.bootstrap_servers)
    zookeeper = ("--zookeeper", cluster.zookeeper_connect)

    def rows(*arguments: str, status: int = 0) -> list[dict[str, object]]:
        capfd.readouterr()
        assert run([*arguments, "--format", "json"]) == status, capfd.readouterr().err
        return [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    def healthy() -> bool:
        return run(["cluster", "health", *at]) == 0

    assert run(["topic", "create", "t", "--replica-assignment", "1:0:2,0:1:2", *at]) == 0
    assert healthy()
    cluster.kill(1)
    assert wait_until(lambda: not healthy(), PATIENCE_S)
    (found,) = rows("cluster", "health", *at, status=1)
    assert [one["alive"] for one in found["brokers"]] == [True, False, True]  # type: ignore[attr-defined]
    wanting = rows("topic", "describe", "--under-replicated-partitions", *at)
    assert [(row["partition"], row["replicas"]) for row in wanting] == [(0, [1, 0, 2]), (1, [0, 1, 2])]
    assert rows("topic", "describe", "--unavailable-partitions", *at) == []
    assert rows("elect", "t", *zookeeper, status=1)[0]["done"] is False

    cluster.restart(1)
    assert wait_until(healthy, PATIENCE_S)
    (elected,) = rows("elect", "--all", *zookeeper)
    assert (elected["leader"], elected["done"]) == (1, True)

    plan = tmp_path / "plan.json"
    capfd.readouterr()
    assert run(["reassign", "generate", "t", "--brokers", "0,2", "--replicas", "2", *zookeeper]) == 0
    plan.write_text(capfd.readouterr().out)
    moved = rows("reassign", "execute", "--file", str(plan), *zookeeper)
    assert [(sorted(row["in_sync"]), row["status"]) for row in moved] == [([0, 2], "done")] * 2  # type: ignore[call-overload]
    assert rows("reassign", "verify", "--file", str(plan), *zookeeper) == moved
    assert wait_until(lambda: not list((cluster.data_dir / "broker-1").glob("t_*")), PATIENCE_S)
