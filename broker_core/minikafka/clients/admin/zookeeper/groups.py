"""Administration of groups in ZooKeeper: those of Kafka's consumers of 0.8 to 0.10, and of ours (text 004).

Their members register below ``/consumers/G`` (see ``registry.consumers``). Their offsets are there, at the
brokers (``offsets.storage=kafka``), or in both (``dual.commit.enabled``). ``partition_offsets`` joins both:
the group continues at the larger offset. ``admin.groups`` is for groups at brokers, ``group_stores`` for both
storages together.

As ``kafka-consumer-groups --zookeeper`` of 0.10.1.1, with these differences: the topics of a group include
those with offsets, not only those with owners; a group without ``offsets`` is not an error in a search for
the groups of a topic; and a consumer that joins while its group is deleted keeps its znodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minikafka.base.errors import BrokerError, CoordinationError, ErrorCode, NoNode, NotEmpty
from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.groups import lag_of, no_such_group, non_empty_group
from minikafka.clients.consumer.assignment import construct_topic_count, list_topics
from minikafka.clients.group.description import EMPTY
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import read_offsets, write_offsets
from minikafka.registry.consumers import CONSUMER, ConsumerRegistration, read_owners
from minikafka.registry.store import Store
from minikafka.registry.znodes import Znodes, children, make, remove

ACTIVE = "Active"
"""The state of a group in ZooKeeper with live consumers; without, it is Empty."""


@dataclass(frozen=True, slots=True)
class ZooKeeperListing:
    """A group and the number of its live consumers."""

    group_id: str
    consumers: int

    @property
    def state(self) -> str:
        """``ACTIVE`` or ``EMPTY``."""
        return ACTIVE if self.consumers else EMPTY


@dataclass(frozen=True, slots=True)
class ZooKeeperConsumer:
    """A live consumer. Its streams are unknown if its registration is invalid."""

    consumer_id: str
    subscription: Mapping[str, int]
    """Topic, or the pattern -> number of streams."""
    pattern: str
    """``static``, ``white_list`` or ``black_list``; empty if unknown."""
    since_ms: int
    """The time of its registration; -1 if unknown."""
    topics: tuple[str, ...]
    """The existing topics that it reads, and those that it names."""
    partitions: tuple[TopicPartition, ...]
    """The partitions that its threads own."""

    @property
    def streams(self) -> int:
        """The number of streams of all topics."""
        return sum(self.subscription.values())


@dataclass(frozen=True, slots=True)
class ZooKeeperGroup:
    """The consumers, owners and offsets of a group in ZooKeeper."""

    group_id: str
    consumers: tuple[ZooKeeperConsumer, ...] = ()
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partition -> its owner, ``consumer-thread``."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    partitions: tuple[TopicPartition, ...] = ()
    """All partitions of topics that it reads or has read, sorted; also deleted ones."""

    @property
    def state(self) -> str:
        """``ACTIVE`` or ``EMPTY``."""
        return ACTIVE if self.consumers else EMPTY

    @property
    def streams(self) -> int:
        """The number of streams of all consumers."""
        return sum(consumer.streams for consumer in self.consumers)

    def consumer_of(self, owner: str) -> ZooKeeperConsumer | None:
        """Return the consumer of an owner, ``consumer-thread``, or None."""
        name = owner.rpartition("-")[0]
        return next((consumer for consumer in self.consumers if consumer.consumer_id == name), None)


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets of a group in one partition. None: no such offset, or unknown."""

    topic_partition: TopicPartition
    in_zookeeper: int | None
    in_kafka: int | None
    end_offset: int | None
    owner: str | None

    @property
    def offset(self) -> int | None:
        """The larger of both: the group may no longer use one of the storages."""
        offsets = self.in_zookeeper, self.in_kafka
        return max((offset for offset in offsets if offset is not None), default=None)

    @property
    def lag(self) -> int | None:
        """The number of messages that the group has not read yet: see ``lag_of``."""
        return lag_of(self.offset, self.end_offset)


