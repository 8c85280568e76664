"""Kernels that read message sets of magic 0 and 1, and that pass over or search entries of every format."""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status
from minikafka.records.kernels.crc import crc32, crc32c
from minikafka.records.kernels.jit import copy_bytes, inner, kernel, load_u32, load_u64
from minikafka.records.kernels.layout import BATCH, WHOLE, entry_end, fields, load_i32
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

END = decode_status.END
PARTIAL = decode_status.PARTIAL
REACHED_END_OFFSET = decode_status.REACHED_END_OFFSET
WRAPPER = decode_status.WRAPPER
ROWS_FULL = decode_status.ROWS_FULL
KEYS_FULL = decode_status.KEYS_FULL
VALUES_FULL = decode_status.VALUES_FULL
FOUND = decode_status.FOUND
BAD_CRC = decode_status.BAD_CRC
BAD_CODEC = decode_status.BAD_CODEC
OTHER_MAGIC = decode_status.OTHER_MAGIC
NESTED = decode_status.NESTED
INNER_MAGIC = decode_status.INNER_MAGIC
OFFSET_ORDER = decode_status.OFFSET_ORDER
BAD_HEADERS = decode_status.BAD_HEADERS
BAD_COUNT = decode_status.BAD_COUNT
BAD_DELTA = decode_status.BAD_DELTA
BELOW = -2

# Places in the ``state`` of decode_run.
POSITION = 0  # of the next entry; in and out
ROWS = 1  # rows written; in and out
KEY_BYTES = 2  # bytes of keys written; in and out
VALUE_BYTES = 3  # bytes of values written; in and out
NEXT_OFFSET = 4  # one more than the largest offset that was passed; in and out
NULL_KEYS = 5  # in and out
NULL_VALUES = 6  # in and out
HEADER_BYTES = 7  # bytes of headers written; in and out
HEADERS = 8  # their number, and the bytes of their names and values; in and out
NAME_BYTES = 9
CONTENT_BYTES = 10
COUNTERS = 10  # from ROWS on
START_OFFSET = 11  # rows below are left out
END_OFFSET = 12  # the run ends at a row that is not below
CHECK_CRC = 13  # 0 or 1
INNER = 14  # -1 outside of a wrapper, else its timestamp type: 0, or 1 when its timestamp stands for all
WRAPPER_MAGIC = 15
WRAPPER_TIMESTAMP = 16
OFFSET_SHIFT = 17  # added to every offset that is read
# Of magic 2 only (``batches.decode_batches``), what is known of the batch that was entered.
WITH_HEADERS = 18  # 0 or 1: write the headers
BATCH_OPENED = 19  # 1 when the data is what it holds, decompressed
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
COUNTERS_BEFORE = 30  # the counters where it was entered
STATE_SIZE = 40


@inner
def timestamp_of(data: Bytes, position: Number, state: Longs) -> tuple[Number, Number]:
    """Timestamp and its type of an entry whose fields are right."""
    if data[position + 16] == 0:
        return -1, -1
    if state[INNER] == 1:
        return state[WRAPPER_TIMESTAMP], 1
    own_type = np.int64(data[position + 17] >> 3 & 1)
    return np.int64(load_u64(data, position + 18)), 0 if state[INNER] == 0 else own_type


