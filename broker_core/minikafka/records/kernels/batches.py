"""Kernels over the records of magic 2: decode, validate, encode, convert, and headers to columns and back."""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status, layout, read, write
from minikafka.records.kernels.entries import (
    WHOLE,
    entry_end,
    is_batch_damaged,
    load_i32,
    load_i64,
    producer_epoch,
    seal_message,
)
from minikafka.records.kernels.jit import copy_bytes, inner, kernel, store_u64
from minikafka.records.kernels.record import (
    POSITIVE,
    number_size,
    read_field,
    read_headers,
    read_number,
    read_record,
    write_bytes,
    write_number,
)
from minikafka.records.kernels.signatures import (
    BYTES,
    BYTES_OUT,
    I8S_OUT,
    I32S,
    I32S_OUT,
    I64,
    I64S,
    I64S_OUT,
    TABLES,
    Bytes,
    Ints,
    Longs,
    Number,
    Shorts,
    Tables,
)
from minikafka.records.kernels.write import cell, write_field, write_head

BELOW = read.BELOW


@inner
def enter_batch(data: Bytes, tables: Tables, state: Longs) -> Number:
    """Enter the entry at POSITION. Return WHOLE when the state refers to the records of a batch, BELOW when
    POSITION was moved past a batch below the range, WRAPPER when its records have to be decompressed first,
    else the code at which the run ends.
    """
    position = state[read.POSITION]
    code, end = entry_end(data, position)
    if code != decode_status.BATCH:
        return decode_status.CLASSIC if code == WHOLE else code
    base = load_i64(data, position)
    last_delta = load_i32(data, position + layout.LAST_DELTA_AT)
    if last_delta < 0 or base > POSITIVE - last_delta:
        return decode_status.BAD_DELTA
    state[read.BATCH_END] = end
    state[read.BATCH_LAST] = base + last_delta
    if base + last_delta < state[read.START_OFFSET]:
        pass_batch(state)
        return BELOW
    if base >= state[read.END_OFFSET]:
        return decode_status.REACHED_END_OFFSET
    if state[read.CHECK_CRC] and is_batch_damaged(data, tables, position, end):
        return decode_status.BAD_CRC
    attributes = np.int64(data[position + layout.BATCH_FLAGS_AT])
    state[read.RECORDS_LEFT] = load_i32(data, position + layout.COUNT_AT)
    if attributes & layout.CODEC_MASK > layout.MAX_BATCH_CODEC:
        return decode_status.BAD_CODEC
    if state[read.RECORDS_LEFT] < 0:
        return decode_status.BAD_COUNT
    state[read.BATCH_BASE] = base
    timestamp_at = (
        layout.MAX_TIMESTAMP_AT if attributes & layout.APPEND_TIME_BIT else layout.BASE_TIMESTAMP_AT
    )
    state[read.BATCH_TIMESTAMP] = load_i64(data, position + timestamp_at)
    state[read.BATCH_TYPE] = attributes & layout.APPEND_TIME_BIT != 0
    state[read.BATCH_CONTROL] = attributes & layout.CONTROL_BIT != 0
    state[read.DELTA_BEFORE] = -1
    for i in range(read.COUNTERS):
        state[read.COUNTERS_BEFORE + i] = state[read.ROWS + i]
    if attributes & layout.CODEC_MASK:
        return decode_status.WRAPPER
    state[read.RECORD_AT] = position + layout.BATCH_HEADER_BYTES
    state[read.RECORDS_END] = end
    return WHOLE


@inner
def pass_batch(state: Longs) -> None:
    """Move POSITION to the end of the batch."""
    state[read.POSITION] = state[read.BATCH_END]
    state[read.RECORD_AT] = -1
    state[read.BATCH_OPENED] = 0
    after = state[read.BATCH_LAST] + 1
    if state[read.BATCH_LAST] >= state[read.END_OFFSET]:
        after = state[read.END_OFFSET]
    state[read.NEXT_OFFSET] = max(state[read.NEXT_OFFSET], after)


