"""Kernels to validate, change and build message sets of magic 0 and 1, and to assign offsets."""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.entries import (
    WHOLE,
    compression,
    entry_end,
    fields,
    is_message_damaged,
    load_i32,
    load_i64,
    message_timestamp,
    seal_batch,
    seal_message,
)
from minikafka.records.kernels.jit import copy_bytes, inner, kernel, store_u32, store_u64
from minikafka.records.kernels.signatures import (
    BYTES,
    BYTES_OUT,
    I32S,
    I64,
    I64S,
    I64S_OUT,
    TABLES,
    Bytes,
    Ints,
    Longs,
    Number,
    Tables,
)

# Places in the ``state`` of validate_run, survey_wrappers and check_contents.
POSITION = 0  # of the next entry; in and out
COUNT = 1  # messages checked; in and out
MAX_TIMESTAMP = 2  # in and out
STAMPED = 3  # magic 1 messages checked; in and out
CONSECUTIVE = 4  # 0 once an offset was not COUNT; in and out
MAX_MESSAGE_BYTES = 5  # of an entry with its offset and size
KEY_NEEDED = 6  # 0 or 1
EARLIEST = 7  # allowed timestamps of magic 1, both ends included
LATEST = 8
INNER = 9  # 0 or 1: the content of a wrapper
WRAPPER_MAGIC = 10
MAX_AT = 11  # number of messages before the first with MAX_TIMESTAMP; in and out
STOP = 12  # of check_contents
# Counters of check_contents; in and out.
WRAPPED = 13  # messages in wrappers
GAPS = 14  # wrappers of magic 1 whose inner offsets are not 0, 1, 2 …
ABSOLUTE = 15  # wrappers of magic 0
ABSOLUTE_BYTES = 16  # their content
MISTIMED = 17  # wrappers of magic 1 with another timestamp than the largest of their messages
CODECS = 18  # a bit for each codec of a wrapper
STATE_SIZE = 19


@inner
def note_timestamp(state: Longs, timestamp: Number) -> None:
    """Note the timestamp of the message with number COUNT."""
    if timestamp > state[MAX_TIMESTAMP]:
        state[MAX_TIMESTAMP] = timestamp
        state[MAX_AT] = state[COUNT]


@inner
def check_entry(data: Bytes, tables: Tables, state: Longs, position: Number) -> tuple[Number, Number, Number]:
    """Return ``(code, end, key_length)`` of a produced entry at ``position``: WHOLE, WRAPPER or its fault."""
    code, end = entry_end(data, position)
    if code == decode_status.BATCH and state[INNER]:
        code = decode_status.INNER_MAGIC
    if code != WHOLE:
        return code, end, 0
    magic = data[position + layout.MAGIC_AT]
    attributes = data[position + layout.MESSAGE_ATTRIBUTES_AT]
    if state[INNER] and magic != state[WRAPPER_MAGIC]:
        return decode_status.INNER_MAGIC, end, 0
    if end - position > state[MAX_MESSAGE_BYTES]:
        return decode_status.TOO_LARGE, end, 0
    if is_message_damaged(data, tables, position, end):
        return decode_status.BAD_CRC, end, 0
    code, _, key_length, _, _ = fields(data, position, end)
    if code != WHOLE:
        return code, end, 0
    # Inside a wrapper the bit is ignored: the wrapper's bit applies to all messages.
    if magic == 1 and attributes & layout.APPEND_TIME_BIT and not state[INNER]:
        return decode_status.TIMESTAMP_TYPE, end, 0
    return compression(data, position, state[INNER]), end, key_length


@inner
def check_messages(data: Bytes, tables: Tables, state: Longs) -> Number:
    """Do the work of ``validate_run``."""
    position = state[POSITION]
    while True:
        code, end, key_length = check_entry(data, tables, state, position)
        if code != WHOLE:
            break
        if state[KEY_NEEDED] and key_length < 0:
            code = decode_status.NO_KEY
            break
        if data[position + layout.MAGIC_AT] == 1:
            timestamp = load_i64(data, position + layout.MESSAGE_TIMESTAMP_AT)
            if timestamp < state[EARLIEST] or timestamp > state[LATEST]:
                code = decode_status.TIMESTAMP_RANGE
                break
            note_timestamp(state, timestamp)
            state[STAMPED] += 1
        if load_i64(data, position) != state[COUNT]:
            state[CONSECUTIVE] = 0
        state[COUNT] += 1
        position = end
    state[POSITION] = position
    return code


