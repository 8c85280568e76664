"""The kernel that writes Arrow columns as Avro values: it interprets a program of ``avro_ops``.

Item ``i`` of a column is at ``i + shift`` in its memory. The counter of rows, or of an array's items, has the
number of the item that is written now.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.avro_ops import (
    ALL_NULL,
    BAD_DECIMAL,
    BAD_SIZE,
    BAD_SYMBOL,
    COLUMN,
    CONSTANT,
    COUNTER,
    DOMAIN,
    END,
    FROM_4,
    FROM_8,
    FROM_ARRAY,
    FROM_BOOLEAN,
    FROM_BYTES,
    FROM_DECIMAL,
    FROM_DECIMAL_FIXED,
    FROM_ENUM,
    FROM_FIXED,
    FROM_I32,
    FROM_I64,
    FULL,
    GOOD,
    IF_NULL,
    ITEM_END,
    JUMP,
    MARGIN,
    NULL_ITEM,
    REQUIRE,
    WORDS,
    A,
    B,
    C,
)
from minikafka.records.kernels.jit import (
    copy_memory,
    inner,
    kernel,
    peek_i32,
    peek_i64,
    peek_u8,
    poke_i32,
    poke_i64,
    poke_u8,
)
from minikafka.records.kernels.signatures import I32S_OUT, I64S, I64S_OUT, Ints, Longs, Number
from minikafka.records.kernels.values import BYTES_AT, DATA, SHIFT, VALIDITY, has_same_bytes

# Places in ``state``.
NEXT_ROW = 0
OUT_AT = 1  # addresses
OUT_END = 2
OUT_NEXT = 3
CONSTANTS_AT = 4
WANTED = 5  # the bytes that the next instruction may write
FAULT_OP = 6
DEPTH = 7
STATE_SIZE = 8


@inner
def is_null(columns: Longs, column: Number, index: Number) -> Number:
    """Return 1 if an item is null."""
    bits = columns[column + VALIDITY]
    if bits == 0:
        return 0
    bit = index + columns[column + SHIFT]
    return 1 - (peek_u8(bits + (bit >> 3)) >> (bit & 7) & 1)


@inner
def write_varint(at: Number, number: Number) -> Number:
    """Write a number, and return the address after it."""
    raw = np.uint64(number << 1 ^ number >> 63)
    while raw > np.uint64(127):
        poke_u8(at, np.int64(raw & np.uint64(127) | np.uint64(128)))
        raw >>= np.uint64(7)
        at += 1
    poke_u8(at, np.int64(raw))
    return at + 1


@inner
def write_decimal(data: Number, length: Number, at: Number) -> Number:
    """Write a decimal of 128 bits in ``length`` bytes; 0: as few as it needs, after their number. Return the
    address after it, or -1 if the decimal needs more bytes.
    """
    low = peek_i64(data)
    high = peek_i64(data + 8)
    sign = high >> 63
    # The first byte with another value than the sign's, and its highest bit.
    needs = np.int64(1)
    for i in range(15, 0, -1):
        word = high if i >= 8 else low
        below = high if i >= 9 else low
        here = word >> 8 * (i & 7) & 255
        next_bit = below >> 8 * (i - 1 & 7) + 7 & 1
        if here != sign & 255 or next_bit != sign & 1:
            needs = np.int64(i + 1)
            break
    if length == 0:
        length = needs
        at = write_varint(at, length)
    elif needs > length:
        return np.int64(-1)
    for i in range(length - 1, -1, -1):
        word = high if i >= 8 else low
        poke_u8(at, sign if i >= 16 else word >> 8 * (i & 7))
        at += 1
    return at


@inner
def find_symbol(
    ops: Longs, base: Number, table: Longs, constants_at: Number, start: Number, length: Number
) -> Number:
    """Return the number of a symbol; -1 if there is none."""
    for i in range(ops[base + A]):
        symbol = ops[base + C] + 2 * i
        if table[symbol + 1] == length and has_same_bytes(constants_at + table[symbol], start, length):
            return np.int64(i)
    return np.int64(-1)


@inner
def write_small(
    ops: Longs, base: Number, table: Longs, columns: Longs, index: Number, state: Longs, at: Number
) -> tuple[Number, Number]:
    """Run an instruction that writes an item of a few bytes. Return ``(result, address after it)``."""
    op = ops[base]
    column = ops[base + COLUMN]
    data = columns[column + DATA]
    index += columns[column + SHIFT]
    if op == FROM_I32:
        at = write_varint(at, peek_i32(data + 4 * index))
    elif op == FROM_I64:
        # Rounded down, as Spark rounds microseconds.
        at = write_varint(at, peek_i64(data + 8 * index) // ops[base + A])
    elif op == FROM_8:
        poke_i64(at, peek_i64(data + 8 * index))
        at += 8
    elif op == FROM_4:
        poke_i32(at, peek_i32(data + 4 * index))
        at += 4
    elif op == FROM_BOOLEAN:
        poke_u8(at, peek_u8(data + (index >> 3)) >> (index & 7) & 1)
        at += 1
    elif op == FROM_ENUM:
        start = peek_i32(data + 4 * index)
        length = peek_i32(data + 4 * index + 4) - start
        start += columns[column + BYTES_AT]
        number = find_symbol(ops, base, table, state[CONSTANTS_AT], start, length)
        if number < 0:
            return BAD_SYMBOL, at
        at = write_varint(at, number)
    else:
        at = write_decimal(data + 16 * index, np.int64(0), at)
    return GOOD, at


@inner
def write_large(
    ops: Longs, base: Number, columns: Longs, index: Number, state: Longs, at: Number
) -> tuple[Number, Number]:
    """Run an instruction that may write many bytes. Return as ``write_small``."""
    op = ops[base]
    column = ops[base + COLUMN]
    source = np.int64(0)
    length = ops[base + A]
    if op == CONSTANT:
        source = state[CONSTANTS_AT] + length
        length = ops[base + B] - length
    elif op != FROM_DECIMAL_FIXED:
        data = columns[column + DATA] + 4 * (index + columns[column + SHIFT])
        source = columns[column + BYTES_AT] + peek_i32(data)
        size = np.int64(peek_i32(data + 4) - peek_i32(data))
        if op == FROM_FIXED and size != length:
            return BAD_SIZE, at
        length = size
    if length > state[OUT_END] - at - MARGIN:
        state[WANTED] = length + MARGIN
        return FULL, at
    if op == FROM_DECIMAL_FIXED:
        item = columns[column + DATA] + 16 * (index + columns[column + SHIFT])
        at = write_decimal(item, length, at)
        return BAD_DECIMAL if at < 0 else GOOD, at
    if op == FROM_BYTES:
        at = write_varint(at, length)
    copy_memory(at, source, length)
    return GOOD, at + length


@inner
def write_array(
    ops: Longs, base: Number, columns: Longs, used: Longs, stack: Longs, state: Longs, at: Number
) -> tuple[Number, Number]:
    """Begin an array, or end one of its items. Return ``(address, next instruction)``."""
    counter = ops[base + COUNTER]
    if ops[base] == FROM_ARRAY:
        column = ops[base + COLUMN]
        data = columns[column + DATA] + 4 * (used[ops[base + DOMAIN]] + columns[column + SHIFT])
        start = np.int64(peek_i32(data))
        end = np.int64(peek_i32(data + 4))
        if start < end:
            at = write_varint(at, end - start)
            state[DEPTH] += 1
            stack[state[DEPTH]] = end
            used[counter] = start
            return at, base // WORDS + 1
        next_op = ops[base + A]
    else:
        used[counter] += 1
        if used[counter] < stack[state[DEPTH]]:
            return at, ops[base + A]
        state[DEPTH] -= 1
        next_op = base // WORDS + 1
    poke_u8(at, np.int64(0))
    return at + 1, next_op


@inner
def write_value(
    ops: Longs, table: Longs, columns: Longs, used: Longs, stack: Longs, state: Longs, at: Number
) -> tuple[Number, Number]:
    """Run the program for one value. Return the result and the address after it."""
    next_op = np.int64(0)
    state[DEPTH] = -1
    while True:
        base = next_op * WORDS
        next_op += 1
        op = ops[base]
        state[FAULT_OP] = base // WORDS
        if state[OUT_END] - at < MARGIN:
            state[WANTED] = MARGIN
            return FULL, at
        column = ops[base + COLUMN]
        index = used[ops[base + DOMAIN]]
        result = np.int64(GOOD)
        if op == END:
            return GOOD, at
        if op == JUMP:
            next_op = ops[base + A]
        elif op == REQUIRE:
            if is_null(columns, column, index):
                return NULL_ITEM, at
        elif op == IF_NULL:
            if is_null(columns, column, index):
                next_op = ops[base + A]
        elif op in (FROM_ARRAY, ITEM_END):
            at, next_op = write_array(ops, base, columns, used, stack, state, at)
        elif op <= FROM_DECIMAL:
            result, at = write_small(ops, base, table, columns, index, state, at)
        elif op >= CONSTANT:
            result, at = write_large(ops, base, columns, index, state, at)
        else:
            return ALL_NULL, at
        if result != GOOD:
            return result, at


@kernel(I64S, I64S, I64S, I64S_OUT, I64S_OUT, I32S_OUT, I64S_OUT)
def write_avro(
    ops: Longs, table: Longs, columns: Longs, used: Longs, stack: Longs, ends: Ints, state: Longs
) -> Number:
    """Write the rows from NEXT_ROW on, up to the end or the first that cannot be written: return its result.

    Row ``i`` is at ``ends[i]`` to ``ends[i + 1]`` from OUT_AT on. A null row is empty: the column with place
    0 is that of the rows. ``stack`` has a place for each level of arrays. FULL: there is less room
    than WANTED bytes after OUT_NEXT.
    """
    while state[NEXT_ROW] < ends.size - 1:
        row = state[NEXT_ROW]
        used[0] = row
        at = state[OUT_NEXT]
        if is_null(columns, np.int64(0), row) == 0:
            result, after = write_value(ops, table, columns, used, stack, state, at)
            if result != GOOD:
                return result
            at = after
        state[OUT_NEXT] = at
        ends[row + 1] = at - state[OUT_AT]
        state[NEXT_ROW] = row + 1
    return GOOD
