"""Messages as tables of fields, from which decoders and encoders are generated.

    Struct(ProducePartition, field("index", INT32), field("records", RECORDS))

One table has all versions of a message: each field has its first and last version. Decoding a version without
a field yields the field's default; encoding such a version omits the field, whatever its value.

For each version ``codegen`` compiles a decoder ``(buffer, most) -> (value, end)`` and an encoder
``(out, cuts, value)``, which appends to ``out``. Records are not copied there but noted in ``cuts`` as
``(position in out, part)``, and ``encode`` splits ``out`` at these positions into the parts of the message.

Bytes that do not fit raise ``RemoteWireError``; values that do not fit raise ``LocalWireError`` with the path
of the field. An array's length is checked against the remaining bytes and ``MAX_ELEMENTS`` before anything is
allocated.
"""

from __future__ import annotations

import dataclasses
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.wire.codegen import FunctionBuilder, IntegerRun
from minikafka.wire.frame_parts import Part, part_size

T = TypeVar("T")

Decoder = Callable[[memoryview, int], tuple[Any, int]]
Cuts = list[tuple[int, Part]]
Encoder = Callable[[bytearray, Cuts, Any], None]
Fault = tuple[str, str]
"""The path of a value that cannot be sent, and the reason."""

_NOT_ENCODABLE = (LocalWireError, struct.error, TypeError, AttributeError, UnicodeError, OverflowError)
"""Errors raised for a value of the wrong type or size while it is encoded."""

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


class Type(ABC):
    """The encoding of one value: a head, which is an integer of fixed width, and the bytes after it.

    ``head`` is the ``struct`` code of the integer: the value itself, its length or its count. A Struct has
    none.
    """

    name: str
    head: str

    @abstractmethod
    def smallest(self, version: int) -> int:
        """Return the minimum size of a value in bytes."""

    @abstractmethod
    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        """Append code that reads the bytes after the head ``n`` into ``target``. Errors name ``what``."""

    @abstractmethod
    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        """Append code that prepares ``value`` for writing. Return the expressions of its head and of the
        rest.
        """

    @abstractmethod
    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        """Append code that writes ``rest`` after the head, as returned by ``measured``."""

    @abstractmethod
    def fault(self, version: int, value: Any, path: str) -> Fault | None:
        """Return the first value at or below ``path`` that cannot be encoded."""

    def _wrong(self, value: Any, path: str) -> Fault:
        if value is None:
            return path, "null is not allowed here"
        shown = repr(value)
        return path, f"{shown if len(shown) <= 60 else shown[:60] + '…'} is not a value of type {self.name}"


class Integer(Type):
    """A big-endian two's complement integer of fixed width, or a boolean of one byte."""

    def __init__(self, name: str, code: str) -> None:
        self.name = name
        self.head = code
        self.form = struct.Struct(">" + code)

    def smallest(self, version: int) -> int:
        return self.form.size

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        code.line(f"{target} = n")

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        return value, ""

    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        """Append nothing: an integer has only a head."""

    def fault(self, version: int, value: Any, path: str) -> Fault | None:
        try:
            self.form.pack(value)
        except _NOT_ENCODABLE:
            return self._wrong(value, path)
        return None