@kernel(BYTES, TABLES, I64S_OUT)
def validate_run(data: Bytes, tables: Tables, state: Longs) -> Number:
    """Validate produced entries up to the end, a wrapper (which is validated itself), a batch (which is not)
    or the first fault.

    POSITION is then that of the entry at which the run stopped.
    """
    return check_messages(data, tables, state)


# Fields of a row of ``survey_wrappers``, which describes a wrapper.
WRAPPER_AT = 0  # its position
WRAPPER_SIZE = 1  # with offset and size
WRAPPER_FORMAT = 2  # its magic
WRAPPER_CODEC = 3
WRAPPER_VALUE = 4  # position of the content relative to the wrapper's, -1 if there is none
WRAPPER_TIMESTAMP = 5  # its own; after ``check_contents`` the largest of its messages. That also sets:
WRAPPER_COUNT = 6  # the number of its messages
WRAPPER_CONSECUTIVE = 7  # 1 if their offsets are 0, 1, 2 …
WRAPPER_CONTENT = 8  # their bytes
WRAPPER_FIELDS = 9


@kernel(BYTES, TABLES, I64S_OUT, I64S_OUT)
def survey_wrappers(data: Bytes, tables: Tables, state: Longs, rows: Longs) -> Number:
    """Return the number of consecutive valid wrappers at POSITION, up to the number of rows. The state does
    not change."""
    position = state[POSITION]
    found = np.int64(0)
    while rows.size - found * WRAPPER_FIELDS >= WRAPPER_FIELDS:
        code, end, _ = check_entry(data, tables, state, position)
        if code != decode_status.WRAPPER:
            break
        _, _, _, value_at, value_length = fields(data, position, end)
        row = found * WRAPPER_FIELDS
        rows[row + WRAPPER_AT] = position
        rows[row + WRAPPER_SIZE] = end - position
        rows[row + WRAPPER_FORMAT] = data[position + layout.MAGIC_AT]
        rows[row + WRAPPER_CODEC] = data[position + layout.MESSAGE_ATTRIBUTES_AT] & layout.CODEC_MASK
        rows[row + WRAPPER_VALUE] = value_at - position if value_length >= 0 else -1
        rows[row + WRAPPER_TIMESTAMP] = message_timestamp(data, position)
        found += 1
        position = end
    return found


@kernel(BYTES, TABLES, I64S, I64S_OUT, I64S_OUT, I64S_OUT)
def check_contents(
    data: Bytes, tables: Tables, ends: Longs, inner_state: Longs, rows: Longs, state: Longs
) -> Number:
    """Validate the concatenated contents of some wrappers in ``data``, complete their rows, and count them in
    ``state``, whose POSITION is then after them. Return the number of valid wrappers. For the next one, STOP
    in ``inner_state`` is the fault at its POSITION, or COUNT is 0 if it has no messages.

    ``inner_state`` contains the limits.
    """
    begin = np.int64(0)
    inner_state[INNER] = 1
    inner_state[MAX_MESSAGE_BYTES] = 0x7FFFFFFFFFFFFFFF
    for number in range(ends.size):
        row = number * WRAPPER_FIELDS
        magic = rows[row + WRAPPER_FORMAT]
        inner_state[POSITION] = 0
        inner_state[COUNT] = 0
        inner_state[MAX_TIMESTAMP] = -1
        inner_state[CONSECUTIVE] = 1
        inner_state[WRAPPER_MAGIC] = magic
        inner_state[STOP] = check_messages(data[begin : ends[number]], tables, inner_state)
        count = inner_state[COUNT]
        if inner_state[STOP] != decode_status.END or count == 0:
            return np.int64(number)
        newest = inner_state[MAX_TIMESTAMP]
        size = ends[number] - begin
        state[WRAPPED] += count
        state[COUNT] += count
        if newest > state[MAX_TIMESTAMP]:
            # For the log a wrapper is one entry, with its last offset.
            state[MAX_TIMESTAMP] = newest
            state[MAX_AT] = state[COUNT] - 1
        if magic == 0:
            state[ABSOLUTE] += 1
            state[ABSOLUTE_BYTES] += size
        else:
            state[STAMPED] += 1
            state[GAPS] += inner_state[CONSECUTIVE] == 0
            state[MISTIMED] += newest != rows[row + WRAPPER_TIMESTAMP]
        state[CODECS] |= np.int64(1) << rows[row + WRAPPER_CODEC]
        state[POSITION] = rows[row + WRAPPER_AT] + rows[row + WRAPPER_SIZE]
        rows[row + WRAPPER_TIMESTAMP] = newest
        rows[row + WRAPPER_COUNT] = count
        rows[row + WRAPPER_CONSECUTIVE] = inner_state[CONSECUTIVE]
        rows[row + WRAPPER_CONTENT] = size
        begin = ends[number]
    return np.int64(ends.size)


