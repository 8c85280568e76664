"""``kafka.producer.async.EventHandler``: what serializes and sends the events of a producer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from minikafka.clients.producer.keyed_message import KeyedMessage


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
