"""Validation of produced message sets and assignment of offsets, the two steps of an append.

``validate`` needs no state of the partition and takes most of the time, without the GIL: it decompresses
wrappers, checks sizes, checksums, lengths, keys and timestamps of every message, and writes append times.
``assign`` then writes the offsets, which the checksums do not cover: a pass of a few nanoseconds a message.
Only a wrapper of magic 0 has to be compressed again there, since its inner offsets are absolute; of a magic 1
wrapper only the offset of the wrapper changes. ``prepare`` does this work in advance, for a likely offset.

As in 0.10.1 (``Log.append``, ``ByteBufferMessageSet.validateMessagesAndAssignOffsets``), a cut-off last
message of the set is dropped, and the size limit applies to each message or wrapper with its 12 bytes of
offset and size. A set with any entry in another format or codec than ``Limits`` require is rewritten, as one
wrapper or as plain messages. Unlike 0.10.1, a set that need not be rewritten keeps its wrappers, the checksum
of every inner message is verified, append times are also written into messages that were taken out of a
wrapper, and messages of magic 0, which have no time, are never too old.

Batches of magic 2 do not change, except for their largest timestamp, if it was not that of their records, and
for a codec that ``Limits`` require.

Content is freed once it is checked, and decompressed again if a wrapper has to be rebuilt: a kilobyte may
decompress to a megabyte. A request may have hundreds of thousands of wrappers, so they are checked in groups
(``wrappers``), and more than ``REBUILT_MOST`` that have to be rebuilt become a single one. A thread that
serves others too gives ``validate`` a budget, which is enough for small sets, and uses ``validate_steps`` for
larger ones.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.append.batch_fast_path import PlainBatch, allows, as_sent
from minikafka.records.append.content_opener import REWRITE_COST, ContentOpener
from minikafka.records.append.conversion import REWRITE_MEMORY, down_convert, rewrite_batches, rewrite_steps
from minikafka.records.append.invalid_records import records_error, times
from minikafka.records.append.produced import Limits, LogAppendInfo, OffsetMoved, ValidatedRecords
from minikafka.records.append.wrappers import NO_WRAPPERS, Wrappers, memory_to_open, survey
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.batch import (
    BatchHeader,
    is_whole,
    read_header,
    set_max_timestamp,
    set_offset_and_epoch,
)
from minikafka.records.format.checksums import CRC32_TABLES, CRC_TABLES
from minikafka.records.format.compression import ContentBudget
from minikafka.records.format.message_set import NO_TIMESTAMP, Codec, TimestampType, open_wrapper, wrap
from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.arrays import read_only, writable

ASSIGNED_AGAIN_BYTES = 64 << 10
"""The most content that ``assign`` compresses again, under locks, if the offset has changed."""
REBUILT_MOST = 64
"""The most wrappers that are rebuilt one by one. More become a single one, as 0.10.1 does with any number."""
_SELDOM = 1 << 40
"""An interval larger than any set, so that only the first entry is marked."""
_INT64 = struct.Struct(">q")


Steps = Generator[int, None, ValidatedRecords]
"""``next`` does one step and returns the bytes of memory that the next one needs."""


def validate(
    data: Buffer,
    limits: Limits,
    now_ms: int,
    surveyed: PlainBatch | None = None,
    budget: ContentBudget | None = None,
) -> ValidatedRecords:
    """Check ``data`` and write append times into it.

    The result keeps the buffer, or a copy if the buffer is read-only. ``surveyed`` is the result of
    ``survey`` for it.

    Raises BrokerError CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE or INVALID_TIMESTAMP with the
    position of the first fault (``InvalidRecords``: all of a batch). For a set that has to be rewritten also
    RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE (zstd in magic 0 and 1) and
    UNSUPPORTED_FOR_MESSAGE_FORMAT (idempotent records in these). Raises BudgetExceeded if the set needs more
    than ``budget`` has left; it can then be validated again.
    """
    view = _writable(data)
    if surveyed is not None and allows(limits, surveyed, now_ms):
        return as_sent(view, surveyed, limits)
    opener = ContentOpener(budget)
    if _is_one_batch(view, limits):
        # The common case of current producers, without the cost of a generator.
        header = _check_batch(view, 0, limits, now_ms, opener)
        if not _is_stored_otherwise((header,), limits):
            return _one_batch(view, header, limits, now_ms)
        return _finished(_stored_steps(view, [header], limits, now_ms, opener))
    return _finished(_steps(view, limits, now_ms, opener))


def validate_steps(data: Buffer, limits: Limits, now_ms: int) -> Steps:
    """Do the work of ``validate`` in steps, each of which decompresses at most one batch or group of
    wrappers. Batches are rewritten in one step.
    """
    return _steps(_writable(data), limits, now_ms, ContentOpener(None))


def _writable(data: Buffer) -> memoryview:
    view = memoryview(data)
    return memoryview(bytearray(view)) if view.readonly else view


def _finished(steps: Steps) -> ValidatedRecords:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            valid: ValidatedRecords = end.value
            return valid


def _steps(view: memoryview, limits: Limits, now_ms: int, opener: ContentOpener) -> Steps:
    if _is_one_batch(view, limits):
        if opener.budget is None:
            yield opener.memory_for_batch(view, 0, limits)
        header = _check_batch(view, 0, limits, now_ms, opener)
        if _is_stored_otherwise((header,), limits):
            return (yield from _stored_steps(view, [header], limits, now_ms, opener))
        return _one_batch(view, header, limits, now_ms)
    state = _new_state(limits, now_ms)
    wrappers, batches = yield from _check_entries(view, state, limits, now_ms, opener)
    write = kernels.write
    count = int(state[write.COUNT])
    view = view[: int(state[write.POSITION])]
    if _is_stored_otherwise(batches, limits):
        return (yield from _stored_steps(view, batches, limits, now_ms, opener))
    if not batches and _must_rewrite(state, wrappers, limits):
        yield opener.before_rewriting(view)
        view, wrappers = yield from _rewritten(view, state, wrappers, limits)
    codec, magic = _first(view, batches) if count else (Codec.NONE, -1)
    if wrappers.gaps:
        yield opener.before_rewriting(view)
    view, wrappers = _finish_wrappers(view, wrappers, limits, now_ms)
    max_timestamp_ms, max_timestamp_at = int(state[write.MAX_TIMESTAMP]), int(state[write.MAX_AT])
    if limits.timestamp_type is TimestampType.LOG_APPEND_TIME and state[write.STAMPED]:
        write.stamp_append_time(writable(view), CRC_TABLES, now_ms)
        batches = [replace(header, max_timestamp_ms=now_ms) for header in batches]
        max_timestamp_ms, max_timestamp_at = now_ms, _first_entry_count(codec, wrappers, batches) - 1
    return ValidatedRecords(
        view,
        count,
        len(view),
        max_timestamp_ms,
        max_timestamp_at,
        codec,
        magic,
        limits.max_message_bytes,
        wrappers,
        batches=tuple(batches),
        stamped=limits.timestamp_type is TimestampType.LOG_APPEND_TIME,
    )


def _is_one_batch(view: memoryview, limits: Limits) -> bool:
    """Return True if the set is a single batch of magic 2."""
    return limits.max_magic >= BATCH_MAGIC and is_whole(view, 0) and layout.entry_size(view, 0) == len(view)


def _one_batch(view: memoryview, header: BatchHeader, limits: Limits, now_ms: int) -> ValidatedRecords:
    """Return the result for a valid batch that is stored unchanged, except for append times."""
    stamped = limits.timestamp_type is TimestampType.LOG_APPEND_TIME
    if stamped:
        kernels.write.stamp_append_time(writable(view), CRC_TABLES, now_ms)
        header = replace(header, max_timestamp_ms=now_ms)
    return ValidatedRecords.of_batch(view, header, limits, stamped=stamped)


def _stored_steps(
    view: memoryview, batches: list[BatchHeader], limits: Limits, now_ms: int, opener: ContentOpener
) -> Steps:
    """Rewrite valid batches in the topic's format, and validate the result."""
    yield opener.before_rewriting(view)
    return (yield from _steps(_writable(_stored(view, batches, limits)), limits, now_ms, opener))


