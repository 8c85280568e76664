"""A topic that is deleted and made again on real brokers, of which one was killed and has the old log."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.files import RealFiles
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.common_client_configs import ACKS_ALL
from minikafka.clients.fetch.list_offsets import LATEST
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.log.checkpoints.partition_metadata import read_topic_id
from minikafka.records.format.message_set import iterate
from minikafka.registry.paths import topic_path
from minikafka.registry.topics import TopicAssignment, read_states
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
        store.create(topic_path("t"), replace(assignment, topic_id=None).to_json())
        until_empty(cluster)
        assert write(cluster, [b"new-1", b"new-2"]) == 2
        assert read(cluster, 2) == [b"new-1", b"new-2"]
        cluster.restart(away)
        for number in set(assignment.partitions[0]) - {away}:
            cluster.stop_broker(number)  # others take over first: in the end the one that was away
        assert write(cluster, [b"new-3"]) == 3
        assert read(cluster, 3) == [b"new-1", b"new-2", b"new-3"]
    assert len(list(tmp_path.glob("**/t_0.0-stray"))) == 3


def id_of_topic(store: ZooKeeperStore) -> bytes | None:
    return TopicAssignment.from_json(store.read(topic_path("t"))[0], "").topic_id


@pytest.mark.timeout(120)
def test_killed_broker_has_the_log_of_a_topic_that_others_deleted(tmp_path: Path) -> None:
    config = {"zookeeper.session.timeout.ms": "1500"}
    with (
        Cluster(3, tmp_path, config) as cluster,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
        Client(cluster.bootstrap_servers) as client,
    ):
        admin = Admin(client)
        admin.create_topic(NewTopic("t", assignments={0: (2, 0, 1)}))
        assert write(cluster, [b"old"] * 10) == 10
        earlier = id_of_topic(store)
        assert wait_until(lambda: len(list(tmp_path.glob("broker-*/t_0/partition.metadata"))) == 3, 30)
        cluster.kill(2)
        # A deletion waits for the replicas on dead brokers: let it be none.
        assert wait_until(lambda: read_states(store, [T0])[T0].leader in {0, 1}, 30)
        assert admin.alter_partition_reassignments({T0: (0, 1)}) == {T0: None}
        assert wait_until(lambda: not admin.list_partition_reassignments(), 30)
        cluster.delete_topic("t")
        admin.create_topic(NewTopic("t", assignments={0: (0, 1)}))
        assert write(cluster, [b"new-1"]) == 1
        cluster.restart(2)
        assert admin.alter_partition_reassignments({T0: (0, 1, 2)}) == {T0: None}
        assert wait_until(lambda: set(read_states(store, [T0])[T0].isr) == {0, 1, 2}, 30)
        for number in (0, 1):
            cluster.kill(number)  # in the end the one that was away leads alone
        assert write(cluster, [b"new-2"]) == 2
        assert read(cluster, 2) == [b"new-1", b"new-2"]
        ids = [read_topic_id(RealFiles(), str(path)) for path in tmp_path.glob("broker-2/t_0*")]
        assert ids.count(id_of_topic(store)) == 1
        assert ids.count(earlier) == 1  # it was set aside
