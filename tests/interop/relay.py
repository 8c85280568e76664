"""Brokers of two kinds that take turns on one data directory, each going on where the other ended."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from minikafka.base.files import RealFiles
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.log.tools.dump import dump_records
from minikafka.records.format.message_set import Codec
from minikafka.records.format.record import StoredRecord
from tests.interop.releases import Release
from tests.interop.topics import TOPICS, Topic, records_of, sets_of
from tests.support.kafka_broker import KafkaBroker, await_free_id
from tests.support.python_clients import confluent_kafka

PATIENCE_S = 30
CONFIG = {
    "log.segment.bytes": "8000",
    "log.index.interval.bytes": "512",
    "log.index.size.max.bytes": "10240",
    "log.retention.ms": "-1",
    "zookeeper.session.timeout.ms": "2000",
    "offsets.topic.num.partitions": "1",
}

OURS = "minikafka"
THEIRS = "kafka"


@dataclass(frozen=True, slots=True)
class Leg:
    """One turn: who runs, and whether it is stopped or killed."""

    runner: str
    end: str


@dataclass(frozen=True, slots=True)
class Row:
    """One record as a consumer gets it; -1 for no timestamp."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Rows = dict[Topic, list[Row]]


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a broker at the start of its turn, before any append."""

    wanted: Rows
    """What was acknowledged until then."""
    served: Rows
    served_from_the_middle: Rows
    bounds: dict[Topic, tuple[int, int]]
    found_by_time: dict[tuple[Topic, int], int]
    in_files: Rows
    said: list[str]
    """Warnings and errors in the broker's output."""


