"""Kernels of compaction: the filter of message sets. It uses the map of ``keys``."""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.entries import (
    WHOLE,
    compression,
    entry_end,
    fields,
    load_i32,
    load_i64,
    message_timestamp,
    seal_batch,
)
from minikafka.records.kernels.jit import copy_bytes, inner, kernel, load_u64, store_u32, store_u64
from minikafka.records.kernels.keys import (
    ADMITTED,
    END,
    INNER,
    MESSAGES,
    NEXT,
    OPENED,
    PASSED,
    POSITION,
    RECORD_AT,
    SHIFT,
    SLOT_OFFSET,
    enter,
    fetch_entries,
    fetch_records,
    offsets_of,
    slot_of,
)
from minikafka.records.kernels.record import number_size, read_headers, read_number, read_record, write_number
from minikafka.records.kernels.signatures import (
    BYTES,
    BYTES_OUT,
    I64S,
    I64S_OUT,
    TABLES,
    Bytes,
    Longs,
    Number,
    Tables,
)

PACK = -4  # the batch that was just written to ``out`` has to be compressed
# Verdicts on an entry.
STAYS = -5
GOES = -6
REBUILT = -7

# Places in the ``state`` of sift_run, behind those that it shares with ``keys.map_run``.
OUT_BYTES = 9  # bytes of ``out`` in use; in and out
RUN = 10  # start of the retained entries that are not copied yet; in and out
WANTED = 11  # for VALUES_FULL: bytes that must be free in ``out``
KEPT = 12  # messages; in and out
KEYLESS = 13  # messages dropped because they have no key; in and out
BATCHES = 14  # retained entries of magic 2; in and out
FIRST_OFFSET = 15  # of the retained entries, -1 for none; in and out
LAST_OFFSET = 16  # in and out
MAX_TIMESTAMP = 17  # of the retained entries; in and out
MAX_AT = 18  # last offset of the entry with that timestamp; in and out
TOMBSTONES_STAY = 19  # 0 or 1: in magic 0 and 1
NOW = 20
HORIZON = 21  # delete horizon of batches that get one
ACTIVE_SINCE = 22  # producers without a row are active if their batch is not older
FORCE = 23  # for the ADMITTED batch: 0 judge its records, or one of these
FORCE_OUT = 1  # delete all of them
FORCE_IN = 2  # retain all of them
FORCE_HORIZON = 24  # 1: the ADMITTED batch gets a delete horizon if it has none
PACK_AT = 25  # for PACK: start of the batch in ``out``; it ends at OUT_BYTES
SIFT_STATE_SIZE = 26


@inner
def judged(
    slots: Longs,
    state: Longs,
    data: Bytes,
    key_at: Number,
    key_length: Number,
    value_length: Number,
    offset: Number,
    tombstones_stay: Number,
) -> Number:
    """Return STAYS if a message is retained, or GOES."""
    if offset >= state[END]:
        return STAYS
    if key_length < 0:
        state[KEYLESS] += 1
        return GOES
    if value_length < 0 and not tombstones_stay:
        return GOES
    at, _, _ = slot_of(slots, data, key_at, key_length)
    return STAYS if offset >= slots[at + SLOT_OFFSET] - 1 else GOES


@inner
def note_stay(state: Longs, first: Number, last: Number, timestamp: Number, count: Number) -> None:
    """Note offsets, largest timestamp and number of messages of a retained entry."""
    if state[FIRST_OFFSET] < 0:
        state[FIRST_OFFSET] = first
    state[LAST_OFFSET] = last
    if timestamp > state[MAX_TIMESTAMP]:
        state[MAX_TIMESTAMP] = timestamp
        state[MAX_AT] = last
    state[KEPT] += count


@inner
def copy_run(data: Bytes, out: Bytes, state: Longs, position: Number) -> None:
    """Copy the retained entries before ``position``. There is room for them."""
    size = position - state[RUN]
    if size > 0:
        copy_bytes(out, state[OUT_BYTES], data, state[RUN], size)
        state[OUT_BYTES] += size
    state[RUN] = position


