"""Connection quotas: limits on connections, and the choice of a processor for a new one."""

from __future__ import annotations

import logging
import resource
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from minikafka.base.clock import Clock
from minikafka.base.config.config_def import setting
from minikafka.base.config.types import int32, text_type, whole_number

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
    """Limits of concurrent connections, over all listeners.

    Kafka's names: ``max.connections`` (from 2.4 on; each of the N processors gets at most an N-th of it, the
    texts' "fixed number of connections each"), ``max.connections.per.ip`` and its ``.overrides``.
    """

    total: int = setting("max.connections", int32(1), UNLIMITED, "The most connections of this broker.")
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


def descriptors_for_connections() -> int:
    """Return the number of descriptors that connections may use."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return UNLIMITED
    return limit - min(RESERVED_DESCRIPTORS, limit // 4)


class ConnectionQuotas:
    """Counts connections by address and by processor. Thread-safe."""

    def __init__(
        self, limits: ConnectionLimits, processors: int, clock: Clock, descriptors: int = UNLIMITED
    ) -> None:
        """``descriptors``: new connections must be below; the system assigns the lowest free number."""
        self._limits = limits
        self._descriptors = descriptors
        self._clock = clock
        self._lock = threading.Lock()
        self._by_ip: Counter[str] = Counter()
        self._by_processor = [0] * processors
        self._last = 0
        self._next_log_ms = clock.monotonic_ms()
        self._suppressed = 0

    def admit(self, ip: str, descriptor: int = 0) -> int | None:
        """Count a new connection and return the processor with the fewest; None if a limit is reached.

        So no processor ever has more than its share of the total, rounded up.
        """
        with self._lock:
            refusal = self._refusal(ip, descriptor)
            if refusal is not None:
                self._log_refusal(ip, refusal)
                return None
            count = len(self._by_processor)
            order = [(self._last + step) % count for step in range(1, count + 1)]
            self._last = min(order, key=self._by_processor.__getitem__)
            self._by_processor[self._last] += 1
            self._by_ip[ip] += 1
            return self._last

    def release(self, processor: int, ip: str) -> None:
        """Stop counting a connection that has ended."""
        with self._lock:
            self._by_processor[processor] -= 1
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]

    def _refusal(self, ip: str, descriptor: int) -> str | None:
        limits, count = self._limits, sum(self._by_processor)
        if count >= limits.total:
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
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_log_ms:
            self._suppressed += 1
            return
        more = f"; {self._suppressed} more since the last message" if self._suppressed else ""
        logger.warning("refused a connection from %s: %s%s", ip, refusal, more)
        self._next_log_ms, self._suppressed = now_ms + REFUSAL_LOG_INTERVAL_MS, 0
