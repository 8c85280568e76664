"""Messages as classes of annotated fields, from which decoders and encoders are generated.

    @fast_value
    class FetchPartition:
        index: Int32
        current_leader_epoch: Annotated[Int32, since(9, default=-1), "-1: unknown"]
        fetch_offset: Int64

The fields are in wire order. The type of a field is its encoding: an integer of a width, ``bool``, ``str``,
``bytes`` or ``Records``, another such class, or a tuple of any of these, which is an array. ``| None`` allows
null. ``Annotated`` adds the versions that have the field, and a note for the reference.

One class has all versions of a message. Decoding a version without a field yields the field's default;
encoding such a version omits the field, whatever its value.

``flexible`` versions (KIP-482) have compact lengths, and tagged fields at the end of every struct. A tagged
field that is not encoded is decoded as its default; unknown ones are skipped.

For each version ``codegen`` compiles a decoder ``(buffer, most) -> (value, end)`` and an encoder
``(out, cuts, value)``, which appends to ``out``. Records are not copied there but noted in ``cuts`` as
``(position in out, part)``, and ``encode`` splits ``out`` at these positions into the parts of the message.

Bytes that do not fit raise ``RemoteWireError``; values that do not fit raise ``LocalWireError`` with the path
of the field. An array's length is checked against the remaining bytes and ``MAX_ELEMENTS`` before anything is
allocated. A tagged field counts as an element.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.wire.codegen import VARINT, ZERO_BYTE, FunctionBuilder, IntegerRun, varint
from minikafka.wire.fields import (
    ENCODINGS,
    NOT_ENCODABLE,
    NULLABLE_RECORDS,
    RECORDS,
    ArrayOf,
    Fault,
    FixedWidth,
    Type,
    Versions,
)
from minikafka.wire.frame_parts import Part

T = TypeVar("T")

Decoder = Callable[[memoryview, int], tuple[Any, int]]
Cuts = list[tuple[int, Part]]
Encoder = Callable[[bytearray, Cuts, Any], None]

MAX_ELEMENTS = 500_000
"""The limit of elements in all arrays of a message together.

