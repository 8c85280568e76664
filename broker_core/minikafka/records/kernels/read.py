"""Kernels that decode message sets of magic 0 and 1, and that scan or search entries of every format."""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.entries import (
    WHOLE,
    compression,
    entry_end,
    fields,
    is_batch_damaged,
    is_message_damaged,
    load_i32,
    load_i64,
    message_timestamp,
)
from minikafka.records.kernels.jit import copy_bytes, inner, kernel
from minikafka.records.kernels.record import read_headers, read_record
from minikafka.records.kernels.signatures import (
    BYTES,
    BYTES_OUT,
    I8S_OUT,
    I32S_OUT,
    I64,
    I64S_OUT,
    TABLES,
    Bytes,
    Ints,
    Longs,
    Number,
    Shorts,
    Tables,
)

BELOW = -2

# Places in the ``state`` of decode_run.
POSITION = 0  # of the next entry; in and out
ROWS = 1  # rows written; in and out
KEY_BYTES = 2  # bytes of keys written; in and out
VALUE_BYTES = 3  # bytes of values written; in and out
NEXT_OFFSET = 4  # the largest processed offset + 1; in and out
NULL_KEYS = 5  # in and out
NULL_VALUES = 6  # in and out
HEADER_BYTES = 7  # bytes of headers written; in and out
HEADERS = 8  # their number, and the bytes of their names and values; in and out
NAME_BYTES = 9
CONTENT_BYTES = 10
COUNTERS = 10  # from ROWS on
START_OFFSET = 11  # rows below it are left out
END_OFFSET = 12  # the run ends at the first row that is not below it
CHECK_CRC = 13  # 0 or 1
INNER = 14  # -1 outside a wrapper, else its timestamp type: 0, or 1 if its timestamp applies to all messages
WRAPPER_MAGIC = 15
WRAPPER_TIMESTAMP = 16
OFFSET_SHIFT = 17  # added to every offset that is read
# For magic 2 only (``batches.decode_batches``), the state of the batch that was entered.
WITH_HEADERS = 18  # 0 or 1: write the headers
BATCH_OPENED = 19  # 1 if the records are in ``content``, decompressed; in and out
RECORD_AT = 20  # of the next record, -1 outside of a batch
RECORDS_END = 21
RECORDS_LEFT = 22
BATCH_BASE = 23
BATCH_LAST = 24
BATCH_END = 25
BATCH_TIMESTAMP = 26  # added to every timestamp delta; with append time it is the timestamp
BATCH_TYPE = 27
BATCH_CONTROL = 28
DELTA_BEFORE = 29  # offset delta of the record before
COUNTERS_BEFORE = 30  # the counters when it was entered
# For every magic:
WITH_KEYS = 40  # 0 or 1: write the keys, and the values; else their columns are not touched
WITH_VALUES = 41
STATE_SIZE = 42


@inner
def timestamp_of(data: Bytes, position: Number, state: Longs) -> tuple[Number, Number]:
    """Return timestamp and timestamp type of a validated entry."""
    if data[position + layout.MAGIC_AT] == 0:
        return -1, -1
    if state[INNER] == 1:
        return state[WRAPPER_TIMESTAMP], 1
    own_type = np.int64(data[position + layout.MESSAGE_ATTRIBUTES_AT] & layout.APPEND_TIME_BIT != 0)
    return load_i64(data, position + layout.MESSAGE_TIMESTAMP_AT), 0 if state[INNER] == 0 else own_type


@inner
def put_item(
    column: Bytes,
    ends: Ints,
    present: Bytes,
    row: Number,
    end: Number,
    data: Bytes,
    at: Number,
    length: Number,
) -> Number:
    """Append a key or value (length -1 for null) to its column, as item ``row``. Return the new end."""
    if length > 0:
        copy_bytes(column, end, data, at, length)
        end += length
    present[row] = length >= 0
    ends[row + 1] = end
    return end


