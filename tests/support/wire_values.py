"""What messages hold, by their tables."""

from __future__ import annotations

from typing import Any

from minikafka.wire.fields import ArrayOf, Type
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
