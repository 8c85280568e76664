"""The columns of the source and of the sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import (
    ArrayType,
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
from pyspark_minikafka.formats.query_formats import SIDES, QueryFormats
from pyspark_minikafka.formats.value_format import ColumnType, ValueFormat

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
"""The columns of a read without formats, those of Spark's Kafka connector."""

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
SCHEMA_WITH_HEADERS = StructType([*SOURCE_SCHEMA.fields, StructField("headers", HEADERS_TYPE)])
"""The columns with ``includeHeaders``. ``headers`` is null for a record without headers."""

COLUMNS = "minikafka.columns"
"""The option that selects columns."""


def stored_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the stored records of which ``columns`` are made, in their order."""
    return tuple(dict.fromkeys(name.removesuffix("_error") for name in columns))


def source_schema(columns: Sequence[str], formats: QueryFormats) -> StructType:
    """Return the schema of a read of ``columns``."""
    everything = formats.schema(SCHEMA_WITH_HEADERS)
    return StructType([everything[name] for name in columns])


def check_user_schema(schema: StructType, columns: Sequence[str], formats: QueryFormats) -> None:
    """Raise ConfigError for a schema given with ``.schema(…)`` that has other columns."""
    fixed = source_schema(columns, formats)
    given = [(field.name, field.dataType) for field in schema.fields]
    if given == [(field.name, field.dataType) for field in fixed.fields]:
        return
    known = [(field.name, field.dataType) for field in formats.schema(SCHEMA_WITH_HEADERS).fields]
    instead = ",".join(schema.names) if schema.names and all(field in known for field in given) else ""
    raise ConfigError(
        "schema",
        schema.simpleString(),
        "the source has a fixed schema and cannot be set with a custom one; its columns are "
        f"{fixed.simpleString()}{instead and f'; set the option {COLUMNS}={instead}'}",
    )


class BadColumn(MinikafkaError):
    """A column of a DataFrame that the sink cannot write."""


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
    headers: int | None = None


_ALLOWED: dict[str, tuple[DataType, ...]] = {
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS_TYPE,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(), LongType()),
}


def _same(found: DataType, wanted: DataType) -> bool:
    """Return True if the types are equal, apart from nullability."""
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        return _same(found.elementType, wanted.elementType)
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        return [f.name for f in found.fields] == [f.name for f in wanted.fields] and all(
            map(_same, [f.dataType for f in found.fields], [f.dataType for f in wanted.fields])
        )
    return isinstance(found, type(wanted))


def sink_columns(schema: StructType, topic_option: str | None, encoded: Collection[str] = ()) -> SinkColumns:
    """Find the sink's columns in ``schema``, names in any case. Raise BadColumn for one that is missing or of
    a wrong type.

    encoded: the columns that formats encode, whose types those check. Unknown columns are ignored, as Spark's
    connector does.
    """
    found: dict[str, int] = {}
    for position, column in enumerate(schema.fields):
        name = column.name.lower()
        if name not in _ALLOWED or (name == "topic" and topic_option is not None):
            continue
        if name in found:
            raise BadColumn(f"column {name} appears twice in {schema.simpleString()}")
        if name not in encoded and not any(_same(column.dataType, kind) for kind in _ALLOWED[name]):
            allowed = " or ".join(kind.simpleString() for kind in _ALLOWED[name])
            other = f", or set minikafka.{name}.format to json, avro or protobuf" if name in SIDES else ""
            raise BadColumn(
                f"column {name} has the unsupported type {column.dataType.simpleString()}; "
                f"it must be {allowed}{other}"
            )
        found[name] = position
    if "value" not in found:
        raise BadColumn(f"the required column value is missing in {schema.simpleString()}")
    if "topic" not in found and topic_option is None:
        raise BadColumn("no topic: set the option topic, or add a column topic")
    timestamp = found.get("timestamp")
    return SinkColumns(
        value=found["value"],
        key=found.get("key"),
        topic=found.get("topic"),
        partition=found.get("partition"),
        timestamp=timestamp,
        headers=found.get("headers"),
        timestamp_is_ms=timestamp is not None and isinstance(schema.fields[timestamp].dataType, LongType),
    )


def sink_formats(schema: StructType, formats: QueryFormats) -> QueryFormats:
    """Return the formats that write the columns ``key`` and ``value`` of ``schema``, names in any case. Raise
    BadColumn for a type that a format cannot write.
    """
    return _each_made(schema, formats, lambda wanted, data_type: wanted.for_column(data_type))


def topic_formats(schema: StructType, formats: QueryFormats, topic: str) -> QueryFormats:
    """Return ``formats``, which are those of ``sink_formats``, for a write to ``topic`` alone: they have the
    ids of their schemas. Raise as ``sink_formats``, or the error of the registry.
    """
    return _each_made(schema, formats, lambda wanted, data_type: wanted.for_topic(topic, data_type))


def _each_made(
    schema: StructType, formats: QueryFormats, make: Callable[[ValueFormat, DataType], ValueFormat]
) -> QueryFormats:
    """Return what ``make`` makes of the formats whose columns are there, and of the types of these."""
    types = {column.name.lower(): column.dataType for column in schema.fields}
    found = {}
    for side, wanted in formats.sides():
        if side not in types:
            continue
        try:
            found[side] = make(wanted, types[side])
        except ColumnType as problem:
            raise BadColumn(
                f"column {side} has the unsupported type {types[side].simpleString()}; with "
                f"minikafka.{side}.format it must be {problem.allowed}"
            ) from None
    return replace(formats, key=found.get("key"), value=found.get("value"))
