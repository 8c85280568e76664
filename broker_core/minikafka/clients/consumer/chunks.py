"""Chunks of fetched messages, from the fetchers to one stream: the chunk, the bounded queue, the partition's
positions, and the reader that decodes a chunk page by page.

To bound a consumer's memory, the chunk in use counts as queued until the stream requests the next one. The
queue's lock is also the lock of the stream's iterator. So a chunk is either in the queue or in the iterator,
and a caller that clears both under the lock misses none.

The reader decodes only what the next pages need: a chunk of compressed messages is never unpacked whole, a
chunk of large messages is not copied whole, and message objects are made on demand.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Final, Generic, Protocol

from minikafka.base.errors import CorruptMessage, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.message_and_metadata import K, MessageAndMetadata, V
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry
from minikafka.clients.fetch.fetch_state import NO_EPOCHS, PositionEpochs
from minikafka.clients.group.fetched_records import bytes_of_rows
from minikafka.clients.serializer import Decoder
from minikafka.records.format.record import TimestampType
from minikafka.records.kernels.layout import ENTRY_HEADER_BYTES, entry_size
from minikafka.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from minikafka.records.columns import Columns


class PartitionPosition(Protocol):
    """The consumed position of a partition: its ``PartitionTopicInfo``."""

    consumed_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""


@dataclass(frozen=True, slots=True, eq=False)
class FetchedDataChunk:
    """Whole entries of one partition (``FetchedDataChunk`` of text 004).

    messages      the entries, in private memory; the first may hold messages before ``fetch_offset``, as a
                  compressed one is sent whole. Empty if the chunk only moves the position, or has an error.
    fetch_offset  the offset that was requested
    next_offset   the offset after the last entry
    error         instead of messages: the stream raises it
    """

    messages: memoryview
    info: PartitionPosition
    fetch_offset: int
    next_offset: int
    error: MinikafkaError | None = None


class Command(Enum):
    """Entries of a queue that are not chunks."""

    SHUTDOWN = "shutdown"


SHUTDOWN: Final = Command.SHUTDOWN
"""Ends the iteration (``shutdownCommand`` of text 004). It stays in the queue for later requests."""


def _nothing() -> None:
    pass


class ChunkQueue:
    """The queue of one stream, with up to ``max_chunks`` chunks (``queued.max.message.chunks``). Thread-safe.

    Methods whose names end with ``_locked`` require that the caller holds ``lock``.
    """

    def __init__(self, max_chunks: int) -> None:
        if max_chunks < 1:
            raise ValueError(f"expected max_chunks of 1 or more, got {max_chunks}")
        self.max_chunks = max_chunks
        # Re-entrant: Ctrl-C cannot interrupt ``Condition.wait`` while it takes such a lock again.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._chunks: deque[FetchedDataChunk] = deque()
        self._chunks_in_use = 0
        self._closed = False
        self._on_room: Callable[[], None] = _nothing

    @property
    def has_room(self) -> bool:
        """True if another chunk would be accepted now."""
        return not self._closed and len(self._chunks) + self._chunks_in_use < self.max_chunks

    @property
    def is_closed(self) -> bool:
        """True if the queue holds the shutdown command."""
        return self._closed

    def __len__(self) -> int:
        return len(self._chunks)

    def on_room(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback`` whenever there is room again, with the lock held: it must not call the queue."""
        with self.lock:
            self._on_room = callback or _nothing

    def offer(self, chunk: FetchedDataChunk) -> bool:
        """Append ``chunk``; return False if there is no room, or the queue is closed."""
        with self.lock:
            if not self.has_room:
                return False
            self._chunks.append(chunk)
            self._changed.notify_all()
            return True

    def close(self, last: FetchedDataChunk | None = None) -> None:
        """Drop the queued chunks, and end the iteration after the chunk in use, or after ``last``."""
        with self.lock:
            self._closed = True
            self._chunks.clear()
            if last is not None:
                self._chunks.append(last)
            self._changed.notify_all()

    def take_locked(self, end: float | None) -> FetchedDataChunk | Command | None:
        """Return the next chunk, or the shutdown command; None if there is neither before ``end``, a
        ``time.monotonic`` in seconds. Releases the chunk that was taken before.
        """
        self.release_chunk_locked()
        while not self._chunks:
            if self._closed:
                return SHUTDOWN
            if not self.wait_locked(end):
                return None
        self._chunks_in_use = 1
        return self._chunks.popleft()

    def release_chunk_locked(self) -> None:
        """Release the chunk that was taken last."""
        if self._chunks_in_use:
            self._chunks_in_use = 0
            self._changed.notify_all()
            self._on_room()

    def clear_locked(self) -> None:
        """Drop the queued chunks, and release the chunk in use. The shutdown command stays."""
        self._chunks.clear()
        self._chunks_in_use = 0
        self._changed.notify_all()
        self._on_room()

    def wait_locked(self, end: float | None) -> bool:
        """Wait for a change of the queue; return False once ``end`` has passed."""
        if end is None:
            self._changed.wait()
            return True
        left = end - time.monotonic()
        if left <= 0:
            return False
        self._changed.wait(left)
        return True


