"""Groups wherever they are: at brokers, in ZooKeeper, or in both, as one whose offsets are on the way to the
brokers (text 000, "Migrating offsets from ZooKeeper to Kafka").

What is changed is changed wherever the group is: a consumer with ``dual.commit.enabled`` goes on at the
larger of its two offsets, so that one set back in one place alone would have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin, PartitionLag, active, no_such_group
from minikafka.clients.admin.zookeeper.groups import (
    PartitionOffsets,
    ZooKeeperGroup,
    ZooKeeperGroups,
    partition_offsets,
)
from minikafka.clients.group.description import EMPTY, GroupDescription


class OffsetsStorage(Enum):
    """Where a group is, in the words of ``offsets.storage``."""

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
    """One cluster's groups. ``kafka`` is None where its brokers cannot be asked, ``zookeeper`` where nobody
    said where it is.

    ``keeps_offsets`` is whether the brokers have a topic for offsets: where not, they are not asked, as the
    question would make it.
    """

    def __init__(
        self, kafka: GroupAdmin | None, zookeeper: ZooKeeperGroups | None, *, keeps_offsets: bool = True
    ) -> None:
        self._kafka = kafka
        self._brokers = kafka if keeps_offsets else None
        self._zookeeper = zookeeper

    def names(self) -> list[str]:
        """All groups that are known, sorted."""
        in_zookeeper = self._zookeeper.names() if self._zookeeper else []
        at_brokers = self._brokers.names() if self._brokers else []
        return sorted({*in_zookeeper, *at_brokers})

    def storages_of(self, group: str) -> OffsetsStorages:
        """Where ``group`` is."""
        found: list[OffsetsStorage] = []
        if self._zookeeper and self._zookeeper.exists(group):
            found.append(OffsetsStorage.ZOOKEEPER)
        if self._brokers and (self._brokers.find(group) or self._brokers.offsets(group)):
            found.append(OffsetsStorage.KAFKA)
        return tuple(found)

    def describe(self, group: str) -> StoredGroup:
        """All that is known of ``group``. GROUP_ID_NOT_FOUND where it is nowhere."""
        there = self._zookeeper is not None and self._zookeeper.exists(group)
        kafka = self._brokers.find(group) if self._brokers else None
        if not there and kafka is None:
            raise no_such_group(group, self.names())
        lags = self._brokers.lags(kafka) if self._brokers and kafka else ()
        if self._zookeeper is None or not there:
            return StoredGroup(None, (), kafka, lags)
        found = self._zookeeper.describe(group)
        in_kafka = self._in_kafka(group)
        partitions = {*found.partitions, *in_kafka}
        ends = self._kafka.ends(partitions) if self._kafka else {}
        return StoredGroup(found, partition_offsets(found, in_kafka, ends), kafka, lags)

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """Where ``group`` goes on: the larger of its offsets in both places."""
        in_zookeeper = (
            self._zookeeper.offsets(group) if self._zookeeper and self._zookeeper.exists(group) else {}
        )
        in_kafka = self._in_kafka(group)
        return {
            tp: max(in_zookeeper.get(tp, 0), in_kafka.get(tp, 0)) for tp in sorted({*in_zookeeper, *in_kafka})
        }

    def check_inactive(self, group: str, what: str = "its offsets cannot be set") -> None:
        """NON_EMPTY_GROUP where consumers of ``group`` live, in either place."""
        if self._zookeeper and self._zookeeper.exists(group):
            self._zookeeper.check_inactive(group, what)
        found = self._brokers.find(group) if self._brokers else None
        if found is not None and found.state != EMPTY:
            raise active(group, what)

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int], places: OffsetsStorages) -> None:
        """Let ``group`` go on there, in all ``places``. NON_EMPTY_GROUP while consumers of it live.

        Brokers come first, who may refuse; what was written by then is told in the error.
        """
        self.check_inactive(group)
        done = ""
        if OffsetsStorage.KAFKA in places and self._kafka:
            self._kafka.set_offsets(group, offsets)
            done = "its offsets at the brokers were set, those in ZooKeeper may not be"
        if OffsetsStorage.ZOOKEEPER in places and self._zookeeper:
            try:
                self._zookeeper.set_offsets(group, offsets)
            except MinikafkaError as error:
                if not done:
                    raise
                raise MinikafkaError(f"{error}; {done}: do it again") from error

    def delete(self, group: str) -> OffsetsStorages:
        """Remove ``group`` wherever it is, and tell where that was.

        GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP while consumers of it live. Brokers before 1.1 delete no
        groups: UNSUPPORTED_VERSION, after it was deleted in ZooKeeper.
        """
        places = self.storages_of(group)
        if not places:
            raise no_such_group(group, self.names())
        self.check_inactive(group, "it cannot be deleted")
        refused = None
        if OffsetsStorage.KAFKA in places and self._brokers:
            try:
                self._brokers.delete_group(group)
            except BrokerError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION or OffsetsStorage.ZOOKEEPER not in places:
                    raise
                refused = error
        if OffsetsStorage.ZOOKEEPER in places and self._zookeeper:
            self._zookeeper.delete(group)
        if refused is not None:
            told = (
                f"{refused.detail}: group {group!r} is deleted in ZooKeeper, its offsets at the brokers stay"
            )
            raise BrokerError(refused.code, told)
        return places

    def has_in_kafka(self, group: str, topic: str) -> bool:
        """Whether the brokers keep offsets of ``topic`` for ``group``."""
        return any(tp.topic == topic for tp in self._in_kafka(group))

    def _in_kafka(self, group: str) -> dict[TopicPartition, int]:
        found = self._brokers.offsets(group) if self._brokers else {}
        return {tp: one.offset for tp, one in found.items()}
