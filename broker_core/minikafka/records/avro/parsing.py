"""Avro schemas as JSON, parsed to types.

``fastavro`` checks the schemas and resolves their names. It is the extra ``avro``.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from minikafka.base.errors import MinikafkaError
from minikafka.base.text import shorten
from minikafka.records.avro.types import (
    Array,
    AvroError,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
)

_LOGICAL = {
    "int": ("date",),
    "long": ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"),
}

_SIZE_MAX = (1 << 31) - 1
TYPES_MAX = 10_000
DEPTH_MAX = 100
"""The most types of a schema, and the most in each other: a short text can name types that are huge."""


class MissingAvro(MinikafkaError):
    """The package fastavro is not installed."""


def parse(text: str, references: Iterable[str] = ()) -> Type:
    """Return the type of a schema, whose names may be those of ``references``: texts, each before whatever
    refers to it. Raise AvroError for one that is no schema, or that contains itself.
    """
    try:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    except ImportError:
        raise MissingAvro(
            "Avro needs the package fastavro: install the extra avro (pip install 'minikafka[avro]'), with "
            "Spark on the driver and every executor"
        ) from None
    names: dict[str, Any] = {}
    parsed: Any = None
    for one in (*references, text):
        try:
            parsed = parse_schema(_json(one), names)
        except (SchemaParseException, UnknownType, ValueError, TypeError, RecursionError) as problem:
            reason = f"unknown type {problem}" if isinstance(problem, UnknownType) else str(problem)
            raise AvroError(f"the Avro schema is not valid: {shorten(reason)}") from None
        except LookupError as problem:
            raise AvroError(f"the Avro schema is not valid: it has no {problem}") from None
    try:
        return _Parser(names).type(parsed)
    except TypeError as problem:
        raise AvroError(f"the Avro schema is not valid: {shorten(str(problem))}") from None


def _json(text: str) -> Any:
    """Return a schema's JSON. A name alone, without quotes, is a schema too."""
    try:
        found = json.loads(text)
    except ValueError:
        if text.strip().replace(".", "_").isidentifier():
            return text.strip()
        raise
    json.dumps(found, ensure_ascii=False).encode()  # ValueError for half a surrogate pair
    return found


