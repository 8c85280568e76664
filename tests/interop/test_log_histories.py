"""Logs with a past: what Kafka compacted, cut at the start, or wrote in transactions, in our hands and back.

For each release one history, run once: Kafka writes and is stopped, ours goes on and is stopped, and Kafka
starts again.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from minikafka.base.files import RealFiles
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.log.tools.dump import dump_records
from minikafka.records.format.record import StoredRecord
from tests.interop.relay import CONFIG, PATIENCE_S
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, RELEASES, Release
from tests.support.kafka_broker import KafkaBroker, await_free_id
from tests.support.python_clients import confluent_kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

COMPACTED, CUT, REBORN, TRANSACTIONS = "compacted", "cut", "reborn", "transactions"
START = 37
"""Where the logs that are cut at the start begin: inside of a batch, and of the first segment."""
KEYS = 11
DELETED_BY_US = "gone-0.0-delete"
DELETED_BY_KAFKA = "gone-1.4b825dc642cb6eb9a060e54bf8d69288-delete"
BEING_MOVED = f"{CUT}-0.4b825dc642cb6eb9a060e54bf8d69288-future"

NOT_LED_YET = {
    confluent_kafka.KafkaError._UNKNOWN_PARTITION,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
}

Row = tuple[int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Look:
    """The messages and offsets that a broker serves."""

    rows: dict[str, list[Row]]
    bounds: dict[str, tuple[int, int]]


class History:
    """Kafka, ours, and Kafka again, on one directory."""

    def __init__(self, release: Release, directory: Path, zookeeper: str) -> None:
        release.libs()
        self.topics = [COMPACTED, CUT, REBORN, TRANSACTIONS] if release is KAFKA_3_9 else [COMPACTED]
        self.data = directory / "broker-0"
        self._release = release
        self._directory = directory
        self._zookeeper = zookeeper
        config = {**CONFIG, "log.cleaner.backoff.ms": 200, "log.segment.delete.delay.ms": 200}
        self._kafka = KafkaBroker(release, directory / "kafka", zookeeper, data=self.data, config=config)
        try:
            self.written = self._begin()
            self.names_left: set[str] = set()
            self.in_ours = self._go_on()
            self.in_kafka_again, self.known_again, self.committed = self._end()
        finally:
            self._kafka.kill()

    def _begin(self) -> Look:
        self._kafka.start()
        bootstrap = self._kafka.bootstrap
        compact = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
        with Client(bootstrap) as client:
            settings = {topic: compact if topic == COMPACTED else {} for topic in self.topics}
            topics = [NewTopic(topic, 1, 1, configs=config) for topic, config in settings.items()]
            assert set(Admin(client).create_topics(topics).values()) == {None}
        produce(bootstrap, COMPACTED, [(b"k%d" % (n % KEYS), b"v%d" % n) for n in range(400)])
        if CUT in self.topics:
            for topic in (CUT, REBORN):
                produce(bootstrap, topic, [(None, b"v%d" % n) for n in range(60)])
            transact(bootstrap)
            delete_records(bootstrap, (CUT, REBORN), START)
        # The newest segment is never compacted.
        assert wait_until(lambda: len(look(bootstrap, [COMPACTED]).rows[COMPACTED]) < 150, PATIENCE_S, 0.2)
        written = look(bootstrap, self.topics)
        self._kafka.stop()
        return written

    def _go_on(self) -> Look:
        for name in (DELETED_BY_KAFKA, BEING_MOVED):
            shutil.copytree(self.data / f"{COMPACTED}-0", self.data / name)
        await_free_id(self._zookeeper)
        config = {**CONFIG, "log.layout": "apache"}
        with Cluster(data_dir=self._directory, zookeeper=self._zookeeper, config=config) as cluster:
            bootstrap = cluster.bootstrap_servers
            seen = look(bootstrap, self.topics)
            self.committed_in_ours = committed_of(bootstrap) if TRANSACTIONS in self.topics else []
            produce(bootstrap, COMPACTED, [(b"k0", b"ours")])
            if CUT in self.topics:
                produce(bootstrap, CUT, [(None, b"ours")])
                cluster.delete_topic(REBORN)
                cluster.create_topic(REBORN)
                produce(bootstrap, REBORN, [(None, b"n%d" % n) for n in range(10)])
                produce(bootstrap, TRANSACTIONS, [(None, b"ours")])
        self.names_left = {path.name for path in self.data.iterdir()}
        for name in self.copies_left:
            shutil.rmtree(self.data / name)
        return seen

    @property
    def copies_left(self) -> list[str]:
        """The directories that our broker has left of the log that was being moved."""
        return [name for name in self.names_left if name.startswith(f"{CUT}-0.")]

    def _end(self) -> tuple[Look, set[str], list[bytes | None]]:
        if self._release is KAFKA_3_9:
            # 0.10.1.1 deletes in place, and does not start where such a directory lies.
            shutil.copytree(self.data / f"{COMPACTED}-0", self.data / DELETED_BY_US)
        self._kafka.start()
        bootstrap = self._kafka.bootstrap
        seen = look(bootstrap, self.topics)
        committed = committed_of(bootstrap) if TRANSACTIONS in self.topics else []
        with Client(bootstrap) as client:
            known = set(Admin(client).list_topics())
        self._kafka.stop()
        return seen, known, committed

    def in_files(self, topic: str) -> list[StoredRecord]:
        """The records that lie in the topic's files, control records too."""
        records = []
        for path in sorted((self.data / f"{topic}-0").glob("*.log")):
            for record in dump_records(RealFiles(), str(path)):
                assert isinstance(record, StoredRecord), str(record)
                records.append(record)
        return records


