"""Checks of the requests that operators write to ZooKeeper.

Brokers before Kafka 2.4 take preferred elections and reassignments by znodes only. All access goes through a
``registry.store.Store``, such as ``registry.zookeeper.ZooKeeperStore``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition, is_topic_name
from minikafka.registry import paths
from minikafka.registry.store import Store
from minikafka.registry.topics import read_assignments
from minikafka.registry.znodes import children

_LOOK_S = 0.1


def assigned(store: Store, topics: Iterable[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of all partitions of ``topics`` (None: of all topics) that exist and are valid."""
    names = children(store, paths.BROKER_TOPICS) if topics is None else set(topics)
    return {
        TopicPartition(topic, partition): replicas
        for topic, partitions in read_assignments(store, sorted(filter(is_topic_name, names))).items()
        for partition, replicas in partitions.items()
    }


def topics_to_delete(store: Store) -> set[str]:
    """Return the topics that are marked for deletion."""
    return set(children(store, paths.DELETE_TOPICS))


def check_controller(store: Store) -> None:
    """Raise CoordinationError if there is no controller that would act on a request."""
    if store.exists(paths.CONTROLLER) is None:
        raise CoordinationError(
            "there is no controller at the moment that would process the request; nothing was changed; "
            "start a broker, or try again"
        )


def check_not_under_way(store: Store, path: str, what: str) -> None:
    """Raise CoordinationError if a request of this kind is in progress."""
    stat = store.exists(path)
    if stat is not None:
        since = time.strftime("%H:%M:%S", time.gmtime(stat.created_ms / 1000))
        raise CoordinationError(
            f"{what} has been in progress since {since} UTC ({path}); nothing was changed; wait for its end"
        )


def wait_until_removed(store: Store, path: str, timeout_s: float) -> bool:
    """Wait until a request is removed. Return False if it still exists after ``timeout_s``."""
    left_s = timeout_s
    while store.exists(path) is not None:
        if left_s <= 0:
            return False
        time.sleep(_LOOK_S)
        left_s -= _LOOK_S
    return True
