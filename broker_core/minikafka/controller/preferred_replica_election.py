"""Preferred replica elections: make the first replica of its assignment the leader of a partition."""

from __future__ import annotations

from collections.abc import Collection

from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.context import ControllerContext
from minikafka.controller.deletion import TopicDeletions
from minikafka.controller.effect_batch import EffectBatch


class PreferredReplicaElections:
    """The elections in progress, requested or automatic. Part of the Controller."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._in_progress: dict[TopicPartition, None] = {}
        self._requested: dict[TopicPartition, None] = {}
        """Partitions of ``/admin/preferred_replica_election``, which is removed after the last of them."""

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._in_progress

    def __bool__(self) -> bool:
        return bool(self._in_progress)

    @property
    def is_requested(self) -> bool:
        """Return whether a requested election is in progress."""
        return bool(self._requested)

    def topics(self) -> set[str]:
        """Return the topics of the partitions in progress."""
        return {topic_partition.topic for topic_partition in self._in_progress}

    def start(
        self,
        partitions: Collection[TopicPartition],
        out: EffectBatch,
        deletions: TopicDeletions | None = None,
        *,
        asked: bool = True,
    ) -> list[TopicPartition]:
        """Start the election of ``partitions``; return those that the controller must reconcile.

        Others do not exist, or their topics are in ``deletions``. ``asked``: the request is in ZooKeeper.
        """
        electable = []
        for topic_partition in sorted(partitions):
            if not self._context.has_partition(topic_partition):
                out.add_log_line(
                    f"no preferred election of {topic_partition}: no such partition", warning=True
                )
            elif deletions is not None and topic_partition.topic in deletions:
                out.add_log_line(
                    f"no preferred election of {topic_partition}: its topic will be deleted", warning=True
                )
            else:
                electable.append(topic_partition)
        names = ",".join(_name(key) for key in electable if key not in self._in_progress)
        if names:
            out.add_log_line(f"Starting preferred replica leader election for partitions {names}")
        self._in_progress.update(dict.fromkeys(electable))
        if asked:
            self._requested.update(dict.fromkeys(electable))
        return electable

    def complete(self, topic_partition: TopicPartition, out: EffectBatch) -> None:
        """Log how the election of a partition ended, if there was one: nothing is left to write for it."""
        if topic_partition not in self._in_progress:
            return
        del self._in_progress[topic_partition]
        context, name = self._context, _name(topic_partition)
        known = context.leaderships.get(topic_partition)
        preferred = context.replicas_of(topic_partition)[0]
        if known is not None and known.leader == preferred:
            out.add_log_line(
                f"Partition {name} completed preferred replica leader election. New leader is {preferred}"
            )
        else:
            why = "in sync" if preferred in context.brokers else "alive"
            out.add_log_line(
                f"Partition {name} failed to complete preferred replica leader election. Leader is "
                f"{'none' if known is None else known.leader}; broker {preferred} is not {why}",
                warning=True,
            )
        if topic_partition in self._requested:
            del self._requested[topic_partition]
            if not self._requested:
                out.add_last(events.DropElections("done"))

    def imbalanced_partitions(self, limit_percent: int, topics: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of ``topics`` that the automatic leader rebalance moves.

        For each live broker, look at the partitions that prefer it. If other brokers lead more than
        ``limit_percent`` of these, the result has those that the preferred broker could lead.
        """
        context = self._context
        preferring: dict[int, int] = {}
        led_by_others: dict[int, list[TopicPartition]] = {}
        for topic in topics:
            for topic_partition in context.partitions_of(topic):
                preferred = context.replicas_of(topic_partition)[0]
                preferring[preferred] = preferring.get(preferred, 0) + 1
                known = context.leaderships.get(topic_partition)
                if known is not None and known.leader != preferred:
                    led_by_others.setdefault(preferred, []).append(topic_partition)
        eligible = context.eligible_brokers()
        return [
            topic_partition
            for broker_id, others in led_by_others.items()
            if eligible.is_stable(broker_id) and 100 * len(others) > limit_percent * preferring[broker_id]
            for topic_partition in others
            if broker_id in context.leaderships[topic_partition].isr
        ]


def _name(topic_partition: TopicPartition) -> str:
    """Format a partition as 0.10.1 writes it and text 003 quotes it."""
    return f"[{topic_partition.topic},{topic_partition.partition}]"
