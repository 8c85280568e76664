"""Messages as tables of fields, compiled once per version into functions that read and write bytes.

    Struct(ProducePartition, field("index", INT32), field("records", RECORDS))

One table holds all versions of a message: a field says since when and until when it is on the wire.
Decoding a version without a field gives the field's default; encoding such a version leaves the field out,
whatever its value.

Compiled, neighbouring integers become one ``struct`` call ("a run"), arrays of plain integers and of
structs of plain integers one call for the whole array. A decoder is ``(buffer, position) -> (value, next
position)``. An encoder is ``(out, cuts, value)``: it appends to ``out``; records are not copied there but
noted in ``cuts`` as ``(position in out, part)``, and ``encode`` cuts ``out`` at these places into the parts
of the message.

Who is at fault: bytes that do not fit are a ``RemoteWireError``, values that do not fit a
``LocalWireError`` with the path of the field. An array's length is compared with the bytes that are left
before anything is allocated, so what a message makes us allocate is bounded by a small multiple of its own
size.
"""

from __future__ import annotations

import dataclasses
import operator
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby, starmap
from typing import Any, Generic, TypeVar

from minikafka.base import binary
from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.wire.parts import Part, part_size

T = TypeVar("T")

Decoder = Callable[[Buffer, int], tuple[Any, int]]
Cuts = list[tuple[int, Part]]
Encoder = Callable[[bytearray, Cuts, Any], None]

_NOT_ENCODABLE = (struct.error, TypeError, AttributeError, UnicodeError, OverflowError)
"""What Python raises for a value of the wrong type or size while it is packed."""


class Type(ABC):
    """How one value stands on the wire."""

    name: str

    @abstractmethod
    def smallest(self, version: int) -> int:
        """The fewest bytes that a value can take."""

    @abstractmethod
    def decoder(self, version: int) -> Decoder:
        """The function that reads a value."""

    @abstractmethod
    def encoder(self, version: int) -> Encoder:
        """The function that writes a value."""


class Integer(Type):
    """A big-endian two's complement integer of fixed width, or a boolean of one byte."""

    def __init__(self, name: str, code: str) -> None:
        self.name = name
        self.code = code
        self.form = struct.Struct(">" + code)

    def smallest(self, version: int) -> int:
        return self.form.size

    def decoder(self, version: int) -> Decoder:
        form = self.form
        return lambda buffer, position: binary.read_integer(form, buffer, position)

    def encoder(self, version: int) -> Encoder:
        pack = self.form.pack

        def encode(out: bytearray, cuts: Cuts, value: int) -> None:
            out += pack(value)

        return encode


class _String(Type):
    """An int16 length and UTF-8; -1 is null where that is allowed."""

    def __init__(self, *, nullable: bool) -> None:
        self.name = "nullable string" if nullable else "string"
        self._nullable = nullable

    def smallest(self, version: int) -> int:
        return 2

    def decoder(self, version: int) -> Decoder:
        return binary.read_nullable_string if self._nullable else binary.read_string

    def encoder(self, version: int) -> Encoder:
        nullable = self._nullable

        def encode(out: bytearray, cuts: Cuts, value: str | None) -> None:
            if value is None and not nullable:
                raise LocalWireError("null is not allowed here")
            binary.write_nullable_string(out, value)

        return encode


class _Records(Type):
    """An int32 length and so many bytes of message sets, decoded as a view; -1 is null where allowed."""

    def __init__(self, *, nullable: bool) -> None:
        self.name = "nullable records" if nullable else "records"
        self._nullable = nullable

    def smallest(self, version: int) -> int:
        return 4

    def decoder(self, version: int) -> Decoder:
        if self._nullable:
            return binary.read_nullable_bytes

        def decode(buffer: Buffer, position: int) -> tuple[memoryview, int]:
            value, after = binary.read_nullable_bytes(buffer, position)
            if value is None:
                raise RemoteWireError(
                    f"the records at position {position} are null, which is not allowed here"
                )
            return value, after

        return decode

    def encoder(self, version: int) -> Encoder:
        nullable = self._nullable
        pack = binary.INT32.pack

        def encode(out: bytearray, cuts: Cuts, value: Part | None) -> None:
            if value is None:
                if not nullable:
                    raise LocalWireError("null is not allowed here")
                out += b"\xff\xff\xff\xff"
                return
            size = part_size(value)
            out += pack(size)
            if size:
                cuts.append((len(out), value))

        return encode


