"""Partitions as administration sees them: their replicas, leaders, elections, reassignments and throttles.

``PartitionsBackend`` is the way to them: the brokers (``BrokerPartitions``), or ZooKeeper for brokers that
have no requests for it (``zookeeper.partitions``). What is checked and decided is the same for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from minikafka.base.config.unknown_names import near_matches
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.clients.admin.configs import change_configs, describe_configs
from minikafka.clients.admin.elections import elect_leaders
from minikafka.clients.admin.log_dirs import LogDir, alter_replica_log_dirs, describe_log_dirs
from minikafka.clients.admin.reassignments import ReassignmentErrors, alter_reassignments, list_reassignments
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import ClusterMetadata
from minikafka.registry import paths
from minikafka.wire.apis.describe_configs import ConfigResourceType, ConfigSource
from minikafka.wire.apis.elect_leaders import ElectionType

Replicas = Mapping[TopicPartition, tuple[int, ...]]
"""Partition -> its brokers, the preferred leader first."""
Settings = dict[str, str]
LogDirErrors = dict[TopicPartition, BrokerError | None]

T = TypeVar("T")
_LOOK_S = 0.1
_LOOKS = 20
_ANSWER_MS = 5_000
"""The time to answer that is left to the controller after an election's time-out."""
_RESOURCES = {
    paths.TOPICS: (ConfigResourceType.TOPIC, ConfigSource.TOPIC),
    paths.BROKERS: (ConfigResourceType.BROKER, ConfigSource.DYNAMIC_BROKER),
}


class LeaderAndIsr(NamedTuple):
    """The leader of a partition, None without one, and its replicas in sync."""

    leader: int | None
    in_sync: tuple[int, ...]


class ElectionRound(NamedTuple):
    """A part of an election that was requested."""

    number: int
    rounds: int
    partitions: list[TopicPartition]
    request: str


class ElectionOutcome(NamedTuple):
    """The outcome of an election."""

    ended: bool
    elected: frozenset[TopicPartition]
    """The partitions of which it is known that the wanted replica leads them."""


