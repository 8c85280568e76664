from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError, DirectoryLocked
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.embedded import Cluster
from minikafka.embedded.broker import BrokerFailed
from minikafka.embedded.process import wait_until
from minikafka.net.ports import can_bind, can_connect, ephemeral_ports, free_port


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cluster(directory: Path) -> Iterator[Cluster]:
    with Cluster(data_dir=directory) as cluster:
        yield cluster


def produce(cluster: Cluster, topic: str, count: int) -> None:
    with (
        Client(cluster.bootstrap_servers) as client,
        BatchingProducer(client, BatchingConfig(acks=-1)) as producer,
    ):
        deliveries = [producer.send(topic, b"%d" % number, partition=0) for number in range(count)]
        producer.flush()
        for delivery in deliveries:
            delivery.result()


def end_offset(cluster: Cluster, topic: str) -> int | None:
    with Client(cluster.bootstrap_servers) as client:
        return Admin(client).offsets({TopicPartition(topic, 0): LATEST})[TopicPartition(topic, 0)]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.skipif(not can_bind("::1", 0), reason="this machine has no ::1")
def test_ipv6_host_is_in_brackets_for_clients(directory: Path) -> None:
    with Cluster(data_dir=directory, host="[::1]") as cluster:
        assert cluster.ready_line.startswith("ready [::1]:")
        cluster.create_topic("t")
        produce(cluster, "t", 3)
        assert end_offset(cluster, "t") == 3


def test_temporary_cluster_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Cluster() as cluster:
        cluster.create_topic("t", partitions=2)
        produce(cluster, "t", 10)
        assert end_offset(cluster, "t") == 10
        pid = cluster.broker(0).pid
        ports = port_of(cluster.bootstrap_servers), port_of(cluster.zookeeper_connect)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not any(can_connect("127.0.0.1", port) for port in ports)


def test_a_data_directory_keeps_messages_and_cluster_id(directory: Path) -> None:
    with Cluster(data_dir=directory) as cluster:
        cluster.create_topic("t")
        produce(cluster, "t", 10)
        cluster_id = cluster.cluster_id
    with Cluster(data_dir=directory) as cluster:
        assert cluster.cluster_id == cluster_id
        assert end_offset(cluster, "t") == 10


def test_killed_broker_restarts_on_its_port_with_all_records(cluster: Cluster) -> None:
    address = cluster.bootstrap_servers
    cluster.create_topic("t")
    produce(cluster, "t", 1000)
    cluster.kill(0)
    assert not can_connect("127.0.0.1", port_of(address))
    cluster.restart(0)
    assert cluster.bootstrap_servers == address
    assert end_offset(cluster, "t") == 1000


def test_restart_keeps_the_port_despite_advertised_listeners(directory: Path) -> None:
    given, elsewhere = free_port(), free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{elsewhere}"}
    with Cluster(data_dir=directory, config=advertised, port=given) as cluster:
        cluster.kill(0)
        cluster.restart(0)
        assert can_connect("127.0.0.1", given)
        assert not can_connect("127.0.0.1", elsewhere)


def test_a_broker_that_is_stopped_ends_cleanly(cluster: Cluster) -> None:
    assert cluster.stop_broker(0) == 0


def test_a_second_cluster_on_the_directory_is_refused(cluster: Cluster) -> None:
    other = Cluster(data_dir=cluster.data_dir)
    with pytest.raises(DirectoryLocked, match=str(cluster.data_dir)):
        other.start()
    other.close()
    assert can_connect("127.0.0.1", port_of(cluster.bootstrap_servers))


def test_settings_reach_the_broker(directory: Path) -> None:
    with Cluster(data_dir=directory, config={"num.partitions": "3"}) as cluster:
        produce(cluster, "made-by-itself", 1)
        with Client(cluster.bootstrap_servers) as client:
            assert len(client.topic("made-by-itself").partitions) == 3


def test_a_setting_that_the_broker_refuses_leaves_nothing_running(directory: Path) -> None:
    cluster = Cluster(data_dir=directory, config={"num.partitions": "none"})
    with pytest.raises(BrokerFailed, match=r"num\.partitions='none'"), cluster:
        pytest.fail("it must not start")
    assert not can_connect("127.0.0.1", port_of(cluster.zookeeper_connect))
    os.rename(directory, directory.with_name("moved"))  # no process holds or writes it


def test_a_zookeeper_that_runs_already_is_used_below_its_chroot(cluster: Cluster, tmp_path: Path) -> None:
    chroot = f"{cluster.zookeeper_connect}/other"
    with Cluster(data_dir=tmp_path / "other", zookeeper=chroot) as other:
        assert other.zookeeper_connect == chroot
        assert other.cluster_id != cluster.cluster_id
        assert not (tmp_path / "other" / "zookeeper").exists()


