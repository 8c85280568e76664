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

For each version ``codegen`` compiles a decoder ``(buffer, most) -> (value, end)`` and an encoder
``(out, cuts, value)``, which appends to ``out``. Records are not copied there but noted in ``cuts`` as
``(position in out, part)``, and ``encode`` splits ``out`` at these positions into the parts of the message.

Bytes that do not fit raise ``RemoteWireError``; values that do not fit raise ``LocalWireError`` with the path
of the field. An array's length is checked against the remaining bytes and ``MAX_ELEMENTS`` before anything is
allocated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.wire.codegen import FunctionBuilder, IntegerRun
from minikafka.wire.fields import ENCODINGS, NOT_ENCODABLE, ArrayOf, Fault, Integer, Type, Versions
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
    """A field of a message, with one type. ``until`` is the last version with it; None: no end."""

    name: str
    type: Type
    since: int
    until: int | None
    default: Any
    note: str

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
    nullable = get_origin(annotation) in (Union, UnionType)
    array = get_args(annotation)[0] if nullable else annotation
    if get_origin(array) is tuple:
        return ArrayOf(type_of(get_args(array)[0], what), nullable=nullable)
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
        yield Field(name, earlier, 0, versions.since - 1, None, versions.earlier_note)
    elif default is None and versions != Versions() and not getattr(type_, "nullable", False):
        raise TypeError(f"{what} needs a default for the versions without it")
    yield Field(name, type_, versions.since, versions.until, default, note)


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

    def smallest(self, version: int) -> int:
        return sum(row.type.smallest(version) for _, row in self.rows(version) if row)

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        """Append code that reads the whole message, which has no head."""
        cls: type = self.cls
        code.line(f"{target} = new({code.named(self.name, cls)})")
        run = IntegerRun(code)
        for name, row in self.rows(version):
            attribute = f"{target}.{name}"
            if row is None:
                code.line(f"{attribute} = {code.named('default_of_' + name, self._defaults[name])}")
            elif isinstance(row.type, Integer):
                run.add(name, row.type.head, attribute)
            else:
                if row.type.head:
                    run.add(name, row.type.head, "n")
                run.read(self.name)
                row.type.read(code, version, attribute, f"{self.name}.{name}")
        run.read(self.name)

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        return "", value

    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        run = IntegerRun(code)
        for name, row in self.rows(version):
            if row is None:
                continue
            head, after = row.type.measured(code, version, f"{rest}.{name}")
            if row.type.head:
                run.add(name, row.type.head, head)
            if not isinstance(row.type, Integer):
                run.write()
                row.type.write(code, version, head, after)
        run.write()

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


def decoder_code(message: Struct, version: int) -> FunctionBuilder:
    """Return the generated code of a decoder."""
    code = FunctionBuilder()
    with code.block("def decode(buffer, most):"):
        code.line("size, position, left = len(buffer), 0, most")
        message.read(code, version, "message", message.name)
        code.line("return message, position")
    return code


def encoder_code(message: Struct, version: int) -> FunctionBuilder:
    """Return the generated code of an encoder."""
    code = FunctionBuilder()
    with code.block("def encode(out, cuts, message):"):
        message.write(code, version, "", "message")
        code.line("return out")
    return code


# To mypy a class is not hashable: hence the two ignores where these are called.
@cache
def _decoder(cls: type[Any], version: int) -> Decoder:
    return decoder_code(Struct(cls), version).function("decode", f"decoder of {cls.__name__} {version}")


@cache
def _encoder(cls: type[Any], version: int) -> Encoder:
    return encoder_code(Struct(cls), version).function("encode", f"encoder of {cls.__name__} {version}")


def decode(cls: type[T], version: int, buffer: Buffer, max_elements: int = MAX_ELEMENTS) -> T:
    """Decode the message that fills ``buffer``; records are views of it.

    Raises RemoteWireError unless it fits exactly, or for more than ``max_elements`` elements in all arrays.
    """
    value, end = decode_prefix(cls, version, buffer, max_elements)
    if end != len(buffer):
        raise RemoteWireError(
            f"{cls.__name__} of version {version} ends at byte {end}, the message has {len(buffer)}"
        )
    return value


def decode_prefix(
    cls: type[T], version: int, buffer: Buffer, max_elements: int = MAX_ELEMENTS
) -> tuple[T, int]:
    """Decode the message at the start of ``buffer``. Return it and its end. Raises RemoteWireError."""
    return _decoder(cls, version)(memoryview(buffer), max_elements)  # type: ignore[arg-type]


def encode(cls: type[T], version: int, value: T) -> list[Part]:
    """Encode a message into parts; records are not copied. Raises LocalWireError for invalid values."""
    out = bytearray()
    cuts: Cuts = []
    try:
        _encoder(cls, version)(out, cuts, value)  # type: ignore[arg-type]
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
