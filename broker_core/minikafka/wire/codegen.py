"""Code generation for messages: a decoder and an encoder for each message and version.

A function is generated as text from the message's fields and compiled on first use, as ``dataclasses`` does
for ``__init__``. Most requests are small, and interpreting their fields would cost several times as much. The
text is like hand-written code. ``schema.decoder_code`` returns it; this decodes Produce 7, without its two
strings::

    def decode(buffer, most):
        size, position, left = len(buffer), 0, most
        …
        try:
            message.acks, message.timeout_ms, n = unpack_hii(buffer, position)
        except struct_error:
            raise cut_off('ProduceRequest (acks, timeout_ms, topics)', 10, position, size) from None
        position += 10
        if n < 1:
            if n:
                raise wrong_count('ProduceRequest.topics', n, 6, position, size, most, 4)
            message.topics = ()
        else:
            left -= n
            if left < 0 or n * 6 > size - position:
                raise wrong_count('ProduceRequest.topics', n, 6, position, size, most, 4)
            items1 = []
            for _ in range(n):
                item1 = new(ProduceTopic)
                …
                    for _ in range(n):
                        item2 = new(ProducePartition)
                        try:
                            item2.index, n = unpack_ii(buffer, position)
                        except struct_error:
                            raise cut_off('ProducePartition (index, records)', 8, position, size) from None
                        position += 8
                        end = position + n
                        if n < 0 or end > size:
                            raise wrong_length('the records ProducePartition.records', n, 4, position, size)
                        item2.records = buffer[position:end]
                        position = end
                        items2.append(item2)
                    item1.partitions = tuple(items2)
                items1.append(item1)
            message.topics = tuple(items1)
        return message, position

Neighbouring integers, and the length of what follows them, are one ``struct`` call ("a run"). ``n`` is the
last length or count that was read. ``left`` is the number of elements that arrays may still have.

A message is created empty (``new`` is ``object.__new__``) and its attributes are set as they are read: its
class is a ``base.values.fast_value``.

In a flexible version lengths and counts are unsigned varints of one more, and every struct ends with its
tagged fields, of which a varint counts those that are there. The first byte of such a number is in the run
before it, and is all of it up to 127. This decodes a string, and then a struct without known tagged fields::

    try:
        message.timeout_ms, n = unpack_iB(buffer, position)
    …
    if n > 127:
        n, position = rest_of_varint(buffer, position, n, 'ProduceRequest.name')
    n -= 1
    …
    if n:
        position, left = skip_tagged_fields(buffer, position, n, left, most, 'ProduceRequest')
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from minikafka.base.errors import RemoteWireError
from minikafka.wire.frame_parts import part_size

VARINT = "B"
"""The ``struct`` code of the first byte of an unsigned varint, in a run that is read."""
ZERO_BYTE = "x"
"""The ``struct`` code of the count of no tagged fields, in a run that is written; it takes no value."""
_VARINT_BYTES = 5
_VARINT_MAX = 0xFFFFFFFF


class FunctionBuilder:
    """Builds the text of one function, and collects the values of the names that it uses."""

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible
        """True for a version of compact lengths and tagged fields."""
        self._lines: list[str] = []
        self._indent = 0
        self._fresh = 0
        self._names: dict[str, Any] = {
            "cut_off": cut_off,
            "new": object.__new__,
            "not_utf8": not_utf8,
            "part_size": part_size,
            "struct_error": struct.error,
            "unpack_from": struct.unpack_from,
            "pack": struct.pack,
            "rest_of_varint": rest_of_varint,
            "skip_tagged_fields": skip_tagged_fields,
            "tagged_field": tagged_field,
            "varint": varint,
            "wrong_count": wrong_count,
            "wrong_length": wrong_length,
            "wrong_tagged_count": wrong_tagged_count,
            "wrong_tagged_size": wrong_tagged_size,
        }

    def line(self, text: str) -> None:
        """Append a line at the current depth."""
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append ``head`` and indent the lines that are appended inside."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def named(self, name: str, value: Any) -> str:
        """Return a name for ``value``: ``name``, or with a number if ``name`` stands for another value."""
        wished, number = name, 1
        while name in self._names and self._names[name] is not value:
            number += 1
            name = f"{wished}_{number}"
        self._names[name] = value
        return name

    def read_rest_of_varint(self, what: str) -> None:
        """Append code that completes ``n``, which holds the first byte of a varint."""
        with self.block("if n > 127:"):
            self.line(f"n, position = rest_of_varint(buffer, position, n, {what!r})")

    def write_varint(self, value: str, most: int | None = None) -> None:
        """Append code that writes the expression ``value``, which is not negative, and at most ``most``."""
        self.line(f"n = {value}")
        with self.block("if n < 128:"):
            self.line("out.append(n)")
        if most is not None:
            with self.block(f"elif n > {most}:"):
                self.line("raise OverflowError(n)")
        with self.block("else:"):
            self.line("out += varint(n)")

    def fresh(self) -> int:
        """Return a number that is unique within the function, for variable names."""
        self._fresh += 1
        return self._fresh

    @property
    def text(self) -> str:
        """The text of the function."""
        return "\n".join(self._lines) + "\n"

    def function(self, name: str, title: str) -> Callable[..., Any]:
        """Compile the text and return its function ``name``. Tracebacks show ``title``."""
        names = dict(self._names)
        exec(compile(self.text, f"<{title}>", "exec"), names)  # noqa: S102 - all of it comes from our own messages
        function: Callable[..., Any] = names[name]
        return function


class IntegerRun:
    """Consecutive integers, and other values of fixed width, each with a name, a ``struct`` code and a place.

    The place is the target of a read, or the expression to write.
    """

    def __init__(self, code: FunctionBuilder, *integers: tuple[str, str, str]) -> None:
        self._code = code
        self._integers = list(integers)

    def add(self, name: str, code: str, place: str) -> None:
        """Append an integer."""
        self._integers.append((name, code, place))

    def read(self, owner: str) -> None:
        """Append code that reads the run, a part of ``owner``, and clear it."""
        if not self._integers:
            return
        names, codes, places = (list(column) for column in zip(*self._integers, strict=True))
        self._integers.clear()
        size, unpack, _ = _form("".join(codes))
        what = f"{owner} ({', '.join(names)})"
        if codes == [VARINT]:
            self._read_byte(what, places[0])
            return
        targets = places[0] + "," if len(places) == 1 else ", ".join(places)
        with self._code.block("try:"):
            self._code.line(
                f"{targets} = {self._code.named(_name('unpack', codes), unpack)}(buffer, position)"
            )
        with self._code.block("except struct_error:"):
            self._code.line(f"raise cut_off({what!r}, {size}, position, size) from None")
        self._code.line(f"position += {size}")

    def _read_byte(self, what: str, target: str) -> None:
        with self._code.block("try:"):
            self._code.line(f"{target} = buffer[position]")
        with self._code.block("except IndexError:"):
            self._code.line(f"raise cut_off({what!r}, 1, position, size) from None")
        self._code.line("position += 1")

    def write(self) -> None:
        """Append code that writes the run, and clear it."""
        if not self._integers:
            return
        _, codes, places = (list(column) for column in zip(*self._integers, strict=True))
        self._integers.clear()
        if codes == [ZERO_BYTE]:
            self._code.line("out.append(0)")
            return
        _, _, pack = _form("".join(codes))
        values = ", ".join(place for place in places if place)
        self._code.line(f"out += {self._code.named(_name('pack', codes), pack)}({values})")


@cache
def _form(codes: str) -> tuple[int, Callable[..., Any], Callable[..., Any]]:
    """Return the size of a run, and the functions that read and write it."""
    form = struct.Struct(">" + codes)
    return form.size, form.unpack_from, form.pack


def _name(verb: str, codes: list[str]) -> str:
    return f"{verb}_{''.join(codes).replace('?', 'bool')}"


# Functions that the generated ones call for what is rare.


def varint(value: int) -> bytes:
    """Return an unsigned varint: seven bits a byte, the lowest first, with the high bit if more follow."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def rest_of_varint(buffer: memoryview, position: int, first: int, what: str) -> tuple[int, int]:
    """Return an unsigned varint of 32 bits whose ``first`` byte was read, and the position after it.

    Raises RemoteWireError if it is cut off, larger, or has more bytes than it needs.
    """
    value, start = first & 127, position - 1
    for shift in range(7, 7 * _VARINT_BYTES, 7):
        if position >= len(buffer):
            raise cut_off(what, position - start + 1, start, len(buffer))
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if byte == 0 or value > _VARINT_MAX:
                break
            return value, position
    shown = bytes(buffer[start:position]).hex()
    raise RemoteWireError(f"{what}: the bytes {shown} at position {start} are not a varint of 32 bits")


