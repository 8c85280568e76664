"""JSON Schema as Spark's types, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_minikafka.formats.json_schema import json_schema_text, parse_json_schema
from pyspark_minikafka.formats.spark_schema import BadSchema, parse_schema

INTEGER = {"type": "integer"}


def ddl(schema: Any) -> str:
    return parse_json_schema(json.dumps(schema)).simpleString()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (INTEGER, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "format": ["date"]}, "string"),
        ({"type": ["null", "string"]}, "string"),
        ({"type": ["integer", "number"]}, "double"),
        ({"oneOf": [{"type": "null"}, INTEGER]}, "bigint"),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "bigint"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"const": "a"}, "string"),
        ({"type": "array", "items": INTEGER}, "array<bigint>"),
        ({"type": "object", "additionalProperties": INTEGER}, "map<string,bigint>"),
        ({"properties": {"b": INTEGER, "a": INTEGER}}, "struct<b:bigint,a:bigint>"),
        ({"$ref": "#/$defs/x~1y", "$defs": {"x/y": INTEGER}}, "bigint"),
    ],
)
def test_schema_is_a_type(schema: Any, expected: str) -> None:
    assert ddl(schema) == expected


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": ["integer", "string"]}, "at # has several types, integer, string"),
        ({"oneOf": [INTEGER, {"type": "string"}]}, "the union at #/oneOf has 2 types beside null"),
        ({"oneOf": 1}, "at #/oneOf is no list"),
        ({"properties": {"a": {"allOf": [INTEGER]}}}, "at #/properties/a has 'allOf'"),
        ({"type": "object"}, "the object at # has no properties"),
        ({"type": "object", "additionalProperties": True}, "no schema for additionalProperties"),
        ({"type": "array"}, "the array at # has no schema for all its items"),
        ({"type": "array", "items": [INTEGER]}, "has no schema for all its items"),
        ({"type": "null"}, "at # has the type 'null'"),
        ({"type": "money"}, "at # has the type 'money'"),
        ({}, "at # has no type"),
        ({"enum": 5}, "at # has no type"),
        (True, "at # describes no type"),
        ({"$ref": "#/definitions/x"}, "refers to #/definitions/x, which is not there"),
        ({"$ref": "other.json"}, "refers to another document, 'other.json'"),
        ({"$ref": "#x", "$defs": {"x": {"$anchor": "x"}}}, "refers to #x by a name: not supported"),
        ({"$ref": "#"}, "contains itself"),
        ({"properties": {"a": {"$ref": "#"}}}, "contains itself"),
    ],
)
def test_schema_that_no_column_has_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(BadSchema) as refused:
        ddl(schema)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(BadSchema, match="is no JSON"):
        parse_json_schema("{")


def test_type_is_the_same_after_its_schema() -> None:
    found = parse_schema(
        "id BIGINT, name STRING, paid BOOLEAN, weight DOUBLE, at TIMESTAMP, day DATE, tags ARRAY<STRING>, "
        "counts MAP<STRING, BIGINT>, inner STRUCT<a: BIGINT, b: ARRAY<STRUCT<c: STRING>>>"
    )
    text = json_schema_text(found, "Value")
    assert parse_json_schema(text) == found
    assert json.loads(text)["title"] == "Value"


def test_narrow_types_have_the_schema_of_wide_ones() -> None:
    found = parse_schema("a INT, b FLOAT, c DECIMAL(10,2), d BINARY, e TIMESTAMP_NTZ")
    assert parse_json_schema(json_schema_text(found, "Value")).simpleString() == (
        "struct<a:bigint,b:double,c:double,d:string,e:timestamp>"
    )
