"""Settings of topics and clients in ZooKeeper, changed as Kafka's own tools do it: then the news follow."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import CoordinationError, NodeExists, NoNode
from minikafka.registry import paths
from minikafka.registry.paths import ConfigChange, EntityConfig
from minikafka.registry.store import Store


def read_config(store: Store, kind: str, name: str) -> dict[str, str]:
    """The settings of ``kind`` (``paths.TOPICS``, ``paths.CLIENTS``) that ``name`` has of its own."""
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
