"""The parts of the kernels over values, Avro's, JSON's and protobuf's: texts, and the table of their columns.

The items of a column are counted by its domain's counter: counter 0 counts rows, and every array, list or map
has one for its items. In reading, each column of bytes has one more, for its bytes. A column has ADDRESSES
numbers in the table, from its place on: where its memory is, 0 if it has no such memory.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.jit import inner, peek_i64, peek_u8, poke_u8
from minikafka.records.kernels.signatures import Longs, Number

VALIDITY = 0  # of a byte (reading) or a bit (writing) for each item
DATA = 1  # of the items; for bytes, arrays and maps of their ends (int32), after the first one's start
BYTES_AT = 2
SHIFT = 3  # no address: the number of the first item in this memory (writing)
ADDRESSES = 4

_HIGH_BITS = -0x7F7F7F7F7F7F7F80


@inner
def mark(columns: Longs, column: Number, index: Number, valid: Number) -> None:
    """Note whether an item is valid, if its column may have nulls."""
    if columns[column + VALIDITY] != 0:
        poke_u8(columns[column + VALIDITY] + index, valid)


@inner
def is_utf8(at: Number, end: Number) -> Number:
    """Return 1 if the bytes are UTF-8, without surrogates and overlong forms; 0 if not."""
    while at < end:
        if end - at >= 8 and peek_i64(at) & np.int64(_HIGH_BITS) == 0:
            at += 8
            continue
        first = peek_u8(at)
        at += 1
        if first < 0x80:
            continue
        more = np.int64(1) + np.int64(first >= 0xE0) + np.int64(first >= 0xF0)
        if first < 0xC2 or first > 0xF4 or end - at < more:
            return 0
        second = peek_u8(at)
        low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < low or second > high:
            return 0
        for i in range(1, more):
            if peek_u8(at + i) & 0xC0 != 0x80:
                return 0
        at += more
    return 1


@inner
def has_same_bytes(at: Number, other: Number, size: Number) -> Number:
    """Return 1 if ``size`` bytes at two addresses are the same; 0 if not."""
    for i in range(size):
        if peek_u8(at + i) != peek_u8(other + i):
            return 0
    return 1
