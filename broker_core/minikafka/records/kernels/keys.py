"""Kernels of compaction: the map of keys to their largest offsets, and the survey of transactions.

The map is one array with three numbers per slot: the key's hash (two numbers) and its offset plus 1, 0 in an
empty slot. A key whose slot is taken uses the next free one. The map is larger than the processor's caches,
and every look-up goes to another place in it, so the slots of the next keys are prefetched, a few dozen at
once.

The hash is MurmurHash3 with 128 bits for 64-bit machines, seed 0. It is as good as MD5 (which Kafka uses)
against random collisions, about 2^-89 for a million keys, and uses 64-bit products, so a key takes some
nanoseconds instead of hundreds. An attacker can construct collisions in both, but a client that could use one
can just as well write to the other key.
"""

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
    producer_epoch,
)
from minikafka.records.kernels.jit import fetch_early, inner, kernel, load_u32, load_u64_little
from minikafka.records.kernels.record import POSITIVE, read_record
from minikafka.records.kernels.signatures import BYTES, I64S_OUT, Bytes, Longs, Number

# Codes of a run that only compaction uses.
TRANSACTIONAL = -2  # the next entry is a batch of a transaction, or one that ends it
PASSED = -3  # the OPENED batch is done: the next one has other content

# Places in the ``state`` of map_run and ``compact.sift_run``.
POSITION = 0  # of the next entry; in and out
NEXT = 1  # the last processed offset + 1; in and out
END = 2  # entries from here on are not processed, and retained
INNER = 3  # magic of the wrapper whose content the data is, -1 outside of one
SHIFT = 4  # added to every offset that is read
ADMITTED = 5  # position of a batch at which the run does not stop as TRANSACTIONAL
OPENED = 6  # 1 when ``content`` holds the decompressed records of the batch at POSITION, else it is the data
RECORD_AT = 7  # of the last processed record in ``content``
MESSAGES = 8  # processed; in and out
# Of map_run.
START = 9  # entries below are not processed
ENTRIES = 10  # keys in the map; in and out
CAPACITY = 11  # maximum number of keys
PRODUCERS = 12  # rows of ``producers``; in and out
MAP_STATE_SIZE = 13

AHEAD = 32
"""The number of keys whose slots are prefetched at once."""
# Fields of a slot.
SLOT_HASH = 0
SLOT_HASH_REST = 1
SLOT_OFFSET = 2  # offset plus 1, 0 in an empty slot
SLOT_FIELDS = 3
# Fields of a row of ``producers``, with which a row of survey begins.
PRODUCER_ID = 0
PRODUCER_EPOCH = 1
PRODUCER_LAST_OFFSET = 2
PRODUCER_MAX_TIMESTAMP = 3
PRODUCER_FIELDS = 4
SURVEY_BASE_OFFSET = 4
SURVEY_KIND = 5  # SURVEY_DATA, SURVEY_UNKNOWN, or the type of a marker: 0 abort, 1 commit
SURVEY_FIELDS = 6
SURVEY_DATA = -2
SURVEY_UNKNOWN = -1  # a control record of another type

C1 = np.uint64(0x87C37B91114253D5)
C2 = np.uint64(0x4CF5AD432745937F)


@inner
def rotated(x: Number, bits: Number) -> Number:
    return x << np.uint64(bits) | x >> np.uint64(64 - bits)


@inner
def finished(x: Number) -> Number:
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ x >> np.uint64(33)


