"""Topics that are being deleted (``TopicDeletionManager`` of 0.10.1).

A deletion waits until no reassignment and no preferred election of the topic is in progress, and until few
enough replicas of other topics are being deleted. Then the topic is hidden from clients, and each live
replica is deleted. A replica that could not be deleted, or is on a dead broker, waits for the broker. The
topic's znodes are removed after the last replica, so that no replica can return.
"""

from __future__ import annotations

from collections.abc import Collection

from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.context import ControllerContext
from minikafka.controller.effect_batch import EffectBatch
from minikafka.controller.states import PartitionStatus, ReplicaStatus

REPLICAS_AT_ONCE = 100
"""The deletion of another topic starts only while fewer replicas are being deleted."""


class TopicDeletions:
    """The topic deletions, waiting or in progress. Part of the Controller."""

    def __init__(self, context: ControllerContext, *, enabled: bool) -> None:
        self._context = context
        self._enabled = enabled
        self._waiting: dict[str, None] = {}
        self._remaining: dict[str, set[tuple[int, TopicPartition]]] = {}
        """Topic -> replicas that are not deleted yet."""
        self._in_flight: set[tuple[int, TopicPartition]] = set()
        """Replicas whose deletion was requested from a live broker, without a response yet."""

    def __contains__(self, topic: str) -> bool:
        return topic in self._waiting or topic in self._remaining

    def is_under_way(self, topic: str) -> bool:
        """Return whether a topic's deletion has started: its partitions have no leader any more."""
        return topic in self._remaining

    def has_room(self) -> bool:
        """Return whether another topic's deletion may start.

        Brokers delete one log after the other, and later requests, such as those for new leaders, must not
        wait for thousands of deletions.
        """
        return len(self._in_flight) < REPLICAS_AT_ONCE

    @property
    def waiting(self) -> tuple[str, ...]:
        """Topics that will be deleted once they have no reassignment or election in progress."""
        return tuple(self._waiting)

    def request(self, topics: Collection[str], out: EffectBatch) -> None:
        """Add topics to delete; drop the requests that cannot be carried out."""
        for topic in sorted(topics):
            if topic in self:
                continue
            if topic not in self._context.assignments:
                out.add_last(events.DropDeletionRequest(topic, "no such topic"))
            elif not self._enabled:
                out.add_last(events.DropDeletionRequest(topic, "delete.topic.enable is false"))
            else:
                self._waiting[topic] = None

    def start(self, topic: str, out: EffectBatch) -> None:
        """Hide the topic and start the deletion of its replicas."""
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
        """Start the deletion of a remaining replica, if its broker is alive."""
        if (broker_id, topic_partition) not in self._remaining[topic_partition.topic]:
            return
        self._context.advance_replica_deletion(topic_partition, broker_id, ReplicaStatus.DELETION_STARTED)
        if broker_id in self._context.brokers:
            self._in_flight.add((broker_id, topic_partition))
            out.add_stop_replica(broker_id, topic_partition, delete=True)
        else:
            self.fail_replica_deletion(topic_partition, broker_id)

    def fail_replica_deletion(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """Record that a replica was not deleted, or its broker died: it waits for the broker."""
        self._in_flight.discard((broker_id, topic_partition))
        if (broker_id, topic_partition) in self._remaining.get(topic_partition.topic, ()):
            self._context.advance_replica_deletion(
                topic_partition, broker_id, ReplicaStatus.DELETION_INELIGIBLE
            )

    def complete_replica_deletion(
        self, topic_partition: TopicPartition, broker_id: int, out: EffectBatch
    ) -> None:
        """Record that a replica is deleted; after the last one the topic is removed."""
        self._in_flight.discard((broker_id, topic_partition))
        left = self._remaining.get(topic_partition.topic, set())
        if (broker_id, topic_partition) not in left:
            return
        left.discard((broker_id, topic_partition))
        self._context.advance_replica_deletion(topic_partition, broker_id, ReplicaStatus.DELETION_SUCCESSFUL)
        if not left:
            out.add_last(events.RemoveTopic(topic_partition.topic))

    def complete_topic(self, topic: str, out: EffectBatch) -> None:
        """End the deletion of a topic whose znodes were removed."""
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
            out.add_last(events.DropDeletionRequest(topic, "its znodes were removed"))
