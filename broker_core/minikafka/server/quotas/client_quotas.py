"""Quotas of clients: their rates, limits and pauses. Pure except for a mutex.

Measured as in Kafka: the bytes, or the time, of the last ``quota.window.num`` windows of
``quota.window.size.seconds``, of which the newest is not full, divided by their time, or by the time of all
but one window when there are fewer; so a client may start with a burst. A client above its limit is paused
for as long as the excess takes at the limit; for the time of its requests (``request_percentage``, KIP-124)
by a window at most. Partitions that are created and deleted (``controller_mutation_rate``, KIP-599) use
tokens, of which there are at most those of ``controller.quota.window.num`` windows.

A quota is a limit of one type (``QuotaType``), and the first of these that has one holds for a client. Those
that use it share it, as the second column says: what they do is counted together.

    /config/users/USER/clients/ID               the clients of this user with this id
    /config/users/USER/clients/<default>        likewise
    /config/users/USER                          all clients of this user
    /config/users/<default>/clients/ID          the clients of one user with this id
    /config/users/<default>/clients/<default>   likewise
    /config/users/<default>                     all clients of one user
    /config/clients/ID                          the clients with this id, of any user
    /config/clients/<default>                   likewise
    quota.producer.default, quota.consumer.default (the broker's properties)    likewise

The user is the name of the principal; without authentication that is ANONYMOUS.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import LONG_MAX, int32, int64, seconds
from minikafka.base.errors import ConfigError
from minikafka.base.rate import Rate, TokenBucket
from minikafka.registry.users import DEFAULT_ENTITY, ClientEntity, QuotaType, sanitize
from minikafka.security.sasl.scram import ScramMechanism

_log = logging.getLogger(__name__)

UNLIMITED = LONG_MAX
_CREDENTIALS = frozenset(mechanism.value for mechanism in ScramMechanism)
"""Configs of a user that are no quotas."""
_SPARE_RATES = 64


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """The broker's properties of quotas."""

    producer_default: int = setting(
        "quota.producer.default",
        int64(1),
        UNLIMITED,
        "Bytes a second of a client that has no quota of its own.",
    )
    consumer_default: int = setting(
        "quota.consumer.default",
        int64(1),
        UNLIMITED,
        "Bytes a second of a client that has no quota of its own.",
    )
    windows: int = setting(
        "quota.window.num", int32(1), 11, "Windows over which a client's rate is measured."
    )
    window_ms: int = setting("quota.window.size.seconds", seconds(int32(1)), 1, "The length of a window.")
    controller_windows: int = setting(
        "controller.quota.window.num",
        int32(1),
        11,
        "Windows whose changes of partitions a client may make at once.",
    )
    controller_window_ms: int = setting(
        "controller.quota.window.size.seconds", seconds(int32(1)), 1, "The length of such a window."
    )


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """The use of one quota by those who share it."""

    entity: ClientEntity
    quota: QuotaType
    per_second: float
    """Bytes, or for REQUEST hundredths of a second."""
    limit: float
    pause_ms: int
    """The pause that a request gets now."""


