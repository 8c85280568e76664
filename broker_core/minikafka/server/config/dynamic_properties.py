"""The properties of a broker that can be changed while it runs (KIP-226). Pure except for a mutex.

    /config/brokers/ID          those of one broker
    /config/brokers/<default>   those of all brokers that have none of their own

They win over the properties that the broker was started with. These are dynamic: the defaults of topics'
settings, by their first names (``log.retention.ms``, not ``log.retention.hours``), the limits of connections,
of the broker and of its listeners, the settings of the log cleaner, and ``slow.request.ms``. Replication
rates are in the same znodes (``server.quotas.replication_quotas``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from minikafka.base.config.config_def import Faults, definition_of
from minikafka.base.errors import ConfigError
from minikafka.log.config import TOPIC_CONFIG, LogConfig
from minikafka.net.connection_quotas import ConnectionLimits
from minikafka.server.config.event_log import EventLogConfig
from minikafka.server.config.listener_security import limits_of
from minikafka.server.config.properties import BrokerConfig, CleanerConfig

_log = logging.getLogger(__name__)

Settings = Mapping[str, str]
Section = TypeVar("Section")

_OF_LISTENERS = ("max.connections", "max.connection.creation.rate")
_OF_CONNECTIONS = frozenset({*_OF_LISTENERS, "max.connections.per.ip"})
_SLOW_REQUEST = "slow.request.ms"
_OF_CLEANER = frozenset(definition_of(CleanerConfig).keys) - {"log.cleaner.enable"}
_OF_LOGS = frozenset(key.synonyms[0].name for key in TOPIC_CONFIG.keys.values() if key.synonyms) - {
    "log.message.format.version"
}


def _read(section: type[Section], properties: Settings) -> Section:
    faults = Faults()
    config = section(**faults.take(definition_of(section).read(properties)))
    faults.check()
    return config


class DynamicProperties:
    """The properties of a running broker: those of its start, of the cluster and of its own. Thread-safe."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.cluster: Settings = {}
        """The valid ones of ``/config/brokers/<default>``, as last read."""
        self.own: Settings = {}
        """The valid ones of this broker, as last read."""
        self._names = _OF_LOGS | _OF_CONNECTIONS | _OF_CLEANER | {_SLOW_REQUEST}
        self._names |= {
            f"listener.name.{listener.name.lower()}.{name}"
            for listener in config.listeners
            for name in _OF_LISTENERS
        }
        self._lock = threading.Lock()
        self._followers: list[Callable[[DynamicProperties], None]] = []

    def is_dynamic(self, name: str) -> bool:
        """Return True if a property can be changed."""
        return name in self._names

    @property
    def effective(self) -> Settings:
        """The properties in force."""
        return {**self.config.properties, **self.cluster, **self.own}

    @property
    def connection_limits(self) -> ConnectionLimits:
        """The limits of connections in force."""
        return self._limits(self.effective)

    @property
    def cleaner(self) -> CleanerConfig:
        """The settings of the log cleaner in force."""
        return _read(CleanerConfig, self.effective)

    @property
    def slow_request_ms(self) -> int:
        """The time from which a request is slow, in force."""
        return _read(EventLogConfig, self.effective).slow_request_ms

    def check(self, name: str, text: str) -> None:
        """Raise ConfigErrors for an invalid value of a dynamic property."""
        _read(EventLogConfig, {name: text})
        self._log_config({name: text})
        self._limits({name: text})
        _read(CleanerConfig, {name: text})

    def attach(self, follower: Callable[[DynamicProperties], None]) -> None:
        """Call ``follower`` with these properties after each change; now, if any property is set."""
        with self._lock:
            self._followers.append(follower)
            if self.cluster or self.own:
                follower(self)

    def replace(self, cluster: Settings, own: Settings) -> LogConfig:
        """Replace the properties; return the defaults of topics."""
        cluster, own = self._valid("the cluster", cluster), self._valid("this broker", own)
        with self._lock:
            is_changed = (cluster, own) != (self.cluster, self.own)
            if is_changed:
                self.cluster, self.own = cluster, own
                for follower in self._followers:
                    follower(self)
        if is_changed:
            changed = {name: self.effective[name] for name in sorted(cluster | own)}
            _log.info("properties changed while running: %s", changed or "none")
        return self._log_config(self.effective)

    def _valid(self, whose: str, settings: Settings) -> dict[str, str]:
        found = {}
        for name, text in settings.items():
            if self.is_dynamic(name):
                try:
                    self.check(name, text)
                    found[name] = text
                except ConfigError as error:
                    _log.warning("properties of %s in ZooKeeper: ignored %s", whose, error)
        return found

    def _log_config(self, properties: Settings) -> LogConfig:
        made = LogConfig.from_properties(properties)
        return replace(made, message_magic=self.config.log.message_magic)

    def _limits(self, properties: Settings) -> ConnectionLimits:
        config = self.config
        return limits_of(config.listeners, properties, config.inter_broker.listener, config.quotas)