def read_varint(buffer: memoryview, position: int, what: str) -> tuple[int, int]:
    """Return the unsigned varint at ``position``, and the position after it. Raises RemoteWireError."""
    if position >= len(buffer):
        raise cut_off(what, 1, position, len(buffer))
    first = buffer[position]
    return (first, position + 1) if first < 128 else rest_of_varint(buffer, position + 1, first, what)


def tagged_field(buffer: memoryview, position: int, what: str) -> tuple[int, int, int]:
    """Return the tag of a tagged field, and where its value starts and ends. Raises RemoteWireError."""
    tag, position = read_varint(buffer, position, what)
    length, position = read_varint(buffer, position, what)
    if length > len(buffer) - position:
        raise wrong_length(f"the tagged field {tag} of {what}", length, 0, position, len(buffer))
    return tag, position, position + length


def skip_tagged_fields(
    buffer: memoryview, position: int, first: int, left: int, most: int, what: str
) -> tuple[int, int]:
    """Skip the tagged fields of a struct that knows none. ``first``: the first byte of their count.

    Return the position after them, and the number of elements that are left: each counts as one. Raises
    RemoteWireError.
    """
    count, position = (first, position) if first < 128 else rest_of_varint(buffer, position, first, what)
    left -= count
    if left < 0:
        raise wrong_tagged_count(what, count, position, most)
    for _ in range(count):
        _, _, position = tagged_field(buffer, position, what)
    return position, left


