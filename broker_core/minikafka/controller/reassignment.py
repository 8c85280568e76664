"""Partition reassignments: move partitions to other replicas (``onPartitionReassignment`` of 0.10.1).

A partition is assigned to its old and new replicas until all new ones are in sync. Then one new value of its
state makes a new replica the leader, unless one is already, and only the new ones in sync and assigned. Once
ZooKeeper holds it, the old ones are asked to delete their logs, the assignment is written and the request is
removed: in this order, so that a controller elected in between finds the request and continues. As in 0.10.1
nobody asks again: a broker that is away, or that the controller did not reach before it ended, keeps its log.
"""

from __future__ import annotations

from minikafka.base.ids import TopicPartition
from minikafka.controller.context import ControllerContext
from minikafka.controller.effect_batch import EffectBatch
from minikafka.controller.election import EligibleBrokers
from minikafka.controller.states import ReplicaStatus
from minikafka.partition.replica import LeaderAndIsr


class PartitionReassignments:
    """The reassignments in progress. Part of the Controller."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._targets: dict[TopicPartition, tuple[int, ...]] = {}

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._targets

    def __bool__(self) -> bool:
        return bool(self._targets)

    def topics(self) -> set[str]:
        """Return the topics of the partitions in progress."""
        return {topic_partition.topic for topic_partition in self._targets}

    def rejection_reason(
        self, topic_partition: TopicPartition, replicas: tuple[int, ...], *, resumed: bool
    ) -> str | None:
        """Return why a request cannot be carried out; None when it can.

        A request ``resumed`` by a new controller was accepted before: it waits for dead brokers.
        """
        context = self._context
        if not context.has_partition(topic_partition):
            return f"no such partition: {topic_partition}"
        known = context.leaderships.get(topic_partition)
        # If replicas are only added, the assignment does not show how far an earlier controller got.
        half_done = resumed and known is not None and not set(replicas) <= set(known.isr)
        if context.replicas_of(topic_partition) == replicas and not half_done:
            return f"{topic_partition} is already assigned to {list(replicas)}"
        if not replicas or len(set(replicas)) != len(replicas):
            return f"invalid replicas of {topic_partition}: {list(replicas)}; expected one or more, each once"
        dead = [replica for replica in replicas if replica not in context.brokers]
        if dead and not resumed:
            return f"{topic_partition} cannot move to brokers that are not alive: {dead}"
        return None

    def start(self, topic_partition: TopicPartition, replicas: tuple[int, ...], out: EffectBatch) -> None:
        """Assign the partition to its new replicas in addition to the old ones."""
        context = self._context
        self._targets[topic_partition] = replicas
        old = context.replicas_of(topic_partition)
        if set(replicas) <= set(old):
            return
        context.reassign(topic_partition, replicas + tuple(r for r in old if r not in replicas))
        for replica in replicas:
            if replica not in old:
                context.set_replica_status(topic_partition, replica, ReplicaStatus.NEW)
                if replica not in context.brokers:
                    context.set_replica_status(topic_partition, replica, ReplicaStatus.OFFLINE)
        out.add_assignment_write(topic_partition.topic)

    def replicas_for(self, topic_partition: TopicPartition, eligible: EligibleBrokers) -> tuple[int, ...]:
        """Return the replicas for the partition's next state: only the new ones once all are in sync."""
        target = self._targets.get(topic_partition)
        known = self._context.leaderships.get(topic_partition)
        if (
            target is not None
            and known is not None
            and all(replica in known.isr and eligible.is_stable(replica) for replica in target)
        ):
            return target
        return self._context.replicas_of(topic_partition)

    def finish(self, topic_partition: TopicPartition, known: LeaderAndIsr, out: EffectBatch) -> None:
        """Stop the old replicas, if ``known``, the state in ZooKeeper, has only the new ones."""
        context, target = self._context, self._targets.get(topic_partition)
        if target is None or known.replicas != target or set(known.isr) != set(target):
            return
        for replica in context.replicas_of(topic_partition):
            if replica not in target:
                if replica in context.brokers:
                    out.add_stop_replica(replica, topic_partition, delete=True)
                context.advance_replica_deletion(topic_partition, replica, ReplicaStatus.NON_EXISTENT)
            elif replica in context.brokers:
                context.set_replica_status(topic_partition, replica, ReplicaStatus.ONLINE)
        context.reassign(topic_partition, target)
        del self._targets[topic_partition]
        out.complete_reassignment(topic_partition)

    def cancel(self, topic_partition: TopicPartition, reason: str, out: EffectBatch) -> None:
        """Drop a request that is in progress or was not accepted."""
        self._targets.pop(topic_partition, None)
        out.drop_reassignment(topic_partition, reason)
