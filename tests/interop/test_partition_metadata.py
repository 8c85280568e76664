"""The topic ids in the directories of logs, with Kafka 3.9.1 and ours on one data directory in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.fetch.list_offsets import LATEST
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.records.format.message_set import iterate
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9
from tests.support.kafka_broker import KafkaBroker, await_free_id

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

THEIRS, OURS, REBORN = "theirs", "ours", "reborn"
PATIENCE_S = 60.0


@dataclass
class Turns:
    """The ids and records that each broker in turn found: Kafka, ours, Kafka, and ours again."""

    data: Path
    files: list[dict[str, str]] = field(default_factory=list)
    """The ids by directory, as each left them."""
    rows: list[dict[str, list[bytes | None]]] = field(default_factory=list)
    """The records of each topic, as each found them."""

    def leave(self) -> None:
        """Note the ids after a broker has stopped."""
        paths = sorted(self.data.glob("*/partition.metadata"))
        self.files.append({path.parent.name: path.read_text() for path in paths})

    def look(self, bootstrap: str) -> None:
        """Note the records of all topics."""
        with Client(bootstrap) as client:
            topics = sorted(set(Admin(client).list_topics()) & {THEIRS, OURS, REBORN})
            self.rows.append({topic: rows(client, topic) for topic in topics})


def rows(client: Client, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    end = Admin(client).offsets({partition: LATEST}, timeout_ms=30_000)[partition]
    return [record.value for part in RangeFetcher(client, partition, 0, end) for record in iterate(part)]


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    with Client(bootstrap) as client, BatchingProducer(client) as producer:
        producer.send(topic, value)


def create(bootstrap: str, topic: str) -> None:
    with Client(bootstrap) as client:
        Admin(client).create_topic(NewTopic(topic, 1))


def make_again(bootstrap: str, topic: str) -> None:
    with Client(bootstrap) as client:
        admin = Admin(client)
        rows(client, topic)  # Kafka never deletes a topic that has no leader yet
        admin.delete_topics([topic])
        # Kafka still has its mark for deletion for a moment.
        assert wait_until(lambda: admin.create_topics([NewTopic(topic, 1)])[topic] is None, PATIENCE_S)


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turns]:
    KAFKA_3_9.libs()
    directory = tmp_path_factory.mktemp("turns")
    found = Turns(directory / "broker-0")
    with EmbeddedZooKeeper(str(directory / "zookeeper")) as server:
        zookeeper = f"{server.connect}/turns"
        kafka = KafkaBroker(KAFKA_3_9, directory / "kafka", zookeeper, data=found.data)
        try:
            kafka.start()
            for topic in (THEIRS, REBORN):
                create(kafka.bootstrap, topic)
                produce(kafka.bootstrap, topic, b"first")
            found.look(kafka.bootstrap)
            kafka.stop()
            found.leave()
            with our_broker(directory, zookeeper) as cluster:
                found.look(cluster.bootstrap_servers)
                cluster.create_topic(OURS)
                produce(cluster.bootstrap_servers, OURS, b"ours")
            found.leave()
            await_free_id(zookeeper)
            kafka.start()
            make_again(kafka.bootstrap, REBORN)
            produce(kafka.bootstrap, REBORN, b"second")
            found.look(kafka.bootstrap)
            kafka.stop()
            found.leave()
            with our_broker(directory, zookeeper) as cluster:
                found.look(cluster.bootstrap_servers)
            found.leave()
            yield found
        finally:
            kafka.kill()


def our_broker(directory: Path, zookeeper: str) -> Cluster:
    await_free_id(zookeeper)
    return Cluster(data_dir=directory, zookeeper=zookeeper, config={"log.layout": "apache"})


def test_our_broker_leaves_kafkas_files_as_they_are(turns: Turns) -> None:
    theirs, ours = turns.files[:2]
    assert {"theirs-0", "reborn-0"} <= theirs.keys()
    assert {name: ours[name] for name in theirs} == theirs


def test_our_broker_writes_them_as_kafka_does(turns: Turns) -> None:
    theirs, ours = turns.files[:2]
    assert len(ours["ours-0"]) == len(theirs["theirs-0"])
    assert ours["ours-0"].startswith("version: 0\ntopic_id: ")


def test_kafka_opens_our_log_and_leaves_its_id(turns: Turns) -> None:
    assert turns.rows[2][OURS] == [b"ours"]
    assert turns.files[2]["ours-0"] == turns.files[1]["ours-0"]


def test_topic_that_kafka_made_again_keeps_its_new_log_in_ours(turns: Turns) -> None:
    assert [found[REBORN] for found in turns.rows] == [[b"first"], [b"first"], [b"second"], [b"second"]]
    assert turns.files[3]["reborn-0"] == turns.files[2]["reborn-0"] != turns.files[1]["reborn-0"]
    assert list(turns.data.glob("*-stray")) == []


def test_all_other_records_are_kept(turns: Turns) -> None:
    assert [found[THEIRS] for found in turns.rows] == [[b"first"]] * 4


def test_release_without_topic_ids_serves_the_log_beside_the_file(tmp_path: Path) -> None:
    KAFKA_0_10.libs()
    data, formats = tmp_path / "broker-0", {"message.format.version": "0.10.1"}
    with EmbeddedZooKeeper(str(tmp_path / "zookeeper")) as server:
        zookeeper = f"{server.connect}/older"
        with our_broker(tmp_path, zookeeper) as cluster:
            cluster.create_topic(OURS, config=formats)
            produce(cluster.bootstrap_servers, OURS, b"ours")
        left = (data / "ours-0" / "partition.metadata").read_text()
        await_free_id(zookeeper)
        kafka = KafkaBroker(KAFKA_0_10, tmp_path / "kafka", zookeeper, data=data)
        try:
            kafka.start()
            produce(kafka.bootstrap, OURS, b"theirs")
            kafka.stop()
        finally:
            kafka.kill()
        assert (data / "ours-0" / "partition.metadata").read_text() == left
        with our_broker(tmp_path, zookeeper) as cluster, Client(cluster.bootstrap_servers) as client:
            assert rows(client, OURS) == [b"ours", b"theirs"]
