"""Formats of keys and values with real Spark: batches, streams, and the sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import Kafka
from tests.spark.test_write import write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[..., DataFrame]

STRINGS = {"minikafka.key.format": "string", "minikafka.value.format": "string"}


def produce_bytes(kafka: Kafka, *values: bytes) -> str:
    """A new topic with ``values``."""
    from minikafka.clients.produce import BatchingConfig, BatchingProducer

    topic = kafka.topic()
    with BatchingProducer(kafka.client, BatchingConfig(acks=-1)) as producer:
        sent = [producer.send(topic, value, partition=0) for value in values]
    for delivery in sent:
        delivery.result()
    return topic


def test_strings_are_written_and_read_as_strings(spark: SparkSession, kafka: Kafka, read: Read) -> None:
    topic = kafka.topic()
    rows = [("k", "é"), ("", None), (None, "")]
    write(spark.createDataFrame(rows, "key string, value string").coalesce(1), kafka, topic=topic, **STRINGS)
    found = read(subscribe=topic, includeHeaders="true", **STRINGS)
    assert found.select("key", "value", "headers").dtypes == [
        ("key", "string"),
        ("value", "string"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert [(row.key, row.value) for row in found.orderBy("offset").collect()] == rows
    assert [row.value for row in read(subscribe=topic).orderBy("offset").collect()] == [
        "é".encode(),
        None,
        b"",
    ]


def test_bad_values_end_a_query_or_are_null(kafka: Kafka, read: Read) -> None:
    topic = produce_bytes(kafka, b"good", b"\xff")
    with pytest.raises(Exception, match=rf"the value of {topic}-0 at offset 1 .*minikafka\.bad\.values"):
        read(subscribe=topic, **STRINGS).collect()
    found = read(subscribe=topic, **STRINGS, minikafka__bad__values="permissive").orderBy("offset")
    assert [(row.value, row.value_error and row.value_error.bytes) for row in found.collect()] == [
        ("good", None),
        (None, b"\xff"),
    ]


def test_a_schema_that_is_given_must_have_the_formats_types(
    spark: SparkSession, kafka: Kafka, read: Read
) -> None:
    topic = produce_bytes(kafka, b"a")
    asked: Any = spark.read.format("minikafka").options(**STRINGS)
    asked = asked.option("kafka.bootstrap.servers", kafka.servers).option("subscribe", topic)
    assert asked.schema(read(subscribe=topic, **STRINGS).schema).load().count() == 1
    with pytest.raises(Exception, match="fixed schema"):
        asked.schema(read(subscribe=topic).schema).load().collect()


def test_a_stream_reads_and_writes_strings(
    spark: SparkSession, kafka: Kafka, read: Read, tmp_path: Path
) -> None:
    source, sink = produce_bytes(kafka, b"a", b"\xff", "é".encode()), kafka.topic()
    cluster = {"kafka.bootstrap.servers": kafka.servers, **STRINGS}
    given = {
        **cluster,
        "subscribe": source,
        "startingOffsets": "earliest",
        "minikafka.bad.values": "permissive",
    }
    stream = spark.readStream.format("minikafka").options(**given).load()
    query = (
        stream.selectExpr("cast(offset AS string) key", "coalesce(value, value_error.reason) value")
        .writeStream.format("minikafka")
        .options(**cluster)
        .option("topic", sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    found = read(subscribe=sink, **STRINGS).orderBy("key").collect()
    assert [(row.key, row.value) for row in found] == [
        ("0", "a"),
        ("1", "no UTF-8 at byte 0 (invalid start byte)"),
        ("2", "é"),
    ]


def test_bad_records_go_to_a_topic_of_their_own(spark: SparkSession, kafka: Kafka, read: Read) -> None:
    topic, dead = kafka.topic(), kafka.topic()
    rows = [("k", value, 5, [("h", b"1")]) for value in ('{"a":1}', "x", '{"a":2}')]
    columns = "key string, value string, timestamp long, headers array<struct<key:string,value:binary>>"
    write(spark.createDataFrame(rows, columns).coalesce(1), kafka, topic=topic)
    asked = {**JSON, "minikafka.value.schema": "a INT"}
    asked |= {"minikafka.bad.values": "dead-letter", "minikafka.dead.letter.topic": dead}
    assert sorted(row.a for row in read(subscribe=topic, **asked).select("value.a").collect()) == [1, 2]
    (letter,) = read(subscribe=dead, includeHeaders="true").collect()
    assert (letter.key, letter.value, letter.timestamp.timestamp()) == (b"k", b"x", 0.005)
    named = {header.key.removeprefix("__connect.errors."): header.value.decode() for header in letter.headers}
    assert named == {
        "h": "1",
        "topic": topic,
        "partition": "0",
        "offset": "1",
        "stage": "VALUE_CONVERTER",
        "exception.message": "no JSON: Expecting value at character 1",
    }


SCHEMA = (
    "i INT, d DOUBLE, m DECIMAL(5,2), s STRING, y DATE, t TIMESTAMP, n TIMESTAMP_NTZ, b BOOLEAN, x BINARY, "
    "l ARRAY<STRUCT<a: BIGINT>>, q STRUCT<r: STRING>, p MAP<STRING, INT>"
)
JSON = {"minikafka.value.format": "json"}
GOOD = (
    '{"i":1,"d":0.5,"m":1.555,"s":"é","y":"2020-01-02","b":true,"l":[{"a":1},null],"q":{"r":"x"},"p":{"k":1}}',
    '{"t":"2020-01-02T03:04:05.123456+02:00","n":"2020-01-02 03:04","x":"YWI=","more":[1,{"i":2}]}',
    '{"s":{"q":[1,"x"]},"d":"-INF","m":"2.5","y":"2020-1","t":5,"p":{"a":null}}',
    '{"d":1e999,"i":-0,"s":true,"l":[],"q":null} and more',
    "{}",
    " ",
)
"""JSON that is read as ``from_json`` reads it; the last one is null there, and bad here."""


@pytest.mark.smoke
def test_json_is_read_as_from_json_reads_it(spark: SparkSession, kafka: Kafka, read: Read) -> None:
    from pyspark.sql.functions import col, from_json

    topic = produce_bytes(kafka, *(value.encode() for value in GOOD))
    asked = {**JSON, "minikafka.value.schema": SCHEMA, "minikafka.bad.values": "permissive"}
    found = read(subscribe=topic, **asked, minikafka__columns="value,value_error,offset")
    text = col("value").cast("string")
    wanted = read(subscribe=topic).select(from_json(text, SCHEMA).alias("value"), "offset")
    assert found.schema["value"].dataType == wanted.schema["value"].dataType
    rows = found.orderBy("offset").collect()
    assert [row.value for row in rows] == [row.value for row in wanted.orderBy("offset").collect()]
    assert [row.value_error is None for row in rows] == [True] * 5 + [False]


def test_columns_are_written_as_to_json_writes_them(spark: SparkSession, kafka: Kafka, read: Read) -> None:
    from pyspark.sql.functions import col, from_json, to_json

    frame = spark.createDataFrame([(value,) for value in GOOD], "text string")
    frame = frame.select(from_json("text", SCHEMA).alias("value")).coalesce(1)
    topic = kafka.topic()
    write(frame, kafka, topic=topic, **JSON)
    found = read(subscribe=topic).orderBy("offset").select(col("value").cast("string")).collect()
    assert [row.value for row in found] == [
        row.j for row in frame.select(to_json("value").alias("j")).collect()
    ]
    write(frame.select(to_json("value").alias("value")), kafka, topic=topic, **JSON)
    values = [row.value for row in read(subscribe=topic).orderBy("offset").collect()]
    assert values[: len(GOOD)] == values[len(GOOD) :]


def test_a_stream_of_json_is_written_as_json(
    spark: SparkSession, kafka: Kafka, read: Read, tmp_path: Path
) -> None:
    source, sink = produce_bytes(kafka, b'{"a":1,"b":["x"]}', b'{"a":2}'), kafka.topic()
    cluster = {"kafka.bootstrap.servers": kafka.servers, **JSON}
    given = {"subscribe": source, "startingOffsets": "earliest"}
    given |= {"minikafka.value.schema": "a INT, b ARRAY<STRING>"}
    stream = spark.readStream.format("minikafka").options(**cluster, **given).load()
    query = (
        stream.selectExpr("named_struct('twice', 2 * value.a, 'b', value.b, 'at', timestamp) value")
        .writeStream.format("minikafka")
        .options(**cluster)
        .option("topic", sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    schema = "twice INT, b ARRAY<STRING>, at TIMESTAMP"
    rows = read(subscribe=sink, **JSON, minikafka__value__schema=schema).select("value.*").collect()
    assert sorted((row.twice, row.b) for row in rows) == [(2, ["x"]), (4, None)]
    assert all(row["at"] is not None for row in rows)


@pytest.mark.parametrize(
    "ddl",
    [
        SCHEMA,
        "a INT NOT NULL COMMENT 'x', `b c`: STRING",
        "STRUCT<a: INT, b: ARRAY<MAP<STRING, DEC(3)>>>",
        "ARRAY<TINYINT>",
        "int INT, array ARRAY<REAL>",
        "DECIMAL",
    ],
)
@pytest.mark.usefixtures("spark")
def test_schemas_are_read_as_spark_reads_them(ddl: str) -> None:
    from pyspark.sql.types import _parse_datatype_string

    from pyspark_minikafka.formats.spark_schema import nullable, parse_schema

    assert parse_schema(ddl) == nullable(_parse_datatype_string(ddl))


def test_a_schema_at_fault_is_refused_by_load(kafka: Kafka, read: Read) -> None:
    with pytest.raises(Exception, match=r"minikafka\.value\.schema='a INTT'.*'intt'"):
        read(subscribe="t", **JSON, minikafka__value__schema="a INTT")
