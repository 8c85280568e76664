"""A data directory with committed, aborted and open transactions, of data and of group offsets, that goes
from a broker of Kafka 3.9.1 to ours and back, and the reverse: the next broker serves the same, and ends what
is open.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from minikafka import TransactionalProducer
from minikafka.base.errors import ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.transactions import TransactionAdmin, TransactionListing
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.wire.apis.end_txn import END_TXN, EndTxnRequest
from minikafka.wire.apis.fetch import FETCH, FetchPartitionResponse, consumer_partition, consumer_request
from minikafka.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestTopic
from tests.interop.releases import KAFKA_3_9
from tests.interop.test_transactions_against_kafka import read
from tests.support.kafka_broker import KafkaBroker, await_free_id
from tests.support.python_clients import confluent_kafka
from tests.support.transactional_clusters import KAFKA, OURS, QUICK

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TP = TopicPartition("t", 0)
PARTITIONS = 4
"""Of the topic whose offsets are committed."""
GROUP = "g"
PATIENCE_S = 60.0
COMMITTED = IsolationLevel.READ_COMMITTED
CONFIG = {
    **QUICK,
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "zookeeper.session.timeout.ms": "2000",
}
KEPT, DROPPED = "kept", "dropped"
"""The producers whose transactions stay open: one commits later, the other is replaced."""
QUIET = {"log_level": 0, "reconnect.backoff.ms": 60_000, "reconnect.backoff.max.ms": 60_000}
"""Settings of producers that outlive their broker."""

Described = tuple[object, ...]


@dataclass(frozen=True)
class Look:
    """The transactions and records that a broker serves.

    aborted: offset -> the aborted transactions in the response to a fetch from there
    transactions: id -> the description of its transaction
    unstable: the partitions with offsets of an open transaction
    """

    rows: list[tuple[int, bytes]]
    last_stable_offset: int
    high_watermark: int
    aborted: dict[int, list[tuple[int, int]]]
    transactions: dict[str, Described]
    offsets: dict[int, int]
    unstable: set[int]


@dataclass(frozen=True)
class Story:
    """The looks: at the first broker, at the next one before and after it has ended all transactions, and at
    the first one again.
    """

    written: Look
    taken_over: Look
    ended: Look
    taken_back: Look


class Directory:
    """A data directory, and the broker that serves it."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        data = directory / "broker-0"
        self._kafka = KafkaBroker(KAFKA_3_9, directory / "kafka", zookeeper, data=data, config=CONFIG)

    @contextlib.contextmanager
    def served(self, kind: str, end: str = "stop") -> Iterator[str]:
        """The address of a broker, which is stopped or killed at the end."""
        if kind == KAFKA:
            self._kafka.start()
            try:
                yield self._kafka.bootstrap
                if end == "stop":
                    self._kafka.stop()
            finally:
                self._kafka.kill()
            return
        await_free_id(self._zookeeper)
        config = {**CONFIG, "log.layout": "apache"}
        with Cluster(data_dir=self._directory, zookeeper=self._zookeeper, config=config) as cluster:
            yield cluster.bootstrap_servers
            if end == "kill":
                cluster.kill(0)


class Writer:
    """A transactional producer of librdkafka. Each transaction writes one value and commits one offset."""

    def __init__(self, bootstrap: str, name: str) -> None:
        settings = {"transactional.id": name, "transaction.timeout.ms": 800_000}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **QUIET, **settings})
        self._producer.init_transactions(PATIENCE_S)
        group = {"group.id": GROUP, "enable.auto.commit": False}
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **QUIET, **group})

    def begin(self, value: bytes, offset: tuple[int, int]) -> None:
        """Write in a new transaction. ``offset``: the partition and the offset."""
        self._producer.begin_transaction()
        self._producer.produce(TP.topic, value, partition=0)
        rows = [confluent_kafka.TopicPartition("offsets", *offset)]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(rows, metadata, PATIENCE_S)
        assert self._producer.flush(PATIENCE_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)