class ClientQuotaManager:
    """The limits and rates of all clients. Thread-safe. Times are monotonic milliseconds."""

    def __init__(self, config: QuotaConfig) -> None:
        self._config = config
        self._defaults = {
            QuotaType.PRODUCE: config.producer_default,
            QuotaType.FETCH: config.consumer_default,
        }
        self._limits: dict[ClientEntity, dict[QuotaType, float]] = {}
        self._rates: dict[tuple[ClientEntity, QuotaType], Rate] = {}
        """The rates of those who share a quota: their user, their client id, or both."""
        self._mutations: dict[ClientEntity, TokenBucket] = {}
        """Likewise for CONTROLLER_MUTATION."""
        self._problems: dict[ClientEntity, list[str]] = {}
        """The problems of configs that were logged, so that each is logged once."""
        self._purge_at = _SPARE_RATES
        self._lock = threading.Lock()
        self.limited: frozenset[QuotaType] = frozenset()
        """The types of which any client has a limit; nothing else needs to be measured."""
        self._decide()

    def replace(self, settings: Mapping[ClientEntity, Mapping[str, str]]) -> None:
        """Replace the configs of all clients and users."""
        limits = {entity: self._parsed(entity, configs) for entity, configs in settings.items()}
        with self._lock:
            self._limits = {entity: own for entity, own in limits.items() if own}
            self._decide()

    def change(self, entity: ClientEntity, settings: Mapping[str, str]) -> None:
        """Replace the configs of one client or user; empty if they were deleted."""
        limits = self._parsed(entity, settings)
        if limits == self._limits.get(entity, {}):
            return
        text = ", ".join(f"{quota.value}={limit}" for quota, limit in limits.items()) or "no limit of its own"
        _log.info("quota of %s: %s", entity, text)
        with self._lock:
            self._limits[entity] = limits
            if not limits:
                del self._limits[entity]
            self._decide()

    def record(self, user: str, client_id: str, quota: QuotaType, count: float, now_ms: int) -> int:
        """Add ``count`` of a user's client; return its pause in milliseconds.

        ``count`` is in bytes, or for REQUEST in hundredths of a second. A negative one takes back what was
        added.
        """
        with self._lock:
            limit, sharing = self._quota(user, client_id, quota)
            if limit == UNLIMITED:
                return 0
            rate = self._rates.get((sharing, quota))
            if rate is None:
                self._forget_idle(now_ms)
                rate = self._rates[sharing, quota] = Rate(self._config.windows, self._config.window_ms)
            rate.record(count, now_ms)
            return self._pause_ms(rate, quota, limit, now_ms)

    def usages(self, now_ms: int, wants: Callable[[ClientEntity], bool]) -> list[QuotaUsage]:
        """Return the use of each quota of bytes or time that was used lately, by those who are wanted.

        The mutex is held for one of them at a time, so that requests do not wait.
        """
        with self._lock:
            rates = list(self._rates.items())
        found = []
        for (entity, quota), rate in rates:
            if wants(entity):
                with self._lock:
                    limit = self._shared_limit(entity, quota)
                    if limit != UNLIMITED and not rate.idle(now_ms):
                        pause_ms = self._pause_ms(rate, quota, limit, now_ms)
                        found.append(QuotaUsage(entity, quota, rate.per_second(now_ms), limit, pause_ms))
        return found

    def record_mutations(
        self, user: str, client_id: str, count: int, now_ms: int, *, strict: bool
    ) -> tuple[int, bool]:
        """Add ``count`` partitions that a user's client creates or deletes.

        Return its pause in milliseconds, and whether they may be changed. With ``strict`` they may not, and
        are not added, while the client must pause.
        """
        with self._lock:
            limit, sharing = self._quota(user, client_id, QuotaType.CONTROLLER_MUTATION)
            if limit == UNLIMITED:
                return 0, True
            bucket = self._mutations.get(sharing)
            if bucket is None:
                self._forget_idle(now_ms)
                burst_ms = self._config.controller_windows * self._config.controller_window_ms
                bucket = self._mutations[sharing] = TokenBucket(limit, burst_ms)
            bucket.set_limit(limit, now_ms)
            if strict:
                pause_ms = bucket.throttle_ms(now_ms)
                if pause_ms:
                    return pause_ms, False
            bucket.record(count, now_ms)
            return (0 if strict else bucket.throttle_ms(now_ms)), True

    def window_bytes(self, user: str, client_id: str) -> int:
        """Return the bytes that a fetch response may have without exceeding the limit of all windows."""
        limit, _ = self._quota(user, client_id, QuotaType.FETCH)
        spans = max(1, self._config.windows - 1) * self._config.window_ms
        return UNLIMITED if limit == UNLIMITED else int(limit * spans / 1000)

    def _quota(self, user: str, client_id: str, quota: QuotaType) -> tuple[float, ClientEntity]:
        """Return the limit that holds, and those who share it."""
        levels = precedence(user, client_id)
        for entity, sharing in levels:
            limit = self._limits.get(entity, {}).get(quota)
            if limit is not None:
                return limit, sharing
        return self._defaults.get(quota, UNLIMITED), levels[-1][1]

    def _shared_limit(self, sharing: ClientEntity, quota: QuotaType) -> float:
        """Return the limit that holds for those who share a quota."""
        for entity, shared in _levels(*sharing):
            limit = self._limits.get(entity, {}).get(quota)
            if shared == sharing and limit is not None:
                return limit
        return self._defaults.get(quota, UNLIMITED) if sharing.user is None else UNLIMITED

    def _pause_ms(self, rate: Rate, quota: QuotaType, limit: float, now_ms: int) -> int:
        pause_ms = rate.throttle_ms(limit, now_ms)
        return min(pause_ms, self._config.window_ms) if quota is QuotaType.REQUEST else pause_ms

    def _forget_idle(self, now_ms: int) -> None:
        # Clients can use any number of ids.
        if len(self._rates) + len(self._mutations) >= self._purge_at:
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.idle(now_ms)}
            self._mutations = {key: rate for key, rate in self._mutations.items() if not rate.idle(now_ms)}
            self._purge_at = 2 * (len(self._rates) + len(self._mutations)) + _SPARE_RATES

    def _decide(self) -> None:
        found = {quota for own in self._limits.values() for quota in own}
        found.update(quota for quota, limit in self._defaults.items() if limit != UNLIMITED)
        self.limited = frozenset(found)

    def _parsed(self, entity: ClientEntity, settings: Mapping[str, str]) -> dict[QuotaType, float]:
        limits: dict[QuotaType, float] = {}
        problems = []
        for key, text in settings.items():
            if key in _CREDENTIALS and entity.user_name is not None:
                continue
            if key not in {quota.value for quota in QuotaType}:
                problems.append(f"unsupported config {key}")
                continue
            try:
                limits[QuotaType(key)] = QuotaType(key).type.parse(key, text)
            except ConfigError as error:
                problems.append(str(error))
        before = self._problems.pop(entity, [])
        if problems:
            self._problems[entity] = problems
        for problem in problems:
            if problem not in before:
                _log.warning("quota of %s: ignored %s", entity, problem)
        return limits


@lru_cache(256)  # the names may be long; a client sends one request after the other
def precedence(user: str, client_id: str) -> tuple[tuple[ClientEntity, ClientEntity], ...]:
    """Return the entities whose quotas may hold for a client, the one that wins first, each with those who
    share its quota.
    """
    return _levels(sanitize(user), sanitize(client_id))


def _levels(own: str | None, client: str | None) -> tuple[tuple[ClientEntity, ClientEntity], ...]:
    both, of_user, of_client = ClientEntity(own, client), ClientEntity(own, None), ClientEntity(None, client)
    return (
        (both, both),
        (ClientEntity(own, DEFAULT_ENTITY), both),
        (of_user, of_user),
        (ClientEntity(DEFAULT_ENTITY, client), both),
        (ClientEntity(DEFAULT_ENTITY, DEFAULT_ENTITY), both),
        (ClientEntity(DEFAULT_ENTITY, None), of_user),
        (of_client, of_client),
        (ClientEntity(None, DEFAULT_ENTITY), of_client),
    )
