"""What a broker does with a produced message set, in two steps.

``validate`` needs no state of the partition and takes most of the time, without the GIL: sizes, checksums,
lengths, keys and timestamps of every message, wrappers opened; it also writes append times. ``assign`` then
writes the offsets, which the checksums do not cover: a pass of a few nanoseconds a message. Only a wrapper of
magic 0 has to be compressed again there, since the offsets inside of it are absolute; of a magic 1 wrapper
only the offset of the wrapper changes. ``prepare`` does that before for an offset that is likely.

As 0.10.1 (``Log.append``, ``ByteBufferMessageSet.validateMessagesAndAssignOffsets``): a cut-off last message
of the set is dropped, the limit of size holds for each message or wrapper with its 12 bytes of offset and
size. A set in which anything is not of the format or codec that ``Limits`` ask for is written anew, as one
wrapper or as messages alone. Otherwise than 0.10.1: a set that need not be written anew keeps its wrappers,
the checksum of every inner message is looked at, append times are also written into what was taken out of a
wrapper, and messages of magic 0, which have no time, are never too old.

Batches of magic 2 stay as they are but for their largest timestamp, when it was not that of their records,
and for a codec that ``Limits`` ask for.

Content is let go once it was checked, and opened again where a wrapper has to be built anew: a kilobyte of it
may stand for a megabyte, and a request may hold a thousand wrappers. Who serves others meanwhile gives
``validate`` a budget, which small sets keep to, and takes ``validate_steps`` for what exceeds it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.records import kernels, stops
from minikafka.records.arrays import INT64_MAX, read_only, writable
from minikafka.records.batch import MAGIC as BATCH_MAGIC
from minikafka.records.batch import (
    BatchHeader,
    is_whole,
    place,
    read_header,
    set_max_timestamp,
    size_of,
)
from minikafka.records.checksums import CRC32_TABLES, CRC_TABLES
from minikafka.records.compression import ContentBudget
from minikafka.records.conversion import down_convert, rewrite, rewrite_batches
from minikafka.records.message_set import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    ENTRY_HEADER_BYTES,
    MAGIC_AT,
    MIN_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_AT,
    Codec,
    Content,
    TimestampType,
    open_wrapper,
    wrap,
)
from minikafka.records.opening import REWRITE_COST, REWRITE_MEMORY, ContentOpener
from minikafka.records.produced import AssignedSet, Limits, OffsetMoved, ValidatedSet, Wrapper
from minikafka.records.survey import PlainBatch, allows, as_sent

ASSIGNED_AGAIN_BYTES = 64 << 10
"""How much content ``assign`` compresses again, which it does under locks, for an offset that has moved."""
_SELDOM = 1 << 40
"""Bytes that no set has: only its first entry is marked."""
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")


Steps = Generator[int, None, ValidatedSet]
"""``next`` does one step and gives the bytes of memory that the next one needs."""


def validate(
    data: Buffer,
    limits: Limits,
    now_ms: int,
    surveyed: PlainBatch | None = None,
    budget: ContentBudget | None = None,
) -> ValidatedSet:
    """Check ``data`` and write append times into it; the buffer is kept (a copy is, when it cannot be written
    to). ``surveyed`` is what ``survey`` gave for it.

    BrokerError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE or INVALID_TIMESTAMP with the position of the first fault.
    Where a set has to be written anew also RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE (zstd in magic
    0 and 1) and UNSUPPORTED_FOR_MESSAGE_FORMAT (idempotent records in these). BudgetExceeded when the set
    takes more than ``budget`` has left: it can be validated again then.
    """
    view = _writable(data)
    if surveyed is not None and allows(limits, surveyed, now_ms):
        return as_sent(view, surveyed, limits)
    return _finished(_steps(view, limits, now_ms, ContentOpener(budget)))


def validate_steps(data: Buffer, limits: Limits, now_ms: int) -> Steps:
    """``validate`` in steps, each of which opens one wrapper or batch at most, and returns what that returns.
    A set that is written anew is so in one step.
    """
    return _steps(_writable(data), limits, now_ms, ContentOpener(None))


def _writable(data: Buffer) -> memoryview:
    view = memoryview(data)
    return memoryview(bytearray(view)) if view.readonly else view


def _finished(steps: Steps) -> ValidatedSet:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            valid: ValidatedSet = end.value
            return valid


def _steps(view: memoryview, limits: Limits, now_ms: int, opener: ContentOpener) -> Steps:
    if limits.max_magic >= BATCH_MAGIC and is_whole(view, 0) and size_of(view, 0) == len(view):
        return (yield from _validate_batch(view, limits, now_ms, opener))
    state = _new_state(limits, now_ms)
    wrappers, batches = yield from _check_entries(view, state, limits, now_ms, opener)
    write = kernels.write
    count = int(state[write.COUNT])
    view = view[: int(state[write.POSITION])]
    if _is_stored_otherwise(batches, limits):
        yield opener.before_rewriting(view)
        return (yield from _steps(_writable(_stored(view, batches, limits)), limits, now_ms, opener))
    if not batches and _must_rewrite(state, wrappers, limits):
        yield opener.before_rewriting(view)
        view, wrappers = _rewritten(view, state, wrappers, limits)
    codec, magic = _first(view, batches) if count else (Codec.NONE, -1)
    if any(wrapper.content.magic and not wrapper.consecutive for wrapper in wrappers):
        yield opener.before_rewriting(view)
    view, wrappers = _finish_wrappers(view, wrappers, limits, now_ms)
    max_timestamp_ms, max_timestamp_at = int(state[write.MAX_TIMESTAMP]), int(state[write.MAX_AT])
    if limits.timestamp_type is TimestampType.LOG_APPEND_TIME and state[write.STAMPED]:
        write.stamp_append_time(writable(view), CRC_TABLES, now_ms)
        batches = [replace(header, max_timestamp_ms=now_ms) for header in batches]
        max_timestamp_ms, max_timestamp_at = now_ms, _first_entry_count(codec, wrappers, batches) - 1
    return ValidatedSet(
        view,
        count,
        len(view),
        max_timestamp_ms,
        max_timestamp_at,
        codec,
        magic,
        limits.max_message_bytes,
        tuple(wrappers),
        batches=tuple(batches),
        stamped=limits.timestamp_type is TimestampType.LOG_APPEND_TIME,
    )


def _validate_batch(view: memoryview, limits: Limits, now_ms: int, opener: ContentOpener) -> Steps:
    """``validate`` of one batch of magic 2 and nothing else, which is what today's producers send."""
    if opener.budget is None:
        yield opener.memory_for_batch(view, 0, limits)
    header = _check_batch(view, 0, limits, now_ms, opener)
    if _is_stored_otherwise([header], limits):
        yield opener.before_rewriting(view)
        return (yield from _steps(_writable(_stored(view, [header], limits)), limits, now_ms, opener))
    stamped = limits.timestamp_type is TimestampType.LOG_APPEND_TIME
    if stamped:
        kernels.write.stamp_append_time(writable(view), CRC_TABLES, now_ms)
        header = replace(header, max_timestamp_ms=now_ms)
    return ValidatedSet.of_batch(view, header, limits, stamped=stamped)


