"""Schemas as Spark writes them: DDL (``id BIGINT, tags ARRAY<STRING>``) and Spark's JSON.

Spark's own parser of DDL is in the JVM, which the Python processes of a data source cannot call. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

_TOKEN = re.compile(r"\s+|`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:]")
_DEPTH_MAX = 100
EXPECTED = "a schema in Spark's DDL, such as 'id BIGINT, tags ARRAY<STRING>', or in Spark's JSON"

_TYPES: Mapping[str, Callable[[], DataType]] = {
    "boolean": types.BooleanType,
    "tinyint": types.ByteType,
    "byte": types.ByteType,
    "smallint": types.ShortType,
    "short": types.ShortType,
    "int": types.IntegerType,
    "integer": types.IntegerType,
    "bigint": types.LongType,
    "long": types.LongType,
    "float": types.FloatType,
    "real": types.FloatType,
    "double": types.DoubleType,
    "string": types.StringType,
    "binary": types.BinaryType,
    "date": types.DateType,
    "timestamp": types.TimestampType,
    "timestamp_ltz": types.TimestampType,
    "timestamp_ntz": types.TimestampNTZType,
}
"""Types without parameters, by their names in DDL."""
_LEAVES = tuple({*_TYPES.values(), DecimalType})


class BadSchema(ValueError):
    """A schema's text that cannot be read, or a type that no format has."""


def parse_schema(text: str) -> DataType:
    """Return the type that ``text`` describes, in which everything may be null. Raise BadSchema."""
    stripped = text.strip()
    try:
        if stripped.startswith(("{", '"')):
            return nullable(_from_json(stripped))
        return nullable(_Ddl(stripped).parse())
    except RecursionError:
        raise BadSchema("types are nested too deeply") from None


def nullable(data_type: DataType) -> DataType:
    """Return ``data_type`` with everything nullable. Raise BadSchema for a type that no format has."""
    if isinstance(data_type, StructType):
        names = data_type.fieldNames()
        for name in names:
            if names.count(name) > 1:
                raise BadSchema(f"the field {name} appears twice")
        return StructType([StructField(f.name, nullable(f.dataType)) for f in data_type.fields])
    if isinstance(data_type, ArrayType):
        return ArrayType(nullable(data_type.elementType))
    if isinstance(data_type, MapType):
        if not isinstance(data_type.keyType, StringType):
            raise BadSchema(f"the keys of a map must be strings, not {data_type.keyType.simpleString()}")
        return MapType(data_type.keyType, nullable(data_type.valueType))
    if type(data_type) not in _LEAVES:
        raise BadSchema(f"the type {data_type.simpleString()} is not supported")
    return data_type


def difference(found: DataType, wanted: DataType, name: str) -> str:
    """Return what ``found`` has that differs from ``wanted``, as "has a.b as int, not bigint": the first
    difference; empty if there is none. ``name``: of what has the types.
    """
    if found == wanted:
        return ""
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        return _struct_difference(found, wanted, name)
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        other = difference(found.elementType, wanted.elementType, f"{name}[]")
        return other or _nullability(found.containsNull, f"{name}[]")
    if isinstance(found, MapType) and isinstance(wanted, MapType):
        other = difference(found.keyType, wanted.keyType, f"the keys of {name}")
        other = other or difference(found.valueType, wanted.valueType, f"{name}{{}}")
        return other or _nullability(found.valueContainsNull, f"{name}{{}}")
    return f"has {name} as {found.simpleString()}, not {wanted.simpleString()}"


def _struct_difference(found: StructType, wanted: StructType, name: str) -> str:
    for field in wanted.names:
        if field not in found.names:
            return f"has no {name}.{field}"
    for field in found.names:
        if field not in wanted.names:
            return f"also has {name}.{field}"
    if found.names != wanted.names:
        return f"has the fields of {name} in another order"
    for one, other in zip(found.fields, wanted.fields, strict=True):
        problem = difference(one.dataType, other.dataType, f"{name}.{one.name}")
        if problem or one.nullable != other.nullable:
            return problem or _nullability(one.nullable, f"{name}.{one.name}")
    return f"has other metadata of {name}"


def _nullability(is_nullable: bool, name: str) -> str:
    return f"has {name} {'with' if is_nullable else 'without'} nulls"


def _from_json(text: str) -> DataType:
    try:
        return types._parse_datatype_json_string(text)
    except (PySparkException, ValueError, LookupError, TypeError, AttributeError, AssertionError) as problem:
        raise BadSchema(f"this is no schema in Spark's JSON ({type(problem).__name__}: {problem})") from None


class _Ddl:
    """A reader of one schema in DDL: a list of columns, or one type."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def parse(self) -> DataType:
        if len(self._tokens) > 1 and self._tokens[1] not in ("<", "("):
            found: DataType = self._fields("")
        else:
            found = self._type()
        if self._peek():
            raise BadSchema(f"unexpected {self._peek()!r}")
        return found

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        if not self._peek():
            raise BadSchema("the text ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, wanted: str) -> None:
        found = self._take()
        if found.lower() != wanted:
            raise BadSchema(f"expected {wanted!r}, not {found!r}")

    def _fields(self, end: str) -> StructType:
        """Read columns up to the token ``end``."""
        fields: list[StructField] = []
        while self._peek() != end or fields:
            fields.append(self._field())
            if self._peek() != ",":
                break
            self._take()
        return StructType(fields)

    def _field(self) -> StructField:
        name = self._take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"\w+", name):
            raise BadSchema(f"expected a name, not {name!r}")
        if self._peek() == ":":
            self._take()
        found = self._type()
        if self._peek().lower() == "not":
            self._take()
            self._expect("null")
        if self._peek().lower() == "comment":
            self._take()
            if not self._take().startswith(("'", '"')):
                raise BadSchema(f"the comment of {name} must be in quotes")
        return StructField(name, found)

    def _type(self) -> DataType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise BadSchema("types are nested too deeply")
        name = self._take().lower()
        if name in _TYPES:
            found = _TYPES[name]()
        elif name in ("decimal", "dec", "numeric"):
            found = self._decimal()
        elif name in ("array", "map", "struct"):
            found = self._nested(name)
        else:
            raise BadSchema(f"unknown or unsupported type {name!r}")
        self._depth -= 1
        return found

    def _nested(self, name: str) -> DataType:
        self._expect("<")
        if name == "array":
            found: DataType = ArrayType(self._type())
        elif name == "map":
            key = self._type()
            self._expect(",")
            found = MapType(key, self._type())
        else:
            found = self._fields(">")
        self._expect(">")
        return found

    def _decimal(self) -> DecimalType:
        if self._peek() != "(":
            return DecimalType()
        self._take()
        numbers = [self._take()]
        while self._peek() == ",":
            self._take()
            numbers.append(self._take())
        self._expect(")")
        if len(numbers) > 2 or not all(re.fullmatch(r"[0-9]{1,2}", number) for number in numbers):
            raise BadSchema(f"decimal({','.join(numbers)}) is not a decimal's precision and scale")
        precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
        if not (1 <= precision <= 38 and scale <= precision):
            raise BadSchema(f"decimal({precision},{scale}): a precision is 1 to 38, a scale not above it")
        return DecimalType(precision, scale)


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise BadSchema(f"unexpected {text[position]!r} at character {position + 1}")
        position = found.end()
        if not found[0].isspace():
            yield found[0]
    if not text:
        raise BadSchema("the schema is empty")
