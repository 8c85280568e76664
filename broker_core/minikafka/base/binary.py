"""Big-endian primitives of Kafka's protocol and files, as plain functions.

A reader takes ``(buffer, position)`` and returns ``(value, next position)``. It raises ``RemoteWireError``
when the buffer ends too early, which is the peer's fault. A writer appends to a ``bytearray``. Integers are
two's complement of the named width; a string is an int16 length and UTF-8; bytes are an int32 length and the
bytes; a length of -1 is null.
"""

from __future__ import annotations

import struct

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


def read_integer(form: struct.Struct, buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an integer of the width of ``form``."""
    try:
        return form.unpack_from(buffer, position)[0], position + form.size
    except struct.error:
        raise RemoteWireError(
            f"need {form.size} bytes at position {position}, but the message has {len(buffer)}"
        ) from None


def read_nullable_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """Read an int16 length, then UTF-8; -1 is null."""
    length, position = read_integer(INT16, buffer, position)
    if length == -1:
        return None, position
    raw, end = _take(buffer, position, length)
    try:
        return str(raw, "utf-8"), end
    except UnicodeDecodeError as error:
        raise RemoteWireError(f"the string at position {position} is not UTF-8: {error}") from None


def read_string(buffer: Buffer, position: int) -> tuple[str, int]:
    """Read a string that must not be null."""
    value, after = read_nullable_string(buffer, position)
    if value is None:
        raise RemoteWireError(f"the string at position {position} is null, which is not allowed here")
    return value, after


def read_nullable_bytes(buffer: Buffer, position: int) -> tuple[memoryview | None, int]:
    """Read an int32 length, then that many bytes as a view of ``buffer``; -1 is null."""
    length, position = read_integer(INT32, buffer, position)
    if length == -1:
        return None, position
    return _take(buffer, position, length)


def write_integer(form: struct.Struct, out: bytearray, value: int) -> None:
    """Append ``value`` in the width of ``form``."""
    try:
        out += form.pack(value)
    except struct.error:
        raise LocalWireError(f"{value!r} does not fit {form.size} bytes") from None


def write_nullable_string(out: bytearray, value: str | None) -> None:
    """Append an int16 length and UTF-8, or -1 for None."""
    if value is None:
        out += b"\xff\xff"
        return
    encoded = value.encode("utf-8")
    if len(encoded) > 0x7FFF:
        raise LocalWireError(f"a string of {len(encoded)} bytes exceeds the limit of 32767: {value[:40]!r}…")
    out += INT16.pack(len(encoded))
    out += encoded


def _take(buffer: Buffer, position: int, length: int) -> tuple[memoryview, int]:
    end = position + length
    if length < 0 or end > len(buffer):
        raise RemoteWireError(
            f"a length of {length} at position {position} does not fit a message of {len(buffer)} bytes"
        )
    return memoryview(buffer)[position:end], end
