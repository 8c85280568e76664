"""Message sets of magic 0 and 1: the layout, and plain functions for small uses. (Magic 2: ``batch``.)

An entry of a message set, big-endian (the set is the entries one after another, and its last one may be cut
off)::

    0   offset      int64   of the message; of the last inner message when compressed
    8   size        int32   bytes that follow
    12  crc         uint32  CRC-32 of everything after this field
    16  magic       int8    0 or 1 (at the same position in every format)
    17  attributes  int8    bits 0-2 codec, bit 3 timestamp type (magic 1: 0 create time, 1 log append time)
    18  timestamp   int64   magic 1 only; ms since the epoch, -1 for none
        key         int32 length, -1 for null, and the bytes
        value       int32 length, -1 for null, and the bytes: a message set when compressed

A compressed message (a wrapper) contains uncompressed messages of its own magic. With magic 0 their offsets
are absolute; with magic 1 they are relative (0, 1, 2 …), and the last one corresponds to the wrapper's
offset. The timestamp of a magic 1 wrapper is the largest of its content, or the append time, which is then
the timestamp of every message.

This module creates a Python object per message; the bulk paths are ``validation``, ``scan`` and ``columns``.
Sources: ``Message.scala``, ``ByteBufferMessageSet.scala`` of 0.10.1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minikafka.base.errors import BrokerError
from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.format.batch import build_batch, iterate_batch
from minikafka.records.format.compression import (
    CLASSIC_CODECS,
    MAX_CONTENT_BYTES,
    Codec,
    compress,
    decompress,
)
from minikafka.records.format.record import NO_TIMESTAMP, Record, StoredRecord, TimestampType
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import as_int64, read_only
from minikafka.records.kernels.layout import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    ENTRY_HEADER_BYTES,
    LENGTH_BYTES,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_COVERED_AT,
    MESSAGE_CRC_AT,
    MESSAGE_FIELDS,
    MESSAGE_HEADER_BYTES,
    MESSAGE_TIMESTAMP_AT,
    MIN_MESSAGE_BYTES,
    TIMESTAMP_BYTES,
    entry_size,
)

__all__ = [
    "CLASSIC_CODECS",
    "NO_TIMESTAMP",
    "Codec",
    "Content",
    "Record",
    "StoredRecord",
    "TimestampType",
    "build_message_set",
    "inner_shift",
    "iterate",
    "open_wrapper",
    "wrap",
    "wrapper_value",
]

_HEADER = MESSAGE_FIELDS.struct("offset", "size")
_UINT32 = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Content:
    """A wrapper and its content. ``data`` is the inner message set, decompressed and not validated."""

    position: int
    size_bytes: int
    offset: int
    magic: int
    codec: Codec
    timestamp_type: TimestampType
    timestamp_ms: int
    data: memoryview


def build_message_set(
    records: Sequence[Record], *, magic: int = 1, codec: Codec = Codec.NONE, base_offset: int = 0
) -> bytes:
    """Build a message set of ``records`` with offsets from ``base_offset``.

    With a codec it is one wrapper, with magic 2 one batch.
    """
    if not records:
        return b""
    if magic == 2:
        return build_batch(records, codec=codec, base_offset=base_offset)
    plain = codec is Codec.NONE
    first = base_offset if plain or magic == 0 else 0
    out = bytearray()
    for offset, record in enumerate(records, first):
        attributes_and_timestamp = b"\0" + _INT64.pack(record.timestamp_ms) if magic else b"\0"
        _append_entry(out, offset, magic, attributes_and_timestamp, record.key, record.value)
    if plain:
        return bytes(out)
    timestamp_ms = max(record.timestamp_ms for record in records)
    return wrap(
        out, offset=base_offset + len(records) - 1, magic=magic, codec=codec, timestamp_ms=timestamp_ms
    )


def wrap(
    content: Buffer,
    *,
    offset: int,
    magic: int,
    codec: Codec,
    timestamp_ms: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Build the compressed message with ``content``. The timestamp is left out for magic 0."""
    attributes = int(codec)
    if magic and timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= APPEND_TIME_BIT
    head = bytes([attributes]) + (_INT64.pack(timestamp_ms) if magic else b"")
    out = bytearray()
    _append_entry(out, offset, magic, head, None, compress(codec, content, magic))
    return bytes(out)


