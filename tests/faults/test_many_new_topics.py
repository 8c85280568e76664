"""A broker dies while a client asks for thousands of topics that are not there: others lead soon.

Each name is to be made automatically. The client asks again and again, as real ones do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.cluster import Cluster
from minikafka.registry import paths
from minikafka.registry.store import Store
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.wire.apis.metadata import METADATA, metadata_request
from tests.faults import roles

_log = logging.getLogger(__name__)

PARTITIONS = 6
SESSION_MS = 6_000
LEAST_MADE = 100
"""New topics that are there before a broker is killed."""


@contextlib.contextmanager
def asking_for(bootstrap: str, broker_id: int, names: tuple[str, ...]) -> Iterator[None]:
    """Name topics to a broker, all in each request, until the end of the block."""
    ended = threading.Event()

    def ask() -> None:
        with Client(bootstrap, client_id="many") as client:
            while not ended.is_set():
                with contextlib.suppress(MinikafkaError):
                    client.metadata(None)
                    client.call(broker_id, METADATA, metadata_request(names, True), timeout_ms=60_000)
                ended.wait(0.5)

    thread = threading.Thread(target=ask, name="asks for topics")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(90)
        assert not thread.is_alive()


def check_led(store: Store, dead: int, limit_s: float) -> None:
    """Wait until every partition of ``t`` has a live leader, or fail at the limit."""
    begun = time.monotonic()
    while (took := time.monotonic() - begun) < limit_s:
        leaders = {roles.leader(store, TopicPartition("t", number)) for number in range(PARTITIONS)}
        if not leaders & {dead, -1}:
            _log.info("leaders after %.1f s", took)
            return
        time.sleep(0.1)
    raise AssertionError(f"no leaders {took:.0f} s after broker {dead} was killed")


def check_a_death(tmp_path: Path, role: str, names: int, limit_s: float) -> None:
    config = {
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "offsets.topic.num.partitions": "1",
        "default.replication.factor": "3",
    }
    with (
        Cluster(3, tmp_path, config) as cluster,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic("t", PARTITIONS, replicas=3)
        controller = roles.controller(store)
        others = [number for number in range(3) if number != controller]
        victim, asked = (controller, others[0]) if role == "controller" else (others[1], controller)
        wanted = tuple(f"new-{number}" for number in range(names))
        with asking_for(cluster.bootstrap_servers, asked, wanted):
            begun = time.monotonic()
            while len(store.children(paths.BROKER_TOPICS)) < LEAST_MADE:
                assert time.monotonic() - begun < 60, "no topics are made"
                time.sleep(0.1)
            cluster.kill(victim)
            check_led(store, victim, limit_s)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("role", ["leader", "controller"])
def test_others_lead_while_2000_new_topics_are_asked_for(tmp_path: Path, role: str) -> None:
    check_a_death(tmp_path, role, 2_000, 30)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("role", ["leader", "controller"])
def test_others_lead_within_10_s_while_20000_new_topics_are_asked_for(tmp_path: Path, role: str) -> None:
    check_a_death(tmp_path, role, 20_000, 10)
