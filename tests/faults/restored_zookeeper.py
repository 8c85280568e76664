"""A cluster of real processes whose ZooKeeper is restored from an older copy of its directory, and producers
that number their batches. What happens when is decided by a seed.

One life: records are produced, ZooKeeper's data is copied, more is produced while brokers are bounced, the
copy is put back (under the running brokers, or while all are away), and new producers go on.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minikafka.base.errors import MinikafkaError
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer, SendFuture
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from tests.interop.driver import Program
from tests.support.python_clients import confluent_kafka

TOPIC = "t"
PARTITIONS = 2
RECORDS = 12
"""The number of records of one producer."""
PATIENCE_S = 90.0
AWAY_S = 10.0
"""The limit of time that a broker is down while producers use the others."""
Outcomes = Iterator[tuple[bytes, str | None]]
"""Each value with None, or the reason why it was not acknowledged."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A client library. ``send`` takes addresses, values, and how many to send at once, by a new producer."""

    name: str
    send: Callable[[str, list[bytes], int], Outcomes]


CONFIG = {
    "zookeeper.session.timeout.ms": "2000",
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "1",
}


@dataclass
class Life:
    """The result of one life: its events and its records."""

    seed: int
    brokers: int
    senders: Sequence[Sender]
    steps: list[str] = field(default_factory=list)
    acknowledged: list[bytes] = field(default_factory=list)
    by_sender: Counter[str] = field(default_factory=Counter)
    """Acknowledged, by the client library."""
    refused: list[str] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)

    @property
    def lost(self) -> list[bytes]:
        """Acknowledged records that are lost."""
        return sorted(set(self.acknowledged) - set(self.read))

    @property
    def twice(self) -> list[bytes]:
        """Duplicated records."""
        return sorted({record for record in self.read if self.read.count(record) > 1})

    def __str__(self) -> str:
        senders = ", ".join(f"{count} {name}" for name, count in sorted(self.by_sender.items()))
        return (
            f"seed {self.seed}, {self.brokers} brokers: {len(self.acknowledged)} acknowledged ({senders}), "
            f"{len(self.lost)} lost, {len(self.twice)} twice, {len(self.refused)} refused; "
            f"{', '.join(self.steps)}"
        )


class _Cluster:
    """ZooKeeper and brokers of one directory, which are stopped and started separately."""

    def __init__(self, directory: Path, brokers: int) -> None:
        self._directory = directory
        self._brokers = brokers
        self._copy = directory / "copy"
        self._data = directory / "zk" / "zookeeper" / "data"
        self.zookeeper = EmbeddedZooKeeper(str(directory / "zk"))
        self.running: Cluster | None = None

    def start(self) -> None:
        self.running = Cluster(
            self._brokers, self._directory / "data", CONFIG, zookeeper=self.zookeeper.start()
        ).start()

    def stop(self, chance: random.Random) -> None:
        assert self.running is not None
        if chance.random() < 0.4:
            for number in chance.sample(range(self._brokers), self._brokers):
                self.running.kill(number)
        self.running.close()
        self.running = None

    def copy(self) -> None:
        shutil.copytree(self._data, self._copy)

    def put_back(self) -> None:
        self.zookeeper.stop()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)

    def close(self) -> None:
        if self.running is not None:
            self.running.close()
        self.zookeeper.stop()


def live(directory: Path, seed: int, brokers: int, senders: Sequence[Sender]) -> Life:
    """Run one life. ``seed`` also chooses one of ``senders``."""
    chance, life = random.Random(seed), Life(seed, brokers, senders)
    cluster = _Cluster(directory, brokers)
    with contextlib.closing(cluster):
        cluster.start()
        assert cluster.running is not None
        settings = {"min.insync.replicas": str(min(2, brokers))}
        cluster.running.create_topic(TOPIC, PARTITIONS, replicas=brokers, config=settings)
        _produce(life, cluster.running, chance, "before", chance.randrange(3))
        if chance.random() < 0.3:
            life.steps.append("restarted")
            cluster.stop(chance)
            cluster.start()
        life.steps.append("copied")
        cluster.copy()
        for number in range(chance.randrange(1, 4)):
            assert cluster.running is not None
            _produce(life, cluster.running, chance, f"after-{number}", chance.randrange(1, 4))
            if chance.random() < 0.5:
                _bounce(life, cluster.running, chance)
        running = chance.random() < 0.5
        life.steps.append("put back under running brokers" if running else "put back while all were away")
        if running:
            cluster.put_back()
            cluster.zookeeper.start()
        else:
            cluster.stop(chance)
            cluster.put_back()
            cluster.start()
        for number in range(2):
            assert cluster.running is not None
            _produce(life, cluster.running, chance, f"anew-{number}", chance.randrange(3, 6))
            if number == 0 and chance.random() < 0.3:
                _bounce(life, cluster.running, chance)
        assert cluster.running is not None
        life.read += _all_values(cluster.running)
    return life


