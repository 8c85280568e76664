"""Record batches of magic 2: the layout, and plain functions for small uses.

A batch, big-endian; ``offset``, ``size`` and ``magic`` are at the same positions as in magic 0 and 1::

    0   base offset         int64   of the first record that was sent in it
    8   size                int32   bytes that follow, at least 49
    12  leader epoch        int32   of the partition when the leader appended it, -1 from a producer
    16  magic               int8    2
    17  crc                 uint32  CRC-32C (Castagnoli) of everything after this field
    21  attributes          int16   bits 0-2 codec, 3 timestamp type (0 create time, 1 log append time),
                                    4 transactional, 5 control, 6 the base timestamp is a delete horizon
    23  last offset delta   int32   last offset - base offset; kept when compaction deletes the last record
    27  base timestamp      int64   ms; timestamp deltas are added to it
    35  max timestamp       int64   ms; with log append time it is the timestamp of every record
    43  producer id         int64   -1 for none
    51  producer epoch      int16   -1 for none
    53  base sequence       int32   of the first record, -1 for none
    57  count               int32   of records; 0 in a batch that compaction emptied
    61  records             the rest of the batch, compressed as a whole

A record; its numbers are varints: seven bits a byte, the lowest first, zig-zag (0, -1, 1, -2 …), so at most
5 bytes for 32 bits and 10 for 64::

    length              varint  bytes that follow
    attributes          int8    unused so far
    timestamp delta     varint  64 bits, taken modulo 2^64
    offset delta        varint  larger than that of the record before
    key, value          varint length, -1 for null, and the bytes
    headers             varint number, then for each: varint length and bytes of its name (UTF-8), and a
                        value like the record's

The checksum covers neither the base offset nor the leader epoch: a broker writes both without computing it
again. A control batch has one record whose key is int16 version, int16 type (0 abort, 1 commit) and whose
value is int16 version, int32 coordinator epoch.

This module creates a Python object per record; the bulk paths are ``validation``, ``scan`` and ``columns``.
Source: ``DefaultRecordBatch.java``, ``DefaultRecord.java`` and ``EndTransactionMarker.java`` of 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from minikafka.base.errors import BrokerError
from minikafka.base.files import Buffer
from minikafka.base.values import fast_value
from minikafka.records.format.checksums import crc32c
from minikafka.records.format.compression import MAX_CONTENT_BYTES, Codec, ContentBudget, compress, decompress
from minikafka.records.format.record import (
    NO_PRODUCER,
    NO_TIMESTAMP,
    Headers,
    Record,
    StoredRecord,
    TimestampType,
)
from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.arrays import as_int64

MAGIC = 2

_LAYOUT = layout.BATCH_FIELDS.struct()
_UINT32 = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")
_CODECS = tuple(sorted(Codec))
_TIMESTAMP_TYPES = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
_SEQUENCES = 1 << 31
"""Sequences continue at 0 after 2^31 - 1."""


class ControlType(IntEnum):
    """The outcome of a transaction."""

    ABORT = 0
    COMMIT = 1


@fast_value
class BatchHeader:
    """The fields before the records. ``size_bytes`` is the size of the whole batch."""

    base_offset: int
    size_bytes: int
    codec: Codec
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    count: int
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    transactional: bool = False
    control: bool = False
    has_delete_horizon: bool = False
    leader_epoch: int = -1
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    base_sequence: int = NO_PRODUCER

    @property
    def last_offset(self) -> int:
        """The offset of the last record that was sent in it."""
        return self.base_offset + self.last_offset_delta


def is_whole(data: memoryview, position: int) -> bool:
    """Return True if a batch of magic 2, by its magic byte and size, is completely at ``position``."""
    left = len(data) - position
    if left < layout.BATCH_HEADER_BYTES or data[position + layout.MAGIC_AT] != MAGIC:
        return False
    return layout.BATCH_HEADER_BYTES <= layout.entry_size(data, position) <= left


def set_offset_and_epoch(data: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch, which the checksum does not cover, into a batch."""
    _INT64.pack_into(data, 0, base_offset)
    _INT32.pack_into(data, layout.LEADER_EPOCH_AT, leader_epoch)


