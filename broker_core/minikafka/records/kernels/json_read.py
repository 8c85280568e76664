"""The kernel that reads JSON values into Arrow columns, by the tables of ``json_ops``.

It reads what is common, and refuses all else: escapes in names, a field that appears twice, a number for a
text, times in other forms, and whatever is no JSON. A refused row is null; another reader decides about it.
What a value wrote before it was refused is taken back.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.jit import inner, kernel, peek_i32, peek_u8, poke_i32, poke_i64, poke_u8
from minikafka.records.kernels.json_items import put_scalar, put_text
from minikafka.records.kernels.json_ops import (
    BOOLEAN,
    COLUMN,
    COUNT,
    COUNTER,
    DATE,
    DECIMAL,
    DEPTH,
    DOMAIN,
    DOUBLE,
    FIELD_WORDS,
    FIRST,
    FLOAT,
    FULL,
    FULL_COUNTER,
    GOOD,
    INTEGER,
    IS_EMPTY,
    KEYS,
    KEYS_COUNTER,
    KIND,
    LIST,
    LOCAL_TIMESTAMP,
    MAP,
    NAME_AT,
    NAME_SIZE,
    NAMES_AT,
    NEXT_ROW,
    NODE,
    NULL_COUNT,
    NULLS,
    REFUSED,
    REFUSED_ROW,
    STAMP,
    STRUCT,
    TIMESTAMP,
    VALID_SHIFT,
    VALUES_AT,
    WANTED,
)
from minikafka.records.kernels.json_scan import NULL_WORD, has_word, plain_end, skip_blanks, skip_value
from minikafka.records.kernels.signatures import BYTES, I32S, I64S, I64S_OUT, Bytes, Ints, Longs, Number
from minikafka.records.kernels.values import BYTES_AT, DATA, has_same_bytes, is_utf8, mark

# A frame of the stack: the node, the field that is expected next, and the stamp of a struct.
FRAME = 3

MAP_ITEMS_MAX = 64
"""Of a map whose keys are compared with each other; larger ones are refused."""

# Modes of ``run_value``.
_VALUE = 0
_NAME = 1
_AFTER = 2


@inner
def put_nulls(nodes: Longs, nulls: Longs, base: Number, columns: Longs, used: Longs) -> None:
    """Write null to an item of a node, and to those of all nodes that have one with it."""
    for i in range(nodes[base + NULLS], nodes[base + NULLS] + nodes[base + NULL_COUNT]):
        node = nulls[i]
        kind = nodes[node + KIND]
        column = nodes[node + COLUMN]
        data = columns[column + DATA]
        index = used[nodes[node + DOMAIN]]
        mark(columns, column, index, np.int64(0))
        if nodes[node + COUNTER] >= 0:
            poke_i32(data + 4 * (index + 1), used[nodes[node + COUNTER]])
        elif kind == DECIMAL:
            poke_i64(data + 16 * index, np.int64(0))
            poke_i64(data + 16 * index + 8, np.int64(0))
        elif kind in (DOUBLE, TIMESTAMP, LOCAL_TIMESTAMP):
            poke_i64(data + 8 * index, np.int64(0))
        elif kind in (FLOAT, DATE):
            poke_i32(data + 4 * index, np.int64(0))
        elif kind == BOOLEAN:
            poke_u8(data + index, np.int64(0))
        elif kind == INTEGER:
            for byte in range(nodes[node + COUNT]):
                poke_u8(data + nodes[node + COUNT] * index + byte, np.int64(0))


@inner
def find_field(
    nodes: Longs, fields: Longs, base: Number, expected: Number, names_at: Number, at: Number, size: Number
) -> Number:
    """Return the field of a name, looked for from the expected one on; -1 for an unknown one."""
    first, count = nodes[base + FIRST], nodes[base + COUNT]
    for i in range(count):
        number = expected + i
        if number >= first + count:
            number -= count
        field = number * FIELD_WORDS
        if fields[field + NAME_SIZE] != size:
            continue
        if has_same_bytes(names_at + fields[field + NAME_AT], at, size):
            return number
    return np.int64(-1)


@inner
def has_key(columns: Longs, column: Number, first: Number, last: Number) -> Number:
    """Return 1 if one of the texts from ``first`` on is the one at ``last``; 0 if not."""
    ends, data = columns[column + DATA], columns[column + BYTES_AT]
    at = np.int64(peek_i32(ends + 4 * last))
    size = np.int64(peek_i32(ends + 4 * last + 4)) - at
    for i in range(first, last):
        other = np.int64(peek_i32(ends + 4 * i))
        if np.int64(peek_i32(ends + 4 * i + 4)) - other != size:
            continue
        if has_same_bytes(data + other, data + at, size):
            return np.int64(1)
    return np.int64(0)


@inner
def has_room(used: Longs, limits: Longs, state: Longs, counter: Number) -> Number:
    """Return 1 if there is room for one more item of a list or map; 0 if not."""
    if used[counter] < limits[counter]:
        return np.int64(1)
    state[FULL_COUNTER] = counter
    state[WANTED] = used[counter] + 1
    return np.int64(0)


@inner
def enter(
    nodes: Longs,
    base: Number,
    used: Longs,
    limits: Longs,
    stack: Longs,
    state: Longs,
    at: Number,
    end: Number,
) -> tuple[Number, Number, Number]:
    """Begin an object or array. Return the address after its bracket (or as ``put_text``), the node of what
    follows, and the mode.
    """
    kind = nodes[base + KIND]
    opening = 0x5B if kind == LIST else 0x7B
    if peek_u8(at) != opening:
        return np.int64(-1), base, np.int64(_AFTER)
    state[DEPTH] += 1
    state[STAMP] += 1
    frame = state[DEPTH] * FRAME
    stack[frame] = base
    stack[frame + 1] = nodes[base + FIRST] if kind == STRUCT else used[nodes[base + COUNTER]]
    stack[frame + 2] = state[STAMP]
    at = skip_blanks(at + 1, end)
    if at < end and peek_u8(at) == opening + 2:
        state[IS_EMPTY] = 1
        return at, base, np.int64(_AFTER)
    if kind != LIST:
        return at, base, np.int64(_NAME)
    if has_room(used, limits, state, nodes[base + COUNTER]) == 0:
        return np.int64(-2), base, np.int64(_AFTER)
    return at, nodes[base + FIRST], np.int64(_VALUE)


@inner
def member(
    nodes: Longs, fields: Longs, seen: Longs, stack: Longs, state: Longs, at: Number, size: Number
) -> Number:
    """Return the node of a struct's field, by its name; -1 for an unknown one, -2 if it appears again."""
    frame = state[DEPTH] * FRAME
    base = stack[frame]
    number = find_field(nodes, fields, base, stack[frame + 1], state[NAMES_AT], at, size)
    if number < 0:
        return np.int64(-1)
    if seen[number] == stack[frame + 2]:
        return np.int64(-2)
    seen[number] = stack[frame + 2]
    following = number + 1
    if following >= nodes[base + FIRST] + nodes[base + COUNT]:
        following = nodes[base + FIRST]
    stack[frame + 1] = following
    return fields[number * FIELD_WORDS + NODE]


