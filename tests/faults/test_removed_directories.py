"""Data directories that are removed under running brokers."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.clients import zookeeper_metadata
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.data_directory import broker_directory
from minikafka.embedded.process import wait_until
from minikafka.registry.topics import read_states
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.support.load import Load

CONFIG = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}
PARTITIONS = 3
PATIENCE_S = 60


class Loaded:
    """Three brokers of which each has three partitions, and what is written to them."""

    def __init__(self, cluster: Cluster, store: ZooKeeperStore) -> None:
        self.cluster = cluster
        self.load = Load(cluster.bootstrap_servers, partitions=PARTITIONS)
        self._store = store

    def until_in_sync(self, numbers: set[int]) -> None:
        """Go on until these brokers are in sync everywhere, by ZooKeeper."""

        def in_sync() -> bool:
            found = read_states(self._store, zookeeper_metadata.assigned(self._store, ("t",)))
            return all(set(state.isr) == numbers for state in found.values())

        self.load.run_until(in_sync, f"brokers {numbers} are in sync")


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    with (
        Cluster(3, tmp_path, CONFIG) as cluster,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic("t", PARTITIONS, replicas=3)
        loaded = Loaded(cluster, store)
        loaded.until_in_sync({0, 1, 2})
        yield loaded
        cluster.restart(0)
        loaded.until_in_sync({0, 1, 2})
        loaded.load.finish()
    loaded.load.check_nothing_lost()


@pytest.mark.timeout(300)
def test_a_broker_without_its_directory_stops_and_others_lead(loaded: Loaded, tmp_path: Path) -> None:
    broker = loaded.cluster.broker(0)
    shutil.rmtree(broker_directory(tmp_path, 0))
    loaded.until_in_sync({1, 2})
    assert wait_until(lambda: broker.exit_code is not None, PATIENCE_S)
    said = (tmp_path / "logs" / "broker-0.log").read_text(encoding="utf-8")
    assert "was removed or emptied while in use: stopping this broker" in said


def remove(partition: Path) -> None:
    shutil.rmtree(partition)


def move_away(partition: Path) -> None:
    partition.rename(partition.with_name("moved-" + partition.name))


def remove_segments(partition: Path) -> None:
    for path in partition.glob("*.kafka"):
        path.unlink()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("change", [remove, move_away, remove_segments])
def test_others_lead_partitions_that_were_removed(
    loaded: Loaded, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    for partition in broker_directory(tmp_path, 0).glob("t_*"):
        change(partition)
    loaded.until_in_sync({1, 2})
    assert loaded.cluster.broker(0).exit_code is None
