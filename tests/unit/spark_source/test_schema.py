"""Columns of the source and the sink."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from minikafka.base.errors import ConfigError
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.schema import SOURCE_SCHEMA, BadColumn, check_user_schema, sink_columns


def frame(**columns: object) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)  # type: ignore[arg-type]
    return schema


def test_the_source_has_the_columns_of_sparks_connector() -> None:
    assert SOURCE_SCHEMA.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int>"
    )


def test_another_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="fixed schema"):
        check_user_schema(frame(value=StringType()), False, QueryFormats())
    check_user_schema(SOURCE_SCHEMA, False, QueryFormats())
    with pytest.raises(ConfigError, match="headers:array"):
        check_user_schema(SOURCE_SCHEMA, True, QueryFormats())


def test_value_alone_is_enough_with_a_topic_option() -> None:
    columns = sink_columns(frame(value=StringType()), "t")
    assert (columns.value, columns.key, columns.topic, columns.partition) == (0, None, None, None)


def test_columns_are_found_in_any_case_and_order() -> None:
    schema = frame(
        x=DoubleType(), PARTITION=IntegerType(), Topic=StringType(), Value=BinaryType(), KEY=StringType()
    )
    columns = sink_columns(schema, None)
    assert (columns.partition, columns.topic, columns.value, columns.key) == (1, 2, 3, 4)


def test_the_topic_option_overrides_the_column() -> None:
    assert sink_columns(frame(topic=StringType(), value=StringType()), "t").topic is None
    # Then the column is not looked at, whatever it holds.
    assert sink_columns(frame(topic=LongType(), value=StringType()), "t").topic is None


def test_a_timestamp_is_sparks_own_or_milliseconds() -> None:
    assert not sink_columns(frame(value=StringType(), timestamp=TimestampType()), "t").timestamp_is_ms
    assert sink_columns(frame(value=StringType(), timestamp=LongType()), "t").timestamp_is_ms


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": StringType()}, "value is missing"),
        ({"value": IntegerType()}, "value has the unsupported type int"),
        ({"value": StringType(), "key": LongType()}, "key has the unsupported type bigint"),
        ({"value": StringType(), "topic": BinaryType()}, "topic has the unsupported type binary"),
        ({"value": StringType(), "partition": LongType()}, "partition has the unsupported type bigint"),
        ({"value": StringType(), "timestamp": StringType()}, "timestamp has the unsupported type string"),
        ({"value": StringType(), "headers": StringType()}, "headers has the unsupported type string"),
        ({"value": StringType(), "VALUE": StringType()}, "appears twice"),
    ],
)
def test_wrong_columns_are_named_with_their_types(columns: dict[str, object], said: str) -> None:
    with pytest.raises(BadColumn, match=said):
        sink_columns(frame(**columns), None if "topic" in columns else "t")


def test_a_row_must_have_a_topic_from_somewhere() -> None:
    with pytest.raises(BadColumn, match="topic"):
        sink_columns(frame(value=StringType()), None)
