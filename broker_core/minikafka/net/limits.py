"""Who may connect: limits on connections, and which processor serves a new one."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from minikafka.base.clock import Clock

logger = logging.getLogger("minikafka.net")

UNLIMITED = 0x7FFFFFFF
COMPLAINT_EVERY_MS = 10_000
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


class Admission:
    """Counts connections by address and by processor. Thread-safe."""

    def __init__(self, limits: ConnectionLimits, processors: int, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._by_ip: Counter[str] = Counter()
        self._by_processor = [0] * processors
        self._last = 0
        self._complain_at_ms = clock.monotonic_ms()
        self._unmentioned = 0

    def admit(self, ip: str) -> int | None:
        """The processor with the fewest connections, which is to serve one more; None when there is no room.

        Because each new one goes where the fewest are, no processor ever has more than its share of the
        total, rounded up.
        """
        with self._lock:
            refusal = self._refusal(ip)
            if refusal is not None:
                self._complain(ip, refusal)
                return None
            count = len(self._by_processor)
            order = [(self._last + step) % count for step in range(1, count + 1)]
            self._last = min(order, key=self._by_processor.__getitem__)
            self._by_processor[self._last] += 1
            self._by_ip[ip] += 1
            return self._last

    def leave(self, processor: int, ip: str) -> None:
        """A connection that was admitted has ended."""
        with self._lock:
            self._by_processor[processor] -= 1
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]

    def _refusal(self, ip: str) -> str | None:
        limits = self._limits
        if sum(self._by_processor) >= limits.total:
            return f"there are {limits.total} connections (max.connections)"
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
        self._complain_at_ms, self._unmentioned = now_ms + COMPLAINT_EVERY_MS, 0