class _Sized(Type):
    """A length in bytes, and the bytes."""

    _bytes = "{}"
    """The expression of the bytes of a value that is not null."""

    def __init__(self, name: str, head: str, *, nullable: bool) -> None:
        self.noun = name
        self.name = f"nullable {name}" if nullable else name
        self.head = head
        self.nullable = nullable
        self.width = struct.calcsize(">" + head)

    def smallest(self, version: int) -> int:
        return self.width

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        if not self.nullable:
            self._read(code, target, what)
            return
        with code.block("if n == -1:"):
            code.line(f"{target} = None")
        with code.block("else:"):
            self._read(code, target, what)

    def _read(self, code: FunctionBuilder, target: str, what: str) -> None:
        what = f"the {self.noun} {what}"
        code.line("end = position + n")
        with code.block("if n < 0 or end > size:"):
            code.line(f"raise wrong_length({what!r}, n, {self.width}, position, size)")
        self._take(code, target, what)
        code.line("position = end")

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        rest = f"rest{code.fresh()}"
        if not self.nullable:
            code.line(f"{rest} = {self._bytes.format(value)}")
            return f"len({rest})", rest
        code.line(f"{rest} = {value}")
        if self._bytes != "{}":
            with code.block(f"if {rest} is not None:"):
                code.line(f"{rest} = {self._bytes.format(rest)}")
        return f"-1 if {rest} is None else len({rest})", rest

    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        if not self.nullable:
            code.line(f"out += {rest}")
            return
        with code.block(f"if {rest} is not None:"):
            code.line(f"out += {rest}")

    def fault(self, version: int, value: Any, path: str) -> Fault | None:
        if value is None and self.nullable:
            return None
        try:
            self._try(value)
        except LocalWireError as error:
            return path, str(error)
        except _NOT_ENCODABLE:
            return self._wrong(value, path)
        return None

    @abstractmethod
    def _take(self, code: FunctionBuilder, target: str, what: str) -> None:
        """Append code that sets ``target`` from the bytes between ``position`` and ``end``."""

    @abstractmethod
    def _try(self, value: Any) -> None:
        """Raise the error of encoding ``value``, if any."""


class _String(_Sized):
    """An int16 length and UTF-8; -1 is null where that is allowed."""

    _bytes = "{}.encode()"

    def __init__(self, *, nullable: bool) -> None:
        super().__init__("string", "h", nullable=nullable)

    def _take(self, code: FunctionBuilder, target: str, what: str) -> None:
        with code.block("try:"):
            code.line(f"{target} = buffer[position:end].tobytes().decode()")
        with code.block("except UnicodeDecodeError as error:"):
            code.line(f"raise not_utf8({what!r}, position, error) from None")

    def _try(self, value: Any) -> None:
        size = len(value.encode())
        if size > 0x7FFF:
            raise LocalWireError(f"a string of {size} bytes exceeds the limit of 32767: {value[:40]!r}…")


class _Bytes(_Sized):
    """An int32 length and that many bytes, decoded as a copy that outlives the message; -1 is null where
    allowed.
    """

    def __init__(self, *, nullable: bool) -> None:
        super().__init__("bytes", "i", nullable=nullable)

    def _take(self, code: FunctionBuilder, target: str, what: str) -> None:
        code.line(f"{target} = buffer[position:end].tobytes()")

    def _try(self, value: Any) -> None:
        out = bytearray()
        out += value