def test_a_taken_broker_id_is_a_clear_error(cluster: Cluster, tmp_path: Path) -> None:
    other = Cluster(data_dir=tmp_path / "other", zookeeper=cluster.zookeeper_connect)
    with pytest.raises(BrokerFailed, match="0") as caught, other:
        pytest.fail("it must not start")
    assert caught.value.exit_code == 2


def test_the_end_of_a_broker_is_reported(directory: Path) -> None:
    ended: list[tuple[int, int]] = []
    with Cluster(1, directory, on_exit=lambda number, code: ended.append((number, code))) as cluster:
        cluster.kill(0)
        assert ended == [(0, -9)]


def test_zookeeper_that_dies_is_started_again_where_it_was(cluster: Cluster) -> None:
    connect = cluster.zookeeper_connect
    assert not cluster.restart_zookeeper()
    assert cluster._zookeeper is not None
    cluster._zookeeper.process.kill()  # type: ignore[union-attr]
    assert cluster.restart_zookeeper()
    assert cluster.zookeeper_connect == connect
    cluster.create_topic("t")


def test_restart_of_zookeeper_waits_for_its_port(cluster: Cluster) -> None:
    connect, messages = cluster.zookeeper_connect, list[str]()
    port = port_of(connect)
    assert cluster._zookeeper is not None
    cluster._zookeeper.process.kill()  # type: ignore[union-attr]
    with socket.create_server(("127.0.0.1", port), reuse_port=False):
        assert not cluster.restart_zookeeper(messages.append)
        assert not cluster.restart_zookeeper(messages.append)
    assert cluster.restart_zookeeper(messages.append)
    assert messages == [
        f"ZooKeeper at {connect} ended and cannot be restarted yet: another process uses its port",
        f"ZooKeeper at {connect} had ended and was restarted",
    ]
    assert cluster.zookeeper_connect == connect
    cluster.create_topic("t")


def test_hung_zookeeper_and_its_recovery_are_each_reported_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minikafka.embedded.cluster.ZOOKEEPER_CHECK_S", 0.0)
    monkeypatch.setattr("minikafka.embedded.cluster.ZOOKEEPER_SILENT_S", 0.0)
    messages: list[str] = []
    assert cluster._zookeeper is not None
    pid = cluster._zookeeper.process.pid  # type: ignore[union-attr]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert wait_until(lambda: not cluster.restart_zookeeper(messages.append) and bool(messages), 30)
        cluster.restart_zookeeper(messages.append)
    finally:
        os.kill(pid, signal.SIGCONT)
    at = f"ZooKeeper at {cluster.zookeeper_connect}"
    assert [text.startswith(f"{at} (process {pid}) does not respond") for text in messages] == [True]
    assert wait_until(lambda: not cluster.restart_zookeeper(messages.append) and len(messages) == 2, 30)
    assert messages[1] == f"{at} responds again"
    cluster.create_topic("t")


def test_removed_zookeeper_data_is_reported_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.embedded.cluster.ZOOKEEPER_CHECK_S", 0.0)
    messages: list[str] = []
    with Cluster(1, directory) as cluster:
        cluster.restart_zookeeper(messages.append)
        assert messages == []
        shutil.rmtree(directory / "zookeeper" / "data")
        assert wait_until(lambda: not cluster.restart_zookeeper(messages.append) and bool(messages), 30)
        cluster.restart_zookeeper(messages.append)
        cluster.create_topic("t")
    assert len(messages) == 1
    assert messages[0].startswith(
        f"{directory / 'zookeeper' / 'data'} was removed: ZooKeeper still runs from memory"
    )


def test_a_broker_with_any_port_gets_one_that_no_connection_gets(cluster: Cluster) -> None:
    assert port_of(cluster.bootstrap_servers) not in ephemeral_ports()


def test_brokers_have_settings_of_their_own_and_each_is_a_process(directory: Path) -> None:
    racks = {number: {"broker.rack": rack} for number, rack in enumerate("ab")}
    with Cluster(2, directory, broker_configs=racks) as cluster:
        cluster.create_topic("t", replicas=2)
        with Client(cluster.bootstrap_servers) as client:
            found = client.metadata(None).brokers
        assert {number: address.rack for number, address in found.items()} == {0: "a", 1: "b"}
        cluster.kill(1)
        cluster.restart(1)
        produce(cluster, "t", 10)
        assert end_offset(cluster, "t") == 10
    with pytest.raises(
        ConfigError, match="has brokers 0 and 1, and would be started without broker 1: use 2"
    ):
        Cluster(1, directory)
    assert Cluster(data_dir=directory).count == 2


def test_a_cluster_without_a_broker_is_refused() -> None:
    with pytest.raises(ConfigError, match="brokers=0: must be at least 1"):
        Cluster(0)


@pytest.mark.parametrize("nothing", ["", " "])
def test_no_name_of_a_data_directory_is_not_the_current_one(nothing: str) -> None:
    with pytest.raises(ConfigError, match=f"data_dir={nothing!r}: must name a directory; .*None for"):
        Cluster(data_dir=nothing)