@inner
def next_message(
    data: Bytes, tables: Tables, state: Longs, position: Number
) -> tuple[Number, Number, Number, Number, Number, Number, Number]:
    """Return ``(code, end, offset, key_at, key_length, value_at, value_length)`` of the entry at
    ``position``.

    WHOLE for a message in the range, BELOW for one before START_OFFSET, else the code at which the run ends.
    """
    code, end = entry_end(data, position)
    if code != WHOLE:
        return code, end, 0, 0, 0, 0, 0
    offset = load_i64(data, position) + state[OFFSET_SHIFT]
    codec = np.int64(data[position + layout.MESSAGE_ATTRIBUTES_AT]) & layout.CODEC_MASK
    if state[INNER] >= 0 and data[position + layout.MAGIC_AT] != state[WRAPPER_MAGIC]:
        return decode_status.INNER_MAGIC, end, offset, 0, 0, 0, 0
    if offset < state[START_OFFSET]:
        # The offset of a wrapper is that of its last message, so all of its messages are below START_OFFSET.
        return BELOW, end, offset, 0, 0, 0, 0
    if offset >= state[END_OFFSET] and codec == 0:
        return decode_status.REACHED_END_OFFSET, end, offset, 0, 0, 0, 0
    if state[CHECK_CRC] and is_message_damaged(data, tables, position, end):
        return decode_status.BAD_CRC, end, offset, 0, 0, 0, 0
    code, key_at, key_length, value_at, value_length = fields(data, position, end)
    if code == WHOLE:
        code = compression(data, position, state[INNER] >= 0)
    return code, end, offset, key_at, key_length, value_at, value_length


@kernel(
    BYTES,
    TABLES,
    I64S_OUT,
    I64S_OUT,
    I64S_OUT,
    I8S_OUT,
    I32S_OUT,
    I32S_OUT,
    BYTES_OUT,
    BYTES_OUT,
    BYTES_OUT,
    BYTES_OUT,
)
def decode_run(
    data: Bytes,
    tables: Tables,
    state: Longs,
    offsets: Longs,
    timestamps: Longs,
    types: Shorts,
    key_ends: Ints,
    value_ends: Ints,
    has_key: Bytes,
    has_value: Bytes,
    keys: Bytes,
    values: Bytes,
) -> Number:
    """Append the messages from POSITION on to the columns, until the returned code.

    Row ``i`` of the column ``keys`` is ``keys[key_ends[i]:key_ends[i + 1]]``; ``has_key[i]`` is 0 for null.
    On every return, POSITION is that of the first entry that is not in the columns; the columns after ROWS
    are undefined.
    """
    position = state[POSITION]
    row = state[ROWS]
    key_end = state[KEY_BYTES]
    value_end = state[VALUE_BYTES]
    next_offset = state[NEXT_OFFSET]
    while True:
        code, end, offset, key_at, key_length, value_at, value_length = next_message(
            data, tables, state, position
        )
        if code == BELOW:
            next_offset = max(next_offset, offset + 1)
            position = end
            continue
        if code != WHOLE:
            break
        if row >= offsets.size:
            code = decode_status.ROWS_FULL
            break
        if state[WITH_KEYS] and max(key_length, 0) > keys.size - key_end:
            code = decode_status.KEYS_FULL
            break
        if state[WITH_VALUES] and max(value_length, 0) > values.size - value_end:
            code = decode_status.VALUES_FULL
            break
        offsets[row] = offset
        timestamps[row], types[row] = timestamp_of(data, position, state)
        if state[WITH_KEYS]:
            key_end = put_item(keys, key_ends, has_key, row, key_end, data, key_at, key_length)
            state[NULL_KEYS] += key_length < 0
        if state[WITH_VALUES]:
            value_end = put_item(values, value_ends, has_value, row, value_end, data, value_at, value_length)
            state[NULL_VALUES] += value_length < 0
        row += 1
        next_offset = max(next_offset, offset + 1)
        position = end
    state[POSITION] = position
    state[ROWS] = row
    state[KEY_BYTES] = key_end
    state[VALUE_BYTES] = value_end
    state[NEXT_OFFSET] = next_offset
    return code


