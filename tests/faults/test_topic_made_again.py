"""A topic whose znodes alone are removed and that is made again, on real brokers, of which one is down."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.common_client_configs import ACKS_ALL
from minikafka.clients.fetch.list_offsets import LATEST
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.records.format.message_set import iterate
from minikafka.registry.paths import topic_path
from minikafka.registry.topics import TopicAssignment
from minikafka.registry.zookeeper import ZooKeeperStore

PATIENT_LOOPS = 20_000
T0 = TopicPartition("t", 0)


def write(cluster: Cluster, values: list[bytes]) -> int:
    """Write these, acknowledged by all in sync; where the partition ends then."""
    with Client(cluster.bootstrap_servers) as client:
        producer = BatchingProducer(client, BatchingConfig(acks=ACKS_ALL, delivery_timeout_ms=30_000))
        last = [producer.send("t", value, partition=0) for value in values][-1]
        end = last.result(30_000).offset + 1
        producer.close(5_000)
    return end


def read(cluster: Cluster, end: int) -> list[bytes | None]:
    """The partition's values up to ``end``."""
    with Client(cluster.bootstrap_servers) as client:
        return [record.value for part in RangeFetcher(client, T0, 0, end) for record in iterate(part)]


def until_empty(cluster: Cluster) -> None:
    """Until the leader has heard: what is written before goes to the topic that was removed."""
    with Client(cluster.bootstrap_servers) as client:
        for _ in range(PATIENT_LOOPS):
            with contextlib.suppress(MinikafkaError):
                if Admin(client).offsets({T0: LATEST}, timeout_ms=30_000) == {T0: 0}:
                    return
    raise AssertionError("the partition is not empty")


@pytest.mark.timeout(120)
def test_the_old_messages_are_on_no_replica_of_the_new_topic(tmp_path: Path) -> None:
    config = {"zookeeper.session.timeout.ms": "1500"}
    with (
        Cluster(3, tmp_path, config) as cluster,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic("t", replicas=3)
        assert write(cluster, [b"old"] * 10) == 10
        assignment = TopicAssignment.from_json(store.read(topic_path("t"))[0], "")
        away = assignment.partitions[0][1]
        cluster.kill(away)
        store.delete(topic_path("t"), recursive=True)
        store.create(topic_path("t"), assignment.to_json())
        until_empty(cluster)
        assert write(cluster, [b"new-1", b"new-2"]) == 2
        assert read(cluster, 2) == [b"new-1", b"new-2"]
        cluster.restart(away)
        for number in set(assignment.partitions[0]) - {away}:
            cluster.stop_broker(number)  # others take over first: in the end the one that was away
        assert write(cluster, [b"new-3"]) == 3
        assert read(cluster, 3) == [b"new-1", b"new-2", b"new-3"]
    assert len(list(tmp_path.glob("**/t_0.0-stray"))) == 3
