"""Chunks of fetched messages, from the fetchers to one stream: the chunk, the bounded queue, the partition's
positions, and the reader that decodes a chunk page by page.

A chunk takes its place in the queue until the stream asks for the next chunk, so the chunk in work counts:
this bounds a consumer's memory. The queue's lock is also the lock of the stream's iterator. So a chunk is
either in the queue or in the iterator, and a caller that clears both under the lock misses none.

The reader decodes only what the next pages need: a chunk of compressed messages is never unpacked whole, a
chunk of large messages is not copied whole, and message objects are made as they are asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Final, Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import CorruptMessage, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.message_and_metadata import K, MessageAndMetadata, V
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry
from minikafka.clients.serializer import Decoder
from minikafka.records.format.message_set import ENTRY_HEADER_BYTES
from minikafka.records.format.record import TimestampType

if TYPE_CHECKING:
    from minikafka.records.columns import Columns


class PartitionPosition(Protocol):
    """How far a partition was consumed: its ``PartitionTopicInfo``."""

    consumed_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it is."""


@dataclass(frozen=True, slots=True, eq=False)
class FetchedDataChunk:
    """Whole entries of one partition (``FetchedDataChunk`` of text 004).

    messages      the entries, in private memory; the first may hold messages before ``fetch_offset``, as a
                  compressed one is sent whole. Empty where the partition is read on at ``fetch_offset`` for
                  another reason.
    fetch_offset  what was asked for
    next_offset   behind the last entry
    error         in the place of messages: the stream raises it
    """

    messages: memoryview
    info: PartitionPosition
    fetch_offset: int
    next_offset: int
    error: MinikafkaError | None = None


_STOP_POLL_SECONDS = 0.1


class Command(Enum):
    """What stands in a queue that is no chunk."""

    SHUTDOWN = "shutdown"


SHUTDOWN: Final = Command.SHUTDOWN
"""The iteration ends here (``shutdownCommand`` of text 004). It stays in the queue for others."""


def _nothing() -> None:
    pass


