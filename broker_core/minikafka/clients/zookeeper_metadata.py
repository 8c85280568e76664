"""Assignments and partition states in ZooKeeper, and checks of the requests that operators write there.

Brokers before Kafka 2.4 take preferred elections and reassignments by znodes only. All access goes through a
``registry.store.Store``, such as ``registry.zookeeper.ZooKeeperStore``.
"""

from __future__ import annotations

import difflib
import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.errors import ConfigError, CoordinationError, NoNode
from minikafka.base.ids import TopicPartition, is_topic_name
from minikafka.registry import paths
from minikafka.registry.paths import PartitionState, TopicAssignment
from minikafka.registry.store import Store

_log = logging.getLogger(__name__)

Replicas = Mapping[TopicPartition, tuple[int, ...]]
"""Partition -> its brokers, the preferred leader first."""

_LOOK_S = 0.1


def assigned(store: Store, topics: Iterable[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of all partitions of ``topics``; a topic that does not exist is left out.

    None: of all topics, except those whose znode is invalid, with a warning. An invalid znode of one of the
    given ``topics`` raises CoordinationError. An invalid topic name counts as a topic that does not exist.
    """
    if topics is None:
        assignments = readable_assignments(store, _children(store, paths.BROKER_TOPICS))
    else:
        by_path = {paths.topic_path(name): name for name in sorted(filter(is_topic_name, set(topics)))}
        assignments = {
            by_path[path]: TopicAssignment.from_json(data, path).partitions
            for path, (data, _) in store.read_all(by_path).items()
        }
    return {
        TopicPartition(topic, partition): replicas
        for topic, partitions in assignments.items()
        for partition, replicas in partitions.items()
    }


def readable_assignments(store: Store, topics: Iterable[str]) -> dict[str, Mapping[int, tuple[int, ...]]]:
    """Return the assignments of the existing ``topics``; an invalid one is left out, with a warning."""
    by_path = {paths.topic_path(name): name for name in topics}
    found = {}
    for path, (data, _) in store.read_all(by_path).items():
        try:
            found[by_path[path]] = TopicAssignment.from_json(data, path).partitions
        except CoordinationError as error:
            _log.warning("ignoring topic %s with an invalid assignment: %s", by_path[path], error)
    return found


def states(store: Store, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
    """Return the leader and ISR of those partitions that have had a leader. An invalid state is left out,
    with a warning.
    """
    by_path = {paths.partition_state_path(*partition): partition for partition in partitions}
    found = {}
    for path, (data, _) in store.read_all(by_path).items():
        try:
            found[by_path[path]] = PartitionState.from_json(data, path)
        except CoordinationError as error:
            _log.warning("ignoring the invalid state of partition %s: %s", by_path[path], error)
    return found


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
        raise ConfigError(option, listed(unknown), f"{why}; nothing was changed")
    deleted = sorted({partition.topic for partition in partitions} & topics_to_delete(store))
    if deleted:
        raise ConfigError(option, ", ".join(deleted), "marked for deletion; nothing was changed")


def why_unknown(store: Store, partition: TopicPartition, known: Replicas) -> str:
    """Return the reason why ``partition`` is not among the ``known`` ones, with similar names of topics."""
    topic = partition.topic
    numbers = [other.partition for other in known if other.topic == topic]
    if numbers:
        return f"topic {topic!r} has partitions {min(numbers)} to {max(numbers)}"
    near = difflib.get_close_matches(topic, _children(store, paths.BROKER_TOPICS))
    hint = f"; there is {' and '.join(map(repr, near))}" if near else ""
    return f"there is no topic {topic!r}{hint}"


def topics_to_delete(store: Store) -> set[str]:
    """Return the topics that are marked for deletion."""
    return set(_children(store, paths.DELETE_TOPICS))


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


def objects_in(data: bytes, option: str, name: str, path: str | None = None) -> list[dict[str, object]]:
    """Return the objects of the list ``name`` in a user's JSON file. Raises ConfigError under ``option``,
    which names the file by its ``path``.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(option, path or start_of(data), f"invalid JSON: {error}") from None
    rows = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        wanted = f'expected an object with a list "{name}" of objects'
        raise ConfigError(option, path or start_of(data), wanted)
    return rows


def listed(partitions: Collection[TopicPartition], most: int = 5) -> str:
    """Return the first ``most`` partitions as text, with the number of the others."""
    names = ", ".join(map(str, sorted(partitions)[:most]))
    more = len(partitions) - most
    return f"{names} and {more} more" if more > 0 else names


def _children(store: Store, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNode:
        return []
