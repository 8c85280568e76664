"""The formats of a query: its columns, and the columns that it writes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StructType

from minikafka.base.errors import ConfigError
from pyspark_minikafka.formats.bad_values import BadValues
from pyspark_minikafka.formats.json_format import JsonFormat
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.formats.spark_schema import parse_schema
from pyspark_minikafka.formats.string_format import StringFormat
from pyspark_minikafka.options.column_options import all_columns
from pyspark_minikafka.options.format_options import format_options
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.schema import SOURCE_SCHEMA, BadColumn, check_user_schema, sink_formats, source_schema


def read_options(given: dict[str, str]) -> QueryFormats:
    return format_options(given, lambda option, path: path)


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
    assert read_options(given) == QueryFormats(None, StringFormat(), BadValues.PERMISSIVE)
    assert read_options({"minikafka.key.format": "binary"}) == QueryFormats()


def test_all_faults_of_the_formats_are_named() -> None:
    given = {"minikafka.value.format": "xml", "minikafka.key.format": "csv", "minikafka.bad.values": "skip"}
    with pytest.raises(ConfigError) as refused:
        read_options(given)
    assert [fault.name for fault in refused.value.faults] == list(given)
    assert "binary, string" in str(refused.value)


def test_json_needs_a_schema_to_be_read_and_none_to_be_written() -> None:
    given = {"minikafka.value.format": "json"}
    with pytest.raises(ConfigError, match=r"minikafka\.value\.schema: must be given with .*id BIGINT"):
        read_options(given)
    assert format_options(given, lambda option, path: path, sink=True).value == JsonFormat(None)


def test_a_schema_is_read_from_the_option_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.ddl"
    file.write_text("a INT, b STRING\n")
    wanted = QueryFormats(value=JsonFormat(parse_schema("a INT, b STRING")))
    given = {"minikafka.value.format": "json"}
    assert read_options({**given, "minikafka.value.schema": "a INT, b STRING"}) == wanted
    in_file = {**given, "minikafka.value.schema.file": "schema.ddl"}
    assert format_options(in_file, lambda option, path: str(tmp_path / path)) == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"minikafka.value.schema": "a INTT"},
            r"minikafka\.value\.schema='a INTT': must be a schema .*'intt'",
        ),
        ({"minikafka.value.schema.file": "/no/such"}, "No such file"),
        ({"minikafka.value.schema.file": "/dev/zero"}, "more than 10,000,000 bytes"),
        ({"minikafka.value.schema.file": "/"}, "Is a directory"),
        ({"minikafka.value.schema": "a INT", "minikafka.value.schema.file": "/x"}, "not both"),
        (
            {"minikafka.value.format": "string", "minikafka.value.schema": "a INT"},
            "no meaning with .*=string",
        ),
        (
            {"minikafka.value.format": "binary", "minikafka.value.schema": "a INT"},
            "no meaning with .*=binary; set the format of the schema: json, avro or protobuf",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_options({"minikafka.value.format": "json", **given})


def test_formats_are_pickled_with_the_options() -> None:
    formats = QueryFormats(value=JsonFormat(parse_schema("a INT, b ARRAY<DATE>")))
    assert pickle.loads(pickle.dumps(formats)) == formats


DEAD = {
    "minikafka.value.format": "string",
    "minikafka.bad.values": "dead-letter",
    "minikafka.dead.letter.topic": " dead ",
}


def test_dead_letters_have_a_topic() -> None:
    assert read_options(DEAD) == QueryFormats(None, StringFormat(), BadValues.DEAD_LETTER, "dead")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"minikafka.bad.values": "dead-letter"}, r"minikafka\.dead\.letter\.topic: must be given"),
        ({"minikafka.dead.letter.topic": "dead"}, r"no meaning without minikafka\.bad\.values=dead-letter"),
        ({**DEAD, "minikafka.dead.letter.topic": "a/b"}, "a/b"),
    ],
)
def test_dead_letters_without_a_valid_topic_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_options(given)


def test_a_way_for_bad_values_needs_a_format_on_a_read() -> None:
    given = {"minikafka.bad.values": "permissive"}
    with pytest.raises(
        ConfigError, match=r"bad\.values='permissive': has no meaning without .*value\.format"
    ):
        read_options(given)
    assert read_options({"minikafka.bad.values": "failfast"}) == QueryFormats()
    assert format_options(given, lambda option, path: path, sink=True).value is None


def test_a_file_that_is_no_text_is_said_to_be_none(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    file.write_bytes(b"\xff\xfe")
    for name in ("json", "avro"):
        given = {"minikafka.value.format": name, "minikafka.value.schema.file": str(file)}
        with pytest.raises(ConfigError, match=r"must be .*: it is not text in UTF-8$"):
            read_options(given)


def test_the_message_option_is_named_only_for_several_messages() -> None:
    given = {"minikafka.value.format": "protobuf", "minikafka.value.schema": "message {"}
    with pytest.raises(ConfigError) as refused:
        read_options(given)
    assert "value.message" not in str(refused.value)
    several = "syntax = 'proto3'; message A { int32 a = 1; } message B { int32 b = 1; }"
    with pytest.raises(ConfigError, match=r"several messages \(A, B\): name one of them .*value\.message"):
        read_options({**given, "minikafka.value.schema": several})


@pytest.mark.parametrize(
    "topics", [{"subscribe": "a,dead"}, {"assign": '{"dead":[0]}'}, {"subscribePattern": "d.*"}]
)
def test_dead_letters_are_not_sent_to_a_topic_that_is_read(topics: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="must not be among the topics that are read"):
        source_options({**topics, **DEAD}, Mode.STREAM)
    others = {name: text.replace("d", "x") for name, text in topics.items()}
    assert source_options({**others, **DEAD}, Mode.STREAM).formats.dead_letter_topic == "dead"
