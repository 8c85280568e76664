"""Connection quotas: limits on connections and on how fast they come, and the choice of a processor for a new
one.
"""

from __future__ import annotations

import logging
import resource
import threading
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from minikafka.base.clock import Clock
from minikafka.base.config.config_def import setting
from minikafka.base.config.types import int32, text_type, whole_number
from minikafka.base.rate import Rate

logger = logging.getLogger("minikafka.net")

UNLIMITED = 0x7FFFFFFF
RESERVED_DESCRIPTORS = 1_024
"""File descriptors reserved for logs, ZooKeeper and other brokers, or a quarter of all if that is less: a log
that cannot open a new segment accepts no messages.
"""
MIN_CONNECTIONS = 64
"""Connections that are accepted even when logs use most descriptors."""
REFUSAL_LOG_INTERVAL_MS = 10_000
"""The interval between logged refusals, as clients usually reconnect at once."""
_LINES, _LINES_OF_A_HOST = 50, 5


def _counts(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, number = entry.rpartition(":")
        count = whole_number(number)
        if not host or count is None or count < 0:
            raise ValueError
        counts[host.strip().strip("[]")] = count
    return counts


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of concurrent connections over all listeners, and of the rate of new ones.

    Kafka's names: ``max.connections`` (from 2.4 on; each of the N processors gets at most an N-th of it, the
    texts' "fixed number of connections each"), ``max.connections.per.ip`` and its ``.overrides``;
    ``max.connection.creation.rate`` (from 2.7 on, KIP-612).
    """

    total: int = setting(
        "max.connections",
        int32(1),
        UNLIMITED,
        "The most connections of this broker, or of one listener "
        "(`listener.name.NAME.max.connections`). The listener of brokers has only its own limit, if there "
        "are others.",
    )
    per_ip: int = setting(
        "max.connections.per.ip", int32(0), UNLIMITED, "The most connections from one address."
    )
    per_ip_overrides: Mapping[str, int] = setting(
        "max.connections.per.ip.overrides",
        text_type("HOST:COUNT, separated by commas", _counts),
        "",
        "Other limits for some addresses: HOST:COUNT, separated by commas.",
    )
    """Address -> its limit instead of ``per_ip``."""
    creation_rate: int = setting(
        "max.connection.creation.rate",
        int32(0),
        UNLIMITED,
        "The most new connections in a second. Above it they are accepted more slowly. It is for the broker, "
        "and for each listener that has no other one in `listener.name.NAME.max.connection.creation.rate`. "
        "The listener of brokers has only its own limit, if there are others.",
    )
    totals: Mapping[str, int] = field(default_factory=dict)
    """Listener -> its limit, beside ``total`` for all."""
    creation_rates: Mapping[str, int] = field(default_factory=dict)
    """Listener -> its limit, beside ``creation_rate`` for all."""
    inter_broker_listener: str = ""
    """The listener that ``total`` and ``creation_rate`` do not limit; "" for none."""
    rate_windows: int = 11
    rate_window_ms: int = 1_000


def descriptors_for_connections() -> int:
    """Return the number of descriptors that connections may use."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return UNLIMITED
    return limit - min(RESERVED_DESCRIPTORS, limit // 4)


class LogLimit:
    """Bounds the lines about peers that anybody can cause, and others that repeat. Thread-safe.

    In each interval of 10 s: one line for the same reason of a host, 5 lines for a host, 50 for all.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._end_ms = 0
        self._seen: set[tuple[str, str]] = set()
        self._by_host: Counter[str] = Counter()
        self._suppressed = 0

    def admit(self, host: str = "", reason: str = "") -> str | None:
        """Return the end of the line, which counts those suppressed before; None: do not log this one."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if now_ms >= self._end_ms:
                self._end_ms = now_ms + REFUSAL_LOG_INTERVAL_MS
                self._seen.clear()
                self._by_host.clear()
            if (
                (host, reason) in self._seen
                or self._by_host[host] >= _LINES_OF_A_HOST
                or len(self._seen) >= _LINES
            ):
                self._suppressed += 1
                return None
            self._seen.add((host, reason))
            self._by_host[host] += 1
            suppressed, self._suppressed = self._suppressed, 0
            return f"; {suppressed} more since the last message" if suppressed else ""


DEFAULT_IP = ""
"""All addresses without a rate of their own."""
_SPARE_RATES = 64


class IpRates:
    """The rates of new connections of addresses (KIP-612). Not thread-safe."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self.limits: Mapping[str, int] = {}
        self._windows, self._window_ms = windows, window_ms
        self._rates: dict[str, Rate] = {}
        self._purge_at = _SPARE_RATES

    def throttle_ms(self, ip: str, now_ms: int) -> int:
        """Count a new connection. Return the time to keep it before it is closed; 0: it may stay."""
        limit = self.limits.get(ip, self.limits.get(DEFAULT_IP, UNLIMITED))
        if limit == UNLIMITED:
            return 0
        rate = self._rates.get(ip)
        if rate is None:
            if len(self._rates) >= self._purge_at:
                self._rates = {key: rate for key, rate in self._rates.items() if not rate.idle(now_ms)}
                self._purge_at = 2 * len(self._rates) + _SPARE_RATES
            rate = self._rates[ip] = Rate(self._windows, self._window_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._window_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms


class ConnectionQuotas:
    """Counts connections by address and by processor. Thread-safe."""

    def __init__(
        self, limits: ConnectionLimits, processors: int, clock: Clock, descriptors: int = UNLIMITED
    ) -> None:
        """``descriptors``: new connections must be below; the system assigns the lowest free number."""
        self._limits = limits
        self._descriptors = descriptors
        self._clock = clock
        self._log_limit = LogLimit(clock)
        self._lock = threading.Lock()
        self._rates: dict[str, Rate] = {}
        """The rates of new connections by listener; "" for all."""
        self._ip_rates = IpRates(limits.rate_windows, limits.rate_window_ms)
        self._by_listener: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()
        self._by_processor = [0] * processors
        self._last = 0

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the open connections of each listener, and those accepted so far."""
        with self._lock:
            return {name: (self._by_listener[name], count) for name, count in self._accepted.items()}

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Replace the limits, for new connections, except ``per_ip_overrides``."""
        with self._lock:
            self._limits = replace(limits, per_ip_overrides=self._limits.per_ip_overrides)

    def set_ip_rates(self, limits: Mapping[str, int]) -> None:
        """Replace the most new connections in a second from each address; DEFAULT_IP: from each other one."""
        with self._lock:
            self._ip_rates.limits = dict(limits)

    def throttle_ms(self, ip: str) -> int:
        """Count a new connection of an address for its rate. Return the time to keep it before it is closed.

        0: it may stay. As in Kafka the time is at most one window, and a connection that is closed does not
        count.
        """
        with self._lock:
            throttle_ms = self._ip_rates.throttle_ms(ip, self._clock.monotonic_ms())
        if throttle_ms:
            self._log_refusal(ip, "this address is above its quota connection_creation_rate")
        return throttle_ms

    def admit(self, ip: str, descriptor: int = 0, listener: str = "") -> int | None:
        """Count a new connection and return the processor with the fewest; None if a limit is reached.

        So no processor ever has more than its share of the total, rounded up.
        """
        with self._lock:
            refusal = self._refusal(ip, descriptor, listener)
            if refusal is not None:
                self._log_refusal(ip, refusal)
                return None
            count = len(self._by_processor)
            order = [(self._last + step) % count for step in range(1, count + 1)]
            self._last = min(order, key=self._by_processor.__getitem__)
            self._by_processor[self._last] += 1
            self._by_ip[ip] += 1
            self._by_listener[listener] += 1
            self._accepted[listener] += 1
            return self._last

    def pause_ms(self, listener: str) -> int:
        """Count a new connection of a listener for its rate. Return the time in which to accept no other one.

        As in Kafka the pause is at most one window.
        """
        limits, now_ms = self._limits, self._clock.monotonic_ms()
        measured = {listener: limits.creation_rates.get(listener, UNLIMITED)}
        if listener != limits.inter_broker_listener:
            measured[""] = limits.creation_rate
        longest_ms = 0
        with self._lock:
            for name, limit in measured.items():
                if limit == UNLIMITED:
                    continue
                rate = self._rates.get(name)
                if rate is None:
                    rate = self._rates[name] = Rate(limits.rate_windows, limits.rate_window_ms)
                rate.record(1, now_ms)
                longest_ms = max(longest_ms, rate.throttle_ms(limit, now_ms))
        if not longest_ms:
            return 0
        more = self._log_limit.admit(reason="rate")
        if more is not None:
            text = (
                "connections to listener %s come faster than max.connection.creation.rate: accepting slowly%s"
            )
            logger.warning(text, listener, more)
        return min(longest_ms, limits.rate_window_ms)

    def release(self, processor: int, ip: str, listener: str = "") -> None:
        """Stop counting a connection that has ended."""
        with self._lock:
            self._by_processor[processor] -= 1
            self._by_listener[listener] -= 1
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]

    def _refusal(self, ip: str, descriptor: int, listener: str) -> str | None:
        limits, count = self._limits, sum(self._by_processor)
        of_listener = limits.totals.get(listener, UNLIMITED)
        if self._by_listener[listener] >= of_listener:
            return (
                f"the limit of {of_listener} connections of listener {listener} is reached (max.connections)"
            )
        if count >= limits.total and (not listener or listener != limits.inter_broker_listener):
            return f"the limit of {limits.total} connections is reached (max.connections)"
        if descriptor >= self._descriptors and count >= MIN_CONNECTIONS:
            return (
                f"{self._descriptors} file descriptors are open, and the rest is reserved for logs, "
                "ZooKeeper and other brokers: raise the limit (ulimit -n), or set max.connections"
            )
        own = limits.per_ip_overrides.get(ip, limits.per_ip)
        if self._by_ip[ip] >= own:
            return f"the limit of {own} connections of this address is reached (max.connections.per.ip)"
        return None

    def _log_refusal(self, ip: str, refusal: str) -> None:
        more = self._log_limit.admit()
        if more is not None:
            logger.warning("refused a connection from %s: %s%s", ip, refusal, more)


PROTECTED_MS = 1_000
"""The time in which a client that is there, on a machine that is not overloaded, has authenticated."""

Item = TypeVar("Item", bound=Hashable)


class UnauthenticatedConnections(Generic[Item]):
    """The connections of one processor whose clients have not authenticated. Not thread-safe.

    Above ``limit`` of a listener one is surplus, so that connections that stay silent keep nobody out: the
    oldest of the host that has the most. Only if no host has more than that of the new connection, and its
    oldest is younger than ``PROTECTED_MS``, the new one is surplus: in a storm of clients some get through,
    where each would displace another.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._added_ms: dict[str, dict[str, dict[Item, int]]] = {}
        """The time at which each connection was added, by listener and host, the oldest first."""
        self._counts: Counter[str] = Counter()

    def add(self, listener: str, host: str, item: Item, now_ms: int) -> Item | None:
        """Count a connection. Return the one to close, which may be the new one; None if there is room."""
        hosts = self._added_ms.setdefault(listener, {})
        own = hosts.setdefault(host, {})
        own[item] = now_ms
        self._counts[listener] += 1
        if self._counts[listener] <= self._limit:
            return None
        most = max(map(len, hosts.values()))
        firsts = (next(iter(held.items())) for held in hosts.values() if len(held) == most)
        oldest, added_ms = min(firsts, key=lambda first: first[1])
        if len(own) < most or now_ms - added_ms >= PROTECTED_MS:
            return oldest
        return item

    def remove(self, listener: str, host: str, item: Item) -> None:
        """Stop counting a connection. A second call does nothing."""
        hosts = self._added_ms.get(listener, {})
        own = hosts.get(host, {})
        if own.pop(item, None) is not None:
            self._counts[listener] -= 1
            if not own:
                del hosts[host]
