"""The controller: one broker of the cluster decides for all.

Invariants
    Nothing is sent to a broker about a partition before its state znode holds it.
    A partition's leader epoch grows with every new leader; controller epochs fence earlier controllers.
    A topic's znodes go only after every replica was dropped, so that a broker that comes back cannot revive
    it.

Text 003 ("Topic management", "The controller"); ``KafkaController`` and ``TopicDeletionManager`` of 0.10.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.controller import events
from minikafka.controller.assignment import Assignment
from minikafka.controller.election import LEADER_DURING_DELETE, first_leadership, next_leadership
from minikafka.controller.events import Effect, Event
from minikafka.controller.states import VALID_PREDECESSORS, PartitionStatus
from minikafka.partition.leadership import Leadership


class Controller:
    """State of the active controller;
    idle until Elected. Same events in the same order give the same effects.
    """

    def __init__(self, broker_id: int, *, delete_topics: bool) -> None:
        self._broker_id = broker_id
        self._delete_topics = delete_topics
        self._forget()

    def _forget(self) -> None:
        self.active = False
        self.epoch = 0
        self._brokers: dict[int, BrokerAddress] = {}
        self._assignments: dict[str, Assignment] = {}
        self._leaderships: dict[TopicPartition, Leadership] = {}
        self._statuses: dict[TopicPartition, PartitionStatus] = {}
        self._deleting: dict[str, set[tuple[int, TopicPartition]]] = {}

    def status(self, topic_partition: TopicPartition) -> PartitionStatus:
        """Where the partition stands."""
        return self._statuses.get(topic_partition, PartitionStatus.NON_EXISTENT)

    def assignment_of(self, topic: str) -> Assignment | None:
        """The replicas of a topic's partitions; None for one that is not there, or is being deleted."""
        return None if topic in self._deleting else self._assignments.get(topic)

    def is_gone(self, topic: str) -> bool:
        """Whether nothing is known of a topic, and nothing of it waits to be deleted."""
        return topic not in self._assignments and topic not in self._deleting

    def step(self, event: Event) -> list[Effect]:
        """Take in what happened; return what is to be done. While not active, only Elected is heard."""
        if isinstance(event, events.Elected):
            return self._elected(event)
        if not self.active:
            return []
        match event:
            case events.Resigned():
                self._forget()
                return []
            case events.BrokersChanged(brokers):
                return self._brokers_changed(brokers)
            case events.TopicsChanged(assignments):
                return self._topics_changed(assignments)
            case events.LeadershipsWritten(leaderships):
                return self._leaderships_written(leaderships)
            case events.DeletionRequested(topics):
                return self._deletion_requested(topics)
            case events.ReplicaDeleted(broker_id, topic_partition):
                return self._replica_deleted(broker_id, topic_partition)
            case events.TopicRemoved(topic):
                return self._topic_removed(topic)
        raise AssertionError(f"unknown event {event!r}")

    # --- becoming the controller ----------------------------------------------------------------------------

    def _elected(self, event: events.Elected) -> list[Effect]:
        self._forget()
        self.active = True
        self.epoch = event.epoch
        self._brokers = dict(event.brokers)
        self._assignments = dict(event.assignments)
        for topic_partition, _ in _partitions(self._assignments):
            self._move(topic_partition, PartitionStatus.NEW)
            known = event.leaderships.get(topic_partition)
            if known is not None:
                self._leaderships[topic_partition] = known
                alive = known.leader in self._brokers
                self._move(topic_partition, PartitionStatus.ONLINE if alive else PartitionStatus.OFFLINE)
        effects = self._elect_leaderless()
        online = self._online(_partitions(self._assignments))
        effects += self._announce(self._brokers, online)
        return effects + self._deletion_requested(event.deletions)

    # --- brokers and topics ---------------------------------------------------------------------------------

    def _brokers_changed(self, brokers: Mapping[int, BrokerAddress]) -> list[Effect]:
        new = [broker_id for broker_id, address in brokers.items() if self._brokers.get(broker_id) != address]
        self._brokers = dict(brokers)
        for topic_partition, _ in _partitions(self._assignments):
            known = self._leaderships.get(topic_partition)
            if known is not None and known.leader not in self._brokers:
                self._move(topic_partition, PartitionStatus.OFFLINE)
        effects = self._elect_leaderless()
        effects += self._announce(new, self._online(_partitions(self._assignments)))
        return effects + [
            events.SendUpdateMetadata(broker_id, self._brokers, {})
            for broker_id in self._brokers
            if broker_id not in new
        ]

    def _topics_changed(self, assignments: Mapping[str, Assignment]) -> list[Effect]:
        effects: list[Effect] = []
        vanished = [
            topic for topic in self._assignments if topic not in assignments and topic not in self._deleting
        ]
        for topic in vanished:
            # Somebody removed the znodes by hand: forget the topic, leave the logs (text 003, manual
            # deletion).
            effects += self._forget_topic(topic)
        self._assignments |= assignments
        new = [
            topic_partition
            for topic_partition, _ in _partitions(assignments)
            if self.status(topic_partition) is PartitionStatus.NON_EXISTENT
            and topic_partition.topic not in self._deleting
        ]
        for topic_partition in new:
            self._move(topic_partition, PartitionStatus.NEW)
        return effects + self._elect(new)

    def _elect_leaderless(self) -> list[Effect]:
        leaderless = {PartitionStatus.NEW, PartitionStatus.OFFLINE}
        return self._elect(
            [key for key, _ in _partitions(self._assignments) if self.status(key) in leaderless]
        )

    def _elect(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Choose leaders. A partition that none can lead stays New or Offline until a replica comes back."""
        first: dict[TopicPartition, Leadership] = {}
        later: dict[TopicPartition, Leadership] = {}
        for topic_partition in partitions:
            known = self._leaderships.get(topic_partition)
            if known is None:
                replicas = self._assignments[topic_partition.topic][topic_partition.partition]
                leadership = first_leadership(replicas, self._brokers, self.epoch)
            else:
                leadership = next_leadership(known, self._brokers, self.epoch)
            if leadership is not None:
                (first if known is None else later)[topic_partition] = leadership
        effects: list[Effect] = []
        if first:
            effects.append(events.WriteLeaderships(first, create=True))
        if later:
            effects.append(events.WriteLeaderships(later, create=False))
        return effects

    def _leaderships_written(self, leaderships: Mapping[TopicPartition, Leadership]) -> list[Effect]:
        online: dict[TopicPartition, Leadership] = {}
        leaderless: list[TopicPartition] = []
        for topic_partition, leadership in leaderships.items():
            if topic_partition.topic not in self._assignments or topic_partition.topic in self._deleting:
                continue
            self._leaderships[topic_partition] = leadership
            if leadership.leader in self._brokers:
                self._move(topic_partition, PartitionStatus.ONLINE)
                online[topic_partition] = leadership
            else:
                self._move(topic_partition, PartitionStatus.OFFLINE)
                leaderless.append(topic_partition)
        announced = self._announce(self._brokers, online) if online else []
        return announced + self._elect(leaderless)

    def _announce(
        self, broker_ids: Iterable[int], leaderships: Mapping[TopicPartition, Leadership]
    ) -> list[Effect]:
        effects: list[Effect] = []
        for broker_id in broker_ids:
            own = {key: value for key, value in leaderships.items() if broker_id in value.replicas}
            if own:
                effects.append(events.SendLeaderAndIsr(broker_id, own))
            effects.append(events.SendUpdateMetadata(broker_id, self._brokers, leaderships))
        return effects

    # --- deletion -------------------------------------------------------------------------------------------

    def _deletion_requested(self, topics: frozenset[str]) -> list[Effect]:
        effects: list[Effect] = []
        for topic in sorted(topics - self._deleting.keys()):
            if topic not in self._assignments:
                effects.append(events.DropDeletionRequest(topic, "there is no such topic"))
            elif not self._delete_topics:
                effects.append(events.DropDeletionRequest(topic, "delete.topic.enable is false"))
            else:
                effects += self._start_deletion(topic)
        return effects

    def _start_deletion(self, topic: str) -> list[Effect]:
        partitions = list(_partitions({topic: self._assignments[topic]}))
        going = {
            key: Leadership(LEADER_DURING_DELETE, 0, (), replicas, self.epoch) for key, replicas in partitions
        }
        self._deleting[topic] = {(replica, key) for key, replicas in partitions for replica in replicas}
        for topic_partition in going:
            self._move(topic_partition, PartitionStatus.OFFLINE)
            self._leaderships.pop(topic_partition, None)
        effects: list[Effect] = [
            events.SendUpdateMetadata(broker_id, self._brokers, going) for broker_id in self._brokers
        ]
        for broker_id in self._brokers:
            own = tuple(key for replica, key in sorted(self._deleting[topic]) if replica == broker_id)
            if own:
                effects.append(events.SendStopReplica(broker_id, own))
        return effects

    def _replica_deleted(self, broker_id: int, topic_partition: TopicPartition) -> list[Effect]:
        waiting = self._deleting.get(topic_partition.topic)
        if waiting is None:
            return []
        waiting.discard((broker_id, topic_partition))
        return [] if waiting else [events.RemoveTopic(topic_partition.topic)]

    def _topic_removed(self, topic: str) -> list[Effect]:
        self._deleting.pop(topic, None)
        return self._forget_topic(topic)

    def _forget_topic(self, topic: str) -> list[Effect]:
        partitions = list(_partitions({topic: self._assignments.pop(topic, {})}))
        going = {
            key: Leadership(LEADER_DURING_DELETE, 0, (), replicas, self.epoch) for key, replicas in partitions
        }
        for topic_partition in going:
            self._statuses.pop(topic_partition, None)
            self._leaderships.pop(topic_partition, None)
        return [events.SendUpdateMetadata(broker_id, self._brokers, going) for broker_id in self._brokers]

    # --- the state machine ----------------------------------------------------------------------------------

    def _move(self, topic_partition: TopicPartition, to: PartitionStatus) -> None:
        now = self.status(topic_partition)
        if now not in VALID_PREDECESSORS[to]:
            raise AssertionError(f"{topic_partition} cannot go from {now.value} to {to.value}")
        self._statuses[topic_partition] = to

    def _online(
        self, partitions: Iterable[tuple[TopicPartition, tuple[int, ...]]]
    ) -> dict[TopicPartition, Leadership]:
        return {
            key: self._leaderships[key] for key, _ in partitions if self.status(key) is PartitionStatus.ONLINE
        }


def _partitions(assignments: Mapping[str, Assignment]) -> Iterable[tuple[TopicPartition, tuple[int, ...]]]:
    for topic, assignment in assignments.items():
        for partition, replicas in assignment.items():
            yield TopicPartition(topic, partition), replicas