@inner
def sift_message(data: Bytes, slots: Longs, state: Longs, position: Number, end: Number) -> Number:
    """Return STAYS or GOES for an entry of magic 0 or 1, or the code at which the run ends."""
    offset = load_i64(data, position) + state[SHIFT]
    if state[INNER] >= 0 and data[position + layout.MAGIC_AT] != state[INNER]:
        return decode_status.INNER_MAGIC
    code, key_at, key_length, _, value_length = fields(data, position, end)
    if code != WHOLE:
        return code
    code = compression(data, position, state[INNER] >= 0)
    if code != WHOLE and (code != decode_status.WRAPPER or state[NEXT] < state[END]):
        return code
    state[MESSAGES] += 1
    code = judged(slots, state, data, key_at, key_length, value_length, offset, state[TOMBSTONES_STAY])
    if code == STAYS:
        note_stay(state, offset, offset, message_timestamp(data, position), 1)
    state[NEXT] = offset + 1
    return code


@inner
def judge_records(
    data: Bytes,
    content: Bytes,
    slots: Longs,
    marks: Bytes,
    state: Longs,
    position: Number,
    at: Number,
    stop: Number,
) -> tuple[Number, Number, Number, Number]:
    """Judge the records of a batch. Return ``(code, number of retained records, 1 if there is a tombstone
    among them, timestamp delta of the first of them)``.

    ``marks[i]`` is set to 1 if record ``i`` is retained; there is room for all. A record at END or after it
    is always retained, and does not count as a tombstone.
    """
    base, last = offsets_of(data, position)
    count = load_i32(data, position + layout.COUNT_AT)
    horizon = load_i64(data, position + layout.BASE_TIMESTAMP_AT)
    tombstones_stay = (
        data[position + layout.BATCH_FLAGS_AT] & layout.DELETE_HORIZON_BIT == 0 or state[NOW] < horizon
    )
    kept = np.int64(0)
    tombstones = np.int64(0)
    first_delta = np.int64(0)
    before = np.int64(-1)
    fetched = at
    for i in range(count):
        if at >= fetched and count > 1:
            fetched = fetch_records(content, slots, at, stop)
        state[RECORD_AT] = at
        code, after, timestamp_delta, delta, key_at, key_length, _, value_length, headers_at = read_record(
            content, at, stop
        )
        if code != WHOLE:
            return code, kept, tombstones, first_delta
        if delta <= before or delta > last - base:
            return decode_status.BAD_DELTA, kept, tombstones, first_delta
        verdict = STAYS
        if state[ADMITTED] != position or state[FORCE] == 0:
            verdict = judged(
                slots, state, content, key_at, key_length, value_length, base + delta, tombstones_stay
            )
        marks[i] = verdict == STAYS
        if verdict == STAYS:
            headers, _, _ = read_headers(content, headers_at, after)
            if headers < 0:
                return decode_status.BAD_HEADERS, kept, tombstones, first_delta
            if kept == 0:
                first_delta = timestamp_delta
            kept += 1
            tombstones |= value_length < 0 and base + delta < state[END]
        before = delta
        at = after
    return WHOLE if at == stop else decode_status.BAD_COUNT, kept, tombstones, first_delta


@inner
def write_records(
    data: Bytes,
    content: Bytes,
    marks: Bytes,
    out: Bytes,
    state: Longs,
    position: Number,
    at: Number,
    stop: Number,
    base_timestamp: Number,
) -> tuple[Number, Number]:
    """Write the marked records with timestamp deltas to ``base_timestamp``. Return ``(their end in out,
    largest timestamp)``.

    They were judged before, and there is room for them.
    """
    append_time = data[position + layout.BATCH_FLAGS_AT] & layout.APPEND_TIME_BIT
    base_before = load_i64(
        data, position + (layout.MAX_TIMESTAMP_AT if append_time else layout.BASE_TIMESTAMP_AT)
    )
    largest = np.int64(-1)
    to = state[OUT_BYTES] + layout.BATCH_HEADER_BYTES
    for i in range(load_i32(data, position + layout.COUNT_AT)):
        length, body = read_number(content, at, stop, 32)
        after = body + length
        if marks[i]:
            delta, rest = read_number(content, body + 1, after, 64)
            timestamp = base_before + (0 if append_time else delta)
            largest = max(largest, timestamp)
            new_delta = timestamp - base_timestamp
            to = write_number(out, to, 1 + number_size(new_delta) + after - rest)
            out[to] = content[body]
            to = write_number(out, to + 1, new_delta)
            copy_bytes(out, to, content, rest, after - rest)
            to += after - rest
        at = after
    return to, largest