@kernel(BYTES_OUT, TABLES, I64S)
def stamp_wrappers(data: Bytes, tables: Tables, rows: Longs) -> Number:
    """Write the largest timestamp of its messages into every wrapper of magic 1 with another timestamp.
    Return the number of changed wrappers.
    """
    changed = np.int64(0)
    for row in range(0, rows.size, WRAPPER_FIELDS):
        position = rows[row + WRAPPER_AT]
        if rows[row + WRAPPER_FORMAT] == 0:
            continue
        if load_i64(data, position + layout.MESSAGE_TIMESTAMP_AT) == rows[row + WRAPPER_TIMESTAMP]:
            continue
        store_u64(data, position + layout.MESSAGE_TIMESTAMP_AT, np.uint64(rows[row + WRAPPER_TIMESTAMP]))
        end = position + rows[row + WRAPPER_SIZE]
        seal_message(data, tables, position, end)
        changed += 1
    return changed


# Places in the ``marks`` of assign_offsets, and of a mark.
MARKS_COUNT = 0
MARKS_AT = 1  # of the first mark
MARK_OFFSET = 0
MARK_POSITION = 1
MARK_FIELDS = 2


@kernel(BYTES_OUT, I64, I64S, I64, I64, I64S_OUT)
def assign_offsets(
    data: Bytes,
    base_offset: Number,
    wrapper_counts: Longs,
    leader_epoch: Number,
    interval: Number,
    marks: Longs,
) -> Number:
    """Write consecutive offsets into a valid set. Return the next one, or -1 if the set is not valid.

    The ``k``-th wrapper has ``wrapper_counts[k]`` messages and gets the offset of its last. Batches get the
    leader epoch too.

    ``marks`` gets, as far as there is room, the last offset and the position of the first entry, and of each
    entry more than ``interval`` bytes after the last marked one.
    """
    position = np.int64(0)
    offset = np.int64(base_offset)
    wrappers = 0
    marked = np.int64(0)
    mark_from = np.int64(0)
    code, end = entry_end(data, position)
    while code in (WHOLE, decode_status.BATCH):
        first = offset
        if code == decode_status.BATCH:
            store_u32(data, position + layout.LEADER_EPOCH_AT, np.uint32(np.int32(leader_epoch)))
            offset += load_i32(data, position + layout.LAST_DELTA_AT)
        else:
            if (
                data[position + layout.MESSAGE_ATTRIBUTES_AT] & layout.CODEC_MASK
                and wrappers < wrapper_counts.size
            ):
                offset += wrapper_counts[wrappers] - 1
                wrappers += 1
            first = offset
        store_u64(data, position, np.uint64(first))
        mark_at = MARKS_AT + MARK_FIELDS * marked
        if position >= mark_from and mark_at + MARK_FIELDS <= marks.size:
            marks[mark_at + MARK_OFFSET] = offset
            marks[mark_at + MARK_POSITION] = position
            marked += 1
            mark_from = position + interval + 1
        offset += 1
        position = end
        code, end = entry_end(data, position)
    if marks.size:
        marks[MARKS_COUNT] = marked
    return offset if code == decode_status.END else np.int64(-1)