class _Bytes(Type):
    """An int32 length and so many bytes, decoded as a copy that outlives the message; -1 is null where
    allowed.
    """

    def __init__(self, *, nullable: bool) -> None:
        self.name = "nullable bytes" if nullable else "bytes"
        self._nullable = nullable

    def smallest(self, version: int) -> int:
        return 4

    def decoder(self, version: int) -> Decoder:
        nullable = self._nullable

        def decode(buffer: Buffer, position: int) -> tuple[bytes | None, int]:
            value, after = binary.read_nullable_bytes(buffer, position)
            if value is not None:
                return bytes(value), after
            if not nullable:
                raise RemoteWireError(f"the bytes at position {position} are null, which is not allowed here")
            return None, after

        return decode

    def encoder(self, version: int) -> Encoder:
        nullable = self._nullable

        def encode(out: bytearray, cuts: Cuts, value: Buffer | None) -> None:
            if value is None and not nullable:
                raise LocalWireError("null is not allowed here")
            binary.write_nullable_bytes(out, value)

        return encode


INT8 = Integer("int8", "b")
INT16 = Integer("int16", "h")
INT32 = Integer("int32", "i")
INT64 = Integer("int64", "q")
BOOLEAN = Integer("boolean", "?")
STRING = _String(nullable=False)
NULLABLE_STRING = _String(nullable=True)
BYTES = _Bytes(nullable=False)
NULLABLE_BYTES = _Bytes(nullable=True)
RECORDS = _Records(nullable=False)
NULLABLE_RECORDS = _Records(nullable=True)


class ArrayOf(Type):
    """An int32 count and the elements, decoded as a tuple; any sequence encodes.

    ``nullable``: a count of -1 is None. ``empty_is_null``: the wire has no null, and a count of 0 means
    what null means elsewhere (all topics, in Metadata 0), so None encodes as 0 and an empty sequence cannot
    be encoded.
    """

    def __init__(self, element: Type, *, nullable: bool = False, empty_is_null: bool = False) -> None:
        self.element = element
        self.nullable = nullable
        self.empty_is_null = empty_is_null
        self.name = f"{'nullable ' if nullable else ''}array of {element.name}"
        if empty_is_null:
            self.name += " (empty is null)"

    def smallest(self, version: int) -> int:
        return 4

    def decoder(self, version: int) -> Decoder:
        read_all = _array_reader(self.element, version)
        # An element of no bytes would let a count of two thousand million through.
        smallest = max(1, self.element.smallest(version))
        nullable, empty_is_null = self.nullable, self.empty_is_null

        def decode(buffer: Buffer, position: int) -> tuple[tuple[Any, ...] | None, int]:
            count, position = binary.read_integer(binary.INT32, buffer, position)
            if count <= 0:
                if count == 0:
                    return (None if empty_is_null else ()), position
                if count == -1 and nullable:
                    return None, position
                raise RemoteWireError(f"an array of {count} elements at position {position - 4}")
            if count * smallest > len(buffer) - position:
                raise RemoteWireError(
                    f"an array of {count} elements of at least {smallest} bytes at position {position - 4} "
                    f"does not fit a message of {len(buffer)} bytes"
                )
            return read_all(buffer, position, count)

        return decode

    def encoder(self, version: int) -> Encoder:
        write_all = _array_writer(self.element, version)
        nullable, empty_is_null = self.nullable, self.empty_is_null
        pack = binary.INT32.pack

        def encode(out: bytearray, cuts: Cuts, value: Sequence[Any] | None) -> None:
            if value is None:
                if not (nullable or empty_is_null):
                    raise LocalWireError("null is not allowed here")
                out += b"\xff\xff\xff\xff" if nullable else b"\0\0\0\0"
                return
            if value.__class__ is str:
                raise LocalWireError(f"the text {value!r} stands where an array is wanted")
            if empty_is_null and not value:
                raise LocalWireError("an empty array would mean null in this version, and cannot be sent")
            out += pack(len(value))
            write_all(out, cuts, value)

        return encode


@dataclasses.dataclass(frozen=True)
class Field:
    """One row of the table. ``until`` is the last version that has the field; None: it is still there."""

    name: str
    type: Type
    since: int
    until: int | None
    default: Any
    note: str

    def in_version(self, version: int) -> bool:
        """Whether ``version`` carries the field."""
        return self.since <= version and (self.until is None or version <= self.until)


