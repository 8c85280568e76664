"""The effects of one step, collected and ordered: one request of each kind for a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.context import ControllerContext
from minikafka.controller.events import Effect
from minikafka.partition.replica import LeaderAndIsr


class EffectBatch:
    """Collects the effects of one step.

    The order: log lines; requests that are replaced; assignments that grow; state znodes (new leaders, which
    clients wait for, then new partitions, then other changes); requests to brokers; and last the effects that
    end a piece of work, so that the next controller finds it unfinished if this one dies before.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._log_lines: list[Effect] = []
        self._grown_assignments: dict[str, None] = {}
        self._created: dict[TopicPartition, LeaderAndIsr] = {}
        self._elected: dict[TopicPartition, LeaderAndIsr] = {}
        self._changed: dict[TopicPartition, LeaderAndIsr] = {}
        self._leaderships: dict[int, dict[TopicPartition, LeaderAndIsr]] = {}
        self._update_metadata: dict[TopicPartition, LeaderAndIsr] = {}
        self._send_live_brokers_to: dict[int, None] = {}
        self._send_full_metadata_to: dict[int, None] = {}
        self._stopped: dict[int, dict[TopicPartition, None]] = {}
        self._deleted: dict[int, dict[TopicPartition, None]] = {}
        self._shrunk_assignments: dict[str, None] = {}
        self._last: list[Effect] = []
        self._dropped_reassignments: dict[TopicPartition, str] = {}
        self._replaced_reassignments: dict[TopicPartition, str] = {}

    def add_log_line(self, text: str, *, warning: bool = False) -> None:
        """Add a line for the log."""
        self._log_lines.append(events.LogLine(text, warning))

    def add_state_write(
        self, topic_partition: TopicPartition, leadership: LeaderAndIsr, known: LeaderAndIsr | None
    ) -> None:
        """Add the write of a state znode, which replaces ``known``."""
        if known is None:
            self._created[topic_partition] = leadership
        elif known.leader != leadership.leader:
            self._elected[topic_partition] = leadership
        else:
            self._changed[topic_partition] = leadership

    def add_assignment_write(self, topic: str) -> None:
        """Add the write of a topic's larger assignment, before those of its leaders."""
        self._grown_assignments[topic] = None

    def add_leader_and_isr(
        self, broker_id: int, topic_partition: TopicPartition, leadership: LeaderAndIsr
    ) -> None:
        """Add a partition to the LeaderAndIsr request for a broker."""
        self._leaderships.setdefault(broker_id, {})[topic_partition] = leadership

    def add_known_state(self, topic_partition: TopicPartition, broker_ids: Collection[int]) -> None:
        """Add a partition's known state for those of these brokers that are alive and have a replica."""
        known = self._context.leaderships.get(topic_partition)
        if known is not None:
            for replica in known.replicas:
                if replica in broker_ids and replica in self._context.brokers:
                    self.add_leader_and_isr(replica, topic_partition, known)

    def announce(self, topic_partition: TopicPartition, leader_before: int) -> None:
        """Add a partition's new state for its replicas, but for followers that are shutting down."""
        context = self._context
        known = context.leaderships[topic_partition]
        recipients = []
        for replica in known.replicas:
            if replica in context.shutting_down and replica != known.leader:
                if replica != leader_before:
                    continue
                # The old leader must stop leading, and not follow, or it would join the ISR again.
                self.add_stop_replica(replica, topic_partition, delete=False)
            recipients.append(replica)
        self.add_known_state(topic_partition, recipients)

    def add_update_metadata(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """Add partitions to the UpdateMetadata request for all brokers."""
        self._update_metadata.update(leaderships)

    def add_live_brokers(self, broker_ids: Iterable[int]) -> None:
        """Send the live brokers to brokers, before leaders: 0.10.1 follows only leaders that it knows."""
        self._send_live_brokers_to.update(dict.fromkeys(broker_ids))

    def add_full_metadata(self, broker_ids: Iterable[int]) -> None:
        """Send the metadata of every partition to brokers."""
        self._send_full_metadata_to.update(dict.fromkeys(broker_ids))

    def add_stop_replica(self, broker_id: int, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Add a replica to a StopReplica request for a broker."""
        stopped = self._deleted if delete else self._stopped
        stopped.setdefault(broker_id, {})[topic_partition] = None

    def add_shrunk_assignment(self, topic: str) -> None:
        """Add the write of a topic's assignment, after StopReplica to the brokers that are not in it."""
        self._shrunk_assignments[topic] = None

    def complete_reassignment(self, topic_partition: TopicPartition, *, is_requested: bool) -> None:
        """Add the end of a reassignment: write its topic's assignment, then remove the request if any."""
        self.add_shrunk_assignment(topic_partition.topic)
        if is_requested:
            self._dropped_reassignments[topic_partition] = "done"
        else:
            self.add_log_line(f"reassignment of {topic_partition}: done")

    def replace_reassignment(self, topic_partition: TopicPartition) -> None:
        """Add the removal of a reassignment request, before the write of the assignment that replaces it."""
        self._replaced_reassignments[topic_partition] = "replaced by a client's request"

    def drop_reassignment(self, topic_partition: TopicPartition, reason: str) -> None:
        """Add the removal of a reassignment request that is not carried out."""
        self._dropped_reassignments[topic_partition] = reason

    def add_last(self, effect: Effect) -> None:
        """Add an effect after all others."""
        self._last.append(effect)

    def effects(self) -> list[Effect]:
        """Return all effects, in order."""
        brokers = dict(self._context.brokers)
        effects = [
            *self._log_lines,
            *_drops(self._replaced_reassignments),
            *self._assignments(self._grown_assignments.keys() - self._shrunk_assignments.keys()),
        ]
        effects += [
            events.WriteLeaderships(states, create=states is self._created)
            for states in (self._elected, self._created, self._changed)
            if states
        ]
        effects += [
            events.SendUpdateMetadata(broker_id, brokers, {}) for broker_id in self._send_live_brokers_to
        ]
        effects += [
            events.SendLeaderAndIsr(broker_id, leaderships, self._context.ids_of(leaderships))
            for broker_id, leaderships in self._leaderships.items()
        ]
        all_known = (
            {**self._context.leaderships, **self._update_metadata} if self._send_full_metadata_to else {}
        )
        all_ids, changed_ids = map(self._context.ids_of, (all_known, self._update_metadata))
        for broker_id in brokers:
            if broker_id in self._send_full_metadata_to:
                effects.append(events.SendUpdateMetadata(broker_id, brokers, all_known, all_ids))
            elif self._update_metadata:
                effects.append(
                    events.SendUpdateMetadata(broker_id, brokers, self._update_metadata, changed_ids)
                )
        for delete, stopped in ((False, self._stopped), (True, self._deleted)):
            for broker_id, partitions in stopped.items():
                effects.append(events.SendStopReplica(broker_id, tuple(partitions), delete))
        effects += self._assignments(self._shrunk_assignments)
        return [*effects, *_drops(self._dropped_reassignments), *self._last]

    def _assignments(self, topics: Collection[str]) -> list[Effect]:
        assignments = self._context.assignments
        wanted = {topic: dict(assignments[topic]) for topic in sorted(topics) if topic in assignments}
        moving = self._context.moving_replicas(wanted)
        return [events.WriteAssignments(wanted, moving)] if wanted else []


def _drops(reasons: Mapping[TopicPartition, str]) -> list[Effect]:
    return [events.DropReassignments(dict(reasons))] if reasons else []