@inner
def hashed(data: Bytes, at: Number, length: Number) -> tuple[Number, Number]:
    """Return MurmurHash3_x64_128 of ``length`` bytes in ``data``, as two uint64."""
    h1 = np.uint64(0)
    h2 = np.uint64(0)
    end = at + length
    while end - at >= 16:
        h1 ^= rotated(load_u64_little(data, at) * C1, 31) * C2
        h1 = (rotated(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= rotated(load_u64_little(data, at + 8) * C2, 33) * C1
        h2 = (rotated(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
        at += 16
    low = np.uint64(0)
    high = np.uint64(0)
    if end - at >= 8:
        low = load_u64_little(data, at)
        for i in range(8, end - at):
            high |= np.uint64(data[at + i]) << np.uint64(8 * (i - 8))
    else:
        for i in range(end - at):
            low |= np.uint64(data[at + i]) << np.uint64(8 * i)
    h2 ^= rotated(high * C2, 33) * C1
    h1 ^= rotated(low * C1, 31) * C2
    h1 ^= np.uint64(length)
    h2 ^= np.uint64(length)
    h1 += h2
    h2 += h1
    h1 = finished(h1)
    h2 = finished(h2)
    h1 += h2
    return h1, h2 + h1


@inner
def place_of(slots: Longs, hashed_first: Number) -> Number:
    """Return the first slot to search for a key."""
    count = np.uint64(slots.size // SLOT_FIELDS)
    return SLOT_FIELDS * np.int64((hashed_first >> np.uint64(32)) * count >> np.uint64(32))


@inner
def fetch_entries(data: Bytes, slots: Longs, position: Number) -> Number:
    """Prefetch the slots of some keys from the entry at ``position`` on (for a batch, of its first record).
    Return the position after them.
    """
    for _ in range(AHEAD):
        code, end = entry_end(data, position)
        if code == WHOLE:
            code, key_at, key_length, _, _ = fields(data, position, end)
        elif code == decode_status.BATCH and data[position + layout.BATCH_FLAGS_AT] & layout.CODEC_MASK == 0:
            code, _, _, _, key_at, key_length, _, _, _ = read_record(
                data, position + layout.BATCH_HEADER_BYTES, end
            )
        else:
            break
        if code == WHOLE and key_length > 0:
            first, _ = hashed(data, key_at, key_length)
            fetch_early(slots, place_of(slots, first))
        position = end
    return position


@inner
def fetch_records(data: Bytes, slots: Longs, at: Number, stop: Number) -> Number:
    """Prefetch the slots of some keys from the record at ``at`` on. Return the position after them."""
    for _ in range(AHEAD):
        code, after, _, _, key_at, key_length, _, _, _ = read_record(data, at, stop)
        if code != WHOLE:
            break
        if key_length > 0:
            first, _ = hashed(data, key_at, key_length)
            fetch_early(slots, place_of(slots, first))
        at = after
    return at


@inner
def slot_of(slots: Longs, data: Bytes, key_at: Number, key_length: Number) -> tuple[Number, Number, Number]:
    """Return ``(position, hash, hash)`` of the slot of a key, or of the empty slot that it would get.

    There must be an empty slot.
    """
    first, second = hashed(data, key_at, key_length)
    at = place_of(slots, first)
    one = np.int64(first)
    two = np.int64(second)
    while slots[at + SLOT_OFFSET] and (slots[at + SLOT_HASH] != one or slots[at + SLOT_HASH_REST] != two):
        at += SLOT_FIELDS
        if at == slots.size:
            at = 0
    return at, one, two


@inner
def put(
    slots: Longs, state: Longs, data: Bytes, key_at: Number, key_length: Number, offset: Number
) -> Number:
    """Note the offset of a key. Return WHOLE, or ROWS_FULL if the map is full."""
    if offset < 0 or offset == POSITIVE:
        return decode_status.OFFSET_ORDER
    at, one, two = slot_of(slots, data, key_at, key_length)
    if slots[at + SLOT_OFFSET] == 0:
        if state[ENTRIES] >= state[CAPACITY]:
            return decode_status.ROWS_FULL
        state[ENTRIES] += 1
        slots[at + SLOT_HASH] = one
        slots[at + SLOT_HASH_REST] = two
    slots[at + SLOT_OFFSET] = max(slots[at + SLOT_OFFSET], offset + 1)
    return WHOLE


@inner
def offsets_of(data: Bytes, position: Number) -> tuple[Number, Number]:
    """Return base and last offset of a batch; the last one is -1 if they are invalid."""
    base = load_i64(data, position)
    delta = load_i32(data, position + layout.LAST_DELTA_AT)
    if base < 0 or delta < 0 or base >= POSITIVE - delta:
        return base, np.int64(-1)
    return base, base + delta


@inner
def map_message(data: Bytes, slots: Longs, state: Longs, position: Number, end: Number) -> Number:
    """Note the key of an entry of magic 0 or 1. Return WHOLE, or the code at which the run ends."""
    offset = load_i64(data, position) + state[SHIFT]
    if state[INNER] >= 0 and data[position + layout.MAGIC_AT] != state[INNER]:
        return decode_status.INNER_MAGIC
    if offset < state[START]:
        # The offset of a wrapper is that of its last message, so all of its messages are below START.
        return WHOLE
    code = compression(data, position, state[INNER] >= 0)
    if code != WHOLE:
        return code
    if offset >= state[END]:
        return decode_status.REACHED_END_OFFSET
    code, key_at, key_length, _, _ = fields(data, position, end)
    if code == WHOLE and key_length >= 0:
        code = put(slots, state, data, key_at, key_length, offset)
    if code == WHOLE:
        state[MESSAGES] += 1
        state[NEXT] = max(state[NEXT], offset + 1)
    return code


@inner
def write_producer(rows: Longs, at: Number, data: Bytes, position: Number, last: Number) -> None:
    """Write the producer fields of a batch to a row."""
    rows[at + PRODUCER_ID] = load_i64(data, position + layout.PRODUCER_ID_AT)
    rows[at + PRODUCER_EPOCH] = producer_epoch(data, position)
    rows[at + PRODUCER_LAST_OFFSET] = last
    rows[at + PRODUCER_MAX_TIMESTAMP] = load_i64(data, position + layout.MAX_TIMESTAMP_AT)


@inner
def note_producer(producers: Longs, state: Longs, data: Bytes, position: Number, last: Number) -> None:
    """Write the batch to a new row, or to that of the previous batch if it has the same producer."""
    at = PRODUCER_FIELDS * (state[PRODUCERS] - 1)
    if at < 0 or producers[at + PRODUCER_ID] != load_i64(data, position + layout.PRODUCER_ID_AT):
        at += PRODUCER_FIELDS
        state[PRODUCERS] += 1
    write_producer(producers, at, data, position, last)


@inner
def enter(data: Bytes, state: Longs, position: Number, last: Number) -> Number:
    """Return WHOLE if the records of a batch can be read, or the code at which the run ends."""
    attributes = np.int64(data[position + layout.BATCH_FLAGS_AT])
    count = load_i32(data, position + layout.COUNT_AT)
    if last < 0 or count < 0:
        return decode_status.BAD_DELTA if last < 0 else decode_status.BAD_COUNT
    if attributes & layout.TRANSACTION_BITS and state[ADMITTED] != position:
        return TRANSACTIONAL
    if attributes & layout.CODEC_MASK > layout.MAX_BATCH_CODEC:
        return decode_status.BAD_CODEC
    return (
        decode_status.WRAPPER if attributes & layout.CODEC_MASK and count > 0 and not state[OPENED] else WHOLE
    )


@inner
def map_records(
    content: Bytes,
    slots: Longs,
    state: Longs,
    at: Number,
    stop: Number,
    base: Number,
    last: Number,
    left: Number,
) -> Number:
    """Note the keys of the records of a batch. Return WHOLE, or the code at which the run ends."""
    before = np.int64(-1)
    fetched = at
    while left > 0:
        if at >= fetched and left > 1:
            fetched = fetch_records(content, slots, at, stop)
        state[RECORD_AT] = at
        code, at, _, delta, key_at, key_length, _, _, _ = read_record(content, at, stop)
        if code != WHOLE:
            return code
        if delta <= before or delta > last - base:
            return decode_status.BAD_DELTA
        offset = base + delta
        if offset >= state[END]:
            return decode_status.REACHED_END_OFFSET
        if offset >= state[START]:
            if key_length >= 0:
                code = put(slots, state, content, key_at, key_length, offset)
                if code != WHOLE:
                    return code
            state[MESSAGES] += 1
            state[NEXT] = max(state[NEXT], offset + 1)
        before = delta
        left -= 1
    return WHOLE if at == stop or before < 0 else decode_status.BAD_COUNT


@inner
def map_batch(
    data: Bytes, content: Bytes, slots: Longs, producers: Longs, state: Longs, position: Number, end: Number
) -> Number:
    """Note the keys of a batch. Return WHOLE, or the code at which the run ends."""
    base, last = offsets_of(data, position)
    if 0 <= last < state[START]:
        return WHOLE
    if last >= 0 and base >= state[END]:
        return decode_status.REACHED_END_OFFSET
    code = enter(data, state, position, last)
    if code != WHOLE:
        return code
    has_producer = load_i64(data, position + layout.PRODUCER_ID_AT) >= 0
    if has_producer and PRODUCER_FIELDS * (state[PRODUCERS] + 1) > producers.size:
        return decode_status.KEYS_FULL
    at = np.int64(0) if state[OPENED] else position + layout.BATCH_HEADER_BYTES
    stop = np.int64(content.size) if state[OPENED] else end
    code = map_records(
        content, slots, state, at, stop, base, last, load_i32(data, position + layout.COUNT_AT)
    )
    if code == WHOLE:
        if has_producer:
            note_producer(producers, state, data, position, last)
        state[NEXT] = max(state[NEXT], last + 1)
    return code


@kernel(BYTES, BYTES, I64S_OUT, I64S_OUT, I64S_OUT)
def map_run(data: Bytes, content: Bytes, slots: Longs, producers: Longs, state: Longs) -> Number:
    """Note every key's largest offset from POSITION on, until the returned code.

    ROWS_FULL: the map has no room for the key of the message at NEXT or after it. KEYS_FULL: the caller must
    remove the rows in ``producers``. WRAPPER, TRANSACTIONAL, PASSED: the caller must act before the next run.
    """
    fetched = np.int64(0)
    while True:
        position = state[POSITION]
        if position >= fetched:
            fetched = fetch_entries(data, slots, position)
        code, end = entry_end(data, position)
        if code == WHOLE:
            code = map_message(data, slots, state, position, end)
        elif code == decode_status.BATCH:
            code = decode_status.INNER_MAGIC
            if state[INNER] < 0:
                code = map_batch(data, content, slots, producers, state, position, end)
        if code != WHOLE:
            return code
        state[POSITION] = end
        if state[OPENED]:
            state[OPENED] = 0
            return PASSED


# Places in the ``state`` of survey, behind POSITION.
SURVEYED = 1  # rows written; in and out
SURVEY_STATE_SIZE = 2


@inner
def control_type(data: Bytes, position: Number, end: Number) -> Number:
    """Return the type in the first record of a control batch, or SURVEY_UNKNOWN."""
    if (
        data[position + layout.BATCH_FLAGS_AT] & layout.CODEC_MASK
        or load_i32(data, position + layout.COUNT_AT) < 1
    ):
        return np.int64(SURVEY_UNKNOWN)
    code, _, _, _, key_at, key_length, _, _, _ = read_record(data, position + layout.BATCH_HEADER_BYTES, end)
    if code != WHOLE or key_length < layout.CONTROL_KEY_BYTES:
        return np.int64(SURVEY_UNKNOWN)
    kind = load_u32(data, key_at) & layout.CONTROL_TYPE_MASK
    return np.int64(kind if kind < 2 else SURVEY_UNKNOWN)


@kernel(BYTES, I64S_OUT, I64S_OUT)
def survey(data: Bytes, rows: Longs, state: Longs) -> Number:
    """Write a row for every transactional batch and every marker, from POSITION on.

    Return ROWS_FULL, or the code at which the entries end.
    """
    code, end = entry_end(data, state[POSITION])
    while code in (WHOLE, decode_status.BATCH):
        position = state[POSITION]
        if code == decode_status.BATCH and data[position + layout.BATCH_FLAGS_AT] & layout.TRANSACTION_BITS:
            at = SURVEY_FIELDS * state[SURVEYED]
            if at + SURVEY_FIELDS > rows.size:
                return decode_status.ROWS_FULL
            base, last = offsets_of(data, position)
            if last < 0:
                return decode_status.BAD_DELTA
            write_producer(rows, at, data, position, last)
            rows[at + SURVEY_BASE_OFFSET] = base
            rows[at + SURVEY_KIND] = SURVEY_DATA
            if data[position + layout.BATCH_FLAGS_AT] & layout.CONTROL_BIT:
                rows[at + SURVEY_KIND] = control_type(data, position, end)
            state[SURVEYED] += 1
        state[POSITION] = end
        code, end = entry_end(data, end)
    return code
