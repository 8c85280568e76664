"""Sessions of fetches (KIP-227): Java's consumer on our broker, and our consumers on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.consumer import Consumer
from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from tests.interop.frameworks import started
from tests.interop.releases import KAFKA_3_9
from tests.support.fetch_relay import FetchRelay, RelayedFetch
from tests.support.kafka_broker import running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PARTITIONS, BUSY, IDLE_FETCHES = 50, 7, 3
PATIENCE_S = 60


class Broker:
    """A broker behind a relay."""

    def __init__(self, servers: str, zookeeper: str, relay: FetchRelay) -> None:
        self.servers = servers
        self.zookeeper = zookeeper
        self._relay = relay

    @property
    def fetches(self) -> list[RelayedFetch]:
        """The fetches that are answered."""
        return [fetch for fetch in self._relay.fetches if fetch.responses]

    def add_topic(self, name: str) -> None:
        self._relay.fetches.clear()
        with ClusterClient(self.servers) as client:
            Admin(client).create_topic(NewTopic(name, PARTITIONS))

    def write(self, topic: str) -> None:
        with ClusterClient(self.servers) as client, BatchingProducer(client) as producer:
            producer.send(topic, b"a record", partition=BUSY)


@pytest.fixture(scope="module")
def ours() -> Iterator[Broker]:
    KAFKA_3_9.libs()
    with FetchRelay() as relay, Cluster(broker_configs={0: relay.listeners}) as cluster:
        yield Broker(cluster.bootstrap_servers, cluster.zookeeper_connect, relay)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("sessions")
    with (
        FetchRelay() as relay,
        running(KAFKA_3_9, directory, port=relay.broker_port, config=relay.listeners) as broker,
    ):
        yield Broker(broker.bootstrap, broker.zookeeper, relay)


def check_session(broker: Broker, topic: str, work: Callable[[], object] = lambda: None) -> None:
    """Check the fetches of a consumer that does ``work`` meanwhile: first without records, then with one."""

    def is_idle() -> bool:
        work()
        last = broker.fetches[-IDLE_FETCHES:]
        return len(last) == IDLE_FETCHES and all(fetch.named == fetch.answered == 0 for fetch in last)

    def has_read() -> bool:
        work()
        return any(fetch.record_bytes for fetch in broker.fetches[:-1])

    assert wait_until(is_idle, PATIENCE_S), broker.fetches
    assert sum(fetch.named for fetch in broker.fetches) >= PARTITIONS
    broker.write(topic)
    assert wait_until(has_read, PATIENCE_S), broker.fetches
    fetches = broker.fetches
    (number,) = [number for number, fetch in enumerate(fetches) if fetch.record_bytes]
    assert fetches[number].answered == 1
    following = fetches[number + 1].request
    ((part,),) = (named.partitions for named in following.topics)
    assert (part.index, part.fetch_offset) == (BUSY, 1)
    assert len({fetch.request.session_id for fetch in fetches[1:]} - {0}) == 1
    assert following.session_epoch > IDLE_FETCHES


def test_javas_consumer_has_a_session_with_our_broker(ours: Broker, tmp_path: Path) -> None:
    ours.add_topic("java")
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    read = ("--bootstrap-server", ours.servers, "--topic", "java", "--from-beginning")
    with started(KAFKA_3_9, tmp_path, main, *read):
        check_session(ours, "java")


def test_our_group_consumer_has_a_session_with_kafkas_broker(theirs: Broker) -> None:
    theirs.add_topic("group")
    config = GroupConsumerConfig("group", auto_offset_reset=Reset.EARLIEST)
    with ClusterClient(theirs.servers) as client, GroupConsumer(client, config) as consumer:
        consumer.assign([TopicPartition("group", number) for number in range(PARTITIONS)])
        check_session(theirs, "group", lambda: consumer.poll(100))


def test_the_texts_consumer_has_a_session_with_kafkas_broker(theirs: Broker) -> None:
    theirs.add_topic("texts")
    settings = {"zookeeper.connect": theirs.zookeeper, "group.id": "texts", "auto.offset.reset": "smallest"}
    consumer = Consumer.create(settings)
    try:
        consumer.create_message_streams({"texts": 1})
        check_session(theirs, "texts")
    finally:
        consumer.shutdown()
