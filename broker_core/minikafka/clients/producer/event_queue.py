"""The bounded queue between the callers of an asynchronous producer and its send thread.

Messages are stored as their fields, one after the other in one list, and unpacked by slices. Python's garbage
collector would scan message objects again and again, which would cost more than all other work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minikafka.base.clock import Clock
from minikafka.base.errors import ProducerClosed
from minikafka.clients.network.retry import Deadline
from minikafka.clients.producer.messages import KeyedMessage, MessageColumns

FIELDS_PER_MESSAGE = len(KeyedMessage._fields)

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
        return sum(map(_size, self.pieces)) // FIELDS_PER_MESSAGE


class EventQueue:
    """A FIFO queue of messages, and of columns that count as many messages as they hold. Thread-safe.

    Messages leave once ``batch_messages`` are queued, or ``queue_ms`` after the first of them was queued (or
    after the last messages left, if that is later), or after ``close``.
    """

    def __init__(self, clock: Clock, *, max_messages: int, batch_messages: int, queue_ms: int) -> None:
        self._clock = clock
        self._max = max_messages * FIELDS_PER_MESSAGE
        self._batch = batch_messages * FIELDS_PER_MESSAGE
        self._queue_ms = queue_ms
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._closed_pieces: list[Piece] = []
        """Pieces that were queued before ``_fields``."""
        self._closed_pieces_size = 0
        self._fields: list[Any] = []
        self._since_ms = 0
        self._closed = False

    def __len__(self) -> int:
        """The number of queued messages."""
        return self._used // FIELDS_PER_MESSAGE

    @property
    def is_closed(self) -> bool:
        """True if the queue accepts no more messages."""
        return self._closed

    @property
    def _used(self) -> int:
        # All sizes here are in fields.
        return self._closed_pieces_size + len(self._fields)

    def offer(self, event: KeyedMessage) -> bool:
        """Queue one message if there is room; return whether there was. Raises ProducerClosed after
        ``close``.
        """
        with self._lock:
            fields = self._fields
            used = self._closed_pieces_size + len(fields)
            if used >= self._max:
                # Nearly all messages find room: only a full queue is checked for the reason.
                if self._closed:
                    raise ProducerClosed("the producer is closed")
                return False
            fields += event
            if not used:
                self._since_ms = self._clock.monotonic_ms()
                self._filled.notify()
            elif used + FIELDS_PER_MESSAGE == self._batch:
                self._filled.notify()
            return True

    def offer_all(self, events: Sequence[KeyedMessage]) -> int:
        """Queue as many of the messages as there is room for, from the first on. Return their number."""
        with self._lock:
            used = self._used
            taken = self._room_for(len(events))
            for event in events[:taken]:
                self._fields += event
            self._notify_added(used)
            return taken

    def offer_columns(self, columns: MessageColumns) -> int:
        """Queue as many messages of ``columns`` as there is room for, from the first on. Return
        their number.
        """
        with self._lock:
            used = self._used
            taken = self._room_for(len(columns))
            if taken:
                self._append_piece(columns if taken == len(columns) else columns.slice(0, taken))
                self._notify_added(used)
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
            if self._closed:
                raise ProducerClosed("the producer is closed")
            return True

    def take(self, most: int, *, wait: bool = True) -> QueueBatch | None:
        """Return messages that may leave, up to ``most`` at a time. Return None after ``close`` when nothing
        is left, and, unless ``wait``, when nothing may leave yet.
        """
        with self._lock:
            while (left_ms := self._wait_ms()) is None or left_ms > 0:
                if not wait or (self._closed and not self._used):
                    return None
                self._filled.wait(None if left_ms is None else left_ms / 1000)
            expired = self._used < self._batch and not self._closed
            taken = tuple(self._split(most * FIELDS_PER_MESSAGE))
            self._since_ms = self._clock.monotonic_ms()
            self._room.notify_all()
            return QueueBatch(taken, expired)

    def close(self) -> None:
        """Accept no more messages; queued ones may leave at once."""
        with self._lock:
            self._closed = True
            self._max = 0
            self._filled.notify_all()
            self._room.notify_all()

    def clear(self) -> None:
        """Drop the queued messages."""
        with self._lock:
            self._closed_pieces, self._closed_pieces_size, self._fields = [], 0, []
            self._room.notify_all()

    def _wait_ms(self) -> int | None:
        used = self._used
        if not used:
            return None
        if self._closed or used >= self._batch:
            return 0
        return max(0, self._since_ms + self._queue_ms - self._clock.monotonic_ms())

    def _room_for(self, messages: int) -> int:
        if self._closed:
            raise ProducerClosed("the producer is closed")
        return min(messages, (self._max - self._used) // FIELDS_PER_MESSAGE)

    def _notify_added(self, before: int) -> None:
        """Notify the send thread after additions to the queue, which had ``before`` fields."""
        if not before:
            self._since_ms = self._clock.monotonic_ms()
        if not before or before < self._batch <= self._used:
            self._filled.notify()

    def _append_piece(self, piece: Piece) -> None:
        """Append a piece after everything else."""
        if self._fields:
            self._closed_pieces.append(self._fields)
            self._closed_pieces_size += len(self._fields)
            self._fields = []
        self._closed_pieces.append(piece)
        self._closed_pieces_size += _size(piece)

    def _split(self, most: int) -> Iterable[Piece]:
        """Remove and yield the first pieces, ``most`` fields in all."""
        pieces: list[Piece] = [*self._closed_pieces, self._fields] if self._fields else self._closed_pieces
        self._closed_pieces, self._closed_pieces_size, self._fields = [], 0, []
        for place, piece in enumerate(pieces):
            size = _size(piece)
            if size > most:
                if most:
                    yield _part(piece, 0, most)
                for rest in (_part(piece, most, size), *pieces[place + 1 :]):
                    self._append_piece(rest)
                return
            yield piece
            most -= size


def messages_of(pieces: Iterable[Piece]) -> list[KeyedMessage]:
    """Return all messages of ``pieces``, in order."""
    found: list[KeyedMessage] = []
    for piece in pieces:
        if isinstance(piece, MessageColumns):
            found.extend(piece.messages(range(len(piece))))
        else:
            found.extend(
                map(KeyedMessage, *(piece[field::FIELDS_PER_MESSAGE] for field in range(FIELDS_PER_MESSAGE)))
            )
    return found


def _size(piece: Piece) -> int:
    return len(piece) * FIELDS_PER_MESSAGE if isinstance(piece, MessageColumns) else len(piece)


def _part(piece: Piece, start: int, end: int) -> Piece:
    if isinstance(piece, MessageColumns):
        return piece.slice(start // FIELDS_PER_MESSAGE, (end - start) // FIELDS_PER_MESSAGE)
    return piece[start:end]
