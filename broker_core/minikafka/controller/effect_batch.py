"""The effects of one step, gathered and brought into their order: one message of each kind a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.context import Context
from minikafka.controller.events import Effect
from minikafka.partition.replica import LeaderAndIsr


class EffectBatch:
    """Collects the effects of one step.

    The order: log lines; assignments that grow; state znodes (other leaders, which clients wait for, then new
    partitions, then what only shrinks); what brokers are told; and last what ends a piece of work, so
    that a controller that dies before finds it undone.
    """

    def __init__(self, context: Context) -> None:
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
        self._completed_assignments: dict[str, None] = {}
        self._last: list[Effect] = []
        self._dropped_reassignments: dict[TopicPartition, str] = {}

    def add_log_line(self, text: str, *, warning: bool = False) -> None:
        """Have a line logged."""
        self._log_lines.append(events.LogLine(text, warning))

    def add_state_write(
        self, topic_partition: TopicPartition, leadership: LeaderAndIsr, known: LeaderAndIsr | None
    ) -> None:
        """Have a state znode written, in place of ``known``."""
        if known is None:
            self._created[topic_partition] = leadership
        elif known.leader != leadership.leader:
            self._elected[topic_partition] = leadership
        else:
            self._changed[topic_partition] = leadership

    def add_assignment_write(self, topic: str) -> None:
        """Have a topic's assignment, which has grown, written before its leaders are."""
        self._grown_assignments[topic] = None

    def add_leader_and_isr(
        self, broker_id: int, topic_partition: TopicPartition, leadership: LeaderAndIsr
    ) -> None:
        """Tell a broker what it leads or follows."""
        self._leaderships.setdefault(broker_id, {})[topic_partition] = leadership

    def add_update_metadata(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """Tell all brokers who leads what."""
        self._update_metadata.update(leaderships)

    def add_live_brokers(self, broker_ids: Iterable[int]) -> None:
        """Tell brokers who is alive, before they hear of leaders: 0.10.1 follows only whom it knows."""
        self._send_live_brokers_to.update(dict.fromkeys(broker_ids))

    def add_full_metadata(self, broker_ids: Iterable[int]) -> None:
        """Tell brokers of every partition."""
        self._send_full_metadata_to.update(dict.fromkeys(broker_ids))

    def add_stop_replica(self, broker_id: int, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Have a broker stop a replica."""
        stopped = self._deleted if delete else self._stopped
        stopped.setdefault(broker_id, {})[topic_partition] = None

    def complete_reassignment(self, topic_partition: TopicPartition) -> None:
        """A reassignment is done: have its topic's assignment written, and then the request removed."""
        self._completed_assignments[topic_partition.topic] = None
        self._dropped_reassignments[topic_partition] = "done"

    def drop_reassignment(self, topic_partition: TopicPartition, reason: str) -> None:
        """Have the request for a reassignment removed that is not carried out."""
        self._dropped_reassignments[topic_partition] = reason

    def add_last(self, effect: Effect) -> None:
        """Have this done after all else."""
        self._last.append(effect)

    def effects(self) -> list[Effect]:
        """All of it, in order."""
        brokers = dict(self._context.brokers)
        effects = [
            *self._log_lines,
            *self._assignments(self._grown_assignments.keys() - self._completed_assignments.keys()),
        ]
        effects += [
            events.WriteLeaderships(states, create=states is self._created)
            for states in (self._elected, self._created, self._changed)
            if states
        ]
        effects += [
            events.SendUpdateMetadata(broker_id, brokers, {}) for broker_id in self._send_live_brokers_to
        ]
        effects += [events.SendLeaderAndIsr(broker_id, told) for broker_id, told in self._leaderships.items()]
        all_known = (
            {**self._context.leaderships, **self._update_metadata} if self._send_full_metadata_to else {}
        )
        for broker_id in brokers:
            if broker_id in self._send_full_metadata_to:
                effects.append(events.SendUpdateMetadata(broker_id, brokers, all_known))
            elif self._update_metadata:
                effects.append(events.SendUpdateMetadata(broker_id, brokers, self._update_metadata))
        for delete, stopped in ((False, self._stopped), (True, self._deleted)):
            for broker_id, partitions in stopped.items():
                effects.append(events.SendStopReplica(broker_id, tuple(partitions), delete))
        effects += self._assignments(self._completed_assignments)
        if self._dropped_reassignments:
            effects.append(events.DropReassignments(dict(self._dropped_reassignments)))
        return [*effects, *self._last]

    def _assignments(self, topics: Collection[str]) -> list[Effect]:
        assignments = self._context.assignments
        wanted = {topic: dict(assignments[topic]) for topic in sorted(topics) if topic in assignments}
        return [events.WriteAssignments(wanted)] if wanted else []
