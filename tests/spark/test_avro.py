"""Avro with real Spark: values become columns and columns values, as with Spark's own functions."""

from __future__ import annotations

import datetime
import io
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from tests.spark import peer
from tests.spark.conftest import Kafka
from tests.spark.test_formats import produce_bytes
from tests.spark.test_write import write
from tests.support.schema_registry import schema_registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[..., DataFrame]

AVRO = {"minikafka.value.format": "avro"}
UTC = datetime.timezone.utc
TIME = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
TYPES: Any = {
    "type": "record",
    "name": "Event",
    "namespace": "ns",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": ["null", "long"]},
        {"name": "part", "type": "float"},
        {"name": "real", "type": ["double", "null"]},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "until", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {
            "name": "tax",
            "type": {
                "type": "fixed",
                "name": "Tax",
                "size": 9,
                "logicalType": "decimal",
                "precision": 20,
                "scale": 3,
            },
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "one", "type": ["int", "string", "null"]},
        {"name": "number", "type": ["int", "long"]},
        {
            "name": "inner",
            "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}],
        },
    ],
}


def event(number: int) -> dict[str, Any]:
    odd = number % 2 == 1
    return {
        "flag": odd,
        "small": -number,
        "large": None if odd else 2**40 + number,
        "part": 0.5 * number,
        "real": None if odd else 1.25,
        "raw": bytes([number]),
        "text": None if odd else "é€😀",
        "day": datetime.date(2026, 1, 2),
        "at": TIME,
        "until": None if odd else TIME + datetime.timedelta(microseconds=7),
        "local": TIME.replace(tzinfo=None),
        "price": Decimal("-12345.67") * number,
        "tax": Decimal("12345678901234567.891"),
        "kind": "OLD" if odd else "NEW",
        "code": b"ab",
        "tags": ["a", None] * (number % 3),
        "counts": {"k": number} if odd else {},
        "one": (7, "seven", None)[number % 3],
        "number": number,
        "inner": None if odd else {"x": number},
    }


def binary(value: Any, schema: Any = TYPES) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


@pytest.fixture
def events(kafka: Kafka) -> str:
    """A topic with events, as another writer writes them."""
    return produce_bytes(kafka, *(binary(event(number)) for number in range(1, 8)))


def needs_spark_avro() -> None:
    reason = peer.missing()
    if reason is not None:
        pytest.skip(reason)


def test_values_become_columns(events: str, read: Read) -> None:
    found = read(subscribe=events, **AVRO, minikafka__value__schema=json.dumps(TYPES))
    rows = found.orderBy("offset").select("value.*").collect()
    assert len(rows) == 7
    row = rows[1].asDict(recursive=True)
    assert {name: row[name] for name in ("large", "text", "price", "kind", "tags", "counts", "inner")} == {
        "large": 2**40 + 2,
        "text": "é€😀",
        "price": Decimal("-24691.34"),
        "kind": "NEW",
        "tags": ["a", None, "a", None],
        "counts": {},
        "inner": {"x": 2},
    }
    assert [rows[0].one.member1, row["one"], rows[2].one.member0] == ["seven", None, 7]


def test_columns_become_what_other_readers_read(spark: SparkSession, kafka: Kafka, read: Read) -> None:
    topic = kafka.topic()
    rows = spark.createDataFrame([(1, "x"), (2, None)], "id bigint, note string").coalesce(1)
    write(rows.selectExpr("struct(id, note) value"), kafka, topic=topic, **AVRO)
    schema = {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [{"name": "id", "type": ["long", "null"]}, {"name": "note", "type": ["string", "null"]}],
    }
    found = [bytes(row.value) for row in read(subscribe=topic).orderBy("offset").collect()]
    assert [fastavro.schemaless_reader(io.BytesIO(one), schema, None) for one in found] == [
        {"id": 1, "note": "x"},
        {"id": 2, "note": None},
    ]
    again = read(subscribe=topic, **AVRO, minikafka__value__schema=json.dumps(schema))
    assert [tuple(row.value) for row in again.orderBy("offset").collect()] == [(1, "x"), (2, None)]


