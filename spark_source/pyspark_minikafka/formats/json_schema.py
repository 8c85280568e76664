"""JSON Schema as Spark's types, and back: what the JSON of a schema registry has.

An object with properties is a struct, one whose properties all have one schema a map; ``integer`` is a long,
``number`` a double, ``date-time`` and ``date`` are Spark's own types. Everything may be null. Of unions, only
those of one type and null have a column. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_minikafka.formats.spark_schema import BadSchema

_SCALARS: Mapping[str, DataType] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
_FORMATS: Mapping[str, DataType] = {"date-time": TimestampType(), "date": DateType()}
_NUMBERS = (ByteType, ShortType, IntegerType, LongType)
_NUMERIC = {"integer", "number"}
_FLOATS = (FloatType, DoubleType, DecimalType)
_REFUSED = ("allOf", "not", "if", "patternProperties", "prefixItems", "dependentSchemas")
_DEPTH_MAX = 100


def parse_json_schema(text: str) -> DataType:
    """Return the type of a schema's values. Raise BadSchema, with the place, for one that no column has."""
    try:
        document = json.loads(text)
        return _Reader(document).type(document, "#", 0)
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, BadSchema):
            raise
        raise BadSchema(f"the JSON Schema is no JSON: {problem}") from None


class _Reader:
    """Reads one document, to whose parts ``$ref`` refers."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def type(self, schema: Any, path: str, depth: int) -> DataType:
        """Return the type of the schema at ``path``."""
        if depth > _DEPTH_MAX:
            raise BadSchema(f"the JSON Schema is nested too deeply, or contains itself, at {path[:200]}")
        if not isinstance(schema, dict):
            raise BadSchema(f"the JSON Schema at {path} describes no type")
        if "$ref" in schema:
            return self.type(self.referred(schema["$ref"], path), path, depth + 1)
        for keyword in _REFUSED:
            if keyword in schema:
                raise BadSchema(f"the JSON Schema at {path} has {keyword!r}, which no column can have")
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                return self._union(schema[keyword], f"{path}/{keyword}", depth)
        return self._typed(schema, path, depth)

    def _typed(self, schema: Mapping[str, Any], path: str, depth: int) -> DataType:
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [name for name in kind if name != "null"]
            if sorted(map(str, kinds)) == ["integer", "number"]:
                kinds = ["number"]
            if len(kinds) != 1:
                raise BadSchema(f"the JSON Schema at {path} has several types, {', '.join(map(str, kind))}")
            kind = kinds[0]
        if kind is None:
            kind = _implied(schema)
        if kind == "object":
            return self._object(schema, path, depth)
        if kind == "array":
            if "items" not in schema or isinstance(schema["items"], list | bool):
                raise BadSchema(f"the array at {path} has no schema for all its items")
            return ArrayType(self.type(schema["items"], f"{path}/items", depth + 1))
        if kind == "string":
            return _FORMATS.get(str(schema.get("format")), StringType())
        if isinstance(kind, str) and kind in _SCALARS:
            return _SCALARS[kind]
        raise BadSchema(
            f"the JSON Schema at {path} has {'no type' if kind is None else f'the type {kind!r}'}"
        )

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> DataType:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            return StructType(
                [
                    StructField(name, self.type(found, f"{path}/properties/{name}", depth + 1))
                    for name, found in properties.items()
                ]
            )
        if isinstance(others, dict):
            return MapType(StringType(), self.type(others, f"{path}/additionalProperties", depth + 1))
        raise BadSchema(f"the object at {path} has no properties, and no schema for additionalProperties")

    def _union(self, members: Any, path: str, depth: int) -> DataType:
        if not isinstance(members, list):
            raise BadSchema(f"the JSON Schema at {path} is no list")
        found = [
            (number, member)
            for number, member in enumerate(members)
            if not (isinstance(member, dict) and member.get("type") == "null")
        ]
        if len(found) != 1:
            raise BadSchema(
                f"the union at {path} has {len(found)} types beside null: only one can have a column"
            )
        return self.type(found[0][1], f"{path}/{found[0][0]}", depth + 1)

    def referred(self, reference: Any, path: str) -> Any:
        """Return the part of this document that ``$ref`` names."""
        found = self._document
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise BadSchema(
                f"the JSON Schema at {path} refers to another document, {reference!r}: not supported"
            )
        first, *parts = reference.removeprefix("#").split("/")
        if first:
            raise BadSchema(f"the JSON Schema at {path} refers to {reference} by a name: not supported")
        for part in parts:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise BadSchema(f"the JSON Schema at {path} refers to {reference}, which is not there")
            found = found[name]
        return found


def _implied(schema: Mapping[str, Any]) -> str | None:
    """Return the type of a schema that does not name it."""
    if "properties" in schema:
        return "object"
    named = schema.get("enum")
    values = named if isinstance(named, list) else [schema.get("const")]
    values = [value for value in values if value is not None]
    return "string" if values and all(isinstance(value, str) for value in values) else None


def mismatch(text: str, data_type: DataType, name: str) -> str:
    """Return why no value of a type is valid by a schema, as "a.b is integer, not string"; empty if one may
    be. ``name``: of what has the type.

    Types, and the names of properties, are compared. All else (formats, ranges, enums, other documents) is
    not looked at, and a schema that cannot be read refuses nothing.
    """
    try:
        document = json.loads(text)
        return _Checker(document).check(document, data_type, name)
    except (ValueError, RecursionError):
        return ""


class _Checker:
    """Compares types with one document."""

    def __init__(self, document: Any) -> None:
        self._reader = _Reader(document)
        self._found: dict[tuple[int, str], str] = {}
        """The results of ``check`` by part and name. A part that contains itself is compared once."""

    def check(self, schema: Any, data_type: DataType, name: str) -> str:
        """Return the first mismatch; empty if there is none."""
        if not isinstance(schema, dict):
            return ""
        key = id(schema), name
        if key not in self._found:
            self._found[key] = ""
            self._found[key] = self._check(schema, data_type, name)
        return self._found[key]

    def _check(self, schema: Mapping[str, Any], data_type: DataType, name: str) -> str:
        if "$ref" in schema:
            try:
                referred = self._reader.referred(schema["$ref"], "#")
            except BadSchema:
                return ""
            return self.check(referred, data_type, name)
        problem = self._kind(schema, data_type, name)
        for member in _list(schema, "allOf"):
            problem = problem or self.check(member, data_type, name)
        for keyword in ("oneOf", "anyOf"):
            problem = problem or self._union(_list(schema, keyword), keyword, data_type, name)
        return problem

    def _kind(self, schema: Mapping[str, Any], data_type: DataType, name: str) -> str:
        kinds = [kind for kind in _list(schema, "type") or [schema.get("type")] if isinstance(kind, str)]
        found = {_schema(data_type)["type"]}
        if found & _NUMERIC:  # a number without a fraction, such as 1.0, is an integer
            found = _NUMERIC
        if kinds and not found.intersection(kinds):
            return f"{name} is {' or '.join(kinds)}, not {data_type.simpleString()}"
        if isinstance(data_type, StructType):
            return self._struct(schema, data_type, name)
        if isinstance(data_type, MapType) and not _has_names(schema):
            return self.check(schema.get("additionalProperties"), data_type.valueType, f"{name}{{}}")
        if isinstance(data_type, ArrayType) and "prefixItems" not in schema:
            return self.check(schema.get("items"), data_type.elementType, f"{name}[]")
        return ""

    def _struct(self, schema: Mapping[str, Any], data_type: StructType, name: str) -> str:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        for field in data_type.fields:
            if isinstance(properties, dict) and field.name in properties:
                found = properties[field.name]
            else:
                found = None if "patternProperties" in schema else others
            if found is False:
                return f"{name} has no property {field.name}"
            problem = self.check(found, field.dataType, f"{name}.{field.name}")
            if problem:
                return problem
        missing = [wanted for wanted in _list(schema, "required") if wanted not in data_type.names]
        return f"{name} requires {missing[0]}, which the column does not have" if missing else ""

    def _union(self, members: list[Any], keyword: str, data_type: DataType, name: str) -> str:
        others = [found for found in members if not (isinstance(found, dict) and found.get("type") == "null")]
        problems = [self.check(member, data_type, name) for member in others]
        if not problems or not all(problems):
            return ""
        return problems[0] if len(problems) == 1 else f"{name} fits nothing in {keyword}: {problems[0]}"


def _list(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def _has_names(schema: Mapping[str, Any]) -> bool:
    """Return True if ``additionalProperties`` is not for all properties."""
    return bool(schema.get("properties") or schema.get("patternProperties"))


def json_schema_text(data_type: DataType, title: str) -> str:
    """Return the JSON Schema of values of a type. ``title``: its name in the registry."""
    return json.dumps({"title": title, **_schema(data_type)}, separators=(",", ":"))


def _schema(data_type: DataType) -> dict[str, Any]:
    if isinstance(data_type, StructType):
        properties = {field.name: _nullable(field.dataType) for field in data_type.fields}
        return {"type": "object", "properties": properties, "additionalProperties": False}
    if isinstance(data_type, ArrayType):
        return {"type": "array", "items": _nullable(data_type.elementType)}
    if isinstance(data_type, MapType):
        return {"type": "object", "additionalProperties": _nullable(data_type.valueType)}
    if isinstance(data_type, BooleanType):
        return {"type": "boolean"}
    if isinstance(data_type, _NUMBERS):
        return {"type": "integer"}
    if isinstance(data_type, _FLOATS):
        return {"type": "number"}
    if isinstance(data_type, TimestampType | TimestampNTZType):
        return {"type": "string", "format": "date-time"}
    if isinstance(data_type, DateType):
        return {"type": "string", "format": "date"}
    if isinstance(data_type, BinaryType):
        return {"type": "string", "contentEncoding": "base64"}
    return {"type": "string"}


def _nullable(data_type: DataType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _schema(data_type)]}
