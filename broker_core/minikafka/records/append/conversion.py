"""Conversion between formats: down for old fetchers, and of produced sets to the format of their topic.

Fetch versions 0 and 1 accept magic 0, versions 2 and 3 also magic 1. Down-conversion keeps offsets. To magic
0 it drops timestamps; from magic 2 it drops headers, producers, control batches and batches without records,
which can leave nothing. A wrapper or batch is decompressed, converted and compressed again with the same
codec; zstd, which old fetchers do not know, is UNSUPPORTED_COMPRESSION_TYPE, as in Kafka 2.1
(``RecordsUtil.java``).

Only produced sets are converted up: stored records never get a newer format.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.append.wrappers import Wrappers, memory_to_open, open_group
from minikafka.records.format.batch import BatchHeader, assemble, read_header, records_of
from minikafka.records.format.checksums import CRC32_TABLES
from minikafka.records.format.compression import MAX_CONTENT_BYTES, Codec
from minikafka.records.format.message_set import (
    NO_TIMESTAMP,
    Content,
    TimestampType,
    inner_shift,
    open_wrapper,
    wrap,
)
from minikafka.records.kernels import decode_status, layout
from minikafka.records.kernels.arrays import INT64_MAX, read_only, writable

_NO_COUNTS = np.zeros(0, dtype=np.int64)
_NO_COUNTS.flags.writeable = False
_NO_MARKS = np.zeros(0, dtype=np.int64)
HELD_BYTES = 8 << 20
"""The memory that the rewriting of a set in steps may hold between two steps."""
REWRITE_MEMORY = 3
"""The memory for rewriting in multiples of the content: the content, the new content, and that compressed."""
_GROWTH_BYTES = layout.MESSAGE_OVERHEAD_BYTES - layout.MIN_RECORD_BYTES
"""The bytes by which a message of magic 1 may be larger than the same record in a batch."""


def down_convert(data: Buffer, max_magic: int = 0, max_content_bytes: int = MAX_CONTENT_BYTES) -> bytes:
    """Convert the set to ``max_magic``, 0 or 1, at most; a cut-off last entry is left out.

    Raises CORRUPT_MESSAGE on damage and if a wrapper or batch holds more than ``max_content_bytes``;
    UNSUPPORTED_COMPRESSION_TYPE for zstd.
    """
    view = memoryview(data)
    parts: list[Buffer] = []
    position = 0
    converted: Buffer
    while True:
        if max_magic:
            stop, converted, position = pass_messages(view, position)
        else:
            stop, converted, position = convert_messages(view, position, run_state(0))
        parts.append(converted)
        if stop in {decode_status.END, decode_status.PARTIAL}:
            return b"".join(parts)
        if stop == decode_status.BATCH:
            entry, size = _convert_batch(view, position, max_magic, max_content_bytes)
        else:
            entry, size = _convert_wrapper(view, position, max_content_bytes)
        parts.append(entry)
        position += size


def wrapper_state(content: Content) -> NDArray[np.int64]:
    """Return the state of a run over a wrapper's content.

    Raises CORRUPT_MESSAGE for one that holds no message.
    """
    state = run_state(0)
    state[kernels.write.CONVERT_SHIFT] = inner_shift(content)
    return state


def _convert_wrapper(view: memoryview, position: int, max_content_bytes: int) -> tuple[bytes, int]:
    """Return the wrapper at ``position`` in magic 0, and the size of the original."""
    content = open_wrapper(view, position, max_content_bytes)
    if content.magic == 0:
        return bytes(view[position : position + content.size_bytes]), content.size_bytes
    state = wrapper_state(content)
    _, inner, _ = convert_messages(content.data, 0, state, position)
    entry = wrap(inner, offset=content.offset, magic=0, codec=content.codec, timestamp_ms=NO_TIMESTAMP)
    return entry, content.size_bytes


def _convert_batch(view: memoryview, position: int, magic: int, max_content_bytes: int) -> tuple[bytes, int]:
    """Return the batch at ``position`` as messages of ``magic``, in a wrapper if it is compressed, and the
    size of the original.
    """
    header = read_header(view, position)
    if header.control:
        return b"", header.size_bytes
    check_codec(header, magic)
    batches = kernels.batches
    content = records_of(view, position, header, max_content_bytes)
    plain = header.codec is Codec.NONE
    state = batch_state(header, magic)
    records_most = min(header.count, len(content) // 7)
    out = np.empty(len(content) + _GROWTH_BYTES * records_most, dtype=np.uint8)
    stop = batches.convert_records(read_only(content), CRC32_TABLES, out, state)
    if stop != decode_status.END:
        stop = decode_status.BAD_COUNT if stop == decode_status.VALUES_FULL else stop
        raise decode_status.batch_error(stop, int(state[batches.CONVERT_AT]), position)
    del content  # compression needs memory too
    converted = out[: int(state[batches.CONVERT_BYTES])].data
    if plain or not converted:
        return bytes(converted), header.size_bytes
    entry = wrap(
        converted,
        offset=header.base_offset + int(state[batches.CONVERT_DELTA]),
        magic=magic,
        codec=header.codec,
        timestamp_ms=int(state[batches.CONVERT_MAX_TIMESTAMP]),
        timestamp_type=header.timestamp_type,
    )
    return entry, header.size_bytes


def check_codec(header: BatchHeader, magic: int) -> None:
    """Raise UNSUPPORTED_COMPRESSION_TYPE for a batch in zstd, which ``magic`` does not support."""
    if header.codec is Codec.ZSTD:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"cannot convert the batch at offset {header.base_offset} to magic {magic}, which has no zstd: "
            "fetch it with a client that supports magic 2",
        )


def batch_state(header: BatchHeader, magic: int) -> NDArray[np.int64]:
    """Return the state of ``convert_records`` before the first record of a batch."""
    batches = kernels.batches
    plain = header.codec is Codec.NONE
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    state = np.zeros(batches.CONVERT_STATE_SIZE, dtype=np.int64)
    state[batches.CONVERT_LEFT] = header.count
    state[batches.CONVERT_DELTA] = -1
    state[batches.CONVERT_LAST_DELTA] = header.last_offset_delta
    state[batches.CONVERT_BASE_OFFSET] = header.base_offset if plain or magic == 0 else 0
    state[batches.CONVERT_MAGIC] = magic
    state[batches.CONVERT_ATTRIBUTES] = layout.APPEND_TIME_BIT if plain and append_time and magic else 0
    state[batches.CONVERT_TIMESTAMP] = header.max_timestamp_ms if append_time else header.base_timestamp_ms
    state[batches.CONVERT_APPEND_TIME] = append_time
    state[batches.CONVERT_MAX_TIMESTAMP] = header.max_timestamp_ms if append_time else NO_TIMESTAMP
    return state


def pass_messages(view: memoryview, position: int) -> tuple[int, bytes, int]:
    """Copy a run of messages of magic 0 and 1. Return the code at which it ended, its bytes, and its end."""
    at = position
    while True:
        room = len(view) - at
        if room < layout.ENTRY_HEADER_BYTES:
            return decode_status.PARTIAL, bytes(view[position:at]), at
        size = layout.entry_size(view, at)
        if size < layout.MIN_MESSAGE_BYTES:
            raise decode_status.error(decode_status.BAD_SIZE, at)
        if size > room:
            return decode_status.PARTIAL, bytes(view[position:at]), at
        if view[at + layout.MAGIC_AT] > 2:
            raise decode_status.error(decode_status.OTHER_MAGIC, at)
        if view[at + layout.MAGIC_AT] == 2:
            return decode_status.BATCH, bytes(view[position:at]), at
        at += size


def run_state(magic: int, max_message_bytes: int = INT64_MAX) -> NDArray[np.int64]:
    write = kernels.write
    state = np.zeros(write.CONVERT_STATE_SIZE, dtype=np.int64)
    state[write.CONVERT_MAGIC] = magic
    state[write.CONVERT_MAX_MESSAGE_BYTES] = max_message_bytes
    state[write.CONVERT_MAX_TIMESTAMP] = NO_TIMESTAMP
    return state


def convert_messages(
    view: memoryview, position: int, state: NDArray[np.int64], inside: int | None = None
) -> tuple[int, memoryview, int]:
    """Convert a run of uncompressed messages. Return the code at which it ended, its bytes, and its end."""
    write = kernels.write
    state[write.CONVERT_POSITION] = position
    state[write.CONVERT_BYTES] = 0
    room = len(view) - position
    if state[write.CONVERT_MAGIC]:
        room += layout.TIMESTAMP_BYTES * (room // layout.MIN_MESSAGE_BYTES)
    out = np.empty(room, dtype=np.uint8)
    stop = write.convert_run(read_only(view), CRC32_TABLES, out, state)
    at = int(state[write.CONVERT_POSITION])
    if inside is not None and stop == decode_status.WRAPPER:
        stop = decode_status.NESTED
    if inside is not None and stop == decode_status.BATCH:
        stop = decode_status.INNER_MAGIC
    if stop >= decode_status.FIRST_PROBLEM or (inside is not None and stop != decode_status.END):
        error = decode_status.error(stop, at, inside)
        maximum = state[write.CONVERT_MAX_MESSAGE_BYTES]
        limit = f"; max.message.bytes={maximum}" if stop == decode_status.TOO_LARGE else ""
        raise BrokerError(error.code, error.detail + limit)
    return stop, out[: int(state[write.CONVERT_BYTES])].data, at


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Messages in the format of their topic, with the offsets 0, 1, 2 … and create times.

    ``max_timestamp_at`` is the number of messages before the first one with the largest timestamp;
    ``content_bytes`` is the size of the messages before compression.
    """

    data: memoryview
    max_timestamp_ms: int
    max_timestamp_at: int
    content_bytes: int