def _append_entry(
    out: bytearray, offset: int, magic: int, head: bytes, key: bytes | None, value: Buffer | None
) -> None:
    body = bytearray([magic]) + head
    for field in (key, value):
        body += _INT32.pack(-1 if field is None else len(field))
        body += field or b""
    out += _HEADER.pack(offset, len(body) + LENGTH_BYTES)
    out += _UINT32.pack(zlib.crc32(body))
    out += body


def iterate(
    data: Buffer, *, deep: bool = True, max_content_bytes: int = MAX_CONTENT_BYTES
) -> Iterator[StoredRecord]:
    """Yield the messages of any magic in order. Wrappers and batches are opened if ``deep``, else yielded.

    It stops at a cut-off last message. Raises BrokerError CORRUPT_MESSAGE with the position on damage, and if
    a wrapper or batch holds more than ``max_content_bytes``.
    """
    view = memoryview(data)
    position = 0
    while len(view) - position >= ENTRY_HEADER_BYTES:
        size = entry_size(view, position)
        if size < MIN_MESSAGE_BYTES:
            raise decode_status.error(decode_status.BAD_SIZE, position)
        end = position + size
        if end > len(view):
            return
        magic = view[position + MAGIC_AT]
        if magic > 2:
            raise decode_status.error(decode_status.OTHER_MAGIC, position)
        read = iterate_batch if magic == 2 else _read_message
        yield from read(view, position, deep, max_content_bytes)
        position = end


def _read_message(
    view: memoryview, position: int, deep: bool, max_content_bytes: int
) -> Iterator[StoredRecord]:
    """Yield the messages of an entry of magic 0 or 1."""
    end = position + entry_size(view, position)
    record = _parse(view, position, end, None, None)
    if not deep or record.codec is Codec.NONE:
        yield record
        return
    content = open_wrapper(view, position, max_content_bytes)
    records = list(_inner_records(content))
    if not records:
        raise decode_status.corrupt("the compressed message holds no message", position)
    shift = content.offset - records[-1].offset if content.magic else 0
    for inner in records:
        yield StoredRecord(
            as_int64(inner.offset + shift),
            inner.timestamp_ms,
            inner.timestamp_type,
            inner.key,
            inner.value,
            inner.magic,
            content.codec,
        )


def _inner_records(content: Content) -> Iterator[StoredRecord]:
    view = content.data
    position = 0
    while position < len(view):
        if len(view) - position < ENTRY_HEADER_BYTES:
            raise decode_status.error(decode_status.PARTIAL, position, content.position)
        size = entry_size(view, position)
        if size < MIN_MESSAGE_BYTES:
            raise decode_status.error(decode_status.BAD_SIZE, position, content.position)
        end = position + size
        if end > len(view):
            raise decode_status.error(decode_status.PARTIAL, position, content.position)
        if view[position + MAGIC_AT] != content.magic:
            raise decode_status.error(decode_status.INNER_MAGIC, position, content.position)
        record = _parse(view, position, end, content.position, content)
        if record.codec is not Codec.NONE:
            raise decode_status.error(decode_status.NESTED, position, content.position)
        yield record
        position = end


def _parse(
    view: memoryview, position: int, end: int, inside: int | None, content: Content | None
) -> StoredRecord:
    """Parse the message between ``position`` and ``end``. ``content`` is the wrapper around it, if any."""
    offset, _ = _HEADER.unpack_from(view, position)
    (crc,) = _UINT32.unpack_from(view, position + MESSAGE_CRC_AT)
    if zlib.crc32(view[position + MESSAGE_COVERED_AT : end]) != crc:
        raise decode_status.error(decode_status.BAD_CRC, position, inside)
    magic = view[position + MAGIC_AT]
    attributes = view[position + MESSAGE_ATTRIBUTES_AT]
    if attributes & CODEC_MASK > Codec.LZ4:
        raise decode_status.error(decode_status.BAD_CODEC, position, inside)
    key, value_at = _field(
        view, _body_at(position, magic), end, LENGTH_BYTES, decode_status.BAD_KEY_LENGTH, position, inside
    )
    value, after = _field(view, value_at, end, 0, decode_status.BAD_VALUE_LENGTH, position, inside)
    if after != end:
        raise decode_status.error(decode_status.BAD_VALUE_LENGTH, position, inside)
    timestamp_ms, timestamp_type = NO_TIMESTAMP, TimestampType.NO_TIMESTAMP_TYPE
    if magic:
        (timestamp_ms,) = _INT64.unpack_from(view, position + MESSAGE_TIMESTAMP_AT)
        timestamp_type = TimestampType(attributes & APPEND_TIME_BIT and 1)
        if content is not None:
            timestamp_type = content.timestamp_type
            if timestamp_type is TimestampType.LOG_APPEND_TIME:
                timestamp_ms = content.timestamp_ms
    codec = Codec(attributes & CODEC_MASK)
    return StoredRecord(
        offset,
        timestamp_ms,
        timestamp_type,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        magic,
        codec,
    )


