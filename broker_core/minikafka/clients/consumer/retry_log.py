"""What goes wrong again and again, as a broker that is dead, and is told once, then now and then, and when it
is over.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from minikafka.base.clock import Clock
from minikafka.base.errors import BrokerError, MinikafkaError

TELL_EVERY_MS = 30_000
"""How often it is told while it lasts. What was not met for so long has passed meanwhile."""

logger = logging.getLogger("minikafka.clients")


@dataclass(slots=True)
class _Trouble:
    kind: object
    since_ms: int
    told_ms: int
    met_ms: int
    times: int = 1


class RetryLog:
    """The troubles of one consumer's fetchers, each by where it is met. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Trouble] = {}

    def met(self, where: str, error: MinikafkaError, doing: str = "") -> None:
        """Warn of ``error``, unless one of its kind was told there a short time ago."""
        kind = error.code if isinstance(error, BrokerError) else type(error)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            one = self._known.get(where)
            if one is None or one.kind != kind or now_ms - one.met_ms > TELL_EVERY_MS:
                self._known[where] = _Trouble(kind, now_ms, now_ms, now_ms)
                lasts = ""
            else:
                one.met_ms, one.times = now_ms, one.times + 1
                if now_ms - one.told_ms < TELL_EVERY_MS:
                    return
                one.told_ms = now_ms
                lasts = f" ({one.times} times in {(now_ms - one.since_ms) // 1000} s; it is tried again)"
        logger.warning("%s: %s%s%s", where, doing, error, lasts)

    def over(self, where: str) -> None:
        """It goes well there: a warning if it was met more than once, so that who has read of it knows."""
        if where not in self._known:
            return
        with self._lock:
            one = self._known.pop(where, None)
        if one is not None:
            level = logging.WARNING if one.times > 1 else logging.INFO
            lasted_s = (self._clock.monotonic_ms() - one.since_ms) / 1000
            logger.log(level, "%s: it goes on, after %.1f s", where, lasted_s)
