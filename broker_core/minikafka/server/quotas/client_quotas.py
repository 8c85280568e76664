"""Quotas of clients: their byte rates, limits and pauses. Pure except for a mutex.

Measured as in Kafka: the bytes of the last ``quota.window.num`` windows of ``quota.window.size.seconds``, of
which the newest is not full, divided by their time, or by the time of all but one window when there are
fewer; so a client may start with a burst. A client above its limit is paused for as long as the excess bytes
take at the limit.

A quota is a limit of one direction, and the first of these that has one holds for a client. Those that use
it share it, as the second column says: their bytes are counted together.

    /config/users/USER/clients/ID               the clients of this user with this id
    /config/users/USER/clients/<default>        likewise
    /config/users/USER                          all clients of this user
    /config/users/<default>/clients/ID          the clients of one user with this id
    /config/users/<default>/clients/<default>   likewise
    /config/users/<default>                     all clients of one user
    /config/clients/ID                          the clients with this id, of any user
    /config/clients/<default>                   likewise
    quota.producer.default, quota.consumer.default (the broker's properties)    likewise

The user is the name of the principal; without authentication that is ANONYMOUS. Kafka's third quota,
``request_percentage`` (KIP-124), is not supported.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import LONG_MAX, int32, int64
from minikafka.base.errors import ConfigError
from minikafka.base.rate import Rate
from minikafka.registry.entity_configs import QUOTA
from minikafka.registry.users import DEFAULT_ENTITY, ClientEntity, sanitize
from minikafka.security.sasl.scram import ScramMechanism

_log = logging.getLogger(__name__)

UNLIMITED = LONG_MAX
_CREDENTIALS = frozenset(mechanism.value for mechanism in ScramMechanism)
"""Configs of a user that are no quotas."""
_SPARE_RATES = 64


class QuotaType(Enum):
    """The direction that a quota limits; the value is Kafka's name of the config."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"


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
    window_ms: int = setting(
        "quota.window.size.seconds",
        int32(1).then(lambda seconds: 1000 * seconds),
        1,
        "The length of a window.",
    )


class ClientQuotaManager:
    """The limits and rates of all clients. Thread-safe. Times are monotonic milliseconds."""

    def __init__(self, config: QuotaConfig) -> None:
        self._config = config
        self._defaults = {
            QuotaType.PRODUCE: config.producer_default,
            QuotaType.FETCH: config.consumer_default,
        }
        self._limits: dict[ClientEntity, dict[QuotaType, int]] = {}
        self._rates: dict[tuple[ClientEntity, QuotaType], Rate] = {}
        """The rates of those who share a quota: their user, their client id, or both."""
        self._problems: dict[ClientEntity, list[str]] = {}
        """The problems of configs that were logged, so that each is logged once."""
        self._purge_at = _SPARE_RATES
        self._lock = threading.Lock()
        self.limited = False
        """True if any client has a limit; otherwise nothing needs to be measured."""
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
        text = ", ".join(f"{flow.value}={limit}" for flow, limit in limits.items()) or "no limit of its own"
        _log.info("quota of %s: %s", entity, text)
        with self._lock:
            self._limits[entity] = limits
            if not limits:
                del self._limits[entity]
            self._decide()

    def record(self, user: str, client_id: str, flow: QuotaType, count: int, now_ms: int) -> int:
        """Add ``count`` bytes of a user's client; return its pause in milliseconds."""
        with self._lock:
            limit, sharing = self._quota(user, client_id, flow)
            if limit == UNLIMITED:
                return 0
            rate = self._rates.get((sharing, flow))
            if rate is None:
                self._forget_idle(now_ms)
                rate = self._rates[sharing, flow] = Rate(self._config.windows, self._config.window_ms)
            rate.record(count, now_ms)
            return rate.throttle_ms(limit, now_ms)

    def _quota(self, user: str, client_id: str, flow: QuotaType) -> tuple[int, ClientEntity]:
        """Return the limit that holds, and those who share it."""
        levels = precedence(user, client_id)
        for entity, sharing in levels:
            limit = self._limits.get(entity, {}).get(flow)
            if limit is not None:
                return limit, sharing
        return self._defaults[flow], levels[-1][1]

    def _forget_idle(self, now_ms: int) -> None:
        # Clients can use any number of ids.
        if len(self._rates) >= self._purge_at:
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.idle(now_ms)}
            self._purge_at = 2 * len(self._rates) + _SPARE_RATES

    def _decide(self) -> None:
        self.limited = bool(self._limits) or any(limit != UNLIMITED for limit in self._defaults.values())

    def _parsed(self, entity: ClientEntity, settings: Mapping[str, str]) -> dict[QuotaType, int]:
        limits: dict[QuotaType, int] = {}
        problems = []
        for key, text in settings.items():
            if key in _CREDENTIALS and entity.user_name is not None:
                continue
            if key not in {flow.value for flow in QuotaType}:
                problems.append(f"unsupported config {key}")
                continue
            try:
                limits[QuotaType(key)] = QUOTA.parse(key, text)
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
    own, client = sanitize(user), sanitize(client_id)
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