@inner
def put_key(
    nodes: Longs,
    columns: Longs,
    used: Longs,
    limits: Longs,
    stack: Longs,
    state: Longs,
    at: Number,
    end: Number,
) -> Number:
    """Append the key of a map, whose first byte is at ``at``. Return as ``put_text``."""
    frame = state[DEPTH] * FRAME
    base = stack[frame]
    counter, keys = nodes[base + COUNTER], nodes[base + KEYS]
    if has_room(used, limits, state, counter) == 0:
        return np.int64(-2)
    index = used[counter]
    after = put_text(columns, used, limits, state, keys, nodes[base + KEYS_COUNTER], index, at, end)
    began = stack[frame + 1]
    if after >= 0 and (index - began >= MAP_ITEMS_MAX or has_key(columns, keys, began, index)):
        return np.int64(-1)
    return after


@inner
def read_name(
    nodes: Longs,
    fields: Longs,
    columns: Longs,
    used: Longs,
    limits: Longs,
    seen: Longs,
    stack: Longs,
    state: Longs,
    at: Number,
    end: Number,
) -> tuple[Number, Number]:
    """Read a name and its colon. Return the address after them (or as ``put_text``), and the node of the
    value, which is -1 for a value to skip.
    """
    if peek_u8(at) != 0x22:
        return np.int64(-1), np.int64(-1)
    at += 1
    after = plain_end(at, end)
    if after >= end or peek_u8(after) != 0x22:
        return np.int64(-1), np.int64(-1)
    base = stack[state[DEPTH] * FRAME]
    if nodes[base + KIND] == STRUCT:
        base = member(nodes, fields, seen, stack, state, at, after - at)
        if base == -2:
            return np.int64(-1), base
    else:
        result = put_key(nodes, columns, used, limits, stack, state, at, end)
        if result < 0:
            return result, base
        base = nodes[base + FIRST]
    at = skip_blanks(after + 1, end)
    if at >= end or peek_u8(at) != 0x3A:
        return np.int64(-1), base
    return at + 1, base


