"""What the fetches of one client cost, by broker and in all."""

from __future__ import annotations

import threading

from minikafka.base.clock import Clock
from minikafka.base.ids import host_port
from minikafka.clients.consumer.meter import Meter, Summary


class FetchRequestAndResponseMetrics:
    """Of one broker, or of all (``FetchRequestAndResponseMetrics``).

    requests: that were answered (``FetchRequestRateAndTimeMs``, the rate).
    request_ms: how long each took, with the broker's wait for data (the time).
    response_bytes: of messages in each answer (``FetchResponseSize``).
    throttle_ms: how long brokers said that they held an answer back (``FetchRequestThrottleRateAndTimeMs``).
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.requests = Meter(clock)
        self.request_ms = Summary()
        self.response_bytes = Summary()
        self.throttle_ms = Summary()

    def add(self, request_ms: int, response_bytes: int, throttle_ms: int) -> None:
        """A fetch was answered."""
        self.requests.mark()
        self.request_ms.add(request_ms)
        self.response_bytes.add(response_bytes)
        self.throttle_ms.add(throttle_ms)


class FetchRequestAndResponseStats:
    """The fetches of one client (``FetchRequestAndResponseStats`` of text 004)."""

    def __init__(self, client_id: str, clock: Clock | None = None) -> None:
        self.client_id = client_id
        self._clock = clock
        self._lock = threading.Lock()
        self._brokers: dict[str, FetchRequestAndResponseMetrics] = {}
        self._all = FetchRequestAndResponseMetrics(clock)

    @property
    def all_brokers(self) -> FetchRequestAndResponseMetrics:
        """Of all brokers together (``getFetchRequestAndResponseAllBrokersStats``)."""
        return self._all

    @property
    def brokers(self) -> dict[str, FetchRequestAndResponseMetrics]:
        """Of each broker that was asked, by ``host:port``."""
        with self._lock:
            return dict(self._brokers)

    def broker(self, host: str, port: int) -> FetchRequestAndResponseMetrics:
        """Of one broker (``getFetchRequestAndResponseStats``)."""
        key = host_port(host, port)
        with self._lock:
            found = self._brokers.get(key)
            if found is None:
                found = self._brokers[key] = FetchRequestAndResponseMetrics(self._clock)
            return found

    def answered(
        self, host: str, port: int, *, request_ms: int, response_bytes: int, throttle_ms: int
    ) -> None:
        """A broker has answered a fetch."""
        for one in (self.broker(host, port), self._all):
            one.add(request_ms, response_bytes, throttle_ms)


class FetchRequestAndResponseStatsRegistry:
    """The stats of all clients of this process, by client id (``FetchRequestAndResponseStatsRegistry``)."""

    _lock = threading.RLock()  # as that of ``stats_in_use``
    _stats: dict[str, FetchRequestAndResponseStats] = {}  # noqa: RUF012  # one for the process

    @classmethod
    def get(cls, client_id: str) -> FetchRequestAndResponseStats:
        """Those of ``client_id``; new ones where there are none."""
        with cls._lock:
            found = cls._stats.get(client_id)
            if found is None:
                found = cls._stats[client_id] = FetchRequestAndResponseStats(client_id)
            return found

    @classmethod
    def remove(cls, client_id: str) -> None:
        """Forget those of ``client_id``; who has them may go on using them."""
        with cls._lock:
            cls._stats.pop(client_id, None)