An element of two bytes on the wire may be an object of 300, so that a request of 100 MB could take gigabytes.
The limit keeps it at 150 MB, and strings at up to four times their bytes (as Python stores them). A request
that names 200,000 partitions, the largest cluster that Kafka 2.1 was made for, each in its own topic, has
400,000.
"""
MAX_RESPONSE_ELEMENTS = 4_000_000
"""The limit for responses. Metadata of such a cluster with five replicas has 2,400,000."""
MAX_CONTROLLER_ELEMENTS = 2_400_000
"""The limit for requests of a controller, which send that metadata to a starting broker."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a message, with one type. ``until`` is the last version with it; None: no end. ``tag`` None:
    it is not a tagged field.
    """

    name: str
    type: Type
    since: int
    until: int | None
    default: Any
    note: str
    tag: int | None

    def in_version(self, version: int) -> bool:
        """Return whether ``version`` has the field."""
        return self.since <= version and (self.until is None or version <= self.until)


def type_of(annotation: Any, what: str) -> Type:
    """Return the encoding of ``what`` by its annotation. Raises TypeError for one without an encoding."""
    if isinstance(annotation, Type):
        return annotation
    if hasattr(annotation, "__metadata__"):  # Annotated
        own = (extra for extra in annotation.__metadata__ if isinstance(extra, Type))
        return next(own, None) or type_of(annotation.__origin__, what)
    if annotation in ENCODINGS:
        return ENCODINGS[annotation]
    if dataclasses.is_dataclass(annotation):
        return Struct(annotation)
    nullable = get_origin(annotation) in (Union, UnionType) and get_args(annotation)[1:] == (NoneType,)
    inner = get_args(annotation)[0] if nullable else annotation
    if get_origin(inner) is tuple:
        return ArrayOf(type_of(get_args(inner)[0], what), nullable=nullable)
    if nullable and dataclasses.is_dataclass(inner):
        return NullableStruct(inner)
    raise TypeError(f"{what}: {annotation} has no encoding (integers have a width: Int8 to Int64)")


@cache
def fields_of(cls: Any) -> tuple[Field, ...]:
    """Return the fields of a message in wire order. One that changed its type is there twice."""
    if hasattr(cls, "__post_init__") or cls.__setattr__ is not object.__setattr__:
        raise TypeError(f"{cls.__name__} must be a fast_value: its instances are created field by field")
    types = get_type_hints(cls, include_extras=True)
    return tuple(found for row in dataclasses.fields(cls) for found in _fields(cls, row, types[row.name]))


def _fields(cls: Any, declared: dataclasses.Field[Any], annotation: Any) -> Iterator[Field]:
    name, what = declared.name, f"{cls.__name__}.{declared.name}"
    extras: dict[type, Any] = {type(extra): extra for extra in getattr(annotation, "__metadata__", ())}
    versions, note, type_ = extras.get(Versions, Versions()), extras.get(str, ""), type_of(annotation, what)
    default = None if declared.default is dataclasses.MISSING else declared.default
    if versions.default is not None:
        default = versions.default
    if versions.earlier:
        earlier = type_of(versions.earlier, what)
        yield Field(name, earlier, 0, versions.since - 1, None, versions.earlier_note, None)
    elif default is None and versions != Versions() and not getattr(type_, "nullable", False):
        raise TypeError(f"{what} needs a default for the versions without it")
    if versions.tag is not None and type_ in (RECORDS, NULLABLE_RECORDS):
        raise TypeError(f"{what} is tagged: its size would stand before records, which are not copied")
    yield Field(name, type_, versions.since, versions.until, default, note, versions.tag)


class Struct(Type):
    """The fields of a message, or of an element of an array, and the class that holds them."""

    head = ""

    def __init__(self, cls: Any) -> None:
        self.cls: type[Any] = cls
        self.name = cls.__name__
        self.fields = fields_of(cls)
        self._defaults = {row.name: row.default for row in self.fields}

    def rows(self, version: int) -> Iterator[tuple[str, Field | None]]:
        """Yield the name of every field in order, with the field as ``version`` has it, or None."""
        for name in self._defaults:
            found = (row for row in self.fields if row.name == name and row.in_version(version))
            yield name, next(found, None)

    def _untagged(self, version: int) -> Iterator[Field]:
        return (row for _, row in self.rows(version) if row and row.tag is None)

    def _tagged(self, version: int) -> list[tuple[int, Field]]:
        rows = (row for _, row in self.rows(version) if row)
        return sorted(((row.tag, row) for row in rows if row.tag is not None), key=lambda pair: pair[0])

    def smallest(self, version: int, flexible: bool) -> int:
        return flexible + sum(row.type.smallest(version, flexible) for row in self._untagged(version))

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        """Append code that reads the whole message, which has no head."""
        cls: type = self.cls
        code.line(f"{target} = new({code.named(self.name, cls)})")
        run = IntegerRun(code)
        for name, row in self.rows(version):
            attribute = f"{target}.{name}"
            if row is None or row.tag is not None:
                code.line(f"{attribute} = {self._default(code, name)}")
            elif isinstance(row.type, FixedWidth):
                run.add(name, row.type.head, attribute)
            else:
                if row.type.head:
                    run.add(name, row.type.head_read(code), "n")
                run.read(self.name)
                row.type.read(code, version, attribute, f"{self.name}.{name}")
        if code.flexible:
            run.add("tagged fields", VARINT, "n")
        run.read(self.name)
        if code.flexible:
            with code.block("if n:"):
                self._read_tagged(code, version, target)

    def _default(self, code: FunctionBuilder, name: str) -> str:
        return code.named("default_of_" + name, self._defaults[name])

    def _read_tagged(self, code: FunctionBuilder, version: int, target: str) -> None:
        known = self._tagged(version)
        if not known:
            code.line(f"position, left = skip_tagged_fields(buffer, position, n, left, most, {self.name!r})")
            return
        code.read_rest_of_varint(self.name)
        code.line("left -= n")
        with code.block("if left < 0:"):
            code.line(f"raise wrong_tagged_count({self.name!r}, n, position, most)")
        number = code.fresh()
        tag, end = f"tag{number}", f"end{number}"
        with code.block("for _ in range(n):"):
            code.line(f"{tag}, position, {end} = tagged_field(buffer, position, {self.name!r})")
            for value, row in known:
                what = f"{self.name}.{row.name}"
                with code.block(f"if {tag} == {value}:"):
                    if row.type.head:
                        IntegerRun(code, (row.name, row.type.head_read(code), "n")).read(self.name)
                    row.type.read(code, version, f"{target}.{row.name}", what)
                    with code.block(f"if position != {end}:"):
                        code.line(f"raise wrong_tagged_size({what!r}, position, {end})")
            code.line(f"position = {end}")

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        return "", value

    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        run = IntegerRun(code)
        for row in self._untagged(version):
            head, after = row.type.measured(code, version, f"{rest}.{row.name}")
            row.type.write_head(code, run, row.name, head)
            if not isinstance(row.type, FixedWidth):
                run.write()
                row.type.write(code, version, head, after)
        known = self._tagged(version) if code.flexible else []
        if code.flexible and not known:
            run.add("tagged fields", ZERO_BYTE, "")
        run.write()
        if known:
            self._write_tagged(code, version, rest, known)

    def _write_tagged(
        self, code: FunctionBuilder, version: int, rest: str, known: list[tuple[int, Field]]
    ) -> None:
        differ = []
        for _, row in known:
            value, default = f"{rest}.{row.name}", self._default(code, row.name)
            # Mostly it is the default itself, and to compare structs takes longer than all else here.
            differ.append(f"({value} is not {default} and {value} != {default})")
        with code.block(f"if {' or '.join(differ)}:"):
            code.write_varint(" + ".join(differ))
            for (tag, row), differs in zip(known, differ, strict=True):
                with code.block(f"if {differs}:"):
                    self._write_tagged_field(code, version, f"{rest}.{row.name}", tag, row)
        with code.block("else:"):
            code.line("out.append(0)")

    def _write_tagged_field(
        self, code: FunctionBuilder, version: int, value: str, tag: int, row: Field
    ) -> None:
        start, run = f"start{code.fresh()}", IntegerRun(code)
        code.line(f"out += {varint(tag)!r}")
        code.line(f"{start} = len(out)")
        head, after = row.type.measured(code, version, value)
        row.type.write_head(code, run, row.name, head)
        run.write()
        row.type.write(code, version, head, after)
        code.line(f"out[{start}:{start}] = varint(len(out) - {start})")

    def fault(self, version: int, value: Any, path: str) -> Fault | None:
        for name, row in self.rows(version):
            if row is None:
                continue
            if not hasattr(value, name):
                return path, f"a {type(value).__name__} has no {name}"
            found = row.type.fault(version, getattr(value, name), f"{path}.{name}")
            if found:
                return found
        return None


class NullableStruct(Struct):
    """A struct behind an int8: 1, or -1 for null."""

    head = "b"

    def smallest(self, version: int, flexible: bool) -> int:
        return 1

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        with code.block("if n < 0:"):
            code.line(f"{target} = None")
        with code.block("else:"):
            super().read(code, version, target, what)

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        rest = f"rest{code.fresh()}"
        code.line(f"{rest} = {value}")
        return f"-1 if {rest} is None else 1", rest

    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        with code.block(f"if {rest} is not None:"):
            super().write(code, version, head, rest)

    def fault(self, version: int, value: Any, path: str) -> Fault | None:
        return None if value is None else super().fault(version, value, path)


def decoder_code(message: Struct, version: int, flexible: bool = False) -> FunctionBuilder:
    """Return the generated code of a decoder."""
    code = FunctionBuilder(flexible=flexible)
    with code.block("def decode(buffer, most):"):
        code.line("size, position, left = len(buffer), 0, most")
        message.read(code, version, "message", message.name)
        code.line("return message, position")
    return code


def encoder_code(message: Struct, version: int, flexible: bool = False) -> FunctionBuilder:
    """Return the generated code of an encoder."""
    code = FunctionBuilder(flexible=flexible)
    with code.block("def encode(out, cuts, message):"):
        message.write(code, version, "", "message")
        code.line("return out")
    return code


# To mypy a class is not hashable: hence the two ignores where these are called.
@cache
def _decoder(cls: type[Any], version: int, flexible: bool) -> Decoder:
    title = f"decoder of {cls.__name__} {version}"
    return decoder_code(Struct(cls), version, flexible).function("decode", title)


@cache
def _encoder(cls: type[Any], version: int, flexible: bool) -> Encoder:
    title = f"encoder of {cls.__name__} {version}"
    return encoder_code(Struct(cls), version, flexible).function("encode", title)


def decode(
    cls: type[T], version: int, buffer: Buffer, max_elements: int = MAX_ELEMENTS, flexible: bool = False
) -> T:
    """Decode the message that fills ``buffer``; records are views of it.

    Raises RemoteWireError unless it fits exactly, or for more than ``max_elements`` elements in all arrays.
    """
    view = memoryview(buffer)
    value, end = _decoder(cls, version, flexible)(view, max_elements)  # type: ignore[arg-type]
    if end != len(view):
        raise RemoteWireError(
            f"{cls.__name__} of version {version} ends at byte {end}, the message has {len(view)}"
        )
    return value  # type: ignore[no-any-return]


def decode_prefix(
    cls: type[T], version: int, buffer: Buffer, max_elements: int = MAX_ELEMENTS, flexible: bool = False
) -> tuple[T, int]:
    """Decode the message at the start of ``buffer``. Return it and its end. Raises RemoteWireError."""
    return _decoder(cls, version, flexible)(memoryview(buffer), max_elements)  # type: ignore[arg-type]


def encode(cls: type[T], version: int, value: T, flexible: bool = False) -> list[Part]:
    """Encode a message into parts; records are not copied. Raises LocalWireError for invalid values."""
    out = bytearray()
    cuts: Cuts = []
    try:
        _encoder(cls, version, flexible)(out, cuts, value)  # type: ignore[arg-type]
    except NOT_ENCODABLE as error:
        path, problem = Struct(cls).fault(version, value, cls.__name__) or (cls.__name__, repr(error))
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
