"""The bounded queue between the callers of an asynchronous producer and its send thread.

Messages are stored as their fields, one after the other in one list, and unpacked by slices. Python's
garbage collector would scan message objects again and again, which would cost more than all other work.

``offer`` takes the lock, which is half of its time, only if it must notify the taker. ``_fields`` is the same
list for ever, and its ``+=`` is atomic. After it has added its message, ``offer`` compares the length with
``_watched_from``; the taker changes that first, and then looks at the list. So either the taker sees the
message, or the offer sees the change and notifies it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from minikafka.base.clock import Clock
from minikafka.base.errors import ProducerClosed
from minikafka.clients.network.retry import Deadline
from minikafka.clients.producer.messages import KeyedMessage, MessageColumns

FIELDS_PER_MESSAGE = len(KeyedMessage._fields)
_NEVER = sys.maxsize

Piece = list[Any] | MessageColumns
"""Fields of messages that were queued one by one (topic, message, key, part_key, topic, …), or the columns of
one call.
"""


@dataclass(frozen=True, slots=True)
class QueueBatch:
    """Messages that left the queue together. ``expired``: the time was up before a batch was full."""

    pieces: tuple[Piece, ...]
    expired: bool

    def __len__(self) -> int:
        """The number of messages."""
        return sum(map(count_of, self.pieces))


class EventQueue:
    """A FIFO queue of messages, and of columns that count as many messages as they hold. Thread-safe; one
    thread at a time takes.

    Messages leave once ``batch_messages`` are queued, or ``queue_ms`` after the first of them was queued (or
    after the last messages left, if that is later), or after ``close``. Threads that offer at the same time
    may exceed ``max_messages`` by one message each.
    """

    def __init__(self, clock: Clock, *, max_messages: int, batch_messages: int, queue_ms: int) -> None:
        # All sizes here are in fields.
        self._clock = clock
        self._max = max_messages * FIELDS_PER_MESSAGE
        self._batch = batch_messages * FIELDS_PER_MESSAGE
        self._queue_ms = queue_ms
        # Re-entrant: Ctrl-C cannot interrupt ``Condition.wait`` while it takes such a lock again.
        self._lock = threading.RLock()
        self._filled = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._fields: list[Any] = []
        self._taken = 0
        """Fields that have left ``_fields``."""
        self._columns: deque[tuple[int, MessageColumns]] = deque()
        """Columns, and how many fields have entered ``_fields`` before them."""
        self._columns_size = 0
        self._limit = self._max
        """A message has room if ``_fields`` is shorter than this."""
        self._watched_from = 0
        """The length of ``_fields`` from which the taker is notified: 0 if the queue was empty or is
        closed, that of a batch while the taker waits for one.
        """
        self._since_ms = 0
        self._closed = False
        self._ended = False
        """True once the taker has found the closed queue empty."""

    def __len__(self) -> int:
        """The number of queued messages."""
        return self._used // FIELDS_PER_MESSAGE

    @property
    def is_closed(self) -> bool:
        """True if the queue accepts no more messages."""
        return self._closed

    @property
    def _used(self) -> int:
        return self._columns_size + len(self._fields)

    def offer(self, event: KeyedMessage) -> bool:
        """Queue one message if there is room; return whether there was. Raises ProducerClosed after
        ``close``.
        """
        fields = self._fields
        if len(fields) < self._limit:
            fields += event
            if len(fields) >= self._watched_from:
                self._notify_taker()
            return True
        self._check_open()
        return False

    def offer_piece(self, piece: Piece) -> int:
        """Queue as many of the messages as there is room for, from the first on. Return their number."""
        with self._lock:
            self._check_open()
            taken = min(count_of(piece), (self._max - self._used) // FIELDS_PER_MESSAGE)
            if taken <= 0:
                return 0
            part = part_of(piece, 0, taken)
            if isinstance(part, MessageColumns):
                self._columns.append((self._taken + len(self._fields), part))
                self._resize_columns(taken)
            else:
                self._fields += part
        if self._used >= self._watched_from:
            self._notify_taker()
        return taken

    def wait_for_room(self, deadline: Deadline | None) -> bool:
        """Wait until there is room for a message; return False if the time is up first. Raises ProducerClosed
        if the queue is closed meanwhile.
        """
        with self._lock:
            while self._used >= self._max and not self._closed:
                left_ms = None if deadline is None else deadline.remaining_ms()
                if left_ms == 0:
                    return False
                self._room.wait(None if left_ms is None else left_ms / 1000)
            self._check_open()
            return True

    def take(self, most: int, *, wait: bool = True) -> QueueBatch | None:
        """Return messages that may leave, up to ``most`` at a time. Return None after ``close`` when nothing
        is left, and, unless ``wait``, when nothing may leave yet.
        """
        with self._lock:
            while (left_ms := self._wait_ms()) is None or left_ms > 0:
                self._ended = self._closed and left_ms is None
                if not wait or self._ended:
                    return None
                self._filled.wait(None if left_ms is None else left_ms / 1000)
            expired = self._used < self._batch and not self._closed
            taken = tuple(self._take(most * FIELDS_PER_MESSAGE))
            self._since_ms = self._clock.monotonic_ms()
            self._watched_from = 0 if self._closed or not self._used else _NEVER
            self._room.notify_all()
            return QueueBatch(taken, expired)

    def close(self) -> None:
        """Accept no more messages; queued ones may leave at once."""
        with self._lock:
            self._closed = True
            self._limit = self._watched_from = 0
            self._filled.notify_all()
            self._room.notify_all()

    def clear(self) -> None:
        """Drop the queued messages."""
        with self._lock:
            deque(self._take(self._used), maxlen=0)
            self._room.notify_all()

    def _wait_ms(self) -> int | None:
        """Return the time until messages may leave; None without messages. Offers notify of changes."""
        self._watched_from = 0
        if not self._used:
            return None
        if self._closed or self._used >= self._batch:
            return 0
        self._watched_from = self._batch - self._columns_size
        if self._used >= self._batch:  # by an offer between the last two lines
            return 0
        return max(0, self._since_ms + self._queue_ms - self._clock.monotonic_ms())

    def _notify_taker(self) -> None:
        """Notify the taker of an added message. Raises ProducerClosed if it will not come any more."""
        with self._lock:
            if self._ended and self._fields:
                del self._fields[-FIELDS_PER_MESSAGE:]
                self._check_open()
            if not self._watched_from:
                self._since_ms = self._clock.monotonic_ms()
            self._watched_from = 0 if self._closed else _NEVER
            self._filled.notify()

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerClosed("the producer is closed")

    def _resize_columns(self, messages: int) -> None:
        self._columns_size += messages * FIELDS_PER_MESSAGE
        self._limit = 0 if self._closed else self._max - self._columns_size

    def _take(self, most: int) -> Iterable[Piece]:
        """Remove and yield the first pieces, ``most`` fields in all."""
        while most and self._used:
            before = self._columns[0][0] - self._taken if self._columns else len(self._fields)
            if before:
                size = min(most, before)
                yield self._fields[:size]
                del self._fields[:size]
                self._taken += size
            else:
                place, columns = self._columns.popleft()
                count = min(most // FIELDS_PER_MESSAGE, len(columns))
                if count < len(columns):
                    self._columns.appendleft((place, columns.slice(count, len(columns) - count)))
                    columns = columns.slice(0, count)
                self._resize_columns(-count)
                size = count * FIELDS_PER_MESSAGE
                yield columns
            most -= size


def messages_of(pieces: Iterable[Piece]) -> list[KeyedMessage]:
    """Return all messages of ``pieces``, in order."""
    found: list[KeyedMessage] = []
    for piece in pieces:
        if isinstance(piece, MessageColumns):
            found.extend(piece.messages(range(len(piece))))
        else:
            found.extend(map(KeyedMessage, *fields_in(piece)))
    return found


def fields_in(piece: list[Any]) -> list[list[Any]]:
    """Return the topics, messages, keys and part keys of fields that follow one another."""
    return [piece[field::FIELDS_PER_MESSAGE] for field in range(FIELDS_PER_MESSAGE)]


def count_of(piece: Piece) -> int:
    """Return the number of messages."""
    return len(piece) if isinstance(piece, MessageColumns) else len(piece) // FIELDS_PER_MESSAGE


def part_of(piece: Piece, start: int, end: int) -> Piece:
    """Return the messages from ``start`` up to ``end``, without a copy if that is all."""
    if end - start == count_of(piece):
        return piece
    if isinstance(piece, MessageColumns):
        return piece.slice(start, end - start)
    return piece[start * FIELDS_PER_MESSAGE : end * FIELDS_PER_MESSAGE]