def write(bootstrap: str) -> list[Writer]:
    """Write transactions over several segments. Return the writers of those that are open."""
    with ClusterClient(bootstrap) as cluster:
        topics = [NewTopic(TP.topic, 1, 1, configs={"segment.bytes": "600"}), NewTopic("offsets", PARTITIONS)]
        assert set(Admin(cluster).create_topics(topics).values()) == {None}
    committing, aborting = Writer(bootstrap, "committing"), Writer(bootstrap, "aborting")
    for number in range(8):
        committing.begin(b"committed-%d" % number, (0, number))
        aborting.begin(b"aborted-%d" % number, (1, 90 + number))
        for end in (committing.commit, aborting.abort)[:: 1 if number % 2 else -1]:
            end()
    open_ones = [Writer(bootstrap, KEPT), Writer(bootstrap, DROPPED)]
    for partition, (writer, name) in enumerate(zip(open_ones, (b"kept", b"dropped"), strict=True), 2):
        writer.begin(name, (partition, 70 + partition))
    committing.begin(b"behind", (0, 50))
    committing.commit()
    aborting.begin(b"aborted behind", (1, 99))
    aborting.abort()
    return open_ones


def end_open_transactions(bootstrap: str, kept: Described) -> None:
    """Commit one open transaction with its producer's id and epoch; abort the other for a new producer."""
    _, producer_id, epoch, *_ = kept
    assert isinstance(producer_id, int)
    assert isinstance(epoch, int)
    with ClusterClient(bootstrap) as cluster:
        request = EndTxnRequest(KEPT, producer_id, epoch, committed=True)

        def has_ended() -> bool:
            code = cluster.call(None, END_TXN, request).error_code
            assert code in {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}, ErrorCode.of(code)
            return code == ErrorCode.NONE

        assert wait_until(has_ended, PATIENCE_S)
        for name in (DROPPED, KEPT, "committing"):
            with TransactionalProducer(cluster, {"transactional.id": name}) as producer:
                producer.init_transactions()
                with producer.transaction():
                    producer.send(TP.topic, b"new of " + name.encode(), partition=0)


def look(bootstrap: str, open_count: int) -> Look:
    """Look at what a broker serves once ``open_count`` transactions are open."""
    with ClusterClient(bootstrap) as cluster:
        cluster.leader(TP)
        admin = TransactionAdmin(cluster)

        def settled() -> bool:
            try:
                found = fetched(cluster, 0)
                states = [row.state for row in admin.list_transactions()]
                group_offsets(cluster, require_stable=True)
            except MinikafkaError:
                return False
            return (
                states.count("Ongoing") == open_count
                and not any(state.startswith("Prepare") for state in states)
                and (open_count > 0 or found.last_stable_offset == found.high_watermark)
            )

        assert wait_until(settled, PATIENCE_S)
        bounds = fetched(cluster, 0)
        end = bounds.last_stable_offset
        stable, unstable = group_offsets(cluster, require_stable=True)
        offsets, never = group_offsets(cluster, require_stable=False)
        assert never == set()
        assert stable.items() <= offsets.items()
        return Look(
            read(cluster, TP, 0, end, COMMITTED, 1 << 20),
            end,
            bounds.high_watermark,
            {
                offset: sorted(
                    (row.producer_id, row.first_offset)
                    for row in fetched(cluster, offset).aborted_transactions or ()
                )
                for offset in range(end)
            },
            {row.transactional_id: described(admin, row) for row in admin.list_transactions()},
            offsets,
            unstable,
        )


def described(admin: TransactionAdmin, listed: TransactionListing) -> Described:
    found = admin.describe(listed.transactional_id)
    ids = (found.producer_id, found.producer_epoch)
    return found.state, *ids, found.timeout_ms, found.start_time_ms, sorted(found.partitions)


