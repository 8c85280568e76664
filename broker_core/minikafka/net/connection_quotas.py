"""Who may connect: limits on connections, and which processor serves a new one."""

from __future__ import annotations

import logging
import resource
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from minikafka.base.clock import Clock

logger = logging.getLogger("minikafka.net")

UNLIMITED = 0x7FFFFFFF
RESERVED_DESCRIPTORS = 1_024
"""Of the process's descriptors, how many connections leave to logs, ZooKeeper and other brokers, or a quarter
of all where that is less: a log that can open no new segment takes no messages.
"""
MIN_CONNECTIONS = 64
"""Connections that are served also where the logs themselves need most descriptors."""
REFUSAL_LOG_INTERVAL_MS = 10_000
"""How often refusals are logged: whoever is refused usually tries again at once."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be at a time, through all listeners together.

    Kafka's names: ``max.connections`` (from 2.4 on; each of the N processors gets at most an N-th of it, the
    texts' "fixed number of connections each"), ``max.connections.per.ip`` and its ``.overrides``.
    """

    total: int = UNLIMITED
    per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """Address -> its limit, in place of ``per_ip``."""


def descriptors_for_connections() -> int:
    """Below which descriptor connections are served."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return UNLIMITED
    return limit - min(RESERVED_DESCRIPTORS, limit // 4)


class ConnectionQuotas:
    """Counts connections by address and by processor. Thread-safe."""

    def __init__(
        self, limits: ConnectionLimits, processors: int, clock: Clock, descriptors: int = UNLIMITED
    ) -> None:
        """``descriptors``: connections have only those below; the system gives the lowest that is free."""
        self._limits = limits
        self._descriptors = descriptors
        self._clock = clock
        self._lock = threading.Lock()
        self._by_ip: Counter[str] = Counter()
        self._by_processor = [0] * processors
        self._last = 0
        self._complain_at_ms = clock.monotonic_ms()
        self._unmentioned = 0

    def admit(self, ip: str, descriptor: int = 0) -> int | None:
        """The processor with the fewest connections, which is to serve one more; None when there is no room.

        Because each new one goes where the fewest are, no processor ever has more than its share of the
        total, rounded up.
        """
        with self._lock:
            refusal = self._refusal(ip, descriptor)
            if refusal is not None:
                self._complain(ip, refusal)
                return None
            count = len(self._by_processor)
            order = [(self._last + step) % count for step in range(1, count + 1)]
            self._last = min(order, key=self._by_processor.__getitem__)
            self._by_processor[self._last] += 1
            self._by_ip[ip] += 1
            return self._last

    def release(self, processor: int, ip: str) -> None:
        """A connection that was admitted has ended."""
        with self._lock:
            self._by_processor[processor] -= 1
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]

    def _refusal(self, ip: str, descriptor: int) -> str | None:
        limits, count = self._limits, sum(self._by_processor)
        if count >= limits.total:
            return f"there are {limits.total} connections (max.connections)"
        if descriptor >= self._descriptors and count >= MIN_CONNECTIONS:
            return (
                f"{self._descriptors} files and connections are open, and what is left is kept for logs, "
                f"ZooKeeper and other brokers: raise the limit (ulimit -n), or set max.connections"
            )
        own = limits.per_ip_overrides.get(ip, limits.per_ip)
        if self._by_ip[ip] >= own:
            return f"this address has {own} connections (max.connections.per.ip)"
        return None

    def _complain(self, ip: str, refusal: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._complain_at_ms:
            self._unmentioned += 1
            return
        more = f"; {self._unmentioned} more were refused before" if self._unmentioned else ""
        logger.warning("a connection from %s is refused: %s%s", ip, refusal, more)
        self._complain_at_ms, self._unmentioned = now_ms + REFUSAL_LOG_INTERVAL_MS, 0
