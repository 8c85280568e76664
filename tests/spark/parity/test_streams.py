"""Streaming reads: their start, changes while they run, and their restart."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from minikafka.clients.admin.admin import NewTopic
from pyspark_minikafka.reading.stream import HAS_LIMITS
from tests.spark.parity.conftest import Source, refused
from tests.spark.parity.records import (
    BESIDE_THE_PEER,
    SECOND,
    STRATEGIES,
    after_the_last,
    each,
    matrix,
    numbers,
    only_beside_the_peer,
    sent,
    start,
    strategy,
)

IMPATIENT = {
    "kafka.request.timeout.ms": 3000,
    "kafka.default.api.timeout.ms": 3000,
    "kafkaConsumer.pollTimeoutMs": 3000,
}


@pytest.mark.parametrize(
    ("by", "kind", "fail_on_data_loss"),
    matrix(
        STRATEGIES,
        ("latest", "earliest", "offsets", "times", "time"),
        ("true", "false"),
        always=[
            ("assign", "latest", "true"),
            ("subscribe", "times", "false"),
            ("subscribePattern", "offsets", "true"),
        ],
    ),
)
def test_a_stream_starts_where_it_is_told_and_goes_on_where_it_was(
    source: Source, by: str, kind: str, fail_on_data_loss: str
) -> None:
    topic = sent(source)
    options, expected = start(kind, topic)
    options |= {**strategy(by, topic), "failOnDataLoss": fail_on_data_loss}
    first = source.stream(**options)
    assert first.read() == expected
    source.kafka.produce(topic, ["now"], 2)
    assert first.read() == sorted([*expected, "now"])
    first.query.stop()
    source.kafka.produce(topic, ["while stopped"], 1)
    second = source.stream(checkpoint=first.checkpoint, **options)
    assert second.read() == ["while stopped"]
    # A partition that is added while the query runs is read from its start, unless others were assigned.
    source.kafka.admin.create_partitions(topic, 4)
    source.kafka.produce(topic, ["in a new one"], 3)
    source.kafka.produce(topic, ["last"], 0)
    expected = ["last", "while stopped"] if by == "assign" else ["in a new one", "last", "while stopped"]
    assert second.read() == expected


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp"])
@pytest.mark.parametrize("by", ["subscribe", pytest.param("subscribePattern", marks=BESIDE_THE_PEER)])
def test_a_stream_may_start_after_the_last_record_if_it_is_told_so(
    source: Source, by: str, option: str
) -> None:
    topic = sent(source)
    late, expected = after_the_last(option, topic)
    options = {**strategy(by, topic), **late}
    failing = source.stream(**options)
    assert "no offset matched" in failing.failure().lower()
    running = source.stream(**options, startingOffsetsByTimestampStrategy="latest")
    assert running.read() == expected
    source.kafka.produce(topic, ["new"], 2)
    assert running.read() == sorted([*expected, "new"])


@only_beside_the_peer
def test_a_stream_starts_at_latest_by_default_and_only_a_new_one_looks(source: Source) -> None:
    topic = sent(source)
    first = source.stream(subscribe=topic)
    assert first.read() == []
    first.query.stop()
    source.kafka.produce(topic, ["new"])
    second = source.stream(checkpoint=first.checkpoint, subscribe=topic, startingOffsets="earliest")
    assert second.read() == ["new"]


@only_beside_the_peer
def test_a_topic_that_appears_under_a_pattern_is_read_from_its_start(source: Source) -> None:
    first = source.kafka.topic(prefix="appears")
    running = source.stream(subscribePattern=f"{first}.*")
    assert running.read() == []
    source.kafka.admin.create_topic(NewTopic(f"{first}-second", 2))
    source.kafka.produce(f"{first}-second", ["a", "b"], 1)
    assert running.read() == ["a", "b"]


@only_beside_the_peer
def test_a_topic_may_go_from_under_a_pattern(source: Source) -> None:
    first = source.kafka.topic(2, prefix="goes")
    running = source.stream(subscribePattern=f"{first}.*", failOnDataLoss="false")
    assert running.read() == []
    source.kafka.produce(first, ["1", "2"])
    assert running.read() == ["1", "2"]
    source.kafka.delete(first)
    source.kafka.admin.create_topic(NewTopic(f"{first}-second", 2))
    source.kafka.produce(f"{first}-second", ["3"], 1)
    assert running.read() == ["1", "2", "3"]


@only_beside_the_peer
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_topic_made_anew_between_two_runs_is_lost_data(source: Source, fail_on_data_loss: str) -> None:
    topic = source.kafka.topic(prefix="anew")
    source.kafka.produce(topic, ["a", "b", "c"])
    options = {"subscribePattern": f"{topic}.*", "failOnDataLoss": fail_on_data_loss}
    first = source.stream(**options, startingOffsets="earliest")
    assert first.read() == ["a", "b", "c"]
    first.query.stop()
    source.kafka.make_anew(topic)
    source.kafka.produce(topic, ["d"])
    second = source.stream(checkpoint=first.checkpoint, **options)
    if fail_on_data_loss == "true":
        said = second.failure()
        assert f"{topic}-0" in said
        assert "from 3 to 1" in said or "from offset 3 to 1" in said
        assert "failOnDataLoss" in said
        return
    # The peer goes on where the new log ends.
    behind = [] if source.is_peer else ["d"]
    assert second.read() == behind
    source.kafka.produce(topic, ["e"])
    assert second.read() == [*behind, "e"]


@pytest.mark.parametrize("fail_on_data_loss", [pytest.param("true", marks=BESIDE_THE_PEER), "false"])
def test_a_topic_that_goes_while_its_records_are_read_is_lost_data(
    source: Source, fail_on_data_loss: str
) -> None:
    topic = source.kafka.topic_with([str(n) for n in range(10)])

    def delete(number: int) -> None:
        if number == 0:
            source.kafka.make_anew(topic)

    running = source.stream(
        subscribe=topic,
        startingOffsets="earliest",
        failOnDataLoss=fail_on_data_loss,
        before=delete,
        **IMPATIENT,
    )
    if fail_on_data_loss == "true":
        assert topic in running.failure()
    else:
        assert running.read() == []


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_records_that_are_deleted_before_they_are_read_are_lost_data(
    source: Source, fail_on_data_loss: str
) -> None:
    topic = sent(source)

    def trim(number: int) -> None:
        if number == 0:
            source.kafka.trim(topic, 1, 4)

    running = source.stream(
        subscribe=topic, startingOffsets="earliest", failOnDataLoss=fail_on_data_loss, before=trim
    )
    if fail_on_data_loss == "true":
        said = running.failure()
        assert topic in said
        assert "failOnDataLoss" in said
    else:
        assert running.read() == numbers(range(0, 30, 3), range(13, 30, 3), range(2, 30, 3))


@pytest.mark.parametrize("fail_on_data_loss", ["true", pytest.param("false", marks=BESIDE_THE_PEER)])
def test_an_offset_outside_the_log_is_lost_data(source: Source, fail_on_data_loss: str) -> None:
    topic = sent(source)
    source.kafka.trim(topic, 0, 5)
    running = source.stream(
        subscribe=topic, startingOffsets=each(topic, 2, 10, 10), failOnDataLoss=fail_on_data_loss
    )
    if fail_on_data_loss == "true":
        assert f"{topic}-0" in running.failure()
    else:
        assert running.read() == numbers(range(15, 30, 3))


def test_nulls_are_read_as_nulls(source: Source) -> None:
    topic = source.kafka.topic_with([None, "v"])
    source.kafka.produce(topic, [None, ""], key=b"k")
    running = source.stream(subscribe=topic, startingOffsets="earliest")
    running.query.processAllAvailable()
    assert [(row.key, row.value) for row in running.rows] == [
        (None, None),
        (None, b"v"),
        (b"k", None),
        (b"k", b""),
    ]


def test_a_micro_batch_has_as_many_tasks_as_it_is_told(source: Source) -> None:
    topic, tasks = sent(source), []
    frame = source.reading(subscribe=topic, startingOffsets="earliest", minPartitions=6)
    writer = frame.writeStream.foreachBatch(lambda batch, _: tasks.append(batch.rdd.getNumPartitions()))
    query = writer.option("checkpointLocation", str(source.checkpoint())).start()
    query.processAllAvailable()
    query.stop()
    assert tasks == [6]


def test_a_query_may_read_its_source_twice(source: Source) -> None:
    topic = source.kafka.topic(2)
    frame = source.reading(subscribe=topic).selectExpr("CAST(value AS string) v", "value")
    running = source.stream(frame=frame.union(frame))
    assert running.read() == []
    source.kafka.produce(topic, ["a", "b"], 1)
    assert running.read() == ["a", "a", "b", "b"]


@only_beside_the_peer
def test_a_stream_that_is_joined_with_itself_keeps_one_offset(source: Source) -> None:
    topic = source.kafka.topic(2)
    values = source.reading(subscribe=topic).selectExpr(
        "int(string(value)) value", "int(string(value)) % 5 key"
    )
    running = source.stream(frame=values.join(values, "key").toDF("key", "x", "y"))
    running.query.processAllAvailable()
    source.kafka.produce(topic, ["1", "2"])
    running.query.processAllAvailable()
    source.kafka.produce(topic, ["6", "3"], 1)
    running.query.processAllAvailable()
    assert sorted(map(tuple, running.rows)) == [
        (1, 1, 1),
        (1, 1, 6),
        (1, 6, 1),
        (1, 6, 6),
        (2, 2, 2),
        (3, 3, 3),
    ]
    newest = max((running.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = newest.read_text().splitlines()[2:]
    assert all(json.loads(offset) == {topic: {"0": 2, "1": 2}} for offset in offsets)


def test_the_progress_counts_rows_and_shows_offsets(source: Source) -> None:
    topic = source.kafka.topic(2)
    running = source.stream(subscribe=topic)
    running.read()
    source.kafka.produce(topic, ["a", "b", "c"])
    running.read()
    progress = [batch for batch in running.query.recentProgress if batch["numInputRows"]]
    assert [batch["numInputRows"] for batch in progress] == [3]
    (described,) = json.loads(progress[0].json)["sources"]
    assert described["endOffset"][topic] == {"0": 3, "1": 0}


def test_the_progress_shows_how_far_behind_it_is(source: Source) -> None:
    topic = source.kafka.topic_with(["a", "b", "c"])
    running = source.stream(subscribe=topic, startingOffsets="earliest")
    running.read()
    (described,) = json.loads(running.query.recentProgress[0].json)["sources"]
    if source.is_peer:
        assert described["metrics"]["maxOffsetsBehindLatest"] == "0"
    if source.is_peer or HAS_LIMITS:
        assert described["latestOffset"][topic] == {"0": 3}


def test_there_is_no_continuous_mode(source: Source) -> None:
    frame = source.reading(subscribe=source.kafka.topic())
    if source.is_peer:
        query = source.continuous(frame)
        query.stop()
    else:
        refused(lambda: source.continuous(frame), "continuous")


@only_beside_the_peer
@pytest.mark.parametrize("seed", [1, 2])
def test_topics_and_partitions_come_and_go(source: Source, seed: int) -> None:
    """A query with ``failOnDataLoss=false`` outlives it, and gives no record twice."""
    chance = random.Random(seed)
    prefix = source.kafka.topic(prefix="churn")
    topics, sent_values, number = {prefix: 1}, [], itertools.count()
    running = source.stream(
        subscribePattern=f"{prefix}.*", startingOffsets="earliest", failOnDataLoss="false", **IMPATIENT
    )
    for step in range(12):
        what = chance.choice(["topic", "delete", "partition", "records", "records"])
        if what == "topic":
            topics[f"{prefix}-{step}"] = partitions = chance.randint(1, 4)
            source.kafka.admin.create_topic(NewTopic(f"{prefix}-{step}", partitions))
        elif what == "delete" and len(topics) > 1:
            gone = chance.choice(sorted(set(topics) - {prefix}))
            del topics[gone]
            source.kafka.delete(gone)
        elif what == "partition":
            grows = chance.choice(sorted(topics))
            topics[grows] += 1
            source.kafka.admin.create_partitions(grows, topics[grows])
        topic = chance.choice(sorted(topics))
        values = [f"v{next(number)}" for _ in range(chance.randint(1, 5))]
        source.kafka.produce(topic, values, chance.randrange(topics[topic]))
        sent_values += values
        if chance.random() < 0.5:
            running.query.processAllAvailable()
    source.kafka.produce(prefix, ["last"])
    found = running.read()
    assert "last" in found
    assert len(found) == len(set(found))
    # Only what was in a topic that was deleted may be missing.
    kept = {value for topic in topics for value in source.values(subscribe=topic)}
    assert kept - set(found) == set()
    assert set(found) <= {*sent_values, "last"}


@only_beside_the_peer
def test_the_time_of_a_record_makes_a_watermark(source: Source) -> None:
    topic = sent(source)
    frame = source.reading(subscribe=topic, startingOffsets="earliest").withWatermark(
        "timestamp", "10 seconds"
    )
    windows = frame.groupBy("timestamp").count().selectExpr("unix_millis(timestamp) ms", "count")
    writer = windows.writeStream.format("memory").queryName("watermarks").outputMode("complete")
    query = writer.option("checkpointLocation", str(source.checkpoint())).start()
    query.processAllAvailable()
    query.stop()
    found = sorted(map(tuple, source.spark.table("watermarks").collect()))
    assert found == [(SECOND + 1_000 * (third - 1), 10) for third in range(3)]


def test_a_stream_has_the_columns_that_a_batch_has(source: Source) -> None:
    topic = source.kafka.topic_with(["v"], key=b"k", timestamp_ms=SECOND)
    for headers in ("true", "false"):
        columns = source.reading(subscribe=topic, includeHeaders=headers).schema.simpleString()
        assert columns == source.read(subscribe=topic, includeHeaders=headers).schema.simpleString()
    running = source.stream(subscribe=topic, startingOffsets="earliest", includeHeaders="true")
    running.query.processAllAvailable()
    (row,) = running.rows
    assert (row.key, row.value, row.topic, row.partition, row.offset, row.timestampType, row.headers) == (
        b"k",
        b"v",
        topic,
        0,
        0,
        0,
        None,
    )


def test_a_query_stops_and_leaves_nothing_running(source: Source) -> None:
    topic = source.kafka.topic(3)
    running = source.stream(subscribePattern=f"{topic}.*")
    running.read()
    running.query.stop()
    assert not running.query.isActive
    assert running.query.exception() is None
    assert running.query.id not in [query.id for query in source.spark.streams.active]


def test_topics_may_start_with_a_word_each(source: Source) -> None:
    if source.is_peer:
        pytest.skip("words for topics are newer than connector 4.0.0")
    first, second = sent(source), sent(source)
    words = json.dumps({first: "earliest", second: "LATEST"})
    running = source.stream(subscribe=f"{first},{second}", startingOffsets=words)
    assert running.read() == numbers(range(30))
    source.kafka.produce(second, ["new"])
    assert running.read() == sorted([*numbers(range(30)), "new"])


def test_a_time_that_spark_cannot_hold_is_an_error_that_names_the_record(source: Source) -> None:
    topic = source.kafka.topic_with(["good"])
    source.kafka.produce(topic, ["bad"], timestamp_ms=1_712_345_678_123_456_789)
    # The peer of this version says neither which record it is nor what is wrong with its time.
    words = ["overflow"] if source.is_peer else ["1712345678123456789", "offset 1"]
    refused(lambda: source.read(subscribe=topic).collect(), *words)
