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
                raise wrong_count('ProduceRequest.topics', n, 6, position, size, most)
            message.topics = ()
        else:
            left -= n
            if left < 0 or n * 6 > size - position:
                raise wrong_count('ProduceRequest.topics', n, 6, position, size, most)
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
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from minikafka.base.errors import RemoteWireError
from minikafka.wire.frame_parts import part_size


class FunctionBuilder:
    """Builds the text of one function, and collects the values of the names that it uses."""

    def __init__(self) -> None:
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
            "wrong_count": wrong_count,
            "wrong_length": wrong_length,
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
    """Consecutive integers, each with a name, a ``struct`` code and a place.

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
        targets = places[0] + "," if len(places) == 1 else ", ".join(places)
        with self._code.block("try:"):
            self._code.line(
                f"{targets} = {self._code.named(_name('unpack', codes), unpack)}(buffer, position)"
            )
        with self._code.block("except struct_error:"):
            what = f"{owner} ({', '.join(names)})"
            self._code.line(f"raise cut_off({what!r}, {size}, position, size) from None")
        self._code.line(f"position += {size}")

    def write(self) -> None:
        """Append code that writes the run, and clear it."""
        if not self._integers:
            return
        _, codes, places = (list(column) for column in zip(*self._integers, strict=True))
        self._integers.clear()
        _, _, pack = _form("".join(codes))
        self._code.line(f"out += {self._code.named(_name('pack', codes), pack)}({', '.join(places)})")


@cache
def _form(codes: str) -> tuple[int, Callable[..., Any], Callable[..., Any]]:
    """Return the size of a run, and the functions that read and write it."""
    form = struct.Struct(">" + codes)
    return form.size, form.unpack_from, form.pack


def _name(verb: str, codes: list[str]) -> str:
    return f"{verb}_{''.join(codes).replace('?', 'bool')}"


# Errors of the generated functions.


def cut_off(what: str, wanted: int, position: int, size: int) -> RemoteWireError:
    """Return the error for a message that is too short."""
    return RemoteWireError(f"{what} needs {wanted} bytes at position {position}, but the message has {size}")


def wrong_length(what: str, length: int, width: int, position: int, size: int) -> RemoteWireError:
    """Return the error for a length that is negative or exceeds the message."""
    if length == -1:
        return RemoteWireError(f"{what} at position {position - width} is null, which is not allowed here")
    return RemoteWireError(
        f"{what}: a length of {length} at position {position} does not fit a message of {size} bytes"
    )


def wrong_count(what: str, count: int, smallest: int, position: int, size: int, most: int) -> RemoteWireError:
    """Return the error for an array count that is negative, too large for the message, or above the limit."""
    start = f"{what}: an array of {count} elements"
    if count < 0:
        return RemoteWireError(f"{start} at position {position - 4}")
    if count * smallest > size - position:
        return RemoteWireError(
            f"{start} of at least {smallest} bytes at position {position - 4} "
            f"does not fit a message of {size} bytes"
        )
    return RemoteWireError(
        f"{start} at position {position - 4} exceeds the limit of {most} elements in all arrays of a message"
    )


def not_utf8(what: str, position: int, error: UnicodeDecodeError) -> RemoteWireError:
    """Return the error for a string that is not UTF-8."""
    return RemoteWireError(f"{what} at position {position} is not UTF-8: {error}")