@kernel(BYTES_OUT, TABLES, I64)
def stamp_append_time(data: Bytes, tables: Tables, timestamp: Number) -> Number:
    """Write the timestamp and the type "log append time" into every entry of a valid set, except magic 0."""
    position = np.int64(0)
    code, end = entry_end(data, position)
    while code in (WHOLE, decode_status.BATCH):
        if code == decode_status.BATCH:
            data[position + layout.BATCH_FLAGS_AT] |= layout.APPEND_TIME_BIT
            store_u64(data, position + layout.MAX_TIMESTAMP_AT, np.uint64(timestamp))
            seal_batch(data, tables, position, end)
        elif data[position + layout.MAGIC_AT] == 1:
            data[position + layout.MESSAGE_ATTRIBUTES_AT] |= layout.APPEND_TIME_BIT
            store_u64(data, position + layout.MESSAGE_TIMESTAMP_AT, np.uint64(timestamp))
            seal_message(data, tables, position, end)
        position = end
        code, end = entry_end(data, position)
    return code


@inner
def write_head(
    out: Bytes, at: Number, size: Number, magic: Number, attributes: Number, timestamp: Number
) -> Number:
    """Write size, magic, attributes and timestamp of an entry at ``at``. Return the position of the key."""
    store_u32(out, at + layout.SIZE_AT, np.uint32(size))
    out[at + layout.MAGIC_AT] = magic
    out[at + layout.MESSAGE_ATTRIBUTES_AT] = attributes
    if magic == 0:
        return at + layout.MESSAGE_HEADER_BYTES
    store_u64(out, at + layout.MESSAGE_TIMESTAMP_AT, np.uint64(timestamp))
    return at + layout.MESSAGE_HEADER_BYTES + layout.TIMESTAMP_BYTES


@inner
def write_field(out: Bytes, at: Number, data: Bytes, start: Number, length: Number) -> Number:
    """Write a nullable field (length -1 for null) at ``at``. Return the position after it."""
    store_u32(out, at, np.uint32(np.int32(length)))
    at += layout.LENGTH_BYTES
    if length > 0:
        copy_bytes(out, at, data, start, length)
        return at + length
    return at


@inner
def cell(row: Number, offsets: Ints, data: Bytes, valid: Bytes, shift: Number) -> tuple[Number, Number]:
    """Return ``(start, length)`` of a row of an Arrow column; length -1 for null, -2 for an invalid row."""
    if offsets.size == 0:
        return np.int64(0), np.int64(-1)
    if row < 0 or row >= offsets.size - 1:
        return np.int64(0), np.int64(-2)
    bit = row + shift
    if valid.size > 0 and valid[bit >> 3] >> (bit & 7) & 1 == 0:
        return np.int64(0), np.int64(-1)
    start = np.int64(offsets[row])
    end = np.int64(offsets[row + 1])
    if start < 0 or end < start or end > data.size:
        return np.int64(0), np.int64(-2)
    return start, end - start


# Places in the ``state`` of encode_run, and of ``batches.encode_records``.
ENCODE_NEXT = 0  # index into ``rows`` of the next row; in and out
ENCODE_BYTES = 1  # bytes of ``out`` in use; in and out
ENCODE_OFFSET = 2  # of the next message, or offset delta of the next record; in and out
ENCODE_MAX_TIMESTAMP = 3  # in and out
ENCODE_MAGIC = 4
ENCODE_KEY_SHIFT = 5  # first bit of the keys' bitmap
ENCODE_VALUE_SHIFT = 6
ENCODE_WANTED = 7  # for VALUES_FULL: size of the entry or record that did not fit
ENCODE_BASE_TIMESTAMP = 8  # of a batch: that of its first record; out
ENCODE_STATE_SIZE = 9


