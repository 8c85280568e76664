"""Encoding of Arrow columns to message sets, and of keys to partitions. Imported through ``columns``, except
for ``binary_column``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records import kernels
from minikafka.records.arrow.buffers import empty, grown
from minikafka.records.format.batch import BatchHeader, assemble, write_header
from minikafka.records.format.checksums import CRC32_TABLES
from minikafka.records.format.headers import RawHeaders, binary_parts
from minikafka.records.format.message_set import NO_TIMESTAMP, Codec, wrap
from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.arrays import read_only

_FIRST_OUTPUT_BYTES = 1 << 20
_ROW_OVERHEAD_BYTES = layout.MESSAGE_OVERHEAD_BYTES
"""The overhead of a row in magic 1; in magic 2 it is less, and headers are not counted."""


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """A message set of ``count`` messages. It can be sent if it is sealed (see ``encode``)."""

    data: memoryview
    count: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """A binary column as the kernels expect it. No offsets: all rows are null. No bits: no row is null."""

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    valid: NDArray[np.uint8]
    shift: int
    mean_bytes: int = 0
    """The mean size of a row, rounded up."""


AnyColumn: TypeAlias = pa.Array | pa.ChunkedArray | BinaryColumn | None
"""A column to encode; None: all rows are null."""
_NO_INT32 = np.zeros(0, dtype=np.int32)
_NO_INT32.flags.writeable = False
_NO_BYTES = read_only(b"")
_ALL_NULL = BinaryColumn(_NO_INT32, _NO_BYTES, _NO_BYTES, 0)


def binary_column(array: pa.Array | pa.ChunkedArray | None) -> BinaryColumn:
    """Convert a binary or string column, also large, fixed-size or chunked; no copy if offsets are int32."""
    if array is None or pa.types.is_null(array.type):
        return _ALL_NULL
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            raise ValueError("the column exceeds 2 GiB: encode it in parts")
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.binary())
    offsets, data, valid, shift = binary_parts(array)
    mean_bytes = -(-int(offsets[-1] - offsets[0]) // max(1, len(array)))
    return BinaryColumn(offsets, data, valid, shift, mean_bytes)


def encode(
    keys: AnyColumn,
    values: AnyColumn,
    timestamps_ms: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    magic: int = 1,
    codec: Codec = Codec.NONE,
    max_bytes: int,
    headers: RawHeaders | None = None,
    sealed: bool = True,
) -> Iterator[EncodedRecords]:
    """Yield message sets of the chosen ``rows`` in their order, each of at most ``max_bytes``.

    A larger row is a set by itself. Offsets start at 0 in every set. With a codec each set is one wrapper,
    with magic 2 it is always one batch; the limit applies before and after compression. ``timestamps_ms`` has
    one item for each row of the columns and is ignored for magic 0. Null is a null field. Columns whose rows
    are encoded in several calls are converted once by ``binary_column``.

    ``headers`` are those of all rows of the columns (``raw_headers``). Raises ValueError if there are any and
    the magic is not 2.

    If not ``sealed``, batches of magic 2 have no checksum yet: ``set_producer`` writes it after the
    producer's id.
    """
    key, value = (c if isinstance(c, BinaryColumn) else binary_column(c) for c in (keys, values))
    raw = _header_column(headers, magic)
    encoder: _Encoder
    if magic == 2:
        encoder = _BatchEncoder(key, value, _longs(timestamps_ms), _longs(rows), raw, sealed)
        overhead = 0
    else:
        encoder = _MessageEncoder(key, value, _longs(timestamps_ms), _longs(rows), magic)
        overhead = 0 if codec is Codec.NONE else _wrapper_overhead(magic)
    while not encoder.done:
        plain = encoder.next_set(max(1, max_bytes - overhead))
        if codec is Codec.NONE:
            yield encoder.finished(plain)
            continue
        packed = encoder.packed(plain, codec)
        while len(packed.data) > max_bytes and plain.count > 1:
            # Data that does not compress grows a little: take half of the rows.
            encoder.back(plain.count)
            plain = encoder.next_set(max_bytes - overhead, (plain.count + 1) // 2)
            packed = encoder.packed(plain, codec)
        yield packed


def _longs(array: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.ascontiguousarray(array, dtype=np.int64)


def _wrapper_overhead(magic: int) -> int:
    return layout.MIN_MESSAGE_BYTES + layout.TIMESTAMP_BYTES * magic


def _header_column(raw: RawHeaders | None, magic: int) -> BinaryColumn:
    if raw is None or raw.count == 0:
        return _ALL_NULL
    if magic != 2:
        raise ValueError(f"magic {magic} does not support headers: leave them out, or write magic 2")
    return BinaryColumn(np.ascontiguousarray(raw.ends), np.ascontiguousarray(raw.data), _NO_BYTES, 0)


class _Encoder:
    """The base of the encoders of the chosen rows. The kernels of all formats share a state layout."""

    _head_bytes = 0

    def __init__(
        self, key: BinaryColumn, value: BinaryColumn, timestamps: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> None:
        write = kernels.write
        self._timestamps, self._rows = timestamps, rows
        self._columns = (key.offsets, key.data, key.valid, value.offsets, value.data, value.valid)
        """Keys and values, as the kernels of all formats expect them."""
        self._state = np.zeros(write.ENCODE_STATE_SIZE, dtype=np.int64)
        self._state[write.ENCODE_KEY_SHIFT] = key.shift
        self._state[write.ENCODE_VALUE_SHIFT] = value.shift
        self._row_bytes = _ROW_OVERHEAD_BYTES + key.mean_bytes + value.mean_bytes
        """The expected size of a row, so that the output is neither much too large nor too small."""

    def finished(self, plain: EncodedRecords) -> EncodedRecords:
        """Finish the uncompressed set."""
        return plain

    def packed(self, plain: EncodedRecords, codec: Codec) -> EncodedRecords:
        """Compress the set."""
        raise NotImplementedError

    def _run(self, rows: NDArray[np.int64], out: NDArray[np.uint8]) -> int:
        raise NotImplementedError

    @property
    def done(self) -> bool:
        return int(self._state[kernels.write.ENCODE_NEXT]) >= self._rows.size

    def back(self, count: int) -> None:
        """Go back by ``count`` rows."""
        self._state[kernels.write.ENCODE_NEXT] -= count

    def next_set(self, max_bytes: int, max_count: int | None = None) -> EncodedRecords:
        """Encode the next rows as uncompressed messages: as many as fit, at least one."""
        write = kernels.write
        state = self._state
        first = int(state[write.ENCODE_NEXT])
        state[write.ENCODE_BYTES] = self._head_bytes
        state[write.ENCODE_OFFSET] = 0
        state[write.ENCODE_MAX_TIMESTAMP] = NO_TIMESTAMP
        rows = self._rows if max_count is None else self._rows[: first + max_count]
        expected = self._head_bytes + (rows.size - first) * self._row_bytes
        out = empty(max(self._head_bytes, min(max_bytes, expected, _FIRST_OUTPUT_BYTES)), np.uint8)
        while True:
            stop = self._run(rows, out)
            if stop == decode_status.BAD_ROW:
                row = self._rows[state[write.ENCODE_NEXT]]
                raise IndexError(f"row {row} is outside the columns or timestamps, or a column is invalid")
            used = int(state[write.ENCODE_BYTES])
            wanted = used + int(state[write.ENCODE_WANTED])
            if stop != decode_status.VALUES_FULL or (wanted > max_bytes and used > self._head_bytes):
                break
            out = grown(out, used, max(wanted, min(max_bytes, 4 * out.size)))
        count = int(state[write.ENCODE_NEXT]) - first
        if used < out.size // 2:
            # Thousands of small sets may wait, and each would hold the memory of a large one.
            out = grown(out, used, used)
        return EncodedRecords(memoryview(out.data)[:used], count, int(state[write.ENCODE_MAX_TIMESTAMP]))


class _MessageEncoder(_Encoder):
    """Encoder of messages of magic 0 or 1."""

    def __init__(
        self,
        key: BinaryColumn,
        value: BinaryColumn,
        timestamps: NDArray[np.int64],
        rows: NDArray[np.int64],
        magic: int,
    ) -> None:
        super().__init__(key, value, timestamps, rows)
        self._magic = magic
        self._state[kernels.write.ENCODE_MAGIC] = magic

    def packed(self, plain: EncodedRecords, codec: Codec) -> EncodedRecords:
        """Compress the set into a wrapper."""
        entry = wrap(
            plain.data,
            offset=plain.count - 1,
            magic=self._magic,
            codec=codec,
            timestamp_ms=plain.max_timestamp_ms,
        )
        return EncodedRecords(memoryview(entry), plain.count, plain.max_timestamp_ms)

    def _run(self, rows: NDArray[np.int64], out: NDArray[np.uint8]) -> int:
        stop: int = kernels.write.encode_run(
            rows, self._timestamps, *self._columns, CRC32_TABLES, out, self._state
        )
        return stop


class _BatchEncoder(_Encoder):
    """Encoder of batches of magic 2."""

    _head_bytes = layout.BATCH_HEADER_BYTES

    def __init__(
        self,
        key: BinaryColumn,
        value: BinaryColumn,
        timestamps: NDArray[np.int64],
        rows: NDArray[np.int64],
        headers: BinaryColumn,
        sealed: bool,
    ) -> None:
        super().__init__(key, value, timestamps, rows)
        self._headers = headers
        self._sealed = sealed

    def finished(self, plain: EncodedRecords) -> EncodedRecords:
        """Write the header of the batch."""
        write_header(plain.data, self._header(plain, Codec.NONE), sealed=self._sealed)
        return plain

    def packed(self, plain: EncodedRecords, codec: Codec) -> EncodedRecords:
        """Compress the records of the batch, and write its header."""
        content = plain.data[layout.BATCH_HEADER_BYTES :]
        packed = assemble(content, self._header(plain, codec), sealed=self._sealed)
        return EncodedRecords(memoryview(packed), plain.count, plain.max_timestamp_ms)

    def _run(self, rows: NDArray[np.int64], out: NDArray[np.uint8]) -> int:
        headers = self._headers
        stop: int = kernels.batches.encode_records(
            rows, self._timestamps, *self._columns, headers.offsets, headers.data, out, self._state
        )
        return stop

    def _header(self, plain: EncodedRecords, codec: Codec) -> BatchHeader:
        return BatchHeader(
            base_offset=0,
            size_bytes=0,  # the size of the output is used instead
            codec=codec,
            last_offset_delta=plain.count - 1,
            base_timestamp_ms=int(self._state[kernels.write.ENCODE_BASE_TIMESTAMP]),
            max_timestamp_ms=plain.max_timestamp_ms,
            count=plain.count,
        )


def group_rows(ids: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield ``(id, row numbers)`` for every id that occurs, none of them negative; rows keep their order."""
    if len(ids) == 0:
        return
    if (ids == ids[0]).all():
        yield int(ids[0]), np.arange(len(ids), dtype=np.int64)
        return
    # Numpy sorts 16 bits by counting, five times as fast.
    narrow = ids.astype(np.uint16) if ids.max() < 1 << 16 else ids
    order = narrow.argsort(kind="stable").astype(np.int64, copy=False)
    ordered = ids[order]
    # Slices, as np.split takes longer than all else for a few hundred rows.
    start = 0
    for end in (*((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist(), len(ids)):
        yield int(ordered[start]), order[start:end]
        start = end


def partitions_by_key(keys: pa.Array | pa.ChunkedArray, partitions: int) -> NDArray[np.int32]:
    """Return the partition of each key by Java's default partitioner: int32[n], -1 where the key is null."""
    return _partitions(keys, partitions, kernels.hashing.MURMUR2)


def partitions_by_java_hash(keys: pa.Array | pa.ChunkedArray, partitions: int) -> NDArray[np.int32]:
    """Return the partition of each key by the partitioners of Kafka's Scala producer: int32[n], -1 where the
    key is null. Strings are hashed by Java's ``String.hashCode``, bytes by its ``Arrays.hashCode``.
    """
    is_text = pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)
    return _partitions(
        keys, partitions, kernels.hashing.STRING_HASH if is_text else kernels.hashing.BYTES_HASH
    )


def _partitions(keys: pa.Array | pa.ChunkedArray, partitions: int, hashed_by: int) -> NDArray[np.int32]:
    if partitions < 1:
        raise ValueError(f"expected at least one partition, got {partitions}")
    result = np.full(len(keys), -1, dtype=np.int32)
    column = binary_column(keys)
    if len(keys) and column.offsets.size:
        kernels.hashing.key_partitions(
            column.offsets, column.data, column.valid, column.shift, hashed_by, partitions, result
        )
    return result