@inner
def missing_room(rows: Number, header_bytes: Number, key_bytes: Number, value_bytes: Number) -> Number:
    """Return the code of the first column with less than no room behind the next row; WHOLE if none has."""
    if rows < 0:
        return decode_status.ROWS_FULL
    if header_bytes < 0:
        return decode_status.HEADERS_FULL
    if key_bytes < 0:
        return decode_status.KEYS_FULL
    return decode_status.VALUES_FULL if value_bytes < 0 else WHOLE


@inner
def put_headers(
    state: Longs,
    headers: Bytes,
    header_ends: Ints,
    row: Number,
    data: Bytes,
    at: Number,
    size: Number,
    count: Number,
    name_bytes: Number,
    content_bytes: Number,
) -> None:
    """Append the headers of a row. The counts are those of ``read_headers``."""
    copy_bytes(headers, state[read.HEADER_BYTES], data, at, size)
    state[read.HEADER_BYTES] += size
    state[read.HEADERS] += count
    state[read.NAME_BYTES] += name_bytes
    state[read.CONTENT_BYTES] += content_bytes
    header_ends[row + 1] = state[read.HEADER_BYTES]


@inner
def decode_records(
    data: Bytes,
    state: Longs,
    offsets: Longs,
    timestamps: Longs,
    types: Shorts,
    key_ends: Ints,
    value_ends: Ints,
    header_ends: Ints,
    has_key: Bytes,
    has_value: Bytes,
    keys: Bytes,
    values: Bytes,
    headers: Bytes,
) -> Number:
    """Decode the records of a batch from RECORD_AT on. Return WHOLE at its end, else the code of the stop."""
    # The loop works on variables: for all that the compiler knows, a store to a column may change the state.
    end, base = state[read.RECORDS_END], state[read.BATCH_BASE]
    last_delta = state[read.BATCH_LAST] - base
    first_wanted = max(state[read.START_OFFSET], base) - base
    last_wanted = min(state[read.END_OFFSET] - 1, state[read.BATCH_LAST]) - base
    base_timestamp, timestamp_type = state[read.BATCH_TIMESTAMP], state[read.BATCH_TYPE]
    is_control, with_headers = state[read.BATCH_CONTROL], state[read.WITH_HEADERS]
    with_keys, with_values = state[read.WITH_KEYS], state[read.WITH_VALUES]
    at, left, delta_before = state[read.RECORD_AT], state[read.RECORDS_LEFT], state[read.DELTA_BEFORE]
    row, key_end, value_end = state[read.ROWS], state[read.KEY_BYTES], state[read.VALUE_BYTES]
    code = np.int64(WHOLE)
    while left > 0:
        code, after, timestamp, delta, key_at, key_length, value_at, value_length, headers_at = read_record(
            data, at, end
        )
        if code != WHOLE:
            break
        count, names, contents = read_headers(data, headers_at, after)
        is_next = delta_before < delta <= last_delta
        if count < 0 or not is_next:
            code = decode_status.BAD_HEADERS if is_next else decode_status.BAD_DELTA
            break
        if delta >= first_wanted and not is_control:
            size = after - headers_at if count and with_headers else 0
            code = decode_status.REACHED_END_OFFSET
            if delta <= last_wanted:
                code = missing_room(
                    offsets.size - row - 1,
                    headers.size - state[read.HEADER_BYTES] - size,
                    keys.size - key_end - max(key_length, 0) * with_keys,
                    values.size - value_end - max(value_length, 0) * with_values,
                )
            if code != WHOLE:
                break
            if with_keys:
                key_end = read.put_item(keys, key_ends, has_key, row, key_end, data, key_at, key_length)
                state[read.NULL_KEYS] += key_length < 0
            if with_values:
                value_end = read.put_item(
                    values, value_ends, has_value, row, value_end, data, value_at, value_length
                )
                state[read.NULL_VALUES] += value_length < 0
            if with_headers:
                put_headers(state, headers, header_ends, row, data, headers_at, size, count, names, contents)
            offsets[row], types[row] = base + delta, timestamp_type
            timestamps[row] = base_timestamp + (0 if timestamp_type else timestamp)
            row += 1
        at, left, delta_before = after, left - 1, delta
    state[read.ROWS], state[read.KEY_BYTES], state[read.VALUE_BYTES] = row, key_end, value_end
    state[read.RECORD_AT], state[read.RECORDS_LEFT], state[read.DELTA_BEFORE] = at, left, delta_before
    if delta_before >= 0:
        state[read.NEXT_OFFSET] = max(state[read.NEXT_OFFSET], base + delta_before + 1)
    return decode_status.BAD_COUNT if code == WHOLE and at != end else code