class _Parser:
    """Makes types of what fastavro has parsed."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._open: list[str] = []
        """The records around the present place."""
        self._types = 0
        self._depth = 0

    def type(self, parsed: Any) -> Type:
        """Return the type of a schema."""
        self._types += 1
        self._depth += 1
        if self._types > TYPES_MAX or self._depth > DEPTH_MAX:
            raise AvroError(
                f"the Avro schema has more than {TYPES_MAX} types, or more than {DEPTH_MAX} in each other; a "
                "name counts as the types that it stands for"
            )
        found = self._type(parsed)
        self._depth -= 1
        return found

    def _type(self, parsed: Any) -> Type:
        if isinstance(parsed, list):
            if not parsed or any(isinstance(branch, list) for branch in parsed):
                problem = "is in another one" if parsed else "has no types"
                raise AvroError(f"the Avro schema is not valid: a union {problem}")
            return Union(tuple(map(self.type, parsed)))
        if isinstance(parsed, str):
            return self.type(self._names[parsed]) if parsed in self._names else Primitive(parsed)
        kind = parsed["type"]
        if kind in ("record", "error"):
            return self._record(parsed)
        if kind == "enum":
            return Enum(parsed["name"], tuple(parsed["symbols"]), parsed.get("default"), _aliases(parsed))
        if kind == "fixed":
            size = _whole(f"fixed {parsed['name']} has the size", parsed["size"], 0, _SIZE_MAX)
            return Fixed(parsed["name"], size, _decimal(parsed), _aliases(parsed))
        if kind == "array":
            return Array(self.type(parsed["items"]))
        if kind == "map":
            return Map(self.type(parsed["values"]))
        logical = parsed.get("logicalType")
        if kind == "bytes":
            return Primitive(kind, _decimal(parsed))
        return Primitive(kind, logical if logical in _LOGICAL.get(kind, ()) else None)

    def _record(self, parsed: Mapping[str, Any]) -> Record:
        name = parsed["name"]
        if name in self._open:
            raise AvroError(
                f"the Avro schema is recursive: {' > '.join([*self._open, name])}; a column cannot "
                "contain itself. Read the value as binary, or with a reader's schema without this field"
            )
        for field, count in Counter(one["name"] for one in parsed["fields"]).items():
            if count > 1:
                raise AvroError(f"the Avro schema is not valid: record {name} has {count} fields {field}")
        self._open.append(name)
        fields = tuple(self._field(one) for one in parsed["fields"])
        self._open.pop()
        return Record(name, fields, _aliases(parsed))

    def _field(self, parsed: Mapping[str, Any]) -> Field:
        if not isinstance(parsed["name"], str):
            raise AvroError(f"the Avro schema is not valid: a field has the name {parsed['name']}")
        kind = self.type(parsed["type"])
        default = None
        if "default" in parsed:
            try:
                default = default_bytes(kind, parsed["default"])
            except (TypeError, ValueError, LookupError, AttributeError, struct.error, OverflowError):
                raise AvroError(
                    f"the default of the field {parsed['name']} is no value of its type {kind}: "
                    f"{shorten(json.dumps(parsed['default']))}"
                ) from None
        return Field(parsed["name"], kind, default, tuple(parsed.get("aliases", ())))


def _aliases(parsed: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(parsed.get("aliases", ()))


def _decimal(parsed: Mapping[str, Any]) -> Decimal | None:
    if parsed.get("logicalType") != "decimal":
        return None
    precision = _whole("a decimal has the precision", parsed.get("precision"), 1, _SIZE_MAX)
    return Decimal(precision, _whole("a decimal has the scale", parsed.get("scale", 0), 0, precision))


def _whole(what: str, value: Any, least: int, most: int) -> int:
    """Return a number of a schema, which fastavro does not check: a kernel trusts it."""
    if type(value) is not int or not least <= value <= most:
        raise AvroError(
            f"the Avro schema is not valid: {what} {shorten(json.dumps(value))}; expected {least} to {most}"
        )
    return value


def default_bytes(kind: Type, value: Any) -> bytes:
    """Return the Avro binary of a default, which is JSON. Raise one of several errors if it is not of the
    type.
    """
    if isinstance(kind, Union):
        # Before Avro 1.12 a default had the type of the first branch.
        for i, branch in enumerate(kind.branches):
            try:
                return _varint(i) + default_bytes(branch, value)
            except (TypeError, ValueError, LookupError, AttributeError, struct.error, OverflowError):
                continue
        raise ValueError(value)
    if isinstance(kind, Record):
        return b"".join(_field_default(one, value) for one in kind.fields)
    if isinstance(kind, Enum):
        return _varint(kind.symbols.index(value))
    if isinstance(kind, Fixed):
        data: bytes = value.encode("latin-1")
        if len(data) != kind.size:
            raise ValueError(value)
        return data
    if isinstance(kind, Array):
        if not isinstance(value, list):
            raise TypeError(value)
        return _block([default_bytes(kind.items, item) for item in value])
    if isinstance(kind, Map):
        entries = value.items()
        return _block([_sized(name.encode()) + default_bytes(kind.values, item) for name, item in entries])
    return _primitive_default(kind.name, value)


def _field_default(field: Field, value: Mapping[str, Any]) -> bytes:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    if field.name not in value and field.default is not None:
        return field.default
    return default_bytes(field.type, value[field.name])


_EXPECTED: Mapping[str, Any] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "bytes": (str,),
    "string": (str,),
}


def _primitive_default(name: str, value: Any) -> bytes:
    if not isinstance(value, _EXPECTED[name]) or (isinstance(value, bool) and name != "boolean"):
        raise TypeError(value)
    if name == "null":
        return b""
    if name == "boolean":
        return bytes([value])
    if name in ("int", "long"):
        if not -(1 << (63 if name == "long" else 31)) <= value < 1 << (63 if name == "long" else 31):
            raise OverflowError(value)
        return _varint(value)
    if name in ("float", "double"):
        return struct.pack("<f" if name == "float" else "<d", value)
    return _sized(value.encode("latin-1" if name == "bytes" else "utf-8"))


def _varint(number: int) -> bytes:
    raw, data = number << 1 if number >= 0 else ~(number << 1), bytearray()
    while raw > 127:
        data.append(raw & 127 | 128)
        raw >>= 7
    data.append(raw)
    return bytes(data)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return (_varint(len(items)) + b"".join(items) if items else b"") + b"\0"
