"""Kernels that hash: keys of a column, and plain bytes."""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.crc import ALL_ONES, extended
from minikafka.records.kernels.jit import kernel
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


@kernel(I32S, BYTES, BYTES, I64, I64, I32S_OUT)
def murmur2_partitions(
    offsets: Ints, data: Bytes, valid: Bytes, shift: Number, partitions: Number, result: Ints
) -> Number:
    """``result[i]`` is the partition of key ``i`` as Java's producer has it, -1 for null.

    ``offsets`` has ``result.size + 1`` places of keys in ``data``, not decreasing and not beyond it;
    ``valid`` is an Arrow bitmap that starts at bit ``shift``, or empty when no key is null.
    """
    for i in range(result.size):
        bit = i + shift
        if valid.size > 0 and valid[bit >> 3] >> (bit & 7) & 1 == 0:
            result[i] = -1
            continue
        at = np.int64(offsets[i])
        end = np.int64(offsets[i + 1])
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
        result[i] = np.int32(np.int64(h & np.uint32(0x7FFFFFFF)) % partitions)
    return 0


@kernel(TABLES, BYTES, I64)
def checksum(tables: Tables, data: Bytes, before: Number) -> Number:
    """The checksum of ``data`` with the first of ``tables``; ``before`` is that of what lies before it."""
    crc = extended(tables, data, np.int64(0), np.int64(data.size), np.uint32(before) ^ ALL_ONES)
    return np.int64(crc ^ ALL_ONES)
