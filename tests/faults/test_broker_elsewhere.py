"""A broker that dies, or moves to another host, in a cluster whose clients go on.

All tests share one cluster.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.zookeeper import elections
from minikafka.embedded.broker import BrokerFailed, BrokerProcess
from minikafka.registry.brokers import live_brokers
from tests.faults.watched_clients import TOPIC
from tests.faults.whole_cluster import CONFIG, WholeCluster, until

pytestmark = pytest.mark.timeout(240)

ELSEWHERE = "127.0.0.2"
MOVES, DIES = 1, 2
FIRST_GENERATED = 1001


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    """A cluster with its clients."""
    with WholeCluster(tmp_path_factory.mktemp("cluster")) as one:
        one.recover()
        yield one


@pytest.fixture(scope="module")
def stays(system: WholeCluster) -> Iterator[contextlib.ExitStack]:
    """The cluster that all tests of this module share. At the end nothing may be lost."""
    with contextlib.ExitStack() as stack:
        yield stack
        system.end()


@contextlib.contextmanager
def broker(
    system: WholeCluster, directory: Path, number: int, data: Path, **own: str
) -> Iterator[BrokerProcess]:
    """A broker of the cluster on another host, with this data."""
    directory.mkdir(exist_ok=True)
    properties: Mapping[str, str] = {
        **CONFIG,
        "listeners": f"PLAINTEXT://{ELSEWHERE}:0",
        "log.dirs": str(data),
        "zookeeper.connect": system.cluster.zookeeper_connect,
        **own,
    }
    process = BrokerProcess(number, str(directory), properties)
    try:
        yield process
    finally:
        process.stop()


def test_clients_follow_a_broker_to_another_host_and_port(
    system: WholeCluster, stays: contextlib.ExitStack, tmp_path: Path
) -> None:
    data = system.cluster.data_dir / f"broker-{MOVES}"
    system.cluster.stop_broker(MOVES)
    moved = stays.enter_context(broker(system, tmp_path, MOVES, data))
    address = moved.wait_ready().address
    until(lambda: system.in_sync(3), "it does not come into sync")
    elections.request(system.store, zookeeper_metadata.assigned(system.store))
    led = [one for one, its in zookeeper_metadata.assigned(system.store, [TOPIC]).items() if its[0] == MOVES]
    until(lambda: all(system.leader(partition.partition) == MOVES for partition in led), "it does not lead")
    system.recover()
    registered = live_brokers(system.store)[MOVES].broker
    assert (led != [], list(map(str, registered.endpoints))) == (True, [f"PLAINTEXT://{address}"])
    assert address.startswith(f"{ELSEWHERE}:")


def test_watched_health_shows_a_dead_broker_and_its_return(system: WholeCluster) -> None:
    command = ["cluster", "health", "--watch", "--format", "json"]
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "minikafka.cli.main",
            *command,
            "--bootstrap",
            system.cluster.bootstrap_servers,
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as watch:
        try:
            assert watch.stdout is not None
            states = map(json.loads, watch.stdout)
            assert next(state for state in states if state["healthy"])["under_replicated"] == []
            system.cluster.kill(DIES)
            ill = next(state for state in states if len(state["under_replicated"]) == state["partitions"])
            assert [broker["broker"] for broker in ill["brokers"] if not broker["alive"]] == [DIES]
            assert all(DIES not in partition["in_sync"] for partition in ill["under_replicated"])
            system.cluster.restart(DIES)
            well = next(state for state in states if state["healthy"])
            assert (well["under_replicated"], well["leaderless"]) == ([], [])
            watch.send_signal(signal.SIGTERM)
            assert watch.wait(30) == 0
        finally:
            watch.kill()


@pytest.mark.long
@pytest.mark.slow
def test_broker_without_an_id_gets_one_and_keeps_it_with_its_data(
    system: WholeCluster, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with broker(system, tmp_path, 8, data, **{"broker.id": "-1"}) as new:
        new.wait_ready()
        assert set(live_brokers(system.store)) == {0, 1, 2, FIRST_GENERATED}
    with broker(system, tmp_path, 7, data) as other, pytest.raises(BrokerFailed) as refused:
        other.wait_ready()
    assert refused.value.exit_code == 2
    assert f"belongs to broker {FIRST_GENERATED}, not to broker 7" in str(refused.value)
