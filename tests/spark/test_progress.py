"""The progress of queries, and its agreement with the tools of consumer groups."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

import pyspark_minikafka
from minikafka.base.errors import BrokerError
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.produce.transactional_producer import TransactionalProducer
from minikafka.spark.metrics import MetricsListener
from pyspark_minikafka import cache
from pyspark_minikafka.planning.transaction_waits import TransactionWait
from pyspark_minikafka.reading.stream import HAS_LIMITS
from tests.spark.streams import PATIENCE_S, Running, Streams, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_minikafka.monitoring.query_progress import QueryProgress
    from tests.spark.conftest import Kafka


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    """Close what ``progress`` keeps open in this process."""
    yield
    cache.close_all()


def lags(found: QueryProgress) -> list[tuple[str, int, int | None]]:
    return [(each.topic, each.partition, each.lag) for each in found.partitions]


def reported(running: Running) -> None:
    """Wait until Spark has reported a batch, and stop the query."""
    wait_until(lambda: running.query.lastProgress is not None)
    running.stop()


def test_progress_has_the_offsets_and_with_options_the_present_lag(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b", "c"], partitions=2)
    running = streams.start(subscribe=topic, startingOffsets="earliest")
    running.wait_for(3)
    reported(running)
    kafka.produce(topic, ["d", "e"], partition=1)
    then = pyspark_minikafka.progress(running.query)
    now = pyspark_minikafka.progress(running.query, {"kafka.bootstrap.servers": kafka.servers})
    assert (then.rows, lags(then)) == (3, [(topic, 0, 0), (topic, 1, 0)])
    assert [(each.start, each.end, each.latest) for each in now.partitions] == [(0, 3, 3), (0, 0, 2)]
    ages = [each.behind_ms for each in now.partitions]
    assert ages[0] == 0
    assert ages[1] is not None
    assert 0 <= ages[1] < 60_000


@pytest.mark.skipif(not HAS_LIMITS, reason="Spark from 4.2 on reports the newest offset")
def test_a_query_behind_an_open_transaction_says_so(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b"])
    options = {"subscribe": topic, "startingOffsets": "earliest", "kafka__isolation__level": "read_committed"}
    with TransactionalProducer(kafka.client, {"transactional.id": f"writer of {topic}"}) as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(topic, b"c", partition=0).result()
        producer.flush()
        running = streams.start(**options)
        running.wait_for(2)

        def waits() -> list[TransactionWait | None]:
            return [each.waits for each in pyspark_minikafka.progress(running.query).waiting]

        wait_until(lambda: bool(waits()))
        (wait,) = waits()
        assert wait is not None
        assert wait.offset == 2
        assert running.values == ["a", "b"]
        producer.commit()
        assert running.wait_for(3) == ["a", "b", "c"]


def test_a_batch_that_failed_has_no_progress(streams: Streams, kafka: Kafka) -> None:
    def fail(number: int, values: list[str]) -> None:
        raise ValueError("not today")

    topic = kafka.topic_with(["a"])
    running = streams.start(before=fail, subscribe=topic, startingOffsets="earliest")
    running.failure()
    found = pyspark_minikafka.progress(running.query, {"kafka.bootstrap.servers": kafka.servers})
    assert (found.batch, found.partitions) == (None, ())
    assert str(found) == f"query {running.query.id}: no batch yet"


def test_sources_have_brokers_of_their_own_and_others_are_left_out(spark: SparkSession, kafka: Kafka) -> None:
    topics = [kafka.topic_with(["a"]), kafka.topic_with(["b", "c"])]
    options = {"kafka.bootstrap.servers": kafka.servers, "startingOffsets": "earliest", "minPartitions": 2}
    reader = spark.readStream.format("minikafka").options(**options)
    one, two = (reader.option("subscribe", topic).load().select("value") for topic in topics)
    rate = spark.readStream.format("rate").load().selectExpr("cast(cast(value AS string) AS binary) AS value")
    query = one.union(rate).union(two).writeStream.format("noop").queryName("both").start()
    try:
        wait_until(lambda: query.lastProgress is not None)
    finally:
        query.stop()
    kafka.produce(topics[1], ["d"])
    found = pyspark_minikafka.progress(query, options, options)
    assert (lags(found), len(found.sources)) == ([(topics[0], 0, 0), (topics[1], 0, 1)], 2)
    assert str(found).startswith("query both: batch ")


def test_a_running_query_has_the_present_lag_of_each_source(spark: SparkSession, kafka: Kafka) -> None:
    topics = [kafka.topic_with(["a"], partitions=2), kafka.topic_with(["b", "c"])]
    options = {"kafka.bootstrap.servers": kafka.servers, "startingOffsets": "earliest"}
    reader = spark.readStream.format("minikafka").options(**options)
    one, two = (reader.option("subscribe", topic).load().select("value") for topic in topics)
    writer = one.union(two).writeStream.format("noop").queryName("both").trigger(processingTime="1 hour")
    query = writer.start()
    try:
        wait_until(lambda: query.lastProgress is not None)
        kafka.produce(topics[0], ["d"], partition=1)
        kafka.produce(topics[1], ["e", "f"])
        found, by_each = (pyspark_minikafka.progress(query, *each) for each in ([options], [options] * 2))
        assert query.isActive
    finally:
        query.stop()
    assert lags(found) == lags(by_each) == [(topics[0], 0, 0), (topics[0], 1, 1), (topics[1], 0, 2)]
    assert [source.rows for source in found.sources] == [1, 2]
    assert found.worst is not None
    assert (found.lag, found.worst.topic) == (3, topics[1])


class Gate:
    """Holds all batches of a query but the first until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, number: int, values: list[str]) -> None:
        assert number == 0 or self.opened.wait(PATIENCE_S)


