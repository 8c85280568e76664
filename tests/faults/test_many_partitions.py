"""A broker of three dies, or starts again, in a cluster with thousands of partitions."""

from __future__ import annotations

import contextlib
import logging
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.clients import zookeeper_metadata
from minikafka.embedded.cluster import Cluster
from minikafka.registry.store import Store
from minikafka.registry.topics import PartitionState, read_states
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults import roles
from tests.support.load import Load

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 20_000, reason="needs a descriptor for each log"
    ),
]
_log = logging.getLogger(__name__)

PARTITIONS = 5_000
SESSION_MS = 6_000
LED_WITHIN_S = 15.0
"""Including the session time-out, ``SESSION_MS``."""
IN_SYNC_WITHIN_S = 90.0


def seconds_until(store: Store, limit_s: float, holds: Callable[[PartitionState], bool]) -> float:
    """Return the time until that holds for every partition of ``many``."""
    partitions = zookeeper_metadata.assigned(store, ["many"])
    assert len(partitions) == PARTITIONS
    begun = time.monotonic()
    while (took_s := time.monotonic() - begun) < limit_s:
        states = read_states(store, partitions)
        if len(states) == PARTITIONS and all(map(holds, states.values())):
            return took_s
        time.sleep(0.2)
    raise AssertionError(f"not so within {limit_s:.0f} s")


@pytest.mark.parametrize("role", ["controller", "another broker"])
def test_others_lead_five_thousand_partitions_soon(tmp_path: Path, role: str) -> None:
    config = {
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "offsets.topic.num.partitions": "1",
        "min.insync.replicas": "1",
    }
    with (
        Cluster(3, tmp_path, config) as cluster,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic("t", 3, replicas=3)
        cluster.create_topic("many", PARTITIONS, replicas=2)
        seconds_until(store, IN_SYNC_WITHIN_S, lambda state: len(state.isr) == 2)
        load = Load(cluster.bootstrap_servers, partitions=3)
        load.run(500)
        controller = roles.controller(store)
        victim = controller if role == "controller" else (controller + 1) % 3
        cluster.kill(victim)
        led_s = seconds_until(store, LED_WITHIN_S, lambda state: state.leader not in {victim, -1})
        load.run(500)
        cluster.restart(victim)
        in_sync_s = seconds_until(store, IN_SYNC_WITHIN_S, lambda state: len(state.isr) == 2)
        _log.info("led by others after %.1f s, in sync again after %.1f s", led_s, in_sync_s)
        load.run(500)
        load.finish()
    load.check_nothing_lost()
