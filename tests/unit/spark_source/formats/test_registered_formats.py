"""Values with the id of a schema in a registry: JSON and protobuf, read and written."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, StringType, StructType

from minikafka.base.errors import ConfigError, ConfigErrors, NetworkError
from minikafka.clients.schema_registry.client import SchemaNotFound, SchemaRegistryError
from minikafka.records.protobuf import ProtobufError, parse_proto, schema_text
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.formats.spark_schema import parse_schema
from pyspark_minikafka.formats.value_format import ColumnType, ValueFormat, arrow_type
from pyspark_minikafka.options.format_options import format_options
from pyspark_minikafka.schema import BadColumn, topic_formats
from tests.support.protobuf_messages import messages, runtime_class
from tests.support.schema_registry import SchemaRegistry, schema_registry

ORDERS = """
syntax = "proto3";
package shop;
message Other { string x = 9; }
message Order { int64 id = 1; string name = 2; message Line { int32 n = 1; } }
"""
NEWER = ORDERS.replace("string name = 2;", "string name = 2; bool paid = 3;")
SCHEMA = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}})


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as registry:
        yield registry


def value_format(
    registry: SchemaRegistry, *, sink: bool = False, column: DataType | None = None, **options: str
) -> Any:
    given = {"minikafka.schema.registry.url": registry.url, "minikafka.schema.registry.max.retries": "0"}
    given |= {"topic": "orders"} if sink else {"subscribe": "orders"}
    given |= {f"minikafka.{name.replace('_', '.')}": text for name, text in options.items()}
    schema = None if column is None else StructType().add("value", column)
    found = format_options(
        {k: v for k, v in given.items() if v}, lambda option, path: path, sink=sink, schema=schema
    ).value
    assert found is not None
    return pickle.loads(pickle.dumps(found))


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + content


def column(data_type: DataType, rows: list[Any]) -> pa.Array:
    return pa.array(rows, arrow_type(data_type))


def read(found: ValueFormat, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    decoded = found.decode(pa.array(values, pa.binary()), "orders")
    assert decoded.column.type == arrow_type(found.data_type())
    return decoded.column.to_pylist(), dict(zip(decoded.bad.tolist(), decoded.reasons, strict=True))


def test_json_is_read_behind_the_id(registry: SchemaRegistry) -> None:
    number = registry.add("orders-value", SCHEMA, "JSON")
    found = value_format(registry, value_format="json")
    assert found.data_type().simpleString() == "struct<id:bigint,name:string>"
    rows, bad = read(found, framed(number, b'{"id":1}'), None, b'{"id":2}', framed(number, b"{"))
    assert rows == [{"id": 1, "name": None}, None, None, None]
    assert set(bad) == {2, 3}
    assert "does not begin with byte 0 and a schema's id" in bad[2]


def test_reading_json_asks_for_one_schema(registry: SchemaRegistry) -> None:
    number = registry.add("orders-value", SCHEMA, "JSON")
    found = value_format(registry, value_format="json")
    for _ in range(3):
        read(found, *[framed(number, b'{"id":1}')] * 10)
    assert registry.requests == [("GET", "/subjects/orders-value/versions/latest?format=serialized")]


def test_json_is_written_with_the_id_of_its_schema(registry: SchemaRegistry) -> None:
    kind = parse_schema("id BIGINT, at TIMESTAMP, tags ARRAY<STRING>")
    found = value_format(registry, sink=True, value_format="json").for_column(kind)
    rows = column(kind, [{"id": 1, "at": None, "tags": ["a"]}, None])
    first, second = found.encode(rows, "orders").to_pylist()
    assert first[:5] == b"\0\0\0\0\1"
    assert second is None
    (schema,) = registry.versions("orders-value")
    assert schema["schemaType"] == "JSON"
    again = value_format(registry, value_format="json")
    assert again.data_type() == kind
    assert read(again, first)[0][0]["tags"] == ["a"]


@pytest.mark.parametrize(
    ("schema_type", "old", "new", "options"),
    [
        ("JSON", SCHEMA, SCHEMA.replace("integer", "string"), {}),
        ("PROTOBUF", ORDERS, NEWER, {"value_message": "shop.Order"}),
        ("PROTOBUF", ORDERS, 'syntax = "proto3"; message Another { int32 n = 1; }', {}),
        (
            "PROTOBUF",
            ORDERS,
            'syntax = "proto3"; message A { int32 n = 1; }',
            {"value_message": "shop.Order"},
        ),
    ],
)
def test_type_that_spark_has_fixed_is_that_of_an_older_version(
    registry: SchemaRegistry, schema_type: str, old: str, new: str, options: dict[str, str]
) -> None:
    asked = {"value_format": schema_type.lower(), **options}
    registry.add("orders-value", old, schema_type)
    column = value_format(registry, **asked).data_type()
    registry.add("orders-value", new, schema_type)
    assert value_format(registry, column=column, **asked).data_type() == column
    other = StructType().add("other", column)
    with pytest.raises(ConfigErrors, match=r"no version of the subject orders-value .*\(version 2 "):
        value_format(registry, column=other, **asked)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"value_format": "json"}, b"\0\0\0\0\1" + b'{"id":5}'),
        (
            {"value_format": "protobuf", "value_message": "shop.Order", "value_schema": ORDERS},
            b"\0\0\0\0\1\x02\x02\x08\x05",
        ),
    ],
)
def test_write_to_one_topic_asks_on_the_driver_alone(
    registry: SchemaRegistry, options: dict[str, str], expected: bytes
) -> None:
    kind = parse_schema("id BIGINT")
    found = value_format(registry, sink=True, **options).for_column(kind).for_topic("orders", kind)
    sent = pickle.dumps(found)
    assert registry.url.encode() not in sent
    registry.close()
    assert pickle.loads(sent).encode(column(kind, [{"id": 5}]), "orders").to_pylist() == [expected]


def test_message_is_named_by_its_place_in_the_latest_schema(registry: SchemaRegistry) -> None:
    moved = 'syntax = "proto3"; package shop; message New { int32 n = 1; }' + ORDERS.split("package shop;")[1]
    registry.add("orders-value", moved, "PROTOBUF")
    options = {"value_message": "shop.Order", "value_schema": ORDERS, "use_latest_version": "true"}
    kind = parse_schema("id BIGINT")
    found = value_format(registry, sink=True, value_format="protobuf", **options).for_column(kind)
    assert found.encode(column(kind, [{"id": 5}]), "orders")[0].as_py() == b"\0\0\0\0\1\x02\x04\x08\x05"


def test_latest_schema_without_the_message_is_refused(registry: SchemaRegistry) -> None:
    registry.add("orders-value", 'syntax = "proto3"; message A { int32 n = 1; }', "PROTOBUF")
    options = {"value_message": "shop.Order", "value_schema": ORDERS, "use_latest_version": "true"}
    kind = parse_schema("id BIGINT")
    found = value_format(registry, sink=True, value_format="protobuf", **options).for_column(kind)
    with pytest.raises(ProtobufError, match=r"schema 1 has no message shop\.Order; it has A"):
        found.for_topic("orders", kind)


def test_schema_without_a_message_is_refused(registry: SchemaRegistry) -> None:
    registry.add("orders-value", 'syntax = "proto3"; enum A { B = 0; }', "PROTOBUF")
    with pytest.raises(ConfigErrors, match="schema 1 has no message"):
        value_format(registry, value_format="protobuf")


def test_protobuf_is_read_by_indexes_behind_the_id(registry: SchemaRegistry) -> None:
    number = registry.add("orders-value", ORDERS, "PROTOBUF")
    found = value_format(registry, value_format="protobuf", value_message="shop.Order")
    rows, bad = read(
        found,
        framed(number, b"\x02\x02\x08\x07"),
        framed(number, b"\x00\x4a\x01a"),
        framed(number, b"\x04\x02\x00\x08\x01"),
        framed(number, b"\x02\x80"),
        framed(number, b"\x02\x09"),
        framed(number, b"\x02\x08"),
        framed(99, b"\x02\x02"),
        framed(number, b""),
        None,
    )
    assert rows[0] == {"id": 7, "name": None}
    assert rows[1:] == [None] * 8
    assert {row: reason[:60] for row, reason in bad.items()} == {
        1: "it is a message shop.Other, not shop.Order",
        2: "it is a message shop.Order.Line, not shop.Order",
        3: "the message indexes behind the schema's id are cut off or in",
        4: "the message indexes behind the schema's id are cut off or in",
        5: "schema 1 has no message with the indexes 4",
        6: bad[6][:60],
        7: "the message indexes behind the schema's id are cut off or in",
    }
    assert bad[6].startswith("schema 99: schema 99: refused by ")


def test_first_message_of_a_schema_is_the_default(registry: SchemaRegistry) -> None:
    registry.add("orders-value", ORDERS, "PROTOBUF")
    assert value_format(registry, value_format="protobuf").message.name == "shop.Other"


def test_versions_in_one_batch_are_read_by_the_querys_type(registry: SchemaRegistry) -> None:
    old = registry.add("orders-value", ORDERS, "PROTOBUF")
    found = value_format(registry, value_format="protobuf", value_message="shop.Order")
    new = registry.add("orders-value", NEWER, "PROTOBUF")
    rows, bad = read(found, framed(old, b"\x02\x02\x08\x07"), framed(new, b"\x02\x02\x08\x08\x18\x01"))
    assert rows == [{"id": 7, "name": None}, {"id": 8, "name": None}]
    assert not bad


def test_each_schema_of_a_topic_is_asked_for_once(registry: SchemaRegistry) -> None:
    number = registry.add("orders-value", ORDERS, "PROTOBUF")
    found = value_format(registry, value_format="protobuf", value_message="shop.Order")
    before = len(registry.requests)
    for _ in range(3):
        read(found, *[framed(number, b"\x02\x02\x08\x07")] * 10)
    assert registry.requests[before:] == [("GET", f"/schemas/ids/{number}?format=serialized")]


def test_protobuf_is_written_with_schema_and_indexes(registry: SchemaRegistry, tmp_path: Any) -> None:
    path = tmp_path / "orders.proto"
    path.write_text(ORDERS)
    found = value_format(
        registry, sink=True, value_format="protobuf", value_message="shop.Order", value_schema_file=str(path)
    )
    kind = parse_schema("name STRING, id BIGINT")
    written = (
        found.for_column(kind).encode(column(kind, [{"name": "a", "id": 5}, None]), "orders").to_pylist()
    )
    assert written == [b"\0\0\0\0\1\x02\x02\x08\x05\x12\x01a", None]
    again = value_format(registry, value_format="protobuf", value_message="shop.Order")
    assert read(again, written[0])[0] == [{"id": 5, "name": "a"}]


def test_imports_are_registered_as_references(registry: SchemaRegistry, tmp_path: Any) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    common = parse_proto('syntax = "proto3"; package c; message Common { int32 a = 1; }')
    common.name = "common.proto"
    user = parse_proto(
        'syntax = "proto3"; package u; import "common.proto"; import "google/protobuf/timestamp.proto"; '
        "message User { c.Common common = 1; google.protobuf.Timestamp at = 2; }"
    )
    user.name = "user.proto"
    path = tmp_path / "set.bin"
    path.write_bytes(FileDescriptorSet(file=[common, user]).SerializeToString())
    found = value_format(
        registry, sink=True, value_format="protobuf", value_message="u.User", value_schema_file=str(path)
    )
    kind = parse_schema("common STRUCT<a: INT>")
    (written,) = found.for_column(kind).encode(column(kind, [{"common": {"a": 3}}]), "orders").to_pylist()
    assert registry.versions("orders-value")[0]["references"] == [
        {"name": "common.proto", "subject": "common.proto", "version": 1}
    ]
    again = value_format(registry, value_format="protobuf")
    assert read(again, written)[0] == [{"common": {"a": 3}, "at": None}]


def test_write_without_a_descriptor_takes_the_newest_schema(registry: SchemaRegistry) -> None:
    registry.add("orders-value", ORDERS, "PROTOBUF")
    found = value_format(registry, sink=True, value_format="protobuf", value_message="shop.Order")
    kind = parse_schema("id BIGINT")
    assert found.for_column(kind).encode(column(kind, [{"id": 5}]), "orders")[0].as_py() == (
        b"\0\0\0\0\1\x02\x02\x08\x05"
    )
    assert len(registry.versions("orders-value")) == 1


def test_write_that_may_not_register_needs_the_schema(registry: SchemaRegistry) -> None:
    found = value_format(registry, sink=True, value_format="json", auto_register_schemas="false")
    found = found.for_column(parse_schema("id BIGINT"))
    with pytest.raises(SchemaNotFound, match="subject 'orders-value': looking up its schema"):
        found.encode(column(parse_schema("id BIGINT"), [{"id": 1}]), "orders")
    assert registry.versions("orders-value") == []


def test_latest_version_is_named_in_place_of_a_writes_own(registry: SchemaRegistry) -> None:
    registry.add("orders-value", SCHEMA, "JSON")
    found = value_format(registry, sink=True, value_format="json", use_latest_version="true")
    found = found.for_column(parse_schema("id BIGINT"))
    assert (
        found.encode(column(parse_schema("id BIGINT"), [{"id": 1}]), "orders")[0].as_py()[:5] == b"\0\0\0\0\1"
    )
    assert len(registry.versions("orders-value")) == 1


def test_column_that_the_latest_version_cannot_have_is_refused(registry: SchemaRegistry) -> None:
    registry.add("orders-value", SCHEMA, "JSON")
    kind = parse_schema("id STRING")
    found = value_format(registry, sink=True, value_format="json", use_latest_version="true").for_column(kind)
    with pytest.raises(BadColumn) as refused:
        topic_formats(StructType().add("value", kind), QueryFormats(value=found), "orders")
    assert str(refused.value) == (
        "column value has the unsupported type struct<id:string>; with minikafka.value.format it must be a "
        "type that schema 1 of the schema registry can have (value.id is integer, not string)"
    )


def test_names_of_a_schema_do_not_break_the_line_of_an_error(registry: SchemaRegistry) -> None:
    registry.add("orders-value", json.dumps({"required": ["a\nb"]}), "JSON")
    kind = parse_schema("id STRING")
    found = value_format(registry, sink=True, value_format="json", use_latest_version="true").for_column(kind)
    with pytest.raises(ColumnType, match=r"value requires a\\nb, which the column does not have"):
        found.for_topic("orders", kind)


def test_column_of_json_texts_is_written_with_any_latest_version(registry: SchemaRegistry) -> None:
    registry.add("orders-value", SCHEMA, "JSON")
    kind = StringType()
    found = value_format(registry, sink=True, value_format="json", use_latest_version="true").for_column(kind)
    written = found.for_topic("orders", kind).encode(column(kind, ['{"id":1}']), "orders")
    assert written.to_pylist() == [framed(1, b'{"id":1}')]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "orders-shop.Order"),
    ],
)
def test_subject_is_named_by_the_strategy(
    registry: SchemaRegistry, tmp_path: Any, strategy: str, subject: str
) -> None:
    options = {
        "value_format": "protobuf", "value_message": "shop.Order", "value_subject_name_strategy": strategy
    }  # fmt: skip
    found = value_format(registry, sink=True, value_schema=ORDERS, **options)
    kind = parse_schema("id BIGINT")
    found.for_column(kind).encode(column(kind, [{"id": 5}]), "orders")
    assert len(registry.versions(subject)) == 1
    assert value_format(registry, **options).message.name == "shop.Order"


def test_key_has_a_subject_of_its_own(registry: SchemaRegistry) -> None:
    registry.add("orders-key", SCHEMA, "JSON")
    options = {
        "minikafka.key.format": "json",
        "minikafka.schema.registry.url": registry.url,
        "subscribe": "orders",
    }
    found = format_options(options, lambda option, path: path)
    assert found.key is not None
    assert found.value is None


def test_registry_that_is_away_fails_a_task_and_is_no_bad_value(registry: SchemaRegistry) -> None:
    number = registry.add("orders-value", ORDERS, "PROTOBUF")
    found = value_format(registry, value_format="protobuf", value_message="shop.Order")
    registry.close()
    with pytest.raises(NetworkError, match="cannot reach the schema registry"):
        read(found, framed(number, b"\x02\x02\x08\x07"))
    registry.restart()
    assert read(found, framed(number, b"\x02\x02\x08\x07"))[1] == {}


def test_refused_login_fails_a_task_and_is_no_bad_value(registry: SchemaRegistry) -> None:
    number = registry.add("orders-value", ORDERS, "PROTOBUF")
    found = value_format(registry, value_format="protobuf", value_message="shop.Order")
    registry.refusals = [(401, {"error_code": 401, "message": "Unauthorized"})]
    with pytest.raises(SchemaRegistryError, match="status 401"):
        read(found, framed(number, b"\x02\x02\x08\x07"))


def test_schema_of_another_type_makes_values_bad(registry: SchemaRegistry) -> None:
    registry.add("orders-value", ORDERS, "PROTOBUF")
    other = registry.add("other", '"int"')
    found = value_format(registry, value_format="protobuf", value_message="shop.Order")
    assert "is of the type AVRO, not PROTOBUF" in read(found, framed(other, b"\x02\x02"))[1][0]


def test_descriptor_in_base64_is_read_as_its_text(registry: SchemaRegistry) -> None:
    registry.add("orders-value", schema_text(parse_proto(ORDERS)), "PROTOBUF")
    assert (
        value_format(registry, value_format="protobuf", value_message="shop.Order").message.name
        == "shop.Order"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "subject 'orders-value', version latest: refused by"),
        ({"value_message": "shop.None"}, "or give minikafka.value.schema.file"),
        (
            {"value_subject_name_strategy": "RecordNameStrategy"},
            "minikafka.value.message: must be given with RecordNameStrategy",
        ),
        ({"value_subject_name_strategy": "x"}, "must be one of TopicNameStrategy, RecordNameStrategy"),
        ({"use_latest_version": "true", "auto_register_schemas": "true"}, "does one of the two"),
        ({"schema_registry_max_retry": "1"}, "did you mean minikafka.schema.registry.max.retries?"),
        ({"schema_registry_url": ""}, "minikafka.schema.registry.url: must be given"),
    ],
)
def test_fault_is_explained(registry: SchemaRegistry, options: dict[str, str], expected: str) -> None:
    with pytest.raises((ConfigError, SchemaNotFound)) as refused:
        value_format(registry, value_format="protobuf", **options)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_topics_with_different_schemas_need_the_option(registry: SchemaRegistry) -> None:
    registry.add("a-value", SCHEMA, "JSON")
    registry.add("b-value", SCHEMA, "JSON")
    options = {
        "minikafka.value.format": "json",
        "minikafka.schema.registry.url": registry.url,
        "subscribe": "a,b",
    }
    assert format_options(options, lambda option, path: path).value is not None
    registry.add("b-value", '{"type":"string"}', "JSON")
    with pytest.raises(
        ConfigErrors, match=r"minikafka.value.schema: must be given, as the subjects a-value, b-value"
    ):
        format_options(options, lambda option, path: path)


def test_pattern_of_topics_needs_the_option(registry: SchemaRegistry) -> None:
    options = {
        "minikafka.value.format": "json",
        "minikafka.schema.registry.url": registry.url,
        "subscribepattern": "a.*",
    }
    with pytest.raises(ConfigErrors, match="must be given where the options do not name the topics"):
        format_options(options, lambda option, path: path)


def test_registry_without_a_format_is_refused() -> None:
    with pytest.raises(
        ConfigErrors, match=r"has a meaning only with minikafka.value.format=json, avro or protobuf"
    ):
        format_options({"minikafka.schema.registry.url": "http://a"}, lambda option, path: path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("minikafka.auto.register.schemas", "maybe"),
        ("minikafka.use.latest.version", "true"),
        ("minikafka.normalize.schemas", "maybe"),
        ("minikafka.value.subject.name.strategy", "x"),
    ],
)
def test_options_of_a_registry_need_one(name: str, value: str) -> None:
    given = {"minikafka.value.format": "json", name: value, "topic": "t"}
    with pytest.raises(ConfigErrors, match=f"{name}='{value}': has no meaning without minikafka.schema"):
        format_options(given, lambda option, path: path, sink=True)


def test_subject_of_a_side_without_a_schema_is_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(ConfigErrors, match=r"minikafka\.key\.subject\.name\.strategy='x': has no meaning"):
        value_format(registry, sink=True, value_format="json", key_subject_name_strategy="x")


def test_registry_without_a_format_is_named_by_its_address() -> None:
    given = {"minikafka.schema.registry.max.retries": "1", "minikafka.schema.registry.url": "http://u:p@a"}
    with pytest.raises(ConfigErrors, match=r"minikafka\.schema\.registry\.url: has a meaning") as refused:
        format_options(given, lambda option, path: path)
    assert "u:p" not in str(refused.value)


def test_secrets_are_in_no_text_of_a_format() -> None:
    with schema_registry(user="ada:tiger") as registry:
        registry.add("orders-value", SCHEMA, "JSON")
        url = registry.url.replace("//", "//ada:tiger@")
        found = format_options(
            {"minikafka.value.format": "json", "minikafka.schema.registry.url": url, "subscribe": "orders"},
            lambda option, path: path,
        )
    assert "tiger" not in repr(found)
    assert "YWRhOnRpZ2Vy" not in repr(found)


def test_json_has_no_strategy_by_record(registry: SchemaRegistry) -> None:
    with pytest.raises(ConfigErrors, match="JSON has no record's name: use TopicNameStrategy"):
        value_format(registry, value_format="json", value_subject_name_strategy="RecordNameStrategy")


@pytest.mark.parametrize("seed", range(3))
def test_messages_without_a_registry_are_those_of_the_runtime(seed: int) -> None:
    types = messages(ORDERS)
    made = runtime_class(types, "shop.Order")(id=seed, name="x").SerializeToString()
    options = {
        "minikafka.value.format": "protobuf",
        "minikafka.value.schema": ORDERS,
        "minikafka.value.message": "shop.Order",
    }
    found = format_options(options, lambda option, path: path).value
    assert found is not None
    rows, _ = read(found, made, None)
    assert rows == [{"id": seed or None, "name": "x"}, None]