def _is_stored_otherwise(batches: Sequence[BatchHeader], limits: Limits) -> bool:
    """Return True if the topic stores valid batches in another format or codec."""
    if limits.magic in {0, 1}:
        return bool(batches)
    return limits.codec is not None and any(batch.codec is not limits.codec for batch in batches)


def _stored(view: memoryview, batches: list[BatchHeader], limits: Limits) -> Buffer:
    """Convert valid batches to the format and codec of the topic."""
    if limits.magic in {0, 1}:
        return _without_batches(view, batches, limits)
    codec = limits.codec or Codec.NONE
    return rewrite_batches(view, codec, limits.max_message_bytes, limits.max_content_bytes)


def _must_rewrite(state: NDArray[np.int64], wrappers: Wrappers, limits: Limits) -> bool:
    """Return True if a message of magic 0 or 1 is not in the format or codec of the topic."""
    write = kernels.write
    if wrappers.gaps + wrappers.absolute > REBUILT_MOST:
        return True
    plain = int(state[write.COUNT]) - wrappers.count
    if limits.magic in {0, 1}:
        plain_magic_1 = int(state[write.STAMPED]) - (len(wrappers) - wrappers.absolute)
        if plain_magic_1 != plain * limits.magic or wrappers.absolute != len(wrappers) * (1 - limits.magic):
            return True
    if limits.codec in {None, Codec.ZSTD}:
        return False
    return wrappers.codecs not in {0, 1 << limits.codec} or (plain > 0 and limits.codec is not Codec.NONE)


