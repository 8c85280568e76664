"""The formats of a query: its columns, and the columns that it writes."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructType

from minikafka.base.errors import ConfigError
from pyspark_minikafka.formats.bad_values import BadValues
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.formats.string_format import StringFormat
from pyspark_minikafka.options.column_options import all_columns
from pyspark_minikafka.options.format_options import format_options
from pyspark_minikafka.schema import SOURCE_SCHEMA, BadColumn, check_user_schema, sink_formats, source_schema


def test_without_formats_the_columns_are_those_of_sparks_connector() -> None:
    assert QueryFormats(bad_values=BadValues.PERMISSIVE).schema(SOURCE_SCHEMA) == SOURCE_SCHEMA


def test_a_format_gives_its_column_another_type() -> None:
    formats = QueryFormats(value=StringFormat())
    schema = source_schema(all_columns(formats, headers=False), formats)
    assert schema.simpleString() == SOURCE_SCHEMA.simpleString().replace("value:binary", "value:string")


def test_permissive_adds_a_column_of_errors_for_each_format() -> None:
    formats = QueryFormats(StringFormat(), StringFormat(), BadValues.PERMISSIVE)
    assert (
        source_schema(all_columns(formats, headers=True), formats)
        .simpleString()
        .endswith(
            ",headers:array<struct<key:string,value:binary>>,key_error:struct<bytes:binary,reason:string>,"
            "value_error:struct<bytes:binary,reason:string>>"
        )
    )


def test_a_schema_without_the_formats_is_refused() -> None:
    formats = QueryFormats(value=StringFormat())
    with pytest.raises(ConfigError, match="value:string"):
        check_user_schema(SOURCE_SCHEMA, SOURCE_SCHEMA.names, formats)
    check_user_schema(source_schema(SOURCE_SCHEMA.names, formats), SOURCE_SCHEMA.names, formats)


def test_a_column_that_its_format_cannot_write_is_refused() -> None:
    schema = StructType().add("VALUE", IntegerType())
    with pytest.raises(BadColumn, match=r"value has the unsupported type int.*minikafka\.value\.format"):
        sink_formats(schema, QueryFormats(value=StringFormat()))


def test_options_choose_the_formats() -> None:
    given = {"minikafka.value.format": "STRING", "minikafka.bad.values": "permissive"}
    assert format_options(given) == QueryFormats(None, StringFormat(), BadValues.PERMISSIVE)
    assert format_options({"minikafka.key.format": "binary"}) == QueryFormats()


def test_all_faults_of_the_formats_are_named() -> None:
    given = {"minikafka.value.format": "xml", "minikafka.key.format": "csv", "minikafka.bad.values": "skip"}
    with pytest.raises(ConfigError) as refused:
        format_options(given)
    assert [fault.name for fault in refused.value.faults] == list(given)
    assert "binary, string" in str(refused.value)
