"""The types of protobuf as columns need them: messages with all names resolved, and their Arrow types.

The Arrow types are those of the columns that Spark's ``from_protobuf`` gives: a message is a struct (without
fields whose message has none), an enum its name, Timestamp and Duration are Spark's own types, and unsigned
numbers are signed with the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.base.errors import MinikafkaError
from minikafka.records.kernels import protobuf as kernels

TIMESTAMP = "google.protobuf.Timestamp"
DURATION = "google.protobuf.Duration"

_WIRE = {
    "fixed64": kernels.FIXED64,
    "sfixed64": kernels.FIXED64,
    "double": kernels.FIXED64,
    "fixed32": kernels.FIXED32,
    "sfixed32": kernels.FIXED32,
    "float": kernels.FIXED32,
    "string": kernels.LENGTH,
    "bytes": kernels.LENGTH,
    "message": kernels.LENGTH,
}
_WIDTHS = {kernels.VARINT: 0, kernels.FIXED64: 8, kernels.FIXED32: 4}
_ARROW = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int64": pa.int64(),
    "uint64": pa.int64(),
    "sint64": pa.int64(),
    "fixed64": pa.int64(),
    "sfixed64": pa.int64(),
    "int32": pa.int32(),
    "uint32": pa.int32(),
    "sint32": pa.int32(),
    "fixed32": pa.int32(),
    "sfixed32": pa.int32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
}


class ProtobufError(MinikafkaError):
    """A message type that no column can have, or a row that cannot be written as a message."""


@dataclass(frozen=True, slots=True)
class EnumType:
    """An enum: its numbers, ascending, with the first name of each. aliases: all names with their numbers.
    is_closed: other numbers count as absent.
    """

    name: str
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    aliases: tuple[tuple[str, int], ...]
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    kind: its type's name in a .proto file (no group); ``enum`` and ``message`` for the types of these kinds.
    has_presence: an absent value differs from zero. oneof: the number of its group; -1: none. default: of
    proto2, as the column has it; None: zero, or a required field.
    """

    name: str
    number: int
    kind: str
    is_repeated: bool = False
    is_map: bool = False
    is_packed: bool = False
    is_required: bool = False
    has_presence: bool = False
    oneof: int = -1
    default: int | float | bool | str | bytes | None = None
    enum: EnumType | None = None
    message: Message | None = None

    @property
    def closed_numbers(self) -> tuple[int, ...]:
        """The numbers of the field's enum, if that is closed."""
        return self.enum.numbers if self.enum is not None and self.enum.is_closed else ()

    def knows(self, varint: int) -> bool:
        """Return False for a number that the field's closed enum does not have: an unknown field."""
        closed = self.closed_numbers
        return not closed or int(np.uint32(varint & 0xFFFFFFFF).view(np.int32)) in closed

    @property
    def wire(self) -> int:
        """The wire type of one value."""
        return _WIRE.get(self.kind, kernels.VARINT)

    @property
    def width(self) -> int:
        """The bytes of a number; 0 for a varint."""
        return _WIDTHS[self.wire]

    @property
    def tag(self) -> bytes:
        """The bytes before one value."""
        return tag(self.number, self.wire)

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type of one value."""
        if self.message is not None:
            return self.message.arrow_type
        return _ARROW[self.kind]

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the field's column."""
        if self.is_map:
            key, value = self.entry
            return pa.map_(key.value_type, pa.field("value", value.value_type, nullable=False))
        if self.is_repeated:
            return pa.list_(pa.field("element", self.value_type, nullable=False))
        return self.value_type

    @property
    def entry(self) -> tuple[Field, Field]:
        """Key and value of a map's entries."""
        assert self.message is not None, "a map has the message of its entries"
        key, value = self.message.fields
        return key, value

    @property
    def has_column(self) -> bool:
        """False for messages without fields, which no struct can hold."""
        if self.is_map:
            return self.entry[1].has_column
        return self.message is None or self.message.is_well_known or bool(self.message.columns)


@dataclass(frozen=True, slots=True)
class Message:
    """A message type. fields: by ascending number. names: in the order of the .proto file."""

    name: str
    fields: tuple[Field, ...]
    names: tuple[str, ...]

    @property
    def is_well_known(self) -> bool:
        """True if the message is a type of its own in Spark."""
        kinds = {field.name: field.kind for field in self.fields}
        return self.name in (TIMESTAMP, DURATION) and kinds == {"seconds": "int64", "nanos": "int32"}

    @property
    def columns(self) -> list[Field]:
        """The fields that have a column, in the order of the .proto file."""
        fields = {field.name: field for field in self.fields}
        return [fields[name] for name in self.names if fields[name].has_column]

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of a column of such messages."""
        if self.is_well_known:
            return pa.timestamp("us", tz="UTC") if self.name == TIMESTAMP else pa.duration("us")
        return pa.struct(
            [pa.field(field.name, field.arrow_type, nullable=not field.is_required) for field in self.columns]
        )

    @property
    def oneofs(self) -> int:
        """The number of its oneofs."""
        return max((field.oneof for field in self.fields), default=-1) + 1


def tag(number: int, wire: int) -> bytes:
    """Return a field's number and wire type as bytes."""
    left, written = number << 3 | wire, bytearray()
    while left >= 128:
        written.append(left & 127 | 128)
        left >>= 7
    written.append(left)
    return bytes(written)


def from_wire(field: Field, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Return the numbers of a field, as int64 from the wire, as they are in its column (an enum's: int32)."""
    if field.kind == "double":
        return numbers.view(np.float64)
    if field.kind == "bool":
        return np.not_equal(numbers, 0)
    if field.kind == "sint64":
        magnitudes: NDArray[np.int64] = (numbers.view(np.uint64) >> np.uint64(1)).view(np.int64)
        return magnitudes ^ -(numbers & 1)
    if field.value_type == pa.int64():
        return numbers
    narrow: NDArray[np.uint32] = numbers.astype(np.uint32)
    if field.kind == "float":
        return narrow.view(np.float32)
    if field.kind == "sint32":
        halves: NDArray[np.int32] = (narrow >> np.uint32(1)).view(np.int32)
        signs: NDArray[np.int32] = (narrow & np.uint32(1)).view(np.int32)
        return halves ^ -signs
    return narrow.view(np.int32)


def to_wire(field: Field, numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Return a field's numbers, as in its column, as int64 for the wire."""
    if field.kind == "double":
        return numbers.view(np.int64)
    if field.kind == "float":
        return numbers.view(np.uint32).astype(np.int64)
    wide: NDArray[np.int64] = numbers.astype(np.int64)
    if field.kind == "sint64":
        return _zigzag(wide)
    if field.kind == "sint32":
        return _zigzag(wide) & 0xFFFFFFFF
    if field.kind in ("uint32", "fixed32", "sfixed32"):
        return wide & 0xFFFFFFFF
    return wide  # a negative int32 or enum takes ten bytes, as in protobuf


def _zigzag(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    signs: NDArray[np.int64] = numbers >> 63
    return numbers << 1 ^ signs