def _rewritten(
    view: memoryview, state: NDArray[np.int64], wrappers: Wrappers, limits: Limits
) -> Generator[int, None, tuple[memoryview, Wrappers]]:
    """Convert the set to the topic's format, in steps. The state becomes that of the converted set."""
    write = kernels.write
    codec = limits.codec
    if codec is None or codec is Codec.ZSTD:
        codec = Codec(wrappers.column(write.WRAPPER_CODEC)[-1]) if wrappers else Codec.NONE
    magic = limits.magic
    if magic not in {0, 1}:
        magic = int(state[write.STAMPED] > 0)
    new = yield from rewrite_steps(
        view, wrappers, magic, codec, limits.max_message_bytes, limits.max_content_bytes
    )
    count = int(state[write.COUNT])
    state[write.MAX_TIMESTAMP], state[write.MAX_AT] = new.max_timestamp_ms, new.max_timestamp_at
    if codec is Codec.NONE:
        state[write.STAMPED] = count * magic
        return new.data, NO_WRAPPERS
    state[write.STAMPED] = magic
    return new.data, Wrappers.of_one(
        size=len(new.data),
        magic=magic,
        codec=codec,
        count=count,
        max_timestamp_ms=new.max_timestamp_ms,
        content_bytes=new.content_bytes,
    )


def _without_batches(view: memoryview, batches: list[BatchHeader], limits: Limits) -> bytes:
    """Convert valid batches to messages of an older format."""
    if any(batch.producer_id >= 0 for batch in batches):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"the topic stores magic {limits.magic}, which does not support idempotent producers: "
            "raise its message.format.version, or disable idempotence in the producer",
        )
    return down_convert(view, limits.magic or 0, limits.max_content_bytes)


def _first_entry_count(codec: Codec, wrappers: Wrappers, batches: list[BatchHeader]) -> int:
    if batches:
        return batches[0].count
    return 1 if codec is Codec.NONE else int(wrappers.counts[0])


def _first(view: memoryview, batches: list[BatchHeader]) -> tuple[Codec, int]:
    """Return codec and magic of the first entry."""
    if batches:
        return batches[0].codec, 2
    return Codec(view[layout.MESSAGE_ATTRIBUTES_AT] & layout.CODEC_MASK), view[layout.MAGIC_AT]


def _new_state(limits: Limits, now_ms: int) -> NDArray[np.int64]:
    write = kernels.write
    state = np.zeros(write.STATE_SIZE, dtype=np.int64)
    state[write.MAX_TIMESTAMP] = NO_TIMESTAMP
    state[write.CONSECUTIVE] = 1
    state[write.MAX_MESSAGE_BYTES] = limits.max_message_bytes
    state[write.KEY_NEEDED] = limits.compacted
    state[write.EARLIEST], state[write.LATEST] = limits.allowed_times(now_ms)
    return state


