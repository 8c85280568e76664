"""Brokers of a cluster that are killed one after the other, under load.

Three brokers, three replicas of which two must be in sync, an idempotent producer with acks=all, and a member
of a group whose offsets have three replicas too.
"""

from __future__ import annotations

import contextlib
from itertools import pairwise
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.embedded.cluster import Cluster
from minikafka.registry.store import Store
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults import roles
from tests.support.load import PATIENT_LOOPS, Load

CONFIG = {
    # The time that passes until a broker that was killed counts as dead.
    "zookeeper.session.timeout.ms": "1500",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
}
PARTITIONS = 3
BETWEEN_KILLS = 500
T0 = TopicPartition("t", 0)


def until(load: Load, store: Store, in_sync: int) -> None:
    """Go on until every partition has a leader that lives and so many replicas in sync."""
    for _ in range(PATIENT_LOOPS // 100):
        load.run(100)
        if roles.all_in_sync(store, in_sync):
            return
    raise AssertionError(f"not all partitions have {in_sync} replicas in sync")


def victim(store: Store, role: str) -> int:
    """A broker that has this role at the moment."""
    match role:
        case "leader":
            return roles.leader(store, T0)
        case "controller":
            return roles.controller(store)
    return roles.follower(store, T0)


@pytest.mark.timeout(240)
def test_kills_of_leader_controller_and_follower_lose_no_message(tmp_path: Path) -> None:
    with (
        Cluster(3, tmp_path, CONFIG) as cluster,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic("t", PARTITIONS, replicas=3)
        load = Load(cluster.bootstrap_servers, partitions=PARTITIONS)
        until(load, store, in_sync=3)
        for role in ("leader", "controller", "follower"):
            load.run(BETWEEN_KILLS)
            number = victim(store, role)
            cluster.kill(number)
            promised = dict(load.committed)
            until(load, store, in_sync=2)
            load.run(BETWEEN_KILLS)
            kept = load.committed_now()
            assert {n: kept[n] for n, offset in promised.items() if kept[n] < offset} == {}
            cluster.restart(number)
            until(load, store, in_sync=3)
        load.finish()
    assert load.changed == []
    assert load.failed == []
    # Everything was consumed, where it was acknowledged, and nothing twice.
    assert load.consumed == load.acknowledged
    assert len(set(load.acknowledged.values())) == len(load.acknowledged) == load.sent
    for partition in range(PARTITIONS):
        values = [load.acknowledged[place] for place in sorted(load.acknowledged) if place[0] == partition]
        assert all(before < after for before, after in pairwise(values))
    assert min(load.committed.values()) > 0
