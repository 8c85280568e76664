"""Batch and stream writes with real Spark to a real broker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[..., DataFrame]


def write(frame: DataFrame, kafka: Kafka, mode: str = "append", /, **options: str) -> None:
    given = {name.replace("__", "."): value for name, value in options.items()}
    given.setdefault("kafka.bootstrap.servers", kafka.servers)
    frame.write.format("minikafka").mode(mode).options(**given).save()


def records(read: Read, topic: str) -> list[tuple[Any, ...]]:
    rows = read(subscribe=topic).orderBy("partition", "offset").collect()
    return [(row.partition, row.key, row.value) for row in rows]


@pytest.mark.smoke
def test_strings_bytes_and_nulls_are_written_as_they_are(
    spark: SparkSession, kafka: Kafka, read: Read
) -> None:
    topic = kafka.topic()
    rows = [("k", b"\xff\x00"), ("", b""), (None, None), ("é", "ü".encode())]
    write(spark.createDataFrame(rows, "key string, value binary").coalesce(1), kafka, topic=topic)
    assert records(read, topic) == [
        (0, b"k", b"\xff\x00"),
        (0, b"", b""),
        (0, None, None),
        (0, "é".encode(), "ü".encode()),
    ]


def test_keys_decide_the_partition_as_in_java(spark: SparkSession, kafka: Kafka, read: Read) -> None:
    topic = kafka.topic(7)
    write(spark.range(200).selectExpr("cast(id AS string) key", "'v' value"), kafka, topic=topic)
    golden = {int(key): partition for partition, key, _ in records(read, topic)}
    # murmur2 of the text of each number, as Kafka's own client places it among seven partitions.
    assert [golden[number] for number in range(10)] == java_partitions([str(n) for n in range(10)], 7)


def java_partitions(keys: list[str], partitions: int) -> list[int]:
    from minikafka.records.format.hashes import murmur2

    return [(murmur2(key.encode()) & 0x7FFFFFFF) % partitions for key in keys]


HEADERS = "array(struct('k' AS key, x'00ff' AS value), struct('k' AS key, cast(null AS binary) AS value))"


@pytest.mark.smoke
def test_headers_are_written_and_come_back_when_asked_for(
    spark: SparkSession, kafka: Kafka, read: Read
) -> None:
    topic = kafka.topic(3)
    rows = spark.range(30).selectExpr(
        "cast(id AS string) key", "'v' value", f"CASE WHEN id % 3 = 0 THEN {HEADERS} END headers"
    )
    write(rows, kafka, topic=topic)
    assert "headers" not in read(subscribe=topic).columns
    frame = read(subscribe=topic, includeHeaders="true")
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    for row in frame.collect():
        wanted = [("k", b"\x00\xff"), ("k", None)] if int(row.key) % 3 == 0 else None
        assert wanted == (None if row.headers is None else [tuple(header) for header in row.headers])


def test_rows_without_a_key_are_spread_evenly(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(4)
    write(spark.range(0, 4_000, 1, 1).selectExpr("'v' value"), kafka, topic=topic)
    assert kafka.ends(topic, 4) == [1_000] * 4


def test_a_named_partition_wins_over_the_key(spark: SparkSession, kafka: Kafka, read: Read) -> None:
    topic = kafka.topic(3)
    rows = [("same", "a", 2), ("same", "b", 1), ("same", "c", None)]
    write(
        spark.createDataFrame(rows, "key string, value string, partition int").coalesce(1), kafka, topic=topic
    )
    found = {bytes(value).decode(): partition for partition, _, value in records(read, topic)}
    assert found == {"a": 2, "b": 1, "c": java_partitions(["same"], 3)[0]}


def test_each_row_may_name_its_topic_and_an_option_overrides_it(
    spark: SparkSession, kafka: Kafka, read: Read
) -> None:
    one, two, three = kafka.topic(), kafka.topic(2), kafka.topic()
    frame = spark.createDataFrame([(one, "a"), (two, "b"), (one, "c")], "topic string, value string")
    write(frame.coalesce(1), kafka)
    assert [value for _, _, value in records(read, one)] == [b"a", b"c"]
    assert [value for _, _, value in records(read, two)] == [b"b"]
    write(frame.coalesce(1), kafka, topic=f" {three} ")
    assert [value for _, _, value in records(read, three)] == [b"a", b"b", b"c"]


def test_timestamps_are_written_from_sparks_type_and_from_milliseconds(
    spark: SparkSession, kafka: Kafka, read: Read
) -> None:
    topic = kafka.topic()
    frame = spark.sql(
        "SELECT 'a' value, timestamp'2013-01-01 05:17:00.123456' timestamp UNION ALL SELECT 'b', NULL"
    )
    write(frame.coalesce(1), kafka, topic=topic)
    write(spark.sql("SELECT 'c' value, 1357017420123L timestamp"), kafka, topic=topic)
    stamps = read(subscribe=topic).selectExpr("value", "unix_millis(timestamp) ms").collect()
    found = {bytes(row.value).decode(): row.ms for row in stamps}
    moment = datetime(2013, 1, 1, 5, 17, tzinfo=timezone.utc)
    assert found["a"] == int(moment.timestamp() * 1000) + 123
    assert found["c"] == 1357017420123
    assert abs(found["b"] - datetime.now(timezone.utc).timestamp() * 1000) < 120_000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_compressed_sets_are_written_and_read(
    spark: SparkSession, kafka: Kafka, read: Read, codec: str
) -> None:
    topic = kafka.topic(2)
    frame = spark.range(5_000).selectExpr("cast(id AS string) key", "repeat(cast(id AS string), 20) value")
    write(frame, kafka, topic=topic, kafka__compression__type=codec)
    total = read(subscribe=topic).selectExpr("count(DISTINCT value)", "sum(length(value))").collect()[0]
    assert tuple(total) == (5_000, sum(20 * len(str(n)) for n in range(5_000)))


def test_columns_that_the_sink_does_not_know_are_left_out(
    spark: SparkSession, kafka: Kafka, read: Read
) -> None:
    topic = kafka.topic()
    frame = spark.sql("SELECT 1.5 other, 'v' VALUE, array(1) more")
    write(frame, kafka, topic=topic)
    assert records(read, topic) == [(0, None, b"v")]


def test_an_empty_dataframe_writes_nothing(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    write(spark.range(0).selectExpr("'v' value"), kafka, topic=topic)
    assert kafka.ends(topic, 1) == [0]


def test_a_topic_is_created_by_the_first_write(spark: SparkSession, kafka: Kafka, read: Read) -> None:
    write(spark.sql("SELECT 'v' value"), kafka, topic="made-by-a-write")
    assert [value for _, _, value in records(read, "made-by-a-write")] == [b"v"]


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("SELECT 'k' key", {"topic": "t"}, "the required column value is missing"),
        ("SELECT 1 value", {"topic": "t"}, "value has the unsupported type int"),
        ("SELECT 'v' value, 1L partition", {"topic": "t"}, "partition has the unsupported type bigint"),
        ("SELECT 'v' value", {}, "set the option topic, or add a column topic"),
        ("SELECT 'v' value, string(null) topic", {}, "a row has a null topic"),
        ("SELECT 'v' value, 9 partition", {"topic": "wrong-rows"}, "partition holds 9"),
        ("SELECT 'v' value, -5L timestamp", {"topic": "wrong-rows"}, "a time before 1970"),
        (
            "SELECT repeat('x', 3000) value",
            {"topic": "wrong-rows", "kafka.max.request.size": "2000"},
            "kafka.max.request.size",
        ),
        ("SELECT 'v' value", {"topic": "t", "kafka.key.serializer": "x"}, "kafka.key.serializer='x'"),
        ("SELECT 'v' value", {"topic": "t", "kafka.acks": "2"}, "must be one of all, -1, 0, 1"),
        ("SELECT 'v' value", {"topic": "t:u"}, "topic='t:u'"),
    ],
)
def test_what_cannot_be_written_fails_with_the_reason(
    spark: SparkSession, kafka: Kafka, query: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match="minikafka") as failure:
        write(spark.sql(query), kafka, **{name.replace(".", "__"): v for name, v in options.items()})
    assert said in str(failure.value)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, kafka: Kafka) -> None:
    with pytest.raises(Exception, match="must be append"):
        write(spark.sql("SELECT 'v' value"), kafka, "overwrite", topic=kafka.topic())


@pytest.mark.smoke
def test_a_stream_is_written_with_all_its_columns(
    spark: SparkSession, kafka: Kafka, read: Read, tmp_path: Path
) -> None:
    source, sink = kafka.topic(2), kafka.topic(2, config={"retention.ms": "-1"})
    for partition in range(2):
        kafka.produce(source, [f"{partition}-{n}" for n in range(50)], partition=partition)
    stream = (
        spark.readStream.format("minikafka")
        .option("kafka.bootstrap.servers", kafka.servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr(
            "value key",
            "upper(cast(value AS string)) value",
            "partition",
            "timestamp'2013-06-01 12:00:00.5' timestamp",
            f"{HEADERS} headers",
            "array(offset) more",
        )
    )
    query = (
        stream.writeStream.format("minikafka")
        .option("kafka.bootstrap.servers", kafka.servers)
        .option("topic", sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    found = records(read, sink)
    assert sorted(found) == sorted(
        (p, b"%d-%d" % (p, n), b"%d-%d" % (p, n)) for p in range(2) for n in range(50)
    )
    stamps = read(subscribe=sink).selectExpr("date_format(timestamp, 'yyyy-MM-dd HH:mm:ss.SSS') t")
    assert [row.t for row in stamps.distinct().collect()] == ["2013-06-01 12:00:00.500"]
    headers = read(subscribe=sink, includeHeaders="true").select("headers").collect()
    assert all(
        [tuple(header) for header in row.headers] == [("k", b"\x00\xff"), ("k", None)] for row in headers
    )


def test_each_task_reports_what_it_wrote() -> None:
    import pickle

    from pyspark_minikafka.writing.writer import Written

    assert repr(pickle.loads(pickle.dumps(Written(3, 120)))) == "Written(rows=3, sent_bytes=120)"
