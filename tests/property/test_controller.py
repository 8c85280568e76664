"""Controllers in random sequences of events: a model of ZooKeeper and of brokers, with a random seed.

Brokers die, come back, lose their session and restart at once; leaders change the ISR; one controller follows
another, and an earlier one continues until it learns of it. Jobs and messages wait in queues, and any event
may happen between two of them. The model checks every value that is written and every message that is sent;
at the end all brokers live, and everything that was requested must be complete.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.assignment import OngoingReassignment
from minikafka.controller.controller import Controller
from minikafka.controller.election import LEADER_DURING_DELETE, NO_LEADER
from minikafka.controller.states import PartitionStatus
from minikafka.partition.replica import LeaderAndIsr
from tests.support.seeds import seeds

BROKERS = (1, 2, 3, 4)
TP = TopicPartition
Job = str | tuple[int, events.Effect | events.LeadersWanted | events.ReassignmentsAltered]
"""Something that a watch saw, by name; an effect with the controller epoch of its step; or a request."""


@dataclass
class Broker:
    """A broker's process: the states that it received, and the logs on its disk."""

    broker_id: int
    alive: bool = True
    stopping: bool = False
    session: int = 0
    heard: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    controller_epoch: int = 0
    inbox: deque[tuple[int, int, events.Effect]] = field(default_factory=deque)
    logs: set[TopicPartition] = field(default_factory=set)
    stuck: set[TopicPartition] = field(default_factory=set)
    """Replicas that it could not delete yet."""
    controller: Controller | None = None
    jobs: deque[Job] = field(default_factory=deque)

    def stop(self) -> None:
        self.heard.clear()
        self.inbox.clear()
        self.stuck.clear()
        self.controller_epoch = 0
        self.controller = None
        self.jobs.clear()


