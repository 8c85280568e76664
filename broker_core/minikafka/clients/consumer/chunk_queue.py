"""What waits between the fetchers and one stream: a bounded queue of chunks, with the shutdown command in it.

A chunk takes its place until the stream asks for the next one, so that the one that it works on counts: this
is what bounds a consumer's memory. The queue's lock is also that of the stream's iterator. So a chunk is
either in the queue or in the iterator, and whoever clears both, clears both.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from minikafka.clients.consumer.fetched_data_chunk import FetchedDataChunk

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
        self._in_work = 0
        self._closed = False
        self._on_room: Callable[[], None] = _nothing

    @property
    def has_room(self) -> bool:
        """Whether another chunk would be taken now."""
        return not self._closed and len(self._chunks) + self._in_work < self.max_chunks

    @property
    def closed(self) -> bool:
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
        self.done_locked()
        while not self._chunks:
            if self._closed:
                return SHUTDOWN
            if not self.wait_locked(end):
                return None
        self._in_work = 1
        return self._chunks.popleft()

    def done_locked(self) -> None:
        """The chunk that was taken last is not worked on any more."""
        if self._in_work:
            self._in_work = 0
            self._changed.notify_all()
            self._on_room()

    def clear_locked(self) -> None:
        """``clear``, and also what is in work."""
        self._chunks.clear()
        self._in_work = 0
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
