"""Writes of the sink exactly once, on our brokers and Apache Kafka: called as Spark calls them."""

from __future__ import annotations

import datetime
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType, TimestampType

from minikafka.base.errors import BrokerError, ConfigErrors, NetworkError, ProducerFenced
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import EARLIEST, LATEST, Admin, NewTopic
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.batch_copier import StagedRowsLost
from minikafka.embedded.process import wait_until
from minikafka.records.columns import decode_pieces
from pyspark_minikafka import cache
from pyspark_minikafka.writing import publisher, staging_area
from pyspark_minikafka.writing.commit_token import TokenMismatch
from pyspark_minikafka.writing.publisher import Unsupported
from pyspark_minikafka.writing.writer import StreamWriter, batch_writer, stream_writer
from tests.interop.releases import KAFKA_0_10
from tests.support.kafka_broker import running
from tests.support.transactional_clusters import MORE_CLUSTERS, transactional_cluster

pytestmark = pytest.mark.timeout(180)

VALUES = StructType([StructField("value", StringType())])
_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=MORE_CLUSTERS)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with transactional_cluster(request.param, tmp_path_factory.mktemp("sink")) as addresses:
        yield addresses
        cache.close_all()


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[ClusterClient]:
    with ClusterClient(bootstrap, creates_topics=False) as cluster:
        yield cluster


@pytest.fixture
def sink(bootstrap: str, cluster: ClusterClient) -> SinkHarness:
    return SinkHarness(bootstrap, cluster)


class SinkHarness:
    """One sink, its topic of two partitions, and what is in it."""

    def __init__(self, bootstrap: str, cluster: ClusterClient) -> None:
        self.bootstrap, self.cluster, self.admin = bootstrap, cluster, Admin(cluster)
        self.id = f"sink-{uuid.uuid4().hex[:12]}"
        self.topic = self.new_topic()

    def new_topic(self, **configs: str) -> str:
        name = f"target-{next(_NUMBERS)}-{self.id}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topic(NewTopic(name, 2, configs=settings))
        return name

    def options(self, **more: str) -> dict[str, str]:
        given = {name.replace("__", "."): value for name, value in more.items()}
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.topic,
            "minikafka.delivery": "exactly-once",
            "minikafka.sink.id": self.id,
            **given,
        }

    def driver(self, schema: StructType = VALUES, **more: str) -> StreamWriter:
        """The writer of a micro-batch."""
        return stream_writer(self.options(**more), schema)

    def committed(self, topic: str | None = None) -> list[bytes | None]:
        """All committed values."""
        return [value for number in (0, 1) for _, value in self.records(topic or self.topic, number)]

    def records(self, topic: str, partition: int) -> Iterator[tuple[int, bytes | None]]:
        """The times and values of a partition, once no transaction is open."""
        tp = TopicPartition(topic, partition)
        assert wait_until(lambda: self.end(tp) == self.end(tp, IsolationLevel.READ_COMMITTED), 60)
        end, committed = self.end(tp), IsolationLevel.READ_COMMITTED
        for data in RangeFetcher(self.cluster, tp, 0, end, isolation=committed, timeout_ms=20_000):
            for piece in decode_pieces(data, 0, end):
                yield from zip(piece.timestamps.tolist(), piece.value_array().to_pylist(), strict=True)

    def end(
        self,
        tp: TopicPartition,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        at: int = LATEST,
    ) -> int:
        return self.admin.offsets({tp: at}, isolation=isolation)[tp] or 0

    def staged(self) -> int:
        """The number of staged records that were not deleted."""
        area = staging_area.of_stream(self.id)
        return sum(self.end(tp) - self.end(tp, at=EARLIEST) for tp in area.partitions)


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": pa.array(values, pa.string())})


def numbered(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


def expected(values: Sequence[str]) -> list[bytes]:
    return sorted(value.encode() for value in values)


def test_the_chosen_attempt_of_a_task_is_visible_alone(sink: SinkHarness) -> None:
    driver = sink.driver()
    attempts = [driver.write(rows(*numbered(0, 50))) for _ in range(3)]
    other = driver.write(rows(*numbered(50, 70)))
    assert sink.committed() == []
    driver.commit([attempts[1], other], 0)
    assert sorted(sink.committed()) == expected(numbered(0, 70))


def test_a_rerun_that_splits_rows_differently_writes_nothing(sink: SinkHarness) -> None:
    driver = sink.driver()
    driver.commit([driver.write(rows(*numbered(0, 30))), driver.write(rows(*numbered(30, 60)))], 0)
    again = sink.driver()
    parts = [again.write(rows(*numbered(start, start + 20))) for start in (40, 0, 20)]
    again.commit(parts, 0)
    again.commit([again.write(rows("next"))], 1)
    assert sorted(sink.committed()) == expected([*numbered(0, 60), "next"])
    assert sink.staged() == 0


def test_staged_batches_keep_their_times_and_codec(sink: SinkHarness) -> None:
    schema = StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", StringType()),
            StructField("timestamp", TimestampType()),
            StructField("partition", IntegerType()),
        ]
    )
    long_ago = datetime.datetime(2001, 9, 9, tzinfo=datetime.timezone.utc)
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", b"b", None], pa.binary()),
            "value": pa.array(["1" * 2_000, "2", None], pa.string()),
            "timestamp": pa.array([long_ago] * 3, pa.timestamp("us", "UTC")),
            "partition": pa.array([1, 1, 1], pa.int32()),
        }
    )
    driver = sink.driver(schema, kafka__compression__type="zstd")
    driver.commit([driver.write(iter([batch]))], 0)
    ms = int(long_ago.timestamp() * 1000)
    assert [*sink.records(sink.topic, 1)] == [(ms, b"1" * 2_000), (ms, b"2"), (ms, None)]


