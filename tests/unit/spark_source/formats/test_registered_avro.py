"""The format ``avro`` with a schema registry: values of several schemas, and schemas for writes."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType

from minikafka.base.errors import ConfigError
from minikafka.clients.schema_registry.client import SchemaNotFound
from minikafka.clients.schema_registry.config import registry_config
from minikafka.records.avro import AvroError
from pyspark_minikafka.formats.avro_format import AvroSchema
from pyspark_minikafka.formats.registered_avro import RegisteredAvroFormat, registered_avro
from pyspark_minikafka.formats.schema_registry import NO_HEADER_REASON, RegistryAccess, SubjectNameStrategy
from pyspark_minikafka.formats.value_format import ColumnType, Decoded
from tests.support.schema_registry import SchemaRegistry, schema_registry

ID = {"name": "id", "type": "int"}
NAME = {"name": "name", "type": "string", "default": "?"}
LONG_ID = {"name": "id", "type": "long"}
PAIR = StructType().add("id", LongType(), False).add("name", StringType(), False)


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "Event", "namespace": "ns", "fields": fields})


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def access(registry: SchemaRegistry, **more: Any) -> RegistryAccess:
    config = registry_config({"schema.registry.url": registry.url, "schema.registry.max.retries": "0"})
    return RegistryAccess(config, "value", ("t",), **more)


def reader(
    registry: SchemaRegistry, schema: str | None = None, column: DataType | None = None, **more: Any
) -> RegisteredAvroFormat:
    given = None if schema is None else AvroSchema.parsed(schema)
    made = registered_avro(given, access(registry, **more), sink=False, column=column)
    return pickle.loads(pickle.dumps(made))


def writer(registry: SchemaRegistry, schema: str | None = None, **more: Any) -> RegisteredAvroFormat:
    given = None if schema is None else AvroSchema.parsed(schema)
    return registered_avro(given, access(registry, **more), sink=True)


def value(schema_id: int, content: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + content


def decode(made: RegisteredAvroFormat, *values: bytes | None) -> Decoded:
    found = made.decode(pa.array(values, pa.binary()), "t")
    found.column.validate(full=True)
    assert len(found.column) == len(values)
    return found


def test_each_value_is_read_with_the_schema_of_its_id(registry: SchemaRegistry) -> None:
    old = registry.add("t-value", record(ID))
    new = registry.add("t-value", record(NAME, LONG_ID))
    made = reader(registry)
    assert made.data_type().simpleString() == "struct<name:string,id:bigint>"
    found = decode(made, value(new, b"\x02x\x02"), None, value(old, b"\x04"), value(new, b"\x02y\x06"))
    assert found.reasons == ()
    assert found.column.to_pylist() == [
        {"name": "x", "id": 1},
        None,
        {"name": "?", "id": 2},
        {"name": "y", "id": 3},
    ]
    assert decode(made, value(old, b"\x04"), None).column.to_pylist() == [{"name": "?", "id": 2}, None]
    assert decode(made).column.to_pylist() == decode(made, None).column.to_pylist()[1:]


def test_schemas_are_asked_for_once(registry: SchemaRegistry) -> None:
    number = registry.add("t-value", record(ID))
    made = reader(registry)
    for _ in range(3):
        decode(made, value(number, b"\x02"))
    assert len(registry.requests) == 2


def test_readers_schema_may_be_given(registry: SchemaRegistry) -> None:
    number = registry.add("t-value", record(ID, NAME))
    made = reader(registry, record(LONG_ID))
    assert decode(made, value(number, b"\x04\x02x")).column.to_pylist() == [{"id": 2}]


def test_references_of_a_schema_are_followed(registry: SchemaRegistry) -> None:
    registry.add("inner", record(ID))
    refers = json.dumps({"type": "array", "items": "ns.Event"})
    reference = {"name": "ns.Event", "subject": "inner", "version": 1}
    number = registry.add("t-value", refers, references=[reference])
    assert decode(reader(registry), value(number, b"\x02\x08\x00")).column.to_pylist() == [[{"id": 4}]]


def test_values_that_cannot_be_read_are_bad_with_their_reason(registry: SchemaRegistry) -> None:
    number = registry.add("t-value", record(LONG_ID))
    other = registry.add("other", record(NAME))
    text = registry.add("json", "{}", "JSON")
    found = decode(
        reader(registry),
        value(number, b"\x02"),
        b"\x01\0\0\0\x01\x02",
        b"\0\0\0",
        value(number, b""),
        value(other, b"\x02x"),
        value(99, b"\x02"),
        value(text, b"{}"),
        value(number, b"\x04"),
    )
    assert found.column.to_pylist() == [{"id": 1}, *[None] * 6, {"id": 2}]
    assert found.bad.tolist() == [1, 2, 3, 4, 5, 6]
    assert found.reasons[:3] == (NO_HEADER_REASON, NO_HEADER_REASON, "id: the value ends too early")
    assert found.reasons[3].startswith(f"schema {other}: id: the writer's type of record ns.Event")
    assert "99" in found.reasons[4]
    assert "is of the type JSON, not AVRO" in found.reasons[5]
    alone = decode(reader(registry), None, value(99, b"\x02"))
    assert (alone.bad.tolist(), alone.column.to_pylist()) == ([1], [None, None])


def test_id_that_is_no_int32_is_bad_and_not_asked_for(registry: SchemaRegistry) -> None:
    registry.add("t-value", record(ID))
    made = reader(registry)
    found = decode(made, b"\0\x80\0\0\0\x02", b"\0\xff\xff\xff\xff\x02", b"\0\xff\xff\xff\xfe\x02")
    assert found.reasons == (NO_HEADER_REASON,) * 3
    assert len(registry.requests) == 1


def test_newest_schema_of_the_querys_type_is_used(registry: SchemaRegistry) -> None:
    registry.add("t-value", record(NAME, ID))
    registry.add("t-value", record({**NAME, "default": "new"}, ID))
    column = reader(registry).data_type()
    for later in (record(NAME, LONG_ID), '"int"', record({"name": "next", "type": ["null", "ns.Event"]})):
        registry.add("t-value", later)
    registry.add("t-value", "{}", "JSON")
    old = registry.add("old", record(ID))
    made = reader(registry, column=column)
    assert decode(made, value(old, b"\x02")).column.to_pylist() == [{"name": "new", "id": 1}]


def test_older_versions_are_asked_for_only_if_the_type_differs(registry: SchemaRegistry) -> None:
    registry.add("t-value", record(ID))
    registry.add("t-value", record({**ID, "doc": "new"}))
    column = reader(registry).data_type()
    before = len(registry.requests)
    reader(registry, column=column)
    assert registry.requests[before:] == [("GET", "/subjects/t-value/versions/latest?format=serialized")]


def test_query_whose_type_no_version_has_is_refused(registry: SchemaRegistry) -> None:
    registry.add("t-value", record(ID))
    registry.add("t-value", record(NAME, LONG_ID))
    with pytest.raises(ConfigError) as refused:
        reader(registry, column=StructType().add("id", StringType(), False))
    assert str(refused.value) == (
        "minikafka.value.schema: must be given, or load() called again: no version of the subject t-value "
        "has the type that the query's column value has had since load() (version 2 also has value.name)"
    )


def test_schema_that_all_topics_have_is_used(registry: SchemaRegistry) -> None:
    for subject in ("t-value", "u-value"):
        registry.add(subject, record(ID))
        registry.add(subject, record({**ID, "doc": "second"}))
    both = replace(access(registry), topics=("t", "u"))
    column = registered_avro(None, both, sink=False).data_type()
    registry.add("u-value", record({**ID, "doc": "third"}))
    made = registered_avro(None, both, sink=False, column=column)
    assert made.schema is not None
    assert "second" in made.schema.text
    registry.add("v-value", record({**ID, "doc": "other"}))
    with pytest.raises(ConfigError, match=r"t-value, v-value .*they have no schema in common"):
        registered_avro(None, replace(both, topics=("t", "v")), sink=False, column=column)


def test_topics_without_a_schema_are_named(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaNotFound, match=r"subject 't-value'.*or give minikafka\.value\.schema"):
        reader(registry)


def test_recursive_schema_of_the_registry_is_refused(registry: SchemaRegistry) -> None:
    registry.add("t-value", record({"name": "next", "type": ["null", "ns.Event"]}))
    with pytest.raises(AvroError, match=r"schema 1 of the schema registry: .*recursive"):
        reader(registry)


def test_write_registers_the_schema_of_its_column(registry: SchemaRegistry) -> None:
    made = pickle.loads(pickle.dumps(writer(registry).for_column(PAIR)))
    column = pa.array([{"id": 1, "name": "x"}, None], pa.struct({"id": pa.int64(), "name": pa.string()}))
    assert made.encode(column, "t").to_pylist() == [value(1, b"\x02\x02x"), None]
    (registered,) = registry.versions("t-value")
    assert json.loads(registered["schema"])["name"] == "topLevelRecord"
    assert decode(reader(registry), value(1, b"\x02\x02x")).column.to_pylist() == [{"id": 1, "name": "x"}]


def test_write_has_the_given_schema_and_subject(registry: SchemaRegistry) -> None:
    made = writer(registry, record(LONG_ID), strategy=SubjectNameStrategy.TOPIC_RECORD)
    column = pa.array([{"id": 1}], pa.struct({"id": pa.int64()}))
    made.for_column(StructType().add("id", LongType())).encode(column, "t")
    assert registry.versions("t-ns.Event") == [{"schema": record(LONG_ID)}]
    with pytest.raises(ColumnType, match="id: a column of type string"):
        made.for_column(StructType().add("id", StringType()))


def test_write_to_one_topic_asks_on_the_driver_alone(registry: SchemaRegistry) -> None:
    made = writer(registry, record(LONG_ID)).for_column(StructType().add("id", LongType()))
    sent = pickle.dumps(made.for_topic("t", StructType().add("id", LongType())))
    assert registry.url.encode() not in sent
    registry.close()
    column = pa.array([{"id": 1}], pa.struct({"id": pa.int64()}))
    assert pickle.loads(sent).encode(column, "t").to_pylist() == [value(1, b"\x02")]


def test_column_must_fit_the_latest_schema_before_any_task(registry: SchemaRegistry) -> None:
    registry.add("t-value", record(LONG_ID))
    column = StructType().add("id", StringType())
    made = writer(registry, use_latest=True).for_column(column)
    with pytest.raises(ColumnType, match="id: a column of type string"):
        made.for_topic("t", column)


def test_write_without_registration_looks_up(registry: SchemaRegistry) -> None:
    made = writer(registry, '"int"', auto_register=False).for_column(IntegerType())
    column = pa.array([1], pa.int32())
    with pytest.raises(SchemaNotFound):
        made.encode(column, "t")
    registry.add("t-value", '"int"')
    assert made.encode(column, "t").to_pylist() == [value(1, b"\x02")]


def test_write_with_the_latest_version_uses_its_schema(registry: SchemaRegistry) -> None:
    registry.add("t-value", record(NAME, LONG_ID))
    made = writer(registry, use_latest=True).for_column(StructType().add("id", LongType()))
    column = pa.array([{"id": 1}], pa.struct({"id": pa.int64()}))
    assert made.encode(column, "t").to_pylist() == [value(1, b"\x02?\x02")]


def test_record_names_need_the_schema(registry: SchemaRegistry) -> None:
    named = access(registry, strategy=SubjectNameStrategy.RECORD)
    with pytest.raises(ConfigError, match=r"minikafka\.value\.schema"):
        registered_avro(None, named, sink=False)
    with pytest.raises(ConfigError, match=r"minikafka\.value\.schema"):
        registered_avro(None, replace(named, use_latest=True), sink=True)
    with pytest.raises(ConfigError, match=r"minikafka\.value\.schema"):
        registered_avro(AvroSchema.parsed('"int"'), named, sink=True)
