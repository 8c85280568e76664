"""Settings of topics, clients and brokers in ZooKeeper, changed as Kafka's tools do it: the news follow."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import CoordinationError, NodeExists, NoNode
from minikafka.registry import paths
from minikafka.registry.paths import ConfigChange, EntityConfig
from minikafka.registry.store import Store

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATES = (LEADER_RATE, FOLLOWER_RATE)
"""Of a broker: bytes a second that replication may take."""
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
"""Of a topic: which replicas have to keep to it, as PARTITION:BROKER with commas between, or * for all."""


def read_config(store: Store, kind: str, name: str) -> dict[str, str]:
    """The settings of ``kind`` (one of ``paths.ENTITY_TYPES``) that ``name`` has of its own."""
    path = paths.config_path(kind, name)
    try:
        data, _ = store.read(path)
    except NoNode:
        return {}
    return dict(EntityConfig.from_json(data, path).config)


def write_config(store: Store, kind: str, name: str, config: Mapping[str, str]) -> None:
    """These are all settings that ``name`` has from now on; every broker hears of it."""
    path, data = paths.config_path(kind, name), EntityConfig(config).to_json()
    try:
        store.create(path, data, make_parents=True)
    except NodeExists:
        store.write(path, data)
    news = ConfigChange(kind, name).to_json()
    store.create(f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}", news, sequential=True)


def check_cluster(store: Store, connect: str) -> None:
    """CoordinationError where brokers have never been: what is written there nobody would read."""
    if store.exists(paths.CONFIG_CHANGES) is None:
        raise CoordinationError(
            f"ZooKeeper at {connect} knows no Kafka cluster there; correct the address or chroot"
        )
