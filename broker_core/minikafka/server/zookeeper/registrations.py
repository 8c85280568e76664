"""The live brokers in ``/brokers/ids``, and this broker's own registration.

For the jobs of the worker: every method can be run twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from minikafka.base.clock import Clock
from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import ConfigError, CoordinationError, NodeExists, NoNode
from minikafka.registry import paths
from minikafka.registry.brokers import BROKER, BrokerRegistration, read_registrations
from minikafka.registry.store import Store

_log = logging.getLogger(__name__)


class Registrations:
    """Reads the brokers' registrations, and writes this broker's."""

    def __init__(self, store: Store, clock: Clock, end_own: Callable[[int], bool]) -> None:
        """``end_own`` ends a session if it is an earlier one of this broker, and returns True if it did."""
        self._end_own = end_own
        self._store = store
        self._clock = clock
        self._own: BrokerRegistration | None = None
        self._registered_in: int | None = None
        self.registered_at: dict[int, int] = {}
        """The zxids of the registrations that were read last, by broker id."""

    @property
    def is_current(self) -> bool:
        """Return True if this broker is registered in the current session."""
        return self._registered_in == self._store.session_id

    def register(self, own: BrokerRegistration) -> None:
        """Register this broker as ``own``, as of now. Raises ConfigError if another broker has its id."""
        self._own = own
        path = paths.broker_path(own.broker.broker_id)
        try:
            self._store.create(path, self._value(own), ephemeral=True)
        except NodeExists:
            try:
                data, stat = self._store.read(path)
            except NoNode:  # it was of an earlier session of this broker, which has just ended
                self.register(own)
                return
            if stat.ephemeral_owner != self._store.session_id:
                if self._end_own(stat.ephemeral_owner):
                    self.register(own)
                    return
                raise ConfigError(
                    "broker.id",
                    own.broker.broker_id,
                    f"is already registered by {_holder(data, path)}; configure another id, or stop that "
                    "broker (if it was killed, its registration ends when its ZooKeeper session times out)",
                ) from None
        self._registered_in = self._store.session_id

    def forget(self) -> None:
        """Record that the registration is lost."""
        self._registered_in = None

    def mend(self) -> None:
        """Rewrite this broker's registration if another process made it invalid: others could not find it."""
        if self._own is None or not self.is_current:
            return
        path = paths.broker_path(self._own.broker.broker_id)
        try:
            data, stat = self._store.read(path)
        except NoNode:
            return
        try:
            BROKER.decode(data, path)
        except CoordinationError as error:
            if stat.ephemeral_owner == self._store.session_id:
                _log.error("rewriting an invalid znode: %s", error)
                self._store.write(path, self._value(self._own))

    def read(self) -> tuple[dict[int, LiveBroker], dict[int, int]]:
        """Return the live brokers, and the sessions that registered them.

        A broker without an endpoint that can be parsed is left out: no other broker could reach it.
        """
        brokers: dict[int, LiveBroker] = {}
        sessions: dict[int, int] = {}
        self.registered_at.clear()
        self.mend()
        for broker_id, (registration, stat) in read_registrations(self._store).items():
            if registration.broker.endpoints:
                brokers[broker_id] = registration.broker
                sessions[broker_id] = stat.ephemeral_owner
                self.registered_at[broker_id] = stat.created_at
        return brokers, sessions

    def _value(self, own: BrokerRegistration) -> bytes:
        return replace(own, timestamp_ms=self._clock.now_ms()).to_json()


def _holder(data: bytes, path: str) -> str:
    try:
        return str(BROKER.decode(data, path).broker)
    except CoordinationError as error:
        return f"an unknown broker: {error}"