@kernel(
    BYTES,
    BYTES,
    TABLES,
    I64S_OUT,
    I64S_OUT,
    I64S_OUT,
    I8S_OUT,
    I32S_OUT,
    I32S_OUT,
    I32S_OUT,
    BYTES_OUT,
    BYTES_OUT,
    BYTES_OUT,
    BYTES_OUT,
    BYTES_OUT,
)
def decode_batches(
    data: Bytes,
    content: Bytes,
    tables: Tables,
    state: Longs,
    offsets: Longs,
    timestamps: Longs,
    types: Shorts,
    key_ends: Ints,
    value_ends: Ints,
    header_ends: Ints,
    has_key: Bytes,
    has_value: Bytes,
    keys: Bytes,
    values: Bytes,
    headers: Bytes,
) -> Number:
    """Decode batches like ``read.decode_run``; end at the first entry of another magic (CLASSIC).

    If RECORD_AT is not -1, continue with the records of the batch that was entered before; with BATCH_OPENED
    these are in ``content``, else in ``data``. A batch with invalid records leaves no rows. Records of
    control batches are skipped.
    """
    while True:
        if state[read.RECORD_AT] < 0:
            code = enter_batch(data, tables, state)
            if code == BELOW:
                continue
            if code != WHOLE:
                return code
        source = content if state[read.BATCH_OPENED] else data
        code = decode_records(
            source, state, offsets, timestamps, types, key_ends, value_ends, header_ends, has_key, has_value,
            keys, values, headers
        )  # fmt: skip
        if code >= decode_status.FIRST_PROBLEM:
            for i in range(read.COUNTERS):
                state[read.ROWS + i] = state[read.COUNTERS_BEFORE + i]
        if code != WHOLE:
            return code
        pass_batch(state)


@kernel(BYTES, I32S, I32S_OUT, I32S_OUT, BYTES_OUT, I32S_OUT, BYTES_OUT, BYTES_OUT)
def split_headers(
    data: Bytes,
    ends: Ints,
    row_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    content_ends: Ints,
    contents: Bytes,
    has_content: Bytes,
) -> Number:
    """Convert the headers of row ``i``, ``data[ends[i]:ends[i + 1]]`` (empty: none), to columns.

    The headers of row ``i`` are those from ``row_ends[i]`` to before ``row_ends[i + 1]``. END, or BAD_HEADERS
    if the columns do not have exactly the size of the headers.
    """
    header = 0
    for row in range(ends.size - 1):
        at = np.int64(ends[row])
        end = np.int64(ends[row + 1])
        count = np.int64(0)
        if end > at:
            count, name_bytes, content_bytes = read_headers(data, at, end)
            if (
                count < 0
                or count > has_content.size - header
                or name_bytes > names.size - name_ends[header]
                or content_bytes > contents.size - content_ends[header]
            ):
                return decode_status.BAD_HEADERS
            _, at = read_number(data, at, end, 32)
        for _ in range(count):
            start, length, at = read_field(data, at, end)
            copy_bytes(names, name_ends[header], data, start, length)
            name_ends[header + 1] = name_ends[header] + length
            start, length, at = read_field(data, at, end)
            copy_bytes(contents, content_ends[header], data, start, max(length, 0))
            content_ends[header + 1] = content_ends[header] + max(length, 0)
            has_content[header] = length >= 0
            header += 1
        row_ends[row + 1] = header
    return decode_status.END if header == has_content.size else decode_status.BAD_HEADERS


# Places in the ``state`` of validate_records.
CHECK_AT = 0  # of the next record; in and out
CHECK_COUNT = 1  # records checked; in and out
CHECK_MAX_TIMESTAMP = 2  # in and out
CHECK_WANTED = 3  # the expected number of records
CHECK_BASE_TIMESTAMP = 4
CHECK_KEY_NEEDED = 5  # 0 or 1
CHECK_EARLIEST = 6  # allowed timestamps, both ends included
CHECK_LATEST = 7
CHECK_TIMESTAMP = 8  # the last one that was read
CHECK_STATE_SIZE = 9


