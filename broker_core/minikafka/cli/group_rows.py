"""The rows of ``group list`` and ``group describe``, of groups at brokers and of those in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.text import counted
from minikafka.cli.output import utc_text
from minikafka.clients.admin.group_stores import OffsetsStorage
from minikafka.clients.admin.groups import PartitionLag
from minikafka.clients.admin.zookeeper.groups import PartitionOffsets, ZooKeeperGroup, ZooKeeperListing
from minikafka.clients.group.description import GroupDescription

Rows = list[dict[str, object]]

LIST_COLUMNS = ["group", "kind", "state", "members", "assignor", "coordinator"]
KAFKA_COLUMNS = ["topic", "partition", "offset", "end_offset", "lag", "member", "client", "host"]
STANDING_COLUMNS = ["topic", "partition", "offset", "end_offset", "lag", "owner"]
BOTH_COLUMNS = [*STANDING_COLUMNS[:2], "offset_zookeeper", "offset_kafka", *STANDING_COLUMNS[3:]]
"""Where a group has offsets in both places: the larger counts."""
CONSUMER_COLUMNS = ["consumer", "pattern", "subscription", "streams", "partitions", "since"]


def listed(at_brokers: Iterable[GroupDescription], in_zookeeper: Iterable[ZooKeeperListing]) -> Rows:
    """A row for each group, by name; one that is in both places has two."""
    rows: Rows = [
        {
            "group": one.group_id,
            "kind": OffsetsStorage.KAFKA.value,
            "state": one.state,
            "members": len(one.members),
            "assignor": one.protocol or None,
            "coordinator": one.coordinator.broker_id,
        }
        for one in at_brokers
    ]
    rows += [
        {
            "group": one.group_id,
            "kind": OffsetsStorage.ZOOKEEPER.value,
            "state": one.state,
            "members": one.consumers,
            "assignor": None,
            "coordinator": None,
        }
        for one in in_zookeeper
    ]
    return sorted(rows, key=lambda row: (str(row["group"]), str(row["kind"])))


def kafka_title(group: GroupDescription) -> str:
    """The line above a group at the brokers."""
    assignor = f", {group.protocol}" if group.protocol else ""
    members = counted(len(group.members), "member")
    return f"{group.group_id}: {group.state}, {members}{assignor}, coordinated by {group.coordinator}"


def kafka_rows(group: GroupDescription, lags: tuple[PartitionLag, ...]) -> Rows:
    """A row for each partition, and one for each member without any; one for a group that has neither."""
    whole = {
        "group": group.group_id,
        "kind": OffsetsStorage.KAFKA.value,
        "state": group.state,
        "assignor": group.protocol or None,
        "coordinator": group.coordinator.broker_id,
    }
    places = [(one, one.member) for one in lags]
    idle = [(None, member) for member in group.members if not member.partitions]
    rows: Rows = []
    for lag, member in [*places, *idle] or [(None, None)]:
        rows.append(
            whole
            | {
                "topic": lag and lag.topic_partition.topic,
                "partition": lag and lag.topic_partition.partition,
                "offset": lag.committed.offset if lag and lag.committed else None,
                "end_offset": lag and lag.end_offset,
                "lag": lag and lag.lag,
                "member": member and member.member_id,
                "client": member and member.client_id,
                "host": member and member.host,
            }
        )
    return rows


def zookeeper_title(group: ZooKeeperGroup, found: tuple[PartitionOffsets, ...]) -> str:
    """The line above a group in ZooKeeper, which tells how many partitions nobody reads."""
    whole = f"{group.group_id}: {group.state}, {counted(len(group.consumers), 'consumer')} in ZooKeeper"
    if not group.consumers:
        return whole
    free = sum(one.owner is None for one in found)
    unowned = f", {counted(free, 'partition')} without an owner" if free else ""
    return f"{whole} with {counted(group.streams, 'stream')}{unowned}"


def zookeeper_rows(group: ZooKeeperGroup, found: tuple[PartitionOffsets, ...]) -> Rows:
    """A row for each partition, and one for each consumer without any; one for a group that has neither."""
    whole = {"group": group.group_id, "kind": OffsetsStorage.ZOOKEEPER.value, "state": group.state}
    places = [(one, group.consumer_of(one.owner) if one.owner else None) for one in found]
    idle = [(None, consumer) for consumer in group.consumers if not consumer.partitions]
    rows: Rows = []
    for one, consumer in [*places, *idle] or [(None, None)]:
        rows.append(
            whole
            | {
                "topic": one and one.topic_partition.topic,
                "partition": one and one.topic_partition.partition,
                "offset": one and one.offset,
                "offset_zookeeper": one and one.in_zookeeper,
                "offset_kafka": one and one.in_kafka,
                "end_offset": one and one.end_offset,
                "lag": one and one.lag,
                "owner": one and one.owner,
                "consumer": consumer and consumer.consumer_id,
                "pattern": consumer and consumer.pattern,
                "subscription": consumer and dict(consumer.subscription),
                "streams": consumer and consumer.streams,
            }
        )
    return rows


def standing_columns(found: tuple[PartitionOffsets, ...]) -> list[str]:
    """What the table of partitions shows: both offsets where there are both."""
    both = any(one.in_kafka is not None for one in found) and any(
        one.in_zookeeper is not None for one in found
    )
    return BOTH_COLUMNS if both else STANDING_COLUMNS


def consumer_rows(group: ZooKeeperGroup) -> Rows:
    """A row for each consumer that lives."""
    return [
        {
            "consumer": one.consumer_id,
            "pattern": one.pattern or None,
            "subscription": list(one.subscription),
            "streams": one.streams,
            "partitions": len(one.partitions),
            "since": utc_text(one.since_ms),
        }
        for one in group.consumers
    ]