class ControllerHarness:
    """ZooKeeper, the brokers, and the invariants between them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.brokers = {broker_id: Broker(broker_id) for broker_id in BROKERS}
        self.sessions = 0
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.written: set[tuple[TopicPartition, LeaderAndIsr]] = set()
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.assignments: dict[str, dict[int, tuple[int, ...]]] = {}
        self.marked: set[str] = set()
        self.unclean = frozenset({"t1"})
        self.may_be_unclean: set[TopicPartition] = set()
        """Partitions for which a client has asked for an unclean election."""
        self.reassignments: dict[TopicPartition, tuple[int, ...]] = {}
        self.moving: dict[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """The replicas that topics' znodes say are being added, and removed."""
        self.targets: dict[TopicPartition, tuple[int, ...]] = {}
        """The replicas of the last reassignment that was stored."""
        self.elections: frozenset[TopicPartition] | None = None
        self.controller_id = -1
        self.controller_epoch = 0
        self.changed_isr: set[TopicPartition] = set()
        self.topics_made = 0
        for broker in self.brokers.values():
            self._new_session(broker)
        self.elect()

    # --- the cluster ----------------------------------------------------------------------------------------

    def live(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.alive]

    def addresses(self) -> dict[int, LiveBroker]:
        return {broker.broker_id: LiveBroker.plaintext(broker.broker_id, "h", 1) for broker in self.live()}

    def session_ids(self) -> dict[int, int]:
        return {broker.broker_id: broker.session for broker in self.live()}

    def _new_session(self, broker: Broker) -> None:
        self.sessions += 1
        broker.session = self.sessions
        broker.stopping = False
        if self.controller_id == broker.broker_id:
            self.controller_id = -1
            broker.jobs.append("resigned")

    def watch(self, what: str) -> None:
        for broker in self.live():
            if broker.controller is not None:
                broker.jobs.append(what)

    def elect(self) -> None:
        if self.controller_id >= 0 or not self.live():
            return
        broker = self.random.choice(self.live())
        self.controller_id = broker.broker_id
        self.controller_epoch += 1
        broker.jobs.append(f"elected {self.controller_epoch}")

    def leaderships(self) -> dict[TopicPartition, LeaderAndIsr]:
        return {
            key: replace(state, replicas=self.assignments[key.topic][key.partition])
            for key, state in self.states.items()
        }

    # --- what happens ---------------------------------------------------------------------------------------

    def chance(self) -> None:
        happenings = (
            [self.run_a_job] * 10
            + [self.deliver_a_message] * 10
            + [self.change_isr] * 6
            + [self.kill, self.revive, self.revive, self.restart, self.expire, self.elect, self.elect]
            + [self.create, self.grow, self.delete, self.reassign, self.ask_election, self.rebalance]
            + [self.shut_down, self.alter_reassignment, self.alter_reassignment, self.elect_unclean]
        )
        self.random.choice(happenings)()

    def kill(self) -> None:
        if len(self.live()) > 1:
            broker = self.random.choice(self.live())
            broker.alive = False
            if self.controller_id == broker.broker_id:
                self.controller_id = -1
            broker.stop()
            self.watch("brokers")

    def revive(self) -> None:
        dead = [broker for broker in self.brokers.values() if not broker.alive]
        if dead:
            broker = self.random.choice(dead)
            broker.alive = True
            self._new_session(broker)
            self.watch("brokers")

    def restart(self) -> None:
        self._restart(self.random.choice(self.live()))

    def _restart(self, broker: Broker) -> None:
        if self.controller_id == broker.broker_id:
            self.controller_id = -1
        broker.stop()
        self._new_session(broker)
        self.watch("brokers")

    def expire(self) -> None:
        self._new_session(self.random.choice(self.live()))
        self.watch("brokers")

    def create(self) -> None:
        if self.topics_made < 4:
            topic = f"t{self.topics_made}"
            self.topics_made += 1
            self.assignments[topic] = {p: self._replicas() for p in range(self.random.randint(1, 3))}
            self.watch("topics")

    def _replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    def grow(self) -> None:
        topics = [topic for topic in self.assignments if topic not in self.marked]
        if topics:
            topic = self.random.choice(topics)
            if len(self.assignments[topic]) < 4:
                grown = dict(self.assignments[topic])
                grown[len(grown)] = self._replicas()
                self.assignments[topic] = grown
                self.watch("topics")

    def delete(self) -> None:
        if self.assignments and self.random.random() < 0.3:
            self.marked.add(self.random.choice(sorted(self.assignments)))
            self.watch("deletions")

    def reassign(self) -> None:
        if not self.reassignments and self.states:
            for topic_partition in self.random.sample(sorted(self.states), 1):
                self.reassignments[topic_partition] = self._replicas()
            self.watch("reassignments")

    def alter_reassignment(self) -> None:
        """A client asks the controller for other replicas, or to cancel."""
        controller = self.brokers[self.controller_id].controller if self.controller_id >= 0 else None
        if controller is not None and self.states:
            key = self.random.choice(sorted(self.moving) or sorted(self.states))
            if self.random.random() < 0.5:
                key = self.random.choice(sorted(self.states))
            replicas = None if self.random.random() < 0.3 else self._replicas()
            self.brokers[self.controller_id].jobs.append((-1, events.ReassignmentsAltered({key: replicas})))

    def elect_unclean(self) -> None:
        """A client asks for leaders, whoever lives."""
        if self.controller_id >= 0 and self.states:
            event = events.LeadersWanted(frozenset(self.random.sample(sorted(self.states), 1)), unclean=True)
            self.brokers[self.controller_id].jobs.append((-1, event))

    def _serve(self, broker: Broker, event: events.LeadersWanted | events.ReassignmentsAltered) -> None:
        """Give a client's request to the controller, unless it refuses it."""
        if broker.controller is None or not broker.controller.active:
            return
        try:
            if isinstance(event, events.LeadersWanted):
                for key in event.partitions:
                    broker.controller.check_election(key, unclean=event.unclean)
                    self.may_be_unclean.add(key)
            else:
                for key, replicas in event.reassignments.items():
                    broker.controller.check_reassignment(key, replicas)
        except BrokerError:
            return
        self.tell(broker, event)

    def ask_election(self) -> None:
        if self.elections is None and self.states:
            self.elections = frozenset(self.random.sample(sorted(self.states), 1))
            self.watch("elections")

    def rebalance(self) -> None:
        self.watch("rebalance")

    def shut_down(self) -> None:
        if self.random.random() < 0.3:
            self.watch(f"shutdown {self.random.choice(BROKERS)}")

    def change_isr(self) -> None:
        """A leader takes a replica in, or out, if the znode still has the version that it knows."""
        broker = self.random.choice(self.live())
        leading = [key for key, known in broker.heard.items() if known.leader == broker.broker_id]
        if not leading:
            return
        topic_partition = self.random.choice(sorted(leading))
        known = broker.heard[topic_partition]
        other = self.random.choice(known.replicas)
        if other == broker.broker_id:
            return
        if other in known.isr:
            isr = tuple(replica for replica in known.isr if replica != other)
        elif self._follows(other, topic_partition, known):
            isr = (*known.isr, other)
        else:
            return
        self._write_isr(broker, topic_partition, isr)

    def _write_isr(self, broker: Broker, topic_partition: TopicPartition, isr: tuple[int, ...]) -> None:
        known, state = broker.heard[topic_partition], self.states.get(topic_partition)
        if state is not None and state.version == known.version:
            changed = replace(known, isr=isr, version=known.version + 1)
            assert (state.leader, state.leader_epoch) == (known.leader, known.leader_epoch)
            self._store(topic_partition, changed)
            broker.heard[topic_partition] = changed
        elif state is not None and state.leader_epoch == known.leader_epoch:
            # It wrote that itself, before it restarted and received the controller's state.
            broker.heard[topic_partition] = replace(known, isr=state.isr, version=state.version)
        # A leader that finds another version announces it too: the change may not have been announced.
        self.changed_isr.add(topic_partition)
        self.watch("isr")

    def _follows(self, broker_id: int, topic_partition: TopicPartition, known: LeaderAndIsr) -> bool:
        other = self.brokers[broker_id]
        heard = other.heard.get(topic_partition)
        return other.alive and heard is not None and heard.leader_epoch == known.leader_epoch

    # --- jobs of controllers --------------------------------------------------------------------------------

    def run_a_job(self) -> None:
        busy = [broker for broker in self.live() if broker.jobs]
        if busy:
            broker = self.random.choice(busy)
            job = broker.jobs.popleft()
            if isinstance(job, str):
                self._look(broker, job)
            else:
                self._perform(broker, *job)

    def _ongoing(self) -> dict[TopicPartition, OngoingReassignment]:
        found = {}
        for key, (adding, removing) in self.moving.items():
            assigned = self._replicas_of(key)
            if assigned:
                target = tuple(replica for replica in assigned if replica not in removing)
                found[key] = OngoingReassignment(target, adding)
        return found

    def _topics_changed(self, broker: Broker) -> events.TopicsChanged:
        gone = broker.controller._context.assignments.keys() - self.assignments.keys()
        return events.TopicsChanged(dict(self.assignments), frozenset(gone), self.topic_ids())

    def topic_ids(self) -> dict[str, bytes]:
        return {topic: topic.encode().ljust(16) for topic in self.assignments}

    def _look(self, broker: Broker, what: str) -> None:
        event: events.Event
        name, _, number = what.partition(" ")
        match name:
            case "elected":
                if self.controller_id != broker.broker_id or int(number) != self.controller_epoch:
                    return
                broker.controller = Controller(broker.broker_id, delete_topics=True)
                event = events.Elected(
                    self.controller_epoch,
                    self.addresses(),
                    dict(self.assignments),
                    self.leaderships(),
                    frozenset(self.marked),
                    self.session_ids(),
                    self.unclean,
                    dict(self.reassignments),
                    self.elections or frozenset(),
                    topic_ids=self.topic_ids(),
                    ongoing=self._ongoing(),
                )
            case "resigned":
                event = events.Resigned()
            case "brokers":
                event = events.BrokersChanged(self.addresses(), self.session_ids())
            case "topics":
                event = self._topics_changed(broker)
            case "deletions":
                self.tell(broker, self._topics_changed(broker))
                event = events.DeletionRequested(frozenset(self.marked))
            case "reassignments":
                event = events.ReassignmentRequested(dict(self.reassignments))
            case "elections":
                if self.elections is None:
                    return
                event = events.ElectionRequested(self.elections)
            case "rebalance":
                event = events.RebalanceDue(10)
            case "shutdown":
                event = events.ShutdownRequested(int(number))
                self.brokers[int(number)].stopping = True
            case "isr":
                held = self.leaderships()
                event = events.IsrChanged({key: held[key] for key in sorted(self.changed_isr) if key in held})
            case _:
                raise AssertionError(what)
        self.tell(broker, event)

    def tell(self, broker: Broker, event: events.Event) -> None:
        if broker.controller is not None:
            effects = broker.controller.step(event)
            broker.jobs.extend((broker.controller.epoch, effect) for effect in effects)

    def _perform(
        self,
        broker: Broker,
        epoch: int,
        effect: events.Effect | events.LeadersWanted | events.ReassignmentsAltered,
    ) -> None:
        match effect:
            case events.WriteLeaderships(leaderships, create):
                held = {key: self._write(key, value, create=create) for key, value in leaderships.items()}
                found = {key: value for key, value in held.items() if value is not None}
                self.tell(broker, events.LeadershipsWritten(found, frozenset(held.keys() - found.keys())))
            case events.SendLeaderAndIsr() | events.SendUpdateMetadata() | events.SendStopReplica():
                self._send(broker.broker_id, epoch, effect)
            case events.LeadersWanted() | events.ReassignmentsAltered():
                self._serve(broker, effect)
            case _ if epoch != self.controller_epoch:
                pass  # what is not conditional by itself is on the controller epoch
            case events.RemoveTopic(topic):
                self._remove(topic)
                self.tell(broker, events.TopicRemoved(topic))
            case events.DropDeletionRequest(topic, _):
                assert topic not in self.assignments
                self.marked.discard(topic)
            case events.WriteAssignments(assignments, moving):
                for topic in assignments.keys() & self.assignments.keys():
                    self.assignments[topic] = {**self.assignments[topic], **assignments[topic]}
                    for key in [key for key in self.moving if key.topic == topic]:
                        del self.moving[key]
                for key, lists in moving.items():
                    if key.topic in self.assignments:
                        self.moving[key] = lists
                        assigned = assignments[key.topic][key.partition]
                        self.targets[key] = tuple(replica for replica in assigned if replica not in lists[1])
            case events.DropReassignments(reasons):
                for topic_partition in reasons:
                    self.reassignments.pop(topic_partition, None)
            case events.DropElections():
                self.elections = None
            case events.LogLine():
                pass

    def _remove(self, topic: str) -> None:
        for broker in self.brokers.values():
            held = {key for key in broker.logs if key.topic == topic}
            assert not {key for key in held if broker.broker_id in self._replicas_of(key)}, (broker, held)
        self.marked.discard(topic)
        self.assignments.pop(topic, None)
        for key in [key for key in self.moving if key.topic == topic]:
            del self.moving[key]
        for topic_partition in [key for key in self.states if key.topic == topic]:
            del self.states[topic_partition]

    def _replicas_of(self, key: TopicPartition) -> tuple[int, ...]:
        return self.assignments.get(key.topic, {}).get(key.partition, ())

    def _write(self, key: TopicPartition, value: LeaderAndIsr, *, create: bool) -> LeaderAndIsr | None:
        if key.topic not in self.assignments:
            return None
        state = self.states.get(key)
        if state is None:
            if not create:
                return None
            assert value.version == 0
        elif create or state.version != value.version - 1:
            return replace(state, replicas=value.replicas)
        if state is not None:
            assert value.leader_epoch > state.leader_epoch, f"{key}: {value} after {state}"
            clean = set(value.isr) <= set(state.isr)
            allowed = key.topic in self.unclean or key in self.may_be_unclean
            assert clean or (allowed and value.isr == (value.leader,)), f"{key}: {value}, {state}"
        assert (key, value.leader_epoch) not in self.leaders, f"{key}: epoch {value.leader_epoch} again"
        self.leaders[key, value.leader_epoch] = value.leader
        self._store(key, value)
        return value

    def _store(self, key: TopicPartition, value: LeaderAndIsr) -> None:
        assert value.isr, f"{key} has nobody in sync"
        assert value.leader == NO_LEADER or value.leader in value.isr, f"{key}: {value}"
        self.states[key] = value
        self.written.add((key, replace(value, replicas=())))

    def _send(
        self,
        sender: int,
        epoch: int,
        effect: events.SendLeaderAndIsr | events.SendUpdateMetadata | events.SendStopReplica,
    ) -> None:
        if not isinstance(effect, events.SendStopReplica):
            for key, state in effect.leaderships.items():
                if state.leader != LEADER_DURING_DELETE:
                    assert (key, replace(state, replicas=())) in self.written, (
                        f"{key}: {state} was never written"
                    )
        if isinstance(effect, events.SendUpdateMetadata):
            served = {key.topic for key, state in effect.leaderships.items() if state.leader >= -1}
            assert served <= effect.topic_ids.keys()
        receiver = self.brokers[effect.broker_id]
        if receiver.alive:
            receiver.inbox.append((sender, epoch, effect))

    # --- brokers --------------------------------------------------------------------------------------------

    def deliver_a_message(self) -> None:
        waiting = [broker for broker in self.live() if broker.inbox]
        if waiting:
            broker = self.random.choice(waiting)
            self._receive(broker, *broker.inbox.popleft())

    def _receive(self, broker: Broker, sender: int, epoch: int, effect: events.Effect) -> None:
        if epoch < broker.controller_epoch:
            return
        broker.controller_epoch = epoch
        match effect:
            case events.SendLeaderAndIsr(_, leaderships):
                for key, state in leaderships.items():
                    assert broker.broker_id in state.replicas
                    heard = broker.heard.get(key)
                    if heard is None or state.leader_epoch > heard.leader_epoch:
                        broker.heard[key] = state
                        broker.logs.add(key)
            case events.SendStopReplica(_, partitions, delete):
                for key in partitions:
                    heard = broker.heard.get(key)
                    if delete:
                        broker.heard.pop(key, None)
                        self._delete(broker, sender, epoch, key, fail=self.random.random() < 0.2)
                    elif heard is not None and heard.leader != broker.broker_id:
                        del broker.heard[key]

    def _delete(self, broker: Broker, sender: int, epoch: int, key: TopicPartition, *, fail: bool) -> None:
        answer: events.Event
        if fail:
            broker.stuck.add(key)
            answer = events.ReplicaNotDeleted(broker.broker_id, key)
        else:
            broker.stuck.discard(key)
            broker.logs.discard(key)
            answer = events.ReplicaDeleted(broker.broker_id, key)
        asked = self.brokers[sender]
        if asked.controller is not None and asked.controller.epoch == epoch:
            self.tell(asked, answer)

    # --- the end --------------------------------------------------------------------------------------------

    def calm_down(self) -> None:
        """Revive all brokers, finish all stops, and complete everything that is in progress."""
        while len(self.live()) < len(BROKERS):
            self.revive()
        self._run_all()
        for broker in self.live():
            if broker.stopping:
                self._restart(broker)
        self.watch("brokers")
        for _ in range(40):
            self.elect()
            self._run_all()
            for broker in self.live():
                for key in sorted(broker.stuck):
                    self._delete(broker, self.controller_id, self.controller_epoch, key, fail=False)
                self._catch_up(broker)
        self._run_all()

    def _run_all(self) -> None:
        for _ in range(5_000):
            if not any(broker.jobs or broker.inbox for broker in self.live()):
                return
            self.run_a_job()
            self.deliver_a_message()
        raise AssertionError("the jobs and messages never end")

    def _catch_up(self, leader: Broker) -> None:
        """Add all followers to the ISR."""
        for key in sorted(leader.heard):
            known = leader.heard[key]
            if known.leader == leader.broker_id:
                followers = [
                    replica
                    for replica in known.replicas
                    if replica not in known.isr and self._follows(replica, key, known)
                ]
                # A state that an earlier controller wrote last is noticed by the next write of its leader.
                if followers or self.states[key].version != known.version:
                    self._write_isr(leader, key, (*known.isr, *followers))

    def check_the_end(self) -> None:
        controller = self.brokers[self.controller_id].controller
        assert controller is not None
        assert not self.marked
        assert not self.reassignments
        assert {key: lists for key, lists in self.moving.items() if lists != ((), ())} == {}
        assert controller.reassignments() == {}
        assert self.elections is None
        for topic, assignment in self.assignments.items():
            for partition, replicas in assignment.items():
                key = TP(topic, partition)
                state = self.states[key]
                assert replicas == self.targets.get(key, replicas)
                assert state.leader in replicas, key
                assert set(state.isr) == set(replicas), key
                assert controller.status(key) is PartitionStatus.ONLINE
                for replica in replicas:
                    heard = self.brokers[replica].heard[key]
                    assert (heard.leader, heard.leader_epoch) == (state.leader, state.leader_epoch), key


@pytest.mark.parametrize("seed", seeds(150))
def test_no_rule_is_broken_and_all_work_ends(seed: int) -> None:
    harness = ControllerHarness(seed)
    for _ in range(600):
        harness.chance()
    harness.calm_down()
    harness.check_the_end()
