"""Meters of a consumer: messages by topic, fetches by broker, and the registries that hold them.

``Meter`` and ``Summary`` are thread-safe, and cheap when they are marked for many events at once. The two
registries hold the stats of each client id. It is the group's name unless another is set, so several
consumers of a process often share stats. A connector uses them until its shutdown, a simple consumer as long
as it is referenced; the last user of a client id removes them.
"""

from __future__ import annotations

import math
import threading
from collections import Counter

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.ids import host_port

_TICK_MS = 5_000
_DECAY = math.exp(-_TICK_MS / 60_000)
"""The part of a one-minute rate that is left after one tick."""


class Meter:
    """Counts events, and their rate per second: the mean, and an average of the last minute.

    ``one_minute_rate`` is exponentially weighted, as a Unix load average, and moves every five seconds.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._start_ms = self._ticked_ms = self._clock.monotonic_ms()
        self._count = 0
        self._since_tick = 0
        self._rate: float | None = None

    def mark(self, count: int = 1) -> None:
        """Count ``count`` events."""
        with self._lock:
            self._tick()
            self._count += count
            self._since_tick += count

    @property
    def count(self) -> int:
        """All events so far."""
        return self._count

    @property
    def mean_rate(self) -> float:
        """Events per second since the start."""
        passed_ms = self._clock.monotonic_ms() - self._start_ms
        return self._count * 1000 / passed_ms if passed_ms else 0.0

    @property
    def one_minute_rate(self) -> float:
        """Events per second of the last minute; 0 in the first five seconds."""
        with self._lock:
            self._tick()
            return self._rate or 0.0

    def _tick(self) -> None:
        ticks = (self._clock.monotonic_ms() - self._ticked_ms) // _TICK_MS
        if not ticks:
            return
        recent_rate = self._since_tick * 1000 / _TICK_MS
        self._rate = recent_rate if self._rate is None else recent_rate + (self._rate - recent_rate) * _DECAY
        self._rate *= _DECAY ** (ticks - 1)
        self._ticked_ms += ticks * _TICK_MS
        self._since_tick = 0


class Summary:
    """Count, sum, mean, minimum and maximum of some numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._sum = 0
        self._least = 0
        self._largest = 0

    def add(self, number: int) -> None:
        """Add a number."""
        with self._lock:
            self._least = min(self._least, number) if self._count else number
            self._largest = max(self._largest, number)
            self._count += 1
            self._sum += number

    @property
    def count(self) -> int:
        """The count of the numbers."""
        return self._count

    @property
    def sum(self) -> int:
        """The sum of the numbers."""
        return self._sum

    @property
    def mean(self) -> float:
        """The mean of the numbers; 0 for none."""
        return self._sum / self._count if self._count else 0.0

    @property
    def min(self) -> int:
        """The minimum; 0 for none."""
        return self._least

    @property
    def max(self) -> int:
        """The maximum; 0 for none."""
        return self._largest


class ConsumerTopicMetrics:
    """Meters of one topic, or of all topics (``ConsumerTopicMetrics``).

    messages: messages taken by the application (``MessagesPerSec``); counted when the application requests
        the next page of messages, so up to a page late.
    bytes_: bytes of fetched records (``BytesPerSec``).
    skipped: damaged messages that the application skipped.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.messages = Meter(clock)
        self.bytes_ = Meter(clock)
        self.skipped = Meter(clock)


class ConsumerTopicStats:
    """The meters of one client (``ConsumerTopicStats`` of text 004): one for each topic, and one for all
    topics.
    """

    def __init__(self, client_id: str, clock: Clock | None = None) -> None:
        self.client_id = client_id
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: dict[str, ConsumerTopicMetrics] = {}
        self._all = ConsumerTopicMetrics(clock)

    @property
    def all_topics(self) -> ConsumerTopicMetrics:
        """The meters of all topics together (``getConsumerAllTopicStats``)."""
        return self._all

    @property
    def topics(self) -> dict[str, ConsumerTopicMetrics]:
        """The meters of each topic that has any."""
        with self._lock:
            return dict(self._topics)

    def topic(self, name: str) -> ConsumerTopicMetrics:
        """Return the meters of one topic (``getConsumerTopicStats``)."""
        with self._lock:
            found = self._topics.get(name)
            if found is None:
                found = self._topics[name] = ConsumerTopicMetrics(self._clock)
            return found

    def record_bytes(self, topic: str, size_bytes: int) -> None:
        """Record a fetched message set of ``topic``."""
        self.topic(topic).bytes_.mark(size_bytes)
        self._all.bytes_.mark(size_bytes)

    def record_messages(self, topic: str, messages: int) -> None:
        """Record messages of ``topic`` that the application has taken."""
        if messages:
            self.topic(topic).messages.mark(messages)
            self._all.messages.mark(messages)

    def record_skipped(self, topic: str) -> None:
        """Record a damaged message of ``topic`` that the application has skipped."""
        self.topic(topic).skipped.mark()
        self._all.skipped.mark()


class ConsumerTopicStatsRegistry:
    """The topic stats of all clients of this process, by client id (``ConsumerTopicStatsRegistry``)."""

    _lock = threading.RLock()  # reentrant, as the module's lock of users
    _stats: dict[str, ConsumerTopicStats] = {}  # noqa: RUF012  # one for the process, as its name says

    @classmethod
    def get(cls, client_id: str) -> ConsumerTopicStats:
        """Return the stats of ``client_id``, creating them if needed."""
        with cls._lock:
            found = cls._stats.get(client_id)
            if found is None:
                found = cls._stats[client_id] = ConsumerTopicStats(client_id)
            return found

    @classmethod
    def remove(cls, client_id: str) -> None:
        """Remove the stats of ``client_id``; objects that hold them may continue to use them."""
        with cls._lock:
            cls._stats.pop(client_id, None)


class FetchRequestAndResponseMetrics:
    """Metrics of the fetches from one broker, or from all brokers (``FetchRequestAndResponseMetrics``).

    requests: answered requests (``FetchRequestRateAndTimeMs``, the rate).
    request_ms: duration of each, with the broker's wait for data (the time).
    response_bytes: bytes of records in each response (``FetchResponseSize``).
    throttle_ms: throttle time that brokers report (``FetchRequestThrottleRateAndTimeMs``).
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.requests = Meter(clock)
        self.request_ms = Summary()
        self.response_bytes = Summary()
        self.throttle_ms = Summary()

    def add(self, request_ms: int, response_bytes: int, throttle_ms: int) -> None:
        """Record an answered fetch."""
        self.requests.mark()
        self.request_ms.add(request_ms)
        self.response_bytes.add(response_bytes)
        self.throttle_ms.add(throttle_ms)