@inner
def last_offset(data: Bytes, position: Number) -> Number:
    """Return the last offset of a whole entry: its offset in magic 0 and 1."""
    offset = load_i64(data, position)
    return (
        offset + load_i32(data, position + layout.LAST_DELTA_AT)
        if data[position + layout.MAGIC_AT] == 2
        else offset
    )


@inner
def largest_timestamp(data: Bytes, position: Number) -> Number:
    """Return the largest timestamp of a whole entry, -1 in magic 0."""
    if data[position + layout.MAGIC_AT] == 2:
        return load_i64(data, position + layout.MAX_TIMESTAMP_AT)
    return message_timestamp(data, position)


@inner
def is_damaged(data: Bytes, tables: Tables, position: Number, end: Number) -> Number:
    """Return True if the checksum of a whole entry is wrong."""
    if data[position + layout.MAGIC_AT] == 2:
        return is_batch_damaged(data, tables, position, end)
    return is_message_damaged(data, tables, position, end)


# Places in the ``result`` of measure.
MEASURED_COUNT = 0
MEASURED_LAST = 1  # offset of the last entry, -1 for none
MEASURED_END = 2  # of the entries
MEASURED_SIZE = 3


@kernel(BYTES, I64S_OUT)
def measure(data: Bytes, result: Longs) -> Number:
    """Count the entries, and note the last one's offset and end.

    It is for the content of a wrapper, so a batch is INNER_MAGIC.
    """
    position = np.int64(0)
    count = 0
    last = np.int64(-1)
    code, end = entry_end(data, position)
    while code == WHOLE:
        last = load_i64(data, position)
        count += 1
        position = end
        code, end = entry_end(data, position)
    result[MEASURED_COUNT] = count
    result[MEASURED_LAST] = last
    result[MEASURED_END] = position
    return decode_status.INNER_MAGIC if code == decode_status.BATCH else code


SEARCH_POSITION = 0
"""The place in the ``result`` of find: in and out."""


@kernel(BYTES, I64, I64, I64S_OUT)
def find(data: Bytes, target_offset: Number, target_timestamp: Number, result: Longs) -> Number:
    """Find the first entry from SEARCH_POSITION on whose last offset and timestamp are not below the targets.

    Return FOUND, with its position there, or the code and position at which the search ended. Magic 0
    counts as timestamp -1.
    """
    position = result[SEARCH_POSITION]
    code, end = entry_end(data, position)
    while code in (WHOLE, decode_status.BATCH):
        if (
            last_offset(data, position) >= target_offset
            and largest_timestamp(data, position) >= target_timestamp
        ):
            code = decode_status.FOUND
            break
        position = end
        code, end = entry_end(data, position)
    result[SEARCH_POSITION] = position
    return code


# Places in the ``state`` of find_record.
FIND_AT = 0  # of the next record; in and out
FIND_LEFT = 1  # the expected number of records; in and out
FIND_BASE_OFFSET = 2
FIND_LAST_DELTA = 3
FIND_TIMESTAMP = 4  # added to every timestamp delta; with append time it is the timestamp
FIND_APPEND_TIME = 5  # 0 or 1
FIND_OLDEST = 6  # the earliest timestamp to find
FIND_LEAST = 7  # the lowest offset to find
FIND_DELTA = 8  # offset delta of the record before; in and out
FIND_DONE = 9  # 1 when a record was found, with these:
FOUND_OFFSET = 10
FOUND_TIMESTAMP = 11
FIND_STATE_SIZE = 12


@kernel(BYTES, I64S_OUT)
def find_record(data: Bytes, state: Longs) -> Number:
    """Check all records of a batch, and note the first match. Return END, or the first fault, whose position
    is FIND_AT."""
    while state[FIND_LEFT] > 0:
        code, after, timestamp, delta, _, _, _, _, headers_at = read_record(data, state[FIND_AT], data.size)
        if code != WHOLE:
            return code
        count, _, _ = read_headers(data, headers_at, after)
        if count < 0:
            return decode_status.BAD_HEADERS
        if delta <= state[FIND_DELTA] or delta > state[FIND_LAST_DELTA]:
            return decode_status.BAD_DELTA
        timestamp = state[FIND_TIMESTAMP] + (0 if state[FIND_APPEND_TIME] else timestamp)
        offset = state[FIND_BASE_OFFSET] + delta
        if not state[FIND_DONE] and timestamp >= state[FIND_OLDEST] and offset >= state[FIND_LEAST]:
            state[FIND_DONE] = 1
            state[FOUND_OFFSET] = offset
            state[FOUND_TIMESTAMP] = timestamp
        state[FIND_DELTA] = delta
        state[FIND_AT] = after
        state[FIND_LEFT] -= 1
    return decode_status.END if state[FIND_AT] == data.size else decode_status.BAD_COUNT


