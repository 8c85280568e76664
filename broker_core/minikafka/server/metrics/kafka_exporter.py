"""The metrics of kafka_exporter, from the state of this broker.

A partition is exposed by its leader, one without a leader by the controller, and a group by its coordinator.
So a sum over the brokers counts each once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar

from minikafka.base.errors import RemoteWireError
from minikafka.base.exposition import MetricSink, escape, labels
from minikafka.base.ids import TopicPartition, host_port
from minikafka.groups.group import Group
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.config.metrics import MetricsConfig
from minikafka.server.core.broker import Broker
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.metrics import definitions as d
from minikafka.server.metrics.end_offsets import EndOffsets
from minikafka.server.metrics.zookeeper_groups import ZooKeeperGroups
from minikafka.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment

T = TypeVar("T")

NO_OFFSET = -1
_Row = tuple[Any, ...]
"""Labels, and the values of several metrics."""


class SeriesBudget:
    """The number of series that may still be exposed in one scrape."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.dropped = 0

    def take(self, count: int) -> bool:
        """Return True if there is room for ``count`` more series, which are then counted."""
        if count > self._left:
            self.dropped += count
            return False
        self._left -= count
        return True

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

    def expose(self, out: MetricSink, topics: Mapping[str, str], budget: SeriesBudget) -> None:
        """Add all of them. topics: those with metrics of their own, with their labels."""
        self._expose_brokers(out)
        self._expose_partitions(out, topics, budget)
        self._expose_groups(out, topics, budget)
        if self._broker.controller.active:
            self._expose_zookeeper_groups(out, topics, budget)

    def _expose_brokers(self, out: MetricSink) -> None:
        metadata = self._broker.metadata_cache
        out.add(d.KAFKA_BROKERS, len(metadata.brokers))
        own = metadata.brokers.get(self._broker.broker_id)
        if own is not None and own.endpoints:
            first = own.endpoints[0]
            text = labels(id=self._broker.broker_id, address=host_port(first.host, first.port))
            out.add(d.KAFKA_BROKER_INFO, 1, text)

    def _expose_partitions(self, out: MetricSink, topics: Mapping[str, str], budget: SeriesBudget) -> None:
        broker, metadata = self._broker, self._broker.metadata_cache
        rows: list[_Row] = []
        for (topic, number), partition in list(broker.partitions.items()):
            leadership, topic_text = partition.leadership, topics.get(topic)
            if topic_text is None or leadership is None or leadership.leader != broker.broker_id:
                continue
            offsets = partition.high_watermark, partition.log.start_offset
            rows.append((f'{topic_text},partition="{number}"', *_values(leadership), *offsets))
        leaderless: list[_Row] = []
        if broker.controller.active:
            leaderless = [
                (f'{topic_text},partition="{number}"', *_values(leadership))
                for topic, topic_text in topics.items()
                for number, leadership in metadata.topics[topic].items()
                if leadership.leader < 0
            ]
        rows, leaderless = budget.take_of(rows, len(_OF_LED)), budget.take_of(leaderless, len(_OF_PARTITION))
        # One family for both: its samples must not stand apart.
        out.add_rows(_OF_PARTITION, [*rows, *leaderless])
        out.add_rows(_OF_LED[-2:], [(row[0], *row[-2:]) for row in rows])
        out.add_all(d.TOPIC_PARTITIONS, self._partition_counts(topics))

    def _partition_counts(self, topics: Mapping[str, str]) -> list[tuple[str, float]]:
        """Return the number of partitions of each topic whose first one this broker leads, or whose first one
        has no leader if this broker is the controller.
        """
        broker, metadata = self._broker, self._broker.metadata_cache
        found: list[tuple[str, float]] = []
        for topic, topic_text in topics.items():
            partitions = metadata.topics[topic]
            first = partitions.get(0)
            if first is not None and (
                first.leader == broker.broker_id or (broker.controller.active and first.leader < 0)
            ):
                found.append((topic_text, len(partitions)))
        return found

    def _expose_groups(self, out: MetricSink, topics: Mapping[str, str], budget: SeriesBudget) -> None:
        commits = self._commits(topics)
        ends = self._ends.of(largest_offsets(commits.values()))
        rows: list[_Row] = []
        sums: list[_Row] = []
        for group_id, offsets in commits.items():
            group_text = f'consumergroup="{escape(group_id)}"'
            totals: dict[str, tuple[int, int]] = {}
            for tp, offset in sorted(offsets.items()):
                topic, number = tp
                lag = lag_of(offset, ends.get(tp))
                rows.append((f'{group_text},{topics[topic]},partition="{number}"', offset, lag))
                current_sum, lag_sum = totals.get(topic, (0, 0))
                totals[topic] = current_sum + max(0, offset), lag_sum + max(0, lag)
            sums += [(f"{group_text},{topics[topic]}", *values) for topic, values in totals.items()]
        out.add_rows((d.GROUP_CURRENT_OFFSET, d.GROUP_LAG), budget.take_of(rows, 2))
        out.add_rows((d.GROUP_CURRENT_OFFSET_SUM, d.GROUP_LAG_SUM), budget.take_of(sums, 2))
        out.add_all(d.GROUP_MEMBERS, self._members())

    def _expose_zookeeper_groups(
        self, out: MetricSink, topics: Mapping[str, str], budget: SeriesBudget
    ) -> None:
        rows = [
            (group_id, tp, offset)
            for group_id, offsets in self._zookeeper_groups.offsets().items()
            for tp, offset in sorted(offsets.items())
            if tp.topic in topics
        ]
        ends = self._ends.of(largest_offsets({tp: offset} for _, tp, offset in rows))
        out.add_all(
            d.GROUP_ZOOKEEPER_LAG,
            [
                (
                    labels(consumergroup=group_id, topic=tp.topic, partition=tp.partition),
                    lag_of(offset, ends.get(tp)),
                )
                for group_id, tp, offset in rows
                if budget.take(1)
            ],
        )

    def _commits(self, topics: Container[str]) -> dict[str, dict[TopicPartition, int]]:
        """Return the committed offsets of each group, of topics with metrics.

        A partition that a member reads, and that has no committed offset, has -1.
        """
        config = self._config
        found: dict[str, dict[TopicPartition, int]] = {}
        for shard in list(self._coordinator.shards.values()):
            for group_id, offsets in shard.all_offsets().items():
                if offsets and config.wants_group(group_id):
                    found[group_id] = {tp: offset for tp, offset in offsets.items() if tp.topic in topics}
            for group in shard.groups():
                if group.protocol_type == PROTOCOL_TYPE and config.wants_group(group.group_id):
                    rows = found.setdefault(group.group_id, {})
                    for tp in _assigned(group):
                        if tp.topic in topics:
                            rows.setdefault(tp, NO_OFFSET)
        return found

    def _members(self) -> list[tuple[str, float]]:
        shards = list(self._coordinator.shards.values())
        groups = (group for shard in shards for group in shard.groups())
        return [
            (labels(consumergroup=group.group_id), len(group.members))
            for group in groups
            if self._config.wants_group(group.group_id)
        ]


def _assigned(group: Group) -> list[TopicPartition]:
    """Return the partitions that the members of a group read, as far as their assignments can be read."""
    found: list[TopicPartition] = []
    for member in list(group.members):
        if member.assignment:
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
