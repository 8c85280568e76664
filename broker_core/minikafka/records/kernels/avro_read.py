"""The kernel that reads Avro values into Arrow columns: it interprets a program of ``avro_ops``.

A value is the bytes between two addresses, ``at`` and ``end``; every helper compares a size with what is left
before it reads. What a value wrote before a fault is taken back: the counters are reset, and its row becomes
null.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.avro_ops import (
    ARRAY,
    BAD_BOOLEAN,
    BAD_BRANCH,
    BAD_COUNT,
    BAD_DECIMAL,
    BAD_LENGTH,
    BAD_NUMBER,
    BAD_TEXT,
    BRANCH,
    COLUMN,
    COPY_4,
    COPY_8,
    COUNTER,
    DEFAULT,
    DEFAULT_END,
    DOMAIN,
    EMPTY_ITEMS_MAX,
    END,
    FIXED_TO_DECIMAL,
    FLOAT_TO_DOUBLE,
    FULL,
    GOOD,
    ITEM,
    JUMP,
    LAST_FIXED,
    LAST_NUMBER,
    NULL_ENDS,
    OUT_OF_RANGE,
    RESULT_BITS,
    SKIP_BYTES,
    SKIP_FIXED,
    SKIP_NUMBER,
    TO_BOOLEAN,
    TO_BYTES,
    TO_DECIMAL,
    TO_F32,
    TO_FIXED,
    TO_I32,
    TO_I64,
    TO_STRING,
    TOO_LARGE,
    TRAILING,
    TRUNCATED,
    UNRESOLVED,
    VALID,
    WORDS,
    A,
    B,
    C,
)
from minikafka.records.kernels.jit import (
    copy_memory,
    inner,
    kernel,
    peek_f32,
    peek_i32,
    peek_i64,
    peek_u8,
    poke_f32,
    poke_f64,
    poke_i32,
    poke_i64,
    poke_u8,
)
from minikafka.records.kernels.signatures import BYTES, I32S, I64S, I64S_OUT, Bytes, Ints, Longs, Number
from minikafka.records.kernels.values import BYTES_AT, DATA, is_utf8, mark

# Places in ``state``.
NEXT_ROW = 0
VALUES_AT = 1  # addresses
CONSTANTS_AT = 2
PREFIX_BYTES = 3  # of each value, which are not Avro
NULL_PROGRAM = 4  # the instruction that begins the program of a null row
VALID_SHIFT = 5
REFUSED_ROW = 6  # a row that is too large; -1 for none
FULL_COUNTER = 7  # why the kernel stopped, and the limit that it needs
WANTED = 8
DEPTH = 9  # in the stack, while a value is read
STATE_SIZE = 10

# A frame of the stack: the items left in a block and, if they take no bytes, those of the array so far; or
# where to read on after a default.
FRAME = 2

_LOWEST = -0x8000000000000000


@inner
def read_varint(at: Number, end: Number, bits: Number) -> tuple[Number, Number]:
    """Return ``(number, the address after it)``; that is -1 if the number is cut off, -2 if it has more than
    ``bits`` bits.
    """
    raw = np.int64(0)
    shift = np.int64(0)
    while at < end:
        byte = peek_u8(at)
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            if (bits == 32 and raw >> 32) or (shift == 63 and byte > 1):
                return np.int64(0), np.int64(-2)
            return (raw >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), at
        shift += 7
        if shift >= bits + 3:
            return np.int64(0), np.int64(-2)
    return np.int64(0), np.int64(-1)


@inner
def append(
    ops: Longs,
    base: Number,
    columns: Longs,
    used: Longs,
    limits: Longs,
    state: Longs,
    source: Number,
    length: Number,
) -> Number:
    """Append an item to a column of bytes."""
    column = ops[base + COLUMN]
    index = used[ops[base + DOMAIN]]
    counter = ops[base + COUNTER]
    before = used[counter]
    if length > limits[counter] - before:
        state[FULL_COUNTER] = counter
        state[WANTED] = before + length
        return FULL
    copy_memory(columns[column + BYTES_AT] + before, source, length)
    used[counter] = before + length
    poke_i32(columns[column + DATA] + 4 * (index + 1), before + length)
    mark(columns, column, index, np.int64(1))
    return GOOD


@inner
def put_number(ops: Longs, base: Number, columns: Longs, used: Longs, number: Number) -> Number:
    """Write a number to a column of numbers."""
    column = ops[base + COLUMN]
    index = used[ops[base + DOMAIN]]
    op = ops[base]
    data = columns[column + DATA]
    if op == TO_I64:
        times = ops[base + A]
        if times > 1:
            most = np.int64(0x7FFFFFFFFFFFFFFF) // times
            if number > most or number < -most:
                return OUT_OF_RANGE
        poke_i64(data + 8 * index, number * times)
    elif op == TO_I32:
        poke_i32(data + 4 * index, number)
    elif op == TO_F32:
        poke_f32(data + 4 * index, np.float32(number))
    else:
        poke_f64(data + 8 * index, np.float64(number))
    mark(columns, column, index, np.int64(1))
    return GOOD


@inner
def put_decimal(
    ops: Longs, base: Number, table: Longs, columns: Longs, used: Longs, at: Number, length: Number
) -> Number:
    """Write a big-endian integer of any length as a decimal of 128 bits."""
    if length == 0:
        return BAD_DECIMAL
    sign = -(peek_u8(at) >> 7)
    for i in range(length - 16):
        if peek_u8(at + i) != sign & 255:
            return BAD_DECIMAL
    high, low = sign, sign
    for i in range(max(np.int64(0), length - 16), length):
        high = high << 8 | low >> 56 & 255
        low = low << 8 | peek_u8(at + i)
    if high >> 63 != sign:
        return BAD_DECIMAL
    column = ops[base + COLUMN]
    index = used[ops[base + DOMAIN]]
    poke_i64(columns[column + DATA] + 16 * index, low)
    poke_i64(columns[column + DATA] + 16 * index + 8, high)
    if sign:
        high = ~high + np.int64(low == 0)
        low = -low
    most = table[ops[base + C]]
    # The low halves have no sign.
    is_low_more = low ^ np.int64(_LOWEST) >= table[ops[base + C] + 1] ^ np.int64(_LOWEST)
    if high < 0 or high > most or (high == most and is_low_more):
        return BAD_DECIMAL
    mark(columns, column, index, np.int64(1))
    return GOOD


@inner
def run_number(
    ops: Longs,
    base: Number,
    table: Longs,
    columns: Longs,
    used: Longs,
    limits: Longs,
    state: Longs,
    at: Number,
    end: Number,
) -> tuple[Number, Number, Number]:
    """Run an instruction that begins with a varint.

    Return ``(result, address after it, next instruction)``.
    """
    op = ops[base]
    go_to = base // WORDS + 1
    number, at = read_varint(at, end, ops[base + B])
    if at < 0:
        return TRUNCATED if at == -1 else BAD_NUMBER, at, go_to
    if op >= TO_BYTES:
        if number < 0 or number > end - at:
            return BAD_LENGTH, at, go_to
        result = np.int64(GOOD)
        if op == TO_DECIMAL:
            result = put_decimal(ops, base, table, columns, used, at, number)
        elif op != SKIP_BYTES:
            if op == TO_STRING and is_utf8(at, at + number) == 0:
                return BAD_TEXT, at, go_to
            result = append(ops, base, columns, used, limits, state, at, number)
        return result, at + number, go_to
    if op < BRANCH:
        if op == SKIP_NUMBER:
            return GOOD, at, go_to
        return put_number(ops, base, columns, used, number), at, go_to
    if number < 0 or number >= ops[base + A]:
        return BAD_BRANCH, at, go_to
    if op == BRANCH:
        return GOOD, at, table[ops[base + C] + number]
    symbol = ops[base + C] + 2 * number
    if table[symbol + 1] < 0:
        return UNRESOLVED, at, go_to
    source = state[CONSTANTS_AT] + table[symbol]
    return append(ops, base, columns, used, limits, state, source, table[symbol + 1]), at, go_to


@inner
def run_fixed(
    ops: Longs,
    base: Number,
    table: Longs,
    columns: Longs,
    used: Longs,
    limits: Longs,
    state: Longs,
    at: Number,
    end: Number,
) -> Number:
    """Run an instruction that takes A bytes."""
    op = ops[base]
    length = ops[base + A]
    if length > end - at:
        return TRUNCATED
    if op == SKIP_FIXED:
        return GOOD
    if op == TO_FIXED:
        return append(ops, base, columns, used, limits, state, at, length)
    if op == FIXED_TO_DECIMAL:
        return put_decimal(ops, base, table, columns, used, at, length)
    column = ops[base + COLUMN]
    index = used[ops[base + DOMAIN]]
    data = columns[column + DATA]
    if op == COPY_8:
        poke_i64(data + 8 * index, peek_i64(at))
    elif op == COPY_4:
        poke_i32(data + 4 * index, peek_i32(at))
    elif op == FLOAT_TO_DOUBLE:
        poke_f64(data + 8 * index, np.float64(peek_f32(at)))
    elif op == TO_BOOLEAN:
        if peek_u8(at) > 1:
            return BAD_BOOLEAN
        poke_u8(data + index, peek_u8(at))
    mark(columns, column, index, np.int64(1))
    return GOOD


@inner
def run_item(
    ops: Longs,
    base: Number,
    columns: Longs,
    used: Longs,
    limits: Longs,
    state: Longs,
    stack: Longs,
    at: Number,
    end: Number,
) -> tuple[Number, Number, Number]:
    """End an item, and begin the next one or end the array. Return as ``run_number``."""
    frame = state[DEPTH] * FRAME
    counter = ops[base + COUNTER]
    after = base // WORDS + 1
    if stack[frame] > 0:
        stack[frame] -= 1
        if counter >= 0:
            used[counter] += 1
    if stack[frame] == 0:
        count, at = read_varint(at, end, np.int64(64))
        if at >= 0 and count < 0:
            size, at = read_varint(at, end, np.int64(64))
            count = -count
            if at >= 0 and (size < 0 or size > end - at):
                return BAD_COUNT, at, after
            if at >= 0 and counter < 0:
                # The size of a block is there for those who skip it.
                return GOOD, at + size, after - 1
        if at < 0:
            return TRUNCATED if at == -1 else BAD_NUMBER, at, after
        if count == 0:
            state[DEPTH] -= 1
            if counter >= 0:
                column = ops[base + COLUMN]
                index = used[ops[base + DOMAIN]]
                poke_i32(columns[column + DATA] + 4 * (index + 1), used[counter])
                mark(columns, column, index, np.int64(1))
            return GOOD, at, after
        least = ops[base + A]
        # ``count`` may be -2^63.
        if count < 0 or (least > 0 and count > (end - at) // least):
            return BAD_COUNT, at, after
        if least == 0:
            if count > EMPTY_ITEMS_MAX - stack[frame + 1]:
                return BAD_COUNT, at, after
            stack[frame + 1] += count
        stack[frame] = count
    if counter >= 0 and used[counter] >= limits[counter]:
        state[FULL_COUNTER] = counter
        state[WANTED] = used[counter] + stack[frame]
        return FULL, at, after
    return GOOD, at, ops[base + B]


@inner
def put_null(ops: Longs, base: Number, columns: Longs, used: Longs) -> None:
    """Write a null, and zeros for its item."""
    column = ops[base + COLUMN]
    index = used[ops[base + DOMAIN]]
    data = columns[column + DATA]
    if ops[base] == NULL_ENDS:
        poke_i32(data + 4 * (index + 1), used[ops[base + COUNTER]])
    else:
        size = ops[base + A]
        if size >= 8:
            for i in range(0, size, 8):
                poke_i64(data + size * index + i, np.int64(0))
        elif size == 4:
            poke_i32(data + 4 * index, np.int64(0))
        elif size == 1:
            poke_u8(data + index, np.int64(0))
    mark(columns, column, index, np.int64(0))


@inner
def run_value(
    ops: Longs,
    table: Longs,
    columns: Longs,
    used: Longs,
    limits: Longs,
    stack: Longs,
    state: Longs,
    next_op: Number,
    at: Number,
    end: Number,
) -> tuple[Number, Number]:
    """Run a program from ``next_op`` on. Return the result and the last instruction."""
    state[DEPTH] = -1
    result = np.int64(GOOD)
    while True:
        base = next_op * WORDS
        next_op += 1
        op = ops[base]
        if op == END:
            return TRAILING if at != end else GOOD, next_op - 1
        if op == JUMP:
            next_op = ops[base + A]
        elif op <= LAST_NUMBER:
            result, at, next_op = run_number(ops, base, table, columns, used, limits, state, at, end)
        elif op <= LAST_FIXED:
            result = run_fixed(ops, base, table, columns, used, limits, state, at, end)
            at += ops[base + A]
        elif op == VALID:
            mark(columns, ops[base + COLUMN], used[ops[base + DOMAIN]], np.int64(1))
        elif op <= NULL_ENDS:
            put_null(ops, base, columns, used)
        elif op == ITEM:
            result, at, next_op = run_item(ops, base, columns, used, limits, state, stack, at, end)
        elif op == ARRAY:
            state[DEPTH] += 1
            stack[state[DEPTH] * FRAME] = 0
            stack[state[DEPTH] * FRAME + 1] = 0
            next_op = ops[base + A]
        elif op == DEFAULT:
            state[DEPTH] += 1
            stack[state[DEPTH] * FRAME] = at
            stack[state[DEPTH] * FRAME + 1] = end
            at = state[CONSTANTS_AT] + ops[base + A]
            end = state[CONSTANTS_AT] + ops[base + B]
        elif op == DEFAULT_END:
            at = stack[state[DEPTH] * FRAME]
            end = stack[state[DEPTH] * FRAME + 1]
            state[DEPTH] -= 1
        else:
            result = np.int64(UNRESOLVED)
        if result != GOOD:
            return result, base // WORDS


@kernel(I64S, I64S, I32S, BYTES, I64S_OUT, I64S_OUT, I64S_OUT, I64S, I64S_OUT, I64S_OUT, I64S_OUT)
def read_avro(
    ops: Longs,
    table: Longs,
    offsets: Ints,
    valid: Bytes,
    columns: Longs,
    used: Longs,
    saved: Longs,
    limits: Longs,
    stack: Longs,
    results: Longs,
    state: Longs,
) -> Number:
    """Read values from NEXT_ROW on to the end, or until a counter has reached its limit (FULL).

    ``offsets`` has ``results.size + 1`` positions of values, not decreasing; ``valid`` is an Arrow bitmap
    from bit VALID_SHIFT on, or empty if no value is null. ``results[i]`` becomes the result of value ``i``
    and, above RESULT_BITS bits, its last instruction. ``stack`` has a frame for each level of arrays and
    defaults.
    """
    while state[NEXT_ROW] < results.size:
        row = state[NEXT_ROW]
        used[0] = row
        for i in range(used.size):
            saved[i] = used[i]
        at = state[VALUES_AT] + np.int64(offsets[row]) + state[PREFIX_BYTES]
        end = state[VALUES_AT] + np.int64(offsets[row + 1])
        first = np.int64(0)
        results[row] = GOOD
        bit = row + state[VALID_SHIFT]
        if valid.size > 0 and valid[bit >> 3] >> (bit & 7) & 1 == 0:
            first = state[NULL_PROGRAM]
        elif row == state[REFUSED_ROW]:
            results[row] = TOO_LARGE
            first = state[NULL_PROGRAM]
        while True:
            if first != 0:
                at = end
            result, last = run_value(ops, table, columns, used, limits, stack, state, first, at, end)
            if result == GOOD:
                break
            for i in range(used.size):
                used[i] = saved[i]
            if result == FULL:
                return FULL
            results[row] = result | last << RESULT_BITS
            first = state[NULL_PROGRAM]
        state[NEXT_ROW] = row + 1
    return GOOD
