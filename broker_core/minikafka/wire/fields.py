"""The annotations of a message's fields: their types, which are encodings, and their versions.

Each type appends the code for its values to the functions that ``schema`` generates.
"""

from __future__ import annotations

import dataclasses
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any

from minikafka.base.errors import LocalWireError
from minikafka.wire.codegen import VARINT, FunctionBuilder, IntegerRun
from minikafka.wire.frame_parts import Part, part_size

Fault = tuple[str, str]
"""The path of a value that cannot be sent, and the reason."""

NOT_ENCODABLE = (LocalWireError, struct.error, TypeError, AttributeError, UnicodeError, OverflowError)
"""Errors raised for a value of the wrong type or size while it is encoded."""


class Type(ABC):
    """The encoding of one value: a head of fixed width, and the bytes after it.

    ``head`` is the ``struct`` code of the value itself, of its length or of its count. A Struct has none.
    ``compact``: in flexible versions the head is instead an unsigned varint, of the length or count plus one;
    0 is null.
    """

    name: str
    head: str
    compact = False
    most: int | None = None
    """The limit of a compact length, if there is one."""

    def head_read(self, code: FunctionBuilder) -> str:
        """Return the ``struct`` code of what is read first: the head, or the first byte of a varint."""
        return VARINT if code.flexible and self.compact else self.head

    def read_rest_of_head(self, code: FunctionBuilder, what: str) -> None:
        """Append code that makes ``n`` the length or count, -1 for null, once the first byte was read."""
        if code.flexible and self.compact:
            code.read_rest_of_varint(what)
            code.line("n -= 1")

    def write_head(self, code: FunctionBuilder, run: IntegerRun, name: str, head: str) -> None:
        """Append code that writes the head after ``run``, or add it there."""
        if code.flexible and self.compact:
            run.write()
            most = None if self.most is None else self.most + 1
            code.write_varint(f"({head}) + 1" if " " in head else f"{head} + 1", most)
        elif self.head:
            run.add(name, self.head, head)

    @abstractmethod
    def smallest(self, version: int, flexible: bool) -> int:
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


class FixedWidth(Type):
    """A value that is only a head."""

    def __init__(self, name: str, code: str) -> None:
        self.name = name
        self.head = code
        self.form = struct.Struct(">" + code)

    def smallest(self, version: int, flexible: bool) -> int:
        return self.form.size

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        code.line(f"{target} = n")

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        return value, ""

    def write(self, code: FunctionBuilder, version: int, head: str, rest: str) -> None:
        """Append nothing: there is only a head."""

    def fault(self, version: int, value: Any, path: str) -> Fault | None:
        try:
            self.form.pack(value)
        except NOT_ENCODABLE:
            return self._wrong(value, path)
        return None


class Integer(FixedWidth):
    """A big-endian integer of fixed width, in two's complement if it has a sign, or a boolean of one byte."""


class _Float(FixedWidth):
    """A big-endian IEEE 754 number."""


class _Uuid(FixedWidth):
    """16 bytes."""

    def measured(self, code: FunctionBuilder, version: int, value: str) -> tuple[str, str]:
        # ``struct`` would fill up what is shorter, and cut off what is longer.
        with code.block(f"if len({value}) != {self.form.size}:"):
            code.line(f"raise TypeError({value})")
        return value, ""

    def fault(self, version: int, value: Any, path: str) -> Fault | None:
        is_whole = isinstance(value, bytes) and len(value) == self.form.size
        return None if is_whole else self._wrong(value, path)


class _Sized(Type):
    """A length in bytes, and the bytes."""

    _bytes = "{}"
    """The expression of the bytes of a value that is not null."""
    compact = True

    def __init__(self, name: str, head: str, *, nullable: bool) -> None:
        self.noun = name
        self.name = f"nullable {name}" if nullable else name
        self.head = head
        self.nullable = nullable
        self.width = struct.calcsize(">" + head)

    def smallest(self, version: int, flexible: bool) -> int:
        return 1 if flexible else self.width

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        self.read_rest_of_head(code, what)
        if not self.nullable:
            self._read(code, target, what)
            return
        with code.block("if n == -1:"):
            code.line(f"{target} = None")
        with code.block("else:"):
            self._read(code, target, what)

    def _read(self, code: FunctionBuilder, target: str, what: str) -> None:
        what = f"the {self.noun} {what}"
        limit = f" or n > {self.most}" if code.flexible and self.most is not None else ""
        code.line("end = position + n")
        with code.block(f"if n < 0 or end > size{limit}:"):
            width = 1 if code.flexible else self.width
            code.line(f"raise wrong_length({what!r}, n, {width}, position, size)")
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
        except NOT_ENCODABLE:
            return self._wrong(value, path)
        return None

    @abstractmethod
    def _take(self, code: FunctionBuilder, target: str, what: str) -> None:
        """Append code that sets ``target`` from the bytes between ``position`` and ``end``."""

    @abstractmethod
    def _try(self, value: Any) -> None:
        """Raise the error of encoding ``value``, if any."""