class ChunkQueue:
    """Up to ``max_chunks`` chunks of one stream (``queued.max.message.chunks``). Thread-safe.

    Methods whose names end with ``_locked`` are for who holds ``lock``.
    """

    def __init__(self, max_chunks: int) -> None:
        if max_chunks < 1:
            raise ValueError(f"a queue has room for one chunk at least, not for {max_chunks}")
        self.max_chunks = max_chunks
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._chunks: deque[FetchedDataChunk] = deque()
        self._chunks_in_use = 0
        self._closed = False
        self._on_room: Callable[[], None] = _nothing

    @property
    def has_room(self) -> bool:
        """Whether another chunk would be taken now."""
        return not self._closed and len(self._chunks) + self._chunks_in_use < self.max_chunks

    @property
    def is_closed(self) -> bool:
        """Whether the shutdown command is in it."""
        return self._closed

    def __len__(self) -> int:
        return len(self._chunks)

    def on_room(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback`` whenever there is room again, with the lock held: it must not ask the queue."""
        with self.lock:
            self._on_room = callback or _nothing

    def offer(self, chunk: FetchedDataChunk) -> bool:
        """Put ``chunk`` at the end; False when there is no room, or the queue is closed."""
        with self.lock:
            if not self.has_room:
                return False
            self._chunks.append(chunk)
            self._changed.notify_all()
            return True

    def put(self, chunk: FetchedDataChunk, stop: threading.Event | None = None) -> bool:
        """As ``offer``, but wait for room; False once the queue is closed or ``stop`` is set."""
        with self.lock:
            while not self.has_room:
                if self._closed or (stop is not None and stop.is_set()):
                    return False
                self._changed.wait(None if stop is None else _STOP_POLL_SECONDS)
            self._chunks.append(chunk)
            self._changed.notify_all()
            return True

    def take(self, timeout_ms: int | None = None) -> FetchedDataChunk | Command | None:
        """The next chunk, or the shutdown command; None when there is neither within ``timeout_ms``.

        The chunk that was taken before is done with.
        """
        with self.lock:
            return self.take_locked(None if timeout_ms is None else time.monotonic() + timeout_ms / 1000)

    def clear(self) -> None:
        """Forget the chunks that wait. The shutdown command stays."""
        with self.lock:
            self._chunks.clear()
            self._changed.notify_all()
            self._on_room()

    def close(self, last: FetchedDataChunk | None = None) -> None:
        """Forget the chunks that wait, and end the iteration behind the one in work, or behind ``last``."""
        with self.lock:
            self._closed = True
            self._chunks.clear()
            if last is not None:
                self._chunks.append(last)
            self._changed.notify_all()

    def take_locked(self, end: float | None) -> FetchedDataChunk | Command | None:
        """As ``take``; ``end`` is on the scale of ``time.monotonic``."""
        self.release_chunk_locked()
        while not self._chunks:
            if self._closed:
                return SHUTDOWN
            if not self.wait_locked(end):
                return None
        self._chunks_in_use = 1
        return self._chunks.popleft()

    def release_chunk_locked(self) -> None:
        """The chunk that was taken last is not worked on any more."""
        if self._chunks_in_use:
            self._chunks_in_use = 0
            self._changed.notify_all()
            self._on_room()

    def clear_locked(self) -> None:
        """``clear``, and also what is in work."""
        self._chunks.clear()
        self._chunks_in_use = 0
        self._changed.notify_all()
        self._on_room()

    def wait_locked(self, end: float | None) -> bool:
        """Wait until something may have changed; False when it is later than ``end``."""
        if end is None:
            self._changed.wait()
            return True
        left = end - time.monotonic()
        if left <= 0:
            return False
        self._changed.wait(left)
        return True


INVALID_OFFSET = -1
"""No offset is known: ``auto.offset.reset`` says where to begin."""


class PartitionTopicInfo:
    """A partition of one stream (``PartitionTopicInfo`` of text 004).

    consumed_offset  everything before it was consumed: what a commit writes down. The iterator moves it.
    fetched_offset   where the next fetch begins. The fetcher moves it.
    fetch_size       bytes that one fetch may bring
    high_watermark   as last heard; -1 before
    """

    __slots__ = (
        "client_id",
        "consumed_offset",
        "fetch_size",
        "fetched_offset",
        "high_watermark",
        "queue",
        "topic_partition",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        queue: ChunkQueue,
        consumed_offset: int,
        fetched_offset: int,
        fetch_size: int,
        client_id: str,
    ) -> None:
        self.topic_partition = TopicPartition(topic, partition)
        self.queue = queue
        self.consumed_offset = consumed_offset
        self.fetched_offset = fetched_offset
        self.fetch_size = fetch_size
        self.client_id = client_id
        self.high_watermark = -1

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.topic_partition.partition

    @property
    def lag(self) -> int:
        """Offsets between what was fetched and the end of the log, as last heard; 0 before."""
        return max(0, self.high_watermark - max(0, self.fetched_offset))

    def enqueue(self, messages: memoryview, next_offset: int, error: MinikafkaError | None = None) -> bool:
        """Give what was fetched to the stream, and go on behind it. Nothing is done, and False returned, when
        the queue has no room, or takes nothing any more.
        """
        chunk = FetchedDataChunk(messages, self, self.fetched_offset, next_offset, error)
        if not self.queue.offer(chunk):
            return False
        self.fetched_offset = next_offset
        if messages:
            ConsumerTopicStatsRegistry.get(self.client_id).record_bytes(self.topic, len(messages))
        return True

    def reset(self, offset: int) -> bool:
        """Go on at ``offset``, as the log does not have what was to come. False as ``enqueue``.

        What was fetched before is given out first, and counts.
        """
        if self.consumed_offset in {INVALID_OFFSET, self.fetched_offset}:
            self.consumed_offset = self.fetched_offset = offset
            return True
        before, self.fetched_offset = self.fetched_offset, offset
        if self.enqueue(memoryview(b""), offset):
            return True
        self.fetched_offset = before
        return False

    def __str__(self) -> str:
        return (
            f"{self.topic_partition}: fetched offset {self.fetched_offset}, "
            f"consumed offset {self.consumed_offset}"
        )


def error_chunk(error: MinikafkaError, queue: ChunkQueue) -> FetchedDataChunk:
    """What a stream raises ``error`` for that belongs to no partition."""
    nowhere = PartitionTopicInfo("", -1, queue, -1, -1, 0, "")
    return FetchedDataChunk(memoryview(b""), nowhere, -1, -1, error)


PAGE_ROWS = 500
_PAGE_BYTES = 1 << 16
"""Of keys and values, unless one message has more."""
_DECODED_BYTES = 1 << 16
"""At a time, unless one entry has more."""

_TYPES = {int(one): one for one in TimestampType}


class Page(Generic[K, V]):
    """Messages that are made when they are asked for."""

    __slots__ = ("_left", "count", "messages")

    def __init__(self, count: int, left: Iterator[int], messages: Iterator[MessageAndMetadata[K, V]]) -> None:
        self.count = count
        self._left = left
        self.messages = messages

    @property
    def taken_count(self) -> int:
        """How many were asked for."""
        return self.count - length_hint(self._left)


class ChunkReader(Generic[K, V]):
    """Reads one chunk from its ``fetch_offset`` to before its ``next_offset``."""

    def __init__(self, chunk: FetchedDataChunk, key_decoder: Decoder[K], value_decoder: Decoder[V]) -> None:
        self.chunk = chunk
        self._decoders = key_decoder, value_decoder
        self._data = chunk.messages
        self._offset = chunk.fetch_offset
        self._window = self._data[:0]
        self._pieces: Iterator[Columns] | None = None
        """What is left to decode of the window."""
        self._columns: Columns | None = None
        self._row = 0

    def next_page(self) -> Page[K, V] | None:
        """The next messages; None behind the last one. CorruptMessage, and again until ``skip``."""
        while self._columns is None or self._row >= self._columns.count:
            if not self._data:
                return None
            self._columns, self._row = self._decode(), 0
        columns, begin = self._columns, self._row
        end = self._row = _page_end(columns, begin)
        return self._page(columns, begin, end)

    def skip(self, problem: CorruptMessage) -> None:
        """Pass over what was raised."""
        self._data = self._data[_entry_bytes(self._data) :]
        self._offset = problem.after_offset

    def _decode(self) -> Columns:
        """The next rows, without those of control batches: there may be none."""
        from minikafka.records.columns import DamagedEntry, decode_pieces

        end = self.chunk.next_offset
        if self._pieces is None:
            self._window = self._data[: max(_DECODED_BYTES, _entry_bytes(self._data))]
            self._pieces = decode_pieces(self._window, self._offset, end, headers=True)
        try:
            columns = next(self._pieces)
        except BaseException:
            self._pieces = (
                None  # what has failed gives nothing more: the window is decoded again from here on
            )
            raise
        self._offset = columns.next_offset
        if not columns.complete:
            return columns
        pieces, self._pieces = self._pieces, None
        # It goes on with the first entry that was not wholly used, as the last one may be cut off here.
        self._data, left = self._data[columns.valid_bytes :], len(self._window) - columns.valid_bytes
        if columns.next_offset >= end:
            self._data = self._data[:0]
        elif left and not columns.count:
            try:
                next(pieces, None)
            except DamagedEntry as damage:
                tp = self.chunk.info.topic_partition
                raise CorruptMessage(*tp, damage.offset, damage.after_offset, damage.detail) from None
            if not columns.valid_bytes:
                self._data = self._data[:0]
        return columns

    def _page(self, columns: Columns, begin: int, end: int) -> Page[K, V]:
        count = end - begin
        topic, partition = self.chunk.info.topic_partition
        left = iter(columns.offsets[begin:end].tolist())
        types = columns.timestamp_types[begin:end]
        if (types == types[0]).all():
            kinds: Iterable[TimestampType] = repeat(_TYPES[int(types[0])])
        else:
            kinds = [_TYPES[one] for one in types.tolist()]
        raw = columns.headers
        headers: Iterable[bytes | None] = repeat(b"")
        if raw is not None and raw.count:
            headers = _slices(raw.data, raw.ends, begin, end, None, 0, columns.count)
        messages: Iterator[MessageAndMetadata[K, V]] = map(
            MessageAndMetadata,
            repeat(topic),
            repeat(partition),
            left,
            columns.timestamps[begin:end].tolist(),
            kinds,
            _slices(
                columns.keys,
                columns.key_ends,
                begin,
                end,
                columns.key_validity,
                columns.null_keys,
                columns.count,
            ),
            _slices(
                columns.values,
                columns.value_ends,
                begin,
                end,
                columns.value_validity,
                columns.null_values,
                columns.count,
            ),
            headers,
            repeat(self._decoders[0]),
            repeat(self._decoders[1]),
        )
        return Page(count, left, messages)


def _slices(
    data: NDArray[np.uint8],
    ends: NDArray[np.int32],
    begin: int,
    end: int,
    validity: NDArray[np.uint8] | None,
    nulls: int,
    rows: int,
) -> Iterable[bytes | None]:
    """The bytes of rows ``begin`` to before ``end``, None for nulls."""
    if nulls == rows:
        return repeat(None)
    first = int(ends[begin])
    content = data[first : int(ends[end])].tobytes()
    places = (ends[begin : end + 1] - first).tolist()
    found: list[bytes | None] = [content[start:stop] for start, stop in pairwise(places)]
    if validity is not None:
        present = np.unpackbits(validity, count=end, bitorder="little")[begin:]
        for row in np.flatnonzero(present == 0).tolist():
            found[row] = None
    return found


def _page_end(columns: Columns, begin: int) -> int:
    """Behind the last row of the page that begins there."""
    values, keys = columns.value_ends, columns.key_ends
    first = int(values[begin]) + int(keys[begin])
    end = min(begin + PAGE_ROWS, columns.count)
    while end - begin > 1 and int(values[end]) + int(keys[end]) - first > _PAGE_BYTES:
        end = begin + (end - begin) // 2
    return end


def _entry_bytes(data: memoryview) -> int:
    """The size of the first entry, as its header has it."""
    return ENTRY_HEADER_BYTES + max(0, int.from_bytes(data[8:ENTRY_HEADER_BYTES], "big", signed=True))
