"""The effects of one step, gathered and brought into their order: one message of each kind a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.context import Context
from minikafka.controller.events import Effect
from minikafka.partition.replica import Leadership


class Outbox:
    """What one step wants done.

    The order: log lines; assignments that grow; state znodes (other leaders, which clients wait for, then new
    partitions, then what only shrinks); what brokers are told; and last what ends a piece of work, so
    that a controller that dies before finds it undone.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._notes: list[Effect] = []
        self._grown: dict[str, None] = {}
        self._created: dict[TopicPartition, Leadership] = {}
        self._elected: dict[TopicPartition, Leadership] = {}
        self._changed: dict[TopicPartition, Leadership] = {}
        self._leaderships: dict[int, dict[TopicPartition, Leadership]] = {}
        self._news: dict[TopicPartition, Leadership] = {}
        self._greeted: dict[int, None] = {}
        self._told_all: dict[int, None] = {}
        self._stopped: dict[int, dict[TopicPartition, None]] = {}
        self._deleted: dict[int, dict[TopicPartition, None]] = {}
        self._settled: dict[str, None] = {}
        self._last: list[Effect] = []
        self._dropped: dict[TopicPartition, str] = {}

    def note(self, text: str, *, warning: bool = False) -> None:
        """Have a line logged."""
        self._notes.append(events.Note(text, warning))

    def write(
        self, topic_partition: TopicPartition, leadership: Leadership, known: Leadership | None
    ) -> None:
        """Have a state znode written, in place of ``known``."""
        if known is None:
            self._created[topic_partition] = leadership
        elif known.leader != leadership.leader:
            self._elected[topic_partition] = leadership
        else:
            self._changed[topic_partition] = leadership

    def write_assignment(self, topic: str) -> None:
        """Have a topic's assignment, which has grown, written before its leaders are."""
        self._grown[topic] = None

    def tell(self, broker_id: int, topic_partition: TopicPartition, leadership: Leadership) -> None:
        """Tell a broker what it leads or follows."""
        self._leaderships.setdefault(broker_id, {})[topic_partition] = leadership

    def publish(self, leaderships: Mapping[TopicPartition, Leadership]) -> None:
        """Tell all brokers who leads what."""
        self._news.update(leaderships)

    def greet(self, broker_ids: Iterable[int]) -> None:
        """Tell brokers who is alive, before they hear of leaders: 0.10.1 follows only whom it knows."""
        self._greeted.update(dict.fromkeys(broker_ids))

    def tell_all(self, broker_ids: Iterable[int]) -> None:
        """Tell brokers of every partition."""
        self._told_all.update(dict.fromkeys(broker_ids))

    def stop(self, broker_id: int, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Have a broker stop a replica."""
        stopped = self._deleted if delete else self._stopped
        stopped.setdefault(broker_id, {})[topic_partition] = None

    def reassigned(self, topic_partition: TopicPartition) -> None:
        """A reassignment is done: have its topic's assignment written, and then the request removed."""
        self._settled[topic_partition.topic] = None
        self._dropped[topic_partition] = "done"

    def drop_reassignment(self, topic_partition: TopicPartition, reason: str) -> None:
        """Have the request for a reassignment removed that is not carried out."""
        self._dropped[topic_partition] = reason

    def finally_do(self, effect: Effect) -> None:
        """Have this done after all else."""
        self._last.append(effect)

    def effects(self) -> list[Effect]:
        """All of it, in order."""
        brokers = dict(self._context.brokers)
        effects = [*self._notes, *self._assignments(self._grown.keys() - self._settled.keys())]
        effects += [
            events.WriteLeaderships(states, create=states is self._created)
            for states in (self._elected, self._created, self._changed)
            if states
        ]
        effects += [events.SendUpdateMetadata(broker_id, brokers, {}) for broker_id in self._greeted]
        effects += [events.SendLeaderAndIsr(broker_id, told) for broker_id, told in self._leaderships.items()]
        all_known = {**self._context.leaderships, **self._news} if self._told_all else {}
        for broker_id in brokers:
            if broker_id in self._told_all:
                effects.append(events.SendUpdateMetadata(broker_id, brokers, all_known))
            elif self._news:
                effects.append(events.SendUpdateMetadata(broker_id, brokers, self._news))
        for delete, stopped in ((False, self._stopped), (True, self._deleted)):
            for broker_id, partitions in stopped.items():
                effects.append(events.SendStopReplica(broker_id, tuple(partitions), delete))
        effects += self._assignments(self._settled)
        if self._dropped:
            effects.append(events.DropReassignments(dict(self._dropped)))
        return [*effects, *self._last]

    def _assignments(self, topics: Collection[str]) -> list[Effect]:
        assignments = self._context.assignments
        wanted = {topic: dict(assignments[topic]) for topic in sorted(topics) if topic in assignments}
        return [events.WriteAssignments(wanted)] if wanted else []
