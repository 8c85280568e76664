"""Replication throttles of a reassignment, set and removed as by ``kafka-reassign-partitions`` of 0.10.1.

    /config/brokers/ID      both rates, for every broker with a current or a new replica of the topics
    /config/topics/TOPIC    leader replicas: the current replicas of moving partitions; follower replicas: the
                            new ones

The controller does not know of throttles: the caller has to remove them. All functions are idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

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
from minikafka.registry.znodes import children

Settings = dict[str, str]


def set_rates(store: Store, wanted: Replicas, bytes_per_second: int) -> list[int]:
    """Set the rate of all brokers that take part in a reassignment, and return them."""
    topics = {tp.topic for tp in wanted}
    current = zookeeper_metadata.assigned(store, topics)
    brokers = {broker_id for replicas in current.values() for broker_id in replicas}
    brokers |= {broker_id for replicas in wanted.values() for broker_id in replicas}
    rates = dict.fromkeys(RATES, str(bytes_per_second))
    _change(store, paths.BROKERS, map(str, sorted(brokers)), lambda name, held: {**held, **rates})
    return sorted(brokers)


def set_throttled_replicas(store: Store, before: Replicas, after: Replicas) -> None:
    """Throttle the new replicas of this reassignment, and the current replicas that they copy from."""
    lists: dict[str, Settings] = {}
    for topic in {tp.topic for tp in after}:
        leaders: list[str] = []
        followers: list[str] = []
        for tp in sorted(found for found in after if found.topic == topic):
            added = [broker_id for broker_id in after[tp] if broker_id not in before[tp]]
            followers += _replica_names(tp, added)
            leaders += _replica_names(tp, before[tp]) if added else []
        if followers:
            lists[topic] = {LEADER_REPLICAS: ",".join(leaders), FOLLOWER_REPLICAS: ",".join(followers)}
    _change(store, paths.TOPICS, sorted(lists), lambda topic, held: {**held, **lists[topic]})


def remove(store: Store, topics: Collection[str]) -> bool:
    """Remove the rates of all brokers and the lists of these topics. Return True if there were any."""
    rates = _change(
        store,
        paths.BROKERS,
        children(store, f"/config/{paths.BROKERS}"),
        lambda _, held: _without(held, RATES),
    )
    lists = _change(store, paths.TOPICS, sorted(topics), lambda _, held: _without(held, REPLICAS))
    return rates or lists


def rates(store: Store, broker_ids: Iterable[int] | None = None) -> list[int]:
    """Return the distinct rates of these brokers (None: all), in bytes per second, sorted."""
    names = children(store, f"/config/{paths.BROKERS}") if broker_ids is None else map(str, broker_ids)
    held = [read_config(store, paths.BROKERS, name) for name in names]
    texts = {settings[name] for settings in held for name in RATES if name in settings}
    return sorted(int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) <= 100)


def _replica_names(tp: TopicPartition, broker_ids: Iterable[int]) -> list[str]:
    return [f"{tp.partition}:{broker_id}" for broker_id in broker_ids]


def _without(held: Settings, names: Collection[str]) -> Settings:
    return {name: text for name, text in held.items() if name not in names}


def _change(
    store: Store, kind: str, names: Iterable[str], changed: Callable[[str, Settings], Settings]
) -> bool:
    """Change the settings of these entities, with change notifications. Return True if any have changed. All
    are read first: an invalid one raises CoordinationError before anything is changed.
    """
    held = {name: read_config(store, kind, name) for name in names}
    wanted = {name: changed(name, dict(settings)) for name, settings in held.items()}
    changes = {name: settings for name, settings in wanted.items() if settings != held[name]}
    for name, settings in changes.items():
        write_config(store, kind, name, settings)
    return bool(changes)
