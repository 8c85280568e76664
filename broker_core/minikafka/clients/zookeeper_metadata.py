"""Checks of the requests that operators write to ZooKeeper.

Brokers before Kafka 2.4 take preferred elections and reassignments by znodes only. All access goes through a
``registry.store.Store``, such as ``registry.zookeeper.ZooKeeperStore``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.config.unknown_names import near_matches
from minikafka.base.errors import ConfigError, CoordinationError
from minikafka.base.ids import TopicPartition, is_topic_name
from minikafka.base.text import first_of
from minikafka.registry import paths
from minikafka.registry.store import Store
from minikafka.registry.topics import read_assignments
from minikafka.registry.znodes import children

Replicas = Mapping[TopicPartition, tuple[int, ...]]
"""Partition -> its brokers, the preferred leader first."""

_LOOK_S = 0.1


def assigned(store: Store, topics: Iterable[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of all partitions of ``topics`` (None: of all topics) that exist and are valid."""
    names = children(store, paths.BROKER_TOPICS) if topics is None else set(topics)
    return {
        TopicPartition(topic, partition): replicas
        for topic, partitions in read_assignments(store, sorted(filter(is_topic_name, names))).items()
        for partition, replicas in partitions.items()
    }


def replicas_of(store: Store, topics: Collection[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of all partitions of ``topics``. Raises ConfigError for one that does not exist."""
    known = assigned(store, topics)
    missing = set(topics) - {tp.topic for tp in known}
    check_known(store, "topic", [TopicPartition(name, 0) for name in missing], known)
    return known


def check_known(store: Store, option: str, partitions: Collection[TopicPartition], known: Replicas) -> None:
    """Raise ConfigError for topics that do not exist, or under the name ``option`` for partitions that do
    not exist or are marked for deletion.
    """
    unknown = sorted(set(partitions) - set(known))
    if unknown:
        why = why_unknown(store, unknown[0], known)
        absent = sorted({tp.topic for tp in unknown} - {tp.topic for tp in known})
        if unknown[0].topic in absent:
            raise ConfigError("topic", ", ".join(absent), f"{why}; nothing was changed")
        raise ConfigError(option, first_of(unknown, 5), f"{why}; nothing was changed")
    deleted = sorted({partition.topic for partition in partitions} & topics_to_delete(store))
    if deleted:
        raise ConfigError(option, ", ".join(deleted), "marked for deletion; nothing was changed")


def why_unknown(store: Store, partition: TopicPartition, known: Replicas) -> str:
    """Return the reason why ``partition`` is not among the ``known`` ones, with similar names of topics."""
    topic = partition.topic
    numbers = [other.partition for other in known if other.topic == topic]
    if numbers:
        return f"topic {topic!r} has partitions {min(numbers)} to {max(numbers)}"
    topics = children(store, paths.BROKER_TOPICS)
    if topic in topics:
        return f"{paths.topic_path(topic)} is invalid: fix it, or delete the topic"
    return f"there is no topic {topic!r}{near_matches(topic, topics)}"


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


def start_of(data: bytes) -> str:
    """Return the start of a file's text, for errors about a file without a name."""
    return data[:100].decode("utf-8", "replace")


def objects_in(data: bytes | str, name: str, option: str, value: str) -> list[dict[str, object]]:
    """Return the objects of the list ``name`` in a user's JSON file. Raises ConfigError for ``option``."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(option, value, f"invalid JSON: {error}") from None
    rows = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(option, value, f'expected an object with a list "{name}" of objects')
    return rows