def read_header(data: Buffer, position: int, *, check_crc: bool = True) -> BatchHeader:
    """Read the header of the batch at ``position``, which is complete and of magic 2.

    Raises CORRUPT_MESSAGE with the position if its size, checksum, codec, deltas or count are invalid.
    """
    view = memoryview(data)
    size_bytes = layout.entry_size(view, position)
    if size_bytes < layout.BATCH_HEADER_BYTES:
        raise decode_status.error(decode_status.BAD_SIZE, position)
    base_offset, _, epoch, _, crc, attributes, last_delta, *rest = _LAYOUT.unpack_from(view, position)
    base_ms, max_ms, producer_id, producer_epoch, base_sequence, count = rest
    if check_crc and crc32c(view[position + layout.BATCH_COVERED_AT : position + size_bytes]) != crc:
        raise decode_status.error(decode_status.BAD_CRC, position)
    if attributes & layout.CODEC_MASK > Codec.ZSTD:
        raise decode_status.error(decode_status.BAD_CODEC, position)
    if last_delta < 0 or base_offset + last_delta >= 1 << 63:
        raise decode_status.error(decode_status.BAD_DELTA, position)
    if count < 0:
        raise decode_status.error(decode_status.BAD_COUNT, position)
    return BatchHeader(
        base_offset,
        size_bytes,
        _CODECS[attributes & layout.CODEC_MASK],
        last_delta,
        base_ms,
        max_ms,
        count,
        _TIMESTAMP_TYPES[attributes & layout.APPEND_TIME_BIT != 0],
        attributes & layout.TRANSACTIONAL_BIT != 0,
        attributes & layout.CONTROL_BIT != 0,
        attributes & layout.DELETE_HORIZON_BIT != 0,
        epoch,
        producer_id,
        producer_epoch,
        base_sequence,
    )


def records_of(
    data: Buffer,
    position: int,
    header: BatchHeader,
    max_content_bytes: int = MAX_CONTENT_BYTES,
    budget: ContentBudget | None = None,
) -> memoryview:
    """Return the records of the batch at ``position``, decompressed and not validated.

    Raises CORRUPT_MESSAGE with the position if they cannot be decompressed, or have more than
    ``max_content_bytes``; BudgetExceeded if they have more than ``budget`` has left.
    """
    return content_of(memoryview(data), position, position + header.size_bytes, max_content_bytes, budget)


def content_of(
    view: memoryview, position: int, end: int, max_content_bytes: int, budget: ContentBudget | None = None
) -> memoryview:
    """Return the records of the batch from ``position`` to ``end``, whose header is valid: ``records_of``."""
    codec = _CODECS[view[position + layout.BATCH_FLAGS_AT] & layout.CODEC_MASK]
    try:
        stored = view[position + layout.BATCH_HEADER_BYTES : end]
        return decompress(codec, stored, max_content_bytes, budget)
    except BrokerError as error:
        raise decode_status.corrupt(error.detail, position) from None


def assemble(content: Buffer, header: BatchHeader, *, sealed: bool = True) -> bytearray:
    """Build the batch of the records ``content``, which it compresses. ``header.size_bytes`` is ignored.

    If not ``sealed``, the checksum is left for ``set_producer`` to write.
    """
    out = compress(header.codec, content, 2, layout.BATCH_HEADER_BYTES)
    write_header(out, header, sealed=sealed)
    return out


