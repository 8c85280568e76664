"""Avro schemas as JSON: their types and defaults."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import fastavro
import pytest

from minikafka.records.avro import (
    NULL,
    Array,
    AvroError,
    Decimal,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
)
from minikafka.records.avro.parsing import MissingAvro, default_bytes, parse


def parsed(schema: Any, *references: Any) -> Type:
    return parse(json.dumps(schema), [json.dumps(one) for one in references])


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "ns", "fields": list(fields), **more}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("long", Primitive("long")),
        ({"type": "int", "logicalType": "date"}, Primitive("int", "date")),
        ({"type": "int", "logicalType": "time-millis"}, Primitive("int")),
        ({"type": "long", "logicalType": "time-micros"}, Primitive("long")),
        ({"type": "string", "logicalType": "uuid"}, Primitive("string")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, Primitive("bytes", Decimal(4, 0))),
        (["null", {"type": "array", "items": "int"}], Union((NULL, Array(Primitive("int"))))),
        ({"type": "map", "values": "int"}, Map(Primitive("int"))),
    ],
)
def test_schema_is_parsed(schema: Any, expected: Type) -> None:
    assert parsed(schema) == expected


def test_names_are_resolved_in_their_namespace() -> None:
    one = {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}
    found = parsed(record({"name": "a", "type": one}, {"name": "b", "type": ["null", "E"]}))
    assert isinstance(found, Record)
    kind = Enum("ns.E", ("A",), "A")
    assert [field.type for field in found.fields] == [kind, Union((NULL, kind))]


def test_references_are_other_texts() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    line = {"type": "record", "name": "Line", "fields": [{"name": "from", "type": "Point"}]}
    found = parsed({"type": "array", "items": "Line"}, point, line)
    assert str(found) == "array of record Line"


def test_a_name_without_quotes_is_a_schema() -> None:
    assert parse(" long ") == Primitive("long")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ('{"type": "record"', "not valid"),
        ('"unknown"', "not valid: unknown type unknown"),
        ('{"type": "fixed", "name": "F"}', "not valid: it has no 'size'"),
        ('{"type": "fixed", "name": "F", "size": -1}', "not valid: fixed F has the size -1"),
        ('{"type": "fixed", "name": "F", "size": 1e1}', "not valid: fixed F has the size 10.0"),
        ('{"type": "fixed", "name": "F", "size": true}', "not valid: fixed F has the size true"),
        ('{"type": "fixed", "name": "F", "size": 2147483648}', "not valid: fixed F has the size 2147483648"),
        ('{"type": "bytes", "logicalType": "decimal"}', "not valid: a decimal has the precision null"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 0}', "decimal has the precision 0"),
        (
            '{"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": null}',
            "not valid: a decimal has the scale null",
        ),
        ('{"type": "record", "name": "R", "aliases": 5, "fields": []}', "not valid: .*'int'"),
        ('{"type": "record", "name": "R", "fields": [{"name": 5, "type": "int"}]}', "not valid: .*name 5"),
        ('{"type": "record", "name": "R", "fields": [{"name": "\\ud800", "type": "int"}]}', "not valid"),
        ("[]", "not valid: a union has no types"),
        ('[["null"], "int"]', "not valid: a union is in another one"),
        ("[1]", "not valid"),
        (
            json.dumps(record({"name": "next", "type": ["null", "R"]})),
            "recursive: ns.R > ns.R; a column cannot contain itself",
        ),
        (json.dumps(record(*[{"name": "a", "type": "int"}] * 2)), "record ns.R has 2 fields a"),
        (json.dumps(record({"name": "a", "type": "int", "default": "x"})), "not valid: .*int"),
    ],
)
def test_text_that_is_no_schema_is_refused(schema: str, expected: str) -> None:
    with pytest.raises(AvroError, match=expected):
        parse(schema)


def test_schemas_that_grow_without_bounds_are_refused() -> None:
    twice = [
        record({"name": "a", "type": f"R{i - 1}"}, {"name": "b", "type": f"R{i - 1}"}, name=f"R{i}")
        for i in range(1, 40)
    ]
    deep: Any = "int"
    for _ in range(101):
        deep = {"type": "array", "items": deep}
    for schema, references in ((twice[-1], [record(name="R0"), *twice[:-1]]), (deep, [])):
        with pytest.raises(AvroError, match="more than 10000 types, or more than 100 in each other"):
            parsed(schema, *references)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro.schema", None)
    with pytest.raises(MissingAvro, match=r"minikafka\[avro\]"):
        parse('"int"')


@pytest.mark.parametrize(
    ("schema", "value", "written"),
    [
        ("long", -(1 << 63), -(1 << 63)),
        ("double", 1, 1.0),
        ("boolean", True, True),
        ("string", "é", "é"),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u00ff", b"\x01\xff"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": ["null", "int"]}, {"a": None, "b": 1}, {"a": None, "b": 1}),
        (
            record({"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 7}),
            {"a": 1},
            {"a": 1},
        ),
    ],
)
def test_default_becomes_avro_binary(schema: Any, value: Any, written: Any) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, written)
    assert default_bytes(parsed(schema), value) == out.getvalue()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1 << 31),
        ("int", True),
        ("boolean", 1),
        ("null", 0),
        ("bytes", "€"),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        (["int", "string"], 1.5),
        (record({"name": "a", "type": "int"}), {}),
        ({"type": "array", "items": "int"}, "12"),
    ],
)
def test_default_of_another_type_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError, LookupError, OverflowError)):
        default_bytes(parsed(kind), value)


def test_fixed_keeps_its_decimal() -> None:
    schema = {"type": "fixed", "name": "F", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2}
    assert parsed(schema) == Fixed("F", 5, Decimal(10, 2))
