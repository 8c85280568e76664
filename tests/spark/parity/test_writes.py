"""Writes: accepted columns, the routing of rows, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.parity.conftest import Source, refused
from tests.spark.parity.records import (
    BESIDE_THE_PEER,
    BY_COLUMN_OR_OPTION,
    numbers,
    only_beside_the_peer,
    sent,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows(source: Source, query: str) -> DataFrame:
    """One task, so that rows keep their order."""
    return source.spark.sql(query).coalesce(1)


def stored(source: Source, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of all records, in order of partition and offset."""
    found = source.read(subscribe=topic, includeHeaders="true").orderBy("partition", "offset")
    return [tuple(row) for row in found.select(*columns).collect()]


def test_keys_and_values_are_strings_or_bytes_or_null(source: Source) -> None:
    topic = source.kafka.topic()
    source.write(rows(source, "SELECT 'k' key, x'00ff' value"), topic=topic)
    source.write(rows(source, "SELECT x'01' key, 'é' value"), topic=topic)
    source.write(rows(source, "SELECT '' key, string(null) value"), topic=topic)
    source.write(rows(source, "SELECT '' value"), topic=topic)
    assert stored(source, topic, "key", "value") == [
        (b"k", b"\x00\xff"),
        (b"\x01", "é".encode()),
        (b"", None),
        (None, b""),
    ]


@BY_COLUMN_OR_OPTION
def test_the_topic_is_a_column_or_an_option_and_the_option_wins(source: Source, by: str) -> None:
    topic, other = source.kafka.topic(), source.kafka.topic()
    column = {"column": topic, "option": None, "both": other}[by]
    frame = rows(source, "SELECT '1' value" + (f", '{column}' topic" if column else ""))
    source.write(frame, **({} if by == "column" else {"topic": f" {topic} "}))
    assert source.values(subscribe=topic) == ["1"]
    assert source.values(subscribe=other) == []


def test_a_column_of_topics_is_not_looked_at_beside_the_option(source: Source) -> None:
    topic = source.kafka.topic()
    source.write(rows(source, "SELECT 'v' value, 1 topic"), topic=topic)
    assert source.values(subscribe=topic) == ["v"]


def test_a_null_topic_is_refused_without_the_option(source: Source) -> None:
    topic = source.kafka.topic()
    frame = rows(source, "SELECT '1' value, string(null) topic")
    refused(lambda: source.write(frame), "null topic")
    source.write(frame, topic=topic)
    assert source.values(subscribe=topic) == ["1"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 'k' key", ["required", "value"]),
        ("SELECT 1 value", ["value", "type", "int", "string", "binary"]),
        *(
            pytest.param(query, words, marks=BESIDE_THE_PEER)
            for query, words in [
                ("SELECT 'v' value, 1.5D key", ["key", "type", "double", "string", "binary"]),
                ("SELECT 'v' value, 1 topic", ["topic", "type", "int", "string"]),
                ("SELECT 'v' value, 1L partition", ["partition", "type", "bigint", "int"]),
                ("SELECT 'v' value, array('h') headers", ["headers", "type", "array<string>"]),
            ]
        ),
    ],
)
@pytest.mark.parametrize("streaming", [pytest.param("batch", marks=BESIDE_THE_PEER), "stream"])
def test_columns_of_a_wrong_type_are_refused(
    source: Source, query: str, words: list[str], streaming: str
) -> None:
    options = {} if "topic" in query else {"topic": "t"}
    if streaming == "batch":
        refused(lambda: source.write(rows(source, query), **options), *words)
        return
    topic = sent(source)
    frame = source.reading(subscribe=topic, startingOffsets="earliest").selectExpr(
        *query.removeprefix("SELECT ").split(", ")
    )
    refused(lambda: source.writing(frame, **options), *words)


def test_without_any_topic_a_write_is_refused(source: Source) -> None:
    refused(lambda: source.write(rows(source, "SELECT 'v' value")), "topic", "option")


@only_beside_the_peer
@pytest.mark.parametrize("key", ["key.serializer", "value.serializer"])
def test_serializers_are_refused(source: Source, key: str) -> None:
    frame = rows(source, "SELECT 'v' value")
    refused(lambda: source.write(frame, topic="t", **{f"kafka.{key}": "x"}), key)


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_topics_are_only_appended_to(source: Source, mode: str) -> None:
    topic = source.kafka.topic()
    refused(lambda: source.write(rows(source, "SELECT 'v' value"), mode, topic=topic), mode)
    assert source.values(subscribe=topic) == []


def test_without_a_mode_only_the_peer_writes(source: Source) -> None:
    topic = source.kafka.topic()
    frame = rows(source, "SELECT 'v' value")
    if source.is_peer:
        source.write(frame, None, topic=topic)
        assert source.values(subscribe=topic) == ["v"]
    else:
        # Spark itself: a Python source can do nothing about it.
        refused(lambda: source.write(frame, None, topic=topic), "append", "overwrite")


@only_beside_the_peer
def test_a_named_partition_wins_over_the_key(source: Source) -> None:
    topic = source.kafka.topic(3)
    frame = rows(source, "SELECT 'same' key, string(id) value, int(id % 3) partition FROM range(6)")
    source.write(frame, topic=topic)
    assert stored(source, topic, "partition", "value") == [
        (p, b"%d" % value) for p in range(3) for value in (p, p + 3)
    ]


