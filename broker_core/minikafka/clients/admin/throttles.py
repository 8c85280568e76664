"""Throttles of reassignments, set and removed as by ``kafka-reassign-partitions``.

    broker    the rates of replication, for every broker with a current or a new replica of the topics; the
              rate of copies between directories, for every broker that moves a log
    topic     leader replicas: the current replicas of moving partitions; follower replicas: the new ones

The controller does not know of throttles: the caller has to remove them. All functions are idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.partitions import PartitionsBackend, Replicas, Settings
from minikafka.registry import paths
from minikafka.registry.entity_configs import (
    ALTER_LOG_DIRS_RATE,
    BROKER_RATES,
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATES,
    REPLICAS,
)

Changes = Mapping[str, str | None]


def set_rates(backend: PartitionsBackend, wanted: Replicas, bytes_per_second: int) -> list[int]:
    """Set the rate of replication of all brokers that take part in a reassignment, and return them."""
    current = backend.assigned({tp.topic for tp in wanted})
    brokers = {broker_id for replicas in current.values() for broker_id in replicas}
    brokers |= {broker_id for replicas in wanted.values() for broker_id in replicas}
    rates = dict.fromkeys(RATES, str(bytes_per_second))
    _change(backend, paths.BROKERS, map(str, sorted(brokers)), lambda name, held: rates)
    return sorted(brokers)


def set_log_dirs_rate(backend: PartitionsBackend, brokers: Iterable[int], bytes_per_second: int) -> None:
    """Set the rate of copies between the directories of brokers."""
    rate = {ALTER_LOG_DIRS_RATE: str(bytes_per_second)}
    _change(backend, paths.BROKERS, map(str, sorted(brokers)), lambda name, held: rate)


def set_throttled_replicas(backend: PartitionsBackend, before: Replicas, after: Replicas) -> None:
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
    _change(backend, paths.TOPICS, sorted(lists), lambda topic, held: lists[topic])


def remove(backend: PartitionsBackend, topics: Collection[str], *, with_rates: bool = True) -> bool:
    """Remove the lists of these topics, and the rates of all brokers. Return True if there were any."""
    rates = with_rates and _change(backend, paths.BROKERS, None, lambda _, held: _without(held, BROKER_RATES))
    lists = _change(backend, paths.TOPICS, sorted(topics), lambda _, held: _without(held, REPLICAS))
    return rates or lists


def rates(backend: PartitionsBackend, broker_ids: Iterable[int] | None = None) -> list[int]:
    """Return the distinct rates of these brokers (None: all), in bytes per second, sorted."""
    held = backend.settings(paths.BROKERS, None if broker_ids is None else map(str, sorted(broker_ids)))
    texts = {settings[name] for settings in held.values() for name in BROKER_RATES if name in settings}
    return sorted(int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) <= 100)


def _replica_names(tp: TopicPartition, broker_ids: Iterable[int]) -> list[str]:
    return [f"{tp.partition}:{broker_id}" for broker_id in broker_ids]


def _without(held: Settings, names: Collection[str]) -> Changes:
    return {name: None for name in names if name in held}


def _change(
    backend: PartitionsBackend,
    kind: str,
    names: Iterable[str] | None,
    changes: Callable[[str, Settings], Changes],
) -> bool:
    """Change the settings of these entities (None: of all). Return True if any have changed. All are read
    first: an error of one is raised before anything is changed.
    """
    held = backend.settings(kind, names)
    wanted = {name: changes(name, settings) for name, settings in held.items()}
    done = False
    for name, new in wanted.items():
        if {**held[name], **new} != held[name]:
            backend.change_settings(kind, name, new)
            done = True
    return done