def _bounce(life: Life, cluster: Cluster, chance: random.Random) -> None:
    number = chance.randrange(life.brokers)
    life.steps.append(f"bounced {number}")
    cluster.kill(number)
    if life.brokers > 1 and chance.random() < 0.5:
        with ThreadPoolExecutor(1) as others:
            name = f"without-{number}-{len(life.steps)}"
            produced = others.submit(_produce, life, cluster, chance, name, 1)
            # The restored broker may be the only one in the ISR: then the others wait for it.
            wait([produced], AWAY_S)
            cluster.restart(number)
            produced.result()
    else:
        cluster.restart(number)


def _produce(life: Life, cluster: Cluster, chance: random.Random, name: str, producers: int) -> None:
    """Send with new producers, each with an id of its own. Unacknowledged records are recorded."""
    for number in range(producers):
        values = [f"{name}-{number}-{index}".encode() for index in range(RECORDS)]
        sender = chance.choice(life.senders)
        for value, error in sender.send(cluster.bootstrap_servers, values, chance.choice([1, 4])):
            if error is None:
                life.acknowledged.append(value)
                life.by_sender[sender.name] += 1
            else:
                life.refused.append(f"{value.decode()} by {sender.name}: {error}")


def java_sender(name: str, command: Sequence[str], environment: Mapping[str, str]) -> tuple[Sender, Program]:
    """Start ``java/NewProducers``, whose command ends with its class; the program is to be closed."""
    program = Program([*command, TOPIC, str(PARTITIONS), str(int(PATIENCE_S * 1000))], environment)

    def send(bootstrap: str, values: list[bytes], at_once: int) -> Outcomes:
        texts = [value.decode() for value in values]
        for value, *outcome in program.ask("send", bootstrap, at_once, *texts, patience_s=3 * PATIENCE_S):
            yield value.encode(), None if outcome == ["ok"] else " ".join(outcome)

    return Sender(name, send), program


def _send_by_librdkafka(bootstrap: str, values: list[bytes], at_once: int) -> Outcomes:
    came: list[tuple[bytes, str | None]] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": int(PATIENCE_S * 1000),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    for number, value in enumerate(values):
        producer.produce(
            TOPIC,
            value,
            partition=number % PARTITIONS,
            callback=lambda error, message: came.append(
                (message.value() or b"", None if error is None else str(error))
            ),
        )
        if number % at_once == 0:
            producer.flush(PATIENCE_S)
    producer.flush(PATIENCE_S)
    assert len(came) == len(values), "librdkafka gave up nothing and delivered nothing"
    yield from came


def _send_by_ours(bootstrap: str, values: list[bytes], at_once: int) -> Outcomes:
    config = BatchingConfig(idempotence=True, delivery_timeout_ms=int(PATIENCE_S * 1000), retries=10_000)
    sent: list[tuple[bytes, SendFuture]] = []
    with Client(bootstrap) as client:
        producer = BatchingProducer(client, config)
        for number, value in enumerate(values):
            sent.append((value, producer.send(TOPIC, value, partition=number % PARTITIONS)))
            if number % at_once == 0:
                with contextlib.suppress(MinikafkaError):
                    sent[-1][1].result(int(PATIENCE_S * 1000))
        with contextlib.suppress(MinikafkaError):
            producer.close(int(PATIENCE_S * 1000))
    for value, delivery in sent:
        error = delivery.error if delivery.done else "no answer"
        yield value, None if error is None else str(error)


SENDERS = (Sender("librdkafka", _send_by_librdkafka), Sender("minikafka", _send_by_ours))
"""The client libraries that pip can install."""


def _all_values(cluster: Cluster) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    ended: set[int] = set()
    with contextlib.closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "nothing is read"
            error: Any = message.error()
            if error is None:
                found.append(message.value() or b"")
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
    return found