def _is_stored_otherwise(batches: list[BatchHeader], limits: Limits) -> bool:
    """Whether good batches are stored in another format or codec."""
    if limits.magic in {0, 1}:
        return bool(batches)
    return limits.codec is not None and any(batch.codec is not limits.codec for batch in batches)


def _stored(view: memoryview, batches: list[BatchHeader], limits: Limits) -> Buffer:
    """Good batches in the format and codec that are stored, where they are in others."""
    if limits.magic in {0, 1}:
        return _without_batches(view, batches, limits)
    return _batches_in_codec(view, limits)


def _must_rewrite(state: NDArray[np.int64], wrappers: list[Wrapper], limits: Limits) -> bool:
    """Whether a message of magic 0 or 1 is not of the format or codec that is stored."""
    write = kernels.write
    plain = int(state[write.COUNT]) - sum(wrapper.count for wrapper in wrappers)
    plain_magic_1 = int(state[write.STAMPED]) - sum(wrapper.content.magic for wrapper in wrappers)
    if limits.magic in {0, 1} and (
        plain_magic_1 != plain * limits.magic
        or any(wrapper.content.magic != limits.magic for wrapper in wrappers)
    ):
        return True
    if limits.codec in {None, Codec.ZSTD}:
        return False
    return any(wrapper.content.codec is not limits.codec for wrapper in wrappers) or (
        plain > 0 and limits.codec is not Codec.NONE
    )


