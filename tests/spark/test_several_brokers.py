"""Real Spark on three brokers, of which leaders, controllers and coordinators are killed with -9.

What is read comes exactly once; what is written too, as the sink numbers its batches (``enable.idempotence``)
and no task is run again here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import NewTopic
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults import roles
from tests.spark.conftest import Kafka
from tests.support.load import Load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CONFIG = {
    # The time that passes until a broker that was killed counts as dead.
    "zookeeper.session.timeout.ms": "1500",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "default.replication.factor": "3",
}
PARTITIONS = 3
PATIENCE_S = 120
BETWEEN_KILLS = 500
ROWS = 12_000
VALUE = "concat(lpad(cast(id AS string), 8, '0'), repeat('x', 1000)) value"
"""Together more than Spark and we have in memory between a reader and the next Python worker."""
GROUP = "query"


class ThreeBrokers:
    """A cluster, of which tests kill one broker at a time, and Spark on it."""

    def __init__(self, cluster: Cluster, store: ZooKeeperStore, spark: SparkSession) -> None:
        self.cluster = cluster
        self.store = store
        self.spark = spark
        self.kafka = Kafka(cluster.bootstrap_servers)

    def topic(self, name: str) -> str:
        self.kafka.admin.create_topic(NewTopic(name, PARTITIONS, 3))
        return name

    def read(self, topic: str) -> DataFrame:
        reader = self.spark.read.format("minikafka").option("subscribe", topic)
        return reader.option("kafka.bootstrap.servers", self.kafka.servers).load()

    def stream(self, topic: str) -> DataFrame:
        reader = self.spark.readStream.format("minikafka").option("subscribe", topic)
        reader = reader.option("startingOffsets", "earliest").option("minikafka.commit.group", GROUP + topic)
        return reader.option("kafka.bootstrap.servers", self.kafka.servers).load()

    def write(self, frame: DataFrame, topic: str) -> None:
        writer = frame.write.format("minikafka").mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", self.kafka.servers).save()

    def victim(self, role: str, topic: str) -> int:
        """The id of the broker that has this role at the moment."""
        match role:
            case "leader":
                return roles.leader(self.store, TopicPartition(topic, 0))
            case "coordinator":
                return roles.coordinator(self.store, GROUP + topic)
        return roles.controller(self.store)

    def kill(self, role: str, topic: str) -> int:
        """SIGKILL to that one; its id."""
        number = self.victim(role, topic)
        self.cluster.kill(number)
        return number

    def whole_again(self) -> None:
        """Start who is down, and wait until all replicas are in sync."""
        for number in range(self.cluster.count):
            if not self.lives(number):
                self.cluster.restart(number)
        assert wait_until(lambda: roles.all_in_sync(self.store, 3), PATIENCE_S)

    def lives(self, number: int) -> bool:
        try:
            return self.cluster.broker(number) is not None
        except KeyError:
            return False


@pytest.fixture(scope="module")
def started(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, ZooKeeperStore]]:
    with (
        Cluster(3, tmp_path_factory.mktemp("three"), CONFIG) as cluster,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        yield cluster, store


@pytest.fixture
def three(started: tuple[Cluster, ZooKeeperStore], spark: SparkSession) -> Iterator[ThreeBrokers]:
    found = ThreeBrokers(*started, spark)
    yield found
    found.whole_again()
    found.kafka.client.close()


class Middle:
    """A place in the middle of each task, where it waits while something happens."""

    def __init__(self, flags: Path, happens: Callable[[], None]) -> None:
        flags.mkdir()
        self.flags = flags
        self.happens = happens
        self.happened = False
        self._thread = threading.Thread(target=self._wait)

    def within(self, frame: DataFrame) -> DataFrame:
        """``frame``, whose tasks wait behind their first rows."""
        flags = self.flags

        def wait_once(batches):  # type: ignore[no-untyped-def]
            for number, batch in enumerate(batches):
                yield batch
                if number == 0:
                    (flags / f"reached-{id(batch)}").touch()
                    while not (flags / "over").exists():
                        time.sleep(0.02)

        return frame.mapInArrow(wait_once, frame.schema)

    def _wait(self) -> None:
        if wait_until(lambda: any(self.flags.iterdir()), PATIENCE_S) and not self._over.exists():
            self.happens()
            self.happened = True
            self._over.touch()

    @property
    def _over(self) -> Path:
        return self.flags / "over"

    def __enter__(self) -> Middle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.touch()
        self._thread.join()


def numbers(frame: DataFrame) -> Counter[int]:
    """Return how often each number is in the topic."""
    rows = frame.selectExpr("cast(substring(cast(value AS string), 1, 8) AS int) number").collect()
    return Counter(row.number for row in rows)


def test_batch_read_with_dying_leader_has_every_record_once(three: ThreeBrokers, tmp_path: Path) -> None:
    topic = three.topic("read")
    three.write(three.spark.range(ROWS).selectExpr(VALUE), topic)
    with Middle(tmp_path / "flags", lambda: three.kill("leader", topic)) as middle:
        found = numbers(middle.within(three.read(topic)))
    assert middle.happened
    assert found == Counter(range(ROWS))


@pytest.mark.long
@pytest.mark.parametrize("role", ["leader", "controller"])
def test_a_batch_write_in_whose_middle_a_broker_dies_writes_every_row_once(
    three: ThreeBrokers, tmp_path: Path, role: str
) -> None:
    topic = three.topic(f"written-{role}")
    rows = three.spark.range(0, ROWS, 1, 3).selectExpr(VALUE)
    with Middle(tmp_path / "flags", lambda: three.kill(role, topic)) as middle:
        three.write(middle.within(rows), topic)
    assert middle.happened
    assert numbers(three.read(topic)) == Counter(range(ROWS))


class Queries:
    """A stream of "t" to Parquet, with a group, and another one of "t" to the topic "copy"."""

    def __init__(self, three: ThreeBrokers, directory: Path) -> None:
        self.three = three
        self.directory = directory
        self.running: list[StreamingQuery] = []

    def to_parquet(self) -> StreamingQuery:
        writer = self.three.stream("t").select("partition", "offset", "value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        self.running.append(writer.start(str(self.directory / "rows")))
        return self.running[-1]

    def to_a_topic(self) -> StreamingQuery:
        reader = self.three.spark.readStream.format("minikafka").option("subscribe", "t")
        reader = reader.option("kafka.bootstrap.servers", self.three.kafka.servers)
        frame = reader.option("startingOffsets", "earliest").load().select("value", "partition")
        writer = frame.writeStream.format("minikafka").option("topic", "copy")
        writer = writer.option("kafka.bootstrap.servers", self.three.kafka.servers)
        self.running.append(writer.option("checkpointLocation", str(self.directory / "copied")).start())
        return self.running[-1]

    def close(self) -> None:
        for query in self.running:
            query.stop()


def run_until(load: Load, condition: Callable[[], bool]) -> None:
    """Have the load go on until ``condition`` holds."""

    def after_some_load() -> bool:
        load.run(20)
        return condition()

    assert wait_until(after_some_load, PATIENCE_S, every_s=0.02)


def batches_of(query: StreamingQuery) -> int:
    """The number of the last batch that this run of a query has finished; -1 for none."""
    return -1 if query.lastProgress is None else query.lastProgress["batchId"]


def has_more(query: StreamingQuery, batches: int) -> bool:
    if query.exception() is not None:
        raise AssertionError(f"the query has ended: {query.exception()}")
    return batches_of(query) > batches


@pytest.mark.long
@pytest.mark.timeout(600)
def test_streams_stay_exact_when_leader_or_controller_dies(three: ThreeBrokers, tmp_path: Path) -> None:
    three.topic("t")
    three.topic("copy")
    groups, store, cluster = GroupAdmin(three.kafka.client), three.store, three.cluster
    queries, load = Queries(three, tmp_path), Load(three.kafka.servers, partitions=PARTITIONS)

    def committed() -> dict[TopicPartition, int]:
        return {place: one.offset for place, one in groups.offsets(f"{GROUP}t").items()}

    with contextlib.closing(queries):
        reading, copying = queries.to_parquet(), queries.to_a_topic()
        load.run(BETWEEN_KILLS)
        run_until(load, lambda: len(committed()) == PARTITIONS)
        for role in ("leader", "coordinator", "controller", "leader", "coordinator"):
            before, batches = committed(), batches_of(reading)
            number = three.kill(role, "t")
            run_until(load, lambda: roles.all_in_sync(store, 2))
            if role == "controller":
                # The query goes on by its checkpoint, with one broker of three away.
                reading.stop()
                reading, batches = queries.to_parquet(), -1
            run_until(load, partial(has_more, reading, batches + 1))
            after = committed()
            assert {place: offset for place, offset in before.items() if after[place] < offset} == {}
            cluster.restart(number)
            run_until(load, lambda: roles.all_in_sync(store, 3))
        load.finish()
        ends = three.kafka.ends("t", PARTITIONS)
        assert wait_until(lambda: sorted(committed().values()) == sorted(ends), PATIENCE_S)
        copying.processAllAvailable()
        assert (reading.exception(), copying.exception()) == (None, None)
    load.check_nothing_lost()
    rows = three.spark.read.parquet(str(tmp_path / "rows")).collect()
    assert len(rows) == len(load.acknowledged) == load.sent
    assert {(row.partition, row.offset): bytes(row.value) for row in rows} == load.acknowledged
    copied = [(row.partition, bytes(row.value)) for row in three.read("copy").orderBy("offset").collect()]
    for partition in range(PARTITIONS):
        wanted = [load.acknowledged[place] for place in sorted(load.acknowledged) if place[0] == partition]
        assert [value for where, value in copied if where == partition] == wanted