# Places in the ``state`` of scan_run.
SCAN_POSITION = 0  # of the next entry in the data; in and out
SCAN_NEXT_OFFSET = 1  # the smallest valid next offset; in and out
SCAN_LARGEST_OFFSET = 2  # the largest offset that the segment can hold
SCAN_COUNT = 3  # entries scanned
SCAN_MAX_TIMESTAMP = 4  # in and out
SCAN_INDEXED = 5  # position of the last indexed entry, relative to the data (negative: before it); in and out
SCAN_INTERVAL = 6  # bytes between indexed entries
SCAN_INDEX_COUNT = 7  # index entries written
SCAN_CHECK_CRC = 8
SCAN_WANTED = 9  # for PARTIAL: size of the incomplete entry, 0 if its size field is incomplete
SCAN_MAX_MAGIC = 10  # entries of a higher one are OTHER_MAGIC
SCAN_MAX_AT = 11  # last offset of the entry with that timestamp; in and out
SCAN_STATE_SIZE = 12
# Fields of an entry of its ``index``.
INDEX_OFFSET = 0  # last offset
INDEX_POSITION = 1
INDEX_MAX_TIMESTAMP = 2  # so far
INDEX_MAX_AT = 3  # last offset of the entry with that timestamp
INDEX_FIELDS = 4


@kernel(BYTES, TABLES, I64S_OUT, I64S_OUT)
def scan_run(data: Bytes, tables: Tables, state: Longs, index: Longs) -> Number:
    """Scan valid entries, and add one to ``index`` when it is more than the interval after the last one
    there.

    An entry of ``index`` has INDEX_FIELDS numbers. There is room for ``data.size // interval + 1``.
    """
    position = state[SCAN_POSITION]
    while True:
        code, end = entry_end(data, position)
        if code == decode_status.BATCH:
            code = WHOLE if state[SCAN_MAX_MAGIC] >= 2 else decode_status.OTHER_MAGIC
        if code != WHOLE:
            break
        if state[SCAN_CHECK_CRC] and is_damaged(data, tables, position, end):
            code = decode_status.BAD_CRC
            break
        first = load_i64(data, position)
        offset = last_offset(data, position)
        if first < state[SCAN_NEXT_OFFSET] or offset < first or offset > state[SCAN_LARGEST_OFFSET]:
            code = decode_status.OFFSET_ORDER
            break
        timestamp = largest_timestamp(data, position)
        if timestamp > state[SCAN_MAX_TIMESTAMP]:
            state[SCAN_MAX_TIMESTAMP] = timestamp
            state[SCAN_MAX_AT] = offset
        if position - state[SCAN_INDEXED] > state[SCAN_INTERVAL]:
            at = INDEX_FIELDS * state[SCAN_INDEX_COUNT]
            index[at + INDEX_OFFSET] = offset
            index[at + INDEX_POSITION] = position
            index[at + INDEX_MAX_TIMESTAMP] = state[SCAN_MAX_TIMESTAMP]
            index[at + INDEX_MAX_AT] = state[SCAN_MAX_AT]
            state[SCAN_INDEX_COUNT] += 1
            state[SCAN_INDEXED] = position
        state[SCAN_NEXT_OFFSET] = offset + 1
        state[SCAN_COUNT] += 1
        position = end
    state[SCAN_POSITION] = position
    state[SCAN_WANTED] = end - position if code == decode_status.PARTIAL and end else 0
    return code
