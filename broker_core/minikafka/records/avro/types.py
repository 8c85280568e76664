"""Avro's types, with all names resolved. A schema's text is parsed elsewhere: this is what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minikafka.base.errors import MinikafkaError


class AvroError(MinikafkaError):
    """A schema that cannot be used, or a row that cannot be written with it."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """The logical type of bytes and fixed."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type by name: null, boolean, int, long, float, double, bytes or string.

    logical: of int ``date``, of long ``timestamp-millis`` and the like, of bytes a Decimal. Others are left
    out.
    """

    name: str
    logical: str | Decimal | None = None

    def __str__(self) -> str:
        return self.name if self.logical is None else f"{self.name} ({_text(self.logical)})"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bytes of a fixed size."""

    name: str
    size: int
    logical: Decimal | None = None
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        decimal = "" if self.logical is None else f", {_text(self.logical)}"
        return f"fixed {self.name} ({self.size} bytes{decimal})"


@dataclass(frozen=True, slots=True)
class Enum:
    """One of several symbols. ``default``: what a reader takes for a symbol that it does not have."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"enum {self.name}"


@dataclass(frozen=True, slots=True)
class Array:
    """A list of items of one type."""

    items: Type

    def __str__(self) -> str:
        return f"array of {self.items}"


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one type by strings."""

    values: Type

    def __str__(self) -> str:
        return f"map of {self.values}"


@dataclass(frozen=True, slots=True)
class Union:
    """A value of one of several types."""

    branches: tuple[Type, ...]

    def __str__(self) -> str:
        return f"union of {', '.join(map(str, self.branches))}"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record. ``default``: in Avro binary."""

    name: str
    type: Type
    default: bytes | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Fields in their order."""

    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"record {self.name}"


Type: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | Record

NULL = Primitive("null")

_LEAST_BYTES = {"null": 0, "float": 4, "double": 8}


def least_bytes(kind: Type) -> int:
    """Return the least size of a value."""
    if isinstance(kind, Record):
        return sum(least_bytes(field.type) for field in kind.fields)
    if isinstance(kind, Fixed):
        return kind.size
    if isinstance(kind, Union):
        return 1 + min(map(least_bytes, kind.branches), default=0)
    return _LEAST_BYTES.get(kind.name, 1) if isinstance(kind, Primitive) else 1


def without_null(union: Union) -> tuple[Type, ...]:
    """Return the other branches of a union."""
    return tuple(branch for branch in union.branches if branch != NULL)


def _text(logical: str | Decimal) -> str:
    return logical if isinstance(logical, str) else f"decimal({logical.precision},{logical.scale})"