@inner
def next_message(
    data: Bytes, tables: Tables, state: Longs, position: Number
) -> tuple[Number, Number, Number, Number, Number, Number, Number]:
    """``(code, end, offset, key_at, key_length, value_at, value_length)`` of the entry at ``position``.

    WHOLE for a message that is wanted, BELOW for one before START_OFFSET, else why the run ends here.
    """
    code, end = entry_end(data, position)
    if code != WHOLE:
        return code, end, 0, 0, 0, 0, 0
    offset = np.int64(load_u64(data, position)) + state[OFFSET_SHIFT]
    codec = np.int64(data[position + 17]) & 7
    if state[INNER] >= 0 and data[position + 16] != state[WRAPPER_MAGIC]:
        return INNER_MAGIC, end, offset, 0, 0, 0, 0
    if offset < state[START_OFFSET]:
        # The offset of a wrapper is that of its last message: all of it lies below.
        return BELOW, end, offset, 0, 0, 0, 0
    if offset >= state[END_OFFSET] and codec == 0:
        return REACHED_END_OFFSET, end, offset, 0, 0, 0, 0
    if state[CHECK_CRC] and load_u32(data, position + 12) != crc32(tables, data, position + 16, end):
        return BAD_CRC, end, offset, 0, 0, 0, 0
    code, key_at, key_length, value_at, value_length = fields(data, position, end)
    if code == WHOLE and codec:
        code = BAD_CODEC if codec > 3 else NESTED if state[INNER] >= 0 else WRAPPER
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
    """Append the messages from POSITION on to the columns, until the returned code says why not further.

    Row ``i`` of the column ``keys`` is ``keys[key_ends[i]:key_ends[i + 1]]``; ``has_key[i]`` is 0 for null.
    On every return, POSITION is that of the first entry that is not in the columns; what lies behind ROWS is
    undefined.
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
            code = ROWS_FULL
            break
        if max(key_length, 0) > keys.size - key_end:
            code = KEYS_FULL
            break
        if max(value_length, 0) > values.size - value_end:
            code = VALUES_FULL
            break
        offsets[row] = offset
        timestamps[row], types[row] = timestamp_of(data, position, state)
        if key_length > 0:
            copy_bytes(keys, key_end, data, key_at, key_length)
            key_end += key_length
        if value_length > 0:
            copy_bytes(values, value_end, data, value_at, value_length)
            value_end += value_length
        has_key[row] = key_length >= 0
        has_value[row] = value_length >= 0
        state[NULL_KEYS] += key_length < 0
        state[NULL_VALUES] += value_length < 0
        row += 1
        key_ends[row] = key_end
        value_ends[row] = value_end
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
    """That of a whole entry: its own in magic 0 and 1."""
    offset = np.int64(load_u64(data, position))
    return offset + load_i32(data, position + 23) if data[position + 16] == 2 else offset


@inner
def largest_timestamp(data: Bytes, position: Number) -> Number:
    """That of a whole entry, -1 in magic 0."""
    magic = data[position + 16]
    if magic == 0:
        return np.int64(-1)
    return np.int64(load_u64(data, position + (35 if magic == 2 else 18)))


@inner
def is_damaged(data: Bytes, tables: Tables, position: Number, end: Number) -> Number:
    """Whether the checksum of a whole entry is wrong."""
    if data[position + 16] == 2:
        return load_u32(data, position + 17) != crc32c(tables, data, position + 21, end)
    return load_u32(data, position + 12) != crc32(tables, data, position + 16, end)


@kernel(BYTES, I64S_OUT)
def measure(data: Bytes, result: Longs) -> Number:
    """``result`` gets the number of entries, the last one's offset (-1 for none) and where they end.

    For what a wrapper holds, so a batch is INNER_MAGIC.
    """
    position = np.int64(0)
    count = 0
    last = np.int64(-1)
    code, end = entry_end(data, position)
    while code == WHOLE:
        last = np.int64(load_u64(data, position))
        count += 1
        position = end
        code, end = entry_end(data, position)
    result[0] = count
    result[1] = last
    result[2] = position
    return INNER_MAGIC if code == BATCH else code


@kernel(BYTES, I64, I64, I64S_OUT)
def find(data: Bytes, target_offset: Number, target_timestamp: Number, result: Longs) -> Number:
    """The first entry from ``result[0]`` on whose last offset and timestamp are not below the targets.

    FOUND and its position in ``result[0]``, or why the search ended, and where. Magic 0 counts as timestamp
    -1.
    """
    position = result[0]
    code, end = entry_end(data, position)
    while code in (WHOLE, BATCH):
        if (
            last_offset(data, position) >= target_offset
            and largest_timestamp(data, position) >= target_timestamp
        ):
            code = FOUND
            break
        position = end
        code, end = entry_end(data, position)
    result[0] = position
    return code


# Places in the ``state`` of find_record.
FIND_AT = 0  # of the next record; in and out
FIND_LEFT = 1  # records that there must be; in and out
FIND_BASE_OFFSET = 2
FIND_LAST_DELTA = 3
FIND_TIMESTAMP = 4  # added to every timestamp delta; with append time it is the timestamp
FIND_APPEND_TIME = 5  # 0 or 1
FIND_OLDEST = 6  # the record is not older than this
FIND_LEAST = 7  # and its offset not below this
FIND_DELTA = 8  # offset delta of the record before; in and out
FIND_DONE = 9  # 1 once it was found, with
FOUND_OFFSET = 10
FOUND_TIMESTAMP = 11
FIND_STATE_SIZE = 12


@kernel(BYTES, I64S_OUT)
def find_record(data: Bytes, state: Longs) -> Number:
    """Check all records of a batch, and note the first that is wanted: END, or the first fault, which lies at
    FIND_AT."""
    while state[FIND_LEFT] > 0:
        code, after, timestamp, delta, _, _, _, _, headers_at = read_record(data, state[FIND_AT], data.size)
        if code != WHOLE:
            return code
        count, _, _ = read_headers(data, headers_at, after)
        if count < 0:
            return BAD_HEADERS
        if delta <= state[FIND_DELTA] or delta > state[FIND_LAST_DELTA]:
            return BAD_DELTA
        timestamp = state[FIND_TIMESTAMP] + (0 if state[FIND_APPEND_TIME] else timestamp)
        offset = state[FIND_BASE_OFFSET] + delta
        if not state[FIND_DONE] and timestamp >= state[FIND_OLDEST] and offset >= state[FIND_LEAST]:
            state[FIND_DONE] = 1
            state[FOUND_OFFSET] = offset
            state[FOUND_TIMESTAMP] = timestamp
        state[FIND_DELTA] = delta
        state[FIND_AT] = after
        state[FIND_LEFT] -= 1
    return END if state[FIND_AT] == data.size else BAD_COUNT


# Places in the ``state`` of scan_run.
SCAN_POSITION = 0  # of the next entry in the data; in and out
SCAN_NEXT_OFFSET = 1  # the smallest offset that may come; in and out
SCAN_LARGEST_OFFSET = 2  # the largest that the segment can hold
SCAN_COUNT = 3  # entries passed
SCAN_MAX_TIMESTAMP = 4  # in and out
SCAN_INDEXED = 5  # position of the last indexed entry, relative to the data (negative: before it); in and out
SCAN_INTERVAL = 6  # bytes between indexed entries
SCAN_INDEX_COUNT = 7  # index entries written
SCAN_CHECK_CRC = 8
SCAN_WANTED = 9  # for PARTIAL: size of the entry that is not whole, 0 when even that is not there
SCAN_MAX_MAGIC = 10  # entries of a higher one are OTHER_MAGIC
SCAN_MAX_AT = 11  # last offset of the entry with that timestamp; in and out
SCAN_STATE_SIZE = 12
INDEX_FIELDS = 4


@kernel(BYTES, TABLES, I64S_OUT, I64S_OUT)
def scan_run(data: Bytes, tables: Tables, state: Longs, index: Longs) -> Number:
    """Pass over good entries, and note in ``index`` where more than the interval lies behind the last noted.

    An entry there has INDEX_FIELDS numbers: last offset, position, and the largest timestamp so far with its
    MAX_AT. There is room for ``data.size // interval + 1``.
    """
    position = state[SCAN_POSITION]
    while True:
        code, end = entry_end(data, position)
        if code == BATCH:
            code = WHOLE if state[SCAN_MAX_MAGIC] >= 2 else OTHER_MAGIC
        if code != WHOLE:
            break
        if state[SCAN_CHECK_CRC] and is_damaged(data, tables, position, end):
            code = BAD_CRC
            break
        first = np.int64(load_u64(data, position))
        offset = last_offset(data, position)
        if first < state[SCAN_NEXT_OFFSET] or offset < first or offset > state[SCAN_LARGEST_OFFSET]:
            code = OFFSET_ORDER
            break
        timestamp = largest_timestamp(data, position)
        if timestamp > state[SCAN_MAX_TIMESTAMP]:
            state[SCAN_MAX_TIMESTAMP] = timestamp
            state[SCAN_MAX_AT] = offset
        if position - state[SCAN_INDEXED] > state[SCAN_INTERVAL]:
            at = INDEX_FIELDS * state[SCAN_INDEX_COUNT]
            index[at] = offset
            index[at + 1] = position
            index[at + 2] = state[SCAN_MAX_TIMESTAMP]
            index[at + 3] = state[SCAN_MAX_AT]
            state[SCAN_INDEX_COUNT] += 1
            state[SCAN_INDEXED] = position
        state[SCAN_NEXT_OFFSET] = offset + 1
        state[SCAN_COUNT] += 1
        position = end
    state[SCAN_POSITION] = position
    state[SCAN_WANTED] = end - position if code == PARTIAL and end else 0
    return code
