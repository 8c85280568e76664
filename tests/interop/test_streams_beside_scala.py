"""Our consumer and that of Apache Kafka 0.10.1.1 as one group in ZooKeeper: several topics that a filter
chooses, dealt out in the order of Java's hash. One topic by ranges is in test_scala_consumers.py.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.consumer import Consumer, ConsumerConnector
from minikafka.clients.consumer.assignment import AssignmentContext, create_assignor
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.streams import KafkaStream
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.java import find_java
from minikafka.embedded.process import wait_until
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import JVM, KAFKA_0_10, java_environment

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

PATIENCE_S = 60
PARTITIONS = {"orders": 5, "payments": 3, "odd": 2}
WANTED = r"[a-z&&[^b-n]]\p{Alpha}++(?<!odd)"
"""Orders and payments, in words that only Java has."""
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "rebalance.backoff.ms": "300",
    "rebalance.max.retries": "20",
    "auto.commit.interval.ms": "100",
    "auto.offset.reset": "smallest",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    KAFKA_0_10.libs()
    with Cluster() as made:
        with Client(made.bootstrap_servers) as client:
            for topic, count in PARTITIONS.items():
                Admin(client).create_topic(NewTopic(topic, count))
        yield made


@pytest.fixture
def store(cluster: Cluster) -> Iterator[ZooKeeperStore]:
    store = ZooKeeperStore(cluster.zookeeper_connect)
    yield store
    store.close()


class Scala:
    """The release's console consumer, and the lines that it has printed."""

    def __init__(self, cluster: Cluster, group: str, consumer: str, settings: dict[str, str]) -> None:
        given = {"group.id": group, "consumer.id": consumer, **SETTINGS, **settings}
        options = [part for key, value in given.items() for part in ("--consumer-property", f"{key}={value}")]
        at = ("--zookeeper", cluster.zookeeper_connect, "--whitelist", WANTED)
        command = [find_java().path, *JVM, "-cp", f"{KAFKA_0_10.libs()}/*", "kafka.tools.ConsoleConsumer"]
        self.process = subprocess.Popen(
            [*command, *at, *options], stdout=subprocess.PIPE, text=True, env=java_environment()
        )
        self.got: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.got.put(line.strip())

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Ours:
    """Our consumer, with two streams for all that it reads, and what they have given."""

    def __init__(self, cluster: Cluster, group: str, consumer: str, settings: dict[str, str]) -> None:
        given = {"group.id": group, "consumer.id": consumer, "zookeeper.connect": cluster.zookeeper_connect}
        config = ConsumerConfig.from_properties({**given, **SETTINGS, **settings})
        self.connector: ConsumerConnector = Consumer.create(config)
        self.got: queue.SimpleQueue[str] = queue.SimpleQueue()
        streams = self.connector.create_message_streams_by_filter(Whitelist(WANTED), 2)
        self._threads = [threading.Thread(target=self._read, args=(stream,)) for stream in streams]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: KafkaStream[bytes, bytes]) -> None:
        for message in stream:
            self.got.put(message.message.decode())

    def end(self) -> None:
        self.connector.shutdown()
        for thread in self._threads:
            thread.join(PATIENCE_S)


def taken(one: Scala | Ours) -> list[str]:
    """Return the messages since the last call."""
    found = []
    with contextlib.suppress(queue.Empty):
        while True:
            found.append(one.got.get_nowait())
    return found


def owners(store: ZooKeeperStore, group: str) -> dict[str, str]:
    """Partition to the thread that owns it, as the znodes have it."""
    found = {}
    for topic, count in PARTITIONS.items():
        paths = {f"/consumers/{group}/owners/{topic}/{n}": f"{topic}-{n}" for n in range(count)}
        found.update({paths[path]: data.decode() for path, (data, _) in store.read_all(paths).items()})
    return found


def planned(store: ZooKeeperStore, group: str, consumer: str, strategy: str) -> dict[str, str]:
    """The same as the assignor has it."""
    shares = create_assignor(strategy).assign(AssignmentContext(group, consumer, True, store))
    return {str(tp): str(thread) for share in shares.values() for tp, thread in share.items()}


@pytest.mark.parametrize(
    ("strategy", "storage"),
    [
        ("roundrobin", "kafka"),
        pytest.param("roundrobin", "zookeeper", marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param("range", "kafka", marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_partitions_follow_the_assignor_and_takeovers_work(
    cluster: Cluster, store: ZooKeeperStore, strategy: str, storage: str
) -> None:
    group = f"{strategy}-{storage}"
    settings = {"partition.assignment.strategy": strategy, "offsets.storage": storage}
    rounds = iter(range(100))

    def settled(*consumers: str) -> bool:
        wanted = set(map(f"{group}_{{}}".format, consumers))
        try:
            if set(store.children(f"/consumers/{group}/ids")) != wanted:
                return False
            return owners(store, group) == planned(store, group, min(wanted), strategy)
        except Exception:  # noqa: BLE001 - it is not there yet
            return False

    def send() -> set[str]:
        number, sent = next(rounds), set()
        with Client(cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
            for topic, count in PARTITIONS.items():
                for partition in range(count):
                    text = f"{group} {topic}-{partition} {number}"
                    producer.send(topic, text.encode(), partition=partition).result(PATIENCE_S * 1000)
                    if topic != "odd":
                        sent.add(text)
        return sent

    def delivered(wanted: set[str], *consumers: Scala | Ours) -> bool:
        """Each consumer has got what its partitions are; all together have got everything once."""
        for consumer in consumers:
            here.setdefault(id(consumer), []).extend(t for t in taken(consumer) if t.startswith(f"{group} "))
        return {text for consumer in consumers for text in here[id(consumer)]} >= wanted

    here: dict[int, list[str]] = {}
    with contextlib.ExitStack() as ends:
        ours = Ours(cluster, group, "ours", settings)
        ends.callback(ours.end)
        scala = Scala(cluster, group, "scala", settings)
        ends.callback(lambda: scala.process.poll() is None and scala.end(signal.SIGKILL))
        assert wait_until(lambda: settled("ours", "scala"), PATIENCE_S, every_s=0.2), owners(store, group)
        assert len(set(owners(store, group).values())) == 3
        sent = send()
        assert wait_until(lambda: delivered(sent, ours, scala), PATIENCE_S, every_s=0.2)
        assert len(here[id(ours)]) + len(here[id(scala)]) == len(sent)
        for text in here[id(scala)]:
            assert owners(store, group)[text.split()[1]] == f"{group}_scala-0"

        scala.end(signal.SIGKILL)
        assert wait_until(lambda: settled("ours"), PATIENCE_S, every_s=0.2), owners(store, group)
        more = send()
        assert wait_until(lambda: delivered(more, ours), PATIENCE_S, every_s=0.2)

        other = Scala(cluster, group, "second", settings)
        ends.callback(lambda: other.process.poll() is None and other.end(signal.SIGKILL))
        assert wait_until(lambda: settled("ours", "second"), PATIENCE_S, every_s=0.2), owners(store, group)
        before = len(here[id(ours)])
        ours.end()
        assert wait_until(lambda: settled("second"), PATIENCE_S, every_s=0.2), owners(store, group)
        last = send()
        assert wait_until(lambda: delivered(last, other), PATIENCE_S, every_s=0.2)
        delivered(last, ours, other)
        assert len(here[id(ours)]) == before
        assert set(here[id(other)]) == last, "what was committed is not read again"
        other.end()
