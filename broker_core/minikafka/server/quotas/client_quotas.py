"""Byte rates of clients and their limits: how long they are to pause. Pure but for a mutex.

Kafka's own way of measuring: the bytes of the last ``quota.window.num`` windows of ``quota.window.size.
seconds``, of which the newest is not full, divided by their time, or by that of all but one window when there
are fewer; so a client may begin with a burst. Who is above its limit waits for as long as the bytes above it
take at the limit. Each client id has its rates and its limits:

    /config/clients/CLIENT         producer_byte_rate, consumer_byte_rate (bytes a second)
    /config/clients/<default>      for all ids that have none of their own
    quota.producer.default, quota.consumer.default      the broker's properties, where neither is there
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from minikafka.registry.paths import DEFAULT_ENTITY, client_of

_log = logging.getLogger(__name__)

UNLIMITED = 0x7FFFFFFFFFFFFFFF
_DIGITS_MAX = 100
_SPARE_RATES = 64
_LONGEST_MS = 0x7FFFFFFF
"""What the responses' field can hold: 24 days."""


class Flow(Enum):
    """What is limited; the value is Kafka's name of the setting."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """A broker's properties of quotas."""

    producer_default: int = UNLIMITED
    consumer_default: int = UNLIMITED
    windows: int = 11
    window_ms: int = 1000


@dataclass(slots=True)
class _Window:
    began_ms: int
    bytes: int = 0


class Rate:
    """Bytes a second of the last windows, as Kafka's ``Rate`` of sampled totals."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._count = windows
        self.window_ms = window_ms
        self._windows: deque[_Window] = deque(maxlen=windows)

    def record(self, count: int, now_ms: int) -> None:
        """``count`` bytes more."""
        if not self._windows or now_ms - self._windows[-1].began_ms >= self.window_ms:
            self._windows.append(_Window(now_ms))
        self._windows[-1].bytes += count

    def throttle_ms(self, limit: int, now_ms: int) -> int:
        """How long the bytes above ``limit`` a second would take at it; 0 when there are none. Above a
        limit of 0 it is a window, and again until all are over.
        """
        if self.idle(now_ms):
            return 0
        span_ms = self._span_ms(now_ms)
        over = sum(window.bytes for window in self._windows) - limit * span_ms / 1000
        if over <= 0:
            return 0
        return min(round(over / limit * 1000), _LONGEST_MS) if limit else self.window_ms

    def idle(self, now_ms: int) -> bool:
        """Whether nothing is left that counts."""
        while self._windows and now_ms - self._windows[0].began_ms >= self._count * self.window_ms:
            self._windows.popleft()
        return not self._windows

    @property
    def began_ms(self) -> int:
        """When the first window that counts began; to be asked where it is not ``idle``."""
        return self._windows[0].began_ms

    def _span_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - self.began_ms
        missing = max(0, self._count - 1 - elapsed_ms // self.window_ms)
        return max(1, elapsed_ms + missing * self.window_ms)


class Quotas:
    """The limits and rates of all clients. Thread-safe. Times are monotonic milliseconds."""

    def __init__(self, config: QuotaConfig) -> None:
        self._config = config
        self._defaults = {Flow.PRODUCE: config.producer_default, Flow.FETCH: config.consumer_default}
        self._limits: dict[str, dict[Flow, int]] = {}
        self._rates: dict[tuple[str, Flow], Rate] = {}
        self._purge_at = _SPARE_RATES
        self._lock = threading.Lock()
        self.limited = False
        """Whether anybody has a limit: where nobody has, nothing needs to be measured."""
        self._decide()

    def replace(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """These, by the names of their znodes, are all settings of clients."""
        with self._lock:
            self._limits = {client_of(name): _parsed(name, one) for name, one in settings.items()}
            self._decide()

    def change(self, name: str, settings: Mapping[str, str]) -> None:
        """One znode has other settings; none where it is gone."""
        limits = _parsed(name, settings)
        told = ", ".join(f"{flow.value}={limit}" for flow, limit in limits.items()) or "no limit of its own"
        _log.info("quota of clients/%s: %s", name, told)
        with self._lock:
            self._limits[client_of(name)] = limits
            self._decide()

    def record(self, client_id: str, flow: Flow, count: int, now_ms: int) -> int:
        """``count`` bytes of a client; for how many milliseconds it is to pause then."""
        with self._lock:
            limit = self._limit(client_id, flow)
            if limit == UNLIMITED:
                return 0
            rate = self._rates.get((client_id, flow))
            if rate is None:
                self._forget_idle(now_ms)
                rate = self._rates[client_id, flow] = Rate(self._config.windows, self._config.window_ms)
            rate.record(count, now_ms)
            return rate.throttle_ms(limit, now_ms)

    def _limit(self, client_id: str, flow: Flow) -> int:
        for name in (client_id, DEFAULT_ENTITY):
            limit = self._limits.get(name, {}).get(flow)
            if limit is not None:
                return limit
        return self._defaults[flow]

    def _forget_idle(self, now_ms: int) -> None:
        # Anybody can make up client ids.
        if len(self._rates) >= self._purge_at:
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.idle(now_ms)}
            self._purge_at = 2 * len(self._rates) + _SPARE_RATES

    def _decide(self) -> None:
        own = any(self._limits.values())
        self.limited = own or any(limit != UNLIMITED for limit in self._defaults.values())


def is_number(digits: str) -> bool:
    """Whether these are digits that Python reads: of thousands it makes no number, and raises."""
    return digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX


def _parsed(name: str, settings: Mapping[str, str]) -> dict[Flow, int]:
    limits: dict[Flow, int] = {}
    for key, text in settings.items():
        if key not in {flow.value for flow in Flow}:
            _log.warning("quota of clients/%s: this version does not act on %s", name, key)
            continue
        # Kafka 2.x writes what it parsed as a number with a fraction.
        digits = text.strip().removesuffix(".0")
        if not is_number(digits) or int(digits) == 0:
            _log.warning(
                "quota of clients/%s: %s=%s is no number of bytes above 0: left out", name, key, text
            )
            continue
        limits[Flow(key)] = min(int(digits), UNLIMITED)
    return limits