def rewrite_steps(
    data: Buffer, wrappers: Wrappers, magic: int, codec: Codec, max_message_bytes: int, max_content_bytes: int
) -> Generator[int, None, Rewritten]:
    """Rewrite a valid set of magic 0 and 1 in ``magic``, 0 or 1, and ``codec``: one wrapper, or plain
    messages.

    It works in steps, each of which yields the memory that the next one needs, as long as little of the new
    set exists. Messages that become magic 1 get the timestamp -1, which append times replace later. Raises
    MESSAGE_TOO_LARGE when a new message is larger than ``max_message_bytes``; RECORD_LIST_TOO_LARGE when all
    wrappers together, or the new one, hold more than ``max_content_bytes``. Source:
    ``validateMessagesAndAssignOffsets`` of 0.10.1, which also builds one wrapper for a set.
    """
    write = kernels.write
    view = memoryview(data)
    state = run_state(magic, max_message_bytes if codec is Codec.NONE else INT64_MAX)
    parts: list[Buffer] = []
    position = content_bytes = number = made = 0
    while True:
        end = int(wrappers.column(write.WRAPPER_AT)[number]) if number < len(wrappers) else len(view)
        if position < end:
            _, part, position = convert_messages(view[:end], position, state)
            parts.append(part)
        if number == len(wrappers):
            break
        group = wrappers.run_from(number)
        if made <= HELD_BYTES:
            yield REWRITE_MEMORY * memory_to_open(view, group, max_content_bytes)
        content, ends = open_group(view, group, max_content_bytes)
        content_bytes += len(content)
        _check_content(content_bytes, max_content_bytes)
        _, part, _ = convert_messages(content, 0, state, position)
        parts.append(part)
        made += len(part)
        number += len(ends)
        position = int(group[len(ends) - 1, write.WRAPPER_AT] + group[len(ends) - 1, write.WRAPPER_SIZE])
        del content  # before the next group is decompressed, or the parts are joined
    messages = bytearray().join(parts)
    write.assign_offsets(writable(messages), 0, _NO_COUNTS, -1, 0, _NO_MARKS)
    max_timestamp_ms, max_timestamp_at = (
        int(state[place]) for place in (write.CONVERT_MAX_TIMESTAMP, write.CONVERT_MAX_AT)
    )
    if codec is Codec.NONE:
        return Rewritten(memoryview(messages), max_timestamp_ms, max_timestamp_at, len(messages))
    # It may have grown. Compaction and clients must be able to decompress it.
    _check_content(len(messages), max_content_bytes)
    last = int(state[write.CONVERT_COUNT]) - 1
    entry = wrap(messages, offset=last, magic=magic, codec=codec, timestamp_ms=max_timestamp_ms)
    _check_size(len(entry), codec, max_message_bytes)
    newest_at = last if max_timestamp_ms >= 0 else 0
    return Rewritten(memoryview(bytearray(entry)), max_timestamp_ms, newest_at, len(messages))