def test_keys_go_to_the_partitions_of_kafkas_own_client(source: Source) -> None:
    topic = source.kafka.topic(7)
    source.write(rows(source, "SELECT string(id) key, 'v' value FROM range(14)"), topic=topic)
    partitions = {int(key): partition for partition, key in stored(source, topic, "partition", "key")}
    # murmur2 of the text, as the Java client of 3.9.1 places it.
    assert [partitions[number] for number in range(14)] == [3, 2, 2, 5, 6, 1, 3, 1, 2, 1, 6, 2, 4, 5]


@only_beside_the_peer
def test_a_partition_that_does_not_exist_fails_the_query(source: Source) -> None:
    topic = source.kafka.topic(2)
    frame = rows(source, "SELECT 'v' value, 5 partition")
    limits = {"kafka.max.block.ms": 3000}
    refused(lambda: source.write(frame, topic=topic, **limits), "5")


def test_headers_are_written(source: Source) -> None:
    topic = source.kafka.topic()
    header = "array(struct('h' key, x'00ff' value), struct('h' key, binary(null) value))"
    source.write(rows(source, f"SELECT 'a' value, {header} headers"), topic=topic, includeHeaders="true")
    source.write(
        rows(source, "SELECT 'b' value, CAST(null AS array<struct<key:string,value:binary>>) headers"),
        topic=topic,
    )
    source.write(rows(source, "SELECT 'c' value, slice(" + header + ", 1, 0) headers"), topic=topic)
    found = [
        (value, None if headers is None else [tuple(header) for header in headers])
        for value, headers in stored(source, topic, "value", "headers")
    ]
    assert found == [(b"a", [("h", b"\x00\xff"), ("h", None)]), (b"b", None), (b"c", None)]


@only_beside_the_peer
def test_other_columns_are_left_out(source: Source) -> None:
    topic = source.kafka.topic()
    source.write(rows(source, "SELECT 1.5 other, 'v' value, array(1) more"), topic=topic)
    assert source.values(subscribe=topic) == ["v"]


def test_large_records_go_through_a_small_buffer(source: Source) -> None:
    topic = source.kafka.topic()
    frame = rows(source, "SELECT repeat('a', 15000) value FROM range(100)")
    source.write(frame, topic=topic, **{"kafka.buffer.memory": 16384, "kafka.max.block.ms": 60000})
    assert source.read(subscribe=topic).selectExpr("sum(length(value))").collect()[0][0] == 1_500_000


@pytest.mark.parametrize(
    "codec", [pytest.param(codec, marks=BESIDE_THE_PEER) for codec in ("gzip", "snappy", "lz4", "zstd")]
)
def test_compressed_batches_are_written_and_read(source: Source, codec: str) -> None:
    topic = source.kafka.topic()
    frame = rows(source, "SELECT repeat(string(id), 20) value FROM range(1000)")
    source.write(frame, topic=topic, **{"kafka.compression.type": codec})
    assert source.read(subscribe=topic).selectExpr("count(DISTINCT value)").collect()[0][0] == 1000


@BY_COLUMN_OR_OPTION
def test_a_stream_is_written(source: Source, by: str) -> None:
    origin, topic, other = sent(source), source.kafka.topic(2), source.kafka.topic()
    column = {"column": topic, "option": other, "both": other}[by]
    columns = ["key", "value"] + ([] if by == "option" else [f"'{column}' topic"])
    frame = source.reading(subscribe=origin, startingOffsets="earliest").selectExpr(*columns)
    query = source.writing(frame, **({} if by == "column" else {"topic": topic}))
    assert source.values(subscribe=topic) == numbers(range(30))
    assert source.values(subscribe=other) == []
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 30


def aggregated(source: Source) -> DataFrame:
    frame = source.reading(subscribe=sent(source), startingOffsets="earliest")
    return frame.groupBy("partition").count().selectExpr("string(partition) key", "string(count) value")


def test_complete_results_are_appended(source: Source) -> None:
    topic = source.kafka.topic()
    source.writing(aggregated(source), "complete", topic=topic)
    assert sorted(stored(source, topic, "key", "value")) == [(b"0", b"10"), (b"1", b"10"), (b"2", b"10")]


def test_updates_are_appended_by_the_peer_alone(source: Source) -> None:
    topic = source.kafka.topic()
    if source.is_peer:
        source.writing(aggregated(source), "update", topic=topic)
        assert len(stored(source, topic, "key")) == 3
    else:
        # Spark itself: Python sinks have no update mode.
        refused(lambda: source.writing(aggregated(source), "update", topic=topic), "update")


def test_a_table_in_sql_is_read_and_written(source: Source) -> None:
    topic, view = source.kafka.topic(), f"parity_{source.kafka.topic()[2:].replace('-', '_')}"
    source.write(rows(source, "SELECT 'v' value"), topic=topic)
    options = source.options({"subscribe": topic})
    given = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    source.spark.sql(f"CREATE TEMPORARY VIEW {view} USING {source.format} OPTIONS ({given})")
    assert [row.v for row in source.spark.sql(f"SELECT string(value) v FROM {view}").collect()] == ["v"]
    source.spark.catalog.dropTempView(view)