@inner
def leave(
    nodes: Longs,
    fields: Longs,
    nulls: Longs,
    columns: Longs,
    used: Longs,
    limits: Longs,
    seen: Longs,
    stack: Longs,
    state: Longs,
    at: Number,
) -> tuple[Number, Number, Number]:
    """Go on behind an item: to the next one, or the end of the object or array. Return as ``enter``."""
    frame = state[DEPTH] * FRAME
    base = stack[frame]
    kind, counter = nodes[base + KIND], nodes[base + COUNTER]
    byte = peek_u8(at)
    if counter >= 0 and state[IS_EMPTY] == 0:
        used[counter] += 1
    state[IS_EMPTY] = 0
    if byte == 0x2C:
        if kind != LIST:
            return at + 1, base, np.int64(_NAME)
        if has_room(used, limits, state, counter) == 0:
            return np.int64(-2), base, np.int64(_AFTER)
        return at + 1, nodes[base + FIRST], np.int64(_VALUE)
    if byte != (0x5D if kind == LIST else 0x7D):
        return np.int64(-1), base, np.int64(_AFTER)
    column = nodes[base + COLUMN]
    index = used[nodes[base + DOMAIN]]
    if kind == STRUCT:
        for i in range(nodes[base + FIRST], nodes[base + FIRST] + nodes[base + COUNT]):
            if seen[i] != stack[frame + 2]:
                put_nulls(nodes, nulls, fields[i * FIELD_WORDS + NODE], columns, used)
    else:
        poke_i32(columns[column + DATA] + 4 * (index + 1), used[counter])
    mark(columns, column, index, np.int64(1))
    state[DEPTH] -= 1
    return at + 1, base, np.int64(_AFTER)


@inner
def run_value(
    nodes: Longs,
    fields: Longs,
    nulls: Longs,
    powers: Longs,
    columns: Longs,
    used: Longs,
    limits: Longs,
    seen: Longs,
    stack: Longs,
    state: Longs,
    at: Number,
    end: Number,
) -> Number:
    """Read one value, and return the result. What follows it is not looked at."""
    base = np.int64(0)
    mode = np.int64(_VALUE)
    state[DEPTH] = -1
    state[IS_EMPTY] = 0
    while True:
        at = skip_blanks(at, end)
        if mode == _AFTER and state[DEPTH] < 0:
            return GOOD
        if at >= end:
            return REFUSED
        if mode == _AFTER:
            at, base, mode = leave(nodes, fields, nulls, columns, used, limits, seen, stack, state, at)
        elif mode == _NAME:
            at, base = read_name(nodes, fields, columns, used, limits, seen, stack, state, at, end)
            mode = np.int64(_VALUE)
        elif base < 0:
            at = skip_value(at, end, state)
            mode = np.int64(_AFTER)
        elif has_word(at, end, np.int64(NULL_WORD), 4):
            put_nulls(nodes, nulls, base, columns, used)
            at += 4
            mode = np.int64(_AFTER)
        elif nodes[base + KIND] <= MAP:
            at, base, mode = enter(nodes, base, used, limits, stack, state, at, end)
        else:
            at = put_scalar(nodes, base, powers, columns, used, limits, state, at, end)
            mode = np.int64(_AFTER)
        if at < 0:
            return FULL if at == -2 else REFUSED


@kernel(
    I64S, I64S, I64S, I64S, I32S, BYTES, I64S,
    I64S_OUT, I64S_OUT, I64S, I64S_OUT, I64S_OUT, I64S_OUT, I64S_OUT,
)  # fmt: skip
def read_json(
    nodes: Longs,
    fields: Longs,
    nulls: Longs,
    powers: Longs,
    offsets: Ints,
    valid: Bytes,
    columns: Longs,
    used: Longs,
    saved: Longs,
    limits: Longs,
    seen: Longs,
    stack: Longs,
    results: Longs,
    state: Longs,
) -> Number:
    """Read values from NEXT_ROW on to the end, or until a counter has reached its limit (FULL).

    ``offsets`` has ``results.size + 1`` positions of values, not decreasing; ``valid`` is an Arrow bitmap
    from bit VALID_SHIFT on, or empty if no value is null. ``results[i]`` becomes the result of value ``i``.
    ``powers`` has the powers of ten from POWER_MIN on, ``seen`` an item for each field, ``stack`` a frame for
    each level of the schema.
    """
    while state[NEXT_ROW] < results.size:
        row = state[NEXT_ROW]
        used[0] = row
        for i in range(used.size):
            saved[i] = used[i]
        at = state[VALUES_AT] + np.int64(offsets[row])
        end = state[VALUES_AT] + np.int64(offsets[row + 1])
        result = np.int64(GOOD)
        bit = row + state[VALID_SHIFT]
        if valid.size > 0 and valid[bit >> 3] >> (bit & 7) & 1 == 0:
            put_nulls(nodes, nulls, np.int64(0), columns, used)
        else:
            result = np.int64(REFUSED)
            if row != state[REFUSED_ROW] and is_utf8(at, end):
                result = run_value(
                    nodes, fields, nulls, powers, columns, used, limits, seen, stack, state, at, end
                )
            if result != GOOD:
                for i in range(used.size):
                    used[i] = saved[i]
                if result == FULL:
                    return FULL
                put_nulls(nodes, nulls, np.int64(0), columns, used)
        results[row] = result
        state[NEXT_ROW] = row + 1
    return GOOD