# Errors of the generated functions.


def cut_off(what: str, wanted: int, position: int, size: int) -> RemoteWireError:
    """Return the error for a message that is too short."""
    return RemoteWireError(f"{what} needs {wanted} bytes at position {position}, but the message has {size}")


def wrong_length(what: str, length: int, width: int, position: int, size: int) -> RemoteWireError:
    """Return the error for a length, of ``width`` bytes before ``position``, that is negative or exceeds the
    message or the limit of its type.
    """
    if length == -1:
        return RemoteWireError(f"{what} at position {position - width} is null, which is not allowed here")
    start = f"{what}: a length of {length} at position {position}"
    if 0 <= length <= size - position:
        return RemoteWireError(f"{start} exceeds the limit of its type")
    return RemoteWireError(f"{start} does not fit a message of {size} bytes")


def wrong_count(
    what: str, count: int, smallest: int, position: int, size: int, most: int, width: int
) -> RemoteWireError:
    """Return the error for an array count that is negative, too large for the message, or above the limit.

    ``width``: the bytes of the count; 0: a varint of one more.
    """
    start, at = f"{what}: an array of {count} elements", position - (width or len(varint(count + 1)))
    if count < 0:
        return RemoteWireError(f"{start} at position {at}")
    if count * smallest > size - position:
        return RemoteWireError(
            f"{start} of at least {smallest} bytes at position {at} does not fit a message of {size} bytes"
        )
    return RemoteWireError(
        f"{start} at position {at} exceeds the limit of {most} elements in all arrays of a message"
    )


def wrong_tagged_count(what: str, count: int, position: int, most: int) -> RemoteWireError:
    """Return the error for more tagged fields than a message may have elements."""
    return RemoteWireError(
        f"{what}: {count} tagged fields before position {position} exceed the limit of {most} elements in "
        "all arrays of a message"
    )


def wrong_tagged_size(what: str, position: int, end: int) -> RemoteWireError:
    """Return the error for a tagged field whose value does not end where its size says."""
    return RemoteWireError(f"{what}: the tagged field ends at position {position}, its size says {end}")


def not_utf8(what: str, position: int, error: UnicodeDecodeError) -> RemoteWireError:
    """Return the error for a string that is not UTF-8."""
    return RemoteWireError(f"{what} at position {position} is not UTF-8: {error}")
