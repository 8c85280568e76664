"""Kernels over protobuf messages: fields to columns, and columns to fields.

A column of messages is read level by level: one run over its messages finds the values of their singular
fields and counts the items of the repeated ones, a second one writes these. Numbers are int64 as on the wire
(zig-zag and widths are for the caller); bytes, texts and messages are a start in ``data`` and a length.

The fields of a message are a table, by ascending number, of WORDS numbers each:

    NUMBER     of the field
    WIRE       the wire type of one value
    REPEATED   0 or 1
    ONEOF      the number of its group, -1 for none
    PLACE      the first of its items in ``found`` and ``values``, or in ``counts``: one for each message
    LENGTHS    the same in ``lengths``; for wire type LENGTH only
    TEXT       1 for a text, which has to be UTF-8
    CLOSED     the first of its numbers in ``closed``, if it is singular and of a closed enum
    CLOSED_COUNT   of these numbers; 0 for other fields
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status
from minikafka.records.kernels.jit import address_of, copy_bytes, inner, kernel, load_u64_little
from minikafka.records.kernels.signatures import (
    BYTES,
    BYTES_OUT,
    I32S_OUT,
    I64,
    I64S,
    I64S_OUT,
    Bytes,
    Ints,
    Longs,
    Number,
)
from minikafka.records.kernels.values import is_utf8

# Wire types.
VARINT = 0
FIXED64 = 1
LENGTH = 2
START_GROUP = 3
END_GROUP = 4
FIXED32 = 5

NUMBER = 0
WIRE = 1
REPEATED = 2
ONEOF = 3
PLACE = 4
LENGTHS = 5
TEXT = 6
CLOSED = 7
CLOSED_COUNT = 8
WORDS = 9

# Results of a message.
GOOD = 0
TRUNCATED = 1
BAD_TAG = 2
BAD_TEXT = 3

# Bits of ``found`` for a singular field: it has a value, and another one was replaced.
PRESENT = 1
REPLACED = 2

MAX_VARINT_BYTES = 10
_TAG_BITS = 32


@inner
def read_varint(data: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    """Return ``(number, its end)``; the end is -1 if there is no number."""
    raw = np.int64(0)
    shift = np.int64(0)
    while at < end and shift < 7 * MAX_VARINT_BYTES:
        byte = np.int64(data[at])
        at += 1
        raw |= (byte & 127) << shift  # of the tenth byte the lowest bit counts
        if byte < 128:
            return raw, at
        shift += 7
    return np.int64(0), np.int64(-1)


@inner
def read_value(data: Bytes, at: Number, end: Number, wire: Number) -> tuple[Number, Number, Number]:
    """Return ``(number or start, length, end)`` of a value, no group; the end is -1 if there is none."""
    if wire == VARINT:
        number, after = read_varint(data, at, end)
        return number, np.int64(0), after
    if wire == LENGTH:
        length, start = read_varint(data, at, end)
        if start < 0 or length < 0 or length > end - start:
            return np.int64(0), np.int64(0), np.int64(-1)
        return start, length, start + length
    if wire == FIXED64:
        if end - at < 8:
            return np.int64(0), np.int64(0), np.int64(-1)
        return np.int64(load_u64_little(data, at)), np.int64(0), at + 8
    if end - at < 4:
        return np.int64(0), np.int64(0), np.int64(-1)
    low = np.int64(data[at]) | np.int64(data[at + 1]) << 8
    return low | np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24, np.int64(0), at + 4


@inner
def read_tag(data: Bytes, at: Number, end: Number) -> tuple[Number, Number, Number]:
    """Return ``(number, wire type, end)`` of what begins a field; a negative end is the negated result of the
    message.
    """
    tag, at = read_varint(data, at, end)
    if at < 0:
        return np.int64(0), np.int64(0), np.int64(-TRUNCATED)
    wire = tag & 7
    number = tag >> 3
    if number <= 0 or tag >> _TAG_BITS != 0 or wire > FIXED32:
        return np.int64(0), np.int64(0), np.int64(-BAD_TAG)
    return number, wire, at


@inner
def skip_group(data: Bytes, at: Number, end: Number, number: Number) -> Number:
    """Return the end of the group ``number`` whose fields begin at ``at``, negative as in ``read_tag``. The
    numbers of groups inside of it are not compared.
    """
    depth = np.int64(1)
    while True:
        found, wire, at = read_tag(data, at, end)
        if at < 0:
            return at
        if wire == START_GROUP:
            depth += 1
        elif wire == END_GROUP:
            depth -= 1
            if depth == 0:
                return at if found == number else np.int64(-BAD_TAG)
        else:
            _, _, at = read_value(data, at, end, wire)
            if at < 0:
                return np.int64(-TRUNCATED)


@inner
def read_field(data: Bytes, at: Number, end: Number) -> tuple[Number, Number, Number, Number, Number]:
    """Return ``(number, wire type, number or start, length, end)`` of a field, the end negative as in
    ``read_tag``. A group has no value.
    """
    zero = np.int64(0)
    number, wire, at = read_tag(data, at, end)
    if at < 0:
        return zero, zero, zero, zero, at
    if wire == END_GROUP:
        return zero, zero, zero, zero, np.int64(-BAD_TAG)
    if wire == START_GROUP:
        return number, wire, zero, zero, skip_group(data, at, end, number)
    value, length, at = read_value(data, at, end, wire)
    return number, wire, value, length, at


@inner
def find_field(table: Longs, number: Number, guess: Number) -> Number:
    """Return the place of a field in the table, which is ``guess`` more often than not; -1 for none."""
    fields = table.size // WORDS
    if guess < fields and table[guess * WORDS + NUMBER] == number:
        return guess
    low = np.int64(0)
    high = np.int64(fields)
    while low < high:
        middle = (low + high) // 2
        if table[middle * WORDS + NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    if low < fields and table[low * WORDS + NUMBER] == number:
        return low
    return np.int64(-1)


@inner
def count_packed(data: Bytes, at: Number, end: Number, wire: Number) -> Number:
    """Return the number of packed items; -1 if the last one is cut off."""
    if wire == FIXED64:
        return (end - at) // 8 if (end - at) % 8 == 0 else np.int64(-1)
    if wire == FIXED32:
        return (end - at) // 4 if (end - at) % 4 == 0 else np.int64(-1)
    count = np.int64(0)
    while at < end:
        _, at = read_varint(data, at, end)
        if at < 0:
            return np.int64(-1)
        count += 1
    return count


@inner
def forget_row(table: Longs, row: Number, found: Bytes, counts: Longs) -> None:
    """Take back what a message has put into the columns before its fault."""
    for i in range(table.size // WORDS):
        place = table[i * WORDS + PLACE] + row
        if table[i * WORDS + REPEATED]:
            counts[place] = 0
        else:
            found[place] = 0


@inner
def is_unknown(table: Longs, base: Number, closed: Longs, value: Number) -> Number:
    """Return 1 if a number is unknown to the closed enum of its field; it counts as an unknown field."""
    count = table[base + CLOSED_COUNT]
    if count == 0:
        return 0
    number = np.int64(np.int32(value))
    for i in range(table[base + CLOSED], table[base + CLOSED] + count):
        if closed[i] == number:
            return 0
    return 1


@inner
def take_value(
    data: Bytes,
    table: Longs,
    field: Number,
    row: Number,
    value: Number,
    length: Number,
    members: Longs,
    found: Bytes,
    values: Longs,
    lengths: Longs,
) -> Number:
    """Put the value of a singular field into the columns, in place of the one that came before, of this field
    or its oneof. Return the result of the message: a text that is replaced has to be one, too.
    """
    base = field * WORDS
    oneof = table[base + ONEOF]
    before = field
    if oneof >= 0:
        before = members[oneof]
        members[oneof] = field
    if before >= 0:
        earlier = before * WORDS
        place = table[earlier + PLACE] + row
        if found[place] & PRESENT:
            if table[earlier + TEXT]:
                start = address_of(data) + values[place]
                if is_utf8(start, start + lengths[table[earlier + LENGTHS] + row]) == 0:
                    return np.int64(BAD_TEXT)
            found[place] = REPLACED
    place = table[base + PLACE] + row
    found[place] |= PRESENT
    values[place] = value
    if table[base + WIRE] == LENGTH:
        lengths[table[base + LENGTHS] + row] = length
    return np.int64(GOOD)


@inner
def scan_message(
    data: Bytes,
    at: Number,
    end: Number,
    row: Number,
    table: Longs,
    closed: Longs,
    members: Longs,
    found: Bytes,
    values: Longs,
    lengths: Longs,
    counts: Longs,
) -> Number:
    """Read one message for ``scan_messages``, and return its result."""
    for i in range(members.size):
        members[i] = -1
    guess = np.int64(0)
    while at < end:
        number, wire, value, length, at = read_field(data, at, end)
        if at < 0:
            return -at
        field = find_field(table, number, guess)
        if field < 0:
            continue
        base = field * WORDS
        guess = field + 1 - table[base + REPEATED]
        if wire != table[base + WIRE] and (wire != LENGTH or not table[base + REPEATED]):
            continue
        if not table[base + REPEATED]:
            if is_unknown(table, base, closed, value):
                continue
            result = take_value(data, table, field, row, value, length, members, found, values, lengths)
            if result != GOOD:
                return result
            continue
        count = np.int64(1)
        if wire != table[base + WIRE]:
            count = count_packed(data, value, value + length, table[base + WIRE])
            if count < 0:
                return np.int64(TRUNCATED)
        counts[table[base + PLACE] + row] += count
    return np.int64(GOOD)


@kernel(BYTES, I64S, I64S, I64S, I64S, I64S_OUT, BYTES_OUT, I64S_OUT, I64S_OUT, I64S_OUT, I64S_OUT)
def scan_messages(
    data: Bytes,
    starts: Longs,
    ends: Longs,
    table: Longs,
    closed: Longs,
    members: Longs,
    found: Bytes,
    values: Longs,
    lengths: Longs,
    counts: Longs,
    results: Longs,
) -> Number:
    """Read the singular fields of messages, and count the items of the repeated ones. Return the number of
    bad messages, of which the columns have nothing; ``results`` has why.

    A start of -1 is no message. ``members`` has room for the current member of each oneof. ``found`` and
    ``counts`` are zero before. Of a field that is there several times the last one counts.
    """
    bad = np.int64(0)
    for row in range(starts.size):
        results[row] = GOOD
        if starts[row] < 0:
            continue
        if ends[row] > data.size or ends[row] < starts[row]:
            return np.int64(-1)
        results[row] = scan_message(
            data, starts[row], ends[row], row, table, closed, members, found, values, lengths, counts
        )
        if results[row] != GOOD:
            bad += 1
            forget_row(table, row, found, counts)
    return bad


@kernel(BYTES, I64S, I64S, I64S, I64S, I64S_OUT, I64S_OUT, I64S_OUT)
def read_items(
    data: Bytes,
    starts: Longs,
    ends: Longs,
    table: Longs,
    results: Longs,
    places: Longs,
    values: Longs,
    lengths: Longs,
) -> Number:
    """Write the items of the repeated fields, after ``scan_messages`` with the same arguments.

    ``places``: in the place of ``counts``, the first item of each message in ``values`` and ``lengths``.
    """
    for row in range(starts.size):
        at = starts[row]
        end = ends[row]
        if at < 0 or results[row] != GOOD:
            continue
        guess = np.int64(0)
        while at < end:
            number, wire, value, length, at = read_field(data, at, end)
            if at < 0:
                return np.int64(-1)
            field = find_field(table, number, guess)
            if field < 0:
                continue
            base = field * WORDS
            guess = field
            if not table[base + REPEATED]:
                guess += 1
                continue
            place = table[base + PLACE] + row
            item = places[place]
            if wire == table[base + WIRE]:
                if item >= values.size:
                    return np.int64(-1)
                values[item] = value
                lengths[item] = length
                places[place] = item + 1
            elif wire == LENGTH:
                packed_end = value + length
                while value < packed_end and value >= 0:
                    if item >= values.size:
                        return np.int64(-1)
                    values[item], _, value = read_value(data, value, packed_end, table[base + WIRE])
                    item += 1
                places[place] = item
                guess += 1
    return np.int64(decode_status.END)


@kernel(BYTES, I64S, I64S, I32S_OUT, BYTES_OUT)
def gather_bytes(data: Bytes, starts: Longs, lengths: Longs, ends: Ints, out: Bytes) -> Number:
    """Copy pieces of ``data`` to a column of bytes; a negative length is null. ``ends`` begins with 0."""
    at = np.int64(0)
    for row in range(starts.size):
        length = lengths[row]
        if length > 0:
            start = starts[row]
            if start < 0 or length > data.size - start or length > out.size - at:
                return np.int64(-1)
            copy_bytes(out, at, data, start, length)
            at += length
        ends[row + 1] = at
    return np.int64(decode_status.END)


@inner
def write_varint(out: Bytes, at: Number, number: Number) -> Number:
    """Write a number, and return its end."""
    left = np.uint64(number)
    while left >= np.uint64(128):
        out[at] = np.uint8(left & np.uint64(127) | np.uint64(128))
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@kernel(I64S, BYTES, BYTES, I64, I32S_OUT, BYTES_OUT)
def write_numbers(numbers: Longs, valid: Bytes, tag: Bytes, width: Number, ends: Ints, out: Bytes) -> Number:
    """Write a field for each valid number, ``tag`` first. width: its bytes; 0: a varint.

    ``out`` has room for the tag and ten bytes for each number. Return the bytes used.
    """
    at = np.int64(0)
    if out.size < numbers.size * (tag.size + MAX_VARINT_BYTES):
        return np.int64(-1)
    for row in range(numbers.size):
        if valid[row]:
            copy_bytes(out, at, tag, 0, tag.size)
            at += tag.size
            if width == 0:
                at = write_varint(out, at, numbers[row])
            else:
                for i in range(width):
                    out[at + i] = np.uint8(numbers[row] >> (8 * i) & 255)
                at += width
        ends[row + 1] = at
    return at


@kernel(BYTES, I64S, I64S, BYTES, I32S_OUT, BYTES_OUT)
def write_pieces(data: Bytes, starts: Longs, lengths: Longs, tag: Bytes, ends: Ints, out: Bytes) -> Number:
    """Write a field of wire type LENGTH for each piece of ``data``; a negative length is none.

    ``out`` has room for the pieces, and the tag and ten bytes for each. Return the bytes used.
    """
    at = np.int64(0)
    for row in range(starts.size):
        length = lengths[row]
        if length >= 0:
            start = starts[row]
            room = out.size - at - tag.size - MAX_VARINT_BYTES
            if start < 0 or length > data.size - start or length > room:
                return np.int64(-1)
            copy_bytes(out, at, tag, 0, tag.size)
            at = write_varint(out, at + tag.size, length)
            copy_bytes(out, at, data, start, length)
            at += length
        ends[row + 1] = at
    return at
