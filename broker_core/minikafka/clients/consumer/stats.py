"""What the streams of one client have received, by topic and in all."""

from __future__ import annotations

import threading

from minikafka.base.clock import Clock
from minikafka.clients.consumer.meter import Meter


class ConsumerTopicMetrics:
    """Meters of one topic, or of all (``ConsumerTopicMetrics``).

    messages: that the application has taken (``MessagesPerSec``); counted when it asks for the next page of
        messages, so up to a page late.
    bytes_: of message sets that were fetched (``BytesPerSec``).
    skipped: damaged messages that the application chose to pass over.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.messages = Meter(clock)
        self.bytes_ = Meter(clock)
        self.skipped = Meter(clock)


class ConsumerTopicStats:
    """The meters of one client (``ConsumerTopicStats`` of text 004): one for each topic, and one for all."""

    def __init__(self, client_id: str, clock: Clock | None = None) -> None:
        self.client_id = client_id
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: dict[str, ConsumerTopicMetrics] = {}
        self._all = ConsumerTopicMetrics(clock)

    @property
    def all_topics(self) -> ConsumerTopicMetrics:
        """Of all topics together (``getConsumerAllTopicStats``)."""
        return self._all

    @property
    def topics(self) -> dict[str, ConsumerTopicMetrics]:
        """Of each topic of which there was something."""
        with self._lock:
            return dict(self._topics)

    def topic(self, name: str) -> ConsumerTopicMetrics:
        """Of one topic (``getConsumerTopicStats``)."""
        with self._lock:
            found = self._topics.get(name)
            if found is None:
                found = self._topics[name] = ConsumerTopicMetrics(self._clock)
            return found

    def received(self, topic: str, size_bytes: int) -> None:
        """A message set of ``topic`` was fetched."""
        self.topic(topic).bytes_.mark(size_bytes)
        self._all.bytes_.mark(size_bytes)

    def taken(self, topic: str, messages: int) -> None:
        """The application has taken messages of ``topic``."""
        if messages:
            self.topic(topic).messages.mark(messages)
            self._all.messages.mark(messages)

    def passed_over(self, topic: str) -> None:
        """The application has skipped a damaged message of ``topic``."""
        self.topic(topic).skipped.mark()
        self._all.skipped.mark()


class ConsumerTopicStatsRegistry:
    """The stats of all clients of this process, by client id (``ConsumerTopicStatsRegistry``)."""

    _lock = threading.RLock()  # as that of ``stats_in_use``
    _stats: dict[str, ConsumerTopicStats] = {}  # noqa: RUF012  # one for the process, as its name says

    @classmethod
    def get(cls, client_id: str) -> ConsumerTopicStats:
        """Those of ``client_id``; new ones where there are none."""
        with cls._lock:
            found = cls._stats.get(client_id)
            if found is None:
                found = cls._stats[client_id] = ConsumerTopicStats(client_id)
            return found

    @classmethod
    def remove(cls, client_id: str) -> None:
        """Forget those of ``client_id``; who has them may go on using them."""
        with cls._lock:
            cls._stats.pop(client_id, None)
