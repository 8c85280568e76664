"""A controller whose writes succeed at once, and what it wants done."""

from __future__ import annotations

from typing import Any, TypeVar

from minikafka.base.endpoints import LiveBroker
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.assignment import Assignment
from minikafka.controller.controller import Controller
from minikafka.partition.replica import LeaderAndIsr

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 5

Kind = TypeVar("Kind")


def state(
    leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] | None = None, **rest: int
) -> LeaderAndIsr:
    """A partition's state, of epoch and version 0 if nothing else is said."""
    fields = {"leader_epoch": 0, "controller_epoch": EPOCH, "version": 0, **rest}
    return LeaderAndIsr(leader=leader, isr=isr, replicas=isr if replicas is None else replicas, **fields)


class Cluster:
    """The controller, on broker 9, which has no replicas, and the brokers that live."""

    def __init__(
        self,
        live: tuple[int, ...],
        leaderships: dict[TopicPartition, LeaderAndIsr] | None = None,
        **elected: Any,
    ) -> None:
        self.controller = Controller(9, delete_topics=True)
        self.sessions: dict[int, int] = {}
        self.answers = True
        self.effects: list[events.Effect] = []
        leaderships = leaderships or {}
        assignments: dict[str, dict[int, tuple[int, ...]]] = {}
        for (topic, partition), known in leaderships.items():
            assignments.setdefault(topic, {})[partition] = known.replicas
        self._start((9, *live))
        self.tell(
            events.Elected(
                **{  # type: ignore[arg-type]
                    "epoch": EPOCH,
                    "brokers": self.addresses(),
                    "sessions": dict(self.sessions),
                    "assignments": assignments,
                    "leaderships": leaderships,
                    "deletions": frozenset(),
                    **elected,
                }
            )
        )

    def _start(self, broker_ids: tuple[int, ...]) -> None:
        for broker_id in broker_ids:
            self.sessions[broker_id] = max(self.sessions.values(), default=0) + 1

    def addresses(self) -> dict[int, LiveBroker]:
        return {number: LiveBroker.plaintext(number, f"host-{number}", 9092) for number in self.sessions}

    def tell(self, event: events.Event) -> list[events.Effect]:
        """Give it an event, and the answers to what it then writes; all effects that come of it."""
        self.effects = []
        waiting = [event]
        while waiting:
            for effect in self.controller.step(waiting.pop(0)):
                self.effects.append(effect)
                if isinstance(effect, events.WriteLeaderships) and self.answers:
                    waiting.append(events.LeadershipsWritten(effect.leaderships))
        return self.effects

    def lose(self, *broker_ids: int) -> list[events.Effect]:
        for broker_id in broker_ids:
            del self.sessions[broker_id]
        return self._tell_brokers()

    def start(self, *broker_ids: int) -> list[events.Effect]:
        """Brokers that come, or, if they live, were restarted in between."""
        self._start(broker_ids)
        return self._tell_brokers()

    def _tell_brokers(self) -> list[events.Effect]:
        return self.tell(events.BrokersChanged(self.addresses(), dict(self.sessions)))

    def create(self, topic: str, assignment: Assignment) -> list[events.Effect]:
        return self.tell(events.TopicsChanged({topic: assignment}))

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The last event's effects of a kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def written(self, key: TopicPartition = T0) -> list[LeaderAndIsr]:
        """What the last event had written for a partition."""
        return [
            effect.leaderships[key]
            for effect in self.of(events.WriteLeaderships)
            if key in effect.leaderships
        ]

    def led(self, key: TopicPartition = T0) -> dict[int, LeaderAndIsr]:
        """Which brokers were told what of a partition they lead or follow, at last."""
        told = self.of(events.SendLeaderAndIsr)
        return {effect.broker_id: effect.leaderships[key] for effect in told if key in effect.leaderships}

    def published(self, key: TopicPartition = T0) -> dict[int, LeaderAndIsr]:
        """Which brokers were told what of a partition for their clients, at last."""
        told = self.of(events.SendUpdateMetadata)
        return {effect.broker_id: effect.leaderships[key] for effect in told if key in effect.leaderships}

    def stopped(self, *, delete: bool) -> dict[int, tuple[TopicPartition, ...]]:
        """Which brokers were told to stop or delete what."""
        told = self.of(events.SendStopReplica)
        return {effect.broker_id: effect.partitions for effect in told if effect.delete is delete}

    def notes(self) -> list[str]:
        return [effect.text for effect in self.of(events.LogLine)]

    def known(self, key: TopicPartition = T0) -> LeaderAndIsr:
        known = self.controller.leadership(key)
        assert known is not None
        return known