@kernel(BYTES, I64S_OUT)
def validate_records(data: Bytes, state: Longs) -> Number:
    """Validate the records of a produced batch. Return END, or the first fault, which is at CHECK_AT."""
    while state[CHECK_COUNT] < state[CHECK_WANTED]:
        at = state[CHECK_AT]
        code, after, delta, offset_delta, _, key_length, _, _, headers_at = read_record(data, at, data.size)
        if code != WHOLE:
            return code
        count, _, _ = read_headers(data, headers_at, after)
        if count < 0:
            return decode_status.BAD_HEADERS
        if offset_delta != state[CHECK_COUNT]:
            return decode_status.NOT_CONSECUTIVE
        if state[CHECK_KEY_NEEDED] and key_length < 0:
            return decode_status.NO_KEY
        timestamp = state[CHECK_BASE_TIMESTAMP] + delta
        state[CHECK_TIMESTAMP] = timestamp
        if timestamp < state[CHECK_EARLIEST] or timestamp > state[CHECK_LATEST]:
            return decode_status.TIMESTAMP_RANGE
        state[CHECK_MAX_TIMESTAMP] = max(state[CHECK_MAX_TIMESTAMP], timestamp)
        state[CHECK_COUNT] += 1
        state[CHECK_AT] = after
    return decode_status.END if state[CHECK_AT] == data.size else decode_status.BAD_COUNT


# Columns of a row of ``survey_batches``.
SURVEY_SIZE = 0  # of the whole batch
SURVEY_BASE_OFFSET = 1
SURVEY_EPOCH = 2  # of the leader
SURVEY_LAST_DELTA = 3
SURVEY_BASE_TIMESTAMP = 4
SURVEY_MAX_TIMESTAMP = 5
SURVEY_PRODUCER = 6  # its id
SURVEY_PRODUCER_EPOCH = 7
SURVEY_SEQUENCE = 8
SURVEY_FIRST = 9  # the earliest timestamp of a record
SURVEY_KEYLESS = 10  # records without a key
SURVEY_COLUMNS = 11


@kernel(BYTES, TABLES, I64S_OUT)
def survey_batches(data: Bytes, tables: Tables, rows: Longs) -> Number:
    """Return the number of batches at the start of ``data`` that are whole, valid and plain; write a row of
    ``rows`` for each.

    Plain: not compressed, not transactional, create times with the largest of them in the header, records
    numbered 0, 1, 2 …, as many as the header says. ``validate_records`` and the header give the fault of the
    next batch, if there is one.
    """
    position = np.int64(0)
    found = np.int64(0)
    while rows.size - found * SURVEY_COLUMNS >= SURVEY_COLUMNS:
        code, end = entry_end(data, position)
        if (
            code != decode_status.BATCH
            or data[position + layout.BATCH_ATTRIBUTES_AT] != 0
            or data[position + layout.BATCH_FLAGS_AT] != 0
        ):
            return found
        base = load_i64(data, position)
        last_delta = load_i32(data, position + layout.LAST_DELTA_AT)
        count = load_i32(data, position + layout.COUNT_AT)
        if last_delta < 0 or count != last_delta + 1 or base > POSITIVE - last_delta:
            return found
        if is_batch_damaged(data, tables, position, end):
            return found
        base_timestamp = load_i64(data, position + layout.BASE_TIMESTAMP_AT)
        first, last, keyless = np.int64(POSITIVE), np.int64(-1), np.int64(0)
        at = position + layout.BATCH_HEADER_BYTES
        for index in range(count):
            code, after, delta, offset_delta, _, key_length, _, _, headers_at = read_record(data, at, end)
            if code != WHOLE or offset_delta != index:
                return found
            headers, _, _ = read_headers(data, headers_at, after)
            if headers < 0:
                return found
            first, last = min(first, base_timestamp + delta), max(last, base_timestamp + delta)
            keyless += key_length < 0
            at = after
        max_timestamp = load_i64(data, position + layout.MAX_TIMESTAMP_AT)
        if at != end or last != max_timestamp:
            return found
        row = found * SURVEY_COLUMNS
        rows[row + SURVEY_SIZE] = end - position
        rows[row + SURVEY_BASE_OFFSET] = base
        rows[row + SURVEY_EPOCH] = load_i32(data, position + layout.LEADER_EPOCH_AT)
        rows[row + SURVEY_LAST_DELTA] = last_delta
        rows[row + SURVEY_BASE_TIMESTAMP] = base_timestamp
        rows[row + SURVEY_MAX_TIMESTAMP] = max_timestamp
        rows[row + SURVEY_PRODUCER] = load_i64(data, position + layout.PRODUCER_ID_AT)
        rows[row + SURVEY_PRODUCER_EPOCH] = producer_epoch(data, position)
        rows[row + SURVEY_SEQUENCE] = load_i32(data, position + layout.BASE_SEQUENCE_AT)
        rows[row + SURVEY_FIRST] = first
        rows[row + SURVEY_KEYLESS] = keyless
        found += 1
        position = end
    return found


