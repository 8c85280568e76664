"""Topics that are being deleted (``TopicDeletionManager`` of 0.10.1).

A deletion waits until no reassignment and no preferred election of the topic is under way, and until few
enough replicas of others are being deleted. Then the brokers
forget the topic, and each live replica is deleted. What a broker could not delete, or what lies on a dead
one, waits for the broker. The topic's znodes go after the last replica, so that none can come back with it.
"""

from __future__ import annotations

from collections.abc import Collection

from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.context import Context
from minikafka.controller.effect_batch import EffectBatch
from minikafka.controller.states import PartitionStatus, ReplicaStatus

REPLICAS_AT_ONCE = 100
"""Replicas that are being deleted while another topic's deletion is started."""


class TopicDeletions:
    """The deletions that wait or are under way. Part of the Controller."""

    def __init__(self, context: Context, *, enabled: bool) -> None:
        self._context = context
        self._enabled = enabled
        self._waiting: dict[str, None] = {}
        self._remaining: dict[str, set[tuple[int, TopicPartition]]] = {}
        """Topic -> replicas that are still there."""
        self._in_flight: set[tuple[int, TopicPartition]] = set()
        """Replicas that a broker which lives was told to delete, and has not answered for."""

    def __contains__(self, topic: str) -> bool:
        return topic in self._waiting or topic in self._remaining

    def is_under_way(self, topic: str) -> bool:
        """Return whether a topic's deletion has begun: nobody leads it any more."""
        return topic in self._remaining

    def has_room(self) -> bool:
        """Whether another topic may be started: brokers delete one log after the other, and what they hear
        behind that, of other leaders for one, must not wait for thousands.
        """
        return len(self._in_flight) < REPLICAS_AT_ONCE

    @property
    def waiting(self) -> tuple[str, ...]:
        """Topics that are to be deleted once nothing else of them is under way."""
        return tuple(self._waiting)

    def request(self, topics: Collection[str], out: EffectBatch) -> None:
        """Take in the topics that are marked; drop the marks that mean nothing."""
        for topic in sorted(topics):
            if topic in self:
                continue
            if topic not in self._context.assignments:
                out.add_last(events.DropDeletionRequest(topic, "there is no such topic"))
            elif not self._enabled:
                out.add_last(events.DropDeletionRequest(topic, "delete.topic.enable is false"))
            else:
                self._waiting[topic] = None

    def start(self, topic: str, out: EffectBatch) -> None:
        """Hide the topic and have its replicas deleted."""
        context = self._context
        partitions = list(context.partitions_of(topic))
        out.add_update_metadata(context.deletion_metadata(partitions))
        del self._waiting[topic]
        self._remaining[topic] = {
            (replica, topic_partition)
            for topic_partition in partitions
            for replica in context.replicas_of(topic_partition)
        }
        for topic_partition in partitions:
            context.set_status(topic_partition, PartitionStatus.OFFLINE)
            context.leaderships.pop(topic_partition, None)
            for replica in context.replicas_of(topic_partition):
                context.advance_replica_deletion(topic_partition, replica, ReplicaStatus.OFFLINE)
                self.start_replica_deletion(topic_partition, replica, out)
        if not partitions:
            out.add_last(events.RemoveTopic(topic))

    def start_replica_deletion(
        self, topic_partition: TopicPartition, broker_id: int, out: EffectBatch
    ) -> None:
        """Have a replica deleted that is still there, if its broker lives."""
        if (broker_id, topic_partition) not in self._remaining[topic_partition.topic]:
            return
        self._context.advance_replica_deletion(topic_partition, broker_id, ReplicaStatus.DELETION_STARTED)
        if broker_id in self._context.brokers:
            self._in_flight.add((broker_id, topic_partition))
            out.add_stop_replica(broker_id, topic_partition, delete=True)
        else:
            self.fail_replica_deletion(topic_partition, broker_id)

    def fail_replica_deletion(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """A replica was not deleted, or its broker died: it waits for the broker."""
        self._in_flight.discard((broker_id, topic_partition))
        if (broker_id, topic_partition) in self._remaining.get(topic_partition.topic, ()):
            self._context.advance_replica_deletion(
                topic_partition, broker_id, ReplicaStatus.DELETION_INELIGIBLE
            )

    def complete_replica_deletion(
        self, topic_partition: TopicPartition, broker_id: int, out: EffectBatch
    ) -> None:
        """A replica is deleted; after the last one the topic goes."""
        self._in_flight.discard((broker_id, topic_partition))
        left = self._remaining.get(topic_partition.topic, set())
        if (broker_id, topic_partition) not in left:
            return
        left.discard((broker_id, topic_partition))
        self._context.advance_replica_deletion(topic_partition, broker_id, ReplicaStatus.DELETION_SUCCESSFUL)
        if not left:
            out.add_last(events.RemoveTopic(topic_partition.topic))

    def complete_topic(self, topic: str, out: EffectBatch) -> None:
        """The topic's znodes are gone."""
        context = self._context
        if topic in self._remaining:
            for topic_partition in context.partitions_of(topic):
                for replica in context.replicas_of(topic_partition):
                    self._in_flight.discard((replica, topic_partition))
                    context.advance_replica_deletion(topic_partition, replica, ReplicaStatus.NON_EXISTENT)
                context.set_status(topic_partition, PartitionStatus.NON_EXISTENT)
            del self._remaining[topic]
        elif topic in self._waiting:
            del self._waiting[topic]
            out.add_last(events.DropDeletionRequest(topic, "its znodes are gone"))