def _rewritten(
    view: memoryview, state: NDArray[np.int64], wrappers: list[Wrapper], limits: Limits
) -> tuple[memoryview, list[Wrapper]]:
    """The set as it is stored; the state is as if it had been sent so."""
    write = kernels.write
    codec = limits.codec
    if codec is None or codec is Codec.ZSTD:
        codec = wrappers[-1].content.codec if wrappers else Codec.NONE
    magic = limits.magic
    if magic not in {0, 1}:
        magic = int(state[write.STAMPED] > 0)
    new = rewrite(view, magic, codec, limits.max_message_bytes, limits.max_content_bytes)
    count = int(state[write.COUNT])
    state[write.MAX_TIMESTAMP], state[write.MAX_AT] = new.max_timestamp_ms, new.max_timestamp_at
    if codec is Codec.NONE:
        state[write.STAMPED] = count * magic
        return new.data, []
    state[write.STAMPED] = magic
    content = Content(
        position=0,
        size_bytes=len(new.data),
        offset=count - 1,
        magic=magic,
        codec=codec,
        timestamp_type=TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE,
        timestamp_ms=new.max_timestamp_ms,
        data=_NOT_KEPT,
    )
    return new.data, [Wrapper(content, count, new.max_timestamp_ms, True, new.content_bytes)]


def _without_batches(view: memoryview, batches: list[BatchHeader], limits: Limits) -> bytes:
    """Good batches as messages of an older format."""
    if any(batch.producer_id >= 0 for batch in batches):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"the topic stores messages of magic {limits.magic}, which cannot hold an idempotent producer's "
            "id: raise its message.format.version, or produce without idempotence",
        )
    return down_convert(view, limits.magic or 0, limits.max_content_bytes)


def _batches_in_codec(view: memoryview, limits: Limits) -> bytearray:
    """Good batches in the codec that is stored."""
    codec = limits.codec or Codec.NONE
    return rewrite_batches(view, codec, limits.max_message_bytes, limits.max_content_bytes)


def _first_entry_count(codec: Codec, wrappers: list[Wrapper], batches: list[BatchHeader]) -> int:
    if batches:
        return batches[0].count
    return 1 if codec is Codec.NONE else wrappers[0].count


def _first(view: memoryview, batches: list[BatchHeader]) -> tuple[Codec, int]:
    """Codec and magic of the first entry."""
    if batches:
        return batches[0].codec, 2
    return Codec(view[ATTRIBUTES_AT] & CODEC_MASK), view[MAGIC_AT]


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
) -> Generator[int, None, tuple[list[Wrapper], list[BatchHeader]]]:
    write = kernels.write
    array = read_only(view)
    wrappers: list[Wrapper] = []
    batches: list[BatchHeader] = []
    while True:
        position = int(state[write.POSITION])
        if batches and position == len(view):
            stop = stops.END
        elif limits.max_magic >= BATCH_MAGIC and is_whole(view, position):
            stop = stops.BATCH
        else:
            stop = write.validate_run(array, CRC32_TABLES, state)
            position = int(state[write.POSITION])
        if batches and int(state[write.COUNT]) != sum(header.count for header in batches):
            raise stops.corrupt("messages of magic 0 or 1 stand among batches of magic 2", position)
        if stop in {stops.END, stops.PARTIAL}:
            return wrappers, batches
        if stop == stops.BATCH and limits.max_magic >= BATCH_MAGIC:
            if opener.budget is None:
                yield opener.memory_for_batch(view, position, limits)
            header = _check_batch(view, position, limits, now_ms, opener)
            batches.append(header)
            state[write.POSITION] += header.size_bytes
            _pass(state, header.count, header.max_timestamp_ms)
            state[write.STAMPED] += header.count
            continue
        if stop != stops.WRAPPER:
            stop = stops.OTHER_MAGIC if stop == stops.BATCH else stop
            raise _fault(stop, view, position, limits, now_ms)
        if opener.budget is None:
            yield opener.memory_for_wrapper(view, position, limits)
        content = opener.wrapper(view, position, limits)
        wrapper = _check_content(content, limits, now_ms)
        del content  # before another is opened
        state[write.POSITION] += wrapper.content.size_bytes
        _pass(state, wrapper.count, wrapper.max_timestamp_ms)
        state[write.STAMPED] += wrapper.content.magic
        wrappers.append(wrapper)