@kernel(I64S, I64S, I32S, BYTES, BYTES, I32S, BYTES, BYTES, I32S, BYTES, BYTES_OUT, I64S_OUT)
def encode_records(
    rows: Longs,
    timestamps: Longs,
    key_offsets: Ints,
    keys: Bytes,
    keys_valid: Bytes,
    value_offsets: Ints,
    values: Bytes,
    values_valid: Bytes,
    header_offsets: Ints,
    headers: Bytes,
    out: Bytes,
    state: Longs,
) -> Number:
    """Encode rows like ``write.encode_run``, as records of a batch.

    A row of ``headers`` is an output of ``join_headers``; the column may be empty.
    """
    no_bits = keys_valid[:0]
    while state[write.ENCODE_NEXT] < rows.size:
        row = rows[state[write.ENCODE_NEXT]]
        key_at, key_length = cell(row, key_offsets, keys, keys_valid, state[write.ENCODE_KEY_SHIFT])
        value_at, value_length = cell(
            row, value_offsets, values, values_valid, state[write.ENCODE_VALUE_SHIFT]
        )
        headers_at, headers_length = cell(row, header_offsets, headers, no_bits, 0)
        if min(key_length, value_length, headers_length) == -2 or row < 0 or row >= timestamps.size:
            return decode_status.BAD_ROW
        if state[write.ENCODE_OFFSET] == 0:
            state[write.ENCODE_BASE_TIMESTAMP] = timestamps[row]
            state[write.ENCODE_MAX_TIMESTAMP] = timestamps[row]
        timestamp_delta = timestamps[row] - state[write.ENCODE_BASE_TIMESTAMP]
        body = (
            1
            + number_size(timestamp_delta)
            + number_size(state[write.ENCODE_OFFSET])
            + max(headers_length, 1)
        )
        body += number_size(key_length) + max(key_length, 0)
        body += number_size(value_length) + max(value_length, 0)
        size = body + number_size(body)
        at = state[write.ENCODE_BYTES]
        if size > out.size - at:
            state[write.ENCODE_WANTED] = size
            return decode_status.VALUES_FULL
        at = write_number(out, at, body)
        out[at] = 0
        at = write_number(out, at + 1, timestamp_delta)
        at = write_number(out, at, state[write.ENCODE_OFFSET])
        at = write_bytes(out, at, keys, key_at, key_length)
        at = write_bytes(out, at, values, value_at, value_length)
        if headers_length > 0:
            copy_bytes(out, at, headers, headers_at, headers_length)
            at += headers_length
        else:
            out[at] = 0
            at += 1
        state[write.ENCODE_MAX_TIMESTAMP] = max(state[write.ENCODE_MAX_TIMESTAMP], timestamps[row])
        state[write.ENCODE_OFFSET] += 1
        state[write.ENCODE_NEXT] += 1
        state[write.ENCODE_BYTES] = at
    return decode_status.END


