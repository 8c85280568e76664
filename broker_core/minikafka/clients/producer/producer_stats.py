"""``kafka.producer.ProducerStats`` and ``ProducerTopicStats``: the counters of a producer."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Counters of one topic, or of all topics.

    messages, bytes: messages that the default event handler has started to send, and the bytes of their
        values (``messageRate``, ``byteRate``). As in the release, they include messages that no broker
        accepts in the end.
    dropped: messages without room in the queue (``droppedMessageRate``).
    failed: the part of ``messages`` that was given up. Brokers have written the rest, if
        ``request.required.acks`` waits for them. (Not in the release.)
    """

    messages: int = 0
    bytes: int = 0
    dropped: int = 0
    failed: int = 0


class ProducerStats:
    """The counters of one producer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: defaultdict[str, TopicStats] = defaultdict(TopicStats)
        self.serialization_errors = 0
        """Messages that an encoder could not encode."""
        self.resends = 0
        """Retries of batches."""
        self.failed_sends = 0
        """Batches with failed messages."""
        self.failed_messages = 0
        """Failed messages of all topics, including those that could not be encoded, and those that a callback
        handler or a plugged-in event handler has lost.
        """

    def topic(self, name: str) -> TopicStats:
        """Return the counters of one topic."""
        with self._lock:
            return self._topics.get(name, TopicStats())

    @property
    def all_topics(self) -> TopicStats:
        """The sums over all topics."""
        with self._lock:
            every = list(self._topics.values())
        return TopicStats(
            sum(stats.messages for stats in every),
            sum(stats.bytes for stats in every),
            sum(stats.dropped for stats in every),
            sum(stats.failed for stats in every),
        )

    def record_sent(self, topic: str, messages: int, size: int) -> None:
        """Record messages of ``size`` bytes in all that are sent to the brokers."""
        with self._lock:
            stats = self._topics[topic]
            self._topics[topic] = replace(stats, messages=stats.messages + messages, bytes=stats.bytes + size)

    def record_dropped(self, topic: str, messages: int) -> None:
        """Record messages without room in the queue."""
        with self._lock:
            stats = self._topics[topic]
            self._topics[topic] = replace(stats, dropped=stats.dropped + messages)

    def record_failed(self, topic: str, messages: int) -> None:
        """Record sent messages that no broker has accepted."""
        with self._lock:
            stats = self._topics[topic]
            self._topics[topic] = replace(stats, failed=stats.failed + messages)

    def record_serialization_errors(self, messages: int) -> None:
        """Record messages that an encoder could not encode."""
        with self._lock:
            self.serialization_errors += messages

    def record_resends(self, batches: int) -> None:
        """Record retries of batches."""
        with self._lock:
            self.resends += batches

    def record_failed_batch(self, messages: int) -> None:
        """Record a batch of which ``messages`` messages have failed."""
        with self._lock:
            self.failed_sends += 1
            self.failed_messages += messages