class Relay:
    """Turns on one data directory and one ZooKeeper, run when somebody asks what a turn saw, and once."""

    def __init__(self, release: Release, legs: list[Leg], directory: Path, zookeeper: str) -> None:
        release.libs()
        self.topics = [topic for topic in TOPICS if topic.magic in release.magics]
        self._legs = legs
        self._directory = directory
        self._zookeeper = zookeeper
        self.data = directory / "broker-0"
        self._kafka = KafkaBroker(release, directory / "kafka", zookeeper, data=self.data, config=CONFIG)
        self._rows: Rows = {topic: [] for topic in self.topics}
        self._seen: list[Seen | BaseException] = []

    def seen(self, number: int) -> Seen:
        """Return the state at the start of turn ``number``."""
        while len(self._seen) <= number:
            if self._seen and isinstance(self._seen[-1], BaseException):
                break
            try:
                self._seen.append(self._run(len(self._seen)))
            except Exception as error:  # noqa: BLE001 - it is raised to everyone who asks for this turn
                self._seen.append(error)
        found = self._seen[min(number, len(self._seen) - 1)]
        if isinstance(found, BaseException):
            raise AssertionError(f"turn {len(self._seen) - 1} failed: {found}") from found
        return found

    def _run(self, number: int) -> Seen:
        leg = self._legs[number]
        if leg.runner == THEIRS:
            return self._run_kafka(leg, number)
        return self._run_minikafka(leg, number)

    def _run_kafka(self, leg: Leg, number: int) -> Seen:
        kafka = self._kafka
        said_before = kafka.log.stat().st_size if kafka.log.exists() else 0
        try:
            kafka.start()
            if number == 0:
                self._create_topics(kafka.bootstrap)
            seen = self._look(kafka.bootstrap, leg)
            seen.said.extend(_warnings(kafka.log.read_bytes()[said_before:].decode()))
            self._append(kafka.bootstrap, number, [topic for topic in self.topics if topic.magic < 2])
            for topic in self.topics:
                if topic.magic == 2:
                    produce_with_librdkafka(kafka.bootstrap, topic, number)
                    self._note(topic, number)
            if leg.end == "stop":
                kafka.stop()
        finally:
            kafka.kill()
        return seen

    def _run_minikafka(self, leg: Leg, number: int) -> Seen:
        await_free_id(self._zookeeper)
        log = self._directory / "logs" / "broker-0.log"
        config = {**CONFIG, "log.layout": "apache"}
        if number == 0:
            with Cluster(data_dir=self._directory, zookeeper=self._zookeeper, config=config) as cluster:
                self._create_topics(cluster.bootstrap_servers)
        said_before = log.stat().st_size if log.exists() else 0
        with Cluster(data_dir=self._directory, zookeeper=self._zookeeper, config=config) as cluster:
            seen = self._look(cluster.bootstrap_servers, leg)
            seen.said.extend(_warnings(log.read_bytes()[said_before:].decode()))
            self._append(cluster.bootstrap_servers, number, self.topics)
            if leg.end == "kill":
                cluster.kill(0)
        return seen

    def _create_topics(self, bootstrap: str) -> None:
        with Client(bootstrap) as client:
            topics = [NewTopic(str(topic), 1, 1, configs=topic.config) for topic in self.topics]
            made = Admin(client).create_topics(topics)
            assert set(made.values()) == {None}, made

    def _append(self, bootstrap: str, number: int, topics: list[Topic]) -> None:
        with Client(bootstrap) as client, BatchingProducer(client) as producer:
            for topic in topics:
                partition = TopicPartition(str(topic), 0)
                sent = [
                    producer.send_encoded(partition, data, count) for data, count in sets_of(topic, number)
                ]
                first = len(self._rows[topic])
                assert sent[0].result().offset == first
                self._note(topic, number)
                assert sent[-1].result().offset + sent[-1].result().count == len(self._rows[topic])

    def _note(self, topic: Topic, number: int) -> None:
        rows = self._rows[topic]
        for record in records_of(topic, number):
            timestamp_ms = record.timestamp_ms if topic.magic else -1
            rows.append(Row(len(rows), timestamp_ms, record.key, record.value, record.headers))

    def _look(self, bootstrap: str, leg: Leg) -> Seen:
        wanted = {topic: list(rows) for topic, rows in self._rows.items()}
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
                "auto.offset.reset": "error",
            }
        )
        try:
            return Seen(
                wanted=wanted,
                served=read(consumer, dict.fromkeys(self.topics, 0)),
                served_from_the_middle=read(
                    consumer, {topic: middle(wanted[topic]) for topic in self.topics}
                ),
                bounds={topic: bounds(consumer, topic) for topic in self.topics},
                found_by_time=found_by_time(consumer, {topic: wanted[topic] for topic in self.topics}),
                in_files={topic: self._in_files(topic) for topic in self.topics},
                said=[],
            )
        finally:
            consumer.close()

    def _in_files(self, topic: Topic) -> list[Row]:
        found = []
        for path in sorted((self.data / f"{topic}-0").glob("*.log")):
            for record in dump_records(RealFiles(), str(path)):
                assert isinstance(record, StoredRecord), str(record)
                found.append(
                    Row(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
                )
        return found


def middle(rows: list[Row]) -> int:
    """An offset that lies inside of a set, and in the middle of a log."""
    return len(rows) * 3 // 5


def times_of(rows: list[Row]) -> list[int]:
    """Times to look for: the smallest and the largest, one above all, and some between."""
    times = sorted({row.timestamp_ms for row in rows if row.timestamp_ms >= 0}) or [0]
    return [times[0], times[len(times) // 3], times[len(times) // 2], times[-1], times[-1] + 1]


def found_by_time(consumer: confluent_kafka.Consumer, rows: Rows) -> dict[tuple[Topic, int], int]:
    """For each topic and time the offset that the broker finds, -1 for none. Magic 0 has no times."""
    found = {}
    rows = {topic: rows[topic] for topic in rows if topic.magic}
    for number in range(5):
        asked = {str(topic): (topic, times_of(rows[topic])[number]) for topic in rows}
        partitions = [confluent_kafka.TopicPartition(name, 0, at) for name, (_, at) in asked.items()]
        for answer in consumer.offsets_for_times(partitions, timeout=PATIENCE_S):
            assert answer.error is None, answer.error
            found[asked[answer.topic]] = answer.offset
    return found


def bounds(consumer: confluent_kafka.Consumer, topic: Topic) -> tuple[int, int]:
    """The start offset and the end offset that the broker tells."""
    low, high = consumer.get_watermark_offsets(
        confluent_kafka.TopicPartition(str(topic), 0), timeout=PATIENCE_S
    )
    return low, high


def read(consumer: confluent_kafka.Consumer, starts: dict[Topic, int]) -> Rows:
    """All records of the topics from the given offsets to the end."""
    names = {str(topic): topic for topic in starts}
    consumer.assign([confluent_kafka.TopicPartition(str(topic), 0, at) for topic, at in starts.items()])
    rows: Rows = {topic: [] for topic in starts}
    unfinished = set(names)
    deadline = time.monotonic() + PATIENCE_S
    while unfinished:
        assert time.monotonic() < deadline, f"nothing ends {sorted(unfinished)}"
        for message in consumer.consume(1000, 1.0):
            error = message.error()
            if error is None:
                rows[names[message.topic()]].append(_row(message))
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, (
                    f"{message.topic()}: {error}"
                )
                unfinished.discard(message.topic())
    consumer.unassign()
    return rows


def _row(message: confluent_kafka.Message) -> Row:
    kind, at = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    timestamp_ms = -1 if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else at
    return Row(message.offset(), timestamp_ms, message.key(), message.value(), headers)


def produce_with_librdkafka(bootstrap: str, topic: Topic, number: int) -> None:
    """Send a leg's records to partition 0, in batches of a few."""
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": topic.codec is Codec.LZ4,
            "compression.type": topic.codec.name.lower(),
            "batch.num.messages": 7,
            "linger.ms": 5,
        }
    )
    for record in records_of(topic, number):
        producer.produce(
            str(topic),
            value=record.value,
            key=record.key,
            partition=0,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def _warnings(output: str) -> list[str]:
    return [line for line in output.splitlines() if re.search(r"\b(WARN|WARNING|ERROR|FATAL)\b", line)]
