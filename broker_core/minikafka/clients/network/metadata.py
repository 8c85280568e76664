"""The metadata of a cluster: immutable views (brokers, topics, partitions, leaders), the client's cache of
the newest view, and the request that asks for another one without creating topics.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from minikafka.base.clock import NEVER_MS
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.base.text import counted, first_of
from minikafka.wire.apis.metadata import MetadataRequest, MetadataResponse, metadata_request
from minikafka.wire.fields import ZERO_UUID

NO_LEADER = -1
NO_LEADER_EPOCH = -1

ALLOW_AUTO_TOPIC_CREATION_SINCE = 4
"""The first Metadata version in which a request can forbid the creation of topics."""

RELIABLE_EPOCHS_SINCE = 9
"""The first Metadata version whose leader epochs count, as in Kafka's clients: brokers before 2.4 name stale
ones while replicas move."""

OLDER_EPOCHS_MAX = 5
"""The number of views in a row with an older leader epoch that are ignored; the next one counts, as the topic
was recreated. Topic ids, which brokers have from 2.8 on, say so at once.
"""


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition and its leader epoch (-1: unknown)."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition as a broker described it.

    leader_id     -1 if it has no leader
    leader_epoch  -1 if it is unknown
    older_epochs  the number of later views that were ignored, as their leader epoch is older
    """

    topic_partition: TopicPartition
    leader_id: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error: ErrorCode = ErrorCode.NONE
    leader_epoch: int = -1
    older_epochs: int = 0

    def updated(self, newer: PartitionMetadata) -> PartitionMetadata:
        """Return ``newer``, or this view if the leader epoch of ``newer`` is older."""
        older = 0 <= newer.leader_epoch < self.leader_epoch
        if older and self.older_epochs < OLDER_EPOCHS_MAX:
            return replace(self, older_epochs=self.older_epochs + 1)
        return newer


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. ``partitions`` is sorted by number; ``fetched_ms`` is on the client's monotonic clock.

    topic_id  zero if it is unknown: of a topic with an error, and of brokers before 2.8
    """

    name: str
    error: ErrorCode
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]
    fetched_ms: int = 0
    topic_id: bytes = ZERO_UUID

    def partition(self, number: int) -> PartitionMetadata | None:
        """Return the partition with this number, or None."""
        partitions = self.partitions
        if 0 <= number < len(partitions) and partitions[number].topic_partition.partition == number:
            return partitions[number]
        return next((p for p in partitions if p.topic_partition.partition == number), None)

    def chosen(self, numbers: Collection[int] | None) -> list[TopicPartition]:
        """Return the partitions with these numbers, None for all. Raise BrokerError for one that does not
        exist.
        """
        for number in sorted(numbers or ()):
            if self.partition(number) is None:
                problem = f"{self.name}-{number}: {self.partition_range}"
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
        known = [partition.topic_partition for partition in self.partitions]
        return known if numbers is None else [tp for tp in known if tp.partition in numbers]

    @property
    def available(self) -> tuple[int, ...]:
        """The numbers of the partitions that have a leader."""
        return tuple(p.topic_partition.partition for p in self.partitions if p.leader_id != NO_LEADER)

    @property
    def fewest_replicas(self) -> int:
        """The number of replicas of the partition that has the fewest; 0 without partitions."""
        return min((len(p.replicas) for p in self.partitions), default=0)

    @property
    def partition_range(self) -> str:
        """The number and range of the partitions, for messages."""
        count = len(self.partitions)
        last = f" to {count - 1}" if count != 1 else ""
        return f"topic {self.name!r} has {counted(count, 'partition')}, 0{last}"


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A view of the cluster. Immutable: a refresh makes a new one."""

    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    controller_id: int | None = None
    cluster_id: str | None = None

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic; zero if it is unknown."""
        found = self.topics.get(topic)
        return ZERO_UUID if found is None else found.topic_id

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """Return the metadata of a partition, or None."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partition(tp.partition)

    def leader(self, tp: TopicPartition) -> BrokerAddress | None:
        """Return the leader of a partition, or None if there is none or it is unknown."""
        found = self.partition(tp)
        return None if found is None else self.brokers.get(found.leader_id)

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the leader epoch of a partition; -1 if it is unknown."""
        found = self.partition(tp)
        return NO_LEADER_EPOCH if found is None else found.leader_epoch

    def leader_and_epoch(self, tp: TopicPartition) -> LeaderAndEpoch | None:
        """Return the leader of a partition with its epoch, or None as ``leader``."""
        found = self.partition(tp)
        if found is None or found.leader_id not in self.brokers:
            return None
        return LeaderAndEpoch(found.leader_id, found.leader_epoch)

    def why_unusable(self, topic: str) -> BrokerError | None:
        """Return the error that keeps records from some partition of ``topic``, or None."""
        described = self.topics.get(topic)
        if described is None:
            return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no metadata of topic {topic!r}")
        if described.error is not ErrorCode.NONE:
            return BrokerError(described.error, f"topic {topic!r}")
        headless = [p.topic_partition for p in described.partitions if p.leader_id not in self.brokers]
        return self.no_leader_error(headless) if headless else None

    def without_listener(self) -> list[TopicPartition]:
        """Return the partitions whose leader does not have the listener that this client uses.

        Brokers before 2.0 tell that of none (KIP-226).
        """
        return [
            partition.topic_partition
            for topic in self.topics.values()
            for partition in topic.partitions
            if partition.error is ErrorCode.LISTENER_NOT_FOUND
        ]

    def require_leader(self, tp: TopicPartition) -> BrokerAddress:
        """Return the leader of a partition. Raises BrokerError if there is no such topic or partition, or it
        has no leader that this client can reach.
        """
        leader = self.leader(tp)
        if leader is not None:
            return leader
        topic = self.topics.get(tp.topic)
        if topic is None or topic.error is not ErrorCode.NONE:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            raise BrokerError(code, f"{tp}: topic {tp.topic!r} is not available")
        if topic.partition(tp.partition) is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp}: {topic.partition_range}")
        raise self.no_leader_error([tp])

    def no_leader_error(self, partitions: Sequence[TopicPartition]) -> BrokerError:
        """Return the error of partitions that have no leader, or none that this client can reach."""
        known = [found for found in map(self.partition, partitions) if found is not None]
        hidden = [p.topic_partition for p in known if p.error is ErrorCode.LISTENER_NOT_FOUND]
        if hidden:
            return BrokerError(ErrorCode.LISTENER_NOT_FOUND, listener_problem(hidden))
        missing = sorted({replica for p in known for replica in p.in_sync} - self.brokers.keys())
        reason = f": broker {first_of(missing, 3)} is down, or has other listeners" if missing else ""
        text = f"no leader for {first_of(partitions, 3)} at the moment{reason}"
        return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, text)

    def merged(self, newer: ClusterMetadata) -> ClusterMetadata:
        """Return ``newer`` with those topics of this view that it does not have."""
        newer = self.without_older_epochs(newer)
        topics = {**self.topics, **newer.topics}
        for name, topic in newer.topics.items():
            if topic.error is not ErrorCode.NONE and name in self.topics and topic.error.is_retriable:
                # A broker that has just started does not know its topics yet: keep the known numbers.
                known = self.topics[name].partitions
                # Perhaps it was deleted: a new one begins with the first leader epoch.
                unknown = [replace(p, leader_id=NO_LEADER, leader_epoch=NO_LEADER_EPOCH) for p in known]
                topics[name] = replace(topic, partitions=tuple(unknown))
        return replace(newer, topics=topics)

    def with_leaders(
        self, leaders: Mapping[TopicPartition, LeaderAndEpoch], addresses: Mapping[int, BrokerAddress]
    ) -> ClusterMetadata:
        """Return this view with newer ``leaders`` of known partitions, as a broker named them (KIP-951).

        Leaders without an address of ``addresses``, and those of no later epoch, are left out.
        """
        moved: dict[str, dict[int, PartitionMetadata]] = {}
        for tp, leader in leaders.items():
            known = self.partition(tp)
            if known is None or leader.epoch <= known.leader_epoch or leader.broker_id not in addresses:
                continue
            moved.setdefault(tp.topic, {})[tp.partition] = replace(
                known,
                leader_id=leader.broker_id,
                leader_epoch=leader.epoch,
                error=ErrorCode.NONE,
                older_epochs=0,
            )
        topics = dict(self.topics)
        for name, by_number in moved.items():
            topic = topics[name]
            partitions = tuple(by_number.get(p.topic_partition.partition, p) for p in topic.partitions)
            topics[name] = replace(topic, partitions=partitions)
        return replace(self, brokers={**self.brokers, **addresses}, topics=topics)

    def without_older_epochs(self, newer: ClusterMetadata) -> ClusterMetadata:
        """Return ``newer`` with this view's partitions where it has an older leader epoch.

        A topic with another id is another topic, whose epochs begin anew.
        """
        topics = {
            name: topic
            if topic.topic_id not in (ZERO_UUID, self.topic_id(name))
            else replace(topic, partitions=tuple(map(self._newest, topic.partitions)))
            for name, topic in newer.topics.items()
        }
        return replace(newer, topics=topics)

    def _newest(self, newer: PartitionMetadata) -> PartitionMetadata:
        known = self.partition(newer.topic_partition)
        return newer if known is None else known.updated(newer)


def listener_problem(partitions: Sequence[TopicPartition]) -> str:
    """Return the message about partitions whose leader does not have the listener that this client uses."""
    return (
        f"the leader of {first_of(partitions, 3)} does not have the listener that this client uses; set "
        "bootstrap.servers and security.protocol to a listener that all brokers have"
    )


def from_response(
    response: MetadataResponse, now_ms: int, wanted: Iterable[str], version: int
) -> ClusterMetadata:
    """Return the view in a Metadata response; ``now_ms`` (monotonic) is the fetch time of its topics.

    A topic of ``wanted`` that the response leaves out does not exist.
    """
    has_epochs = version >= RELIABLE_EPOCHS_SINCE
    topics = {
        name: TopicMetadata(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, (), now_ms) for name in wanted
    }
    for topic in response.topics:
        if topic.name is None:  # only for a topic that was requested by its id
            continue
        partitions = (
            PartitionMetadata(
                TopicPartition(topic.name, p.index),
                p.leader_id,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                ErrorCode.of(p.error_code),
                p.leader_epoch if has_epochs else NO_LEADER_EPOCH,
            )
            for p in topic.partitions
        )
        topics[topic.name] = TopicMetadata(
            name=topic.name,
            error=ErrorCode.of(topic.error_code),
            is_internal=bool(topic.is_internal),
            partitions=tuple(sorted(partitions, key=lambda p: p.topic_partition.partition)),
            fetched_ms=now_ms,
            topic_id=topic.topic_id,
        )
    brokers = {b.node_id: BrokerAddress(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    controller = response.controller_id if response.controller_id in brokers else None
    return ClusterMetadata(brokers, topics, controller, response.cluster_id)


class Metadata:
    """A client's newest view of its cluster, and the topics whose part of it is stale. Thread-safe.

    A topic is requested again when it is unknown or has an error, is older than ``max_age_ms``
    (``metadata.max.age.ms``), or was invalidated. Times are monotonic, in ms.
    """

    def __init__(self, max_age_ms: int) -> None:
        self.view = ClusterMetadata()
        self.max_age_ms = max_age_ms
        self._stale: set[str] = set()
        self._version = 0
        self._version_until_ms = -1
        """The time at which the next topic is too old."""
        self._lock = threading.Lock()

    def is_fresh(self, topic: str, now_ms: int) -> bool:
        """Return True if ``topic`` may be used without a request."""
        return self.fresh_topic(topic, now_ms) is not None

    def fresh_topic(self, topic: str, now_ms: int) -> TopicMetadata | None:
        """Return ``topic`` if it may be used without a request."""
        known = self.view.topics.get(topic)
        if (
            known is None
            or topic in self._stale
            or known.error is not ErrorCode.NONE
            or now_ms - known.fetched_ms >= self.max_age_ms
        ):
            return None
        return known

    def version_at(self, now_ms: int) -> int:
        """Return a number that is another one when a topic has changed, is stale or has become too old."""
        if now_ms >= self._version_until_ms:
            with self._lock:
                self._version += 1
                ends = (topic.fetched_ms + self.max_age_ms for topic in self.view.topics.values())
                self._version_until_ms = min((end for end in ends if end > now_ms), default=NEVER_MS)
        return self._version

    def fetched_since(self, topics: Collection[str], time_ms: int) -> bool:
        """Return True if all of ``topics`` were fetched after ``time_ms``, and none was invalidated since."""
        known = [self.view.topics.get(topic) for topic in topics]
        return self._stale.isdisjoint(topics) and all(
            topic is not None and topic.fetched_ms > time_ms for topic in known
        )

    def invalidate(self, topic: str) -> None:
        """Mark a topic as stale until the next update that covers it."""
        with self._lock:
            if topic not in self._stale:
                self._stale.add(topic)
                self._version += 1

    def update_leaders(
        self, leaders: Mapping[TopicPartition, LeaderAndEpoch], addresses: Mapping[int, BrokerAddress]
    ) -> None:
        """Take leaders that a broker named in the response to another request."""
        with self._lock:
            self.view = self.view.with_leaders(leaders, addresses)
            self._version += 1

    def update(self, newer: ClusterMetadata, requested: Collection[str] | None) -> ClusterMetadata:
        """Take the response to a request for ``requested`` (None: all topics). Return the new view."""
        with self._lock:
            self._version_until_ms = -1
            if requested is None:
                self.view = self.view.without_older_epochs(newer)
                self._stale.clear()
            else:
                self.view = self.view.merged(newer)
                self._stale.difference_update(requested)
            return self.view


@dataclass(frozen=True, slots=True)
class AutoTopicCreation:
    """Keeps metadata requests from creating topics, unless creation is ``allowed``.

    Brokers with ``auto.create.topics.enable`` create a topic whose metadata is requested by name, unless the
    request forbids it. Brokers before 0.11 do not know that field, so all topics are requested from them.
    """

    allowed: bool

    def request(self, topics: tuple[str, ...] | None, version: int) -> MetadataRequest:
        """Return the request of ``version`` that covers ``topics`` (None: all)."""
        may_name = self.allowed or not topics or version >= ALLOW_AUTO_TOPIC_CREATION_SINCE
        return metadata_request(topics if may_name else None, self.allowed)
