"""Down-conversion in bounded pieces: a stored set is converted to an older format while it is sent.

A large set, or one whose compressed content is large, is never converted as a whole.
``DownConverter.steps`` converts one piece, from the end of the last one; the sender requests the next piece
when it needs it. Only a ``Cursor`` is kept between two pieces, so a piece can be dropped and converted again.

    plain batch        messages, as many as fit the piece; the next piece continues within the batch
    compressed batch   wrappers of at most ``PORTION_BYTES`` of content each, or one message
    wrapper            the same, if it has to be converted to magic 0
    messages           unchanged, or without their timestamp

Offsets do not change, as with ``conversion.down_convert``. Messages below the requested offset are left out
where that costs nothing: in a plain batch, and whole wrappers of a compressed one (Kafka does so for plain
batches, and some consumers rely on it).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from minikafka.base.errors import BrokerError, StorageError
from minikafka.base.files import Buffer, FileSlice
from minikafka.records import kernels
from minikafka.records.append.conversion import (
    batch_state,
    check_codec,
    convert_messages,
    pass_messages,
    run_state,
    wrapper_state,
)
from minikafka.records.format.batch import BatchHeader, read_header, records_of
from minikafka.records.format.checksums import CRC32_TABLES
from minikafka.records.format.compression import MAX_CONTENT_BYTES, Codec, content_bound
from minikafka.records.format.message_set import NO_TIMESTAMP, Content, open_wrapper, wrap, wrapper_value
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import read_only
from minikafka.records.kernels.layout import BATCH_HEADER_BYTES, MAGIC_AT, MIN_MESSAGE_BYTES, entry_size
from minikafka.records.scan.scan import find_position

WINDOW_BYTES = 128 << 10
"""The bytes that are read at once, except for a larger entry."""
PIECE_BYTES = 256 << 10
"""The size at which a piece ends."""
PORTION_BYTES = 1 << 20
"""The content of a wrapper that is built from a part of a batch."""
WORK_BYTES = 32 << 20
"""The amount of processed content at which a piece ends: it may compress to few bytes."""
_MESSAGE_BYTES = 64
"""A limit for the bytes of a message besides its key and value."""
_GROWTH = 6
"""The maximum ratio of the size of converted messages to that of their records of magic 2."""
_EXPANSION = {Codec.GZIP: 1040, Codec.SNAPPY: 24, Codec.LZ4: 256}
"""The maximum ratio of content to compressed content."""

Steps = Generator[int, None, "Piece"]
"""Work in steps: each yields the bytes of memory that the next one needs; the last returns the piece."""


class EntryPosition(NamedTuple):
    """The start of the next piece within a batch or a wrapper: the byte ``at`` of its content; for a batch
    also the number of records ``left``, and the offset delta of the record before.
    """

    at: int
    left: int = 0
    delta: int = -1


class Cursor(NamedTuple):
    """The start of the next piece: the position of an entry, and a position in it (None: its start)."""

    position: int
    inside: EntryPosition | None = None


class Piece(NamedTuple):
    """A converted piece. ``data`` may be empty; ``next`` is None if nothing follows."""

    data: memoryview
    next: Cursor | None


START = Cursor(0)


class _Part(NamedTuple):
    """Converted bytes; the position in the entry at which to continue (None: after its ``size`` stored
    bytes); the amount of processed content.
    """

    data: Buffer
    inside: EntryPosition | None
    size: int
    work: int


class DownConverter:
    """Converts the whole entries of a slice to ``magic``, 0 or 1, at most. ``first_offset`` is the requested
    offset.
    """

    def __init__(self, source: FileSlice, magic: int, first_offset: int = 0) -> None:
        self._source = source
        self._magic = magic
        self._first_offset = first_offset

    @property
    def path(self) -> str:
        """The path of the slice's file."""
        return str(self._source.file.path)

    def steps(self, cursor: Cursor) -> Steps:
        """Convert the piece that begins at ``cursor``.

        CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE (zstd) and StorageError if the error is at its start.
        At an error after converted data, the piece ends, and nothing follows.
        """
        parts: list[Buffer] = []
        made = work = 0
        following: Cursor | None = cursor
        while following is not None and made < PIECE_BYTES and work < WORK_BYTES:
            if work:
                yield 0  # while little memory is held, so that other jobs can run
            try:
                part, following = yield from self._next(following)
            except (BrokerError, StorageError):
                if not made:
                    raise
                following = None
                break
            if part.data:
                parts.append(part.data)
                made += len(part.data)
            work += part.work
        return Piece(memoryview(parts[0] if len(parts) == 1 else b"".join(parts)), following)

    def _next(self, cursor: Cursor) -> Generator[int, None, tuple[_Part, Cursor | None]]:
        """Convert the next part: messages of one window, or a part of a batch or wrapper."""
        position = cursor.position
        left = self._source.length - position
        head = self._read(position, min(WINDOW_BYTES, left))
        size = _entry_bytes(head)
        if size is None or size > left:
            return _Part(b"", None, 0, 0), None
        if head[MAGIC_AT] == 2:
            part = yield from self._batch(position, head, size, cursor.inside)
        else:
            if size > len(head):
                yield 3 * size
                head = self._read(position, size)
            part = yield from self._messages(head, position, cursor.inside)
        if part.inside is not None:
            return part, Cursor(position, part.inside)
        return part, Cursor(position + part.size) if part.size < left else None

    def _read(self, position: int, size: int) -> memoryview:
        data = self._source.part(position, size).read()
        if len(data) < size:
            raise StorageError(
                f"{self._source.file.path} was truncated while it was being sent: "
                f"read {len(data)} of {size} bytes"
            )
        return memoryview(data)

    # --- messages of magic 0 and 1 --------------------------------------------------------------------------

    def _messages(
        self, view: memoryview, position: int, inside: EntryPosition | None
    ) -> Generator[int, None, _Part]:
        """Convert a run of messages, or the next part of the wrapper at the start."""
        if inside is None:
            data: Buffer
            if self._magic:
                _, data, end = pass_messages(view, 0)
            else:
                _, data, end = convert_messages(view, 0, run_state(0))
            if end:
                return _Part(data, None, end, end)
        size = _entry_bytes(view) or 0
        if not view[MAGIC_AT]:
            return _Part(view[:size], None, size, size)
        codec, value = wrapper_value(view, 0)
        content_bytes = 0 if value is None else content_bound(codec, value)
        yield size + content_bytes + min(2 * PORTION_BYTES, content_bytes)
        content = replace(open_wrapper(view, 0, MAX_CONTENT_BYTES), position=position)
        return self._portion_of_wrapper(content, inside or EntryPosition(0))

    def _portion_of_wrapper(self, content: Content, inside: EntryPosition) -> _Part:
        state = wrapper_state(content)
        total, at, end, room = len(content.data), inside.at, 0, PORTION_BYTES
        data: Buffer = b""
        while not end:
            whole = at + room >= total
            # Only a portion that reaches the end of the content shows whether that is cut off.
            _, data, end = convert_messages(
                content.data[at : at + room], 0, state, content.position if whole else None
            )
            room *= 4
        rest = EntryPosition(at + end) if at + end < total else None
        entry = wrap(
            data,
            offset=content.offset if rest is None else _last_offset(data),
            magic=0,
            codec=content.codec,
            timestamp_ms=NO_TIMESTAMP,
        )
        return _Part(entry, rest, content.size_bytes, total)

    # --- batches of magic 2 ---------------------------------------------------------------------------------

    def _batch(
        self, position: int, head: memoryview, size: int, inside: EntryPosition | None
    ) -> Generator[int, None, _Part]:
        header = read_header(head, 0, check_crc=False)
        if header.control:
            return _Part(b"", None, size, BATCH_HEADER_BYTES)
        check_codec(header, self._magic)
        plain = header.codec is Codec.NONE
        view = head[:size]
        if not plain or (size > len(head) and inside is None):
            content_bytes = 0
            if size <= len(head):
                content_bytes = content_bound(header.codec, head[BATCH_HEADER_BYTES:size])
            elif not plain:
                content_bytes = min(MAX_CONTENT_BYTES, _EXPANSION[header.codec] * size)
            # No yield from here on: a waiting job must not hold much memory.
            # One record may be all of the content.
            yield size + 2 * content_bytes + min(2 * PORTION_BYTES, _GROWTH * content_bytes)
            view = self._read(position, size) if size > len(head) else view
        if inside is None:
            read_header(view, 0)
            inside = EntryPosition(0, header.count)
        if plain:
            return self._portion_of_plain(view, position, header, inside)
        content = records_of(view, 0, header, MAX_CONTENT_BYTES)
        return self._portions_of_compressed(content, position, header, inside)

    def _portion_of_plain(
        self, view: memoryview, position: int, header: BatchHeader, inside: EntryPosition
    ) -> _Part:
        """Convert the next messages of a plain batch; ``view`` may be only its start."""
        total = header.size_bytes - BATCH_HEADER_BYTES
        begin, room = BATCH_HEADER_BYTES + inside.at, WINDOW_BYTES
        while True:
            if len(view) == header.size_bytes:
                content, last = view[begin:], True
            else:
                length = min(room, total - inside.at)
                content, last = self._read(position + begin, length), length < room
            data, rest, *_ = self._convert(content, last, position, header, inside, PIECE_BYTES)
            if rest != inside:
                data = self._from_first(data, header, inside)
                return _Part(data, rest, header.size_bytes, len(data))
            room *= 4

    def _portions_of_compressed(
        self, content: memoryview, position: int, header: BatchHeader, inside: EntryPosition
    ) -> _Part:
        """Build wrappers until the piece is large enough."""
        parts: list[bytes] = []
        made = looked = 0
        rest: EntryPosition | None = inside
        while rest is not None and made < PIECE_BYTES and looked < WORK_BYTES:
            records = content[rest.at :]
            data, rest, delta, newest_ms = self._convert(records, True, position, header, rest, PORTION_BYTES)
            looked += len(data)
            last = header.base_offset + delta
            if data and last >= self._first_offset:
                parts.append(
                    wrap(
                        data,
                        offset=last,
                        magic=self._magic,
                        codec=header.codec,
                        timestamp_ms=newest_ms,
                        timestamp_type=header.timestamp_type,
                    )
                )
                made += len(parts[-1])
        return _Part(b"".join(parts), rest, header.size_bytes, len(content))

    def _convert(
        self,
        content: memoryview,
        last: bool,
        position: int,
        header: BatchHeader,
        inside: EntryPosition,
        room: int,
    ) -> tuple[memoryview, EntryPosition | None, int, int]:
        """Convert records to messages of at most ``room`` bytes, or to one larger message.

        ``content`` begins at ``inside``; ``last``: it contains the end of the batch. Return the messages; the
        position at which to continue (``inside`` itself: the next record needs more of the batch); the offset
        delta of the last record; the newest timestamp.
        """
        batches = kernels.batches
        state = batch_state(header, self._magic)
        state[batches.CONVERT_LEFT], state[batches.CONVERT_DELTA] = inside.left, inside.delta
        data = read_only(content)
        growth = _MESSAGE_BYTES * min(inside.left, len(content) // 7 + 1)
        out = np.empty(min(room, len(content) + growth), dtype=np.uint8)
        stop = batches.convert_records(data, CRC32_TABLES, out, state)
        if stop == decode_status.VALUES_FULL and not state[batches.CONVERT_BYTES]:
            # A single message is larger than ``room``.
            out = np.empty(len(content) + _MESSAGE_BYTES, dtype=np.uint8)
            state[batches.CONVERT_LEFT] = 1
            stop = batches.convert_records(data, CRC32_TABLES, out, state)
            state[batches.CONVERT_LEFT] += inside.left - 1
            if state[batches.CONVERT_BYTES] and stop in {decode_status.END, decode_status.BAD_COUNT}:
                stop = decode_status.VALUES_FULL if state[batches.CONVERT_LEFT] else stop
        used = int(state[batches.CONVERT_BYTES])
        delta, newest_ms = int(state[batches.CONVERT_DELTA]), int(state[batches.CONVERT_MAX_TIMESTAMP])
        messages = memoryview(out.data)[:used]
        if 2 * used < len(out):
            messages = memoryview(bytes(messages))
        if stop == decode_status.END:
            return messages, None, delta, newest_ms
        if stop != decode_status.VALUES_FULL and (last or stop == decode_status.BAD_DELTA) and not used:
            raise decode_status.batch_error(stop, inside.at + int(state[batches.CONVERT_AT]), position)
        at, left = int(state[batches.CONVERT_AT]), int(state[batches.CONVERT_LEFT])
        return messages, EntryPosition(inside.at + at, left, delta), delta, newest_ms

    def _from_first(self, data: memoryview, header: BatchHeader, inside: EntryPosition) -> memoryview:
        """Return ``data`` without the messages below the requested offset."""
        if header.base_offset + inside.delta + 1 >= self._first_offset or not data:
            return data
        begin = find_position(data, self._first_offset)
        return data[len(data) if begin is None else begin :]


def _entry_bytes(view: memoryview) -> int | None:
    """Return the size of the entry at the start; None if its magic byte is missing.

    Raises CORRUPT_MESSAGE.
    """
    if len(view) <= MAGIC_AT:
        return None
    size = entry_size(view)
    if size < MIN_MESSAGE_BYTES:
        raise decode_status.error(decode_status.BAD_SIZE, 0)
    return size


def _last_offset(data: Buffer) -> int:
    """Return the offset of the last message."""
    read = kernels.read
    measured = np.zeros(read.MEASURED_SIZE, dtype=np.int64)
    read.measure(read_only(data), measured)
    return int(measured[read.MEASURED_LAST])
