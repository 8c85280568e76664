"""Stored bytes to Arrow columns, without a Python object per message. ``encoding`` does the reverse.

The kernels write the columns in Arrow's own layout (binary with int32 offsets, validity as bitmaps), so a
record batch is made of them without a copy (``arrow.decoded``). Compressed messages are read from their
decompressed content. Records of all formats are returned in their order; those of control batches are left
out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.arrow.buffers import grown
from minikafka.records.arrow.decoded import MAX_COLUMN_BYTES, SCHEMA, SCHEMA_WITH_HEADERS, Columns, schema_of
from minikafka.records.arrow.encoding import (
    EncodedRecords,
    encode,
    group_rows,
    partitions_by_java_hash,
    partitions_by_key,
)
from minikafka.records.format.batch import content_of
from minikafka.records.format.checksums import CRC32_TABLES, CRC_TABLES
from minikafka.records.format.compression import MAX_CONTENT_BYTES
from minikafka.records.format.headers import HEADERS_TYPE, RawHeaders, raw_headers
from minikafka.records.format.message_set import Content, TimestampType, inner_shift, open_wrapper
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import read_only
from minikafka.records.kernels.layout import (
    BATCH_FIELDS,
    BATCH_HEADER_BYTES,
    ENTRY_HEADER_BYTES,
    MIN_RECORD_BYTES,
    entry_size,
)

__all__ = [
    "HEADERS_TYPE",
    "MAX_COLUMN_BYTES",
    "SCHEMA",
    "SCHEMA_WITH_HEADERS",
    "ColumnDecoder",
    "Columns",
    "DamagedEntry",
    "EncodedRecords",
    "RawHeaders",
    "decode",
    "decode_pieces",
    "encode",
    "group_rows",
    "partitions_by_java_hash",
    "partitions_by_key",
    "raw_headers",
    "schema_of",
]

PIECE_BYTES = 32 << 20
PIECE_ROWS = 1 << 18
"""The size of a piece of ``decode_pieces``: this many bytes of keys, values or headers, or one larger record;
this many rows. A small response may decompress to gigabytes, of which only the next piece is in memory.
"""

_HEAD = BATCH_FIELDS.struct("base_offset", "magic", "last_offset_delta")
"""The start of an entry, up to the last offset of a batch; a message of magic 0 may have a byte less."""

_NOTHING = read_only(b"")
_CONTENT = 1
"""The index of the argument ``content`` of ``decode_batches``."""

_COUNT = BATCH_FIELDS.struct("magic", "count")

_FULL = frozenset(
    {decode_status.ROWS_FULL, decode_status.KEYS_FULL, decode_status.VALUES_FULL, decode_status.HEADERS_FULL}
)


class ColumnDecoder:
    """Collects the messages of several pieces of one partition, in order, into one set of columns.

    Rows are those with ``start_offset <= offset < end_offset``; at most ``max_rows`` if given, and no more
    once keys, values or headers have ``max_bytes``, except a first row that has more. Keys, values and
    headers are left out if they are not requested. A decoder that is ``full`` or ``finished`` ignores further
    data. A wrapper or batch that holds more than ``max_content_bytes`` is CORRUPT_MESSAGE.
    """

    def __init__(
        self,
        start_offset: int,
        end_offset: int,
        *,
        check_crc: bool = True,
        max_rows: int | None = None,
        max_bytes: int = MAX_COLUMN_BYTES,
        keys: bool = True,
        values: bool = True,
        headers: bool = False,
        max_content_bytes: int = MAX_CONTENT_BYTES,
    ) -> None:
        read = kernels.read
        self.full = max_rows is not None and max_rows <= 0
        self.finished = start_offset >= end_offset
        self._max_rows = max_rows
        self._max_bytes = min(max_bytes, MAX_COLUMN_BYTES)
        self._max_content_bytes = max_content_bytes
        self._with_keys, self._with_values, self._with_headers = keys, values, headers
        self._in_batches = False
        self._valid_bytes = 0
        self._state = np.zeros(read.STATE_SIZE, dtype=np.int64)
        self._state[read.NEXT_OFFSET] = start_offset
        self._state[read.START_OFFSET] = start_offset
        self._state[read.END_OFFSET] = end_offset
        self._state[read.CHECK_CRC] = check_crc
        self._state[read.INNER] = -1
        self._state[read.RECORD_AT] = -1
        self._state[read.WITH_KEYS] = keys
        self._state[read.WITH_VALUES] = values
        self._state[read.WITH_HEADERS] = headers
        self._values = np.empty(0, dtype=np.uint8)
        self._content = _NOTHING
        """The decompressed records of the batch that the kernel has entered, or of the last one."""
        self._call: Any = None
        """The call of ``decode_batches``; None when a column or the data is another array now."""
        self._make_columns()
        self._intact = self._state
        """The state before the wrapper that is being decoded, to which damage in the wrapper resets it."""

    @property
    def count(self) -> int:
        """The number of rows so far."""
        return int(self._state[kernels.read.ROWS])

    def add(self, data: Buffer) -> int:
        """Decode ``data`` from its first byte on. Return the number of bytes used.

        A cut-off last message is not used, nor is anything after the last row when the decoder is full or
        finished. Raises CORRUPT_MESSAGE with the position in ``data`` on damage; the rows before it are kept.
        """
        self._valid_bytes = 0
        if not self.full and not self.finished:
            for _ in self._decode(memoryview(data)):
                self.full = True
                break
        return self._valid_bytes

    def pieces(self, data: Buffer) -> Iterator[Columns]:
        """Yield all messages of ``data``, in as many Columns as they need; the last one is ``complete``.

        A compressed message is decompressed once, however many pieces it takes. Raises CORRUPT_MESSAGE as
        ``add``, after all pieces that were full; ``columns`` then has the rows between these and the damage.
        An iterator that is closed before its last piece leaves nothing of ``data`` in the decoder.
        """
        for _ in self._decode(memoryview(data)):
            self.full = True
            try:
                yield self.columns()
            finally:
                self.full = False
                self._clear()
        yield self.columns()

    def _decode(self, view: memoryview) -> Iterator[None]:
        """Decode ``view``; yield when the columns are full, and continue there once they are cleared."""
        read = kernels.read
        self._valid_bytes = 0
        self._reserve(len(view), _expected_rows(view))
        self._call = None
        data = read_only(view)
        try:
            while not self.finished:
                stop = yield from self._run(data, self._valid_bytes, None)
                self._valid_bytes = int(self._state[read.POSITION])
                if stop == decode_status.WRAPPER:
                    content = open_wrapper(view, self._valid_bytes, self._max_content_bytes)
                    stop = yield from self._add_content(content)
                    if stop == decode_status.END:
                        self._valid_bytes += content.size_bytes
                        self._pass(content.offset)
                        continue
                if stop >= decode_status.FIRST_PROBLEM:
                    raise decode_status.error(stop, self._valid_bytes)
                self.finished = stop == decode_status.REACHED_END_OFFSET
                if self.finished:
                    self._state[read.NEXT_OFFSET] = self._state[read.END_OFFSET]
                return
        finally:
            self._leave_batch()

    def _clear(self) -> None:
        """Start new columns where the last ones ended, with as much room as those had."""
        state, read = self._state, kernels.read
        rows, value_bytes = self._offsets.size, min(self._values.size, self._max_bytes)
        counters = slice(read.ROWS, read.ROWS + read.COUNTERS)
        next_offset = state[read.NEXT_OFFSET]
        state[counters] = 0
        state[read.NEXT_OFFSET] = next_offset
        # The previous rows were returned: damage resets the counters to these.
        state[read.COUNTERS_BEFORE : read.COUNTERS_BEFORE + read.COUNTERS] = state[counters]
        self._make_columns()
        self._more_rows(rows)
        self._values = _more_bytes(self._values, 0, value_bytes)
        if self._intact is not state:
            self._intact = state.copy()

    def _make_columns(self) -> None:
        self._call = None
        self._offsets = np.empty(0, dtype=np.int64)
        self._timestamps = np.empty(0, dtype=np.int64)
        self._types = np.empty(0, dtype=np.int8)
        self._key_ends = np.zeros(1, dtype=np.int32)
        self._value_ends = np.zeros(1, dtype=np.int32)
        self._has_key = np.empty(0, dtype=np.uint8)
        self._has_value = np.empty(0, dtype=np.uint8)
        self._keys = np.empty(0, dtype=np.uint8)
        self._values = np.empty(0, dtype=np.uint8)
        self._header_ends = np.zeros(1, dtype=np.int32)
        self._headers = np.empty(0, dtype=np.uint8)

    def columns(self) -> Columns:
        """Return the decoded rows, without a copy. Do not use the decoder after that."""
        read = kernels.read
        count = self.count
        key_bytes, value_bytes = int(self._state[read.KEY_BYTES]), int(self._state[read.VALUE_BYTES])
        null_keys, null_values = int(self._state[read.NULL_KEYS]), int(self._state[read.NULL_VALUES])
        return Columns(
            count=count,
            offsets=self._offsets[:count],
            timestamps=self._timestamps[:count],
            timestamp_types=self._types[:count],
            key_ends=self._key_ends[: count + 1],
            keys=self._keys[:key_bytes],
            key_validity=_bitmap(self._has_key[:count]) if null_keys else None,
            null_keys=null_keys,
            value_ends=self._value_ends[: count + 1],
            values=self._values[:value_bytes],
            value_validity=_bitmap(self._has_value[:count]) if null_values else None,
            null_values=null_values,
            headers=self._raw_headers(count) if self._with_headers else None,
            next_offset=int(self._state[read.NEXT_OFFSET]),
            valid_bytes=self._valid_bytes,
            complete=not self.full,
        )

    def _raw_headers(self, count: int) -> RawHeaders:
        state, read = self._state, kernels.read
        return RawHeaders(
            self._header_ends[: count + 1],
            self._headers[: int(state[read.HEADER_BYTES])],
            int(state[read.HEADERS]),
            int(state[read.NAME_BYTES]),
            int(state[read.CONTENT_BYTES]),
        )

    def _pass(self, offset: int) -> None:
        """Record that everything up to ``offset`` was decoded."""
        read = kernels.read
        after = min(offset + 1, int(self._state[read.END_OFFSET]))
        self._state[read.NEXT_OFFSET] = max(int(self._state[read.NEXT_OFFSET]), after)

    def _add_content(self, content: Content) -> Generator[None, None, int]:
        """Decode a wrapper's content; END when all its rows in the range are decoded."""
        read = kernels.read
        state = self._state
        shift = inner_shift(content)
        self._intact = state.copy()
        state[read.INNER] = content.timestamp_type is TimestampType.LOG_APPEND_TIME
        state[read.WRAPPER_MAGIC] = content.magic
        state[read.WRAPPER_TIMESTAMP] = content.timestamp_ms
        state[read.OFFSET_SHIFT] = shift
        try:
            self._reserve(len(content.data), len(content.data) // 128)
            stop = yield from self._run(read_only(content.data), 0, content.position)
        except BrokerError:
            # Keep all rows of a wrapper or none, except those that were returned: any may be damaged.
            state[:] = self._intact
            raise
        finally:
            state[read.INNER] = -1
            state[read.OFFSET_SHIFT] = 0
            self._intact = state
        return stop

    def _run(self, array: NDArray[np.uint8], position: int, inside: int | None) -> Generator[None, None, int]:
        """Run the kernel to the end of ``array``. Enlarge the columns when they are full; if they have their
        maximum size, yield until they are cleared.
        """
        read = kernels.read
        state = self._state
        state[read.POSITION] = position
        while True:
            stop = self._run_batches(array) if self._in_batches else self._run_messages(array)
            if stop == decode_status.WRAPPER and self._in_batches:
                self._open_batch(array.data)
            elif stop in {decode_status.BATCH, decode_status.CLASSIC}:
                self._in_batches = stop == decode_status.BATCH
            elif stop not in _FULL:
                break
            elif not self._has_more_room(stop, self._content.size or array.size):
                self._valid_bytes = int(state[read.POSITION]) if inside is None else inside
                yield
        if inside is not None and (stop >= decode_status.FIRST_PROBLEM or stop == decode_status.PARTIAL):
            raise decode_status.error(stop, int(state[read.POSITION]), inside)
        return stop

    def _has_more_room(self, stop: int, size: int) -> bool:
        """Enlarge the column that is full; False if it has its maximum size."""
        state, read = self._state, kernels.read
        self._call = None
        if stop == decode_status.ROWS_FULL:
            return self._more_rows()
        if stop == decode_status.KEYS_FULL:
            room = self._room(self._keys, size)
            self._keys = self._keys if room is None else grown(self._keys, int(state[read.KEY_BYTES]), room)
        elif stop == decode_status.VALUES_FULL:
            room = self._room(self._values, size)
            self._values = (
                self._values if room is None else grown(self._values, int(state[read.VALUE_BYTES]), room)
            )
        else:
            room = self._room(self._headers, size)
            self._headers = (
                self._headers if room is None else grown(self._headers, int(state[read.HEADER_BYTES]), room)
            )
        return room is not None

    def _room(self, array: NDArray[np.uint8], size: int) -> int | None:
        """Return the new size of ``array``, for ``size`` bytes of messages; None if it cannot grow."""
        if array.size < self._max_bytes:
            return min(self._max_bytes, max(2 * array.size, array.size + size))
        if self.count or array.size >= MAX_COLUMN_BYTES:
            return None
        # A single record is larger: make room for it, and little more.
        return min(MAX_COLUMN_BYTES, 2 * array.size)

    def _run_messages(self, array: NDArray[np.uint8]) -> int:
        """Run the kernel for messages of magic 0 and 1."""
        before = self.count
        stop: int = kernels.read.decode_run(
            array,
            CRC32_TABLES,
            self._state,
            self._offsets,
            self._timestamps,
            self._types,
            self._key_ends,
            self._value_ends,
            self._has_key,
            self._has_value,
            self._keys,
            self._values,
        )
        if self._with_headers:
            self._header_ends[before + 1 : self.count + 1] = self._state[kernels.read.HEADER_BYTES]
        return stop

    def _run_batches(self, array: NDArray[np.uint8]) -> int:
        """Run the kernel for batches of magic 2."""
        if self._call is None:
            self._call = kernels.batches.decode_batches.prepared(
                array,
                self._content,
                CRC_TABLES,
                self._state,
                self._offsets,
                self._timestamps,
                self._types,
                self._key_ends,
                self._value_ends,
                self._header_ends,
                self._has_key,
                self._has_value,
                self._keys,
                self._values,
                self._headers,
            )
        stop: int = self._call()
        if stop >= decode_status.FIRST_PROBLEM and self._state[kernels.read.RECORD_AT] >= 0:
            position = int(self._state[kernels.read.POSITION])
            record_at = int(self._state[kernels.read.RECORD_AT])
            if not self._state[kernels.read.BATCH_OPENED]:
                record_at -= position + BATCH_HEADER_BYTES
            self._valid_bytes = position
            raise decode_status.batch_error(stop, record_at, position)
        return stop

    def _open_batch(self, view: memoryview) -> None:
        """Decompress the batch at POSITION, which the kernel has entered and continues with."""
        state, read = self._state, kernels.read
        self._valid_bytes = position = int(state[read.POSITION])
        self._content = _NOTHING  # the last batch's memory is free now
        content = content_of(view, position, int(state[read.BATCH_END]), self._max_content_bytes)
        self._content = np.frombuffer(content, dtype=np.uint8)
        if self._call is not None:
            self._call.replace(_CONTENT, self._content)
        state[read.RECORD_AT] = 0
        state[read.RECORDS_END] = len(content)
        state[read.BATCH_OPENED] = 1

    def _leave_batch(self) -> None:
        """Continue with an entry, not in the batch that the kernel has entered."""
        self._state[kernels.read.RECORD_AT] = -1
        self._state[kernels.read.BATCH_OPENED] = 0
        self._call, self._content = None, _NOTHING

    def _reserve(self, size: int, rows: int) -> None:
        """Make room for the probable content of ``size`` bytes of messages, probably ``rows`` of them."""
        state, read = self._state, kernels.read
        size = min(size, self._max_bytes - int(state[read.VALUE_BYTES]))
        if self._with_values and self._values.size - int(state[read.VALUE_BYTES]) < size:
            self._values = _more_bytes(self._values, int(state[read.VALUE_BYTES]), size)
            self._call = None
        rows = min(rows, size // MIN_RECORD_BYTES)
        if self._offsets.size - self.count < rows:
            self._more_rows(rows)

    def _more_rows(self, at_least: int = 256) -> bool:
        """Make room for more rows, at least double; False if there are ``max_rows``."""
        used = self.count
        room = max(2 * self._offsets.size, used + max(256, at_least))
        if self._max_rows is not None:
            room = min(room, self._max_rows)
        if room <= self._offsets.size:
            return False
        self._call = None
        self._offsets = grown(self._offsets, used, room)
        self._timestamps = grown(self._timestamps, used, room)
        self._types = grown(self._types, used, room)
        if self._with_keys:
            self._has_key = grown(self._has_key, used, room)
            self._key_ends = grown(self._key_ends, used + 1, room + 1)
        if self._with_values:
            self._has_value = grown(self._has_value, used, room)
            self._value_ends = grown(self._value_ends, used + 1, room + 1)
        if self._with_headers:
            self._header_ends = grown(self._header_ends, used + 1, room + 1)
        return True


def _expected_rows(view: memoryview) -> int:
    """Return the probable number of messages, by the first entry."""
    if len(view) < BATCH_HEADER_BYTES:
        return 1
    magic, count = _COUNT.unpack_from(view)
    # The size is not validated yet.
    return (count if magic == 2 else 1) * len(view) * 9 // (8 * max(entry_size(view), 1))


def _more_bytes(array: NDArray[np.uint8], used: int, at_least: int) -> NDArray[np.uint8]:
    return grown(array, used, min(MAX_COLUMN_BYTES, max(2 * array.size, used + at_least)))


def _bitmap(present: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.packbits(present, bitorder="little")


def decode(
    data: Buffer,
    start_offset: int,
    end_offset: int,
    *,
    check_crc: bool = True,
    max_rows: int | None = None,
    headers: bool = False,
    max_content_bytes: int = MAX_CONTENT_BYTES,
) -> Columns:
    """Decode the messages of one piece into columns: see ``ColumnDecoder``.

    If the result is not ``complete``, continue with ``decode(data[valid_bytes:], next_offset, end_offset)``.
    """
    decoder = ColumnDecoder(
        start_offset,
        end_offset,
        check_crc=check_crc,
        max_rows=max_rows,
        headers=headers,
        max_content_bytes=max_content_bytes,
    )
    decoder.add(data)
    return decoder.columns()


class DamagedEntry(BrokerError):
    """A message or batch that cannot be read (CORRUPT_MESSAGE).

    offset: the first offset in it that was to be read.
    after_offset: the offset at which reading can continue, from its header, or else ``offset`` + 1.
    """

    def __init__(self, offset: int, after_offset: int, detail: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, detail)
        self.offset = offset
        self.after_offset = after_offset


def decode_pieces(
    data: Buffer,
    start_offset: int,
    end_offset: int,
    *,
    check_crc: bool = True,
    keys: bool = True,
    values: bool = True,
    headers: bool = False,
) -> Iterator[Columns]:
    """Yield all messages of ``data``, in pieces of PIECE_BYTES and PIECE_ROWS; the last one is ``complete``.

    On damage, the messages before it are yielded first; then DamagedEntry is raised.
    """
    view = memoryview(data)
    decoder = ColumnDecoder(
        start_offset,
        end_offset,
        check_crc=check_crc,
        keys=keys,
        values=values,
        headers=headers,
        max_rows=PIECE_ROWS,
        max_bytes=PIECE_BYTES,
    )
    try:
        yield from decoder.pieces(view)
    except BrokerError as problem:
        if problem.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        columns = decoder.columns()
        yield columns
        after = _offset_after(view, columns.valid_bytes, columns.next_offset)
        raise DamagedEntry(columns.next_offset, after, problem.detail) from None


def _offset_after(view: memoryview, position: int, offset: int) -> int:
    """Return the offset at which reading can continue after the damaged entry at ``position``.

    ``offset`` is the first that was to be read of it. The result follows from the entry's own last offset, or
    from the base offset of a batch that follows. Either may be damaged too: an offset that is lower, or
    further than an entry can reach, is ignored.
    """
    if len(view) - position >= _HEAD.size:
        own, magic, more = _HEAD.unpack_from(view, position)
        after: int = own + 1 + (more if magic == 2 else 0)
        following = position + entry_size(view, position)
        if position + ENTRY_HEADER_BYTES < following <= len(view) - _HEAD.size:
            base_offset, magic, _ = _HEAD.unpack_from(view, following)
            after = base_offset if magic == 2 else after
        if offset < after <= offset + MAX_COLUMN_BYTES:
            return after
    return offset + 1
