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
from pyspark_minikafka.formats.bad_values import BadValues
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.formats.string_format import StringFormat
from pyspark_minikafka.options.column_options import selected_columns
from pyspark_minikafka.schema import (
    SCHEMA_WITH_HEADERS,
    SOURCE_SCHEMA,
    BadColumn,
    check_user_schema,
    sink_columns,
    source_schema,
    stored_columns,
)


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
        check_user_schema(frame(value=StringType()), SOURCE_SCHEMA.names, QueryFormats())
    check_user_schema(SOURCE_SCHEMA, SOURCE_SCHEMA.names, QueryFormats())
    with pytest.raises(ConfigError, match="headers:array"):
        check_user_schema(SOURCE_SCHEMA, SCHEMA_WITH_HEADERS.names, QueryFormats())


def test_the_columns_of_a_read_are_those_selected_in_their_order() -> None:
    columns = selected_columns("offset, VALUE,headers,timestamptype", QueryFormats())
    assert columns == ("offset", "value", "headers", "timestampType")
    schema = source_schema(columns[:2], QueryFormats())
    assert schema.simpleString() == "struct<offset:bigint,value:binary>"
    check_user_schema(schema, columns[:2], QueryFormats())


def test_a_schema_of_fewer_columns_is_refused_with_the_option() -> None:
    with pytest.raises(ConfigError, match=r"set the option minikafka\.columns=offset,value"):
        check_user_schema(frame(offset=LongType(), value=BinaryType()), SOURCE_SCHEMA.names, QueryFormats())


def test_columns_of_bad_values_can_be_selected_where_there_are_some() -> None:
    formats = QueryFormats(value=StringFormat(), bad_values=BadValues.PERMISSIVE)
    assert selected_columns("value_error,offset", formats) == ("value_error", "offset")
    assert stored_columns(("value_error", "offset", "value")) == ("value", "offset")
    with pytest.raises(ValueError, match="value_error is there only with"):
        selected_columns("value_error", QueryFormats(value=StringFormat()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vlaue", "unknown column vlaue; did you mean value?"),
        ("timestamp_type", "unknown column timestamp_type; did you mean timestampType?"),
        ("value,xyz", "unknown column xyz; expected some of key, value, topic, .*headers"),
        ("value,offset,Value", "column value appears twice"),
        ("", "must name columns"),
        ("value,,offset", "must name columns"),
        (" , ", "must name columns"),
    ],
)
def test_a_selection_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        selected_columns(text, QueryFormats())


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


def test_a_column_without_a_format_says_which_option_writes_it() -> None:
    for side, columns in {"value": {}, "key": {"value": StringType()}}.items():
        with pytest.raises(BadColumn, match=rf"or set minikafka\.{side}\.format to json, avro or protobuf$"):
            sink_columns(frame(**columns, **{side: frame(a=LongType())}), "t")


def test_a_row_must_have_a_topic_from_somewhere() -> None:
    with pytest.raises(BadColumn, match="topic"):
        sink_columns(frame(value=StringType()), None)
