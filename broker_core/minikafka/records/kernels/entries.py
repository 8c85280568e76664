"""Entries, with which every kernel starts: their ends, the fields of messages, and checksums."""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.crc import crc32, crc32c
from minikafka.records.kernels.jit import inner, load_u32, load_u64, store_u32
from minikafka.records.kernels.signatures import Bytes, Number, Tables

WHOLE = -1
"""The code for a whole entry of magic 0 or 1."""


@inner
def load_i32(data: Bytes, position: Number) -> Number:
    """Return a signed big-endian integer as int64."""
    return np.int64(np.int32(load_u32(data, position)))


@inner
def load_i64(data: Bytes, position: Number) -> Number:
    """Return a signed big-endian integer."""
    return np.int64(load_u64(data, position))


@inner
def entry_end(data: Bytes, position: Number) -> tuple[Number, Number]:
    """Return ``(code, end)`` of the entry at ``position``, which is not beyond the end of ``data``.

    For WHOLE or OTHER_MAGIC, ``position + MIN_MESSAGE_BYTES <= end <= len(data)``; for BATCH, a whole
    batch of magic 2, ``position + BATCH_HEADER_BYTES <= end``. For PARTIAL, ``end`` is the end that the entry
    would have, or 0 if its size field is incomplete.
    """
    room = data.size - position
    if room < layout.ENTRY_HEADER_BYTES:
        return (decode_status.END, 0) if room == 0 else (decode_status.PARTIAL, 0)
    size = load_i32(data, position + layout.SIZE_AT)
    if size < layout.MIN_SIZE:
        return decode_status.BAD_SIZE, 0
    end = position + layout.ENTRY_HEADER_BYTES + size
    if end > data.size:
        return decode_status.PARTIAL, end
    magic = data[position + layout.MAGIC_AT]
    if magic < 2:
        return WHOLE, end
    if magic > 2:
        return decode_status.OTHER_MAGIC, end
    return (decode_status.BATCH, end) if size >= layout.MIN_BATCH_SIZE else (decode_status.BAD_SIZE, 0)


@inner
def fields(data: Bytes, position: Number, end: Number) -> tuple[Number, Number, Number, Number, Number]:
    """Return ``(code, key_at, key_length, value_at, value_length)`` of a whole entry; a length is -1 for
    null.

    If the code is WHOLE, both fields are before ``end`` and the value ends there.
    """
    at = (
        position
        + layout.MESSAGE_HEADER_BYTES
        + layout.TIMESTAMP_BYTES * np.int64(data[position + layout.MAGIC_AT])
    )
    room = end - at - 2 * layout.LENGTH_BYTES
    if room < 0:
        return decode_status.BAD_KEY_LENGTH, 0, 0, 0, 0
    key_length = load_i32(data, at)
    if key_length < -1 or key_length > room:
        return decode_status.BAD_KEY_LENGTH, 0, 0, 0, 0
    value_at = at + 2 * layout.LENGTH_BYTES + max(key_length, 0)
    value_length = load_i32(data, value_at - layout.LENGTH_BYTES)
    if value_length < -1 or max(value_length, 0) != end - value_at:
        return decode_status.BAD_VALUE_LENGTH, 0, 0, 0, 0
    return WHOLE, at + layout.LENGTH_BYTES, key_length, value_at, value_length


@inner
def message_timestamp(data: Bytes, position: Number) -> Number:
    """Return the timestamp of a whole message of magic 0 or 1; -1 in magic 0, which has none."""
    if data[position + layout.MAGIC_AT] == 0:
        return np.int64(-1)
    return load_i64(data, position + layout.MESSAGE_TIMESTAMP_AT)


@inner
def compression(data: Bytes, position: Number, inside: Number) -> Number:
    """Return WHOLE for a plain message of magic 0 or 1, WRAPPER for a compressed one, or the fault.

    ``inside``: true in the content of a wrapper.
    """
    codec = data[position + layout.MESSAGE_ATTRIBUTES_AT] & layout.CODEC_MASK
    if codec == 0:
        return WHOLE
    if codec > layout.MAX_MESSAGE_CODEC:
        return decode_status.BAD_CODEC
    return decode_status.NESTED if inside else decode_status.WRAPPER


@inner
def producer_epoch(data: Bytes, position: Number) -> Number:
    """Return the producer epoch of a batch."""
    return load_i32(data, position + layout.PRODUCER_EPOCH_AT) >> 16


@inner
def is_message_damaged(data: Bytes, tables: Tables, position: Number, end: Number) -> Number:
    """Return True if the checksum of a whole message of magic 0 or 1 is wrong."""
    return load_u32(data, position + layout.MESSAGE_CRC_AT) != crc32(
        tables, data, position + layout.MESSAGE_COVERED_AT, end
    )


@inner
def is_batch_damaged(data: Bytes, tables: Tables, position: Number, end: Number) -> Number:
    """Return True if the checksum of a whole batch is wrong."""
    return load_u32(data, position + layout.BATCH_CRC_AT) != crc32c(
        tables, data, position + layout.BATCH_COVERED_AT, end
    )


@inner
def seal_message(out: Bytes, tables: Tables, position: Number, end: Number) -> None:
    """Write the checksum of a message of magic 0 or 1."""
    store_u32(
        out, position + layout.MESSAGE_CRC_AT, crc32(tables, out, position + layout.MESSAGE_COVERED_AT, end)
    )


@inner
def seal_batch(out: Bytes, tables: Tables, position: Number, end: Number) -> None:
    """Write the checksum of a batch."""
    store_u32(
        out, position + layout.BATCH_CRC_AT, crc32c(tables, out, position + layout.BATCH_COVERED_AT, end)
    )