def _pass(state: NDArray[np.int64], count: int, max_timestamp_ms: int) -> None:
    """Count the messages of a wrapper or batch: to the log it is one entry, that of its last offset."""
    write = kernels.write
    state[write.COUNT] += count
    if max_timestamp_ms > state[write.MAX_TIMESTAMP]:
        state[write.MAX_TIMESTAMP], state[write.MAX_AT] = max_timestamp_ms, state[write.COUNT] - 1


def _check_content(content: Content, limits: Limits, now_ms: int) -> Wrapper:
    write = kernels.write
    state = _new_state(limits, now_ms)
    state[write.MAX_MESSAGE_BYTES] = INT64_MAX
    state[write.INNER] = 1
    state[write.WRAPPER_MAGIC] = content.magic
    stop = write.validate_run(read_only(content.data), CRC32_TABLES, state)
    if stop != stops.END:
        raise _fault(stop, content.data, int(state[write.POSITION]), limits, now_ms, content.position)
    count = int(state[write.COUNT])
    if count == 0:
        raise stops.corrupt("the compressed message holds no message", content.position)
    return Wrapper(
        replace(content, data=_NOT_KEPT),
        count,
        int(state[write.MAX_TIMESTAMP]),
        bool(state[write.CONSECUTIVE]),
        len(content.data),
    )


def _check_batch(
    view: memoryview, position: int, limits: Limits, now_ms: int, opener: ContentOpener
) -> BatchHeader:
    """The header of a good batch, into which the largest timestamp is written when it was another."""
    size = size_of(view, position)
    if size > limits.max_message_bytes:
        raise _fault(stops.TOO_LARGE, view, position, limits, now_ms)
    header = read_header(view, position)
    stop = _header_fault(header)
    if stop != stops.END:
        raise stops.error(stop, position)
    kernel = kernels.batches
    content = opener.batch(view, position, header, limits)
    state = np.zeros(kernel.CHECK_STATE_SIZE, dtype=np.int64)
    state[kernel.CHECK_MAX_TIMESTAMP] = NO_TIMESTAMP
    state[kernel.CHECK_WANTED] = header.count
    state[kernel.CHECK_BASE_TIMESTAMP] = header.base_timestamp_ms
    state[kernel.CHECK_KEY_NEEDED] = limits.compacted
    state[kernel.CHECK_EARLIEST], state[kernel.CHECK_LATEST] = limits.allowed_times(now_ms)
    stop = kernel.validate_records(read_only(content), state)
    if stop != stops.END:
        error = stops.batch_error(stop, int(state[kernel.CHECK_AT]), position)
        more = ""
        if stop == stops.TIMESTAMP_RANGE:
            more = _times(int(state[kernel.CHECK_TIMESTAMP]), limits, now_ms)
        raise BrokerError(error.code, error.detail + more)
    max_timestamp_ms = int(state[kernel.CHECK_MAX_TIMESTAMP])
    if header.max_timestamp_ms != max_timestamp_ms:
        set_max_timestamp(view, position, position + size, max_timestamp_ms)
        header = replace(header, max_timestamp_ms=max_timestamp_ms)
    return header


