"""Kernels for hashes of keys in a column, and checksums of bytes."""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.crc import ALL_ONES, extended
from minikafka.records.kernels.jit import inner, kernel
from minikafka.records.kernels.signatures import (
    BYTES,
    I32S,
    I32S_OUT,
    I64,
    TABLES,
    Bytes,
    Ints,
    Number,
    Tables,
)

M = np.uint32(0x5BD1E995)

# Hashes of ``key_partitions``.
MURMUR2 = 0
STRING_HASH = 1
BYTES_HASH = 2


@inner
def murmur2(data: Bytes, at: Number, end: Number) -> Number:
    """Return the hash without its sign, as Java's producer uses it."""
    h = np.uint32(0x9747B28C) ^ np.uint32(end - at)
    while end - at >= 4:
        k = (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        k = np.uint32(np.uint32(k) * M)
        k = np.uint32(k ^ k >> np.uint32(24))
        k = np.uint32(k * M)
        h = np.uint32(np.uint32(h * M) ^ k)
        at += 4
    if at < end:
        for j in range(end - at):
            h = np.uint32(h ^ np.uint32(data[at + j]) << np.uint32(8 * j))
        h = np.uint32(h * M)
    h = np.uint32(h ^ h >> np.uint32(13))
    h = np.uint32(h * M)
    h = np.uint32(h ^ h >> np.uint32(15))
    return np.int64(h & np.uint32(0x7FFFFFFF))


@inner
def java_hash(data: Bytes, at: Number, end: Number, is_text: Number) -> Number:
    """Return the absolute value of Java's ``String.hashCode``, over the UTF-16 of this UTF-8, or of its
    ``Arrays.hashCode``; 0 for -2^31, which has none in Java. Invalid UTF-8 has an unspecified hash.
    """
    mask = np.int64(0xFFFFFFFF)
    h = np.int64(0 if is_text else 1)
    while at < end:
        unit = np.int64(data[at])
        at += 1
        if is_text == 0:
            unit -= unit >> 7 << 8  # Java's bytes are signed
        elif unit >= 0xC0:
            more = 1 if unit < 0xE0 else 2 if unit < 0xF0 else 3
            unit &= 0x3F >> more
            for _ in range(more):
                if at < end:
                    unit = unit << 6 | np.int64(data[at]) & 0x3F
                    at += 1
            if unit >= 0x10000:
                h = h * 31 + (unit - 0x10000 >> 10 | 0xD800) & mask
                unit = unit & 0x3FF | 0xDC00
        h = h * 31 + unit & mask
    if h == 0x80000000:
        return np.int64(0)
    return np.int64(0x100000000) - h if h > 0x80000000 else h


@kernel(I32S, BYTES, BYTES, I64, I64, I64, I32S_OUT)
def key_partitions(
    offsets: Ints,
    data: Bytes,
    valid: Bytes,
    shift: Number,
    hashed_by: Number,
    partitions: Number,
    result: Ints,
) -> Number:
    """Set ``result[i]`` to the partition of key ``i``, -1 for null: by MURMUR2 as in Java's producer, by
    STRING_HASH or BYTES_HASH as in the Scala producer of 0.10.1.

    ``offsets`` has ``result.size + 1`` positions of keys in ``data``, not decreasing and not beyond it;
    ``valid`` is an Arrow bitmap that starts at bit ``shift``, or empty if no key is null.
    """
    for i in range(result.size):
        bit = i + shift
        if valid.size > 0 and valid[bit >> 3] >> (bit & 7) & 1 == 0:
            result[i] = -1
            continue
        at = np.int64(offsets[i])
        end = np.int64(offsets[i + 1])
        if hashed_by == MURMUR2:
            h = murmur2(data, at, end)
        else:
            h = java_hash(data, at, end, np.int64(hashed_by == STRING_HASH))
        result[i] = np.int32(h % partitions)
    return 0


@kernel(TABLES, BYTES, I64)
def checksum(tables: Tables, data: Bytes, before: Number) -> Number:
    """Return the checksum of ``data`` with the first of ``tables``; ``before`` is that of the preceding
    bytes.
    """
    crc = extended(tables, data, np.int64(0), np.int64(data.size), np.uint32(before) ^ ALL_ONES)
    return np.int64(crc ^ ALL_ONES)
