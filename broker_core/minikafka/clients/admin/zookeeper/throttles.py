"""A reassignment's throttle, as ``kafka-reassign-partitions`` of 0.10.1 sets it and takes it away.

    /config/brokers/ID      both rates, of every broker that has a partition of the topics, or is to have one
    /config/topics/TOPIC    as leaders, the replicas that the moving partitions have; as followers, those that
                            they get

Nobody but whoever asked takes it away: the controller knows nothing of it. Each of these can be run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from minikafka.base.errors import NoNode
from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.clients.zookeeper_metadata import Replicas
from minikafka.registry import paths
from minikafka.registry.entity_configs import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATES,
    REPLICAS,
    read_config,
    write_config,
)
from minikafka.registry.store import Store

Settings = dict[str, str]


def set_rates(store: Store, wanted: Replicas, bytes_per_second: int) -> list[int]:
    """Give the rate to all brokers that a reassignment may concern; returns them. Others keep theirs."""
    topics = {one.topic for one in wanted}
    brokers = {one for replicas in zookeeper_metadata.assigned(store, topics).values() for one in replicas}
    brokers |= {one for replicas in wanted.values() for one in replicas}
    rates = dict.fromkeys(RATES, str(bytes_per_second))
    _change(store, paths.BROKERS, map(str, sorted(brokers)), lambda name, held: {**held, **rates})
    return sorted(brokers)


def set_throttled_replicas(store: Store, before: Replicas, after: Replicas) -> None:
    """The replicas that copy for this move, and those that they may copy from, keep to the rates."""
    lists: dict[str, Settings] = {}
    for topic in {one.topic for one in after}:
        leaders: list[str] = []
        followers: list[str] = []
        for one in sorted(found for found in after if found.topic == topic):
            added = [broker_id for broker_id in after[one] if broker_id not in before[one]]
            followers += _named(one, added)
            leaders += _named(one, before[one]) if added else []
        if followers:
            lists[topic] = {LEADER_REPLICAS: ",".join(leaders), FOLLOWER_REPLICAS: ",".join(followers)}
    _change(store, paths.TOPICS, sorted(lists), lambda topic, held: {**held, **lists[topic]})


def remove(store: Store, topics: Collection[str]) -> bool:
    """Take both rates from all brokers, and the lists from these topics; whether there was anything."""
    rates = _change(store, paths.BROKERS, _configured(store), lambda _, held: _without(held, RATES))
    lists = _change(store, paths.TOPICS, sorted(topics), lambda _, held: _without(held, REPLICAS))
    return rates or lists


def rates(store: Store, broker_ids: Iterable[int] | None = None) -> list[int]:
    """The different rates that these brokers keep to (None: all), in bytes a second, rising."""
    names = _configured(store) if broker_ids is None else map(str, broker_ids)
    held = [read_config(store, paths.BROKERS, name) for name in names]
    texts = {one[name] for one in held for name in RATES if name in one}
    return sorted(int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) <= 100)


def _configured(store: Store) -> list[str]:
    try:
        return sorted(store.children(f"/config/{paths.BROKERS}"))
    except NoNode:
        return []


def _named(one: TopicPartition, broker_ids: Iterable[int]) -> list[str]:
    return [f"{one.partition}:{broker_id}" for broker_id in broker_ids]


def _without(held: Settings, names: Collection[str]) -> Settings:
    return {name: text for name, text in held.items() if name not in names}


def _change(
    store: Store, kind: str, names: Iterable[str], changed: Callable[[str, Settings], Settings]
) -> bool:
    """Change these entities' settings, with the news; whether any are other. All are read first, as one may
    hold nonsense: CoordinationError, and nothing is changed.
    """
    held = {name: read_config(store, kind, name) for name in names}
    wanted = {name: changed(name, dict(settings)) for name, settings in held.items()}
    others = {name: settings for name, settings in wanted.items() if settings != held[name]}
    for name, settings in others.items():
        write_config(store, kind, name, settings)
    return bool(others)
