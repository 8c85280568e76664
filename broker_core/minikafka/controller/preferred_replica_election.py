"""Preferred elections: partitions that are to be led by the first replica of their assignment."""

from __future__ import annotations

from collections.abc import Collection

from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.context import Context
from minikafka.controller.effect_batch import Outbox


class PreferredElections:
    """The elections under way, asked for or automatic. Part of the Controller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._under_way: dict[TopicPartition, None] = {}
        self._asked: dict[TopicPartition, None] = {}
        """Those of ``/admin/preferred_replica_election``, which goes with the last of them."""

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._under_way

    def __bool__(self) -> bool:
        return bool(self._under_way)

    @property
    def asked(self) -> bool:
        """Whether an election that was asked for is under way."""
        return bool(self._asked)

    def topics(self) -> set[str]:
        """The topics of the partitions under way."""
        return {topic_partition.topic for topic_partition in self._under_way}

    def start(self, partitions: Collection[TopicPartition], out: Outbox, *, asked: bool) -> None:
        """Begin the election of these, which the controller then settles one by one."""
        names = ",".join(_name(key) for key in partitions if key not in self._under_way)
        if names:
            out.note(f"Starting preferred replica leader election for partitions {names}")
        self._under_way.update(dict.fromkeys(partitions))
        if asked:
            self._asked.update(dict.fromkeys(partitions))

    def conclude(self, topic_partition: TopicPartition, out: Outbox) -> None:
        """Nothing is left to write for a partition: say how its election ended, if there was one."""
        if topic_partition not in self._under_way:
            return
        del self._under_way[topic_partition]
        context, name = self._context, _name(topic_partition)
        known = context.leaderships.get(topic_partition)
        preferred = context.replicas_of(topic_partition)[0]
        if known is not None and known.leader == preferred:
            out.note(
                f"Partition {name} completed preferred replica leader election. New leader is {preferred}"
            )
        else:
            why = "in sync" if preferred in context.brokers else "alive"
            out.note(
                f"Partition {name} failed to complete preferred replica leader election. Leader is "
                f"{'none' if known is None else known.leader}; broker {preferred} is not {why}",
                warning=True,
            )
        if topic_partition in self._asked:
            del self._asked[topic_partition]
            if not self._asked:
                out.finally_do(events.DropElections("done"))

    def overdue(self, limit_percent: int, eligible: Collection[str]) -> list[TopicPartition]:
        """What the automatic election moves, of the ``eligible`` topics.

        Of each live broker, if others lead more than the limit of the partitions that prefer it: those of
        them that it could lead.
        """
        context = self._context
        preferring: dict[int, int] = {}
        led_by_others: dict[int, list[TopicPartition]] = {}
        for topic in eligible:
            for topic_partition in context.partitions_of(topic):
                preferred = context.replicas_of(topic_partition)[0]
                preferring[preferred] = preferring.get(preferred, 0) + 1
                known = context.leaderships.get(topic_partition)
                if known is not None and known.leader != preferred:
                    led_by_others.setdefault(preferred, []).append(topic_partition)
        electorate = context.electorate()
        return [
            topic_partition
            for broker_id, others in led_by_others.items()
            if electorate.is_sure(broker_id) and 100 * len(others) > limit_percent * preferring[broker_id]
            for topic_partition in others
            if broker_id in context.leaderships[topic_partition].isr
        ]


def _name(topic_partition: TopicPartition) -> str:
    """As the release writes it, and text 003 quotes it."""
    return f"[{topic_partition.topic},{topic_partition.partition}]"
