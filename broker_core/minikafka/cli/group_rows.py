"""The rows of ``group list`` and ``group describe``, for groups at brokers and in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.base.times import utc_text
from minikafka.clients.admin.group_stores import OffsetsStorage, StoredGroup
from minikafka.clients.admin.groups import PartitionLag
from minikafka.clients.admin.zookeeper.groups import PartitionOffsets, ZooKeeperGroup, ZooKeeperListing
from minikafka.clients.group.description import GroupDescription

Rows = list[dict[str, object]]

LIST_COLUMNS = ["group", "kind", "state", "members", "assignor", "coordinator"]
KAFKA_COLUMNS = ["topic", "partition", "offset", "end_offset", "lag", "member", "client", "host"]
OFFSET_COLUMNS = ["topic", "partition", "offset", "end_offset", "lag", "owner"]
BOTH_COLUMNS = [*OFFSET_COLUMNS[:2], "offset_zookeeper", "offset_kafka", *OFFSET_COLUMNS[3:]]
"""The columns of a group with offsets in both storages; the larger offset counts."""
SUMMARY_COLUMNS = [*LIST_COLUMNS[:3], "coordinator", "assignor", "members", "partitions", "total_lag"]
MEMBER_COLUMNS = ["kind", "member", "instance", "client", "host", "partitions", "assigned"]
CONSUMER_COLUMNS = ["consumer", "pattern", "subscription", "streams", "partitions", "since"]


def listed(at_brokers: Iterable[GroupDescription], in_zookeeper: Iterable[ZooKeeperListing]) -> Rows:
    """Return a row for each group, by name; a group in both storages has two."""
    rows: Rows = [
        {
            "group": group.group_id,
            "kind": OffsetsStorage.KAFKA.value,
            "state": group.state,
            "members": len(group.members),
            "assignor": group.protocol or None,
            "coordinator": group.coordinator.broker_id,
        }
        for group in at_brokers
    ]
    rows += [
        {
            "group": group.group_id,
            "kind": OffsetsStorage.ZOOKEEPER.value,
            "state": group.state,
            "members": group.consumers,
            "assignor": None,
            "coordinator": None,
        }
        for group in in_zookeeper
    ]
    return sorted(rows, key=lambda row: (str(row["group"]), str(row["kind"])))


def total_lag(lags: Iterable[int | None]) -> int | None:
    """Return the sum of the lags that are known; None if none is."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def summary_rows(found: StoredGroup) -> Rows:
    """Return a row for a group at the brokers, and one for a group of the same name in ZooKeeper."""
    rows: Rows = []
    if found.kafka is not None:
        group, lags = found.kafka, found.lags
        rows.append(
            {
                "group": group.group_id,
                "kind": OffsetsStorage.KAFKA.value,
                "state": group.state,
                "coordinator": group.coordinator.broker_id,
                "assignor": group.protocol or None,
                "members": len(group.members),
                "partitions": len(lags),
                "total_lag": total_lag(lag.lag for lag in lags),
            }
        )
    if found.zookeeper is not None:
        offsets = found.partition_offsets
        rows.append(
            {
                "group": found.zookeeper.group_id,
                "kind": OffsetsStorage.ZOOKEEPER.value,
                "state": found.zookeeper.state,
                "coordinator": None,
                "assignor": None,
                "members": len(found.zookeeper.consumers),
                "partitions": len(offsets),
                "total_lag": total_lag(part.lag for part in offsets),
            }
        )
    return rows


def kafka_title(group: GroupDescription, lags: tuple[PartitionLag, ...]) -> str:
    """Return the line above the table of a group at the brokers, with its lag in all partitions."""
    lag = total_lag(part.lag for part in lags)
    assignor = f", {group.protocol}" if group.protocol else ""
    members = counted(len(group.members), "member")
    title = f"{group.group_id}: {group.state}, {members}{assignor}, coordinated by {group.coordinator}"
    return title if lag is None else f"{title}, total lag {lag}"


