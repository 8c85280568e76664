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