def partition_offsets(
    group: ZooKeeperGroup, in_kafka: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> tuple[PartitionOffsets, ...]:
    """Return all partitions of a group, sorted, with its offsets at brokers and the log ends."""
    return tuple(
        PartitionOffsets(tp, group.offsets.get(tp), in_kafka.get(tp), ends.get(tp), group.owners.get(tp))
        for tp in sorted({*group.partitions, *in_kafka})
    )


class ZooKeeperGroups:
    """Administration of groups in ZooKeeper. Thread-safe if ``store`` is, which the caller closes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        """Return all groups, sorted."""
        return children(self._store, paths.CONSUMERS)

    def list_groups(self) -> list[ZooKeeperListing]:
        """Return all groups with the numbers of their consumers, by name."""
        return [
            ZooKeeperListing(name, len(children(self._store, paths.consumer_ids_path(name))))
            for name in self.names()
        ]

    def exists(self, group: str) -> bool:
        """Return True if ``group`` has a znode; False for a name that is not valid in a path."""
        try:
            return self._store.exists(paths.consumer_group_path(group)) is not None
        except BrokerError:
            return False

    def describe(self, group: str) -> ZooKeeperGroup:
        """Return the state of ``group``. Raises GROUP_ID_NOT_FOUND if it does not exist."""
        self._check_exists(group)
        owners = read_owners(self._store, group)
        offsets = self.offsets(group)
        consumers = self._consumers(group, owners)
        topics = {tp.topic for tp in (*owners, *offsets)}
        topics.update(children(self._store, paths.consumer_owners_path(group)))
        topics.update(topic for consumer in consumers for topic in consumer.topics)
        known = zookeeper_metadata.assigned(self._store, topics)
        return ZooKeeperGroup(group, consumers, owners, offsets, tuple(sorted({*known, *owners, *offsets})))

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of ``group`` in ZooKeeper."""
        return read_offsets(self._store, group)

    def check_inactive(self, group: str, what: str = "its offsets cannot be set") -> None:
        """Raise NON_EMPTY_GROUP, with what to do, if ``group`` has live consumers."""
        if children(self._store, paths.consumer_ids_path(group)):
            raise non_empty_group(group, what)

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the offsets of ``group``; creates it, as a consumer does, if it does not exist.

        Raises NON_EMPTY_GROUP while it has live consumers, which would overwrite them; also if one joined
        meanwhile.
        """
        self.check_inactive(group)
        write_offsets(self._store, group, offsets)
        # The release's tool finds a group's consumers and topics by these.
        make(self._store, paths.consumer_ids_path(group))
        for topic in sorted({tp.topic for tp in offsets}):
            make(self._store, f"{paths.consumer_owners_path(group)}/{topic}")
        if children(self._store, paths.consumer_ids_path(group)):
            raise _joined_meanwhile(group, "it may have overwritten the offsets")

    def delete(self, group: str) -> None:
        """Delete a group. Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP while it has live consumers."""
        self._check_exists(group)
        ids = paths.consumer_ids_path(group)
        try:
            # ZooKeeper deletes it only if no consumer is registered below it.
            self._store.delete(ids)
        except NoNode:
            pass
        except NotEmpty:
            raise non_empty_group(group, "it cannot be deleted") from None
        whole = paths.consumer_group_path(group)
        for name in children(self._store, whole):
            if name != "ids":
                remove(self._store, f"{whole}/{name}")
        try:
            self._store.delete(whole)
        except NoNode:
            pass
        except NotEmpty:
            raise _joined_meanwhile(group, "its earlier znodes were deleted") from None

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that own, have owned, or have committed offsets of ``topic``, sorted."""
        return [name for name in self.names() if topic in self.topics(name)]

    def topics(self, group: str) -> set[str]:
        """Return the topics of which ``group`` has owners or offsets in ZooKeeper."""
        above = (paths.consumer_owners_path(group), paths.consumer_offsets_path(group))
        return {topic for path in above for topic in children(self._store, path)}

    def delete_topic(self, group: str, topic: str) -> None:
        """Delete the owners and offsets of ``topic`` in ``group``; the whole group if it is its only topic.

        Raises GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION for a topic that is not the group's, and
        NON_EMPTY_GROUP while it has live consumers.
        """
        self._check_exists(group)
        topics = self.topics(group)
        if topic not in topics:
            has = ", ".join(sorted(topics)) or "none"
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"group {group!r} has no offsets or owners of topic {topic!r} in ZooKeeper; it has {has}",
            )
        if topics == {topic}:
            self.delete(group)
            return
        self.check_inactive(group, "its topics cannot be deleted")
        for path in (paths.consumer_owners_path(group), paths.consumer_offsets_path(group)):
            remove(self._store, f"{path}/{topic}")

    def _check_exists(self, group: str) -> None:
        if not self.exists(group):
            raise no_such_group(group, self.names())

    def _consumers(self, group: str, owners: Mapping[TopicPartition, str]) -> tuple[ZooKeeperConsumer, ...]:
        names = children(self._store, paths.consumer_ids_path(group))
        by_path = {paths.consumer_id_path(group, name): name for name in names}
        found = Znodes(self._store).read_all(by_path, CONSUMER)
        owned: dict[str, list[TopicPartition]] = {}
        for tp, owner in sorted(owners.items()):
            owned.setdefault(owner.rpartition("-")[0], []).append(tp)
        known = list_topics(self._store)
        return tuple(
            _consumer(path, found[path][0], tuple(owned.get(name, ())), known)
            if path in found
            else ZooKeeperConsumer(name, {}, "", -1, (), tuple(owned.get(name, ())))
            for path, name in by_path.items()
        )


def _joined_meanwhile(group: str, what: str) -> BrokerError:
    return BrokerError(
        ErrorCode.NON_EMPTY_GROUP,
        f"a consumer joined group {group!r} meanwhile: {what}; stop all its consumers, then repeat this",
    )


def _consumer(
    path: str,
    registration: ConsumerRegistration,
    partitions: tuple[TopicPartition, ...],
    known: Sequence[str],
) -> ZooKeeperConsumer:
    topics: Iterable[str] = ()
    # The topics of a pattern that means something else in Java are unknown.
    with contextlib.suppress(CoordinationError):
        count = construct_topic_count(registration, path, exclude_internal_topics=True, topics=lambda: known)
        topics = count.get_consumer_thread_ids_per_topic()
    return ZooKeeperConsumer(
        path.rpartition("/")[2],
        registration.subscription,
        registration.pattern,
        registration.timestamp_ms,
        tuple(sorted(topics)),
        partitions,
    )
