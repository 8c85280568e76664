"""Reading and writing of the parts of a record of magic 2: zig-zag varints, fields, headers.

A reading helper accesses only the bytes between ``at`` and ``end``.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status
from minikafka.records.kernels.entries import WHOLE
from minikafka.records.kernels.jit import copy_bytes, inner, load_u8
from minikafka.records.kernels.signatures import Bytes, Number

POSITIVE = 0x7FFFFFFFFFFFFFFF


@inner
def read_number(data: Bytes, at: Number, end: Number, bits: Number) -> tuple[Number, Number]:
    """Return ``(number, its end)``; the end is -1 if there is no number of at most ``bits`` bits."""
    # Most numbers have one byte.
    if at < end and load_u8(data, at) < 128:
        raw = load_u8(data, at)
        return raw >> 1 ^ -(raw & 1), at + 1
    raw = np.int64(0)
    shift = 0
    while at < end and shift < bits:
        byte = load_u8(data, at)
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            # A number of 32 bits may have more bits here; of the tenth byte of a long one, only one bit fits.
            if (bits == 32 and raw >> 32) or (shift == 63 and byte > 1):
                break
            return (raw >> 1 & POSITIVE) ^ -(raw & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@inner
def read_field(data: Bytes, at: Number, end: Number) -> tuple[Number, Number, Number]:
    """Return ``(start of the bytes, length or -1 for null, end of the field)``.

    The end is -1 if the field does not fit, -2 if its length is not a valid number.
    """
    length, start = read_number(data, at, end, 32)
    if start < 0:
        return np.int64(0), np.int64(0), np.int64(-2)
    if length < -1 or length > end - start:
        return np.int64(0), np.int64(0), np.int64(-1)
    return start, length, start + max(length, 0)


@inner
def read_headers(data: Bytes, at: Number, end: Number) -> tuple[Number, Number, Number]:
    """Return ``(number of headers, bytes of names, bytes of values)``; the number is -1 unless they end at
    ``end``.
    """
    # Most records have no headers.
    if at == end - 1 and data[at] == 0:
        return np.int64(0), np.int64(0), np.int64(0)
    count, at = read_number(data, at, end, 32)
    if at < 0 or count < 0 or count > end - at:
        return np.int64(-1), np.int64(0), np.int64(0)
    names = np.int64(0)
    values = np.int64(0)
    for _ in range(count):
        _, length, at = read_field(data, at, end)
        if at < 0 or length < 0:
            return np.int64(-1), np.int64(0), np.int64(0)
        names += length
        _, length, at = read_field(data, at, end)
        if at < 0:
            return np.int64(-1), np.int64(0), np.int64(0)
        values += max(length, 0)
    if at != end:
        return np.int64(-1), np.int64(0), np.int64(0)
    return count, names, values


@inner
def read_record(
    data: Bytes, at: Number, end: Number
) -> tuple[Number, Number, Number, Number, Number, Number, Number, Number, Number]:
    """Return ``(code, after, timestamp_delta, delta, key_at, key_length, value_at, value_length,
    headers_at)``.

    If the code is WHOLE, all fields are before ``after``, which is not beyond ``end``. The headers are the
    rest of the record, and are not checked.
    """
    length, at = read_number(data, at, end, 32)
    if at < 0:
        return decode_status.BAD_VARINT, 0, 0, 0, 0, 0, 0, 0, 0
    if length < 1 or length > end - at:
        return decode_status.BAD_RECORD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    after = at + length
    timestamp_delta, at = read_number(data, at + 1, after, 64)
    if at < 0:
        return decode_status.BAD_VARINT, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, at = read_number(data, at, after, 32)
    if at < 0:
        return decode_status.BAD_VARINT, 0, 0, 0, 0, 0, 0, 0, 0
    key_at, key_length, at = read_field(data, at, after)
    if at < 0:
        code = decode_status.BAD_KEY_LENGTH if at == -1 else decode_status.BAD_VARINT
        return code, 0, 0, 0, 0, 0, 0, 0, 0
    value_at, value_length, at = read_field(data, at, after)
    if at < 0:
        code = decode_status.BAD_VALUE_LENGTH if at == -1 else decode_status.BAD_VARINT
        return code, 0, 0, 0, 0, 0, 0, 0, 0
    return WHOLE, after, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, at


@inner
def number_size(number: Number) -> Number:
    """Return the size of ``number`` as a varint, in bytes."""
    raw = np.uint64(number << 1 ^ number >> 63)
    size = 1
    while raw > np.uint64(127):
        raw >>= np.uint64(7)
        size += 1
    return size


@inner
def write_number(out: Bytes, at: Number, number: Number) -> Number:
    """Write ``number`` as a varint at ``at``. Return the position after it."""
    raw = np.uint64(number << 1 ^ number >> 63)
    while raw > np.uint64(127):
        out[at] = np.uint8(raw & np.uint64(127) | np.uint64(128))
        raw >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(raw)
    return at + 1


@inner
def write_bytes(out: Bytes, at: Number, data: Bytes, start: Number, length: Number) -> Number:
    """Write a nullable field (length -1 for null) at ``at``. Return the position after it."""
    at = write_number(out, at, length)
    if length > 0:
        copy_bytes(out, at, data, start, length)
        return at + length
    return at