def _check_entries(
    view: memoryview, state: NDArray[np.int64], limits: Limits, now_ms: int, opener: ContentOpener
) -> Generator[int, None, tuple[Wrappers, list[BatchHeader]]]:
    write = kernels.write
    array = read_only(view)
    groups: list[NDArray[np.int64]] = []
    batches: list[BatchHeader] = []
    while True:
        position = int(state[write.POSITION])
        if batches and position == len(view):
            stop = decode_status.END
        elif limits.max_magic >= BATCH_MAGIC and is_whole(view, position):
            stop = decode_status.BATCH
        else:
            stop = write.validate_run(array, CRC32_TABLES, state)
            position = int(state[write.POSITION])
        if batches and int(state[write.COUNT]) != sum(header.count for header in batches):
            raise decode_status.corrupt(
                "the set mixes messages of magic 0 or 1 with batches of magic 2", position
            )
        if stop in {decode_status.END, decode_status.PARTIAL}:
            return Wrappers.of(groups, state), batches
        if stop == decode_status.BATCH and limits.max_magic >= BATCH_MAGIC:
            if opener.budget is None:
                yield opener.memory_for_batch(view, position, limits)
            header = _check_batch(view, position, limits, now_ms, opener)
            batches.append(header)
            state[write.POSITION] += header.size_bytes
            _pass(state, header.count, header.max_timestamp_ms)
            state[write.STAMPED] += header.count
            continue
        if stop != decode_status.WRAPPER:
            stop = decode_status.OTHER_MAGIC if stop == decode_status.BATCH else stop
            raise _fault(stop, view, position, limits, now_ms)
        rows = survey(array, state)
        while len(rows):
            if opener.budget is None:
                yield memory_to_open(view, rows, limits.max_content_bytes)
            content, ends = opener.group(view, rows, limits)
            group, rows = rows[: len(ends)], rows[len(ends) :]
            _check_contents(content, ends, state, group, limits, now_ms)
            del content  # before the next group is decompressed
            groups.append(group)


def _pass(state: NDArray[np.int64], count: int, max_timestamp_ms: int) -> None:
    """Count the messages of a wrapper or batch, which is one entry of the log, with its last offset."""
    write = kernels.write
    state[write.COUNT] += count
    if max_timestamp_ms > state[write.MAX_TIMESTAMP]:
        state[write.MAX_TIMESTAMP], state[write.MAX_AT] = max_timestamp_ms, state[write.COUNT] - 1


def _check_contents(
    content: memoryview,
    ends: NDArray[np.int64],
    state: NDArray[np.int64],
    group: NDArray[np.int64],
    limits: Limits,
    now_ms: int,
) -> None:
    """Check the content of a group of wrappers, complete its rows, and count it in the state."""
    write = kernels.write
    inner_state = state.copy()
    good = write.check_contents(read_only(content), CRC32_TABLES, ends, inner_state, group.reshape(-1), state)
    if good == len(ends):
        return
    inside = int(group[good, write.WRAPPER_AT])
    if inner_state[write.STOP] == decode_status.END:
        raise decode_status.corrupt("the compressed message holds no message", inside)
    view = content[int(ends[good - 1]) if good else 0 : int(ends[good])]
    position = int(inner_state[write.POSITION])
    raise _fault(int(inner_state[write.STOP]), view, position, limits, now_ms, inside)


def _check_batch(
    view: memoryview, position: int, limits: Limits, now_ms: int, opener: ContentOpener
) -> BatchHeader:
    """Check a batch and return its header. Correct its largest timestamp if it is wrong."""
    size = layout.entry_size(view, position)
    if size > limits.max_message_bytes:
        raise _fault(decode_status.TOO_LARGE, view, position, limits, now_ms)
    header = read_header(view, position)
    stop = _header_fault(header)
    if stop != decode_status.END:
        raise decode_status.error(stop, position)
    kernel = kernels.batches
    content = opener.batch(view, position, header, limits)
    state = np.zeros(kernel.CHECK_STATE_SIZE, dtype=np.int64)
    state[kernel.CHECK_MAX_TIMESTAMP] = NO_TIMESTAMP
    state[kernel.CHECK_WANTED] = header.count
    state[kernel.CHECK_BASE_TIMESTAMP] = header.base_timestamp_ms
    state[kernel.CHECK_KEY_NEEDED] = limits.compacted
    state[kernel.CHECK_EARLIEST], state[kernel.CHECK_LATEST] = limits.allowed_times(now_ms)
    stop = kernel.validate_records(read_only(content), state)
    if stop != decode_status.END:
        raise records_error(stop, content, state, position, limits, now_ms)
    max_timestamp_ms = int(state[kernel.CHECK_MAX_TIMESTAMP])
    if header.max_timestamp_ms != max_timestamp_ms:
        set_max_timestamp(view, position, position + size, max_timestamp_ms)
        header = replace(header, max_timestamp_ms=max_timestamp_ms)
    return header


