"""Our clients read what others' transactions wrote to a real Kafka 3.9.1: committed, aborted and open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from minikafka.base.errors import NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher, prefetched
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.process import wait_until
from minikafka.records.columns import decode
from tests.interop.releases import KAFKA_3_9
from tests.support.kafka_broker import KafkaBroker, running
from tests.support.python_clients import confluent_kafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PATIENCE_S = 30.0
COMMITTED = IsolationLevel.READ_COMMITTED
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with running(KAFKA_3_9, tmp_path_factory.mktemp("transactions")) as broker:
        yield broker


@pytest.fixture
def cluster(kafka: KafkaBroker) -> Iterator[ClusterClient]:
    with ClusterClient(kafka.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def tp(cluster: ClusterClient) -> TopicPartition:
    name = f"transactions-{next(_NUMBERS)}"
    Admin(cluster).create_topic(NewTopic(name, partitions=1))
    return TopicPartition(name, 0)


class Writer:
    """librdkafka's producer with transactions, in small batches."""

    def __init__(self, kafka: KafkaBroker, tp: TopicPartition) -> None:
        self._topic = tp.topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "transactional.id": f"writer-{next(_NUMBERS)}",
                "batch.num.messages": 10,
                "compression.type": "lz4",
            }
        )
        self._producer.init_transactions(PATIENCE_S)

    def begin(self, *values: bytes) -> None:
        self._producer.begin_transaction()
        self.write(*values)

    def write(self, *values: bytes) -> None:
        for value in values:
            self._producer.produce(self._topic, value, partition=0)
        assert self._producer.flush(PATIENCE_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)


def latest(cluster: ClusterClient, tp: TopicPartition, isolation: IsolationLevel) -> int:
    end = Admin(cluster).offsets({tp: LATEST}, isolation=isolation)[tp]
    assert end is not None
    return end


def settled(cluster: ClusterClient, tp: TopicPartition) -> int:
    """The log's end, once all transactions have ended: who ends one is answered before its mark is there."""
    everything = IsolationLevel.READ_UNCOMMITTED
    assert wait_until(lambda: latest(cluster, tp, COMMITTED) == latest(cluster, tp, everything), PATIENCE_S)
    return latest(cluster, tp, COMMITTED)


def read(
    cluster: ClusterClient,
    tp: TopicPartition,
    start: int,
    end: int,
    isolation: IsolationLevel,
    max_bytes: int,
) -> list[tuple[int, bytes]]:
    sets = RangeFetcher(cluster, tp, start, end, isolation=isolation, max_bytes=max_bytes, timeout_ms=20_000)
    found: list[tuple[int, bytes]] = []
    for data in prefetched(sets, 2):
        columns = decode(data, start, end)
        found += zip(columns.offsets.tolist(), columns.value_array().to_pylist(), strict=True)
    return found


def as_librdkafka_reads(kafka: KafkaBroker, tp: TopicPartition, start: int) -> list[tuple[int, bytes]]:
    """To the end, committed only."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(tp.topic, 0, start)])
    found = []
    try:
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append((message.offset(), message.value()))
        assert message is not None, "the consumer did not come to the end"
        assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
    finally:
        consumer.close()
    return found


def interleaved(kafka: KafkaBroker, tp: TopicPartition, rounds: int) -> list[bytes]:
    """Two producers' transactions, one inside of the other, every third aborted; what was committed."""
    writers = [Writer(kafka, tp), Writer(kafka, tp)]
    committed: list[bytes] = []
    for number in range(rounds):
        outer, inner = writers[number % 2], writers[1 - number % 2]
        texts = [[b"%d-%s-%d" % (number, name, n) for n in range(25)] for name in (b"out", b"in", b"end")]
        outer.begin(*texts[0])
        inner.begin(*texts[1])
        outer.write(*texts[2])
        if number % 3 == 1:
            inner.abort()
        else:
            inner.commit()
            committed += texts[1]
        if number % 3 == 2:
            outer.abort()
        else:
            outer.commit()
            committed += texts[0] + texts[2]
    return committed


@pytest.mark.parametrize("max_bytes", [300, 2_000, 1 << 20])
def test_a_range_gives_what_was_committed_and_what_librdkafka_gives(
    kafka: KafkaBroker, cluster: ClusterClient, tp: TopicPartition, max_bytes: int
) -> None:
    committed = interleaved(kafka, tp, 6)
    end = settled(cluster, tp)
    found = read(cluster, tp, 0, end, COMMITTED, max_bytes)
    assert sorted(value for _, value in found) == sorted(committed)
    assert found == as_librdkafka_reads(kafka, tp, 0)
    for start, stop in itertools.pairwise(range(0, end + 37, 37)):
        wanted = [row for row in found if start <= row[0] < stop]
        assert read(cluster, tp, start, min(stop, end), COMMITTED, max_bytes) == wanted
    everything = read(cluster, tp, 0, end, IsolationLevel.READ_UNCOMMITTED, max_bytes)
    assert len(everything) == 6 * 75


def test_a_log_that_ends_with_an_aborted_transaction_is_read_to_its_end(
    kafka: KafkaBroker, cluster: ClusterClient, tp: TopicPartition
) -> None:
    writer = Writer(kafka, tp)
    writer.begin(*[b"kept"] * 5)
    writer.commit()
    writer.begin(*[b"dropped"] * 500)
    writer.abort()
    end = settled(cluster, tp)
    assert end == 507
    assert read(cluster, tp, 0, end, COMMITTED, 300) == [(offset, b"kept") for offset in range(5)]
    assert read(cluster, tp, 6, end, COMMITTED, 1 << 20) == []
    assert read(cluster, tp, end - 1, end, COMMITTED, 1 << 20) == []


def test_an_open_transaction_bounds_the_latest_offset_until_it_ends(
    kafka: KafkaBroker, cluster: ClusterClient, tp: TopicPartition
) -> None:
    other, writer = Writer(kafka, tp), Writer(kafka, tp)
    other.begin(b"a")
    other.commit()
    assert settled(cluster, tp) == 2
    writer.begin(b"open", b"open too")
    other.begin(b"b")
    other.commit()
    assert wait_until(lambda: latest(cluster, tp, IsolationLevel.READ_UNCOMMITTED) == 6, PATIENCE_S)
    assert latest(cluster, tp, COMMITTED) == 2
    assert read(cluster, tp, 0, 2, COMMITTED, 1 << 20) == [(0, b"a")]
    with pytest.raises(NetworkError, match="high watermark 6, last stable offset 2, where a transaction is"):
        list(RangeFetcher(cluster, tp, 2, 6, isolation=COMMITTED, timeout_ms=1_000))
    writer.abort()
    assert settled(cluster, tp) == 7
    assert read(cluster, tp, 0, 7, COMMITTED, 1 << 20) == [(0, b"a"), (4, b"b")]
