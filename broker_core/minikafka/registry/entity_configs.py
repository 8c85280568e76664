"""The settings of topics, clients, users, brokers and addresses in ZooKeeper, changed with a notification."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from minikafka.base.config.types import ConfigType, Type, int32, int64
from minikafka.base.errors import BadVersion, CoordinationError, NoNode
from minikafka.registry import paths
from minikafka.registry.node import Node, dump
from minikafka.registry.store import Store
from minikafka.registry.znodes import Kind, make, read_or_raise

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATES = (LEADER_RATE, FOLLOWER_RATE)
"""Settings of a broker: bytes a second that replication may use."""
ALTER_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Setting of a broker: bytes a second that may be copied from one data directory to another."""
BROKER_RATES = (*RATES, ALTER_LOG_DIRS_RATE)
"""All settings of a broker."""
RATE = Type("bytes per second, at least 0", int64(0).convert, ConfigType.LONG)
_USER = re.compile(rf"[^/]+(/{paths.CLIENTS}/[^/]+)?")
CONNECTION_RATE = "connection_creation_rate"
"""The setting of an address: its new connections in a second."""
CONNECTION_RATE_TYPE = Type("connections per second, at least 0", int32(0).convert)
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
"""Settings of a topic: the throttled replicas, as PARTITION:BROKER separated by commas, or * for all."""


@dataclass(frozen=True, slots=True)
class EntityConfig:
    """The settings of one topic, client, user, broker or address."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Kafka's name of the setting -> value as text."""

    def to_json(self) -> bytes:
        """Return the data for ``topic_config_path(topic)``."""
        return dump({"version": 1, "config": dict(self.config)})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> EntityConfig:
        """Parse the settings in ``data``; none if there is no data."""
        if not data:
            return cls()
        node = Node(data, path)
        config = node.mapping("config")
        if not all(isinstance(value, str) for value in config.values()):
            raise node.error("config", "an object whose values are strings")
        return cls(config)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The notification that the settings of an entity have changed: versions 1 and 2 of the JSON."""

    entity_type: str
    """One of ``paths.ENTITY_TYPES``."""
    entity_name: str
    """A topic, client, user, broker or address; of a user also a client of it, ``alice/clients/app``."""

    def to_json(self) -> bytes:
        """Return the data for a new znode under ``CONFIG_CHANGES``, of version 2, which 0.10.1 writes."""
        return dump({"version": 2, "entity_path": f"{self.entity_type}/{self.entity_name}"})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> ConfigChange:
        """Parse the notification in ``data``."""
        node = Node(data, path)
        match node.integer("version"):
            case 1:
                key, change = "entity_type", cls(node.text("entity_type"), node.text("entity_name"))
            case 2:
                key, (entity_type, _, name) = "entity_path", node.text("entity_path").partition("/")
                change = cls(entity_type, name)
            case _:
                raise node.error("version", "1 or 2")
        if change.entity_type not in paths.ENTITY_TYPES or not change.entity_name:
            raise node.error(key, f"one of {', '.join(paths.ENTITY_TYPES)}, with a name")
        if change.entity_type == paths.USERS and _USER.fullmatch(change.entity_name) is None:
            raise node.error(key, f"users/NAME or users/NAME/{paths.CLIENTS}/ID")
        return change


ENTITY_CONFIG = Kind(
    "/config/TYPE/NAME",
    "the settings of an entity; a client's or user's name is encoded as in a URL, or <default>; "
    "/config/users/NAME/clients/ID has those of a client id of a user",
    "0.10.1 (version 1)",
    EntityConfig.from_json,
    EntityConfig.to_json,
    "brokers keep the settings that they read before, or use the defaults; set the settings anew, or fix the "
    "znode",
)
CONFIG_CHANGE = Kind(
    f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}N",
    "the entity whose settings have changed; sequential",
    "0.10.1 (version 2); 1 is read",
    ConfigChange.from_json,
    ConfigChange.to_json,
    "the notification is passed over; set the settings again if brokers do not use them",
)


def read_config(store: Store, kind: str, name: str) -> dict[str, str]:
    """Return the settings of entity ``name`` of type ``kind`` (one of ``paths.ENTITY_TYPES``), to be changed.

    Raises CoordinationError for an invalid znode, whose settings a change would destroy.
    """
    try:
        return dict(read_or_raise(store, paths.config_path(kind, name), ENTITY_CONFIG)[0].config)
    except NoNode:
        return {}


def write_config(store: Store, kind: str, name: str, config: Mapping[str, str]) -> None:
    """Replace all settings of ``name`` and notify the brokers."""
    path, data = paths.config_path(kind, name), EntityConfig(config).to_json()
    if not make(store, path, data):
        store.write(path, data)
    _notify(store, kind, name)


def change_config(
    store: Store, kind: str, name: str, change: Callable[[dict[str, str]], Mapping[str, str]]
) -> None:
    """Replace the settings of ``name`` by what ``change`` makes of them, and notify the brokers.

    ``change`` is called again when somebody else has changed the settings meanwhile, so that no change of
    either is lost. Raises CoordinationError for an invalid znode.
    """
    path = paths.config_path(kind, name)
    written = False
    while not written:
        try:
            held, stat = read_or_raise(store, path, ENTITY_CONFIG)
        except NoNode:
            written = make(store, path, EntityConfig(change({})).to_json())
            continue
        data = EntityConfig(change(dict(held.config))).to_json()
        with contextlib.suppress(BadVersion, NoNode):
            store.write(path, data, stat.version)
            written = True
    _notify(store, kind, name)


def _notify(store: Store, kind: str, name: str) -> None:
    change = ConfigChange(kind, name).to_json()
    prefix = f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}"
    store.create(prefix, change, sequential=True, make_parents=True)


def check_cluster(store: Store, connect: str) -> None:
    """Raise CoordinationError if no broker has ever registered in this ZooKeeper."""
    if store.exists(paths.CONFIG_CHANGES) is None:
        raise CoordinationError(f"no Kafka cluster in ZooKeeper at {connect}; correct the address or chroot")
