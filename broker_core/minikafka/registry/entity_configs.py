"""The settings of topics, clients and brokers in ZooKeeper, changed with a notification, as in Kafka."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import CoordinationError, NodeExists, NoNode
from minikafka.registry import paths
from minikafka.registry.paths import ConfigChange, EntityConfig
from minikafka.registry.store import Store

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATES = (LEADER_RATE, FOLLOWER_RATE)
"""Settings of a broker: bytes a second that replication may use."""
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
"""Settings of a topic: the throttled replicas, as PARTITION:BROKER separated by commas, or * for all."""


def read_config(store: Store, kind: str, name: str) -> dict[str, str]:
    """Return the settings of entity ``name`` of type ``kind`` (one of ``paths.ENTITY_TYPES``)."""
    path = paths.config_path(kind, name)
    try:
        data, _ = store.read(path)
    except NoNode:
        return {}
    return dict(EntityConfig.from_json(data, path).config)


def write_config(store: Store, kind: str, name: str, config: Mapping[str, str]) -> None:
    """Replace all settings of ``name`` and notify the brokers."""
    path, data = paths.config_path(kind, name), EntityConfig(config).to_json()
    try:
        store.create(path, data, make_parents=True)
    except NodeExists:
        store.write(path, data)
    change = ConfigChange(kind, name).to_json()
    store.create(f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}", change, sequential=True)


def check_cluster(store: Store, connect: str) -> None:
    """Raise CoordinationError if no broker has ever registered in this ZooKeeper."""
    if store.exists(paths.CONFIG_CHANGES) is None:
        raise CoordinationError(f"no Kafka cluster in ZooKeeper at {connect}; correct the address or chroot")