@kernel(I64S, I64S, I32S, BYTES, BYTES, I32S, BYTES, BYTES, TABLES, BYTES_OUT, I64S_OUT)
def encode_run(
    rows: Longs,
    timestamps: Longs,
    key_offsets: Ints,
    keys: Bytes,
    keys_valid: Bytes,
    value_offsets: Ints,
    values: Bytes,
    values_valid: Bytes,
    tables: Tables,
    out: Bytes,
    state: Longs,
) -> Number:
    """Write the chosen rows as entries until ``out`` is full (VALUES_FULL) or all are written (END).

    A column without offsets is all null; an empty bitmap means that nothing is null.
    """
    at = state[ENCODE_BYTES]
    magic = state[ENCODE_MAGIC]
    head = layout.MIN_MESSAGE_BYTES + layout.TIMESTAMP_BYTES * magic
    code = decode_status.END
    while state[ENCODE_NEXT] < rows.size:
        row = rows[state[ENCODE_NEXT]]
        key_at, key_length = cell(row, key_offsets, keys, keys_valid, state[ENCODE_KEY_SHIFT])
        value_at, value_length = cell(row, value_offsets, values, values_valid, state[ENCODE_VALUE_SHIFT])
        if key_length == -2 or value_length == -2 or row < 0 or row >= timestamps.size:
            code = decode_status.BAD_ROW
            break
        size = head + max(key_length, 0) + max(value_length, 0)
        if size > out.size - at:
            state[ENCODE_WANTED] = size
            code = decode_status.VALUES_FULL
            break
        store_u64(out, at, np.uint64(state[ENCODE_OFFSET]))
        after = write_head(out, at, size - layout.ENTRY_HEADER_BYTES, magic, 0, timestamps[row])
        after = write_field(out, after, keys, key_at, key_length)
        after = write_field(out, after, values, value_at, value_length)
        seal_message(out, tables, at, after)
        state[ENCODE_MAX_TIMESTAMP] = max(state[ENCODE_MAX_TIMESTAMP], timestamps[row])
        state[ENCODE_OFFSET] += 1
        state[ENCODE_NEXT] += 1
        at = after
    state[ENCODE_BYTES] = at
    return code


# Places in the ``state`` of convert_run.
CONVERT_POSITION = 0  # of the next entry; in and out
CONVERT_BYTES = 1  # bytes of ``out`` in use; in and out
CONVERT_SHIFT = 2  # added to every offset
CONVERT_MAGIC = 3  # of the output, 0 or 1
CONVERT_MAX_MESSAGE_BYTES = 4  # of an entry that is written
CONVERT_COUNT = 5  # messages written; in and out
CONVERT_MAX_TIMESTAMP = 6  # of those with a timestamp; in and out
CONVERT_MAX_AT = 7  # number of messages before the first with that timestamp; in and out
CONVERT_STATE_SIZE = 8


@kernel(BYTES, TABLES, BYTES_OUT, I64S_OUT)
def convert_run(data: Bytes, tables: Tables, out: Bytes, state: Longs) -> Number:
    """Copy messages to ``out`` as messages of one magic, with attributes 0; stop at a wrapper or batch.

    A message without timestamp gets -1. ``out`` has room for 8 bytes more per message than ``data``.
    """
    position = state[CONVERT_POSITION]
    at = state[CONVERT_BYTES]
    magic = state[CONVERT_MAGIC]
    code = WHOLE
    while code == WHOLE:
        code, end = entry_end(data, position)
        if code != WHOLE:
            break
        # A new checksum of damaged bytes would hide the damage.
        if is_message_damaged(data, tables, position, end):
            code = decode_status.BAD_CRC
            break
        code, key_at, _, _, _ = fields(data, position, end)
        if code != WHOLE:
            break
        code = compression(data, position, 0)
        if code != WHOLE:
            break
        body_at = key_at - layout.LENGTH_BYTES
        body = end - body_at
        size = layout.MESSAGE_HEADER_BYTES + layout.TIMESTAMP_BYTES * magic + body
        if size > state[CONVERT_MAX_MESSAGE_BYTES]:
            code = decode_status.TOO_LARGE
            break
        if size > out.size - at:
            code = decode_status.VALUES_FULL
            break
        timestamp = message_timestamp(data, position)
        offset = load_i64(data, position) + state[CONVERT_SHIFT]
        store_u64(out, at, np.uint64(offset))
        after = write_head(out, at, size - layout.ENTRY_HEADER_BYTES, magic, np.int64(0), timestamp)
        copy_bytes(out, after, data, body_at, body)
        seal_message(out, tables, at, after + body)
        if magic == 1 and timestamp > state[CONVERT_MAX_TIMESTAMP]:
            state[CONVERT_MAX_TIMESTAMP] = timestamp
            state[CONVERT_MAX_AT] = state[CONVERT_COUNT]
        state[CONVERT_COUNT] += 1
        at += size
        position = end
    state[CONVERT_POSITION] = position
    state[CONVERT_BYTES] = at
    return code
