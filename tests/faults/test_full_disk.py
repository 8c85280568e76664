"""One broker of three that cannot write any more, under load: its process may not let files grow."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

import pytest

from minikafka.clients import zookeeper_metadata
from minikafka.embedded.cluster import Cluster
from minikafka.registry.store import Store
from minikafka.registry.topics import read_states
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults import roles
from tests.support.load import Load

CONFIG = {"min.insync.replicas": "2", "offsets.topic.num.partitions": "1", "replica.lag.time.max.ms": "1500"}
PARTITIONS = 3
FULL_BYTES = 2_000
"""Larger than the files that are no logs."""


def led_by(store: Store, number: int) -> int:
    """Return the number of partitions that a broker leads."""
    found = read_states(store, zookeeper_metadata.assigned(store))
    return sum(state.leader == number for state in found.values())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process (prlimit)")
@pytest.mark.timeout(180)
def test_others_lead_what_it_led_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with (
        Cluster(3, tmp_path, CONFIG) as cluster,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic("t", PARTITIONS, replicas=3)
        load = Load(cluster.bootstrap_servers, partitions=PARTITIONS)
        roles.run_until_in_sync(load, store, 3)
        load.run(1_000)
        assert led_by(store, 0)
        process = cluster.broker(0).pid
        limits = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (FULL_BYTES, limits[1]))
        roles.run_until_in_sync(load, store, 2)
        assert led_by(store, 0) == 0
        load.run(1_000)
        resource.prlimit(process, resource.RLIMIT_FSIZE, limits)
        roles.run_until_in_sync(load, store, 3)
        load.finish()
    load.check_everything_came_once()
