"""``kafka.producer.ProducerStats`` and ``ProducerTopicStats``: what a producer counts."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Of one topic, or of all. As in the release (``messageRate``, ``byteRate``), messages and bytes of their
    values are counted when the default event handler begins to send them, also those that no broker takes in
    the end, which are ``failed``: brokers have the difference, if ``request.required.acks`` asks them.

    dropped: messages for which the queue had no room (``droppedMessageRate``).
    failed: how many of ``messages`` were given up. (Not in the release.)
    """

    messages: int = 0
    bytes: int = 0
    dropped: int = 0
    failed: int = 0


class ProducerStats:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: defaultdict[str, TopicStats] = defaultdict(TopicStats)
        self.serialization_errors = 0
        """Messages that an encoder could not encode."""
        self.resends = 0
        """How often what was left of a batch was sent again."""
        self.failed_sends = 0
        """Batches of which something was given up."""
        self.failed_messages = 0
        """Messages that were given up: of all topics, also those that could not be encoded, and those that a
        callback handler or a plugged-in event handler has lost.
        """

    def topic(self, name: str) -> TopicStats:
        """What is counted of one topic."""
        with self._lock:
            return self._topics.get(name, TopicStats())

    @property
    def all_topics(self) -> TopicStats:
        """The sums over all topics."""
        with self._lock:
            every = list(self._topics.values())
        return TopicStats(
            sum(one.messages for one in every),
            sum(one.bytes for one in every),
            sum(one.dropped for one in every),
            sum(one.failed for one in every),
        )

    def record_sent(self, topic: str, messages: int, size: int) -> None:
        """Messages of ``size`` bytes in all go to the brokers."""
        with self._lock:
            one = self._topics[topic]
            self._topics[topic] = replace(one, messages=one.messages + messages, bytes=one.bytes + size)

    def record_dropped(self, topic: str, messages: int = 1) -> None:
        """There was no room for them."""
        with self._lock:
            one = self._topics[topic]
            self._topics[topic] = replace(one, dropped=one.dropped + messages)

    def record_failed(self, topic: str, messages: int) -> None:
        """Of those that were counted as sent, no broker has these."""
        with self._lock:
            one = self._topics[topic]
            self._topics[topic] = replace(one, failed=one.failed + messages)

    def record_serialization_errors(self, messages: int) -> None:
        """An encoder has failed on them."""
        with self._lock:
            self.serialization_errors += messages

    def record_resend(self) -> None:
        """One more attempt."""
        with self._lock:
            self.resends += 1

    def record_failed_batch(self, messages: int) -> None:
        """A batch of which these were given up."""
        with self._lock:
            self.failed_sends += 1
            self.failed_messages += messages