INVALID_OFFSET = -1
"""The offset is unknown: ``auto.offset.reset`` selects the position."""


class PartitionTopicInfo:
    """A partition of one stream (``PartitionTopicInfo`` of text 004).

    consumed_offset  all messages before it are consumed: the offset to commit. The iterator moves it.
    fetched_offset   the offset of the next fetch. The fetcher moves it.
    epochs           the leader epochs of the fetched offset
    leader_epoch     that of the leader to fetch from; -1 if unknown
    topic_id         that of the topic to fetch; zero if unknown
    fetch_size       bytes that one fetch may return
    high_watermark   that of the last fetch response; -1 before the first
    """

    __slots__ = (
        "client_id",
        "consumed_offset",
        "epochs",
        "fetch_size",
        "fetched_offset",
        "high_watermark",
        "leader_epoch",
        "queue",
        "topic_id",
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
        self.epochs = NO_EPOCHS
        self.leader_epoch = -1
        self.topic_id = ZERO_UUID
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
        """Offsets between the consumed offset and the high watermark of the last fetch response; 0 before the
        first.
        """
        return max(0, self.high_watermark - max(0, self.consumed_offset))

    def enqueue(
        self,
        messages: memoryview,
        next_offset: int,
        error: MinikafkaError | None = None,
        epochs: PositionEpochs = NO_EPOCHS,
    ) -> bool:
        """Put fetched messages into the queue, and move the fetched offset, which has ``epochs`` then. Return
        False, and change nothing, if the queue has no room or is closed.
        """
        chunk = FetchedDataChunk(messages, self, self.fetched_offset, next_offset, error)
        if not self.queue.offer(chunk):
            return False
        self.fetched_offset, self.epochs = next_offset, epochs
        if messages:
            ConsumerTopicStatsRegistry.get(self.client_id).record_bytes(self.topic, len(messages))
        return True

    def reset(self, offset: int) -> bool:
        """Continue at ``offset``, as the log does not have the fetched offset. Return False as ``enqueue``.

        Messages that were fetched before are delivered first, and count as consumed.
        """
        if self.consumed_offset in {INVALID_OFFSET, self.fetched_offset}:
            self.consumed_offset = self.fetched_offset = offset
            self.epochs = NO_EPOCHS
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
    """Return a chunk that makes the stream raise ``error``, which belongs to no partition."""
    nowhere = PartitionTopicInfo("", -1, queue, -1, -1, 0, "")
    return FetchedDataChunk(memoryview(b""), nowhere, -1, -1, error)


PAGE_ROWS = 500
_PAGE_BYTES = 1 << 16
"""Limit of keys and values in a page, unless one message is larger."""
_DECODED_BYTES = 1 << 16
"""Limit of bytes decoded at a time, unless one entry is larger."""

_TYPES = {int(kind): kind for kind in TimestampType}


class Page(Generic[K, V]):
    """A page of messages, which are created on demand."""

    __slots__ = ("_left", "count", "messages")

    def __init__(self, count: int, left: Iterator[int], messages: Iterator[MessageAndMetadata[K, V]]) -> None:
        self.count = count
        self._left = left
        self.messages = messages

    @property
    def taken_count(self) -> int:
        """The number of messages taken so far."""
        return self.count - length_hint(self._left)


class ChunkReader(Generic[K, V]):
    """Reads one chunk from its ``fetch_offset`` up to its ``next_offset``."""

    def __init__(self, chunk: FetchedDataChunk, key_decoder: Decoder[K], value_decoder: Decoder[V]) -> None:
        self.chunk = chunk
        self._decoders = key_decoder, value_decoder
        self._data = chunk.messages
        self._offset = chunk.fetch_offset
        self._window = self._data[:0]
        self._pieces: Iterator[Columns] | None = None
        """Decoded pieces of the window that are left."""
        self._columns: Columns | None = None
        self._row = 0

    def next_page(self) -> Page[K, V] | None:
        """Return the next messages, or None at the end. Raises CorruptMessage, repeatedly until ``skip``."""
        while self._columns is None or self._row >= self._columns.count:
            if not self._data:
                return None
            self._columns, self._row = self._decode(), 0
        columns, begin = self._columns, self._row
        end = self._row = _page_end(columns, begin)
        return self._page(columns, begin, end)

    def skip(self, problem: CorruptMessage) -> None:
        """Skip the damaged message of the error ``problem``, which ``next_page`` raised."""
        self._data = self._data[_entry_bytes(self._data) :]
        self._offset = problem.after_offset

    def _decode(self) -> Columns:
        """Return the next rows, without those of control batches: there may be none."""
        from minikafka.records.columns import DamagedEntry, decode_pieces

        end = self.chunk.next_offset
        if self._pieces is None:
            self._window = self._data[: max(_DECODED_BYTES, _entry_bytes(self._data))]
            self._pieces = decode_pieces(self._window, self._offset, end, headers=True)
        try:
            columns = next(self._pieces)
        except BaseException:
            # A generator that has raised is exhausted: the next call decodes the window again from here.
            self._pieces = None
            raise
        self._offset = columns.next_offset
        if not columns.complete:
            return columns
        pieces, self._pieces = self._pieces, None
        # Continue with the first entry that was not fully used, as the window may cut the last one off.
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
            kinds = [_TYPES[kind] for kind in types.tolist()]
        raw = columns.headers
        headers: Iterable[bytes | None] = repeat(b"")
        if raw is not None and raw.count:
            headers = bytes_of_rows(raw.ends, raw.data, None, begin, end)
        messages: Iterator[MessageAndMetadata[K, V]] = map(
            MessageAndMetadata,
            repeat(topic),
            repeat(partition),
            left,
            columns.timestamps[begin:end].tolist(),
            kinds,
            bytes_of_rows(columns.key_ends, columns.keys, columns.key_validity, begin, end),
            bytes_of_rows(columns.value_ends, columns.values, columns.value_validity, begin, end),
            headers,
            repeat(self._decoders[0]),
            repeat(self._decoders[1]),
        )
        return Page(count, left, messages)


def _page_end(columns: Columns, begin: int) -> int:
    """Return the end of the page that begins at ``begin``."""
    values, keys = columns.value_ends, columns.key_ends
    first = int(values[begin]) + int(keys[begin])
    end = min(begin + PAGE_ROWS, columns.count)
    while end - begin > 1 and int(values[end]) + int(keys[end]) - first > _PAGE_BYTES:
        end = begin + (end - begin) // 2
    return end


def _entry_bytes(data: memoryview) -> int:
    """Return the size of the first entry according to its header."""
    return max(ENTRY_HEADER_BYTES, entry_size(data))
