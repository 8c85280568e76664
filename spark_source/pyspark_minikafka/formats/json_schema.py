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
            return self.type(self._referred(schema["$ref"], path), path, depth + 1)
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

    def _referred(self, reference: Any, path: str) -> Any:
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