def write_header(out: bytearray | memoryview, header: BatchHeader, *, sealed: bool = True) -> None:
    """Write the header at the start of ``out``, the whole batch, with its size and checksum.

    If not ``sealed``, the checksum is 0.
    """
    attributes = int(header.codec)
    attributes |= layout.APPEND_TIME_BIT if header.timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    attributes |= layout.TRANSACTIONAL_BIT if header.transactional else 0
    attributes |= layout.CONTROL_BIT if header.control else 0
    attributes |= layout.DELETE_HORIZON_BIT if header.has_delete_horizon else 0
    _LAYOUT.pack_into(
        out,
        0,
        header.base_offset,
        len(out) - layout.ENTRY_HEADER_BYTES,
        header.leader_epoch,
        2,
        0,
        attributes,
        header.last_offset_delta,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    if sealed:
        write_checksum(out, 0, len(out))


def write_checksum(out: bytearray | memoryview, position: int, end: int) -> None:
    """Compute and write the checksum of the batch between ``position`` and ``end``."""
    _UINT32.pack_into(
        out, position + layout.BATCH_CRC_AT, crc32c(memoryview(out)[position + layout.BATCH_COVERED_AT : end])
    )


def set_producer(
    out: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool = False,
    sealed: bool = True,
) -> None:
    """Write the producer and, if ``sealed``, the checksum into a batch that is otherwise complete; ``out`` is
    the whole batch.
    """
    _PRODUCER.pack_into(out, layout.PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    if transactional:
        out[layout.BATCH_FLAGS_AT] |= layout.TRANSACTIONAL_BIT
    if sealed:
        write_checksum(out, 0, len(out))


def set_max_timestamp(out: bytearray | memoryview, position: int, end: int, timestamp_ms: int) -> None:
    """Write the largest timestamp, and the checksum, into the batch between ``position`` and ``end``."""
    _INT64.pack_into(out, position + layout.MAX_TIMESTAMP_AT, timestamp_ms)
    write_checksum(out, position, end)


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER,
    base_sequence: int = NO_PRODUCER,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build a batch of ``records`` with offsets from ``base_offset`` on; empty bytes for no records."""
    if not records:
        return b""
    base_timestamp_ms = records[0].timestamp_ms
    content = bytearray()
    for delta, record in enumerate(records):
        _append_record(content, delta, record.timestamp_ms - base_timestamp_ms, record)
    header = BatchHeader(
        base_offset=base_offset,
        size_bytes=0,
        codec=codec,
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        count=len(records),
        timestamp_type=timestamp_type,
        transactional=transactional,
        control=control,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return bytes(assemble(content, header))


def build_control_batch(
    kind: ControlType,
    *,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Build the marker that ends a producer's transaction: it has no sequence, and is never compressed."""
    marker = Record(
        layout.CONTROL_KEY.pack(0, kind), layout.CONTROL_VALUE.pack(0, coordinator_epoch), timestamp_ms
    )
    return build_batch(
        [marker],
        base_offset=base_offset,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(record: StoredRecord) -> ControlType | None:
    """Return the type of a control record; None for an unknown type, and for other records."""
    if not record.control or record.key is None or len(record.key) < layout.CONTROL_KEY.size:
        return None
    _, kind = layout.CONTROL_KEY.unpack_from(record.key)
    return ControlType(kind) if kind in {0, 1} else None


def iterate_batch(
    view: memoryview, position: int, deep: bool = True, max_content_bytes: int = MAX_CONTENT_BYTES
) -> Iterator[StoredRecord]:
    """Yield the records of the batch at ``position``, which is complete and of magic 2.

    If not ``deep``, yield the batch as one record with the last offset, the largest timestamp and the stored
    records as its value. The whole batch is read before the first record is yielded. Raises CORRUPT_MESSAGE
    with the position on damage.
    """
    header = read_header(view, position)
    if not deep:
        stored = bytes(view[position + layout.BATCH_HEADER_BYTES : position + header.size_bytes])
        first = _stored(header, header.last_offset_delta, header.max_timestamp_ms, None, stored, ())
        yield replace(first, sequence=header.base_sequence)
        return
    content = records_of(view, position, header, max_content_bytes)
    reader = _Reader(content, position)
    records = []
    before = -1
    for _ in range(header.count):
        record = reader.record(header)
        delta = record.offset - header.base_offset
        if delta <= before or delta > header.last_offset_delta:
            raise reader.error(decode_status.BAD_DELTA)
        before = delta
        records.append(record)
    if reader.at != len(content):
        raise reader.error(decode_status.BAD_COUNT)
    yield from records


def _stored(
    header: BatchHeader,
    delta: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> StoredRecord:
    sequence = header.base_sequence
    return StoredRecord(
        offset=header.base_offset + delta,
        timestamp_ms=timestamp_ms,
        timestamp_type=header.timestamp_type,
        key=key,
        value=value,
        magic=2,
        codec=header.codec,
        headers=headers,
        control=header.control,
        transactional=header.transactional,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        sequence=sequence if sequence < 0 else (sequence + delta) % _SEQUENCES,
        leader_epoch=header.leader_epoch,
    )


class _Reader:
    """A reader of the records of the batch at ``position``."""

    def __init__(self, content: memoryview, position: int) -> None:
        self.at = 0
        self._content = content
        self._end = len(content)
        self._start = 0
        self._position = position

    def error(self, stop: int) -> BrokerError:
        return decode_status.batch_error(stop, self._start, self._position)

    def record(self, header: BatchHeader) -> StoredRecord:
        self._start = self.at
        self._end = len(self._content)
        length = self._number(32)
        if length < 1 or length > self._end - self.at:
            raise self.error(decode_status.BAD_RECORD_LENGTH)
        self._end = self.at + length
        self.at += 1
        timestamp_ms = as_int64(header.base_timestamp_ms + self._number(64))
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp_ms = header.max_timestamp_ms
        delta = self._number(32)
        key = self._field(decode_status.BAD_KEY_LENGTH)
        value = self._field(decode_status.BAD_VALUE_LENGTH)
        headers = tuple(self._header() for _ in range(self._header_count()))
        if self.at != self._end:
            raise self.error(decode_status.BAD_RECORD_LENGTH)
        return _stored(header, delta, timestamp_ms, key, value, headers)

    def _header_count(self) -> int:
        count = self._number(32)
        # A header has at least two bytes.
        if count < 0 or count > (self._end - self.at) // 2:
            raise self.error(decode_status.BAD_HEADERS)
        return count

    def _header(self) -> tuple[str, bytes | None]:
        name = self._field(decode_status.BAD_HEADERS)
        if name is None:
            raise self.error(decode_status.BAD_HEADERS)
        return name.decode(errors="replace"), self._field(decode_status.BAD_HEADERS)

    def _field(self, stop: int) -> bytes | None:
        length = self._number(32)
        if length < -1 or length > self._end - self.at:
            raise self.error(stop)
        if length < 0:
            return None
        self.at += length
        return bytes(self._content[self.at - length : self.at])

    def _number(self, bits: int) -> int:
        raw = shift = 0
        while self.at < self._end:
            byte = self._content[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 and not raw >> bits:
                return raw >> 1 ^ -(raw & 1)
            if byte < 0x80 or shift >= bits:
                break
        raise self.error(decode_status.BAD_VARINT)


def _append_record(out: bytearray, delta: int, timestamp_delta: int, record: Record) -> None:
    body = bytearray(1)
    _append_number(body, as_int64(timestamp_delta))
    _append_number(body, delta)
    _append_field(body, record.key)
    _append_field(body, record.value)
    _append_number(body, len(record.headers))
    for name, value in record.headers:
        _append_field(body, name.encode())
        _append_field(body, value)
    _append_number(out, len(body))
    out += body


def _append_field(out: bytearray, field: bytes | None) -> None:
    _append_number(out, -1 if field is None else len(field))
    out += field or b""


def _append_number(out: bytearray, number: int) -> None:
    raw = number << 1 if number >= 0 else ~(number << 1)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


__all__ = [
    "NO_TIMESTAMP",
    "BatchHeader",
    "ControlType",
    "assemble",
    "build_batch",
    "build_control_batch",
    "control_type",
    "iterate_batch",
    "read_header",
    "records_of",
    "set_max_timestamp",
    "set_producer",
    "write_checksum",
    "write_header",
]
