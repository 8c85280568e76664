"""What a caller of the producer holds until the broker has answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from minikafka.base.errors import MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.records.message_set import NO_TIMESTAMP

UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Where records are now. ``offset`` is that of the first of ``count``; -1 with acks=0, where no broker
    answers.

    ``log_append_time_ms`` is set (not -1) only where the topic stamps records itself.
    """

    topic_partition: TopicPartition
    offset: int
    count: int = 1
    log_append_time_ms: int = NO_TIMESTAMP


class Outcome:
    """How the sending of one batch ended; shared by the deliveries of its records.

    Settled once, under the condition that all outcomes of a producer share.
    """

    __slots__ = ("base_offset", "condition", "done", "error", "log_append_time_ms")

    def __init__(self, condition: threading.Condition) -> None:
        self.condition = condition
        self.done = False
        self.error: MinikafkaError | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP


class Delivery:
    """The future of one record, or of the ``count`` records of one pre-encoded set."""

    __slots__ = ("_callback", "_outcome", "_position", "count", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, outcome: Outcome, position: int, count: int = 1
    ) -> None:
        self.topic_partition = topic_partition
        self.count = count
        self._outcome = outcome
        self._position = position
        self._callback: Callable[[Delivery], None] | None = None

    @property
    def done(self) -> bool:
        """Whether it is known how it ended."""
        return self._outcome.done

    @property
    def error(self) -> MinikafkaError | None:
        """Why it failed; None while it is under way and after it was acknowledged."""
        return self._outcome.error

    def result(self, timeout_ms: int | None = None) -> Acknowledged:
        """Wait until it is known. Raises what went wrong, or NetworkError when ``timeout_ms`` passes first.

        Without ``timeout_ms`` the producer's own delivery time-out is the bound.
        """
        condition = self._outcome.condition
        if not self.done:
            with condition:
                # A split batch moves its deliveries to new outcomes, so the current one is looked up at each
                # wake-up.
                if not condition.wait_for(
                    lambda: self.done, None if timeout_ms is None else timeout_ms / 1000
                ):
                    raise NetworkError(
                        f"no acknowledgement for {self.topic_partition} within {timeout_ms} ms"
                    )
        outcome = self._outcome
        if outcome.error is not None:
            raise outcome.error
        base = outcome.base_offset
        offset = base + self._position if base >= 0 else UNKNOWN_OFFSET
        return Acknowledged(self.topic_partition, offset, self.count, outcome.log_append_time_ms)

    def on_done(self, callback: Callable[[Delivery], None]) -> None:
        """Call ``callback(delivery)`` once it is known: on the thread that learns of it, or here if it is
        known already.

        One callback a delivery; it must be quick and must not wait for other deliveries.
        """
        with self._outcome.condition:
            if not self.done:
                self._callback = callback
                return
        callback(self)

    @property
    def has_callback(self) -> bool:
        """Whether somebody wants to be told. For the producer."""
        return self._callback is not None

    def take_callback(self) -> Callable[[Delivery], None] | None:
        """The callback, given out once. For the producer."""
        callback, self._callback = self._callback, None
        return callback

    def move(self, outcome: Outcome, position: int) -> None:
        """Follow another batch from now on: its own was split. For the producer, under the condition."""
        self._outcome = outcome
        self._position = position