def _header_fault(header: BatchHeader) -> int:
    """What a producer must not send (``LogValidator.java`` of 3.9); END when there is nothing."""
    if header.control:
        return stops.CONTROL_BATCH
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return stops.TIMESTAMP_TYPE
    if header.count == 0:
        return stops.NO_RECORDS
    if header.count != header.last_offset_delta + 1:
        return stops.NOT_CONSECUTIVE
    if header.producer_id >= 0 and header.base_sequence < 0:
        return stops.NO_SEQUENCE
    return stops.END


def _times(timestamp_ms: int, limits: Limits, now_ms: int) -> str:
    difference = limits.max_timestamp_difference_ms
    return f": {timestamp_ms} ms, the broker has {now_ms} and allows {difference}"


def _fault(
    stop: int, view: memoryview, position: int, limits: Limits, now_ms: int, inside: int | None = None
) -> BrokerError:
    error = stops.error(stop, position, inside)
    more = ""
    if stop == stops.TIMESTAMP_RANGE:
        (timestamp_ms,) = _INT64.unpack_from(view, position + TIMESTAMP_AT)
        more = _times(timestamp_ms, limits, now_ms)
    elif stop == stops.TOO_LARGE:
        more = f", which is {limits.max_message_bytes}"
    return BrokerError(error.code, error.detail + more) if more else error


def _finish_wrappers(
    view: memoryview, wrappers: list[Wrapper], limits: Limits, now_ms: int
) -> tuple[memoryview, list[Wrapper]]:
    """Give magic 1 wrappers their content's timestamp; build those anew whose inner offsets have gaps."""
    replaced = []
    for wrapper in wrappers:
        content = wrapper.content
        if content.magic == 0:
            continue
        if not wrapper.consecutive:
            replaced.append((content, _rebuilt(view, wrapper, 0, limits.max_message_bytes)))
        elif (
            limits.timestamp_type is TimestampType.CREATE_TIME
            and content.timestamp_ms != wrapper.max_timestamp_ms
        ):
            end = content.position + content.size_bytes
            _INT64.pack_into(view, content.position + TIMESTAMP_AT, wrapper.max_timestamp_ms)
            crc = zlib.crc32(view[content.position + MAGIC_AT : end])
            _UINT32.pack_into(view, content.position + CRC_AT, crc)
    if not replaced:
        return view, wrappers
    # ``assign`` may need the positions, which have moved.
    sizes = {content.position: len(entry) for content, entry in replaced}
    moved = []
    shift = 0
    for wrapper in wrappers:
        content = wrapper.content
        size = sizes.get(content.position, content.size_bytes)
        content = replace(content, position=content.position + shift, size_bytes=size)
        shift += size - wrapper.content.size_bytes
        moved.append(replace(wrapper, content=content))
    return _splice(view, replaced), moved


def _rebuilt(view: memoryview, wrapper: Wrapper, first_inner_offset: int, max_message_bytes: int) -> bytes:
    """The wrapper with inner offsets from ``first_inner_offset`` on. MESSAGE_TOO_LARGE if it grew so."""
    content = wrapper.content
    inner = bytearray(open_wrapper(view, content.position).data)
    kernels.write.assign_offsets(writable(inner), first_inner_offset, _NO_WRAPPERS, -1, 0, _NO_MARKS)
    entry = wrap(
        inner,
        offset=first_inner_offset + wrapper.count - 1,
        magic=content.magic,
        codec=content.codec,
        timestamp_ms=wrapper.max_timestamp_ms,
    )
    if len(entry) > max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the message at position {content.position} has {len(entry)} bytes once it was compressed "
            f"again with its new offsets, max.message.bytes is {max_message_bytes}",
        )
    return entry


def _splice(view: memoryview, replaced: list[tuple[Content, bytes]]) -> memoryview:
    out = bytearray()
    position = 0
    for content, entry in replaced:
        out += view[position : content.position]
        out += entry
        position = content.position + content.size_bytes
    out += view[position:]
    return memoryview(out)


def _absolute_bytes(valid: ValidatedSet) -> int:
    """The content of all wrappers whose inner offsets are absolute."""
    return sum(wrapper.content_bytes for wrapper in valid.wrappers if wrapper.content.magic == 0)


