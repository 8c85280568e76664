"""``kafka.producer.async.ProducerSendThread``: passes events from the queue to the handlers."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from minikafka.base.errors import FailedToSendMessage
from minikafka.clients.producer.default_event_handler import DefaultEventHandler, Dispatch
from minikafka.clients.producer.event_queue import (
    EventQueue,
    Piece,
    QueueBatch,
    count_of,
    fields_in,
    messages_of,
)
from minikafka.clients.producer.handlers import CallbackHandler, EventHandler
from minikafka.clients.producer.messages import PIECE_BYTES, PIECE_ROWS, KeyedMessage, MessageColumns
from minikafka.clients.producer.producer_stats import ProducerStats

logger = logging.getLogger("minikafka.clients.producer")

DISPATCHES = 3
"""The number of batches that are sent at a time: one is with the broker, the next is encoded."""


class ProducerSendThread(threading.Thread):
    """Sends queued events until the queue is closed and empty. For producers without threads, ``step`` makes
    one round.

    A plugged-in event handler or callback handler gets at most ``batch_messages`` at a time, as in the
    release. The default handler alone gets more if more are queued, so that a slow broker makes batches
    larger, and not the number of requests; and up to ``DISPATCHES`` batches, so that the next ones are
    encoded while brokers work.
    """

    def __init__(
        self,
        name: str,
        queue: EventQueue,
        handler: EventHandler,
        callback: CallbackHandler | None,
        stats: ProducerStats,
        batch_messages: int,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._queue = queue
        self._handler = handler
        self._callback = callback
        self._stats = stats
        self._batch_messages = batch_messages
        self._in_flight = 0
        self._begun: deque[tuple[Dispatch, int]] = deque()
        """Messages that the default handler has begun to send, with their numbers, the oldest first."""
        self.on_end: Callable[[], None] | None = None
        """Called when the thread ends, if code on the thread itself has closed the producer."""

    @property
    def pending_count(self) -> int:
        """Messages that are in the queue or being handled."""
        return len(self._queue) + self._in_flight

    def run(self) -> None:
        try:
            while True:
                taken = self._queue.take(self._max_batch_messages(), wait=not self._begun)
                if taken is not None:
                    self._handle(taken)
                elif self._begun:
                    self._finish_oldest()
                else:
                    break
            self.send_last_batch()
        except BaseException:
            # For example SystemExit in a callback. Callers that wait for room would wait for ever.
            self._queue.close()
            while self._begun:
                self._finish_oldest()
            lost = self.pending_count
            self._queue.clear()
            self._in_flight = 0
            self._stats.record_failed_batch(lost)
            logger.exception(
                "minikafka: unexpected error in the send thread, the producer is closed: "
                "%d messages were not sent",
                lost,
            )
        if self.on_end is not None:
            self.on_end()

    def step(self) -> bool:
        """Handle the events that may leave the queue now. Return whether there were any."""
        taken = self._queue.take(self._max_batch_messages(), wait=False)
        if taken is None:
            return False
        self._handle(taken)
        while self._begun:
            self._finish_oldest()
        return True

    def send_last_batch(self) -> None:
        """Send the events that the callback handler returns last."""
        callback = self._callback
        if callback is not None:
            events = self._call_callback(lambda: _check_events(callback.last_batch_before_close() or ()), ())
            if events:
                self._send_events(events)

    def _max_batch_messages(self) -> int:
        """Return the largest number of messages to handle together."""
        so_far = self._stats.all_topics
        plugged = self._callback is not None or not isinstance(self._handler, DefaultEventHandler)
        if plugged or not so_far.messages:
            return self._batch_messages
        mean_bytes = max(1, so_far.bytes // so_far.messages)
        return max(self._batch_messages, min(PIECE_ROWS, PIECE_BYTES // mean_bytes))

    def _handle(self, taken: QueueBatch) -> None:
        handler, callback = self._handler, self._callback
        self._in_flight += len(taken)
        if isinstance(handler, DefaultEventHandler):
            if self._queue.is_closed:
                handler.begin_close()
            if callback is None:
                for piece in concatenate(taken.pieces):
                    self._begin(handler, piece)
                return
        if callback is None:
            self._send_events(messages_of(taken.pieces))
        else:
            self._send_with_callback(taken, callback)
        self._in_flight = 0

    def _send_with_callback(self, taken: QueueBatch, callback: CallbackHandler) -> None:
        left = messages_of(taken.pieces)
        dequeued = [*left, *((None,) if taken.expired else ())]
        events = self._call_callback(
            lambda: [
                kept
                for event in dequeued
                for kept in _check_events(callback.after_dequeuing_existing_data(event))
            ],
            left,
        )
        if events:
            events = self._call_callback(lambda: _check_events(callback.before_sending_data(events)), events)
        if events:
            self._send_events(events)

    def _begin(self, handler: DefaultEventHandler, piece: Piece) -> None:
        count = count_of(piece)

        def begin() -> None:
            if isinstance(piece, MessageColumns):
                dispatch = handler.begin([piece])
            else:
                dispatch = handler.begin_fields(fields_in(piece))
            self._begun.append((dispatch, count))
            handler.poll()

        if self._attempt(begin, count) is not None:
            self._in_flight -= count
        while len(self._begun) >= DISPATCHES:
            self._finish_oldest()

    def _finish_oldest(self) -> None:
        handler = self._handler
        assert isinstance(handler, DefaultEventHandler)
        if self._queue.is_closed:
            handler.begin_close()
        dispatch, count = self._begun.popleft()
        self._attempt(lambda: handler.finish(dispatch), count)
        self._in_flight -= count

    def _send_events(self, events: Sequence[KeyedMessage]) -> None:
        error = self._attempt(lambda: self._handler.handle(events), len(events))
        callback = self._callback
        if callback is not None:
            self._call_callback(lambda: callback.after_sending_data(events, error), ())

    def _attempt(self, send: Callable[[], None], count: int) -> Exception | None:
        try:
            send()
        except FailedToSendMessage as error:
            # The handler has counted the failed messages.
            logger.error("minikafka: %s", error)
            return error
        except Exception as error:
            self._stats.record_failed_batch(count)
            logger.exception("minikafka: the event handler failed: a batch of %d messages is lost", count)
            return error
        return None

    def _call_callback(
        self, call: Callable[[], Sequence[KeyedMessage] | None], lost: Sequence[object]
    ) -> Sequence[KeyedMessage]:
        """Return the events of a callback. If it fails, count the events ``lost`` as failed, and return
        none.
        """
        try:
            return call() or ()
        except Exception:
            if lost:
                self._stats.record_failed_batch(len(lost))
            logger.exception("minikafka: the callback handler failed; %d messages are lost", len(lost))
            return ()


def _check_events(given: object) -> Sequence[KeyedMessage]:
    """Return the result of a callback. Raises TypeError unless it is a sequence of messages: a single message
    is a tuple of its fields, and a missing ``return`` (None) would lose events silently.
    """
    if isinstance(given, KeyedMessage) or not isinstance(given, Iterable):
        raise TypeError(f"the callback returned {given!r:.100}, expected a sequence of KeyedMessages")
    events = given if isinstance(given, Sequence) else list(given)
    for event in events:
        if not isinstance(event, KeyedMessage):
            raise TypeError(f"the callback returned {event!r:.100} among its events, expected KeyedMessages")
    return events


def concatenate(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the same messages with neighbours of one kind joined, because each piece is a request."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        both: Piece | None = None
        if isinstance(last, list) and isinstance(piece, list):
            both = last + piece
        elif isinstance(last, MessageColumns) and isinstance(piece, MessageColumns):
            both = last.concatenate(piece)
        if both is None:
            found.append(piece)
        else:
            found[-1] = both
    return found
