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
from collections.abc import Callable
from typing import Generic, TypeVar

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.ids import host_port

_TICK_MS = 5_000
_DECAY = math.exp(-_TICK_MS / 60_000)
"""The part of a one-minute rate that is left after one tick."""

Stats = TypeVar("Stats")


class Meter:
    """Counts events, and their rate per second: the mean, and an average of the last minute.

    ``one_minute_rate`` is exponentially weighted, as a Unix load average, and moves every five seconds.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._start_ms = self._ticked_ms = self._clock.monotonic_ms()
        self.count = 0
        """All events so far."""
        self._since_tick = 0
        self._rate: float | None = None

    def mark(self, count: int = 1) -> None:
        """Count ``count`` events."""
        with self._lock:
            self._tick()
            self.count += count
            self._since_tick += count

    @property
    def mean_rate(self) -> float:
        """Events per second since the start."""
        passed_ms = self._clock.monotonic_ms() - self._start_ms
        return self.count * 1000 / passed_ms if passed_ms else 0.0

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
    """Count, sum, mean, minimum and maximum of some numbers; all are 0 for none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.sum = 0
        self.min = 0
        self.max = 0

    def add(self, number: int) -> None:
        """Add a number."""
        with self._lock:
            self.min = min(self.min, number) if self.count else number
            self.max = max(self.max, number)
            self.count += 1
            self.sum += number

    @property
    def mean(self) -> float:
        """The mean of the numbers."""
        return self.sum / self.count if self.count else 0.0


class StatsRegistry(Generic[Stats]):
    """Stats by name, created when they are first used. Thread-safe."""

    def __init__(self, create: Callable[[str], Stats]) -> None:
        self._create = create
        self._lock = threading.RLock()  # garbage collection may call ``remove`` while it is held
        self._stats: dict[str, Stats] = {}

    def get(self, name: str) -> Stats:
        """Return the stats of ``name``, creating them if needed."""
        with self._lock:
            found = self._stats.get(name)
            if found is None:
                found = self._stats[name] = self._create(name)
            return found

    def remove(self, name: str) -> None:
        """Remove the stats of ``name``; objects that hold them may continue to use them."""
        with self._lock:
            self._stats.pop(name, None)

    def copy(self) -> dict[str, Stats]:
        """Return all stats by name."""
        with self._lock:
            return dict(self._stats)


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
        self._topics = StatsRegistry(lambda _: ConsumerTopicMetrics(clock))
        self.all_topics = ConsumerTopicMetrics(clock)
        """The meters of all topics together (``getConsumerAllTopicStats``)."""

    @property
    def topics(self) -> dict[str, ConsumerTopicMetrics]:
        """The meters of each topic that has any."""
        return self._topics.copy()

    def topic(self, name: str) -> ConsumerTopicMetrics:
        """Return the meters of one topic (``getConsumerTopicStats``)."""
        return self._topics.get(name)

    def record_bytes(self, topic: str, size_bytes: int) -> None:
        """Record a fetched message set of ``topic``."""
        self.topic(topic).bytes_.mark(size_bytes)
        self.all_topics.bytes_.mark(size_bytes)

    def record_messages(self, topic: str, messages: int) -> None:
        """Record messages of ``topic`` that the application has taken."""
        if messages:
            self.topic(topic).messages.mark(messages)
            self.all_topics.messages.mark(messages)

    def record_skipped(self, topic: str) -> None:
        """Record a damaged message of ``topic`` that the application has skipped."""
        self.topic(topic).skipped.mark()
        self.all_topics.skipped.mark()


ConsumerTopicStatsRegistry = StatsRegistry(ConsumerTopicStats)
"""The topic stats of all clients of this process, by client id (``ConsumerTopicStatsRegistry``)."""


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
        self._brokers = StatsRegistry(lambda _: FetchRequestAndResponseMetrics(clock))
        self.all_brokers = FetchRequestAndResponseMetrics(clock)
        """The metrics of all brokers together (``getFetchRequestAndResponseAllBrokersStats``)."""

    @property
    def brokers(self) -> dict[str, FetchRequestAndResponseMetrics]:
        """The metrics of each broker, by ``host:port``."""
        return self._brokers.copy()

    def broker(self, host: str, port: int) -> FetchRequestAndResponseMetrics:
        """Return the metrics of one broker (``getFetchRequestAndResponseStats``)."""
        return self._brokers.get(host_port(host, port))

    def record_fetch(
        self, host: str, port: int, *, request_ms: int, response_bytes: int, throttle_ms: int
    ) -> None:
        """Record a fetch that a broker has answered."""
        for metrics in (self.broker(host, port), self.all_brokers):
            metrics.add(request_ms, response_bytes, throttle_ms)


FetchRequestAndResponseStatsRegistry = StatsRegistry(FetchRequestAndResponseStats)
"""The fetch stats of all clients of this process, by client id
(``FetchRequestAndResponseStatsRegistry``).
"""

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