def test_partitions_that_are_gone_have_no_lag_until_the_next_batch(streams: Streams, kafka: Kafka) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    gone, kept = kafka.topic(2, prefix=prefix), kafka.topic(prefix=prefix)
    kafka.produce(gone, ["a"])
    kafka.produce(kept, ["b"])
    gate, options = Gate(), {"kafka.bootstrap.servers": kafka.servers}
    running = streams.start(
        before=gate,
        subscribePattern=f"{prefix}.*",
        startingOffsets="earliest",
        failOnDataLoss="false",
        fetchOffset__retryIntervalMs="10",
    )

    def present() -> list[tuple[str, int, int | None]]:
        return lags(pyspark_minikafka.progress(running.query, options))

    running.wait_for(2)
    wait_until(lambda: running.query.lastProgress is not None)
    before = present()
    kafka.delete(gone)
    kafka.produce(kept, ["c"])
    unknown = [(topic, number, 1 if topic == kept else None) for topic, number, _ in before]
    wait_until(lambda: present() == unknown)
    gate.opened.set()
    running.wait_for(3)
    wait_until(lambda: present() == [(kept, 0, 0)])
    assert running.query.isActive


def test_lag_in_a_topic_made_anew_is_unknown_to_all_tools(streams: Streams, kafka: Kafka) -> None:
    topic, group = kafka.topic_with(["a", "b", "c"]), f"anew-{uuid.uuid4().hex[:8]}"
    gate, options = Gate(), {"kafka.bootstrap.servers": kafka.servers}
    running = streams.start(
        before=gate,
        subscribe=topic,
        startingOffsets="earliest",
        failOnDataLoss="false",
        fetchOffset__retryIntervalMs="10",
        minikafka__commit__group=group,
    )
    running.wait_for(3)
    groups = GroupAdmin(kafka.client)
    wait_until(lambda: [each.offset for each in groups.offsets(group).values()] == [3])
    wait_until(lambda: running.query.lastProgress is not None)
    kafka.make_anew(topic)
    kafka.produce(topic, ["d"])
    found = pyspark_minikafka.progress(running.query, options)
    assert [(p.end, p.latest, p.lag, p.behind_ms) for p in found.partitions] == [(3, 1, None, None)]
    assert [each.lag for each in groups.lags(groups.describe(group))] == [None]
    gate.opened.set()
    running.wait_for(4)
    wait_until(lambda: lags(pyspark_minikafka.progress(running.query, options)) == [(topic, 0, 0)])


