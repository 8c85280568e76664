"""``kafka.producer.async.AsyncProducer``: a queue, and a thread that sends its messages."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from minikafka.base.errors import QueueFull
from minikafka.base.text import counted
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.clients.producer.default_event_handler import DefaultEventHandler
from minikafka.clients.producer.event_queue import EventQueue, Piece, count_of, fields_in, part_of
from minikafka.clients.producer.handlers import CallbackHandler, EventHandler
from minikafka.clients.producer.messages import KeyedMessage, MessageColumns
from minikafka.clients.producer.producer_config import ProducerConfig
from minikafka.clients.producer.producer_send_thread import ProducerSendThread
from minikafka.clients.producer.producer_stats import ProducerStats

logger = logging.getLogger("minikafka.clients.producer")

PROGRESS_INTERVAL_S = 5.0
"""Interval at which ``close`` logs what it waits for."""
GIVE_UP_TIMEOUT_S = 1.0
"""The time that an abandoned thread may take to end."""


class AsyncProducer:
    """Queues messages and sends them on a thread. Thread-safe. ``close`` waits until the queued messages are
    sent, logs what it waits for, and logs how many messages were not sent.

    ``threads=False``: messages are sent only in ``step``, in ``close`` and when the queue is full.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterClient,
        handler: EventHandler,
        callback: CallbackHandler | None,
        stats: ProducerStats,
        *,
        threads: bool = True,
    ) -> None:
        self._cluster = cluster
        self._callback = callback
        self._stats = stats
        self._timeout_ms = config.queue_enqueue_timeout_ms
        self._threads = threads
        self._handler = handler
        self._failed_before = 0
        self.queue = EventQueue(
            cluster.clock,
            max_messages=config.queue_buffering_max_messages,
            batch_messages=config.batch_num_messages,
            queue_ms=config.queue_buffering_max_ms,
        )
        self._offer = self.queue.offer
        name = f"ProducerSendThread-{config.client_id}"
        self._thread = ProducerSendThread(
            name, self.queue, handler, callback, stats, config.batch_num_messages
        )
        if threads:
            self._thread.start()

    def send(self, event: KeyedMessage) -> None:
        """Queue one event. Raises QueueFull if there is no room in time, or at once if a callback sends on
        the send thread; ProducerClosed after ``close``.
        """
        if self._callback is not None:
            taken = self._send_with_callback(event, self._callback)
        else:
            taken = self._offer(event) or self._offer_until(event, self._deadline())
        if not taken:
            self._drop([list(event)])

    def send_all(self, events: Sequence[KeyedMessage]) -> None:
        """Queue events in their order. QueueFull has the number of events without room; those before them are
        queued.
        """
        if self._callback is not None:
            for place, event in enumerate(events):
                if not self._send_with_callback(event, self._callback):
                    self._drop([list(itertools.chain.from_iterable(events[place:]))])
            return
        self._put(list(itertools.chain.from_iterable(events)))

    def send_columns(self, pieces: Iterable[MessageColumns]) -> None:
        """Queue serialized messages of one topic, as ``send_all``. Only without a callback handler."""
        left = iter(pieces)
        for columns in left:
            self._put(columns, left)

    def _put(self, piece: Piece, behind: Iterable[Piece] = ()) -> None:
        """Queue messages; those without room are dropped with those ``behind``."""
        count, taken = count_of(piece), self.queue.offer_piece(piece)
        deadline = self._deadline()
        while taken < count:
            if not self._wait_for_room(deadline):
                self._drop([part_of(piece, taken, count), *behind])
            taken += self.queue.offer_piece(part_of(piece, taken, count))

    def step(self) -> bool:
        """Without threads: send the messages that may leave the queue now. Return whether there were any."""
        return self._thread.step()

    def close(self, on_end: Callable[[], None]) -> bool:
        """Accept no more messages, send all that are queued, and end the thread. A second call only waits.

        Return False if called on the send thread, which cannot wait for itself: it runs ``on_end`` when it
        ends. An exception that ends the wait, such as Ctrl-C, is raised: call ``give_up`` next.
        """
        was_closed = self.queue.is_closed
        if not was_closed:
            self._failed_before = self._stats.failed_messages
        self.queue.close()
        if threading.current_thread() is self._thread:
            self._thread.on_end = on_end
            return False
        if self._threads:
            self._wait()
        elif not was_closed:
            while self.step():
                pass
            self._thread.send_last_batch()
        if not was_closed:
            self._log_failed(0)
        return True

    def give_up(self) -> bool:
        """Wait up to ``GIVE_UP_TIMEOUT_S`` for the handler to fail the remaining messages, and log their
        number. Return whether the thread has ended.
        """
        if self._threads:
            self._thread.join(GIVE_UP_TIMEOUT_S)
        self._log_failed(self._thread.pending_count)
        return not self._thread.is_alive()

    def _wait(self) -> None:
        """Wait until the thread has ended."""
        target = "the event handler"
        if isinstance(self._handler, DefaultEventHandler):
            target = f"the brokers at {self._cluster.bootstrap_text}"
        self._thread.join(PROGRESS_INTERVAL_S)
        while self._thread.is_alive():
            waiting = self._thread.pending_count
            if waiting:
                logger.warning(
                    "minikafka: closing a producer: %s still wait%s for %s",
                    counted(waiting, "message"),
                    "s" if waiting == 1 else "",
                    target,
                )
            self._thread.join(PROGRESS_INTERVAL_S)

    def _log_failed(self, left: int) -> None:
        failed = self._stats.failed_messages - self._failed_before + left
        if failed:
            were = "was" if failed == 1 else "were"
            logger.error("minikafka: a producer was closed: %s %s not sent", counted(failed, "message"), were)

    def _send_with_callback(self, event: KeyedMessage, callback: CallbackHandler) -> bool:
        """Queue one event, with the calls of the callback handler before and after. Return whether there was
        room.
        """
        event = callback.before_enqueue(event)
        if not isinstance(event, KeyedMessage):
            raise TypeError(f"callback before_enqueue returned {event!r:.100}, expected a KeyedMessage")
        added = self._offer_until(event, self._deadline())
        callback.after_enqueue(event, added)
        return added

    def _offer_until(self, event: KeyedMessage, deadline: Deadline | None) -> bool:
        while not self._offer(event):
            if not self._wait_for_room(deadline):
                return False
        return True

    def _wait_for_room(self, deadline: Deadline | None) -> bool:
        if self._threads:
            if threading.current_thread() is self._thread:
                return False  # called in a callback: no other thread makes room
            return self.queue.wait_for_room(deadline)
        # The queue is full, so there is something to send.
        return (deadline is None or not deadline.expired) and self.step()

    def _deadline(self) -> Deadline | None:
        return None if self._timeout_ms < 0 else self._cluster.deadline(self._timeout_ms)

    def _drop(self, pieces: Sequence[Piece]) -> NoReturn:
        for piece in pieces:
            topics = [piece.topic] if isinstance(piece, MessageColumns) else fields_in(piece)[0]
            for topic in topics:
                self._stats.record_dropped(topic, len(piece) if isinstance(piece, MessageColumns) else 1)
        dropped = sum(map(count_of, pieces))
        raise QueueFull(
            f"queue full: no room for {counted(dropped, 'message')}, {len(self.queue)} are queued "
            f"(queue.buffering.max.messages), queue.enqueue.timeout.ms={self._timeout_ms}",
            dropped,
        )