class PartitionsBackend(Protocol):
    """The way to the partitions: the brokers, or ZooKeeper."""

    may_lag: bool
    """True if the brokers that are asked may learn later what the controller has done."""

    may_hide: bool
    """True if topics that this client may not describe are left out."""

    def topics(self) -> Collection[str]:
        """Return the names of all topics."""

    def topics_to_delete(self) -> set[str]:
        """Return the topics that are marked for deletion."""

    def assigned(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the replicas of all partitions of ``topics`` (None: of all topics) that exist."""

    def states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr]:
        """Return the leaders and replicas in sync of those partitions that exist."""

    def live_brokers(self) -> Mapping[int, str | None]:
        """Return the live brokers with their racks."""

    def under_way(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        """Return the partitions that are being reassigned, with their wanted replicas."""

    def check_reassignment(self, wanted: Replicas) -> None:
        """Raise an error if these reassignments cannot be requested."""

    def reassign(self, wanted: Replicas) -> None:
        """Request the reassignments."""

    def elect(
        self,
        partitions: Collection[TopicPartition],
        kind: ElectionType,
        timeout_s: float,
        report: Callable[[ElectionRound], None],
    ) -> ElectionOutcome:
        """Elect leaders; ``report`` is called for each round in ZooKeeper."""

    def settings(self, kind: str, names: Iterable[str] | None = None) -> dict[str, Settings]:
        """Return the own settings of topics or brokers (None: of all that have some), by name."""

    def change_settings(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """Set the settings of a topic or broker, and delete those that are None."""

    def log_dirs(self, brokers: Iterable[int]) -> list[LogDir]:
        """Return the data directories of brokers."""

    def move_logs(self, broker_id: int, log_dirs: Mapping[TopicPartition, str]) -> LogDirErrors:
        """Begin to move logs of a broker to other data directories. Returns the error of each, or None."""


class BrokerPartitions:
    """The partitions as brokers tell and change them."""

    may_lag = True
    may_hide = True

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def _metadata(self) -> ClusterMetadata:
        return self._cluster.metadata(None)  # of all topics, so that no broker creates one

    def topics(self) -> Collection[str]:
        """See ``PartitionsBackend``."""
        return self._metadata().topics.keys()

    def topics_to_delete(self) -> set[str]:
        """See ``PartitionsBackend``: brokers do not tell of them."""
        return set()

    def assigned(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """See ``PartitionsBackend``."""
        wanted = None if topics is None else set(topics)
        return {
            partition.topic_partition: partition.replicas
            for topic in self._metadata().topics.values()
            if wanted is None or topic.name in wanted
            for partition in topic.partitions
        }

    def states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr]:
        """See ``PartitionsBackend``."""
        known = self._metadata()
        found = ((tp, known.partition(tp)) for tp in partitions)
        return {
            tp: LeaderAndIsr(partition.leader_id if partition.leader_id >= 0 else None, partition.in_sync)
            for tp, partition in found
            if partition is not None
        }

    def live_brokers(self) -> Mapping[int, str | None]:
        """See ``PartitionsBackend``."""
        return {number: broker.rack for number, broker in sorted(self._metadata().brokers.items())}

    def under_way(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        """See ``PartitionsBackend``."""
        return {
            move.topic_partition: tuple(number for number in move.replicas if number not in move.removing)
            for move in list_reassignments(self._cluster, self._cluster.deadline())
        }

    def check_reassignment(self, wanted: Replicas) -> None:
        """See ``PartitionsBackend``: the controller checks them."""

    def reassign(self, wanted: Replicas) -> None:
        """See ``PartitionsBackend``. Raises the first BrokerError, which says if others have begun."""
        results = alter_reassignments(self._cluster, wanted, self._cluster.deadline())
        failed = {tp: error for tp, error in results.items() if error is not None}
        for tp, error in sorted(failed.items()):
            others = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
            others += f"; {len(results) - len(failed)} were accepted" if len(failed) < len(results) else ""
            raise BrokerError(error.code, f"{tp}: {error.detail}{others}")

    def cancel(self, partitions: Iterable[TopicPartition]) -> ReassignmentErrors:
        """Give partitions back the replicas that they had. One result per partition."""
        return alter_reassignments(self._cluster, dict.fromkeys(partitions), self._cluster.deadline())

    def elect(
        self,
        partitions: Collection[TopicPartition],
        kind: ElectionType,
        timeout_s: float,
        report: Callable[[ElectionRound], None],
    ) -> ElectionOutcome:
        """See ``PartitionsBackend``."""
        deadline = self._cluster.deadline(int(timeout_s * 1000) + _ANSWER_MS)
        results = elect_leaders(self._cluster, kind, partitions, deadline)
        codes = {tp: error and error.code for tp, error in results.items()}
        elected = (tp for tp, code in codes.items() if code in (None, ErrorCode.ELECTION_NOT_NEEDED))
        return ElectionOutcome(ErrorCode.REQUEST_TIMED_OUT not in codes.values(), frozenset(elected))

    def settings(self, kind: str, names: Iterable[str] | None = None) -> dict[str, Settings]:
        """See ``PartitionsBackend``. Only those of live brokers, and of topics that exist."""
        resource, source = _RESOURCES[kind]
        known = set(map(str, self.live_brokers())) if kind == paths.BROKERS else set(self.topics())
        return {
            name: {
                setting.name: setting.value
                for setting in describe_configs(self._cluster, resource, name, self._cluster.deadline())
                if setting.source is source and setting.value is not None
            }
            for name in (sorted(known) if names is None else names)
            if name in known
        }

    def change_settings(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """See ``PartitionsBackend``."""
        change_configs(self._cluster, _RESOURCES[kind][0], name, changes, self._cluster.deadline())

    def log_dirs(self, brokers: Iterable[int]) -> list[LogDir]:
        """See ``PartitionsBackend``."""
        return describe_log_dirs(self._cluster, sorted(brokers), self._cluster.deadline())

    def move_logs(self, broker_id: int, log_dirs: Mapping[TopicPartition, str]) -> LogDirErrors:
        """See ``PartitionsBackend``."""
        return alter_replica_log_dirs(self._cluster, broker_id, log_dirs, self._cluster.deadline())


def settled(backend: PartitionsBackend, look: Callable[[], T], known: Callable[[T], bool]) -> T:
    """Return what ``look`` returns: again and again, for up to two seconds, if it is not ``known`` yet that
    something is done, and the brokers may only learn it.
    """
    found = look()
    for _ in range(_LOOKS if backend.may_lag else 0):
        if known(found):
            break
        time.sleep(_LOOK_S)
        found = look()
    return found


def replicas_of(backend: PartitionsBackend, topics: Collection[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of all partitions of ``topics``. Raises ConfigError for one that does not exist."""
    known = backend.assigned(topics)
    missing = set(topics) - {tp.topic for tp in known}
    check_known(backend, "topic", [TopicPartition(name, 0) for name in missing], known)
    return known


def check_known(
    backend: PartitionsBackend, option: str, partitions: Collection[TopicPartition], known: Replicas
) -> None:
    """Raise ConfigError for topics that do not exist, or under the name ``option`` for partitions that do
    not exist or are marked for deletion.
    """
    unknown = sorted(set(partitions) - set(known))
    if unknown:
        why = why_unknown(unknown[0], known, backend)
        absent = sorted({tp.topic for tp in unknown} - {tp.topic for tp in known})
        if unknown[0].topic in absent:
            raise ConfigError("topic", ", ".join(absent), f"{why}; nothing was changed")
        raise ConfigError(option, first_of(unknown, 5), f"{why}; nothing was changed")
    deleted = sorted({partition.topic for partition in partitions} & backend.topics_to_delete())
    if deleted:
        raise ConfigError(option, ", ".join(deleted), "marked for deletion; nothing was changed")


def why_unknown(partition: TopicPartition, known: Replicas, backend: PartitionsBackend) -> str:
    """Return the reason why ``partition`` is not among the ``known`` ones, with similar names of topics."""
    topic = partition.topic
    numbers = [other.partition for other in known if other.topic == topic]
    if numbers:
        first, last = min(numbers), max(numbers)
        has = f"only partition {first}" if first == last else f"partitions {first} to {last}"
        return f"topic {topic!r} has {has}"
    names = backend.topics()
    if topic in names:
        return f"topic {topic!r} has no valid partitions (see {paths.topic_path(topic)}): delete it"
    hidden = ", or this client may not describe it" if backend.may_hide else ""
    return f"there is no topic {topic!r}{hidden}{near_matches(topic, names)}"
