"""The controller: one broker of the cluster decides for all.

An event changes what is known (``context``) or wanted (``reassignment``, ``preferred``, ``deletion``); then
each partition that it touches is settled: its state is compared with what it should be, and if it differs the
next state is written. The answer settles the partition again, until nothing is left to write; then it is
announced. So what happens while a write is under way, and what a controller finds that comes in the middle,
need no cases of their own.

Invariants
    Nothing is sent to a broker about a partition before its state znode holds it.
    A state is written over one that ZooKeeper was seen to hold, on the condition that it still does; of one
    partition one write is under way.
    A partition's leader epoch grows with every value that is written; controller epochs fence earlier
    controllers. The replicas in sync never become none.
    A topic's znodes go only after every replica was dropped, so that a broker that comes back cannot revive
    it.

Text 003 ("Topic management", "The controller"); ``KafkaController`` and ``TopicDeletionManager`` of 0.10.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.controller import events
from minikafka.controller.assignment import Assignment
from minikafka.controller.context import Context
from minikafka.controller.deletion import TopicDeletions
from minikafka.controller.effect_batch import EffectBatch
from minikafka.controller.election import (
    NO_LEADER,
    first_leader_and_isr,
    next_leader_and_isr,
    preferred_leader_and_isr,
)
from minikafka.controller.events import Effect, Event
from minikafka.controller.preferred_replica_election import PreferredReplicaElections
from minikafka.controller.reassignment import PartitionReassignments
from minikafka.controller.states import PartitionStatus, ReplicaStatus
from minikafka.partition.replica import LeaderAndIsr

_EPOCH_STEP_MAX = 1 << 20


@dataclass(slots=True)
class _PendingWrite:
    """A state that is being written, and not answered yet."""

    leadership: LeaderAndIsr
    bounced_brokers: Collection[int]
    """Brokers that were away before it was decided."""
    force_new_epoch: bool
    bounced_since: set[int] = field(default_factory=set)
    """Brokers that were away since."""


class Controller:
    """State of the active controller; idle until Elected.

    Same events in the same order give the same effects.
    """

    def __init__(self, broker_id: int, *, delete_topics: bool) -> None:
        self._broker_id = broker_id
        self._delete_topics = delete_topics
        self._reset(0)
        self.active = False

    def _reset(self, epoch: int) -> None:
        self.active = True
        self._context = Context(epoch)
        self._deletions = TopicDeletions(self._context, enabled=self._delete_topics)
        self._reassignments = PartitionReassignments(self._context)
        self._elections = PreferredReplicaElections(self._context)
        self._effects = EffectBatch(self._context)
        self._pending_writes: dict[TopicPartition, _PendingWrite] = {}
        self._failed_writes: dict[TopicPartition, set[int]] = {}
        """Brokers that were away, where that could not be written: the state is gone or cannot be read."""
        self._epoch_steps: dict[TopicPartition, int] = {}
        """By how much the leader epochs of partitions rise, where ZooKeeper's went back."""
        self._full_metadata_pending = False
        """Brokers wait for all that they are to tell clients, which follows the first states written."""

    # --- what others may ask --------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The controller epoch of this term of office; 0 while not active."""
        return self._context.epoch

    @property
    def brokers(self) -> Mapping[int, BrokerAddress]:
        """The live brokers."""
        return self._context.brokers

    @property
    def sessions(self) -> Mapping[int, int]:
        """The ZooKeeper sessions that registered them."""
        return self._context.sessions

    def status(self, topic_partition: TopicPartition) -> PartitionStatus:
        """Where the partition stands."""
        return self._context.status(topic_partition)

    def replica_status(self, topic_partition: TopicPartition, broker_id: int) -> ReplicaStatus:
        """Where a replica stands."""
        return self._context.replica_status(topic_partition, broker_id)

    def leadership(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        """What the partition's state znode is known to hold; None for a new one, or one that is going."""
        return self._context.leaderships.get(topic_partition)

    def assignment_of(self, topic: str) -> Assignment | None:
        """The replicas of a topic's partitions; None for one that is not there, or is to be deleted."""
        return None if topic in self._deletions else self._context.assignments.get(topic)

    def is_unknown(self, topic: str) -> bool:
        """Return whether nothing is known of a topic, and nothing of it waits to be deleted."""
        return topic not in self._context.assignments and topic not in self._deletions

    def partitions_still_led_by(self, broker_id: int) -> tuple[TopicPartition, ...]:
        """Partitions with other replicas that a broker leads still: none of those could take over."""
        context = self._context
        return tuple(
            topic_partition
            for topic_partition in context.partitions_on(broker_id)
            if len(context.replicas_of(topic_partition)) > 1
            and topic_partition in context.leaderships
            and context.leaderships[topic_partition].leader == broker_id
        )

    def partitions_with_stale_isr(
        self, brokers: Mapping[int, BrokerAddress], sessions: Mapping[int, int]
    ) -> tuple[TopicPartition, ...]:
        """What to look at before BrokersChanged tells of these: partitions where a broker that failed may
        have come in sync unseen, as leaders tell that later.
        """
        context = self._context
        failed = [one for one in context.brokers if one not in brokers]
        return tuple(
            topic_partition
            for broker_id in failed + context.restarted_brokers(brokers, sessions)
            for topic_partition in context.partitions_on(broker_id)
            if topic_partition in context.leaderships
            and broker_id not in context.leaderships[topic_partition].isr
        )

    # --- events ---------------------------------------------------------------------------------------------

    def step(self, event: Event) -> list[Effect]:
        """Take in what happened; return what is to be done. While not active, only Elected is heard."""
        if isinstance(event, events.Elected):
            self._elected(event)
        elif not self.active:
            return []
        elif isinstance(event, events.Resigned):
            self._reset(0)
            self.active = False
        else:
            if isinstance(event, events.LeaderEpochsRefused):
                self._raise_leader_epochs(event.partitions)
            else:
                self._handle(event)
            if self._full_metadata_pending and not self._pending_writes:
                self._full_metadata_pending = False
                self._effects.add_full_metadata(self._context.brokers)
        self._start_deletions()
        out, self._effects = self._effects, EffectBatch(self._context)
        return out.effects()

    def _handle(self, event: Event) -> None:
        match event:
            case events.BrokersChanged(brokers, sessions):
                self._brokers_changed(brokers, sessions)
            case events.TopicsChanged(assignments, gone):
                self._topics_changed(assignments, gone)
            case events.LeadershipsWritten(leaderships, gone):
                self._leaderships_written(leaderships, gone)
            case events.IsrChanged(leaderships):
                self._isr_changed(leaderships)
            case events.DeletionRequested(topics):
                self._deletions.request(topics, self._effects)
            case events.ReplicaDeleted(broker_id, topic_partition):
                self._deletions.complete_replica_deletion(topic_partition, broker_id, self._effects)
            case events.ReplicaNotDeleted(broker_id, topic_partition):
                self._deletions.fail_replica_deletion(topic_partition, broker_id)
            case events.TopicRemoved(topic):
                self._forget_topic(topic)
            case events.LogsFailed(broker_id, partitions):
                self._logs_failed(broker_id, partitions)
            case events.UncleanElectionChanged(topics):
                self._unclean_changed(topics)
            case events.ElectionRequested(partitions):
                self._elect_preferred(partitions)
            case events.RebalanceDue(limit_percent):
                self._rebalance(limit_percent)
            case events.ReassignmentRequested(reassignments):
                self._reassign(reassignments)
            case events.ShutdownRequested(broker_id):
                self._shutdown_requested(broker_id)
            case _:
                raise AssertionError(f"unknown event {event!r}")

    # --- becoming the controller ----------------------------------------------------------------------------

    def _elected(self, event: events.Elected) -> None:
        self._reset(event.epoch)
        context, out = self._context, self._effects
        context.brokers = dict(event.brokers)
        context.sessions = dict(event.sessions)
        context.unclean_election_topics = event.unclean_election_topics
        for topic, assignment in event.assignments.items():
            for topic_partition in context.add_partitions(topic, assignment):
                context.load_state(topic_partition, event.leaderships.get(topic_partition))
        self._deletions.request(event.deletions, out)
        if event.preferred_elections and not self._start_elections(event.preferred_elections, resumed=True):
            out.add_last(events.DropElections("none of its partitions is there"))
        self._reassign(event.reassignments, resumed=True)
        self._start_deletions()
        for topic_partition in context.partitions():
            if not self._deletions.is_under_way(topic_partition.topic):
                # Nobody knows whom the earlier controller had told of the new replicas.
                force_new_epoch = (
                    topic_partition in self._reassignments and topic_partition in context.leaderships
                )
                if self._reconcile(
                    topic_partition,
                    event.bounced_brokers.get(topic_partition, ()),
                    force_new_epoch=force_new_epoch,
                ):
                    self._send_leader_and_isr(topic_partition, context.brokers)
        out.add_live_brokers(broker_id for broker_id in context.brokers if broker_id != self._broker_id)
        # Who leads is told before clients are told of it: of what is being written when it is.
        self._full_metadata_pending = bool(self._pending_writes)
        if not self._pending_writes:
            out.add_full_metadata(context.brokers)

    # --- brokers --------------------------------------------------------------------------------------------

    def _brokers_changed(self, brokers: Mapping[int, BrokerAddress], sessions: Mapping[int, int]) -> None:
        context, before = self._context, self._context.brokers
        restarted = context.restarted_brokers(brokers, sessions)
        context.brokers, context.sessions = dict(brokers), dict(sessions)
        failed = [broker_id for broker_id in before if broker_id not in brokers] + restarted
        started = [broker_id for broker_id in brokers if broker_id not in before] + restarted
        if not failed and not started:
            return
        bounced_brokers: dict[TopicPartition, dict[int, None]] = {}
        for broker_id in failed:
            context.shutting_down.pop(broker_id, None)
            for topic_partition in context.partitions_on(broker_id):
                if self._deletions.is_under_way(topic_partition.topic):
                    self._deletions.fail_replica_deletion(topic_partition, broker_id)
                else:
                    context.set_replica_status(topic_partition, broker_id, ReplicaStatus.OFFLINE)
                    bounced_brokers.setdefault(topic_partition, {})[broker_id] = None
        for broker_id in started:
            for topic_partition in context.partitions_on(broker_id):
                if self._deletions.is_under_way(topic_partition.topic):
                    self._deletions.start_replica_deletion(topic_partition, broker_id, self._effects)
                else:
                    if topic_partition in context.leaderships:
                        context.set_replica_status(topic_partition, broker_id, ReplicaStatus.ONLINE)
                    bounced_brokers.setdefault(topic_partition, {})
        for topic_partition, away in bounced_brokers.items():
            if self._reconcile(topic_partition, away):
                self._send_leader_and_isr(topic_partition, started)
        self._effects.add_live_brokers(brokers)
        self._effects.add_full_metadata(started)

    def _shutdown_requested(self, broker_id: int) -> None:
        context = self._context
        if broker_id not in context.brokers:
            return
        context.shutting_down[broker_id] = None
        for topic_partition in list(context.partitions_on(broker_id)):
            known = context.leaderships.get(topic_partition)
            if known is None or len(context.replicas_of(topic_partition)) == 1:
                continue
            if known.leader != broker_id:
                self._effects.add_stop_replica(broker_id, topic_partition, delete=False)
                context.set_replica_status(topic_partition, broker_id, ReplicaStatus.OFFLINE)
            self._reconcile(topic_partition)

    def _logs_failed(self, broker_id: int, partitions: Collection[TopicPartition]) -> None:
        """Others in sync are to lead what a broker cannot write to; alone, it leads on."""
        context = self._context
        for topic_partition in sorted(partitions):
            known = context.leaderships.get(topic_partition)
            if known is None or known.leader != broker_id:
                continue
            if self._deletions.is_under_way(topic_partition.topic):
                continue
            if any(one != broker_id and context.eligible_brokers().is_stable(one) for one in known.isr):
                self._effects.add_log_line(
                    f"broker {broker_id} cannot write to its log of {topic_partition}: another replica leads",
                    warning=True,
                )
                self._reconcile(topic_partition, (broker_id,))

    # --- topics ---------------------------------------------------------------------------------------------

    def _topics_changed(self, assignments: Mapping[str, Assignment], gone: Collection[str]) -> None:
        context = self._context
        for topic in sorted(gone):
            if topic not in context.assignments or self._deletions.is_under_way(topic):
                continue
            # Somebody removed the znodes by hand: forget the topic, leave the logs (text 003, manual
            # deletion).
            self._effects.add_log_line(
                f"the znodes of topic {topic} were removed by hand: nobody serves it any more; its logs and "
                "settings stay",
                warning=True,
            )
            self._forget_topic(topic)
        for topic, assignment in assignments.items():
            if topic in self._deletions:
                continue
            for topic_partition in context.add_partitions(topic, assignment):
                context.set_status(topic_partition, PartitionStatus.NEW)
                for replica in context.replicas_of(topic_partition):
                    context.set_replica_status(topic_partition, replica, ReplicaStatus.NEW)
                self._reconcile(topic_partition)

    def _forget_topic(self, topic: str) -> None:
        context = self._context
        partitions = list(context.partitions_of(topic))
        if not self._deletions.is_under_way(topic):
            self._effects.add_update_metadata(context.deletion_metadata(partitions))
        for topic_partition in partitions:
            self._pending_writes.pop(topic_partition, None)
            self._failed_writes.pop(topic_partition, None)
            if topic_partition in self._reassignments:
                self._reassignments.cancel(topic_partition, f"topic {topic} is gone", self._effects)
            self._elections.complete(topic_partition, self._effects)
            self._epoch_steps.pop(topic_partition, None)
        self._deletions.complete_topic(topic, self._effects)
        context.remove_topic(topic)

    def _unclean_changed(self, topics: frozenset[str]) -> None:
        context = self._context
        allowed = sorted(topics - context.unclean_election_topics)
        context.unclean_election_topics = topics
        for topic in allowed:
            if not self._deletions.is_under_way(topic):
                for topic_partition in context.partitions_of(topic):
                    if self.status(topic_partition) is PartitionStatus.OFFLINE:
                        self._reconcile(topic_partition)

    def _start_deletions(self) -> None:
        if self._deletions.has_room() and self._deletions.waiting:
            busy = self._reassignments.topics() | self._elections.topics()
            for topic in self._deletions.waiting:
                if not self._deletions.has_room():
                    break
                if topic not in busy:
                    self._deletions.start(topic, self._effects)

    # --- preferred leaders, other replicas ------------------------------------------------------------------

    def _start_elections(
        self, partitions: Collection[TopicPartition], *, asked: bool = True, resumed: bool = False
    ) -> list[TopicPartition]:
        electable = []
        for topic_partition in sorted(partitions):
            if not self._context.has_partition(topic_partition):
                self._effects.add_log_line(
                    f"no preferred election of {topic_partition}: it is not there", warning=True
                )
            elif topic_partition.topic in self._deletions and not resumed:
                self._effects.add_log_line(
                    f"no preferred election of {topic_partition}: it is to be deleted", warning=True
                )
            else:
                electable.append(topic_partition)
        self._elections.start(electable, self._effects, asked=asked)
        return electable

    def _elect_preferred(self, partitions: Collection[TopicPartition], *, asked: bool = True) -> None:
        electable = self._start_elections(partitions, asked=asked)
        if asked and not self._elections.is_requested:
            self._effects.add_last(events.DropElections("none of its partitions can be elected"))
        for topic_partition in electable:
            self._reconcile(topic_partition)

    def _rebalance(self, limit_percent: int) -> None:
        if not self._reassignments and not self._elections:
            topics = [topic for topic in self._context.assignments if topic not in self._deletions]
            self._elect_preferred(self._elections.imbalanced_partitions(limit_percent, topics), asked=False)

    def _reassign(self, wanted: Mapping[TopicPartition, tuple[int, ...]], *, resumed: bool = False) -> None:
        for topic_partition, replicas in sorted(wanted.items()):
            if topic_partition in self._reassignments:
                continue
            refusal = self._reassignments.rejection_reason(topic_partition, replicas, resumed=resumed)
            if refusal is None and not resumed and topic_partition.topic in self._deletions:
                refusal = f"topic {topic_partition.topic} is being deleted"
            if (
                refusal is None
                and topic_partition not in self._context.leaderships
                and topic_partition not in self._pending_writes
            ):
                refusal = f"{topic_partition} has never had a leader"
            if refusal is not None:
                self._reassignments.cancel(topic_partition, refusal, self._effects)
                continue
            self._reassignments.start(topic_partition, replicas, self._effects)
            if not resumed:
                self._reconcile(topic_partition)

    # --- the states of partitions ---------------------------------------------------------------------------

    def _reconcile(
        self,
        topic_partition: TopicPartition,
        bounced_brokers: Collection[int] = (),
        *,
        force_new_epoch: bool = False,
    ) -> bool:
        """Write the next state of a partition. Return True if there is nothing to write and no write pending.

        ``bounced_brokers``: brokers that were away. ``force_new_epoch``: write even an unchanged state.
        """
        if topic_partition in self._pending_writes:
            self._pending_writes[topic_partition].bounced_since.update(bounced_brokers)
            return False
        if topic_partition in self._failed_writes:
            bounced_brokers = {*bounced_brokers, *self._failed_writes.pop(topic_partition)}
        context, out = self._context, self._effects
        known = context.leaderships.get(topic_partition)
        eligible = context.eligible_brokers(bounced_brokers)
        replicas = self._reassignments.replicas_for(topic_partition, eligible)
        if known is None:
            leadership = first_leader_and_isr(replicas, eligible, context.epoch)
        else:
            leadership = next_leader_and_isr(
                known,
                replicas,
                eligible,
                context.epoch,
                unclean=topic_partition.topic in context.unclean_election_topics,
                force_new_epoch=force_new_epoch or known.leader in bounced_brokers,
            )
            if leadership is None and topic_partition in self._elections:
                leadership = preferred_leader_and_isr(known, replicas, eligible, context.epoch)
            step = self._epoch_steps.get(topic_partition, 1)
            if leadership is not None and step > 1:
                leadership = replace(leadership, leader_epoch=known.leader_epoch + step)
        if leadership is None:
            if known is not None:
                self._reassignments.finish(topic_partition, known, out)
            self._elections.complete(topic_partition, out)
            return True
        if known is not None:
            if known.leader not in context.brokers:
                context.set_status(topic_partition, PartitionStatus.OFFLINE)
            if leadership.leader != NO_LEADER and leadership.leader not in known.isr:
                out.add_log_line(
                    f"no replica of {topic_partition} in sync is alive ({list(known.isr)}): broker "
                    f"{leadership.leader} leads, and what it does not have is lost",
                    warning=True,
                )
        self._pending_writes[topic_partition] = _PendingWrite(leadership, bounced_brokers, force_new_epoch)
        out.add_state_write(topic_partition, leadership, known)
        return False

    def _leaderships_written(
        self, leaderships: Mapping[TopicPartition, LeaderAndIsr], gone: Collection[TopicPartition]
    ) -> None:
        context = self._context
        for topic_partition, held in leaderships.items():
            writing = self._pending_writes.pop(topic_partition, None)
            if not context.has_partition(topic_partition) or self._deletions.is_under_way(
                topic_partition.topic
            ):
                continue
            known = context.leaderships.get(topic_partition)
            done = writing is not None and held == writing.leadership
            if not done:
                if writing is None and known is not None and held.version < known.version:
                    continue
                if not self._is_of_this_term(topic_partition, held):
                    continue
            self._adopt(topic_partition, held, ours=done)
            if writing is None:
                settled = self._reconcile(topic_partition)
            elif done:
                settled = self._reconcile(topic_partition, writing.bounced_since)
            else:
                bounced_brokers = {*writing.bounced_brokers, *writing.bounced_since}
                settled = self._reconcile(
                    topic_partition, bounced_brokers, force_new_epoch=writing.force_new_epoch
                )
            if settled:
                self._announce(topic_partition, NO_LEADER if known is None else known.leader)
        for topic_partition in sorted(gone):
            lost = self._pending_writes.pop(topic_partition, None)
            if context.has_partition(topic_partition):
                if lost is not None:
                    self._failed_writes[topic_partition] = {*lost.bounced_brokers, *lost.bounced_since}
                if topic_partition in self._reassignments:
                    reason = f"the state of {topic_partition} is gone, or cannot be read"
                    self._reassignments.cancel(topic_partition, reason, self._effects)
                self._elections.complete(topic_partition, self._effects)

    def _raise_leader_epochs(self, partitions: Collection[TopicPartition]) -> None:
        """Brokers refuse the leader epochs that they were told, as they know of newer ones: try higher ones,
        ever farther above.
        """
        context = self._context
        for topic_partition in sorted(partitions):
            known = context.leaderships.get(topic_partition)
            if known is None or topic_partition in self._pending_writes:
                continue
            if self._deletions.is_under_way(topic_partition.topic):
                continue
            step = 2 * self._epoch_steps.get(topic_partition, 0) or 1
            self._epoch_steps[topic_partition] = min(step, _EPOCH_STEP_MAX)
            self._effects.add_log_line(
                f"brokers know of a newer leader epoch of {topic_partition} than {known.leader_epoch}, which "
                "ZooKeeper has: it was restored from an older copy; the epoch is raised",
                warning=True,
            )
            self._reconcile(topic_partition, force_new_epoch=True)

    def _isr_changed(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        context = self._context
        for topic_partition, held in leaderships.items():
            if not context.has_partition(topic_partition) or self._deletions.is_under_way(
                topic_partition.topic
            ):
                continue
            known = context.leaderships.get(topic_partition)
            if known is not None and held.version <= known.version:
                continue
            if self._is_of_this_term(topic_partition, held):
                self._adopt(topic_partition, held, ours=False)
                self._effects.add_update_metadata({topic_partition: context.leaderships[topic_partition]})
                settled = self._reconcile(topic_partition)
                if settled and (known is None or known.leader_epoch != held.leader_epoch):
                    # Written by an earlier controller, which could not announce it any more.
                    self._announce(topic_partition, NO_LEADER if known is None else known.leader)

    def _is_of_this_term(self, topic_partition: TopicPartition, held: LeaderAndIsr) -> bool:
        if held.controller_epoch > self.epoch:
            self._effects.add_log_line(
                f"the state of {topic_partition} is of controller epoch {held.controller_epoch}: this "
                f"controller, of epoch {self.epoch}, leaves it alone",
                warning=True,
            )
            return False
        return True

    def _adopt(self, topic_partition: TopicPartition, held: LeaderAndIsr, *, ours: bool) -> None:
        """Know what a partition's znode holds: what we wrote, or what somebody else did.

        The znode does not hold the replicas: if the value is not ours, brokers know those of the last one.
        """
        context = self._context
        if not ours:
            known = context.leaderships.get(topic_partition)
            replicas = context.replicas_of(topic_partition) if known is None else known.replicas
            held = replace(held, replicas=replicas)
        context.leaderships[topic_partition] = held
        if self.status(topic_partition) is PartitionStatus.NEW:
            for replica in held.replicas:
                alive = replica in context.brokers
                to = ReplicaStatus.ONLINE if alive else ReplicaStatus.OFFLINE
                context.set_replica_status(topic_partition, replica, to)
        led = held.leader in context.brokers
        context.set_status(topic_partition, PartitionStatus.ONLINE if led else PartitionStatus.OFFLINE)

    # --- what brokers are told ------------------------------------------------------------------------------

    def _announce(self, topic_partition: TopicPartition, leader_before: int) -> None:
        """A partition has another state: tell its replicas, and then everybody."""
        context = self._context
        known = context.leaderships[topic_partition]
        told = []
        for replica in known.replicas:
            if replica in context.shutting_down and replica != known.leader:
                if replica != leader_before:
                    continue
                # It hears that it leads no more, and then must not follow, or it would be in sync again.
                self._effects.add_stop_replica(replica, topic_partition, delete=False)
            told.append(replica)
        self._send_leader_and_isr(topic_partition, told)
        if not self._full_metadata_pending:
            self._effects.add_update_metadata({topic_partition: known})

    def _send_leader_and_isr(self, topic_partition: TopicPartition, broker_ids: Collection[int]) -> None:
        """Tell these brokers, if they live and have a replica, what a partition's znode holds."""
        known = self._context.leaderships.get(topic_partition)
        if known is not None:
            for replica in known.replicas:
                if replica in broker_ids and replica in self._context.brokers:
                    self._effects.add_leader_and_isr(replica, topic_partition, known)
