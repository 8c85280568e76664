"""Brokers of a cluster that are killed one after the other, under load.

Three brokers, three replicas of which two must be in sync, an idempotent producer with acks=all, and a member
of a group whose offsets have three replicas too.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.embedded.cluster import Cluster
from minikafka.registry.store import Store
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults import roles
from tests.support.load import Load

CONFIG = {
    # The time that passes until a broker that was killed counts as dead.
    "zookeeper.session.timeout.ms": "1500",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
}
PARTITIONS = 3
BETWEEN_KILLS = 500
T0 = TopicPartition("t", 0)


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
        roles.run_until_in_sync(load, store, 3)
        for role in ("leader", "controller", "follower"):
            load.run(BETWEEN_KILLS)
            number = victim(store, role)
            cluster.kill(number)
            promised = dict(load.committed)
            roles.run_until_in_sync(load, store, 2)
            load.run(BETWEEN_KILLS)
            assert load.taken_back(promised) == {}
            cluster.restart(number)
            roles.run_until_in_sync(load, store, 3)
        load.finish()
    load.check_everything_came_once()
    assert min(load.committed.values()) > 0