def test_rows_of_a_task_stay_in_their_order(sink: SinkHarness) -> None:
    schema = StructType([*VALUES.fields, StructField("partition", IntegerType())])
    driver = sink.driver(schema, kafka__batch__size="500")
    values = numbered(0, 3_000)
    batch = pa.record_batch(
        {"value": pa.array(values), "partition": pa.array([n % 2 for n in range(3_000)], pa.int32())}
    )
    driver.commit([driver.write(iter(batch.slice(n, 100) for n in range(0, 3_000, 100)))], 0)
    assert sink.committed() == [value.encode() for n in (0, 1) for value in values[n::2]]


def test_a_batch_too_large_for_the_topic_is_split(sink: SinkHarness) -> None:
    sink.topic = sink.new_topic(max_message_bytes="3000")
    driver = sink.driver()
    values = [f"{number:0100}" for number in range(500)]
    driver.commit([driver.write(rows(*values))], 0)
    assert sorted(sink.committed()) == expected(values)


def test_a_second_driver_fences_the_first(sink: SinkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sink.driver(), sink.driver()
    parts = [[driver.write(rows(*numbered(0, 100)))] for driver in (first, second)]
    copy = publisher.copy

    def overtaken(cluster: Any, producer: Any, *given: Any) -> None:
        monkeypatch.setattr(publisher, "copy", copy)
        copy(cluster, producer, *given)
        producer.flush()
        second.commit(parts[1], 0)

    monkeypatch.setattr(publisher, "copy", overtaken)
    with pytest.raises(ProducerFenced, match=f"another query has started with minikafka.sink.id={sink.id}"):
        first.commit(parts[0], 0)
    assert sorted(sink.committed()) == expected(numbered(0, 100))


def test_a_transaction_that_timed_out_is_made_again(
    sink: SinkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = publisher.copy
    calls = []

    def slow(cluster: Any, producer: Any, *given: Any) -> None:
        copy(cluster, producer, *given)
        calls.append(producer)
        if len(calls) == 1:
            producer.flush()
            tps = [TopicPartition(sink.topic, number) for number in (0, 1)]
            ended = [(tp, IsolationLevel.READ_COMMITTED) for tp in tps]
            assert wait_until(lambda: all(sink.end(*look) == sink.end(look[0]) > 0 for look in ended), 60)

    monkeypatch.setattr(publisher, "copy", slow)
    driver = sink.driver(kafka__transaction__timeout__ms="1000")
    driver.commit([driver.write(rows(*numbered(0, 100)))], 0)
    assert len(calls) == 2
    assert sorted(sink.committed()) == expected(numbered(0, 100))


def test_an_end_with_a_lost_response_is_looked_up(sink: SinkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = publisher.TransactionalProducer
    commit = producer.commit
    calls = []

    def unsure(self: Any, timeout_ms: int | None = None) -> None:
        commit(self, timeout_ms)
        calls.append(self)
        raise NetworkError("the response was lost")

    monkeypatch.setattr(producer, "commit", unsure)
    driver = sink.driver()
    driver.commit([driver.write(rows(*numbered(0, 100)))], 0)
    assert len(calls) == 1
    assert sorted(sink.committed()) == expected(numbered(0, 100))


def test_a_deleted_staging_topic_ends_the_batch_and_not_the_sink(sink: SinkHarness) -> None:
    driver = sink.driver()
    staged = [driver.write(rows(*numbered(0, 100)))]
    area = staging_area.of_stream(sink.id)
    sink.admin.delete_topics([area.topic])
    with pytest.raises(StagedRowsLost, match="are gone"):
        driver.commit(staged, 0)
    assert sink.committed() == []
    again = sink.driver()
    again.write(rows("of another attempt"))
    with pytest.raises(StagedRowsLost, match="are gone"):
        again.commit(staged, 0)
    again.commit([again.write(rows(*numbered(0, 100)))], 0)
    assert sorted(sink.committed()) == expected(numbered(0, 100))


def test_rows_of_a_dead_attempt_are_deleted_at_the_next_start(sink: SinkHarness) -> None:
    sink.driver().write(rows(*numbered(0, 100)))
    assert sink.staged() == 100
    driver = sink.driver()
    assert sink.staged() == 0
    staged = driver.write(rows(*numbered(0, 100)))
    driver.abort([staged, None], 0)
    assert sink.staged() == 0
    assert sink.committed() == []


def test_an_older_checkpoint_is_an_error(sink: SinkHarness) -> None:
    driver = sink.driver()
    for number in range(3):
        driver.commit([driver.write(rows(str(number)))], number)
    with pytest.raises(TokenMismatch, match="batch 1 cannot be written: batch 2"):
        driver.commit([driver.write(rows("1"))], 1)
    assert sorted(sink.committed()) == expected(numbered(0, 3))


class Allowed:
    """A pace that allows transactions of so many rows."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, clock: Any, rows: int, timeout_ms: int) -> Callable[[int], None]:
        def check(copied: int) -> None:
            if rows > self.most:
                raise publisher.TooSlow(self.most)

        return check


@pytest.fixture
def portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 100 rows are copied in time."""
    monkeypatch.setattr(publisher, "Pace", Allowed(100))


class Death(Exception):
    """The driver dies."""


def dies_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[object]:
    """Let the driver die before the commit ``number`` of a transaction. Return the commits before it."""
    commit, commits = publisher.TransactionalProducer.commit, list[object]()

    def counted(self: Any, timeout_ms: int | None = None) -> None:
        if len(commits) == number:
            raise Death
        commit(self, timeout_ms)
        commits.append(self)

    monkeypatch.setattr(publisher.TransactionalProducer, "commit", counted)
    return commits


SMALL_BATCHES = {"kafka__batch__size": "600"}


def driver_that_died(sink: SinkHarness, monkeypatch: pytest.MonkeyPatch, number: int) -> StreamWriter:
    """A driver that died before a commit of batch 0, which has 600 rows."""
    driver = sink.driver(**SMALL_BATCHES)
    with monkeypatch.context() as patch:
        dies_at(patch, number)
        with pytest.raises(Death):
            driver.commit([driver.write(rows(*numbered(0, 600)))], 0)
    return driver


@pytest.mark.usefixtures("portions")
def test_a_batch_too_large_for_a_transaction_is_split(
    sink: SinkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = dies_at(monkeypatch, -1)
    driver = sink.driver(**SMALL_BATCHES)
    driver.commit([driver.write(rows(*numbered(start, start + 300))) for start in (0, 300)], 0)
    assert len(commits) > 7  # the list, and six portions at least
    driver.commit([driver.write(rows(*numbered(600, 650)))], 1)
    assert sorted(sink.committed()) == expected(numbered(0, 650))
    assert sink.staged() == 0


@pytest.mark.usefixtures("portions")
def test_portions_keep_the_order_of_a_task(sink: SinkHarness) -> None:
    sink.topic = sink.new_topic()
    schema = StructType([*VALUES.fields, StructField("partition", IntegerType())])
    driver = sink.driver(schema, **SMALL_BATCHES)
    values = numbered(0, 600)
    batch = pa.record_batch({"value": pa.array(values), "partition": pa.array([0] * 600, pa.int32())})
    driver.commit([driver.write(iter(batch.slice(n, 20) for n in range(0, 600, 20)))], 0)
    assert sink.committed() == [value.encode() for value in values]


@pytest.mark.usefixtures("portions")
def test_the_next_driver_publishes_the_portions_that_are_left(
    sink: SinkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_that_died(sink, monkeypatch, 3)
    driver.abort([], 0)
    assert 0 < len(sink.committed()) < 600
    again = sink.driver(**SMALL_BATCHES)
    assert sorted(sink.committed()) == expected(numbered(0, 600))
    again.commit([again.write(rows(*numbered(start, start + 200))) for start in (400, 0, 200)], 0)
    assert sorted(sink.committed()) == expected(numbered(0, 600))
    assert sink.staged() == 0


@pytest.mark.usefixtures("portions")
def test_a_batch_that_is_not_decided_is_written_by_the_rerun(
    sink: SinkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_that_died(sink, monkeypatch, 0)  # while it committed the list
    again = sink.driver(**SMALL_BATCHES)
    assert sink.committed() == []
    again.commit([again.write(rows(*numbered(0, 600)))], 0)
    assert sorted(sink.committed()) == expected(numbered(0, 600))


@pytest.mark.usefixtures("portions")
def test_portions_whose_rows_were_lost_are_an_error(
    sink: SinkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_that_died(sink, monkeypatch, 3)
    sink.admin.delete_topics([staging_area.of_stream(sink.id).topic])
    with pytest.raises(StagedRowsLost, match=r"batch 0 of .* was published in part, and the rest cannot be"):
        sink.driver(**SMALL_BATCHES)


@pytest.mark.usefixtures("portions")
def test_a_noted_batch_of_which_nothing_is_visible_may_be_lost(
    sink: SinkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = sink.driver(**SMALL_BATCHES)
    driver.commit([driver.write(rows(*numbered(0, 50)))], 6)
    staged = [driver.write(rows(*numbered(50, 650)))]
    with monkeypatch.context() as patch:
        dies_at(patch, 1)
        with pytest.raises(Death):
            driver.commit(staged, 7)
    sink.admin.delete_topics([staging_area.of_stream(sink.id).topic])
    again = sink.driver(**SMALL_BATCHES)
    assert sorted(sink.committed()) == expected(numbered(0, 50))
    again.commit([again.write(rows(*numbered(50, 650)))], 7)
    assert sorted(sink.committed()) == expected(numbered(0, 650))


@pytest.mark.usefixtures("portions")
def test_portions_grow_again_while_they_are_quick(sink: SinkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = dies_at(monkeypatch, -1)
    pace = publisher.Pace

    def slow_at_first(clock: Any, rows: int, timeout_ms: int) -> Any:
        return pace(clock, rows, timeout_ms) if not commits else lambda copied: None

    monkeypatch.setattr(publisher, "Pace", slow_at_first)
    driver = sink.driver(**SMALL_BATCHES)
    driver.commit([driver.write(rows(*numbered(0, 3_000)))], 0)
    assert 2 < len(commits) < 9  # the list, then 100, 200, 400 … rows
    assert sorted(sink.committed()) == expected(numbered(0, 3_000))


def test_a_second_driver_fences_the_first_before_it_deletes(sink: SinkHarness) -> None:
    first = sink.driver()
    staged = [first.write(rows(*numbered(0, 100)))]
    copy = publisher.copy

    def overtaken(*given: Any) -> None:
        copy(*given)
        sink.driver()  # in the same process: it finds what is staged

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "copy", overtaken)
        with pytest.raises(ProducerFenced, match="another query has started"):
            first.commit(staged, 0)
    assert sink.committed() == []


def test_a_staged_batch_is_never_halved(sink: SinkHarness) -> None:
    area = staging_area.of_stream(sink.id)
    sink.admin.create_topic(NewTopic(area.topic, len(area.partitions), configs={"max.message.bytes": "2000"}))
    driver = sink.driver(kafka__batch__size="5000")
    with pytest.raises(BrokerError, match=r"raise max\.message\.bytes"):
        driver.write(rows(*(f"{number:0100}" for number in range(100))))


def test_a_batch_write_is_never_split(sink: SinkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "Pace", Allowed(0))
    commits = dies_at(monkeypatch, -1)
    options = sink.options(**SMALL_BATCHES)
    del options["minikafka.sink.id"]
    writer = batch_writer(options, VALUES, overwrite=False)
    writer.commit([writer.write(rows(*numbered(0, 300)))])
    assert len(commits) == 1
    assert sorted(sink.committed()) == expected(numbered(0, 300))


def test_a_batch_write_that_fails_leaves_nothing(sink: SinkHarness) -> None:
    options = sink.options()
    del options["minikafka.sink.id"]
    writer = batch_writer(options, VALUES, overwrite=False)
    writer.abort([writer.write(rows(*numbered(0, 100))), None])
    other = batch_writer(options, VALUES, overwrite=False)
    other.commit([other.write(rows("whole"))])
    assert sink.committed() == [b"whole"]
    assert not [name for name in sink.admin.list_topics() if name.startswith("__minikafka-write-")]


def test_a_time_out_above_the_brokers_is_refused(sink: SinkHarness) -> None:
    with pytest.raises(
        Unsupported,
        match=r"kafka\.transaction\.timeout\.ms=900001 is longer than transaction\.max\.timeout\.ms=900000",
    ):
        sink.driver(kafka__transaction__timeout__ms="900001")


def test_settings_that_rule_it_out_are_refused(sink: SinkHarness) -> None:
    with pytest.raises(ConfigErrors, match=r"needs kafka\.acks=all"):
        sink.driver(kafka__acks="1")


@pytest.mark.interop
def test_a_cluster_without_transactions_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(KAFKA_0_10, tmp_path_factory.mktemp("old")) as broker:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": "t",
            "minikafka.delivery": "exactly-once",
            "minikafka.sink.id": "s",
        }
        with pytest.raises(Unsupported, match="have no transactions"):
            stream_writer(options, VALUES)
        with ClusterClient(broker.bootstrap) as cluster:
            assert Admin(cluster).list_topics() == []