@inner
def write_head(
    data: Bytes,
    tables: Tables,
    out: Bytes,
    state: Longs,
    position: Number,
    to: Number,
    attributes: Number,
    base_timestamp: Number,
    max_timestamp: Number,
    count: Number,
) -> None:
    """Write the header of the batch at ``position``, with these new fields, before its records in ``out``,
    which end at ``to``.
    """
    at = state[OUT_BYTES]
    copy_bytes(out, at, data, position, layout.BATCH_HEADER_BYTES)
    store_u32(out, at + layout.SIZE_AT, np.uint32(to - at - layout.ENTRY_HEADER_BYTES))
    out[at + layout.BATCH_FLAGS_AT] = np.uint8(attributes)
    store_u64(out, at + layout.BASE_TIMESTAMP_AT, np.uint64(base_timestamp))
    store_u64(out, at + layout.MAX_TIMESTAMP_AT, np.uint64(max_timestamp))
    store_u32(out, at + layout.COUNT_AT, np.uint32(count))
    seal_batch(out, tables, at, to)
    state[OUT_BYTES] = to


@inner
def needed_empty(
    data: Bytes, producers: Longs, lasts: Longs, state: Longs, position: Number, last: Number
) -> Number:
    """Return True if the batch is retained without records: it may have its producer's last sequence."""
    producer = load_i64(data, position + layout.PRODUCER_ID_AT)
    if producer < 0:
        return False
    low = np.int64(0)
    high = np.int64(producers.size)
    while low < high:
        middle = (low + high) // 2
        if producers[middle] < producer:
            low = middle + 1
        else:
            high = middle
    if low < producers.size and producers[low] == producer:
        return last >= lasts[low]
    return load_i64(data, position + layout.MAX_TIMESTAMP_AT) >= state[ACTIVE_SINCE]


@inner
def emptied(
    data: Bytes,
    tables: Tables,
    producers: Longs,
    lasts: Longs,
    out: Bytes,
    state: Longs,
    position: Number,
    last: Number,
) -> Number:
    """Return the verdict on a batch without retained records: GOES, REBUILT, or STAYS if it was empty."""
    if not needed_empty(data, producers, lasts, state, position, last):
        return GOES
    max_timestamp = load_i64(data, position + layout.MAX_TIMESTAMP_AT)
    state[BATCHES] += 1
    note_stay(state, load_i64(data, position), last, max_timestamp, 0)
    if load_i32(data, position + layout.COUNT_AT) == 0:
        return STAYS
    copy_run(data, out, state, position)
    attributes = data[position + layout.BATCH_FLAGS_AT] & (layout.TRANSACTION_BITS | layout.APPEND_TIME_BIT)
    to = state[OUT_BYTES] + layout.BATCH_HEADER_BYTES
    write_head(data, tables, out, state, position, to, attributes, np.int64(-1), max_timestamp, 0)
    return REBUILT


@inner
def rebuilt(
    data: Bytes,
    content: Bytes,
    tables: Tables,
    marks: Bytes,
    out: Bytes,
    state: Longs,
    position: Number,
    at: Number,
    stop: Number,
    kept: Number,
    first_delta: Number,
    gets_horizon: Number,
) -> Number:
    """Write the marked records as a batch. Return REBUILT, or PACK if they have to be compressed."""
    base, last = offsets_of(data, position)
    attributes = np.int64(data[position + layout.BATCH_FLAGS_AT])
    base_timestamp = load_i64(data, position + layout.BASE_TIMESTAMP_AT)
    if gets_horizon:
        base_timestamp = state[HORIZON]
        attributes |= layout.DELETE_HORIZON_BIT
    elif attributes & layout.APPEND_TIME_BIT and not attributes & layout.DELETE_HORIZON_BIT:
        base_timestamp = load_i64(data, position + layout.MAX_TIMESTAMP_AT)
    elif not attributes & layout.DELETE_HORIZON_BIT:
        base_timestamp += first_delta
    copy_run(data, out, state, position)
    state[PACK_AT] = state[OUT_BYTES]
    to, largest = write_records(data, content, marks, out, state, position, at, stop, base_timestamp)
    write_head(data, tables, out, state, position, to, attributes, base_timestamp, largest, kept)
    note_stay(state, base, last, largest, kept)
    return PACK if attributes & layout.CODEC_MASK else REBUILT


