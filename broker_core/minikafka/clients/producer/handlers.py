"""The classes that an application can plug in: ``kafka.producer.async.EventHandler``, which serializes and
sends events, and ``kafka.producer.async.CallbackHandler``, which is called at each stage of the asynchronous
producer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from minikafka.clients.producer.messages import KeyedMessage


class EventHandler(ABC):
    """Serializes and sends events. Plugged in by ``event.handler``; the default is ``DefaultEventHandler``.

    Any object with these methods will do. One thread calls at a time.
    """

    @abstractmethod
    def handle(self, events: Sequence[KeyedMessage]) -> None:
        """Send ``events``, in their order. With a synchronous producer, exceptions go to the caller of
        ``Producer.send``; otherwise they are logged and passed to the callback handler.
        """

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """End the handler: no call comes after this."""


class CallbackHandler:
    """Hooks into the stages of an asynchronous producer. Plugged in by ``callback.handler``. Override methods
    as needed; the defaults change nothing.

    ::

        send ─▶ before_enqueue ─▶ queue ─▶ after_enqueue
        queue ─▶ after_dequeuing_existing_data ─▶ before_sending_data ─▶ event handler ─▶ after_sending_data
        close ─▶ last_batch_before_close ─▶ close

    ``before_enqueue`` and ``after_enqueue`` run on the thread that calls ``send``, all others on the send
    thread, where exceptions are logged: the events of the call are then lost, and counted as failed. So are
    the events of a call that returns anything but a sequence of messages. A synchronous producer has no such
    stages.
    """

    def init(self, properties: Mapping[str, Any]) -> None:
        """Called first, with the properties of the producer."""

    def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
        """Return the event to queue instead of ``event``. ``send`` raises what this raises."""
        return event

    def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
        """Called after ``event`` was queued, or dropped because there was no room within
        ``queue.enqueue.timeout.ms``; ``added`` is False then.
        """

    def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> Sequence[KeyedMessage]:
        """Return the events to send instead of an event that left the queue.

        ``event`` is None at the end of events that left the queue because ``queue.buffering.max.ms`` had
        passed: a handler that held events back may return them then.
        """
        return () if event is None else (event,)

    def before_sending_data(self, events: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Return the events to pass to the event handler instead of ``events``."""
        return events

    def after_sending_data(self, events: Sequence[KeyedMessage], error: Exception | None) -> None:
        """Called when the event handler has handled ``events``, or has raised ``error``. (The texts have no
        such stage.)

        The default handler raises ``FailedToSendMessage``, which holds the unsent messages.
        """

    def last_batch_before_close(self) -> Sequence[KeyedMessage]:
        """Return events to send last, after all queued events."""
        return ()

    def close(self) -> None:
        """Called last. (In 0.7 before the last batch.)"""