_NOT_KEPT = memoryview(b"")
_NO_WRAPPERS = np.zeros(0, dtype=np.int64)
_NO_WRAPPERS.flags.writeable = False
_NO_MARKS = np.zeros(0, dtype=np.int64)


def prepare(valid: ValidatedSet, base_offset: int, budget: ContentBudget | None = None) -> ValidatedSet:
    """Do now what takes long in ``assign``, for the case that ``base_offset`` is the one: without locks.

    Raises as ``assign`` does, and BudgetExceeded as ``validate`` does.
    """
    if not valid.wrappers or all(wrapper.content.magic for wrapper in valid.wrappers):
        return valid
    if budget is not None:
        budget.take(REWRITE_COST * _absolute_bytes(valid))
    return replace(valid, prepared=(base_offset, _renumber_magic_0(valid, base_offset)))


def memory_to_prepare(valid: ValidatedSet) -> int:
    """The bytes that ``prepare`` takes."""
    return REWRITE_MEMORY * _absolute_bytes(valid)


def assign(
    valid: ValidatedSet, base_offset: int, leader_epoch: int = -1, *, mark_every: int = _SELDOM
) -> AssignedSet:
    """Number the messages from ``base_offset`` on, in place where the format allows it.

    Batches of magic 2 also get the leader epoch. ``mark_every`` bytes an entry is marked for the index.

    A set can be assigned again (after an append that failed). OffsetMoved, and nothing is changed, when the
    set was prepared for another offset and it would take long to build its wrappers for this one.
    """
    data = valid.data
    counts = _NO_WRAPPERS
    if len(valid.batches) == 1 and valid.batches[0].size_bytes == len(data):
        place(data, base_offset, leader_epoch)
        return _assigned(valid, data, base_offset, ((base_offset + valid.count - 1, 0),))
    if valid.wrappers:
        counts = np.array([wrapper.count for wrapper in valid.wrappers], dtype=np.int64)
        counts.flags.writeable = False
        moved = valid.prepared is not None and valid.prepared[0] != base_offset
        if moved and _absolute_bytes(valid) > ASSIGNED_AGAIN_BYTES:
            raise OffsetMoved
        data = _renumber_magic_0(valid, base_offset)
    room = 2 + len(data) // max(mark_every, ENTRY_HEADER_BYTES + MIN_SIZE)
    marks = np.empty(1 + 2 * room, dtype=np.int64)
    kernels.write.assign_offsets(writable(data), base_offset, counts, leader_epoch, mark_every, marks)
    found = marks[1 : 1 + 2 * int(marks[0])].tolist()
    return _assigned(valid, data, base_offset, tuple(zip(found[::2], found[1::2], strict=True)))


def _assigned(
    valid: ValidatedSet, data: memoryview, base_offset: int, marks: tuple[tuple[int, int], ...]
) -> AssignedSet:
    return AssignedSet(
        data,
        base_offset,
        base_offset + valid.count - 1,
        valid.count,
        valid.max_timestamp_ms,
        base_offset + valid.max_timestamp_at,
        marks,
    )


def _renumber_magic_0(valid: ValidatedSet, base_offset: int) -> memoryview:
    """Compress magic 0 wrappers again with absolute inner offsets from ``base_offset`` on."""
    if all(wrapper.content.magic for wrapper in valid.wrappers):
        return valid.data
    if valid.prepared is not None and valid.prepared[0] == base_offset:
        return valid.prepared[1]
    replaced = []
    offset = base_offset
    position = 0
    for wrapper in valid.wrappers:
        content = wrapper.content
        between = np.zeros(3, dtype=np.int64)
        kernels.read.measure(read_only(valid.data[position : content.position]), between)
        offset += int(between[0])
        if content.magic == 0 and not (wrapper.consecutive and offset == 0):
            replaced.append((content, _rebuilt(valid.data, wrapper, offset, valid.max_message_bytes)))
        offset += wrapper.count
        position = content.position + content.size_bytes
    return _splice(valid.data, replaced) if replaced else valid.data