def _body_at(position: int, magic: int) -> int:
    return position + MESSAGE_HEADER_BYTES + TIMESTAMP_BYTES * magic


def _field(
    view: memoryview, at: int, end: int, reserve: int, stop: int, position: int, inside: int | None
) -> tuple[memoryview | None, int]:
    """Return the nullable field at ``at``, which must leave ``reserve`` bytes before ``end``, and its end."""
    room = end - at - LENGTH_BYTES - reserve
    if room < 0:
        raise decode_status.error(stop, position, inside)
    (length,) = _INT32.unpack_from(view, at)
    if length < -1 or length > room:
        raise decode_status.error(stop, position, inside)
    at += LENGTH_BYTES
    return (None, at) if length < 0 else (view[at : at + length], at + length)


def open_wrapper(data: Buffer, position: int, max_content_bytes: int = MAX_CONTENT_BYTES) -> Content:
    """Decompress the wrapper at ``position``, an entry whose size, checksum and lengths are validated.

    Raises CORRUPT_MESSAGE with the position if the content cannot be decompressed, or exceeds the limit.
    """
    view = memoryview(data)
    offset, size = _HEADER.unpack_from(view, position)
    magic = view[position + MAGIC_AT]
    attributes = view[position + MESSAGE_ATTRIBUTES_AT]
    codec, value = wrapper_value(view, position)
    if value is None:
        raise decode_status.corrupt("the compressed message has no value", position)
    try:
        content = decompress(codec, value, max_content_bytes)
    except BrokerError as error:
        raise decode_status.corrupt(error.detail, position) from None
    timestamp_ms, timestamp_type = NO_TIMESTAMP, TimestampType.NO_TIMESTAMP_TYPE
    if magic:
        (timestamp_ms,) = _INT64.unpack_from(view, position + MESSAGE_TIMESTAMP_AT)
        timestamp_type = TimestampType(attributes & APPEND_TIME_BIT and 1)
    return Content(
        position, ENTRY_HEADER_BYTES + size, offset, magic, codec, timestamp_type, timestamp_ms, content
    )


def inner_shift(content: Content) -> int:
    """Return the number to add to the inner offsets of a wrapper: 0 in magic 0, where they are absolute.

    Raises CORRUPT_MESSAGE if the content holds no message, or is not whole messages of magic 0 and 1.
    """
    read = kernels.read
    measured = np.zeros(read.MEASURED_SIZE, dtype=np.int64)
    stop = read.measure(read_only(content.data), measured)
    if stop != decode_status.END:
        raise decode_status.error(stop, int(measured[read.MEASURED_END]), content.position)
    if not measured[read.MEASURED_COUNT]:
        raise decode_status.corrupt("the compressed message holds no message", content.position)
    return as_int64(content.offset - int(measured[read.MEASURED_LAST])) if content.magic else 0


def wrapper_value(view: memoryview, position: int) -> tuple[Codec, memoryview | None]:
    """Return the codec and the compressed value of the wrapper at ``position``, whose size is validated.

    Raises CORRUPT_MESSAGE if a field does not fit, or its attributes do not name a codec that wrappers can
    have.
    """
    codec = view[position + MESSAGE_ATTRIBUTES_AT] & CODEC_MASK
    if codec > Codec.LZ4:
        raise decode_status.error(decode_status.BAD_CODEC, position)
    end = position + entry_size(view, position)
    magic = view[position + MAGIC_AT]
    _, value_at = _field(
        view, _body_at(position, magic), end, LENGTH_BYTES, decode_status.BAD_KEY_LENGTH, position, None
    )
    value, after = _field(view, value_at, end, 0, decode_status.BAD_VALUE_LENGTH, position, None)
    if after != end:
        raise decode_status.error(decode_status.BAD_VALUE_LENGTH, position)
    return Codec(codec), value
