"""Consumers of a group in ZooKeeper: real ZooKeeper, a real broker, threads."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.consumer import Consumer
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import read_offsets
from minikafka.registry.zookeeper import ZooKeeperStore

PARTITIONS = 4
PATIENCE_S = 30


class Reader:
    """A consumer with one stream, and a thread that reads it to the end."""

    def __init__(self, cluster: Cluster, name: str, storage: str) -> None:
        config = ConsumerConfig(
            group_id="g",
            zookeeper_connect=cluster.zookeeper_connect,
            consumer_id=name,
            offsets_storage=storage,
            auto_offset_reset="smallest",
            auto_commit_interval_ms=200,
            rebalance_backoff_ms=200,
        )
        connector = Consumer.create(config)
        assert isinstance(connector, ZookeeperConsumerConnector)
        self.connector = connector
        self.found: list[tuple[int, int, bytes]] = []
        (self._stream,) = connector.create_message_streams({"t": 1})["t"]
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for message in self._stream:
            self.found.append((message.partition, message.offset, bytes(message.message or b"")))

    def close(self) -> None:
        self.connector.shutdown()
        self._thread.join()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_two_share_the_partitions_and_one_takes_over_from_the_other(tmp_path: Path, storage: str) -> None:
    with (
        Cluster(data_dir=tmp_path / "data") as cluster,
        Client(cluster.bootstrap_servers) as client,
        BatchingProducer(client) as producer,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic("t", partitions=PARTITIONS)
        sent: list[bytes] = []

        def send(count: int) -> None:
            for _ in range(count):
                sent.append(b"%d" % len(sent))
                producer.send("t", sent[-1], partition=len(sent) % PARTITIONS)
            producer.flush()

        def owners() -> list[str]:
            path = f"{paths.CONSUMERS}/g/owners/t"
            return [store.read(f"{path}/{number}")[0].decode() for number in store.children(path)]

        send(100)
        one = Reader(cluster, "a", storage)
        assert wait_until(lambda: len(one.found) == 100, PATIENCE_S)
        other = Reader(cluster, "b", storage)
        assert wait_until(lambda: owners() == ["g_a-0", "g_a-0", "g_b-0", "g_b-0"], PATIENCE_S)
        send(100)
        assert wait_until(lambda: len(one.found) + len(other.found) == 200, PATIENCE_S)
        assert {partition for partition, _, _ in other.found} == {2, 3}
        one.close()
        assert wait_until(lambda: owners() == ["g_b-0"] * 4, PATIENCE_S)
        send(100)
        assert wait_until(lambda: len(one.found) + len(other.found) == 300, PATIENCE_S)
        other.close()
        assert sorted(value for _, _, value in one.found + other.found) == sorted(sent)
        committed = {TopicPartition("t", number): 75 for number in range(PARTITIONS)}
        assert read_offsets(store, "g") == committed
        at_coordinator = {tp: one.offset for tp, one in GroupAdmin(client).offsets("g").items()}
        assert at_coordinator == (committed if storage == "kafka" else {})
