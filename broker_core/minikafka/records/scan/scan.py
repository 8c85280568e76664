"""Scans of stored message sets: recovery, and search by offset or timestamp.

A segment can be scanned in windows: start each window at the first byte that was not valid in the last one,
and pass the results of that scan. A scan that ends within an entry returns the size of the entry.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.format import batch
from minikafka.records.format.checksums import CRC32_TABLES, CRC_TABLES
from minikafka.records.format.compression import Codec, content_bound
from minikafka.records.format.message_set import (
    NO_TIMESTAMP,
    Content,
    TimestampType,
    inner_shift,
    iterate,
    open_wrapper,
    wrapper_value,
)
from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.arrays import INT64_MAX, INT64_MIN, as_int64, read_only

_INT64 = struct.Struct(">q")
"""The size, the magic and, for a batch, the attributes of an entry."""
"""The attributes are an int16, whose second byte holds the codec."""
MAX_RELATIVE_OFFSET = 0x7FFFFFFF
"""The limit of an offset index, which holds int32 offsets relative to the segment's first."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of a scan.

    valid_bytes       size of the valid data at the start
    next_offset       the last valid offset + 1 (``base_offset`` if there is none)
    count             number of entries: a wrapper or a batch counts once
    max_timestamp_ms  of entries of magic 1 and 2, -1 for none; includes earlier windows if it was passed
    max_timestamp_at  last offset of the first entry with that timestamp
    problem           the reason why the scan stopped before the end of the data, with the position in the
                      file; None if it did not
    incomplete        True if the only problem is that the data ends within an entry
    wanted_bytes      size of that entry; 0 if its size field is not complete
    index_entries     int64[n, 2]: offset and position in the file, more than the interval after the last one
    time_entries      int64[n, 2]: for each of these, the largest timestamp up to it, and as above its offset
    last_indexed      position in the file of the last index entry, for the next window
    """

    valid_bytes: int
    next_offset: int
    count: int
    max_timestamp_ms: int
    max_timestamp_at: int
    problem: str | None
    incomplete: bool
    wanted_bytes: int
    index_entries: NDArray[np.int64]
    time_entries: NDArray[np.int64]
    last_indexed: int


def scan(
    data: Buffer,
    *,
    base_offset: int | None,
    next_offset: int | None = None,
    position: int = 0,
    last_indexed: int = 0,
    max_timestamp: tuple[int, int] = (NO_TIMESTAMP, -1),
    index_interval_bytes: int = 4096,
    check_crc: bool = True,
    max_magic: int = 2,
) -> ScanResult:
    """Scan the valid entries of ``data``, which is at ``position`` of a segment that starts at
    ``base_offset``.

    An entry is valid if it is complete, its magic byte is known, its checksum is right, and its offset is
    larger than the last one and at most 2^31 - 1 above the segment's first. (0.10.1 checks neither the magic
    nor the order.) Formats above ``max_magic`` are unknown. The offset of an index entry is that of the last
    message of a wrapper or batch: that is enough for look-ups, and nothing is decompressed. ``next_offset``,
    ``last_indexed`` and ``max_timestamp`` (with its offset) come from the last window. ``base_offset`` None
    is for data that is not a segment, such as a fetch response: any rising offsets are valid.
    """
    read = kernels.read
    array = read_only(data)
    first = next_offset if next_offset is not None else base_offset or 0
    largest = INT64_MAX - 1 if base_offset is None else min(INT64_MAX - 1, base_offset + MAX_RELATIVE_OFFSET)
    room = array.size // max(1, index_interval_bytes) + 1
    index = np.empty((room, read.INDEX_FIELDS), dtype=np.int64)
    state = np.zeros(read.SCAN_STATE_SIZE, dtype=np.int64)
    state[read.SCAN_NEXT_OFFSET] = first
    state[read.SCAN_LARGEST_OFFSET] = largest
    state[read.SCAN_MAX_TIMESTAMP], state[read.SCAN_MAX_AT] = max_timestamp
    state[read.SCAN_INDEXED] = last_indexed - position
    state[read.SCAN_INTERVAL] = max(1, index_interval_bytes)
    state[read.SCAN_CHECK_CRC] = check_crc
    state[read.SCAN_MAX_MAGIC] = max_magic
    stop = read.scan_run(array, CRC_TABLES, state, index.reshape(-1))
    valid_bytes = int(state[read.SCAN_POSITION])
    found = int(state[read.SCAN_INDEX_COUNT])
    index = index[:found]
    index[:, read.INDEX_POSITION] += position
    return ScanResult(
        valid_bytes=valid_bytes,
        next_offset=int(state[read.SCAN_NEXT_OFFSET]),
        count=int(state[read.SCAN_COUNT]),
        max_timestamp_ms=int(state[read.SCAN_MAX_TIMESTAMP]),
        max_timestamp_at=int(state[read.SCAN_MAX_AT]),
        problem=None if stop == decode_status.END else decode_status.describe(stop, position + valid_bytes),
        incomplete=stop == decode_status.PARTIAL,
        wanted_bytes=int(state[read.SCAN_WANTED]),
        index_entries=index[:, : read.INDEX_MAX_TIMESTAMP],
        time_entries=index[:, read.INDEX_MAX_TIMESTAMP :],
        last_indexed=int(state[read.SCAN_INDEXED]) + position,
    )


def find_position(data: Buffer, target_offset: int, *, position: int = 0) -> int | None:
    """Return the position of the first entry, from ``position`` on, with a last offset of at least
    ``target_offset``.

    None if there is none in ``data``. Raises CORRUPT_MESSAGE if an entry before it is damaged.
    """
    return _find(read_only(data), position, target_offset, INT64_MIN)


def first_at_or_after(data: Buffer, timestamp_ms: int, least_offset: int = 0) -> tuple[int, int] | None:
    """Return ``(offset, timestamp in ms)`` of the first message from ``least_offset`` on that is not older
    than ``timestamp_ms``, or None.

    Magic 0 messages have the timestamp -1. Wrappers and batches are opened, without an object per message.
    Raises CORRUPT_MESSAGE if an entry before it is damaged.
    """
    for entry in entries_at_or_after(data, timestamp_ms, least_offset):
        view = entry.data
        if view[layout.MAGIC_AT] == batch.MAGIC:
            found = _first_of_batch(view, timestamp_ms, least_offset)
        elif view[layout.MESSAGE_ATTRIBUTES_AT] & layout.CODEC_MASK:
            found = _first_of_wrapper(view, timestamp_ms, least_offset)
        else:
            message = next(iterate(view))
            found = message.offset, message.timestamp_ms
        if found is not None:
            return found
    return None


def _first_of_batch(view: memoryview, timestamp_ms: int, least_offset: int) -> tuple[int, int] | None:
    header = batch.read_header(view, 0)
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    kernel = kernels.read
    state = np.zeros(kernel.FIND_STATE_SIZE, dtype=np.int64)
    state[kernel.FIND_LEFT] = header.count
    state[kernel.FIND_BASE_OFFSET] = header.base_offset
    state[kernel.FIND_LAST_DELTA] = header.last_offset_delta
    state[kernel.FIND_TIMESTAMP] = header.max_timestamp_ms if append_time else header.base_timestamp_ms
    state[kernel.FIND_APPEND_TIME] = append_time
    state[kernel.FIND_OLDEST], state[kernel.FIND_LEAST] = timestamp_ms, least_offset
    state[kernel.FIND_DELTA] = -1
    stop = kernel.find_record(read_only(batch.records_of(view, 0, header)), state)
    if stop != decode_status.END:
        raise decode_status.batch_error(stop, int(state[kernel.FIND_AT]), 0)
    if not state[kernel.FIND_DONE]:
        return None
    return int(state[kernel.FOUND_OFFSET]), int(state[kernel.FOUND_TIMESTAMP])


def _first_of_wrapper(view: memoryview, timestamp_ms: int, least_offset: int) -> tuple[int, int] | None:
    if zlib.crc32(view[layout.MAGIC_AT :]) != int.from_bytes(
        view[layout.MESSAGE_CRC_AT : layout.MAGIC_AT], "big"
    ):
        raise decode_status.error(decode_status.BAD_CRC, 0)
    content = open_wrapper(view, 0)
    _check_content(content)
    shift = inner_shift(content)
    append_time = content.timestamp_type is TimestampType.LOG_APPEND_TIME
    if append_time and content.timestamp_ms < timestamp_ms:
        return None
    data = content.data
    least_inside = min(max(INT64_MIN, least_offset - shift), INT64_MAX)
    at = _find(read_only(data), 0, least_inside, INT64_MIN if append_time else timestamp_ms)
    if at is None:
        return None
    offset = as_int64(_INT64.unpack_from(data, at)[0] + shift)
    if append_time or not content.magic:
        return offset, content.timestamp_ms
    return offset, _INT64.unpack_from(data, at + layout.MESSAGE_TIMESTAMP_AT)[0]


def _check_content(content: Content) -> None:
    """Check every message of a wrapper. Raises CORRUPT_MESSAGE."""
    write = kernels.write
    state = np.zeros(write.STATE_SIZE, dtype=np.int64)
    state[write.MAX_MESSAGE_BYTES] = state[write.LATEST] = INT64_MAX
    state[write.EARLIEST] = INT64_MIN
    state[write.INNER] = 1
    state[write.WRAPPER_MAGIC] = content.magic
    stop = write.validate_run(read_only(content.data), CRC32_TABLES, state)
    if stop != decode_status.END:
        raise decode_status.error(stop, int(state[write.POSITION]), content.position)


@dataclass(frozen=True, slots=True)
class TimedEntry:
    """An entry whose header shows a timestamp that is new enough."""

    position: int
    data: memoryview

    @property
    def need_bytes(self) -> int:
        """The memory for reading its messages: the entry, and its maximum content."""
        view = self.data
        size = len(view)
        if view[layout.MAGIC_AT] == batch.MAGIC:
            codec, stored = view[layout.BATCH_FLAGS_AT] & layout.CODEC_MASK, view[layout.BATCH_HEADER_BYTES :]
            return size + (content_bound(Codec(codec), stored) if codec <= Codec.ZSTD else 0)
        if not view[layout.MESSAGE_ATTRIBUTES_AT] & layout.CODEC_MASK:
            return size
        wrapper_codec, value = wrapper_value(view, 0)
        return size + (0 if value is None else content_bound(wrapper_codec, value))


def entries_at_or_after(data: Buffer, timestamp_ms: int, least_offset: int) -> Iterator[TimedEntry]:
    """Yield the entries that may have messages from ``least_offset`` on, not older than ``timestamp_ms``.

    Raises CORRUPT_MESSAGE if an entry before one of them is damaged.
    """
    array = read_only(data)
    view = memoryview(data)
    at = _find(array, 0, least_offset, timestamp_ms)
    while at is not None:
        end = at + layout.entry_size(view, at)
        yield TimedEntry(at, view[at:end])
        at = _find(array, end, least_offset, timestamp_ms)


def _find(array: NDArray[np.uint8], position: int, target_offset: int, target_timestamp: int) -> int | None:
    if not 0 <= position <= array.size:
        raise ValueError(f"position {position} is outside the data, which has {array.size} bytes")
    result = np.array([position], dtype=np.int64)
    stop = kernels.read.find(array, target_offset, target_timestamp, result)
    if stop == decode_status.FOUND:
        return int(result[kernels.read.SEARCH_POSITION])
    if stop >= decode_status.FIRST_PROBLEM:
        raise decode_status.error(stop, int(result[kernels.read.SEARCH_POSITION]))
    return None