def test_bad_values_are_null_with_their_reason(kafka: Kafka, read: Read) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}'
    topic = produce_bytes(kafka, b"\x04hi", b"\x04h", b"\x02\xff")
    asked = {**AVRO, "minikafka__value__schema": schema}
    with pytest.raises(Exception, match=rf"the value of {topic}-0 at offset 1 .*s: a length"):
        read(subscribe=topic, **asked).collect()
    found = read(subscribe=topic, **asked, minikafka__bad__values="permissive").orderBy("offset").collect()
    assert [(row.value and row.value.s, row.value_error and row.value_error.reason) for row in found] == [
        ("hi", None),
        (None, "s: a length is negative or beyond the value's end"),
        (None, "s: a string is not UTF-8"),
    ]


def test_columns_are_those_of_from_avro(events: str, read: Read) -> None:
    needs_spark_avro()
    from pyspark.sql.avro.functions import from_avro

    schema = json.dumps(TYPES)
    ours = read(subscribe=events, **AVRO, minikafka__value__schema=schema).orderBy("offset")
    theirs = read(subscribe=events).orderBy("offset").select(from_avro("value", schema).alias("value"))
    assert ours.select("value.*").schema == theirs.select("value.*").schema
    assert ours.select("value").collect() == theirs.collect()


def test_values_are_those_of_to_avro(events: str, spark: SparkSession, kafka: Kafka, read: Read) -> None:
    needs_spark_avro()
    from pyspark.sql.avro.functions import to_avro

    found = read(subscribe=events, **AVRO, minikafka__value__schema=json.dumps(TYPES)).coalesce(1)
    rows = found.selectExpr("struct(value.*) value").cache()
    for schema in (None, json.dumps(TYPES)):
        topic = kafka.topic()
        given = {} if schema is None else {"minikafka.value.schema": schema}
        write(rows, kafka, topic=topic, **AVRO, **given)
        theirs = rows.select(to_avro("value", *([] if schema is None else [schema])).alias("value"))
        written = read(subscribe=topic).orderBy("offset").select("value").collect()
        assert written == theirs.collect()


OLD: Any = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": ["null", "string"]}],
}
NEW: Any = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "note", "type": "string", "default": "?"}, {"name": "id", "type": "long"}],
}
OF_OLD = [binary({"id": 1, "gone": "x"}, OLD), binary({"id": 2, "gone": None}, OLD)]
AS_NEW = [("?", 1), ("?", 2)]


def test_values_of_several_schemas_of_a_registry_are_rows_of_one(
    spark: SparkSession, kafka: Kafka, read: Read
) -> None:
    with schema_registry() as registry:
        asked = {**AVRO, "minikafka.schema.registry.url": registry.url}
        topic = kafka.topic()
        ids = [registry.add(f"{topic}-value", json.dumps(one)) for one in (OLD, NEW)]
        framed = [(bytearray(b"\0" + struct.pack(">I", ids[0]) + content),) for content in OF_OLD]
        write(spark.createDataFrame(framed, "value binary").coalesce(1), kafka, topic=topic)
        rows = spark.createDataFrame([(3, "c"), (4, "d")], "id bigint, note string").coalesce(1)
        latest = {"minikafka.use.latest.version": "true"}
        write(rows.selectExpr("struct(id, note) value"), kafka, topic=topic, **asked, **latest)
        found = read(subscribe=topic, **asked).orderBy("offset").select("value.*")
        assert found.dtypes == [("note", "string"), ("id", "bigint")]
        assert [tuple(row) for row in found.collect()] == [*AS_NEW, ("c", 3), ("d", 4)]


def test_from_avro_resolves_to_the_same_rows(spark: SparkSession) -> None:
    needs_spark_avro()
    from pyspark.sql.avro.functions import from_avro

    values = spark.createDataFrame([(bytearray(one),) for one in OF_OLD], "value binary")
    resolved = from_avro("value", json.dumps(OLD), {"avroSchema": json.dumps(NEW)})
    found = values.select(resolved.alias("value")).select("value.*")
    assert sorted(tuple(row) for row in found.collect()) == AS_NEW