@inner
def sift_batch(
    data: Bytes,
    content: Bytes,
    tables: Tables,
    slots: Longs,
    producers: Longs,
    lasts: Longs,
    marks: Bytes,
    out: Bytes,
    state: Longs,
    position: Number,
    end: Number,
) -> Number:
    """Return STAYS, GOES, or (written to ``out``) REBUILT or PACK, or the code at which the run ends."""
    base, last = offsets_of(data, position)
    count = load_i32(data, position + layout.COUNT_AT)
    max_timestamp = load_i64(data, position + layout.MAX_TIMESTAMP_AT)
    if last >= 0 and base >= state[END] and count >= 0:
        state[BATCHES] += 1
        state[MESSAGES] += count
        note_stay(state, base, last, max_timestamp, count)
        return STAYS
    code = enter(data, state, position, last)
    if code != WHOLE:
        return code
    at = np.int64(0) if state[OPENED] else position + layout.BATCH_HEADER_BYTES
    stop = np.int64(content.size) if state[OPENED] else end
    # A record has at least seven bytes, and at most ten more with another timestamp delta.
    if count > marks.size or count > (stop - at) // layout.MIN_RECORD_BYTES:
        return decode_status.BAD_COUNT
    state[WANTED] = (
        position - state[RUN] + layout.BATCH_HEADER_BYTES + (stop - at) + layout.MAX_VARINT_BYTES * count
    )
    if state[WANTED] > out.size - state[OUT_BYTES]:
        return decode_status.VALUES_FULL
    kept = tombstones = first_delta = np.int64(0)
    admitted = state[ADMITTED] == position
    if count > 0 and not (admitted and state[FORCE] == FORCE_OUT):
        code, kept, tombstones, first_delta = judge_records(
            data, content, slots, marks, state, position, at, stop
        )
        if code != WHOLE:
            return code
    state[MESSAGES] += count
    state[NEXT] = last + 1
    if kept == 0:
        return emptied(data, tables, producers, lasts, out, state, position, last)
    state[BATCHES] += 1
    due = tombstones or (admitted and state[FORCE_HORIZON])
    gets_horizon = due and data[position + layout.BATCH_FLAGS_AT] & layout.DELETE_HORIZON_BIT == 0
    if kept == count and not gets_horizon:
        note_stay(state, base, last, max_timestamp, count)
        return STAYS
    return rebuilt(
        data, content, tables, marks, out, state, position, at, stop, kept, first_delta, gets_horizon
    )


@inner
def make_relative(data: Bytes) -> None:
    """Make the offsets of entries relative to the first one."""
    position = np.int64(0)
    code, end = entry_end(data, position)
    first = np.uint64(0)
    if code == WHOLE:
        first = load_u64(data, position)
    while code == WHOLE:
        store_u64(data, position, load_u64(data, position) - first)
        position = end
        code, end = entry_end(data, position)


@kernel(BYTES, BYTES, TABLES, I64S, I64S, I64S, BYTES_OUT, BYTES_OUT, I64S_OUT)
def sift_run(
    data: Bytes,
    content: Bytes,
    tables: Tables,
    slots: Longs,
    producers: Longs,
    lasts: Longs,
    marks: Bytes,
    out: Bytes,
    state: Longs,
) -> Number:
    """Copy retained entries to ``out``, from POSITION on, until the returned code.

    Adjacent entries that do not change are copied together, those at the end when the run ends. ``producers``
    rise; ``lasts`` are their last offsets. ``marks`` has room for the records of a batch. VALUES_FULL: the
    entry at POSITION was not processed; it needs WANTED bytes of ``out``.
    """
    fetched = np.int64(0)
    while True:
        position = state[POSITION]
        if position >= fetched:
            fetched = fetch_entries(data, slots, position)
        code, end = entry_end(data, position)
        reached = end if code in (WHOLE, decode_status.BATCH) else position
        if reached - state[RUN] > out.size - state[OUT_BYTES]:
            state[WANTED] = reached - state[RUN]
            return decode_status.VALUES_FULL
        if code == WHOLE:
            code = sift_message(data, slots, state, position, end)
        elif code == decode_status.BATCH:
            code = decode_status.INNER_MAGIC
            if state[INNER] < 0:
                code = sift_batch(
                    data, content, tables, slots, producers, lasts, marks, out, state, position, end
                )  # fmt: skip
        if code == STAYS:
            state[POSITION] = end
        elif code in (GOES, REBUILT, PACK):
            copy_run(data, out, state, position)
            state[RUN] = end
            state[POSITION] = end
        if code in (STAYS, GOES, REBUILT):
            if state[OPENED]:
                state[OPENED] = 0
                return PASSED
            continue
        if code not in (PACK, decode_status.VALUES_FULL):
            copy_run(data, out, state, position)
        if code == decode_status.END and state[INNER] == 1:
            make_relative(out[: state[OUT_BYTES]])
        return code
