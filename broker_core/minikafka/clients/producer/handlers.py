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
    """Plugged in by ``event.handler``; ``DefaultEventHandler`` is used without it.

    Any object with these methods will do. One thread calls at a time.
    """

    @abstractmethod
    def handle(self, events: Sequence[KeyedMessage]) -> None:
        """Send ``events``, in their order. What it raises goes to the caller of ``Producer.send`` when the
        producer is synchronous; else it is logged and given to the callback handler.
        """

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """The producer ends: nothing comes after this."""


class CallbackHandler:
    """Plugged in by ``callback.handler``. Override what is wanted; what is here changes nothing.

    ::

        send ─▶ before_enqueue ─▶ queue ─▶ after_enqueue
        queue ─▶ after_dequeuing_existing_data ─▶ before_sending_data ─▶ event handler ─▶ after_sending_data
        close ─▶ last_batch_before_close ─▶ close

    ``before_enqueue`` and ``after_enqueue`` run on the thread that calls ``send``, all others on the send
    thread, where what they raise is logged: the events that they had are lost then, and counted as failed.
    So are those in whose place something else than a sequence of messages is given.
    A synchronous producer has no such stages.
    """

    def init(self, properties: Mapping[str, Any]) -> None:
        """Before all others: the properties that the producer was made with."""

    def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
        """The event that goes into the queue in place of ``event``. What it raises, ``send`` raises."""
        return event

    def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
        """Whether the queue had room for the event, in the time that ``queue.enqueue.timeout.ms`` gives."""

    def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> Sequence[KeyedMessage]:
        """The events to be sent in the place of one that left the queue.

        None comes at the end of what left the queue because ``queue.buffering.max.ms`` were over: who has
        kept events back may give them then.
        """
        return () if event is None else (event,)

    def before_sending_data(self, events: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """The events that the event handler gets in place of ``events``."""
        return events

    def after_sending_data(self, events: Sequence[KeyedMessage], error: Exception | None) -> None:
        """The event handler is done with ``events``, or has raised ``error``. (The texts have no such stage.)

        Of the default handler that is ``FailedToSendMessage``, which knows what was not sent.
        """

    def last_batch_before_close(self) -> Sequence[KeyedMessage]:
        """Events to be sent at last, behind all that was queued."""
        return ()

    def close(self) -> None:
        """The last call. (In 0.7 it came before the last batch.)"""
