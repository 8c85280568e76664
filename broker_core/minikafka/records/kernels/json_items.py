"""The items of columns that the kernel ``json_read`` writes: texts, numbers, times, truth values.

A helper returns -1 to refuse what stands in the value.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.jit import (
    copy_memory,
    inner,
    peek_f64,
    peek_u8,
    poke_f32,
    poke_i32,
    poke_i64,
    poke_u8,
)
from minikafka.records.kernels.json_ops import (
    BOOLEAN,
    COLUMN,
    COUNT,
    COUNTER,
    DATE,
    DECIMAL,
    DIGITS,
    DOMAIN,
    DOUBLE,
    EXPONENT,
    FIRST,
    FULL_COUNTER,
    INTEGER,
    IS_WHOLE,
    KIND,
    LOCAL_TIMESTAMP,
    NEGATIVE,
    OTHER,
    SCRATCH_AT,
    STRING,
    TIMESTAMP,
    WANTED,
)
from minikafka.records.kernels.json_scan import (
    DAY_US,
    FALSE_WORD,
    TRUE_WORD,
    days_at,
    digits_of,
    double_bits,
    has_word,
    plain_end,
    read_number,
    skip_string,
    unescape,
    zone_offset_us,
)
from minikafka.records.kernels.signatures import Longs, Number
from minikafka.records.kernels.values import BYTES_AT, DATA, mark

_SIGN = -0x8000000000000000


@inner
def put_double(
    nodes: Longs, base: Number, columns: Longs, powers: Longs, index: Number, state: Longs
) -> Number:
    """Write the number that was read to a column of doubles or floats; -1 to refuse it."""
    bits = double_bits(state[DIGITS], state[EXPONENT], powers)
    if bits == -1:
        return np.int64(-1)
    if state[NEGATIVE]:
        bits |= np.int64(_SIGN)
    data = columns[nodes[base + COLUMN] + DATA]
    if nodes[base + KIND] == DOUBLE:
        poke_i64(data + 8 * index, bits)
    else:
        poke_i64(state[SCRATCH_AT], bits)
        poke_f32(data + 4 * index, np.float32(peek_f64(state[SCRATCH_AT])))
    return np.int64(0)


@inner
def put_integer(nodes: Longs, base: Number, columns: Longs, index: Number, state: Longs) -> Number:
    """Write the number that was read to a column of integers; -1 to refuse it."""
    size = nodes[base + COUNT]
    number = -state[DIGITS] if state[NEGATIVE] else state[DIGITS]
    if state[IS_WHOLE] == 0:
        return np.int64(-1)
    if size < 8:
        limit = np.int64(1) << 8 * size - 1
        if number < -limit or number >= limit:
            return np.int64(-1)
    target = columns[nodes[base + COLUMN] + DATA] + size * index
    if size == 8:
        poke_i64(target, number)
    elif size == 4:
        poke_i32(target, number)
    else:
        poke_u8(target, number)
        if size == 2:
            poke_u8(target + 1, number >> 8)
    return np.int64(0)


@inner
def put_decimal(nodes: Longs, base: Number, columns: Longs, index: Number, state: Longs) -> Number:
    """Write the number that was read to a column of decimals; -1 to refuse it."""
    number = state[DIGITS]
    more = nodes[base + FIRST] + state[EXPONENT]
    if more < 0 or more > 18:
        return np.int64(-1)
    limit = np.int64(1)
    for _ in range(min(nodes[base + COUNT], np.int64(18))):
        limit *= 10
    for _ in range(more):
        if number > limit // 10:
            return np.int64(-1)
        number *= 10
    if number >= limit:
        return np.int64(-1)
    if state[NEGATIVE]:
        number = -number
    target = columns[nodes[base + COLUMN] + DATA] + 16 * index
    poke_i64(target, number)
    poke_i64(target + 8, number >> 63)
    return np.int64(0)


@inner
def put_time(nodes: Longs, base: Number, columns: Longs, index: Number, at: Number, end: Number) -> Number:
    """Write the text of a date or time to its column; -1 to refuse it."""
    kind = nodes[base + KIND]
    data = columns[nodes[base + COLUMN] + DATA]
    if end - at < 10:
        return np.int64(-1)
    days = days_at(at)
    if days == -1_000_000:
        return np.int64(-1)
    if kind == DATE:
        if end - at != 10:
            return np.int64(-1)
        poke_i32(data + 4 * index, days)
        return np.int64(0)
    time = days * DAY_US
    at += 10
    if at < end:
        if end - at < 9 or (peek_u8(at) != 0x54 and peek_u8(at) != 0x20):
            return np.int64(-1)
        hour, minute, second = digits_of(at + 1, 2), digits_of(at + 4, 2), digits_of(at + 7, 2)
        if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            return np.int64(-1)
        if peek_u8(at + 3) != 0x3A or peek_u8(at + 6) != 0x3A:
            return np.int64(-1)
        time += ((hour * 60 + minute) * 60 + second) * 1_000_000
        at += 9
        if at < end and peek_u8(at) == 0x2E:
            at += 1
            worth = np.int64(100_000)
            while at < end and 0x30 <= peek_u8(at) <= 0x39:
                time += (peek_u8(at) - 0x30) * worth
                worth //= 10
                at += 1
        if kind == LOCAL_TIMESTAMP:
            if at != end:
                return np.int64(-1)
        else:
            offset = zone_offset_us(at, end)
            if offset == DAY_US:
                return np.int64(-1)
            time -= offset
    poke_i64(data + 8 * index, time)
    return np.int64(0)


@inner
def put_text(
    columns: Longs,
    used: Longs,
    limits: Longs,
    state: Longs,
    column: Number,
    counter: Number,
    index: Number,
    at: Number,
    end: Number,
) -> Number:
    """Append the string whose first byte is at ``at`` to a column. Return the address after it, -1 to refuse
    it, or -2 if the column is full.
    """
    plain = plain_end(at, end)
    after = skip_string(plain, end)
    if after < 0:
        return after
    before = used[counter]
    if after - 1 - at > limits[counter] - before:
        state[FULL_COUNTER] = counter
        state[WANTED] = before + after - 1 - at
        return np.int64(-2)
    target = columns[column + BYTES_AT] + before
    copy_memory(target, at, plain - at)
    size = plain - at
    if after - 1 != plain:
        after, last = unescape(plain, end, target + size)
        if after < 0:
            return after
        size = last - target
    used[counter] = before + size
    poke_i32(columns[column + DATA] + 4 * (index + 1), before + size)
    mark(columns, column, index, np.int64(1))
    return after


@inner
def put_scalar(
    nodes: Longs,
    base: Number,
    powers: Longs,
    columns: Longs,
    used: Longs,
    limits: Longs,
    state: Longs,
    at: Number,
    end: Number,
) -> Number:
    """Write a value that is neither an object nor an array. Return as ``put_text``."""
    kind = nodes[base + KIND]
    column = nodes[base + COLUMN]
    index = used[nodes[base + DOMAIN]]
    first = peek_u8(at)
    if kind == STRING:
        if first != 0x22:
            return np.int64(-1)
        return put_text(columns, used, limits, state, column, nodes[base + COUNTER], index, at + 1, end)
    if kind == BOOLEAN:
        number = has_word(at, end, np.int64(TRUE_WORD), 4)
        if number == 0 and has_word(at, end, np.int64(FALSE_WORD), 5) == 0:
            return np.int64(-1)
        poke_u8(columns[column + DATA] + index, number)
        mark(columns, column, index, np.int64(1))
        return at + 5 - number
    if kind in (DATE, TIMESTAMP, LOCAL_TIMESTAMP):
        if first != 0x22:
            return np.int64(-1)
        after = plain_end(at + 1, end)
        if after >= end or peek_u8(after) != 0x22:
            return np.int64(-1)
        result = put_time(nodes, base, columns, index, at + 1, after)
        after += 1
    else:
        after = read_number(at, end, state)
        if after < 0:
            return after
        if kind == INTEGER:
            result = put_integer(nodes, base, columns, index, state)
        elif kind == DECIMAL:
            result = put_decimal(nodes, base, columns, index, state)
        elif kind == OTHER:
            result = np.int64(-1)
        else:
            result = put_double(nodes, base, columns, powers, index, state)
    if result < 0:
        return result
    mark(columns, column, index, np.int64(1))
    return after
