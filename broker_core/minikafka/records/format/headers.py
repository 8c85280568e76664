"""Headers of records as an Arrow column, ``list<struct<key: string, value: binary>>``, and back.

The intermediate form is that of a record (``batch``), one row after another; a row without headers takes no
bytes there and is null in the column, as with Spark's Kafka connector. Invalid UTF-8 in a name is replaced by
replacement characters, as in Java's clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records import kernels
from minikafka.records.format.record import Headers
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import read_only

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_MAX_BYTES = 0x7FFFFFFF
_INT32_BITS = 32
_NO_BYTES = read_only(b"")


@dataclass(frozen=True, slots=True)
class RawHeaders:
    """Headers of ``ends.size - 1`` rows: those of row i are ``data[ends[i]:ends[i + 1]]``.

    There are ``count`` headers in total, with ``name_bytes`` of names and ``content_bytes`` of values.
    """

    ends: NDArray[np.int32]
    data: NDArray[np.uint8]
    count: int
    name_bytes: int
    content_bytes: int


def to_arrow(raw: RawHeaders) -> pa.ListArray:
    """Return the headers as a column of ``HEADERS_TYPE``."""
    rows = raw.ends.size - 1
    row_ends = np.zeros(rows + 1, dtype=np.int32)
    name_ends, content_ends = (np.zeros(raw.count + 1, dtype=np.int32) for _ in range(2))
    names = np.empty(raw.name_bytes, dtype=np.uint8)
    contents = np.empty(raw.content_bytes, dtype=np.uint8)
    has_content = np.empty(raw.count, dtype=np.uint8)
    ends, data = raw.ends.view(), raw.data.view()
    ends.flags.writeable = data.flags.writeable = False
    stop = kernels.batches.split_headers(
        data, ends, row_ends, name_ends, names, content_ends, contents, has_content
    )
    if stop != decode_status.END:
        raise ValueError("the headers do not match their counts: they were changed after they were decoded")
    buffers = [None, pa.py_buffer(name_ends), pa.py_buffer(names)]
    name_array = _valid_text(pa.Array.from_buffers(pa.string(), raw.count, buffers))
    bits = pa.py_buffer(np.packbits(has_content, bitorder="little"))
    buffers = [bits, pa.py_buffer(content_ends), pa.py_buffer(contents)]
    content_array = pa.Array.from_buffers(pa.binary(), raw.count, buffers)
    items = pa.StructArray.from_arrays([name_array, content_array], fields=list(HEADERS_TYPE.value_type))
    some = np.packbits(np.diff(row_ends) > 0, bitorder="little")
    return pa.Array.from_buffers(
        HEADERS_TYPE, rows, [pa.py_buffer(some), pa.py_buffer(row_ends)], children=[items]
    )


def _valid_text(names: pa.StringArray) -> pa.StringArray:
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.view(pa.binary()).to_pylist()])
    return names


def read_headers(data: bytes) -> Headers:
    """Parse the headers of one row of ``RawHeaders``; empty for no bytes. For small uses.

    Raises ValueError for invalid bytes.
    """
    at = 0

    def number() -> int:
        nonlocal at
        raw = shift = 0
        while at < len(data) and shift < _INT32_BITS:
            byte = data[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return raw >> 1 ^ -(raw & 1)
        raise ValueError(f"invalid record headers: {data[:200]!r}")

    def part() -> bytes | None:
        nonlocal at
        size = number()
        if size < -1 or size > len(data) - at:
            raise ValueError(f"invalid record headers: {data[:200]!r}")
        at += max(size, 0)
        return None if size < 0 else data[at - size : at]

    count = number() if data else 0
    return tuple(((part() or b"").decode(errors="replace"), part()) for _ in range(count))


def raw_headers(column: pa.Array | pa.ChunkedArray) -> RawHeaders:
    """Return the headers of each row of a column like ``HEADERS_TYPE``; null and empty lists have none.

    Raises ValueError for another type, and for a header that is null or has no name.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        raise ValueError("the headers exceed 2 GiB: encode them in parts")
    if pa.types.is_null(array.type):
        return RawHeaders(np.zeros(len(array) + 1, dtype=np.int32), np.empty(0, dtype=np.uint8), 0, 0, 0)
    try:
        array = array.cast(HEADERS_TYPE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"expected headers of type array<struct<key:string,value:binary>>, got {array.type}"
        ) from error
    # Null lists may have items in Arrow; flatten leaves them out, and respects the slice of the column.
    items = array.flatten()
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    row_offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(lengths, out=row_offsets[1:])
    names, contents = (items.field(name) for name in ("key", "value"))
    if items.null_count or names.null_count:
        raise ValueError("a header, or its key, is null: every header must have a key")
    name_offsets, name_data, _, _ = binary_parts(names)
    content_offsets, content_data, valid, shift = binary_parts(contents)
    name_bytes = int(name_offsets[-1]) - int(name_offsets[0])
    content_bytes = int(content_offsets[-1]) - int(content_offsets[0])
    room = name_bytes + content_bytes + 10 * (len(items) + len(array))
    if room > _MAX_BYTES:
        raise ValueError("the headers exceed 2 GiB: encode them in parts")
    out = np.empty(room, dtype=np.uint8)
    ends = np.zeros(len(array) + 1, dtype=np.int32)
    row_offsets.flags.writeable = False
    stop = kernels.batches.join_headers(
        row_offsets, name_offsets, name_data, content_offsets, content_data, valid, shift, ends, out
    )
    if stop != decode_status.END:
        raise ValueError("the columns of the headers are inconsistent")
    return RawHeaders(ends, out[: ends[-1]], len(items), name_bytes, content_bytes)


def binary_parts(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8], int]:
    """Return the offsets of a binary or string array, its bytes, validity bitmap (empty: nothing is null) and
    the bitmap's first bit.
    """
    valid, offsets, data = array.buffers()
    if len(array) == 0:
        starts = np.zeros(1, dtype=np.int32)
        starts.flags.writeable = False
    else:
        starts = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    bits = _NO_BYTES if valid is None or array.null_count == 0 else read_only(valid)
    return starts, _NO_BYTES if data is None else read_only(data), bits, array.offset