class FetchRequestAndResponseStats:
    """The fetch metrics of one client (``FetchRequestAndResponseStats`` of text 004)."""

    def __init__(self, client_id: str, clock: Clock | None = None) -> None:
        self.client_id = client_id
        self._clock = clock
        self._lock = threading.Lock()
        self._brokers: dict[str, FetchRequestAndResponseMetrics] = {}
        self._all = FetchRequestAndResponseMetrics(clock)

    @property
    def all_brokers(self) -> FetchRequestAndResponseMetrics:
        """The metrics of all brokers together (``getFetchRequestAndResponseAllBrokersStats``)."""
        return self._all

    @property
    def brokers(self) -> dict[str, FetchRequestAndResponseMetrics]:
        """The metrics of each broker, by ``host:port``."""
        with self._lock:
            return dict(self._brokers)

    def broker(self, host: str, port: int) -> FetchRequestAndResponseMetrics:
        """Return the metrics of one broker (``getFetchRequestAndResponseStats``)."""
        key = host_port(host, port)
        with self._lock:
            found = self._brokers.get(key)
            if found is None:
                found = self._brokers[key] = FetchRequestAndResponseMetrics(self._clock)
            return found

    def record_fetch(
        self, host: str, port: int, *, request_ms: int, response_bytes: int, throttle_ms: int
    ) -> None:
        """Record a fetch that a broker has answered."""
        for metrics in (self.broker(host, port), self._all):
            metrics.add(request_ms, response_bytes, throttle_ms)


class FetchRequestAndResponseStatsRegistry:
    """The fetch stats of all clients of this process, by client id
    (``FetchRequestAndResponseStatsRegistry``).
    """

    _lock = threading.RLock()  # reentrant, as the module's lock of users
    _stats: dict[str, FetchRequestAndResponseStats] = {}  # noqa: RUF012  # one for the process

    @classmethod
    def get(cls, client_id: str) -> FetchRequestAndResponseStats:
        """Return the stats of ``client_id``, creating them if needed."""
        with cls._lock:
            found = cls._stats.get(client_id)
            if found is None:
                found = cls._stats[client_id] = FetchRequestAndResponseStats(client_id)
            return found

    @classmethod
    def remove(cls, client_id: str) -> None:
        """Remove the stats of ``client_id``; objects that hold them may continue to use them."""
        with cls._lock:
            cls._stats.pop(client_id, None)


_lock = threading.RLock()  # garbage collection may release stats while it is held
_users: Counter[str] = Counter()


def acquire_stats(client_id: str) -> None:
    """Count one more user of the stats of ``client_id``."""
    with _lock:
        _users[client_id] += 1


def release_stats(client_id: str) -> None:
    """Count one user fewer of the stats of ``client_id``; the last user removes them."""
    with _lock:
        _users[client_id] -= 1
        if _users[client_id] <= 0:
            del _users[client_id]
            ConsumerTopicStatsRegistry.remove(client_id)
            FetchRequestAndResponseStatsRegistry.remove(client_id)