def field(
    name: str, type_: Type, note: str = "", *, since: int = 0, until: int | None = None, default: Any = None
) -> Field:
    """One row: the attribute's name, type and meaning, the versions that have it, its value in the others."""
    return Field(name, type_, since, until, default, note)


class Struct(Type, Generic[T]):
    """The fields of a message, or of an element of an array, and the dataclass that holds them.

    The rows stand in the order of the wire, which is also the order of the dataclass. A name may have two
    rows when its type changed, with versions that do not overlap.
    """

    def __init__(self, cls: type[T], *fields: Field) -> None:
        self.cls = cls
        self.fields = fields
        self.name = cls.__name__
        names = [row.name for row in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if list(dict.fromkeys(row.name for row in fields)) != names:
            raise TypeError(f"the rows of {self.name} are not its fields in order: {names}")
        self._names = names

    def rows(self, version: int) -> Iterator[tuple[str, Field | None]]:
        """Every attribute of the class in order, with its row in ``version``, or None where that has none."""
        for name in self._names:
            found = [row for row in self.fields if row.name == name and row.in_version(version)]
            if len(found) > 1:
                raise TypeError(f"{self.name}.{name} has {len(found)} rows for version {version}")
            yield name, found[0] if found else None

    def form(self, version: int) -> struct.Struct | None:
        """The one ``struct`` of a version where every attribute is a present integer, else None."""
        codes = [_code(row) for _, row in self.rows(version)]
        return struct.Struct(">" + "".join(codes)) if codes and all(codes) else None

    def smallest(self, version: int) -> int:
        return sum(row.type.smallest(version) for _, row in self.rows(version) if row)

    def decoder(self, version: int) -> Decoder:
        steps = list(self._decoding_steps(version))
        cls, name = self.cls, self.name

        def decode(buffer: Buffer, position: int) -> tuple[T, int]:
            values: list[Any] = []
            for form, read in steps:
                if form is None:
                    value, position = read(buffer, position)
                    values.append(value)
                    continue
                try:
                    values += form.unpack_from(buffer, position)
                except struct.error:
                    raise RemoteWireError(
                        f"{name} wants {form.size} bytes at {position}, the message has {len(buffer)}"
                    ) from None
                position += form.size
            return cls(*values), position

        return decode

    def encoder(self, version: int) -> Encoder:
        steps = list(self._encoding_steps(version))

        def encode(out: bytearray, cuts: Cuts, value: T) -> None:
            for get, form, write in steps:
                if form is None:
                    write(out, cuts, get(value))
                else:
                    out += form.pack(*get(value))

        return encode

    def _decoding_steps(self, version: int) -> Iterator[tuple[struct.Struct | None, Decoder]]:
        for is_integer, rows in groupby(self.rows(version), key=_is_integer):
            if is_integer:
                yield struct.Struct(">" + "".join(_code(row) for _, row in rows)), _no_decoder
                continue
            for name, row in rows:
                yield None, _constant(self._default(name)) if row is None else row.type.decoder(version)

    def _encoding_steps(
        self, version: int
    ) -> Iterator[tuple[Callable[[Any], Any], struct.Struct | None, Encoder]]:
        present = [(name, row) for name, row in self.rows(version) if row is not None]
        for is_integer, group in groupby(present, key=_is_integer):
            rows = list(group)
            if is_integer and len(rows) > 1:
                form = struct.Struct(">" + "".join(_code(row) for _, row in rows))
                yield operator.attrgetter(*(name for name, _ in rows)), form, _no_encoder
                continue
            for name, row in rows:
                yield operator.attrgetter(name), None, row.type.encoder(version)

    def _default(self, name: str) -> Any:
        return next(row.default for row in self.fields if row.name == name)


def _code(row: Field | None) -> str:
    return row.type.code if row is not None and isinstance(row.type, Integer) else ""


def _is_integer(named: tuple[str, Field | None]) -> bool:
    return _code(named[1]) != ""


def _constant(value: Any) -> Decoder:
    return lambda buffer, position: (value, position)


def _no_decoder(buffer: Buffer, position: int) -> tuple[Any, int]:
    raise AssertionError("a run has its struct instead of this")


def _no_encoder(out: bytearray, cuts: Cuts, value: Any) -> None:
    raise AssertionError("a run has its struct instead of this")


def _array_reader(element: Type, version: int) -> Callable[[Buffer, int, int], tuple[tuple[Any, ...], int]]:
    """The function ``(buffer, position, count)`` that reads elements; the caller knows that they can fit."""
    if isinstance(element, Integer):
        code, width = element.code, element.form.size

        def read_integers(buffer: Buffer, position: int, count: int) -> tuple[tuple[Any, ...], int]:
            return struct.unpack_from(f">{count}{code}", buffer, position), position + count * width

        return read_integers
    form = element.form(version) if isinstance(element, Struct) else None
    if form is not None and isinstance(element, Struct):
        cls, width, iter_unpack = element.cls, form.size, form.iter_unpack

        def read_plain_structs(buffer: Buffer, position: int, count: int) -> tuple[tuple[Any, ...], int]:
            end = position + count * width
            return tuple(starmap(cls, iter_unpack(memoryview(buffer)[position:end]))), end

        return read_plain_structs
    read = element.decoder(version)

    def read_one_by_one(buffer: Buffer, position: int, count: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for _ in range(count):
            value, position = read(buffer, position)
            values.append(value)
        return tuple(values), position

    return read_one_by_one


def _array_writer(element: Type, version: int) -> Encoder:
    if isinstance(element, Integer):
        code = element.code

        def write_integers(out: bytearray, cuts: Cuts, values: Sequence[int]) -> None:
            out += struct.pack(f">{len(values)}{code}", *values)

        return write_integers
    write = element.encoder(version)

    def write_one_by_one(out: bytearray, cuts: Cuts, values: Sequence[Any]) -> None:
        for value in values:
            write(out, cuts, value)

    return write_one_by_one


@cache
def _compiled_decoder(schema: Struct[Any], version: int) -> Decoder:
    return schema.decoder(version)


@cache
def _compiled_encoder(schema: Struct[Any], version: int) -> Encoder:
    return schema.encoder(version)


def decode(schema: Struct[T], version: int, buffer: Buffer) -> T:
    """The message that fills ``buffer``; records are views of it. RemoteWireError unless it fits exactly."""
    value, end = decode_prefix(schema, version, buffer)
    if end != len(buffer):
        raise RemoteWireError(
            f"{schema.name} of version {version} ends at byte {end}, the message has {len(buffer)}"
        )
    return value


def decode_prefix(schema: Struct[T], version: int, buffer: Buffer) -> tuple[T, int]:
    """The message that ``buffer`` begins with, and where it ends. RemoteWireError when it is cut off."""
    return _compiled_decoder(schema, version)(buffer, 0)


def encode(schema: Struct[T], version: int, value: T) -> list[Part]:
    """The parts of a message; records stand in it as they were given. LocalWireError for unfit values."""
    out = bytearray()
    cuts: Cuts = []
    try:
        _compiled_encoder(schema, version)(out, cuts, value)
    except (LocalWireError, *_NOT_ENCODABLE):
        path, problem = _find_fault(schema, version, value, schema.name)
        raise LocalWireError(f"{path} (version {version}): {problem}") from None
    if not cuts:
        return [out]
    parts: list[Part] = []
    view, start = memoryview(out), 0
    for position, part in cuts:
        parts += (view[start:position], part)
        start = position
    if start < len(out):
        parts.append(view[start:])
    return parts


def _find_fault(type_: Type, version: int, value: Any, path: str) -> tuple[str, str]:
    """Where a value that cannot be encoded is, and why: its leaves are tried one by one."""
    if isinstance(type_, Struct):
        for name, row in type_.rows(version):
            if row is None:
                continue
            if not hasattr(value, name):
                return path, f"a {type(value).__name__} has no {name}"
            if not _encodes(row.type, version, getattr(value, name)):
                return _find_fault(row.type, version, getattr(value, name), f"{path}.{name}")
    elif isinstance(type_, ArrayOf) and isinstance(value, Sequence) and not isinstance(value, str):
        for index, element in enumerate(value):
            if not _encodes(type_.element, version, element):
                return _find_fault(type_.element, version, element, f"{path}[{index}]")
    try:
        type_.encoder(version)(bytearray(), [], value)
    except LocalWireError as error:
        return path, str(error)
    except _NOT_ENCODABLE:
        pass
    shown = repr(value)
    return path, f"{shown if len(shown) <= 60 else shown[:60] + '…'} is not a value of type {type_.name}"


def _encodes(type_: Type, version: int, value: Any) -> bool:
    try:
        type_.encoder(version)(bytearray(), [], value)
    except (LocalWireError, *_NOT_ENCODABLE):
        return False
    return True
