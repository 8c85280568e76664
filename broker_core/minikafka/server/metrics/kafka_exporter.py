"""The metrics of kafka_exporter, from the state of this broker.

A partition is exposed by its leader, one without a leader by the controller, and a group by its coordinator.
So a sum over the brokers counts each once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from minikafka.base.errors import RemoteWireError
from minikafka.base.exposition import MetricSink
from minikafka.base.ids import TopicPartition, host_port
from minikafka.groups.group import Group
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.config.metrics import MetricsConfig
from minikafka.server.core.broker import Broker
from minikafka.server.core.metadata_cache import MetadataCache
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.metrics import definitions as d
from minikafka.server.metrics.end_offsets import EndOffsets
from minikafka.server.metrics.zookeeper_groups import ZooKeeperGroups
from minikafka.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment

T = TypeVar("T")

NO_OFFSET = -1
_Row = tuple[Any, ...]
"""The values of labels, and those of several metrics."""


class SeriesBudget:
    """The number of series that may still be exposed in one scrape."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.dropped = 0

    def take_of(self, rows: list[T], width: int) -> list[T]:
        """Return the rows for which there is room, each of ``width`` series, which are then counted."""
        count = min(len(rows), self._left // width) if width else len(rows)
        self._left -= count * width
        self.dropped += (len(rows) - count) * width
        return rows if count == len(rows) else rows[:count]


_OF_PARTITION = (
    d.PARTITION_LEADER,
    d.LEADER_IS_PREFERRED,
    d.PARTITION_REPLICAS,
    d.IN_SYNC_REPLICA,
    d.UNDER_REPLICATED,
)
_OF_LED = (*_OF_PARTITION, d.CURRENT_OFFSET, d.OLDEST_OFFSET)


def _values(leadership: LeaderAndIsr) -> tuple[int, int, int, int, int]:
    """Return the values of ``_OF_PARTITION``."""
    leader, replicas, isr = leadership.leader, leadership.replicas, leadership.isr
    return leader, int(leader == replicas[0]), len(replicas), len(isr), int(len(isr) < len(replicas))


@dataclass(frozen=True, slots=True)
class Scrape:
    """The state of the cluster for one scrape, and its output."""

    out: MetricSink
    metadata: MetadataCache
    topics: Mapping[str, Mapping[int, LeaderAndIsr]]
    """Those of ``metadata`` with metrics of their own."""
    budget: SeriesBudget

    def has(self, topic_partition: TopicPartition) -> bool:
        """Return True for a partition that exists and has metrics of its own."""
        topic, number = topic_partition
        return number in self.topics.get(topic, ())


_ASSIGNMENT_BYTES_MAX = 1 << 18
"""The largest assignment that is read: it names 60,000 partitions."""


class KafkaExporter:
    """Exposes brokers, partitions and groups under the names of kafka_exporter."""

    def __init__(
        self,
        broker: Broker,
        coordinator: GroupCoordinator,
        ends: EndOffsets,
        zookeeper_groups: ZooKeeperGroups,
        config: MetricsConfig,
    ) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._ends = ends
        self._zookeeper_groups = zookeeper_groups
        self._config = config

    def expose_partitions(self, scrape: Scrape) -> None:
        """Add brokers, topics and partitions."""
        out, broker, topics = scrape.out, self._broker, scrape.topics
        self._expose_brokers(out)
        rows: list[_Row] = []
        held_back: list[_Row] = []
        for topic_partition, partition in list(broker.partitions.items()):
            leadership = partition.leadership
            if leadership is None or leadership.leader != broker.broker_id:
                continue
            if topic_partition.topic not in topics:
                continue
            offsets = partition.high_watermark, partition.log.start_offset
            rows.append((topic_partition, *_values(leadership), *offsets))
            # Of the same high watermark, so that their difference stays while the last stable offset does.
            stable_lag = offsets[0] - partition.last_stable_offset
            if stable_lag > 0:
                held_back.append((topic_partition, stable_lag))
        leaderless: list[_Row] = []
        if broker.controller.active:
            leaderless = [
                ((topic, number), *_values(leadership))
                for topic, partitions in topics.items()
                for number, leadership in partitions.items()
                if leadership.leader < 0
            ]
        take = scrape.budget.take_of
        out.add_rows((d.TOPIC_PARTITIONS,), take(self._partition_counts(scrape), 1))
        rows, leaderless = take(rows, len(_OF_LED)), take(leaderless, len(_OF_PARTITION))
        if leaderless:
            # One family for both: its samples must not stand apart.
            out.add_rows(_OF_PARTITION, [*rows, *leaderless])
            out.add_rows(_OF_LED[-2:], [(row[0], *row[-2:]) for row in rows])
        else:
            out.add_rows(_OF_LED, rows)
        out.add_rows((d.LAST_STABLE_OFFSET_LAG,), take(held_back, 1))

    def _expose_brokers(self, out: MetricSink) -> None:
        metadata = self._broker.metadata_cache
        out.add(d.KAFKA_BROKERS, len(metadata.brokers))
        own = metadata.brokers.get(self._broker.broker_id)
        if own is not None and own.endpoints:
            first = own.endpoints[0]
            out.add(d.KAFKA_BROKER_INFO, 1, self._broker.broker_id, host_port(first.host, first.port))

    def _partition_counts(self, scrape: Scrape) -> list[_Row]:
        """Return the number of partitions of each topic whose first one this broker leads, or whose first one
        has no leader if this broker is the controller.
        """
        broker, found = self._broker, list[_Row]()
        for topic, partitions in scrape.topics.items():
            first = partitions.get(0)
            if first is not None and (
                first.leader == broker.broker_id or (broker.controller.active and first.leader < 0)
            ):
                found.append(((topic,), len(partitions)))
        return found

    def expose_groups(self, scrape: Scrape) -> None:
        """Add groups. What clients can make any number of comes last: it leaves the others their series."""
        out, take = scrape.out, scrape.budget.take_of
        out.add_rows((d.GROUP_MEMBERS,), take(self._members(), 1))
        commits = self._commits(scrape)
        ends = self._ends.of(largest_offsets(commits.values()))
        rows: list[_Row] = []
        current_sums: list[_Row] = []
        lag_sums: list[_Row] = []
        for group_id, offsets in commits.items():
            totals: dict[str, tuple[int, int]] = {}
            unknown: set[str] = set()
            for tp, offset in sorted(offsets.items()):
                topic, number = tp
                end = ends.get(tp)
                lag = lag_of(offset, end)
                rows.append(((group_id, topic, number), offset, lag))
                current_sum, lag_sum = totals.get(topic, (0, 0))
                totals[topic] = current_sum + max(0, offset), lag_sum + max(0, lag)
                if end is None:
                    unknown.add(topic)
            current_sums += [((group_id, topic), total) for topic, (total, _) in totals.items()]
            # A sum without one of its parts would look like progress.
            lag_sums += [
                ((group_id, topic), lag_sum) for topic, (_, lag_sum) in totals.items() if topic not in unknown
            ]
        out.add_rows((d.GROUP_CURRENT_OFFSET_SUM,), take(current_sums, 1))
        out.add_rows((d.GROUP_LAG_SUM,), take(lag_sums, 1))
        out.add_rows((d.GROUP_CURRENT_OFFSET, d.GROUP_LAG), take(rows, 2))
        if self._broker.controller.active:
            self._expose_zookeeper_groups(scrape)

    def _expose_zookeeper_groups(self, scrape: Scrape) -> None:
        found = [
            (group_id, tp, offset)
            for group_id, offsets in self._zookeeper_groups.offsets().items()
            for tp, offset in sorted(offsets.items())
            if scrape.has(tp)
        ]
        ends = self._ends.of(largest_offsets({tp: offset} for _, tp, offset in found))
        rows = [((group_id, *tp), lag_of(offset, ends.get(tp))) for group_id, tp, offset in found]
        scrape.out.add_rows((d.GROUP_ZOOKEEPER_LAG,), scrape.budget.take_of(rows, 1))

    def _commits(self, scrape: Scrape) -> dict[str, dict[TopicPartition, int]]:
        """Return the committed offsets of each group, of partitions that exist and have metrics.

        A partition that a member reads, and that has no committed offset, has -1.
        """
        wants_group = self._config.wants_group
        found: dict[str, dict[TopicPartition, int]] = {}
        for shard in list(self._coordinator.shards.values()):
            for group_id, offsets in shard.all_offsets().items():
                if offsets and wants_group(group_id):
                    found[group_id] = {tp: offset for tp, offset in offsets.items() if scrape.has(tp)}
            for group in shard.groups():
                if group.protocol_type == PROTOCOL_TYPE and wants_group(group.group_id):
                    rows = found.setdefault(group.group_id, {})
                    for tp in _assigned(group):
                        if scrape.has(tp):
                            rows.setdefault(tp, NO_OFFSET)
        return found

    def _members(self) -> list[_Row]:
        shards = list(self._coordinator.shards.values())
        groups = (group for shard in shards for group in shard.groups())
        return [
            ((group.group_id,), len(group.members))
            for group in groups
            if self._config.wants_group(group.group_id)
        ]


def _assigned(group: Group) -> list[TopicPartition]:
    """Return the partitions that the members of a group read, as far as their assignments can be read.

    These are bytes of clients: they may name anything.
    """
    found: list[TopicPartition] = []
    for member in list(group.members):
        if 0 < len(member.assignment) <= _ASSIGNMENT_BYTES_MAX:
            with contextlib.suppress(RemoteWireError):
                for row in decode_assignment(member.assignment).assigned_partitions:
                    found += [TopicPartition(row.topic, number) for number in row.partitions]
    return found


def largest_offsets(offsets: Iterable[Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    """Return the largest offset of each partition."""
    largest: dict[TopicPartition, int] = {}
    for of_group in offsets:
        for topic_partition, offset in of_group.items():
            largest[topic_partition] = max(offset, largest.get(topic_partition, NO_OFFSET))
    return largest


def lag_of(offset: int, end: int | None) -> int:
    """Return the lag of a committed offset; -1 if the end is not known, or before it as in a new topic."""
    return NO_OFFSET if end is None or offset < 0 or end < offset else end - offset
