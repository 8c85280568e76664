"""Partition reassignments: move partitions to other replicas (``onPartitionReassignment``; KIP-455).

A partition is assigned to its new and old replicas until all new ones are in sync. Then one new value of its
state makes a new replica the leader, unless one is already, and only the new ones in sync and assigned. Once
ZooKeeper holds it, the old ones are asked to delete their logs, and the assignment is written without them.

Requests come from ``/admin/reassign_partitions``, as in 0.10.1, or from clients by the protocol. The topic's
znode has both: which replicas are added and which are removed. So the next controller continues them, and a
client can replace or cancel either: cancelling means to go back to the replicas that the partition had. The
replicas that only a replaced request had added are in both lists; they are dropped as soon as another one is
in sync, and not before, so that no message is lost. An entry of ``/admin/reassign_partitions`` is removed at
the end, or, if a client replaces it, before the new request is stored: a controller elected in between must
not go back to it.

As in 0.10.1 nobody asks again: a broker that is away, or that the controller did not reach before it ended,
keeps its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller.assignment import OngoingReassignment, Replicas
from minikafka.controller.context import ControllerContext
from minikafka.controller.effect_batch import EffectBatch
from minikafka.controller.election import EligibleBrokers
from minikafka.controller.states import ReplicaStatus
from minikafka.partition.replica import LeaderAndIsr


class PartitionReassignments:
    """The reassignments in progress. Part of the Controller."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._ongoing = context.reassignments
        self._replaced: dict[TopicPartition, Replicas] = {}
        """Entries of ``/admin/reassign_partitions`` that clients have replaced; they may still be there."""

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._ongoing

    def __bool__(self) -> bool:
        return bool(self._ongoing)

    def topics(self) -> set[str]:
        """Return the topics of the partitions in progress."""
        return {topic_partition.topic for topic_partition in self._ongoing}

    # --- requests -------------------------------------------------------------------------------------------

    def note_requests(self, requested: Mapping[TopicPartition, Replicas]) -> None:
        """Note the whole content of ``/admin/reassign_partitions``."""
        replaced = self._replaced.items()
        self._replaced = {key: replicas for key, replicas in replaced if requested.get(key) == replicas}

    def is_known(self, topic_partition: TopicPartition, replicas: Replicas, out: EffectBatch) -> bool:
        """Return whether an entry of ``/admin/reassign_partitions`` is in progress, or has been replaced.

        A changed entry of a partition in progress is not followed, as in 0.10.1.
        """
        if self._replaced.get(topic_partition) == replicas:
            out.drop_reassignment(topic_partition, "replaced by a client's request")
            return True
        ongoing = self._ongoing.get(topic_partition)
        if ongoing is None or (ongoing.target != replicas and not ongoing.is_requested):
            return False
        self._ongoing[topic_partition] = replace(ongoing, is_requested=True)
        return True

    def rejection_reason(
        self, topic_partition: TopicPartition, replicas: Replicas, *, resumed: bool
    ) -> str | None:
        """Return why an entry of ``/admin/reassign_partitions`` cannot be carried out; None when it can.

        A request ``resumed`` by a new controller was accepted before: it waits for dead brokers.
        """
        context = self._context
        if not context.has_partition(topic_partition):
            return f"no such partition: {topic_partition}"
        known = context.leaderships.get(topic_partition)
        # Of an older controller the assignment does not show how far it got, if replicas are only added.
        half_done = resumed and known is not None and not set(replicas) <= set(known.isr)
        is_assigned = context.replicas_of(topic_partition) == replicas and topic_partition not in self
        if is_assigned and not half_done:
            return f"{topic_partition} is already assigned to {list(replicas)}"
        if not replicas or len(set(replicas)) != len(replicas):
            return f"invalid replicas of {topic_partition}: {list(replicas)}; expected one or more, each once"
        dead = [replica for replica in replicas if replica not in context.brokers]
        if dead and not resumed:
            return f"{topic_partition} cannot move to brokers that are not alive: {dead}"
        return None

    def check(self, topic_partition: TopicPartition, replicas: Replicas | None) -> None:
        """Raise BrokerError if a client's request for an existing partition is invalid; None: cancel."""
        if replicas is None:
            if topic_partition not in self:
                raise BrokerError(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic_partition} is not being reassigned"
                )
            return
        problem = None
        if not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
            problem = f"invalid replicas {list(replicas)}; expected one or more, each once"
        elif dead := set(replicas) - set(self._origin(topic_partition)) - self._context.brokers.keys():
            problem = f"it cannot move to brokers that are not alive: {sorted(dead)}"
        elif topic_partition not in self._context.leaderships:
            problem = "it has never had a leader"
        if problem is not None:
            raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{topic_partition}: {problem}")

    # --- progress -------------------------------------------------------------------------------------------

    def resume(self, ongoing: Mapping[TopicPartition, OngoingReassignment]) -> None:
        """Continue the reassignments that the znodes of topics show."""
        for topic_partition, reassignment in sorted(ongoing.items()):
            if topic_partition in self._context.leaderships:
                self._ongoing[topic_partition] = reassignment

    def start_requested(
        self, topic_partition: TopicPartition, replicas: Replicas, out: EffectBatch, *, resumed: bool
    ) -> None:
        """Start what ``/admin/reassign_partitions`` asks for."""
        known = self._context.leaderships.get(topic_partition)
        if resumed and topic_partition not in self and known is not None:
            # The assignment of an older controller does not show which replicas it has added.
            added = tuple(replica for replica in replicas if replica not in known.isr)
            self._ongoing[topic_partition] = OngoingReassignment(replicas, added)
        self._start(topic_partition, replicas, out, is_requested=True)

    def alter(self, topic_partition: TopicPartition, replicas: Replicas | None, out: EffectBatch) -> None:
        """Start, replace or cancel (None) a reassignment, as a client asks for."""
        ongoing = self._ongoing.get(topic_partition)
        if ongoing is None and self._context.replicas_of(topic_partition) == replicas:
            return
        if ongoing is not None and ongoing.is_requested:
            self._replaced[topic_partition] = ongoing.target
            out.replace_reassignment(topic_partition)
        target = self._origin(topic_partition) if replicas is None else replicas
        self._start(topic_partition, target, out)

    def _origin(self, topic_partition: TopicPartition) -> Replicas:
        """Return the replicas that a partition had before it was reassigned."""
        assigned, ongoing = self._context.replicas_of(topic_partition), self._ongoing.get(topic_partition)
        added = () if ongoing is None else ongoing.added
        return tuple(replica for replica in assigned if replica not in added)

    def _start(
        self,
        topic_partition: TopicPartition,
        target: Replicas,
        out: EffectBatch,
        *,
        is_requested: bool = False,
    ) -> None:
        """Assign the partition to its new replicas in addition to the old ones."""
        context, origin = self._context, self._origin(topic_partition)
        old = context.replicas_of(topic_partition)
        assigned = target + tuple(replica for replica in old if replica not in target)
        added = tuple(replica for replica in assigned if replica not in origin)
        self._ongoing[topic_partition] = OngoingReassignment(target, added, is_requested)
        context.reassign(topic_partition, assigned)
        for replica in target:
            if replica not in old:
                context.set_replica_status(topic_partition, replica, ReplicaStatus.NEW)
                if replica not in context.brokers:
                    context.set_replica_status(topic_partition, replica, ReplicaStatus.OFFLINE)
        out.add_assignment_write(topic_partition.topic)

    def replicas_for(self, topic_partition: TopicPartition, eligible: EligibleBrokers) -> Replicas:
        """Return the replicas for the partition's next state: only the new ones once all are in sync.

        Before that without those that a replaced request had added, once another one is in sync.
        """
        assigned = self._context.replicas_of(topic_partition)
        ongoing = self._ongoing.get(topic_partition)
        known = self._context.leaderships.get(topic_partition)
        if ongoing is None or known is None:
            return assigned
        in_sync = {replica for replica in known.isr if eligible.is_stable(replica)}
        if in_sync.issuperset(ongoing.target):
            return ongoing.target
        kept = ongoing.kept(assigned)
        return kept if in_sync.intersection(kept) else assigned

    def finish(self, topic_partition: TopicPartition, known: LeaderAndIsr, out: EffectBatch) -> None:
        """Stop the replicas that are not wanted, if ``known``, the state in ZooKeeper, has none of them."""
        ongoing = self._ongoing.get(topic_partition)
        if ongoing is None or not set(known.isr) <= set(known.replicas):
            return
        context, assigned = self._context, self._context.replicas_of(topic_partition)
        kept = ongoing.kept(assigned)
        # To lose what a replaced request had added, or to change the order, it waits for nobody.
        is_done = known.replicas == ongoing.target and (
            set(ongoing.target) <= set(known.isr) or (set(kept) == set(ongoing.target) and not ongoing.adding)
        )
        if not is_done and (known.replicas != kept or kept == assigned):
            return
        for replica in assigned:
            if replica not in known.replicas:
                if replica in context.brokers:
                    out.add_stop_replica(replica, topic_partition, delete=True)
                context.advance_replica_deletion(topic_partition, replica, ReplicaStatus.NON_EXISTENT)
            elif is_done and replica in context.brokers:
                context.set_replica_status(topic_partition, replica, ReplicaStatus.ONLINE)
        context.reassign(topic_partition, known.replicas)
        if is_done:
            del self._ongoing[topic_partition]
            out.complete_reassignment(topic_partition, is_requested=ongoing.is_requested)
        else:
            self._ongoing[topic_partition] = replace(ongoing, added=ongoing.adding)
            out.add_shrunk_assignment(topic_partition.topic)

    def cancel(self, topic_partition: TopicPartition, reason: str, out: EffectBatch) -> None:
        """Forget a reassignment that cannot go on."""
        self._ongoing.pop(topic_partition, None)
        out.drop_reassignment(topic_partition, reason)
