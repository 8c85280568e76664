"""The Arrow columns of an Avro schema, with the types that Spark's ``from_avro`` gives.

A union of null and a type is that type, nullable; of int and long a long, of float and double a double; other
unions are a struct with a nullable member for each type, ``member0`` and so on.
"""

from __future__ import annotations

import pyarrow as pa

from minikafka.records.avro.types import (
    NULL,
    Array,
    AvroError,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    without_null,
)

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
PRECISION_MAX = 38


def arrow_type(kind: Type) -> pa.DataType:
    """Return the type of the column of an Avro type."""
    if isinstance(kind, Record):
        return pa.struct([_arrow_field(field.name, field.type) for field in kind.fields])
    if isinstance(kind, Array):
        return pa.list_(_arrow_field("element", kind.items))
    if isinstance(kind, Map):
        return pa.map_(pa.string(), _arrow_field("value", kind.values))
    if isinstance(kind, Union):
        return _union_type(kind)
    if isinstance(kind, Enum):
        return pa.string()
    if kind.logical is None:
        return pa.binary() if isinstance(kind, Fixed) else _PRIMITIVES[kind.name]
    if isinstance(kind.logical, str):
        return _LOGICAL[kind.logical]
    if kind.logical.precision > PRECISION_MAX:
        raise AvroError(f"{kind} has more than {PRECISION_MAX} digits, which no column of Spark can have")
    return pa.decimal128(kind.logical.precision, kind.logical.scale)


def _arrow_field(name: str, kind: Type) -> pa.Field:
    return pa.field(name, arrow_type(kind), nullable=is_nullable(kind))


def is_nullable(kind: Type) -> bool:
    """Return True if values of the type may be null."""
    return kind == NULL or (isinstance(kind, Union) and NULL in kind.branches)


def merged_number(branches: tuple[Type, ...]) -> Primitive | None:
    """Return the type that a union of int and long, or of float and double, is; None for other unions."""
    names = {branch.name for branch in branches if isinstance(branch, Primitive)}
    for numbers in ({"int", "long"}, {"float", "double"}):
        if len(branches) == 2 and names == numbers:
            return Primitive("long" if "long" in numbers else "double")
    return None


def _union_type(union: Union) -> pa.DataType:
    branches = without_null(union)
    if not branches:
        return pa.null()
    if len(branches) == 1:
        return arrow_type(branches[0])
    number = merged_number(branches)
    if number is not None:
        return arrow_type(number)
    return pa.struct([pa.field(f"member{i}", arrow_type(branch)) for i, branch in enumerate(branches)])