@pytest.fixture(scope="module")
def history_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Release], History]]:
    """The history of a release, begun when the first test asks; a failure of it is every test's."""
    directory = tmp_path_factory.mktemp("histories")
    with EmbeddedZooKeeper(str(directory)) as zookeeper:

        @cache
        def lived(release: Release) -> History | Exception:
            try:
                return History(release, directory / str(release), f"{zookeeper.connect}/{release}")
            except Exception as error:  # noqa: BLE001 - it is raised to everyone who asks
                return error

        def of(release: Release) -> History:
            found = lived(release)
            if isinstance(found, Exception):
                raise AssertionError(f"the history of {release} broke off: {found}") from found
            return found

        yield of


@pytest.fixture
def history(history_of: Callable[[Release], History], release: Release) -> History:
    release.libs()
    return history_of(release)


with_every_release = pytest.mark.parametrize("release", RELEASES, ids=str)
with_3_9 = pytest.mark.parametrize("release", [KAFKA_3_9], ids=str)


def newest_by_key(rows: list[Row]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in rows}


@with_every_release
def test_what_kafka_compacted_is_served_with_its_holes(history: History, release: Release) -> None:
    served = history.in_ours.rows[COMPACTED]
    # Its last run may have come after the look at what it had.
    assert set(served) <= set(history.written.rows[COMPACTED])
    assert newest_by_key(served) == {b"k%d" % (n % KEYS): b"v%d" % n for n in range(400 - KEYS, 400)}
    assert history.in_ours.bounds[COMPACTED][1] == 400
    assert len(served) < 150


@with_every_release
def test_kafka_goes_on_with_the_compacted_log_that_we_wrote_to(history: History, release: Release) -> None:
    again = history.in_kafka_again
    assert again.bounds[COMPACTED][1] == 401
    assert again.rows[COMPACTED][-1] == (400, b"k0", b"ours")
    wanted = newest_by_key(history.in_ours.rows[COMPACTED]) | {b"k0": b"ours"}
    assert newest_by_key(again.rows[COMPACTED]) == wanted


@with_every_release
def test_a_deletion_that_kafka_broke_off_is_ended(history: History, release: Release) -> None:
    assert DELETED_BY_KAFKA not in history.names_left


@with_3_9
def test_a_deletion_that_we_broke_off_does_not_come_back(history: History, release: Release) -> None:
    # Kafka removes the directory half a minute after its start.
    assert (history.data / DELETED_BY_US).exists()
    assert set(history.topics) <= history.known_again
    assert "gone" not in history.known_again


@with_3_9
def test_copy_of_a_move_is_removed_beside_its_log(history: History, release: Release) -> None:
    assert history.copies_left == []


