"""Values of messages, by their tables."""

from __future__ import annotations

from itertools import count
from typing import Any

from minikafka.wire.fields import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    NULLABLE_BYTES,
    NULLABLE_RECORDS,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    UUID,
    ArrayOf,
    Integer,
    Type,
)
from minikafka.wire.schema import Struct


def elements(type_: Type, version: int, value: Any) -> int:
    """Return the elements of a value in all its arrays, and its tagged fields, which count as such."""
    if isinstance(type_, ArrayOf) and value is not None:
        return len(value) + sum(elements(type_.element, version, element) for element in value)
    if not isinstance(type_, Struct) or value is None:
        return 0
    count = 0
    for name, row in type_.rows(version):
        held = getattr(value, name)
        if row is not None and (row.tag is None or held != row.default):
            count += elements(row.type, version, held) + (row.tag is not None)
    return count


def filled(type_: Type, version: int, numbers: count[int], *, nulls: bool) -> Any:
    """A value in which no two fields are equal, as far as their types allow; null where that is allowed."""
    if type_ is BOOLEAN:
        return next(numbers) % 2 == 0
    if isinstance(type_, Integer):
        return next(numbers)
    if type_ is FLOAT64:
        return next(numbers) + 0.5
    if type_ is UUID:
        return next(numbers).to_bytes(16, "big")
    if type_ in (STRING, NULLABLE_STRING):
        return None if nulls and type_ is NULLABLE_STRING else f"text {next(numbers)}"
    if type_ in (BYTES, NULLABLE_BYTES, RECORDS, NULLABLE_RECORDS):
        return None if nulls and type_ in (NULLABLE_BYTES, NULLABLE_RECORDS) else b"bytes %d" % next(numbers)
    if isinstance(type_, ArrayOf):
        if nulls and type_.nullable:
            return None
        return tuple(filled(type_.element, version, numbers, nulls=nulls) for _ in range(2))
    assert isinstance(type_, Struct)
    defaults = {row.name: row.default for row in type_.fields}
    return type_.cls(
        **{
            name: defaults[name] if row is None else filled(row.type, version, numbers, nulls=nulls)
            for name, row in type_.rows(version)
        }
    )