class _Records(_Sized):
    """An int32 length and that many bytes of message sets, decoded as a view; -1 is null where allowed."""

    def __init__(self, *, nullable: bool) -> None:
        super().__init__("records", "i", nullable=nullable)

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        number = code.fresh()
        size, rest = f"size{number}", f"rest{number}"
        code.line(f"{rest} = {value}")
        code.line(f"{size} = {f'-1 if {rest} is None else ' if self.nullable else ''}part_size({rest})")
        return size, rest

    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        with code.block(f"if {head} > 0:"):
            code.line(f"cuts.append((len(out), {rest}))")

    def _take(self, code: FunctionBuilder, target: str, what: str) -> None:
        code.line(f"{target} = buffer[position:end]")

    def _try(self, value: Any) -> None:
        part_size(value)


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

    head = "i"

    def __init__(self, element: Type, *, nullable: bool = False, empty_is_null: bool = False) -> None:
        self.element = element
        self.nullable = nullable
        self.empty_is_null = empty_is_null
        self.name = f"{'nullable ' if nullable else ''}array of {element.name}"
        if empty_is_null:
            self.name += " (empty is null)"

    def smallest(self, version: int) -> int:
        return 4

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        # At least 1: an element of no bytes would allow a count of two billion.
        smallest = max(1, self.element.smallest(version))
        wrong = f"raise wrong_count({what!r}, n, {smallest}, position, size, most)"
        with code.block("if n < 1:"):
            with code.block("if n < -1:" if self.nullable else "if n:"):
                code.line(wrong)
            empty = "None if n else ()" if self.nullable else "None" if self.empty_is_null else "()"
            code.line(f"{target} = {empty}")
        with code.block("else:"):
            code.line("left -= n")
            with code.block(f"if left < 0 or n * {smallest} > size - position:"):
                code.line(wrong)
            self._read_elements(code, version, target, what)

    def _read_elements(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        if isinstance(self.element, Integer):
            code.line(f'{target} = unpack_from(f">{{n}}{self.element.head}", buffer, position)')
            code.line(f"position += n * {self.element.form.size}")
            return
        number = code.fresh()
        code.line(f"items{number} = []")
        with code.block("for _ in range(n):"):
            if self.element.head:
                IntegerRun(code, ("elements", self.element.head, "n")).read(what)
            self.element.read(code, version, f"item{number}", what)
            code.line(f"items{number}.append(item{number})")
        code.line(f"{target} = tuple(items{number})")

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        items = f"items{code.fresh()}"
        code.line(f"{items} = {value}")
        wrong = f"{items}.__class__ is str"
        if self.empty_is_null:
            wrong += f" or {items} is not None and not {items}"
        with code.block(f"if {wrong}:"):
            code.line(f"raise TypeError({items})")
        if self.nullable:
            return f"-1 if {items} is None else len({items})", items
        if self.empty_is_null:
            return f"0 if {items} is None else len({items})", items
        return f"len({items})", items

    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        with code.block(f"if {rest}:"):
            self._write_elements(code, version, rest)

    def _write_elements(self, code: FunctionBuilder, version: int, items: str) -> None:
        if isinstance(self.element, Integer):
            code.line(f'out += pack(f">{{len({items})}}{self.element.head}", *{items})')
            return
        item = f"item{code.fresh()}"
        with code.block(f"for {item} in {items}:"):
            head, rest = self.element.measured(code, version, item)
            if self.element.head:
                IntegerRun(code, ("element", self.element.head, head)).write()
            self.element.write(code, version, head, rest)

    def fault(self, version: int, value: Any, path: str) -> Fault | None:
        if value is None and (self.nullable or self.empty_is_null):
            return None
        if isinstance(value, str):
            return path, f"expected an array, got the string {value!r}"
        if not isinstance(value, Sequence):
            return self._wrong(value, path)
        if self.empty_is_null and not value:
            return path, "an empty array means null in this version and cannot be encoded"
        faults = (self.element.fault(version, item, f"{path}[{index}]") for index, item in enumerate(value))
        return next(filter(None, faults), None)


@dataclasses.dataclass(frozen=True)
class Field:
    """A row of the table. ``until`` is the last version with the field; None: no end."""

    name: str
    type: Type
    since: int
    until: int | None
    default: Any
    note: str

    def in_version(self, version: int) -> bool:
        """Return whether ``version`` has the field."""
        return self.since <= version and (self.until is None or version <= self.until)


def field(
    name: str, type_: Type, note: str = "", *, since: int = 0, until: int | None = None, default: Any = None
) -> Field:
    """Return a row: the attribute's name, type and note, its versions, and its default in other versions."""
    return Field(name, type_, since, until, default, note)


class Struct(Type, Generic[T]):
    """The fields of a message, or of an element of an array, and the dataclass that holds them.

    The rows are in wire order, which is also the order of the dataclass. A name may have two rows when its
    type changed, with versions that do not overlap.
    """

    head = ""

    def __init__(self, cls: type[T], *fields: Field) -> None:
        self.cls = cls
        self.fields = fields
        self.name = cls.__name__
        names = [row.name for row in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if list(dict.fromkeys(row.name for row in fields)) != names:
            raise TypeError(f"the rows of {self.name} must be its fields in order: {names}")
        if hasattr(cls, "__post_init__") or cls.__setattr__ is not object.__setattr__:
            raise TypeError(f"{self.name} must be a fast_value: its instances are created field by field")
        self._names = names

    def rows(self, version: int) -> Iterator[tuple[str, Field | None]]:
        """Yield every attribute of the class in order, with its row in ``version`` or None."""
        for name in self._names:
            found = [row for row in self.fields if row.name == name and row.in_version(version)]
            if len(found) > 1:
                raise TypeError(f"{self.name}.{name} has {len(found)} rows for version {version}")
            yield name, found[0] if found else None

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
                code.line(f"{attribute} = {code.named('default_of_' + name, self._default(name))}")
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

    def _default(self, name: str) -> Any:
        return next(row.default for row in self.fields if row.name == name)


def array(
    name: str,
    element: type[Any],
    *fields: Field,
    note: str = "",
    since: int = 0,
    until: int | None = None,
    default: Any = None,
) -> Field:
    """Return a row that is an array of structures of these fields, each an ``element``; see ``field``."""
    return Field(name, ArrayOf(Struct(element, *fields)), since, until, default, note)


def by_topic(topic: type[Any], partition: type[Any], *fields: Field) -> Field:
    """Return the row ``topics``: an array of names, each with an array of partitions of these fields."""
    return array("topics", topic, field("name", STRING), array("partitions", partition, *fields))


def decoder_code(schema: Struct[Any], version: int) -> FunctionBuilder:
    """Return the generated code of a decoder."""
    code = FunctionBuilder()
    with code.block("def decode(buffer, most):"):
        code.line("size, position, left = len(buffer), 0, most")
        schema.read(code, version, "message", schema.name)
        code.line("return message, position")
    return code


def encoder_code(schema: Struct[Any], version: int) -> FunctionBuilder:
    """Return the generated code of an encoder."""
    code = FunctionBuilder()
    with code.block("def encode(out, cuts, message):"):
        schema.write(code, version, "", "message")
        code.line("return out")
    return code


@cache
def _decoder(schema: Struct[Any], version: int) -> Decoder:
    return decoder_code(schema, version).function("decode", f"decoder of {schema.name} {version}")


@cache
def _encoder(schema: Struct[Any], version: int) -> Encoder:
    return encoder_code(schema, version).function("encode", f"encoder of {schema.name} {version}")


def decode(schema: Struct[T], version: int, buffer: Buffer, max_elements: int = MAX_ELEMENTS) -> T:
    """Decode the message that fills ``buffer``; records are views of it.

    Raises RemoteWireError unless it fits exactly, or for more than ``max_elements`` elements in all arrays.
    """
    value, end = decode_prefix(schema, version, buffer, max_elements)
    if end != len(buffer):
        raise RemoteWireError(
            f"{schema.name} of version {version} ends at byte {end}, the message has {len(buffer)}"
        )
    return value


def decode_prefix(
    schema: Struct[T], version: int, buffer: Buffer, max_elements: int = MAX_ELEMENTS
) -> tuple[T, int]:
    """Decode the message at the start of ``buffer``. Return it and its end. Raises RemoteWireError."""
    return _decoder(schema, version)(memoryview(buffer), max_elements)


def encode(schema: Struct[T], version: int, value: T) -> list[Part]:
    """Encode a message into parts; records are not copied. Raises LocalWireError for invalid values."""
    out = bytearray()
    cuts: Cuts = []
    try:
        _encoder(schema, version)(out, cuts, value)
    except _NOT_ENCODABLE as error:
        path, problem = schema.fault(version, value, schema.name) or (schema.name, repr(error))
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