class _String(_Sized):
    """An int16 length and UTF-8; -1 is null where that is allowed. A compact one is not longer."""

    _bytes = "{}.encode()"
    most = 0x7FFF

    def __init__(self, *, nullable: bool) -> None:
        super().__init__("string", "h", nullable=nullable)

    def _take(self, code: FunctionBuilder, target: str, what: str) -> None:
        with code.block("try:"):
            code.line(f"{target} = buffer[position:end].tobytes().decode()")
        with code.block("except UnicodeDecodeError as error:"):
            code.line(f"raise not_utf8({what!r}, position, error) from None")

    def _try(self, value: Any) -> None:
        size = len(value.encode())
        if size > self.most:
            raise LocalWireError(
                f"a string of {size} bytes exceeds the limit of {self.most}: {value[:40]!r}…"
            )


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
UINT16 = Integer("uint16", "H")
FLOAT64 = _Float("float64", "d")
UUID = _Uuid("uuid", "16s")
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
    compact = True

    def __init__(self, element: Type, *, nullable: bool = False, empty_is_null: bool = False) -> None:
        self.element = element
        self.nullable = nullable
        self.empty_is_null = empty_is_null
        self.name = f"{'nullable ' if nullable else ''}array of {element.name}"
        if empty_is_null:
            self.name += " (empty is null)"

    def smallest(self, version: int, flexible: bool) -> int:
        return 1 if flexible else 4

    def read(self, code: FunctionBuilder, version: int, target: str, what: str) -> None:
        self.read_rest_of_head(code, what)
        # At least 1: an element of no bytes would allow a count of two billion.
        smallest = max(1, self.element.smallest(version, code.flexible))
        width = 0 if code.flexible else 4
        wrong = f"raise wrong_count({what!r}, n, {smallest}, position, size, most, {width})"
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
                IntegerRun(code, ("elements", self.element.head_read(code), "n")).read(what)
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
            run = IntegerRun(code)
            self.element.write_head(code, run, "element", head)
            run.write()
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


Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
Uint16 = Annotated[int, UINT16]
Float64 = Annotated[float, FLOAT64]
Uuid = Annotated[bytes, UUID]
Records = Annotated[Part, RECORDS]

ENCODINGS: dict[Any, Type] = {
    bool: BOOLEAN,
    str: STRING,
    str | None: NULLABLE_STRING,
    bytes: BYTES,
    bytes | None: NULLABLE_BYTES,
    Records | None: NULLABLE_RECORDS,
}
"""The encodings of annotations that do not carry them."""


ZERO_UUID = bytes(16)
"""The topic id of a topic that has none."""


@dataclasses.dataclass(frozen=True)
class Versions:
    """The versions that have a field (see ``since``); ``until`` None: no end. ``tag``: see ``tagged``."""

    since: int = 0
    until: int | None = None
    default: Any = None
    earlier: Any = None
    earlier_note: str = ""
    tag: int | None = None


def since(
    version: int,
    *,
    until: int | None = None,
    default: Any = None,
    earlier: Any = None,
    earlier_note: str = "",
) -> Versions:
    """Annotate a field that ``version`` and later ones have, up to ``until``.

    ``default``: its value in versions without it; None: the class's default, or null. ``earlier``: the type
    that it has in the versions before, with its own note.
    """
    return Versions(version, until, default, earlier, earlier_note)


def until(version: int, *, default: Any = None) -> Versions:
    """Annotate a field that ``version`` and earlier ones have; ``default`` as in ``since``."""
    return Versions(until=version, default=default)


def tagged(tag: int, version: int) -> Versions:
    """Annotate a tagged field of flexible versions from ``version`` on.

    It is encoded only if it differs from the class's default, behind all fields without a tag.
    """
    return Versions(version, tag=tag)
