"""Columns: what the source gives, and what the sink takes."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from minikafka.base.errors import ConfigError, MinikafkaError

SOURCE_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""The columns of every read, those of Spark's Kafka connector. Rows carry no headers yet."""


def check_user_schema(schema: StructType) -> None:
    """Refuse a schema given with ``.schema(…)``: the columns are fixed."""
    if [(f.name, f.dataType) for f in schema.fields] != [(f.name, f.dataType) for f in SOURCE_SCHEMA.fields]:
        raise ConfigError(
            "schema",
            schema.simpleString(),
            f"the source has a fixed schema, which no other can replace: {SOURCE_SCHEMA.simpleString()}",
        )


class BadColumn(MinikafkaError):
    """A DataFrame that cannot be written as it is."""


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Positions of the columns that the sink knows; None where one is absent.

    timestamp_is_ms: the timestamp column holds milliseconds as a long rather than Spark's timestamp.
    """

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    timestamp: int | None
    timestamp_is_ms: bool


_ALLOWED: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, LongType),
}


def sink_columns(schema: StructType, topic_option: str | None) -> SinkColumns:
    """Find the sink's columns in ``schema``, names in any case; BadColumn says what is missing or of a
    wrong type.

    Columns that the sink does not know are left out, as Spark's connector leaves them out.
    """
    found: dict[str, int] = {}
    for position, column in enumerate(schema.fields):
        name = column.name.lower()
        if name == "headers":
            raise BadColumn(f"column headers ({column.dataType.simpleString()}): not supported yet, drop it")
        if name not in _ALLOWED:
            continue
        if name in found:
            raise BadColumn(f"column {name} stands twice in {schema.simpleString()}")
        if not isinstance(column.dataType, _ALLOWED[name]):
            allowed = " or ".join(kind().simpleString() for kind in _ALLOWED[name])
            raise BadColumn(
                f"column {name} has the unsupported type {column.dataType.simpleString()}; "
                f"it must be {allowed}"
            )
        found[name] = position
    if "value" not in found:
        raise BadColumn(f"the required column value is missing in {schema.simpleString()}")
    if "topic" not in found and topic_option is None:
        raise BadColumn("no topic: give the option topic, or a column topic")
    timestamp = found.get("timestamp")
    return SinkColumns(
        value=found["value"],
        key=found.get("key"),
        topic=None if topic_option is not None else found.get("topic"),
        partition=found.get("partition"),
        timestamp=timestamp,
        timestamp_is_ms=timestamp is not None and isinstance(schema.fields[timestamp].dataType, LongType),
    )