def rewrite_batches(data: Buffer, codec: Codec, max_message_bytes: int, max_content_bytes: int) -> bytearray:
    """Rewrite a valid set of magic 2 with every batch in ``codec``. Raises as ``rewrite_steps`` does."""
    view = memoryview(data)
    out = bytearray()
    position = content_bytes = 0
    while position < len(view):
        header = read_header(view, position, check_crc=False)
        content = records_of(view, position, header, max_content_bytes)
        content_bytes += len(content)
        _check_content(content_bytes, max_content_bytes)
        if codec is Codec.NONE:
            _check_size(layout.BATCH_HEADER_BYTES + len(content), codec, max_message_bytes)
        entry = assemble(content, replace(header, codec=codec))
        _check_size(len(entry), codec, max_message_bytes)
        del content
        if header.size_bytes == len(view):
            return entry
        out += entry
        position += header.size_bytes
    return out


def _check_content(content_bytes: int, max_content_bytes: int) -> None:
    """Raise RECORD_LIST_TOO_LARGE if a set that is to be rewritten has more content than this."""
    if content_bytes > max_content_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the set decompresses to {content_bytes} bytes, which exceeds the limit of {max_content_bytes} "
            "for conversion to the format of the topic: send it in parts",
        )


def _check_size(size_bytes: int, codec: Codec, max_message_bytes: int) -> None:
    """Raise MESSAGE_TOO_LARGE if the rewritten set is larger than the topic allows."""
    if size_bytes > max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the set has {size_bytes} bytes in the codec of the topic ({codec.name.lower()}), which exceeds "
            f"max.message.bytes={max_message_bytes}: send it in parts",
        )