@pytest.mark.parametrize("release", [KAFKA_0_10], ids=str)
def test_copy_of_a_move_without_a_log_is_set_aside(history: History, release: Release) -> None:
    assert [name.endswith("-stray") for name in history.copies_left] == [True]


@with_3_9
def test_what_was_deleted_from_the_start_of_a_log_is_not_served(history: History, release: Release) -> None:
    assert history.written.bounds[CUT] == (START, 60)
    assert history.in_ours.bounds[CUT] == (START, 60)
    assert history.in_ours.rows[CUT] == [(n, None, b"v%d" % n) for n in range(START, 60)]
    assert history.in_kafka_again.bounds[CUT] == (START, 61)
    assert history.in_kafka_again.rows[CUT][0][0] == START


@with_3_9
def test_recreated_topic_does_not_start_at_old_offsets(history: History, release: Release) -> None:
    assert history.in_kafka_again.bounds[REBORN] == (0, 10)
    assert history.in_kafka_again.rows[REBORN] == [(n, None, b"n%d" % n) for n in range(10)]


@with_3_9
def test_transactions_are_whole_after_we_wrote_behind_them(history: History, release: Release) -> None:
    stored = history.in_files(TRANSACTIONS)
    assert [record.control for record in stored].count(True) == 3
    values = [record.value for record in stored if not record.control]
    assert values == [b"a0", b"a1", b"b0", b"b1", b"c0", b"c1", b"ours"]
    assert history.committed_in_ours == [b"a0", b"a1", b"c0", b"c1"]
    assert history.committed == [b"a0", b"a1", b"c0", b"c1", b"ours"]
    assert [value for _, _, value in history.in_kafka_again.rows[TRANSACTIONS]] == values


def produce(bootstrap: str, topic: str, pairs: list[tuple[bytes | None, bytes]]) -> None:
    """Send keys and values to partition 0, in batches of a few."""
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "batch.num.messages": 8, "max.in.flight": 1}
    )
    for key, value in pairs:
        producer.produce(
            topic,
            key=key,
            value=value,
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def transact(bootstrap: str) -> None:
    """One transaction that is committed, one that is not, and one more that is."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    for name in ("a", "b", "c"):
        producer.begin_transaction()
        for number in range(2):
            producer.produce(TRANSACTIONS, f"{name}{number}".encode(), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        if name == "b":
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


def delete_records(bootstrap: str, topics: tuple[str, ...], offset: int) -> None:
    """Have everything below ``offset`` deleted."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, offset) for topic in topics])
    for result in asked.values():
        assert result.result(PATIENCE_S).low_watermark == offset


def committed_of(bootstrap: str) -> list[bytes | None]:
    """Return the messages of a consumer that reads only committed ones."""
    found = look(bootstrap, [TRANSACTIONS], isolation="read_committed")
    return [value for _, _, value in found.rows[TRANSACTIONS]]


def look(bootstrap: str, topics: list[str], isolation: str = "read_uncommitted") -> Look:
    """Every record of the topics, from where each begins."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"unused-{random.random()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
        }
    )
    try:
        partitions = [confluent_kafka.TopicPartition(topic, 0) for topic in topics]
        bounds = {partition.topic: bounds_of(consumer, partition) for partition in partitions}
        for partition in partitions:
            partition.offset = bounds[partition.topic][0]
        consumer.assign(partitions)
        rows: dict[str, list[Row]] = {topic: [] for topic in topics}
        unfinished, deadline = set(topics), time.monotonic() + PATIENCE_S
        while unfinished:
            assert time.monotonic() < deadline, f"nothing ends {sorted(unfinished)}"
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    rows[message.topic()].append((message.offset(), message.key(), message.value()))
                else:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    unfinished.discard(message.topic())
        return Look(rows, bounds)
    finally:
        consumer.close()


def bounds_of(
    consumer: confluent_kafka.Consumer, partition: confluent_kafka.TopicPartition
) -> tuple[int, int]:
    """The start offset and the end offset, once the broker leads: not at once after its start."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in NOT_LED_YET or time.monotonic() > deadline:
                raise
        else:
            return low, high