@kernel(I32S, I32S, BYTES, I32S, BYTES, BYTES, I64, I32S_OUT, BYTES_OUT)
def join_headers(
    row_offsets: Ints,
    name_offsets: Ints,
    names: Bytes,
    content_offsets: Ints,
    contents: Bytes,
    contents_valid: Bytes,
    shift: Number,
    ends: Ints,
    out: Bytes,
) -> Number:
    """Write the headers of each row, ``row_offsets[i]`` to before ``row_offsets[i + 1]``, in the form of a
    record.

    ``shift``: the first bit of the contents' bitmap. ``out`` has room for names, contents, and ten bytes more
    for each header and each row; ``ends`` gets the end of each row. A row without headers gets no bytes. END,
    or BAD_ROW if the columns are inconsistent.
    """
    at = np.int64(0)
    for row in range(row_offsets.size - 1):
        first = np.int64(row_offsets[row])
        last = np.int64(row_offsets[row + 1])
        if last > first:
            if out.size - at < layout.MAX_VARINT32_BYTES:
                return decode_status.BAD_ROW
            at = write_number(out, at, last - first)
        for header in range(first, last):
            name_at, name_length = cell(header, name_offsets, names, contents_valid[:0], 0)
            content_at, length = cell(header, content_offsets, contents, contents_valid, shift)
            room = out.size - at - 2 * layout.MAX_VARINT32_BYTES
            if name_length < 0 or length < -1 or name_length + max(length, 0) > room:
                return decode_status.BAD_ROW
            at = write_bytes(out, at, names, name_at, name_length)
            at = write_bytes(out, at, contents, content_at, length)
        ends[row + 1] = at
    return decode_status.END


# Places in the ``state`` of convert_records.
CONVERT_AT = 0  # of the next record; in and out
CONVERT_BYTES = 1  # bytes of ``out`` in use; in and out
CONVERT_LEFT = 2  # remaining records; in and out
CONVERT_DELTA = 3  # offset delta of the record before; in and out
CONVERT_LAST_DELTA = 4  # the largest valid offset delta
CONVERT_BASE_OFFSET = 5  # added to every offset delta
CONVERT_MAGIC = 6  # 0 or 1
CONVERT_ATTRIBUTES = 7  # of every message
CONVERT_TIMESTAMP = 8  # added to every timestamp delta; with append time it is the timestamp
CONVERT_APPEND_TIME = 9  # 0 or 1
CONVERT_MAX_TIMESTAMP = 10  # in and out
CONVERT_STATE_SIZE = 11


@kernel(BYTES, TABLES, BYTES_OUT, I64S_OUT)
def convert_records(data: Bytes, tables: Tables, out: Bytes, state: Longs) -> Number:
    """Convert the records of a batch to messages of magic 0 or 1. Return END, or the first fault.

    VALUES_FULL if ``out`` has no room for the next message; 27 bytes more than ``data`` per record are always
    enough. The run can then continue with the same state.
    """
    magic = state[CONVERT_MAGIC]
    while state[CONVERT_LEFT] > 0:
        at = state[CONVERT_AT]
        code, after, delta, offset_delta, key_at, key_length, value_at, value_length, headers_at = (
            read_record(data, at, data.size)
        )
        if code != WHOLE:
            return code
        count, _, _ = read_headers(data, headers_at, after)
        if count < 0:
            return decode_status.BAD_HEADERS
        if offset_delta <= state[CONVERT_DELTA] or offset_delta > state[CONVERT_LAST_DELTA]:
            return decode_status.BAD_DELTA
        size = (
            layout.MIN_MESSAGE_BYTES
            + layout.TIMESTAMP_BYTES * magic
            + max(key_length, 0)
            + max(value_length, 0)
        )
        at = state[CONVERT_BYTES]
        if size > out.size - at:
            return decode_status.VALUES_FULL
        timestamp = state[CONVERT_TIMESTAMP] + (0 if state[CONVERT_APPEND_TIME] else delta)
        store_u64(out, at, np.uint64(state[CONVERT_BASE_OFFSET] + offset_delta))
        end = write_head(
            out, at, size - layout.ENTRY_HEADER_BYTES, magic, state[CONVERT_ATTRIBUTES], timestamp
        )
        end = write_field(out, end, data, key_at, key_length)
        end = write_field(out, end, data, value_at, value_length)
        seal_message(out, tables, at, end)
        state[CONVERT_MAX_TIMESTAMP] = max(state[CONVERT_MAX_TIMESTAMP], timestamp)
        state[CONVERT_BYTES] = end
        state[CONVERT_DELTA] = offset_delta
        state[CONVERT_AT] = after
        state[CONVERT_LEFT] -= 1
    return decode_status.END if state[CONVERT_AT] == data.size else decode_status.BAD_COUNT
