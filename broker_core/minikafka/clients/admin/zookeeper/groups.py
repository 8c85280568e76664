"""Administration of groups that live in ZooKeeper: Kafka's consumers of 0.8 to 0.10, and ours (text 004).

Their members stand below ``/consumers/G`` (see ``registry.consumers``), their offsets there, at the brokers
(``offsets.storage=kafka``), or in both places (``dual.commit.enabled``). What is known of a partition in both
is put together by ``partition_offsets``: the group goes on at the larger offset. What is at the brokers is
``group_admin``'s, and ``group_stores`` has both together.

As ``kafka-consumer-groups --zookeeper`` of 0.10.1.1, with these differences: a group is its topics with
offsets too, not only those with owners; a group without ``offsets`` is no error where the groups of a topic
are looked for; and a consumer that joins while its group is deleted keeps what it has made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minikafka.base.errors import BrokerError, CoordinationError, ErrorCode, NodeExists, NoNode, NotEmpty
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.groups import active, no_such_group
from minikafka.clients.consumer.assignment import list_topics, parse_topic_count
from minikafka.clients.group.description import EMPTY
from minikafka.registry import paths
from minikafka.registry.brokers import live_brokers
from minikafka.registry.consumers import children, read_offsets, write_offsets
from minikafka.registry.paths import ConsumerRegistration
from minikafka.registry.store import Store

ACTIVE = "Active"
"""The state of a group in ZooKeeper that has consumers; without, it is Empty."""


@dataclass(frozen=True, slots=True)
class ZooKeeperListing:
    """A group, and how many consumers of it live."""

    group_id: str
    consumers: int

    @property
    def state(self) -> str:
        """``ACTIVE`` or ``EMPTY``."""
        return ACTIVE if self.consumers else EMPTY


@dataclass(frozen=True, slots=True)
class ZooKeeperConsumer:
    """A consumer that lives. Nothing is known of its streams where its registration makes no sense."""

    consumer_id: str
    subscription: Mapping[str, int]
    """Topic, or the one pattern -> number of streams."""
    pattern: str
    """``static``, ``white_list`` or ``black_list``; empty where nothing is known."""
    since_ms: int
    """When it registered; -1 where nothing is known."""
    topics: tuple[str, ...]
    """What it reads of the topics that there are, and those that it names."""
    partitions: tuple[TopicPartition, ...]
    """What its threads own."""

    @property
    def streams(self) -> int:
        """Of all topics together."""
        return sum(self.subscription.values())


@dataclass(frozen=True, slots=True)
class ZooKeeperGroup:
    """All that a group has in ZooKeeper."""

    group_id: str
    consumers: tuple[ZooKeeperConsumer, ...] = ()
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partition -> the thread that owns it, ``consumer-thread``."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    partitions: tuple[TopicPartition, ...] = ()
    """All partitions of the topics that it reads or has read, sorted; those too that are there no more."""

    @property
    def state(self) -> str:
        """``ACTIVE`` or ``EMPTY``."""
        return ACTIVE if self.consumers else EMPTY

    @property
    def streams(self) -> int:
        """Of all consumers together."""
        return sum(one.streams for one in self.consumers)

    def consumer_of(self, owner: str) -> ZooKeeperConsumer | None:
        """The consumer that an owner, ``consumer-thread``, is a thread of."""
        name = owner.rpartition("-")[0]
        return next((one for one in self.consumers if one.consumer_id == name), None)


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """How far a group is in one partition. None: no such offset, or nobody told."""

    topic_partition: TopicPartition
    in_zookeeper: int | None
    in_kafka: int | None
    end_offset: int | None
    owner: str | None

    @property
    def offset(self) -> int | None:
        """The larger of both: one of the places may be one that the group has left behind."""
        return max((one for one in (self.in_zookeeper, self.in_kafka) if one is not None), default=None)

    @property
    def lag(self) -> int | None:
        """Messages that the group has not read yet."""
        if self.offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.offset)


def partition_offsets(
    group: ZooKeeperGroup, in_kafka: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> tuple[PartitionOffsets, ...]:
    """All partitions of a group, sorted; with what brokers keep of its offsets, and the ends of the logs."""
    return tuple(
        PartitionOffsets(tp, group.offsets.get(tp), in_kafka.get(tp), ends.get(tp), group.owners.get(tp))
        for tp in sorted({*group.partitions, *in_kafka})
    )


def live_addresses(store: Store) -> list[BrokerAddress]:
    """Where the brokers that live take plain text, by their ids."""
    found = (one.address for _, one in sorted(live_brokers(store).items()))
    return [address for address in found if address is not None]


class ZooKeeperGroups:
    """Thread-safe where ``store`` is; owns nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        """All groups, sorted."""
        return children(self._store, paths.CONSUMERS)

    def list_groups(self) -> list[ZooKeeperListing]:
        """All groups with the number of their consumers, by name."""
        return [
            ZooKeeperListing(name, len(children(self._store, paths.consumer_ids_path(name))))
            for name in self.names()
        ]

    def exists(self, group: str) -> bool:
        """Whether there is anything of ``group``; a name that no path can have is no group here."""
        try:
            return self._store.exists(paths.consumer_group_path(group)) is not None
        except BrokerError:
            return False

    def describe(self, group: str) -> ZooKeeperGroup:
        """All that ``group`` has. GROUP_ID_NOT_FOUND where there is none."""
        self._check_exists(group)
        owners = self._owners(group)
        offsets = self.offsets(group)
        consumers = self._consumers(group, owners)
        topics = {tp.topic for tp in (*owners, *offsets)}
        topics.update(children(self._store, paths.consumer_owners_path(group)))
        topics.update(topic for one in consumers for topic in one.topics)
        known = zookeeper_metadata.assigned(self._store, topics)
        return ZooKeeperGroup(group, consumers, owners, offsets, tuple(sorted({*known, *owners, *offsets})))

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """What ``group`` has committed in ZooKeeper."""
        return read_offsets(self._store, group)

    def check_inactive(self, group: str, what: str = "its offsets cannot be set") -> None:
        """NON_EMPTY_GROUP, with what to do, where consumers of ``group`` live."""
        if children(self._store, paths.consumer_ids_path(group)):
            raise active(group, what)

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let ``group`` go on there; made as a consumer makes it where there is none.

        NON_EMPTY_GROUP while consumers live, who would commit over it; also where one came meanwhile.
        """
        self.check_inactive(group)
        write_offsets(self._store, group, offsets)
        # The release's tool finds a group's consumers and topics by these.
        self._create_parents(paths.consumer_ids_path(group))
        for topic in sorted({tp.topic for tp in offsets}):
            self._create_parents(f"{paths.consumer_owners_path(group)}/{topic}")
        if children(self._store, paths.consumer_ids_path(group)):
            raise _joined_meanwhile(group, "it may go on elsewhere")

    def delete(self, group: str) -> None:
        """Remove a group. GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP while consumers of it live."""
        self._check_exists(group)
        ids = paths.consumer_ids_path(group)
        try:
            # It goes only when nobody is registered below it: ZooKeeper itself decides.
            self._store.delete(ids)
        except NoNode:
            pass
        except NotEmpty:
            raise active(group, "it cannot be deleted") from None
        whole = paths.consumer_group_path(group)
        for name in children(self._store, whole):
            if name != "ids":
                self._delete(f"{whole}/{name}")
        try:
            self._store.delete(whole)
        except NoNode:
            pass
        except NotEmpty:
            raise _joined_meanwhile(group, "what it had is deleted") from None

    def groups_of(self, topic: str) -> list[str]:
        """The groups that own, or have owned, or have committed offsets of ``topic``, sorted."""
        return [name for name in self.names() if topic in self.topics(name)]

    def topics(self, group: str) -> set[str]:
        """Those that ``group`` has anything of in ZooKeeper."""
        above = (paths.consumer_owners_path(group), paths.consumer_offsets_path(group))
        return {topic for path in above for topic in children(self._store, path)}

    def delete_topic(self, group: str, topic: str) -> None:
        """Remove what ``group`` has of ``topic``; the whole group where that is all that it has.

        GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION for a topic that it has nothing of, and
        NON_EMPTY_GROUP while consumers of it live.
        """
        self._check_exists(group)
        topics = self.topics(group)
        if topic not in topics:
            has = ", ".join(sorted(topics)) or "none"
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"group {group!r} has nothing of topic {topic!r} in ZooKeeper; its topics are {has}",
            )
        if topics == {topic}:
            self.delete(group)
            return
        self.check_inactive(group, "nothing of it can be deleted")
        for path in (paths.consumer_owners_path(group), paths.consumer_offsets_path(group)):
            self._delete(f"{path}/{topic}")

    def _check_exists(self, group: str) -> None:
        if not self.exists(group):
            raise no_such_group(group, self.names())

    def _owners(self, group: str) -> dict[TopicPartition, str]:
        above = paths.consumer_owners_path(group)
        places = {
            paths.consumer_owner_path(group, topic, int(number)): TopicPartition(topic, int(number))
            for topic in children(self._store, above)
            for number in children(self._store, f"{above}/{topic}")
            if number.isdecimal()
        }
        found = self._store.read_all(places)
        return {places[path]: data.decode("utf-8", "replace") for path, (data, _) in found.items()}

    def _consumers(self, group: str, owners: Mapping[TopicPartition, str]) -> tuple[ZooKeeperConsumer, ...]:
        names = children(self._store, paths.consumer_ids_path(group))
        found = self._store.read_all(paths.consumer_id_path(group, name) for name in names)
        owned: dict[str, list[TopicPartition]] = {}
        for tp, owner in sorted(owners.items()):
            owned.setdefault(owner.rpartition("-")[0], []).append(tp)
        known = list_topics(self._store)
        return tuple(_consumer(path, data, owned, known) for path, (data, _) in sorted(found.items()))

    def _create_parents(self, path: str) -> None:
        with contextlib.suppress(NodeExists):
            self._store.create(path, make_parents=True)

    def _delete(self, path: str) -> None:
        with contextlib.suppress(NoNode):
            self._store.delete(path, recursive=True)


def _joined_meanwhile(group: str, what: str) -> BrokerError:
    return BrokerError(
        ErrorCode.NON_EMPTY_GROUP,
        f"a consumer joined group {group!r} meanwhile: {what}; do it again when all of them have stopped",
    )


def _consumer(
    path: str, data: bytes, owned: Mapping[str, Iterable[TopicPartition]], known: Sequence[str]
) -> ZooKeeperConsumer:
    name = path.rpartition("/")[2]
    partitions = tuple(owned.get(name, ()))
    try:
        told = ConsumerRegistration.from_json(data, path)
    except CoordinationError:
        return ZooKeeperConsumer(name, {}, "", -1, (), partitions)
    topics: Iterable[str] = ()
    # A pattern that means something else in Java tells nothing of topics.
    with contextlib.suppress(CoordinationError):
        count = parse_topic_count(data, path, exclude_internal_topics=True, topics=lambda: known)
        topics = count.get_consumer_thread_ids_per_topic()
    return ZooKeeperConsumer(
        name, told.subscription, told.pattern, told.timestamp_ms, tuple(sorted(topics)), partitions
    )