def _header_fault(header: BatchHeader) -> int:
    """Return the fault of a header that a producer must not send (``LogValidator.java`` of 3.9), or END."""
    if header.control:
        return decode_status.CONTROL_BATCH
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return decode_status.TIMESTAMP_TYPE
    if header.count == 0:
        return decode_status.NO_RECORDS
    if header.count != header.last_offset_delta + 1:
        return decode_status.NOT_CONSECUTIVE
    if header.producer_id >= 0 and header.base_sequence < 0:
        return decode_status.NO_SEQUENCE
    return decode_status.END


def _fault(
    stop: int, view: memoryview, position: int, limits: Limits, now_ms: int, inside: int | None = None
) -> BrokerError:
    error = decode_status.error(stop, position, inside)
    more = ""
    if stop == decode_status.TIMESTAMP_RANGE:
        (timestamp_ms,) = _INT64.unpack_from(view, position + layout.MESSAGE_TIMESTAMP_AT)
        more = times(timestamp_ms, limits, now_ms)
    elif stop == decode_status.TOO_LARGE:
        more = f"; max.message.bytes={limits.max_message_bytes}"
    return BrokerError(error.code, error.detail + more) if more else error


def _finish_wrappers(
    view: memoryview, wrappers: Wrappers, limits: Limits, now_ms: int
) -> tuple[memoryview, Wrappers]:
    """Give magic 1 wrappers their content's timestamp; rebuild those whose inner offsets have gaps."""
    write = kernels.write
    if limits.timestamp_type is TimestampType.CREATE_TIME and wrappers.mistimed:
        wrappers.stamp(writable(view))
    if not wrappers.gaps:
        return view, wrappers
    gaps = wrappers.with_gaps()
    replaced = [
        (wrappers.rows[number], _rebuilt(view, wrappers.rows[number], 0, limits.max_message_bytes))
        for number in gaps
    ]
    # ``assign`` may need the positions, which have moved.
    moved = wrappers.rows.copy()
    moved[gaps, write.WRAPPER_SIZE] = [len(entry) for _, entry in replaced]
    shifts = np.cumsum(moved[:, write.WRAPPER_SIZE] - wrappers.column(write.WRAPPER_SIZE))
    moved[1:, write.WRAPPER_AT] += shifts[:-1]
    return _splice(view, replaced), wrappers.moved(moved)


def _rebuilt(
    view: memoryview, row: NDArray[np.int64], first_inner_offset: int, max_message_bytes: int
) -> bytes:
    """Rebuild a wrapper with inner offsets from ``first_inner_offset`` on.

    Raises MESSAGE_TOO_LARGE if it grew.
    """
    write = kernels.write
    position = int(row[write.WRAPPER_AT])
    inner = bytearray(open_wrapper(view, position).data)
    write.assign_offsets(writable(inner), first_inner_offset, _NO_COUNTS, -1, 0, _NO_MARKS)
    entry = wrap(
        inner,
        offset=first_inner_offset + int(row[write.WRAPPER_COUNT]) - 1,
        magic=int(row[write.WRAPPER_FORMAT]),
        codec=Codec(row[write.WRAPPER_CODEC]),
        timestamp_ms=int(row[write.WRAPPER_TIMESTAMP]),
    )
    if len(entry) > max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the message at position {position} has {len(entry)} bytes after compression with its new "
            f"offsets, which exceeds max.message.bytes={max_message_bytes}",
        )
    return entry


def _splice(view: memoryview, replaced: list[tuple[NDArray[np.int64], bytes]]) -> memoryview:
    write = kernels.write
    out = bytearray()
    position = 0
    for row, entry in replaced:
        at = int(row[write.WRAPPER_AT])
        out += view[position:at]
        out += entry
        position = at + int(row[write.WRAPPER_SIZE])
    out += view[position:]
    return memoryview(out)


