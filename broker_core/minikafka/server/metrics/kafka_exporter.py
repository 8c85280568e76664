"""The metrics of kafka_exporter, from the state of this broker.

A partition is exposed by its leader, one without a leader by the controller, and a group by its coordinator.
So a sum over the brokers counts each once.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from minikafka.base.errors import RemoteWireError
from minikafka.base.exposition import Exposition, escape, labels
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

NO_OFFSET = -1
_Samples = list[tuple[str, float]]


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


@dataclass(slots=True)
class _Partitions:
    """The samples of partitions, by metric."""

    current: _Samples = field(default_factory=list)
    oldest: _Samples = field(default_factory=list)
    leader: _Samples = field(default_factory=list)
    preferred: _Samples = field(default_factory=list)
    replicas: _Samples = field(default_factory=list)
    in_sync: _Samples = field(default_factory=list)
    under_replicated: _Samples = field(default_factory=list)

    def add(self, text: str, leadership: LeaderAndIsr) -> None:
        self.leader.append((text, leadership.leader))
        self.preferred.append((text, int(leadership.leader == leadership.replicas[0])))
        self.replicas.append((text, len(leadership.replicas)))
        self.in_sync.append((text, len(leadership.isr)))
        self.under_replicated.append((text, int(len(leadership.isr) < len(leadership.replicas))))

    def expose(self, out: Exposition) -> None:
        for metric, samples in (
            (d.CURRENT_OFFSET, self.current),
            (d.OLDEST_OFFSET, self.oldest),
            (d.PARTITION_LEADER, self.leader),
            (d.LEADER_IS_PREFERRED, self.preferred),
            (d.PARTITION_REPLICAS, self.replicas),
            (d.IN_SYNC_REPLICA, self.in_sync),
            (d.UNDER_REPLICATED, self.under_replicated),
        ):
            out.add_all(metric, samples)


_PER_PARTITION = 7
_PER_GROUP_PARTITION = 2


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

    def expose(self, out: Exposition, budget: SeriesBudget) -> None:
        """Add all of them."""
        self._expose_brokers(out)
        self._expose_partitions(out, budget)
        self._expose_groups(out, budget)
        if self._broker.controller.active:
            self._expose_zookeeper_groups(out, budget)

    def _expose_brokers(self, out: Exposition) -> None:
        metadata = self._broker.metadata_cache
        out.add(d.KAFKA_BROKERS, len(metadata.brokers))
        own = metadata.brokers.get(self._broker.broker_id)
        if own is not None and own.endpoints:
            first = own.endpoints[0]
            text = labels(id=self._broker.broker_id, address=host_port(first.host, first.port))
            out.add(d.KAFKA_BROKER_INFO, 1, text)

    def _expose_partitions(self, out: Exposition, budget: SeriesBudget) -> None:
        samples, counts = _Partitions(), list[tuple[str, float]]()
        broker, wants = self._broker, self._config.wants_topic
        metadata = broker.metadata_cache
        is_controller = broker.controller.active
        for topic, partitions in metadata.topics.items():
            if not wants(topic):
                continue
            topic_text = f'topic="{escape(topic)}"'
            for number, leadership in partitions.items():
                partition = broker.partitions.get(TopicPartition(topic, number))
                own = None if partition is None or not partition.is_leader else partition.leadership
                if own is None and not (is_controller and leadership.leader < 0):
                    continue
                if not budget.take(_PER_PARTITION):
                    continue
                text = f'{topic_text},partition="{number}"'
                samples.add(text, own or leadership)
                if own is not None and partition is not None:
                    samples.current.append((text, partition.high_watermark))
                    samples.oldest.append((text, partition.log.start_offset))
            first = partitions.get(0)
            if first is not None and (
                first.leader == broker.broker_id or (is_controller and first.leader < 0)
            ):
                counts.append((topic_text, len(partitions)))
        out.add_all(d.TOPIC_PARTITIONS, counts)
        samples.expose(out)

    def _expose_groups(self, out: Exposition, budget: SeriesBudget) -> None:
        commits = self._commits()
        partitions = {tp for offsets in commits.values() for tp in offsets}
        ends = self._ends.of(partitions) if partitions else {}
        current, lags = list[tuple[str, float]](), list[tuple[str, float]]()
        current_sums, lag_sums = list[tuple[str, float]](), list[tuple[str, float]]()
        for group_id, offsets in commits.items():
            group_text = f'consumergroup="{escape(group_id)}"'
            by_topic: dict[str, list[tuple[int, int]]] = {}
            for tp, offset in offsets.items():
                by_topic.setdefault(tp.topic, []).append((tp.partition, offset))
            for topic, rows in by_topic.items():
                if not budget.take(_PER_GROUP_PARTITION * (len(rows) + 1)):
                    continue
                topic_text = f'{group_text},topic="{escape(topic)}"'
                lag_sum = 0
                for number, offset in sorted(rows):
                    text = f'{topic_text},partition="{number}"'
                    lag = lag_of(offset, ends.get(TopicPartition(topic, number)))
                    current.append((text, offset))
                    lags.append((text, lag))
                    lag_sum += max(0, lag)
                current_sums.append((topic_text, sum(max(0, offset) for _, offset in rows)))
                lag_sums.append((topic_text, lag_sum))
        out.add_all(d.GROUP_CURRENT_OFFSET, current)
        out.add_all(d.GROUP_CURRENT_OFFSET_SUM, current_sums)
        out.add_all(d.GROUP_LAG, lags)
        out.add_all(d.GROUP_LAG_SUM, lag_sums)
        out.add_all(d.GROUP_MEMBERS, self._members())

    def _expose_zookeeper_groups(self, out: Exposition, budget: SeriesBudget) -> None:
        topics, wants = self._broker.metadata_cache.topics, self._config.wants_topic
        rows = [
            (group_id, tp, offset)
            for group_id, offsets in self._zookeeper_groups.offsets().items()
            for tp, offset in sorted(offsets.items())
            if tp.topic in topics and wants(tp.topic)
        ]
        ends = self._ends.of({tp for _, tp, _ in rows}) if rows else {}
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

    def _commits(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the committed offsets of each group, of topics that exist and have metrics.

        A partition that a member reads, and that has no committed offset, has -1.
        """
        config, topics = self._config, self._broker.metadata_cache.topics
        wanted = {topic for topic in topics if config.wants_topic(topic)}
        found: dict[str, dict[TopicPartition, int]] = {}
        for shard in list(self._coordinator.shards.values()):
            for group_id, offsets in shard.all_offsets().items():
                if offsets and config.wants_group(group_id):
                    found[group_id] = {tp: offset for tp, offset in offsets.items() if tp.topic in wanted}
            for group in shard.groups():
                if group.protocol_type == PROTOCOL_TYPE and config.wants_group(group.group_id):
                    rows = found.setdefault(group.group_id, {})
                    for tp in _assigned(group):
                        if tp.topic in wanted:
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


def lag_of(offset: int, end: int | None) -> int:
    """Return the lag of a committed offset; -1 if the end is not known, or before it as in a new topic."""
    return NO_OFFSET if end is None or offset < 0 or end < offset else end - offset
