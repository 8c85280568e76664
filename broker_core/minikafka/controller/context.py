"""The controller's view of the cluster (``ControllerContext`` of 0.10.1), with the state of each replica.

Dicts are used instead of sets, as they keep an order: the same events must give the same effects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from minikafka.base.endpoints import LiveBroker
from minikafka.base.ids import TopicPartition
from minikafka.controller.assignment import Assignment, OngoingReassignment, Replicas
from minikafka.controller.election import LEADER_DURING_DELETE, EligibleBrokers
from minikafka.controller.states import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    PartitionStatus,
    ReplicaStatus,
    check_transition,
)
from minikafka.partition.replica import LeaderAndIsr

_DELETION_PREDECESSORS = {
    ReplicaStatus.DELETION_STARTED: ReplicaStatus.OFFLINE,
    ReplicaStatus.DELETION_SUCCESSFUL: ReplicaStatus.DELETION_STARTED,
    ReplicaStatus.DELETION_INELIGIBLE: ReplicaStatus.DELETION_STARTED,
    ReplicaStatus.NON_EXISTENT: ReplicaStatus.DELETION_SUCCESSFUL,
}


class ControllerContext:
    """The state of the cluster during one controller epoch. Part of the Controller."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.brokers: dict[int, LiveBroker] = {}
        """The live brokers, including those that are shutting down."""
        self.sessions: dict[int, int] = {}
        self.shutting_down: dict[int, None] = {}
        self.unclean_election_topics: frozenset[str] = frozenset()
        self.unclean_elections: dict[TopicPartition, None] = {}
        """Partitions of other topics for which an unclean election was requested."""
        self.assignments: dict[str, dict[int, tuple[int, ...]]] = {}
        self.topic_ids: dict[str, bytes] = {}
        """The ids of topics that have one."""
        self.reassignments: dict[TopicPartition, OngoingReassignment] = {}
        self.leaderships: dict[TopicPartition, LeaderAndIsr] = {}
        """The known content of the partitions' state znodes."""
        self._statuses: dict[TopicPartition, PartitionStatus] = {}
        self._replicas: dict[TopicPartition, dict[int, ReplicaStatus]] = {}
        self._on_broker: dict[int, dict[TopicPartition, None]] = {}

    def restarted_brokers(self, brokers: Mapping[int, LiveBroker], sessions: Mapping[int, int]) -> list[int]:
        """Return the known ones of the live ``brokers`` that have other endpoints or another session now."""
        return [
            broker_id
            for broker_id, broker in brokers.items()
            if broker_id in self.brokers
            and (
                self.brokers[broker_id] != broker
                or self.sessions.get(broker_id, sessions.get(broker_id))
                != sessions.get(broker_id, self.sessions.get(broker_id))
            )
        ]

    def partitions_led_by(self, broker_id: int) -> tuple[TopicPartition, ...]:
        """Return the partitions with several replicas that a broker leads."""
        return tuple(
            topic_partition
            for topic_partition in self.partitions_on(broker_id)
            if len(self.replicas_of(topic_partition)) > 1
            and topic_partition in self.leaderships
            and self.leaderships[topic_partition].leader == broker_id
        )

    def partitions_with_stale_isr(
        self, brokers: Mapping[int, LiveBroker], sessions: Mapping[int, int]
    ) -> tuple[TopicPartition, ...]:
        """Return the partitions that a failed or restarted broker has, but not in the known ISR."""
        failed = [broker_id for broker_id in self.brokers if broker_id not in brokers]
        return tuple(
            topic_partition
            for broker_id in failed + self.restarted_brokers(brokers, sessions)
            for topic_partition in self.partitions_on(broker_id)
            if topic_partition in self.leaderships and broker_id not in self.leaderships[topic_partition].isr
        )

    # --- partitions and their replicas ----------------------------------------------------------------------

    def add_partitions(
        self, topic: str, assignment: Assignment, topic_id: bytes | None
    ) -> list[TopicPartition]:
        """Add the new partitions of a topic; return them. ``topic_id`` None: it has none, or is known."""
        if topic_id is not None:
            self.topic_ids[topic] = topic_id
        known = self.assignments.setdefault(topic, {})
        added = []
        for partition, replicas in assignment.items():
            if partition not in known:
                known[partition] = replicas
                topic_partition = TopicPartition(topic, partition)
                added.append(topic_partition)
                for replica in replicas:
                    self._on_broker.setdefault(replica, {})[topic_partition] = None
        return added

    def reassign(self, topic_partition: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Change the replicas of a partition. Those removed must be deleted, those added not yet created."""
        topic, partition = topic_partition
        for replica in self.assignments[topic][partition]:
            if replica not in replicas:
                del self._on_broker[replica][topic_partition]
        for replica in replicas:
            self._on_broker.setdefault(replica, {})[topic_partition] = None
        self.assignments[topic][partition] = replicas

    def remove_topic(self, topic: str) -> list[TopicPartition]:
        """Remove a topic; return the partitions that it had."""
        partitions = list(self.partitions_of(topic))
        for topic_partition in partitions:
            for replica in self.replicas_of(topic_partition):
                del self._on_broker[replica][topic_partition]
            self.leaderships.pop(topic_partition, None)
            self.unclean_elections.pop(topic_partition, None)
            self._statuses.pop(topic_partition, None)
            self._replicas.pop(topic_partition, None)
        self.assignments.pop(topic, None)
        self.topic_ids.pop(topic, None)
        return partitions

    def ids_of(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """Return the ids of the topics of partitions, without topics that have none."""
        topics = {topic_partition.topic for topic_partition in partitions}
        return {topic: self.topic_ids[topic] for topic in sorted(topics) if topic in self.topic_ids}

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        """Return whether the partition exists."""
        return topic_partition.partition in self.assignments.get(topic_partition.topic, ())

    def moving_replicas(self, topics: Collection[str]) -> dict[TopicPartition, tuple[Replicas, Replicas]]:
        """Return the replicas that are being added to partitions of ``topics``, and those being removed.

        Both have those that only a replaced request had added, so that the next controller drops them too.
        """
        return {
            topic_partition: (ongoing.added, ongoing.removing(self.replicas_of(topic_partition)))
            for topic in topics
            for topic_partition in self.partitions_of(topic)
            if (ongoing := self.reassignments.get(topic_partition)) is not None
        }

    def replicas_of(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return the brokers that a partition is assigned to."""
        return self.assignments[topic_partition.topic][topic_partition.partition]

    def partitions_of(self, topic: str) -> Iterator[TopicPartition]:
        """Return the partitions of a topic."""
        return (TopicPartition(topic, partition) for partition in self.assignments.get(topic, ()))

    def partitions_on(self, broker_id: int) -> Collection[TopicPartition]:
        """Return the partitions that have a replica on a broker."""
        return self._on_broker.get(broker_id, {})

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield all partitions."""
        for topic in self.assignments:
            yield from self.partitions_of(topic)

    def eligible_brokers(self, bounced_brokers: Collection[int] = ()) -> EligibleBrokers:
        """Return the brokers that can lead, when ``bounced_brokers`` were away since the last decision."""
        if not bounced_brokers:
            return EligibleBrokers(self.brokers, self.shutting_down)
        return EligibleBrokers(self.brokers, {**self.shutting_down, **dict.fromkeys(bounced_brokers)})

    def may_elect_unclean(self, topic_partition: TopicPartition) -> bool:
        """Return whether a replica outside the ISR may lead if no replica in the ISR is alive."""
        return (
            topic_partition.topic in self.unclean_election_topics or topic_partition in self.unclean_elections
        )

    def deletion_metadata(
        self, topic_partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, LeaderAndIsr]:
        """Return the metadata to send to brokers for partitions that are being deleted."""
        return {
            key: LeaderAndIsr(LEADER_DURING_DELETE, 0, (), self.replicas_of(key), self.epoch)
            for key in topic_partitions
        }

    # --- states ---------------------------------------------------------------------------------------------

    def status(self, topic_partition: TopicPartition) -> PartitionStatus:
        """Return the state of a partition."""
        return self._statuses.get(topic_partition, PartitionStatus.NON_EXISTENT)

    def set_status(self, topic_partition: TopicPartition, to: PartitionStatus) -> None:
        """Change the state of a partition. The transition must be valid."""
        check_transition(topic_partition, self.status(topic_partition), to, PARTITION_PREDECESSORS)
        self._statuses[topic_partition] = to

    def load_state(self, topic_partition: TopicPartition, leadership: LeaderAndIsr | None) -> None:
        """Set the states of a partition and its replicas from ZooKeeper, for a new controller."""
        if leadership is None:
            self._statuses[topic_partition] = PartitionStatus.NEW
        else:
            alive = leadership.leader in self.brokers
            self._statuses[topic_partition] = PartitionStatus.ONLINE if alive else PartitionStatus.OFFLINE
            self.leaderships[topic_partition] = leadership
        self._replicas[topic_partition] = {
            replica: ReplicaStatus.ONLINE if replica in self.brokers else ReplicaStatus.DELETION_INELIGIBLE
            for replica in self.replicas_of(topic_partition)
        }

    def replica_status(self, topic_partition: TopicPartition, broker_id: int) -> ReplicaStatus:
        """Return the state of a replica."""
        return self._replicas.get(topic_partition, {}).get(broker_id, ReplicaStatus.NON_EXISTENT)

    def set_replica_status(self, topic_partition: TopicPartition, broker_id: int, to: ReplicaStatus) -> None:
        """Change the state of a replica. The transition must be valid."""
        now = self.replica_status(topic_partition, broker_id)
        check_transition((broker_id, topic_partition), now, to, REPLICA_PREDECESSORS)
        if to is ReplicaStatus.NON_EXISTENT:
            self._replicas[topic_partition].pop(broker_id, None)
        else:
            self._replicas.setdefault(topic_partition, {})[broker_id] = to

    def advance_replica_deletion(
        self, topic_partition: TopicPartition, broker_id: int, to: ReplicaStatus
    ) -> None:
        """Change the state of a replica to ``to``, through all states of a deletion that precede it."""
        if self.replica_status(topic_partition, broker_id) is to:
            return
        if to in _DELETION_PREDECESSORS:
            self.advance_replica_deletion(topic_partition, broker_id, _DELETION_PREDECESSORS[to])
        self.set_replica_status(topic_partition, broker_id, to)