_NO_COUNTS = np.zeros(0, dtype=np.int64)
_NO_COUNTS.flags.writeable = False
_NO_MARKS = np.zeros(0, dtype=np.int64)


def prepare(
    valid: ValidatedRecords, base_offset: int, budget: ContentBudget | None = None
) -> ValidatedRecords:
    """Do the slow part of ``assign`` in advance, without locks, for the likely ``base_offset``.

    Raises as ``assign`` does, and BudgetExceeded as ``validate`` does.
    """
    if not valid.wrappers.absolute:
        return valid
    if budget is not None:
        budget.take(REWRITE_COST * valid.wrappers.absolute_bytes)
    return replace(valid, prepared=(base_offset, _renumber_magic_0(valid, base_offset)))


def memory_to_prepare(valid: ValidatedRecords) -> int:
    """Return the bytes of memory that ``prepare`` needs."""
    return REWRITE_MEMORY * valid.wrappers.absolute_bytes


def assign(
    valid: ValidatedRecords, base_offset: int, leader_epoch: int = -1, *, mark_every: int = _SELDOM
) -> LogAppendInfo:
    """Assign offsets from ``base_offset`` on to the messages, in place if the format allows it.

    Batches of magic 2 also get the leader epoch. An entry is marked for the index every ``mark_every`` bytes.

    A set can be assigned again (after a failed append). OffsetMoved, without any change, if the set was
    prepared for another offset and rebuilding its wrappers for this one would take long.
    """
    data = valid.data
    counts = _NO_COUNTS
    if len(valid.batches) == 1 and valid.batches[0].size_bytes == len(data):
        set_offset_and_epoch(data, base_offset, leader_epoch)
        return _assigned(valid, data, base_offset, ((base_offset + valid.count - 1, 0),))
    if valid.wrappers:
        counts = valid.wrappers.counts
        moved = valid.prepared is not None and valid.prepared[0] != base_offset
        if moved and valid.wrappers.absolute_bytes > ASSIGNED_AGAIN_BYTES:
            raise OffsetMoved
        data = _renumber_magic_0(valid, base_offset)
    room = 2 + len(data) // max(mark_every, layout.MIN_MESSAGE_BYTES)
    write = kernels.write
    marks = np.empty(write.MARKS_AT + write.MARK_FIELDS * room, dtype=np.int64)
    write.assign_offsets(writable(data), base_offset, counts, leader_epoch, mark_every, marks)
    found = marks[write.MARKS_AT :].reshape(-1, write.MARK_FIELDS)[: int(marks[write.MARKS_COUNT])]
    return _assigned(valid, data, base_offset, tuple((offset, at) for offset, at in found.tolist()))


def _assigned(
    valid: ValidatedRecords, data: memoryview, base_offset: int, marks: tuple[tuple[int, int], ...]
) -> LogAppendInfo:
    return LogAppendInfo(
        data,
        base_offset,
        base_offset + valid.count - 1,
        valid.count,
        valid.max_timestamp_ms,
        base_offset + valid.max_timestamp_at,
        marks,
    )


def _renumber_magic_0(valid: ValidatedRecords, base_offset: int) -> memoryview:
    """Compress magic 0 wrappers again with absolute inner offsets from ``base_offset`` on."""
    wrappers = valid.wrappers
    if not wrappers.absolute:
        return valid.data
    if valid.prepared is not None and valid.prepared[0] == base_offset:
        return valid.prepared[1]
    write = kernels.write
    replaced = []
    offset = base_offset
    position = 0
    for row in wrappers.rows:
        at = int(row[write.WRAPPER_AT])
        between = np.zeros(kernels.read.MEASURED_SIZE, dtype=np.int64)
        kernels.read.measure(read_only(valid.data[position:at]), between)
        offset += int(between[kernels.read.MEASURED_COUNT])
        if not row[write.WRAPPER_FORMAT] and not (row[write.WRAPPER_CONSECUTIVE] and offset == 0):
            replaced.append((row, _rebuilt(valid.data, row, offset, valid.max_message_bytes)))
        offset += int(row[write.WRAPPER_COUNT])
        position = at + int(row[write.WRAPPER_SIZE])
    return _splice(valid.data, replaced) if replaced else valid.data