def fetched(cluster: ClusterClient, offset: int) -> FetchPartitionResponse:
    """The response to a fetch with read_committed."""
    request = consumer_request(
        {TP: consumer_partition(0, offset, 1 << 20)}, max_bytes=1 << 20, isolation_level=int(COMMITTED)
    )
    part = cluster.send(0, FETCH, request, newest=11).result(10_000).topics[0].partitions[0]
    assert part.error_code == 0
    return part


def group_offsets(cluster: ClusterClient, *, require_stable: bool) -> tuple[dict[int, int], set[int]]:
    """The committed offsets, and the partitions that are not stable."""
    topic = OffsetFetchRequestTopic("offsets", tuple(range(PARTITIONS)))
    request = OffsetFetchRequest(GROUP, (topic,), require_stable=require_stable)
    response = cluster.send(0, OFFSET_FETCH, request, newest=7).result(10_000)
    if response.error_code:
        raise MinikafkaError(ErrorCode.of(response.error_code).name)
    offsets, unstable = {}, set()
    for row in response.topics[0].partitions:
        if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            unstable.add(row.partition_index)
        else:
            assert row.error_code == 0
            offsets[row.partition_index] = row.committed_offset
    return offsets, unstable


def told(directory: Path, first: str, second: str, end: str) -> Story:
    with EmbeddedZooKeeper(str(directory / "zookeeper")) as zookeeper:
        data = Directory(directory, f"{zookeeper.connect}/kafka")
        with data.served(first, end) as bootstrap:
            still_open = write(bootstrap)
            written = look(bootstrap, 2)
        with data.served(second, end) as bootstrap:
            taken_over = look(bootstrap, 2)
            end_open_transactions(bootstrap, written.transactions[KEPT])
            ended = look(bootstrap, 0)
        with data.served(first) as bootstrap:
            taken_back = look(bootstrap, 0)
        del still_open
    return Story(written, taken_over, ended, taken_back)


@pytest.fixture(scope="module")
def story_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Story]:
    KAFKA_3_9.libs()

    @functools.cache
    def story(first: str, second: str, end: str) -> Story:
        return told(tmp_path_factory.mktemp("directory"), first, second, end)

    return story


@pytest.fixture(
    params=[
        (KAFKA, OURS, "kill"),
        (OURS, KAFKA, "stop"),
        pytest.param((KAFKA, OURS, "stop"), marks=pytest.mark.long),
        pytest.param((OURS, KAFKA, "kill"), marks=pytest.mark.long),
    ],
    ids=lambda param: " to ".join(param[:2]) + f", {param[2]}",
)
def story(request: pytest.FixtureRequest, story_of: Callable[[str, str, str], Story]) -> Story:
    return story_of(*request.param)


def test_next_broker_serves_the_same_transactions(story: Story) -> None:
    assert story.taken_over == story.written
    assert [value for _, value in story.written.rows] == [b"committed-%d" % number for number in range(8)]
    assert story.written.last_stable_offset < story.written.high_watermark
    assert any(story.written.aborted.values())
    assert (story.written.offsets[0], story.written.unstable) == (50, {2, 3})
    assert {name: row[0] for name, row in story.written.transactions.items()} == {
        "committing": "CompleteCommit",
        "aborting": "CompleteAbort",
        KEPT: "Ongoing",
        DROPPED: "Ongoing",
    }


def test_open_transactions_end_at_the_next_broker(story: Story) -> None:
    values = [value for _, value in story.ended.rows]
    assert values[8:] == [b"kept", b"behind", b"new of dropped", b"new of kept", b"new of committing"]
    assert story.ended.offsets == {0: 50, 1: -1, 2: 72, 3: -1}
    assert story.ended.unstable == set()
    assert story.ended.last_stable_offset == story.ended.high_watermark


def test_first_broker_takes_the_directory_back(story: Story) -> None:
    assert story.taken_back == story.ended
