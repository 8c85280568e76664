"""Groups in either storage: at brokers, in ZooKeeper, or in both, as during a migration of offsets (text 000,
"Migrating offsets from ZooKeeper to Kafka").

A change applies to every storage that has the group: a consumer with ``dual.commit.enabled`` continues at the
larger of its two offsets, so that a smaller offset in one storage alone would have no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin, PartitionLag, no_such_group, non_empty_group
from minikafka.clients.admin.zookeeper.groups import (
    PartitionOffsets,
    ZooKeeperGroup,
    ZooKeeperGroups,
    partition_offsets,
)
from minikafka.clients.group.description import EMPTY, GroupDescription


class OffsetsStorage(Enum):
    """The storage of a group, with the values of ``offsets.storage``."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"


OffsetsStorages = tuple[OffsetsStorage, ...]


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group's descriptions in ZooKeeper and at the brokers; None where it does not exist.

    partition_offsets: for a group in ZooKeeper, all its partitions with the offsets in both storages.
    lags: for a group at the brokers.
    """

    zookeeper: ZooKeeperGroup | None
    partition_offsets: tuple[PartitionOffsets, ...]
    kafka: GroupDescription | None
    lags: tuple[PartitionLag, ...]


class GroupStores:
    """The groups of one cluster. ``kafka`` is None if its brokers cannot be reached, ``zookeeper`` if its
    address is not known.

    ``keeps_offsets``: False if the brokers have no offsets topic. They are then not queried, as a request
    would create it.
    """

    def __init__(
        self, kafka: GroupAdmin | None, zookeeper: ZooKeeperGroups | None, *, keeps_offsets: bool = True
    ) -> None:
        self._kafka = kafka
        self._brokers = kafka if keeps_offsets else None
        self._zookeeper = zookeeper

    def names(self) -> list[str]:
        """Return all known groups, sorted."""
        in_zookeeper = self._zookeeper.names() if self._zookeeper else []
        at_brokers = self._brokers.names() if self._brokers else []
        return sorted({*in_zookeeper, *at_brokers})

    def storages_of(self, group: str) -> OffsetsStorages:
        """Return the storages that have ``group``."""
        found: list[OffsetsStorage] = []
        if self._zookeeper and self._zookeeper.exists(group):
            found.append(OffsetsStorage.ZOOKEEPER)
        if self._brokers and (self._brokers.find(group) or self._brokers.offsets(group)):
            found.append(OffsetsStorage.KAFKA)
        return tuple(found)

    def describe(self, group: str) -> StoredGroup:
        """Return the descriptions of ``group``. Raises GROUP_ID_NOT_FOUND if no storage has it."""
        in_zookeeper = self._zookeeper is not None and self._zookeeper.exists(group)
        kafka = self._brokers.find(group) if self._brokers else None
        if not in_zookeeper and kafka is None:
            raise no_such_group(group, self.names())
        lags = self._brokers.lags(kafka) if self._brokers and kafka else ()
        if self._zookeeper is None or not in_zookeeper:
            return StoredGroup(None, (), kafka, lags)
        found = self._zookeeper.describe(group)
        in_kafka = self._in_kafka(group)
        partitions = {*found.partitions, *in_kafka}
        ends = self._kafka.ends(partitions) if self._kafka else {}
        return StoredGroup(found, partition_offsets(found, in_kafka, ends), kafka, lags)

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets at which ``group`` continues: the larger ones of both storages."""
        in_zookeeper = (
            self._zookeeper.offsets(group) if self._zookeeper and self._zookeeper.exists(group) else {}
        )
        in_kafka = self._in_kafka(group)
        return {
            tp: max(in_zookeeper.get(tp, 0), in_kafka.get(tp, 0)) for tp in sorted({*in_zookeeper, *in_kafka})
        }

    def check_inactive(self, group: str, what: str = "its offsets cannot be set") -> None:
        """Raise NON_EMPTY_GROUP if ``group`` has live consumers in either storage."""
        if self._zookeeper and self._zookeeper.exists(group):
            self._zookeeper.check_inactive(group, what)
        found = self._brokers.find(group) if self._brokers else None
        if found is not None and found.state != EMPTY:
            raise non_empty_group(group, what)

    def set_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], storages: OffsetsStorages
    ) -> None:
        """Set the offsets of ``group`` in all ``storages``.

        Raises NON_EMPTY_GROUP while it has live consumers. The brokers are asked first, since they may reject
        the change; if ZooKeeper fails after that, the error says what was written.
        """
        self.check_inactive(group)
        done = ""
        if OffsetsStorage.KAFKA in storages and self._kafka:
            self._kafka.set_offsets(group, offsets)
            done = "its offsets at the brokers were set, those in ZooKeeper may not be"
        if OffsetsStorage.ZOOKEEPER in storages and self._zookeeper:
            try:
                self._zookeeper.set_offsets(group, offsets)
            except MinikafkaError as error:
                if not done:
                    raise
                raise MinikafkaError(f"{error}; {done}: repeat the command") from error

    def delete(self, group: str) -> OffsetsStorages:
        """Delete ``group`` in every storage, and return the storages that had it.

        Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP while it has live consumers. Brokers before 1.1 cannot
        delete groups: UNSUPPORTED_VERSION, after it was deleted in ZooKeeper.
        """
        storages = self.storages_of(group)
        if not storages:
            raise no_such_group(group, self.names())
        self.check_inactive(group, "it cannot be deleted")
        rejected = None
        if OffsetsStorage.KAFKA in storages and self._brokers:
            try:
                self._brokers.delete_group(group)
            except BrokerError as error:
                if (
                    error.code is not ErrorCode.UNSUPPORTED_VERSION
                    or OffsetsStorage.ZOOKEEPER not in storages
                ):
                    raise
                rejected = error
        if OffsetsStorage.ZOOKEEPER in storages and self._zookeeper:
            self._zookeeper.delete(group)
        if rejected is not None:
            raise BrokerError(
                rejected.code,
                f"{rejected.detail}: group {group!r} is deleted in ZooKeeper, its offsets at the brokers "
                "stay",
            )
        return storages

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets of ``topic``, or in ZooKeeper owners, sorted."""
        found = set(self._zookeeper.groups_of(topic) if self._zookeeper else ())
        at_brokers = self._brokers.names() if self._brokers else []
        found.update(name for name in at_brokers if any(tp.topic == topic for tp in self._in_kafka(name)))
        return sorted(found)

    def delete_offsets(
        self, group: str, topic: str, partitions: Collection[int] | None = None
    ) -> OffsetsStorages:
        """Delete the offsets of a topic (None: all) in every storage that has some, and return the storages.

        In ZooKeeper its owners go too, or the whole group if it has no other topic. Raises NON_EMPTY_GROUP
        while live consumers read the topic, and UNKNOWN_TOPIC_OR_PARTITION if there is no such offset.
        Brokers before 2.4 cannot delete single offsets: UNSUPPORTED_VERSION, after ZooKeeper's are deleted.
        """
        wanted = [
            tp
            for tp in self._in_kafka(group)
            if tp.topic == topic and (partitions is None or tp.partition in partitions)
        ]
        in_zookeeper = self._zookeeper is not None and topic in self._zookeeper.topics(group)
        if in_zookeeper and partitions is not None:
            text = f"group {group!r} has topic {topic!r} in ZooKeeper, where only whole topics are deleted"
            raise MinikafkaError(f"{text}; leave out the partitions")
        if not wanted and not in_zookeeper:
            raise self._no_offsets(group, topic)
        rejected = self._delete_in_kafka(group, wanted) if wanted else None
        if rejected is not None and not in_zookeeper:
            raise rejected
        if in_zookeeper and self._zookeeper:
            self._zookeeper.delete_topic(group, topic)
        if rejected is not None:
            text = (
                f"topic {topic!r} of group {group!r} is deleted in ZooKeeper, its offsets at the brokers stay"
            )
            raise BrokerError(rejected.code, f"{rejected.detail}: {text}")
        found = ((OffsetsStorage.ZOOKEEPER, in_zookeeper), (OffsetsStorage.KAFKA, bool(wanted)))
        return tuple(storage for storage, has in found if has)

    def _delete_in_kafka(self, group: str, wanted: list[TopicPartition]) -> BrokerError | None:
        """Delete offsets at the brokers. Return UNSUPPORTED_VERSION if they cannot do so."""
        assert self._brokers is not None, "there are offsets"
        try:
            results = self._brokers.delete_offsets(group, wanted)
        except BrokerError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            return BrokerError(
                error.code, f"{error.detail}; deleting single offsets needs Kafka 2.4 or newer"
            )
        for tp, code in sorted(results.items()):
            if code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                raise non_empty_group(group, f"the offsets of topic {tp.topic!r} cannot be deleted")
            if code is not ErrorCode.NONE:
                raise BrokerError(code, f"deleting the offset of {tp} of group {group!r}")
        return None

    def _no_offsets(self, group: str, topic: str) -> BrokerError:
        if not self.storages_of(group):
            return no_such_group(group, self.names())
        has = {tp.topic for tp in self._in_kafka(group)}
        has.update(self._zookeeper.topics(group) if self._zookeeper else ())
        topics = ", ".join(sorted(has)) or "none"
        text = f"group {group!r} has no such offsets of topic {topic!r}; it has offsets of {topics}"
        return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    def _in_kafka(self, group: str) -> dict[TopicPartition, int]:
        found = self._brokers.offsets(group) if self._brokers else {}
        return {tp: committed.offset for tp, committed in found.items()}
