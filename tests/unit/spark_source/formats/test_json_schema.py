"""JSON Schema as Spark's types, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_minikafka.formats.json_schema import json_schema_text, mismatch, parse_json_schema
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


def checked(schema: Any, column: str) -> str:
    return mismatch(json.dumps(schema), parse_schema(column), "value")


@pytest.mark.parametrize(
    ("schema", "column", "reason"),
    [
        ({"properties": {"a": INTEGER}}, "a STRING", "value.a is integer, not string"),
        ({"properties": {"a": {"type": "string"}}}, "a INT", "value.a is string, not int"),
        ({"properties": {"a": {"type": "string"}}}, "a DOUBLE", "value.a is string, not double"),
        ({"properties": {"a": INTEGER}}, "a TIMESTAMP", "value.a is integer, not timestamp"),
        ({"properties": {"a": {"type": "boolean"}}}, "a INT", "value.a is boolean, not int"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "a INT", "value.a is string or null, not int"),
        ({"properties": {"a": {"type": "array"}}}, "a STRUCT<b: INT>", "value.a is array, not struct<b:int>"),
        ({"type": "array"}, "a INT", "value is array, not struct<a:int>"),
        ({"type": "object"}, "ARRAY<INT>", "value is object, not array<int>"),
        ({"items": INTEGER}, "ARRAY<STRING>", "value[] is integer, not string"),
        ({"additionalProperties": INTEGER}, "MAP<STRING, STRING>", "value{} is integer, not string"),
        ({"additionalProperties": INTEGER}, "a STRING", "value.a is integer, not string"),
        (
            {"properties": {"a": {"properties": {"b": INTEGER}}}},
            "a STRUCT<b: DATE>",
            "value.a.b is integer, not date",
        ),
        ({"required": ["a", "b"]}, "a INT", "value requires b, which the column does not have"),
        ({"required": ["a"]}, "A INT", "value requires a, which the column does not have"),
        (
            {"properties": {"a": INTEGER}, "additionalProperties": False},
            "a INT, b INT",
            "value has no property b",
        ),
        ({"properties": {"a": False}}, "a INT", "value has no property a"),
        ({"oneOf": [{"type": "null"}, INTEGER]}, "STRING", "value is integer, not string"),
        (
            {"anyOf": [INTEGER, {"type": "boolean"}]},
            "STRING",
            "value fits nothing in anyOf: value is integer, not string",
        ),
        ({"allOf": [{}, INTEGER]}, "STRING", "value is integer, not string"),
        ({"$ref": "#/$defs/x", "$defs": {"x": INTEGER}}, "STRING", "value is integer, not string"),
        (
            {"anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}], "$defs": {"x": INTEGER}},
            "STRING",
            "value fits nothing in anyOf: value is integer, not string",
        ),
    ],
)
def test_column_that_never_fits_a_schema_is_found(schema: Any, column: str, reason: str) -> None:
    assert checked(schema, column) == reason


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({}, "a INT"),
        (True, "a INT"),
        ({"type": "object", "properties": {"a": INTEGER, "b": INTEGER}, "required": ["a"]}, "a INT"),
        ({"properties": {"a": INTEGER}}, "a INT, b STRING"),
        ({"properties": {"a": {"type": "number"}}}, "a INT"),
        ({"properties": {"a": INTEGER}}, "a DOUBLE"),
        ({"properties": {"a": INTEGER}}, "a DECIMAL(10,0)"),
        ({"properties": {"a": {"type": "string", "format": "date-time"}}}, "a STRING"),
        ({"properties": {"a": {"type": "string"}}}, "a BINARY"),
        ({"properties": {"a": {"type": ["integer", "string"]}}}, "a STRING"),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, "a INT"),
        ({"properties": {"a": INTEGER}, "required": ["a"]}, "MAP<STRING, INT>"),
        ({"properties": {"a": INTEGER}, "additionalProperties": {"type": "string"}}, "MAP<STRING, INT>"),
        ({"items": [INTEGER]}, "ARRAY<STRING>"),
        ({"prefixItems": [INTEGER], "items": {"type": "boolean"}}, "ARRAY<INT>"),
        ({"anyOf": [INTEGER, {"type": "string"}]}, "STRING"),
        ({"$ref": "other.json"}, "STRING"),
        ({"properties": {"a": {"$ref": "#x"}}}, "a INT"),
        ({"$ref": "#"}, "STRING"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "STRING"),
        ({"type": 5, "required": 5, "anyOf": 5, "allOf": {}, "properties": []}, "a STRING"),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}, "ARRAY<ARRAY<INT>>"),
    ],
)
def test_column_that_may_fit_a_schema_is_accepted(schema: Any, column: str) -> None:
    assert checked(schema, column) == ""


def test_column_fits_the_schema_that_is_made_of_it() -> None:
    found = parse_schema(
        "a INT, b FLOAT, c DECIMAL(10,2), d BINARY, e TIMESTAMP_NTZ, f BOOLEAN, g ARRAY<STRING>, "
        "h MAP<STRING, DATE>, i STRUCT<a: ARRAY<STRUCT<b: STRING>>>"
    )
    assert mismatch(json_schema_text(found, "Value"), found, "value") == ""


@pytest.mark.parametrize("text", ["{", "[" * 100_000, json.dumps({"anyOf": [{"$ref": "#"}] * 1_000})])
def test_schema_that_cannot_be_checked_refuses_no_column(text: str) -> None:
    assert mismatch(text, parse_schema("a INT"), "value") == ""
