"""Which broker has what, as ZooKeeper knows it, for the requests that operators write there.

Brokers before Kafka 2.4 take preferred elections and reassignments by znodes only. Who asks does so through
a ``registry.store.Store``, such as ``registry.zookeeper.ZooKeeperStore``.
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
    """The replicas of the partitions of ``topics`` that there are.

    None: of all topics; one whose znode cannot be read is left out, with a warning. Of ``topics`` that are
    named none is: CoordinationError. What can be no topic's name is a topic that there is not.
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
    """The assignments of those of these topics that are there and can be read; a warning names the others."""
    by_path = {paths.topic_path(name): name for name in topics}
    found = {}
    for path, (data, _) in store.read_all(by_path).items():
        try:
            found[by_path[path]] = TopicAssignment.from_json(data, path).partitions
        except CoordinationError as error:
            _log.warning("topic %s is left out: %s", by_path[path], error)
    return found


def states(store: Store, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
    """Leader and replicas in sync of those partitions that have had a leader. A state that cannot be read is
    left out, with a warning.
    """
    by_path = {paths.partition_state_path(*one): one for one in partitions}
    found = {}
    for path, (data, _) in store.read_all(by_path).items():
        try:
            found[by_path[path]] = PartitionState.from_json(data, path)
        except CoordinationError as error:
            _log.warning("the state of partition %s is left out: %s", by_path[path], error)
    return found


def check_known(store: Store, option: str, partitions: Collection[TopicPartition], known: Replicas) -> None:
    """ConfigError, as ``option``, for partitions that there are not, or that are marked for deletion."""
    unknown = sorted(set(partitions) - set(known))
    if unknown:
        why = why_unknown(store, unknown[0], known)
        raise ConfigError(option, listed(unknown), f"{why}; nothing was changed")
    going = sorted({one.topic for one in partitions} & marked(store))
    if going:
        raise ConfigError(option, ", ".join(going), "marked for deletion; nothing was changed")


def why_unknown(store: Store, one: TopicPartition, known: Replicas) -> str:
    """What there is instead of a partition that is not among those ``known`` of its topic."""
    numbers = [other.partition for other in known if other.topic == one.topic]
    if numbers:
        return f"topic {one.topic!r} has partitions {min(numbers)} to {max(numbers)}"
    near = difflib.get_close_matches(one.topic, _children(store, paths.BROKER_TOPICS))
    hint = f"; there is {' and '.join(map(repr, near))}" if near else ""
    return f"there is no topic {one.topic!r}{hint}"


def marked(store: Store) -> set[str]:
    """The topics that are marked for deletion."""
    return set(_children(store, paths.DELETE_TOPICS))


def check_controller(store: Store) -> None:
    """CoordinationError where no controller would act on a request."""
    if store.exists(paths.CONTROLLER) is None:
        raise CoordinationError(
            "no broker is the controller at the moment, and nobody would see to the request: nothing was "
            "changed; start a broker, or try again"
        )


def check_not_under_way(store: Store, path: str, what: str) -> None:
    """CoordinationError where a request of this kind is there already."""
    stat = store.exists(path)
    if stat is not None:
        since = time.strftime("%H:%M:%S", time.gmtime(stat.created_ms / 1000))
        raise CoordinationError(
            f"{what} is under way already, since {since} UTC ({path}): nothing was changed; wait for its end"
        )


def await_gone(store: Store, path: str, timeout_s: float) -> bool:
    """Wait until a request is taken away; False when it is still there after ``timeout_s``."""
    left_s = timeout_s
    while store.exists(path) is not None:
        if left_s <= 0:
            return False
        time.sleep(_LOOK_S)
        left_s -= _LOOK_S
    return True


def start_of(data: bytes) -> str:
    """What errors show of a file without a name."""
    return data[:100].decode("utf-8", "replace")


def objects_in(data: bytes, option: str, name: str, path: str | None = None) -> list[dict[str, object]]:
    """The objects of the list ``name`` of a JSON file that a user gave. ConfigError under ``option``, which
    names the file by its ``path``.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(option, path or start_of(data), f"no JSON: {error}") from None
    rows = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        wanted = f'an object with a list "{name}" of objects is wanted'
        raise ConfigError(option, path or start_of(data), wanted)
    return rows


def listed(partitions: Collection[TopicPartition], most: int = 5) -> str:
    """The first few, and how many more there are."""
    names = ", ".join(str(one) for one in sorted(partitions)[:most])
    more = len(partitions) - most
    return f"{names} and {more} more" if more > 0 else names


def _children(store: Store, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNode:
        return []