def test_the_tool_of_groups_shows_the_same_lag(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b", "c"], partitions=2)
    running = streams.start(
        subscribe=topic, startingOffsets="earliest", minikafka__commit__group="dashboard-lag"
    )
    running.wait_for(3)
    groups = GroupAdmin(kafka.client)
    wait_until(lambda: [each.offset for each in groups.offsets("dashboard-lag").values()] == [3, 0])
    reported(running)
    kafka.produce(topic, ["d", "e"], partition=0)
    shown = groups.lags(groups.describe("dashboard-lag"))
    found = pyspark_minikafka.progress(running.query, {"kafka.bootstrap.servers": kafka.servers})
    assert [(*each.topic_partition, each.lag) for each in shown] == lags(found)
    assert lags(found) == [(topic, 0, 2), (topic, 1, 0)]


def test_progress_starts_no_cluster(streams: Streams, kafka: Kafka, tmp_path: Path) -> None:
    running = streams.start(subscribe=kafka.topic_with(["a"]), startingOffsets="earliest")
    running.wait_for(1)
    reported(running)
    with pytest.raises(BrokerError, match="no cluster runs"):
        pyspark_minikafka.progress(running.query, {"minikafka.data.dir": str(tmp_path / "other")})
    assert not (tmp_path / "other").exists()


def test_lines_in_the_log_say_how_far_a_query_is_behind(
    spark: SparkSession, streams: Streams, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic_with(["a", "b"])
    options = {"kafka.bootstrap.servers": kafka.servers}
    listener = pyspark_minikafka.log_progress(spark, options, every_s=0.001)
    try:
        with caplog.at_level(logging.INFO, logger="minikafka.spark"):
            running = streams.start(subscribe=topic, startingOffsets="earliest")
            running.wait_for(2)
            wait_until(lambda: topic in caplog.text)
            running.stop()
    finally:
        spark.streams.removeListener(listener)
    assert f"query {running.query.id}: topics {topic}, " in caplog.text
    assert "rows/s, lag 0 records" in caplog.text


def test_a_listener_has_lag_rows_bytes_and_times_of_each_partition(
    streams: Streams, kafka: Kafka, spark: SparkSession
) -> None:
    topic = kafka.topic_with(["a", "b", "c"], partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    listener = MetricsListener({"kafka.bootstrap.servers": kafka.servers}, port=0)
    spark.streams.addListener(listener)
    try:
        running = streams.start(**options, **listener.reader_options())
        running.wait_for(3)
        query_id = running.query.id
        wait_until(lambda: query_id in listener.metrics() and bool(listener.metrics()[query_id].sources))
        wait_until(lambda: listener.metrics()[query_id].read.rows >= 3)
        found = listener.metrics()[query_id]
        first, second = found.sources[0].partitions
        assert [(each.end, each.lag, each.offsets) for each in (first, second)] == [(3, 0, 3), (0, 0, 0)]
        assert first.read is not None
        assert first.read.rows == found.rows == 3
        assert first.read.bytes_ > 0
        assert first.read.fetch_s > 0
        assert first.read.decode_s > 0
        assert found.tasks == found.batches == 1
        assert found.durations_ms["triggerExecution"] > 0
        with urlopen(f"{listener.url}/metrics", timeout=30) as response:
            assert (
                f'partition_lag{{query="{query_id}",topic="{topic}",partition="0"}} 0'
                in response.read().decode()
            )
        running.stop()
        wait_until(lambda: not listener.metrics()[query_id].is_active)
    finally:
        spark.streams.removeListener(listener)
        listener.close()


@pytest.mark.skipif(not HAS_LIMITS, reason="Spark from 4.2 on reports the newest offset")
def test_sparks_progress_has_the_latest_offset_behind_a_limit(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with([str(number) for number in range(10)])
    listener = MetricsListener()
    streams.spark.streams.addListener(listener)
    try:
        options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
        running = streams.start(trigger={"processingTime": "1 hour"}, **options)
        reported(running)
        (source,) = json.loads(running.query.lastProgress.json)["sources"]
        assert source["latestOffset"] == {topic: {"0": 10}}
        query_id = running.query.id
        wait_until(lambda: query_id in listener.metrics() and listener.metrics()[query_id].batches == 1)
        (ours,) = listener.metrics()[query_id].sources
        assert ours.max_offsets_behind_latest == ours.partitions[0].lag == 6
    finally:
        streams.spark.streams.removeListener(listener)
        listener.close()
