"""Topics by their ids: the admin clients and consumers of Kafka 3.9 and 4, and our consumer beside them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from tests.interop.releases import KAFKA_3_9, KAFKA_4, Release
from tests.support.kafka_broker import running

JAVA = Path(__file__).parent / "java"
LIVES = {"a": 5, "b": 3, "c": 8}
"""The number of records that are written each time that the topic is made."""
PATIENCE_S = 40
READ = ["a0 a1 a2 a3 a4", "b0 b1 b2", "c3 c4 c5 c6 c7"]
"""The records that a consumer reads: it begins anew only where the new log does not have its position."""

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture
def topic() -> str:
    return f"made-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module", params=["ours", KAFKA_3_9, KAFKA_4], ids=str)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, minikafka_cluster: Cluster
) -> Iterator[str]:
    """The servers of our cluster, and of a real Kafka's."""
    if not isinstance(request.param, Release):
        yield minikafka_cluster.bootstrap_servers
        return
    with running(request.param, tmp_path_factory.mktemp("real-kafka")) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_topic_made_again_is_another_one(minikafka_cluster: Cluster, release: Release, topic: str) -> None:
    printed = release.run(str(JAVA / "TopicIds.java"), minikafka_cluster.bootstrap_servers, topic)
    assert printed.out.splitlines() == [
        "made 1 1 compact",
        f"{topic} true 8",
        "deleted",
        "made 1 1 compact",
        "another",
        "UnknownTopicIdException",
        "UnknownTopicIdException",
        f"{topic} true 8",
    ]


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_kafkas_consumer_reads_on_when_a_topic_is_made_again(
    bootstrap: str, release: Release, topic: str
) -> None:
    printed = release.run(str(JAVA / "TopicMadeAgain.java"), bootstrap, topic)
    assert printed.out.splitlines() == [f"read {records}" for records in READ]


def _is_made(admin: Admin, topic: str) -> bool:
    """Create the topic; return False while the one before is still being deleted."""
    return admin.create_topics([NewTopic(topic, 1, 1)])[topic] is None


def records_of(consumer: GroupConsumer, last: str) -> str:
    """The values that the consumer reads, up to ``last``."""
    found: list[str] = []

    def is_read() -> bool:
        found.extend((record.value or b"").decode() for record in consumer.poll_records(100))
        return last in found

    assert wait_until(is_read, PATIENCE_S), found
    return " ".join(found)


def test_our_consumer_reads_on_when_a_topic_is_made_again(bootstrap: str, topic: str) -> None:
    found = []
    config = GroupConsumerConfig("g", auto_commit=False, auto_offset_reset=Reset.EARLIEST)
    with (
        ClusterClient(bootstrap, creates_topics=False) as client,
        ClusterClient(bootstrap, creates_topics=False) as other,
        GroupConsumer(client, config) as consumer,
    ):
        admin = Admin(other)
        for life, count in LIVES.items():
            if found:
                assert admin.delete_topics([topic]) == {topic: None}
                consumer.poll_records(500)
            assert wait_until(lambda: _is_made(admin, topic), PATIENCE_S)
            with BatchingProducer(other) as producer:
                for number in range(count):
                    producer.send(topic, f"{life}{number}".encode(), partition=0).result(10_000)
            if not found:
                consumer.assign([TopicPartition(topic, 0)])
            found.append(records_of(consumer, f"{life}{count - 1}"))
    assert found == READ