def kafka_rows(group: GroupDescription, lags: tuple[PartitionLag, ...]) -> Rows:
    """Return a row for each partition, and one for each member without partitions; one row for a group that
    has neither.
    """
    common: dict[str, object] = {
        "group": group.group_id,
        "kind": OffsetsStorage.KAFKA.value,
        "state": group.state,
        "assignor": group.protocol or None,
        "coordinator": group.coordinator.broker_id,
    }
    places = [(lag, lag.member) for lag in lags]
    idle = [(None, member) for member in group.members if not member.partitions]
    rows: Rows = []
    for lag, member in [*places, *idle] or [(None, None)]:
        rows.append(
            common
            | {
                "topic": lag and lag.topic_partition.topic,
                "partition": lag and lag.topic_partition.partition,
                "offset": lag.committed.offset if lag and lag.committed else None,
                "end_offset": lag and lag.end_offset,
                "lag": lag and lag.lag,
                "member": member and member.member_id,
                "instance": member and member.group_instance_id,
                "client": member and member.client_id,
                "host": member and member.host,
            }
        )
    return rows


def member_rows(zookeeper: ZooKeeperGroup | None, kafka: GroupDescription | None) -> Rows:
    """Return a row for each member of a group in either storage, with the partitions that it has."""
    rows: Rows = []
    for member in kafka.members if kafka else ():
        row: dict[str, object] = {"kind": OffsetsStorage.KAFKA.value, "member": member.member_id}
        row |= {"instance": member.group_instance_id, "client": member.client_id, "host": member.host}
        rows.append(row | _assigned(member.partitions))
    for consumer in zookeeper.consumers if zookeeper else ():
        row = {"kind": OffsetsStorage.ZOOKEEPER.value, "member": consumer.consumer_id}
        row |= {"instance": None, "client": None, "host": None}
        rows.append(row | _assigned(consumer.partitions))
    return rows


def _assigned(partitions: Iterable[TopicPartition]) -> dict[str, object]:
    names = [str(tp) for tp in sorted(partitions)]
    return {"partitions": len(names), "assigned": names}


def zookeeper_title(group: ZooKeeperGroup, found: tuple[PartitionOffsets, ...]) -> str:
    """Return the line above the table of a group in ZooKeeper, with the number of unowned partitions."""
    title = f"{group.group_id}: {group.state}, {counted(len(group.consumers), 'consumer')} in ZooKeeper"
    if not group.consumers:
        return title
    count = sum(offsets.owner is None for offsets in found)
    unowned = f", {counted(count, 'partition')} without an owner" if count else ""
    return f"{title} with {counted(group.streams, 'stream')}{unowned}"


def zookeeper_rows(group: ZooKeeperGroup, found: tuple[PartitionOffsets, ...]) -> Rows:
    """Return a row for each partition, and one for each consumer without partitions; one row for a group that
    has neither.
    """
    common: dict[str, object] = {
        "group": group.group_id,
        "kind": OffsetsStorage.ZOOKEEPER.value,
        "state": group.state,
    }
    places = [(offsets, group.consumer_of(offsets.owner) if offsets.owner else None) for offsets in found]
    idle = [(None, consumer) for consumer in group.consumers if not consumer.partitions]
    rows: Rows = []
    for offsets, consumer in [*places, *idle] or [(None, None)]:
        rows.append(
            common
            | {
                "topic": offsets and offsets.topic_partition.topic,
                "partition": offsets and offsets.topic_partition.partition,
                "offset": offsets and offsets.offset,
                "offset_zookeeper": offsets and offsets.in_zookeeper,
                "offset_kafka": offsets and offsets.in_kafka,
                "end_offset": offsets and offsets.end_offset,
                "lag": offsets and offsets.lag,
                "owner": offsets and offsets.owner,
                "consumer": consumer and consumer.consumer_id,
                "pattern": consumer and consumer.pattern,
                "subscription": consumer and dict(consumer.subscription),
                "streams": consumer and consumer.streams,
            }
        )
    return rows


def offset_columns(found: tuple[PartitionOffsets, ...]) -> list[str]:
    """Return the columns of the table of partitions, with both offsets if both storages have some."""
    both = any(offsets.in_kafka is not None for offsets in found) and any(
        offsets.in_zookeeper is not None for offsets in found
    )
    return BOTH_COLUMNS if both else OFFSET_COLUMNS


def consumer_rows(group: ZooKeeperGroup) -> Rows:
    """Return a row for each live consumer."""
    return [
        {
            "consumer": consumer.consumer_id,
            "pattern": consumer.pattern or None,
            "subscription": list(consumer.subscription),
            "streams": consumer.streams,
            "partitions": len(consumer.partitions),
            "since": utc_text(consumer.since_ms),
        }
        for consumer in group.consumers
    ]
