"""The controller: one broker of the cluster that decides for all.

An event changes the known state (``context``) or the requested one (``reassignment``, ``deletion``,
``preferred_replica_election``). Then each affected partition is reconciled: its state is compared with the
state that it should have, and if they differ the next state is written. The response reconciles the partition
again, until nothing is left to write; then its state is announced to the brokers. So events during a write,
and work that an earlier controller left unfinished, need no special cases.

Invariants
    Nothing is sent to a broker about a partition before its state znode holds it.
    A state replaces one that ZooKeeper was seen to hold, on the condition that it still does; each partition
    has at most one pending write.
    A partition's leader epoch grows with every value that is written; controller epochs fence earlier
    controllers. The ISR never becomes empty.
    A topic's znodes are removed only after every replica was deleted, so that a returning broker cannot
    revive it.

Text 003 ("Topic management", "The controller"); ``KafkaController`` and ``TopicDeletionManager`` of 0.10.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.assignment import Assignment, Replicas
from minikafka.controller.context import ControllerContext
from minikafka.controller.deletion import TopicDeletions
from minikafka.controller.effect_batch import EffectBatch
from minikafka.controller.election import (
    NO_LEADER,
    ElectionCounts,
    check_election,
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
    """A state whose write is pending."""

    leadership: LeaderAndIsr
    bounced_brokers: Collection[int]
    """Brokers that were away before the decision."""
    force_new_epoch: bool
    bounced_since: set[int] = field(default_factory=set)
    """Brokers that were away since the decision."""


class Controller:
    """The state machine of the controller; idle until Elected. The same events give the same effects."""

    def __init__(self, broker_id: int, *, delete_topics: bool) -> None:
        self._broker_id = broker_id
        self._delete_topics = delete_topics
        self._reset(0)
        self.active = False
        self.election_counts = ElectionCounts()

    def _reset(self, epoch: int) -> None:
        self.active = True
        self._context = ControllerContext(epoch)
        self._deletions = TopicDeletions(self._context, enabled=self._delete_topics)
        self._reassignments = PartitionReassignments(self._context)
        self._elections = PreferredReplicaElections(self._context)
        self._effects = EffectBatch(self._context)
        self._pending_writes: dict[TopicPartition, _PendingWrite] = {}
        self._failed_writes: dict[TopicPartition, set[int]] = {}
        """Bounced brokers of partitions whose state could not be written: it is missing or cannot be read."""
        self._epoch_steps: dict[TopicPartition, int] = {}
        """Increments of leader epochs, for partitions whose epoch in ZooKeeper went back."""
        self._full_metadata_pending = False
        """True if the full metadata must still be sent to brokers, after the first states are written."""

    # --- queries --------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The controller epoch; 0 while not active."""
        return self._context.epoch

    @property
    def brokers(self) -> Mapping[int, LiveBroker]:
        """The live brokers."""
        return self._context.brokers

    @property
    def sessions(self) -> Mapping[int, int]:
        """The ZooKeeper sessions that registered them."""
        return self._context.sessions

    def status(self, topic_partition: TopicPartition) -> PartitionStatus:
        """Return the state of a partition."""
        return self._context.status(topic_partition)

    def replica_status(self, topic_partition: TopicPartition, broker_id: int) -> ReplicaStatus:
        """Return the state of a replica."""
        return self._context.replica_status(topic_partition, broker_id)

    def leadership(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        """Return the known content of the state znode; None for a partition that is new or being deleted."""
        return self._context.leaderships.get(topic_partition)

    def assignment_of(self, topic: str) -> Assignment | None:
        """Return the replicas of a topic's partitions; None if it does not exist or will be deleted."""
        return None if topic in self._deletions else self._context.assignments.get(topic)

    def is_unknown(self, topic: str) -> bool:
        """Return whether a topic does not exist and is not waiting to be deleted."""
        return topic not in self._context.assignments and topic not in self._deletions

    def reassignments(self) -> dict[TopicPartition, tuple[Replicas, Replicas, Replicas]]:
        """Return all replicas of the partitions that are reassigned, those being added, and removed."""
        ongoing, replicas = self._context.reassignments.items(), self._context.replicas_of
        return {key: (replicas(key), one.adding, one.removing(replicas(key))) for key, one in sorted(ongoing)}

    def check_election(self, topic_partition: TopicPartition, *, unclean: bool) -> None:
        """Raise BrokerError with the reason if an election would not give the partition another leader."""
        self._check_partition(topic_partition, ErrorCode.INVALID_TOPIC)
        context = self._context
        known, replicas = context.leaderships.get(topic_partition), context.replicas_of(topic_partition)
        check_election(topic_partition, known, replicas, context.eligible_brokers(), unclean=unclean)

    def check_reassignment(self, topic_partition: TopicPartition, replicas: Replicas | None) -> None:
        """Raise BrokerError if a partition cannot get these replicas, or, for None, cannot keep its own."""
        self._check_partition(topic_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._reassignments.check(topic_partition, replicas)

    def _check_partition(self, topic_partition: TopicPartition, deleted: ErrorCode) -> None:
        if not self._context.has_partition(topic_partition):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no such partition: {topic_partition}")
        if topic_partition.topic in self._deletions:
            raise BrokerError(deleted, f"topic {topic_partition.topic} is being deleted")

    def partitions_still_led_by(self, broker_id: int) -> tuple[TopicPartition, ...]:
        """Return the replicated partitions that a broker still leads: no other replica could take over."""
        return self._context.partitions_led_by(broker_id)

    def partitions_with_stale_isr(
        self, brokers: Mapping[int, LiveBroker], sessions: Mapping[int, int]
    ) -> tuple[TopicPartition, ...]:
        """Return the partitions whose state must be read before BrokersChanged with these brokers.

        A failed broker may have joined their ISR unnoticed, as leaders report that later.
        """
        return self._context.partitions_with_stale_isr(brokers, sessions)

    # --- events ---------------------------------------------------------------------------------------------

    def step(self, event: Event) -> list[Effect]:
        """Process an event; return the effects to perform. While not active, only Elected is processed."""
        if isinstance(event, events.Elected):
            self._elected(event)
        elif not self.active:
            return []
        elif isinstance(event, events.Resigned):
            self._reset(0)
            self.active = False
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
            case events.TopicsChanged():
                self._topics_changed(event)
            case events.LeadershipsWritten(leaderships, missing):
                self._leaderships_written(leaderships, missing)
            case events.IsrChanged(leaderships):
                self._isr_changed(leaderships)
            case events.LeaderEpochsRefused(partitions):
                self._raise_leader_epochs(partitions)
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
            case events.ShutdownRequested(broker_id):
                self._shutdown_requested(broker_id)
            case _:
                self._handle_request(event)

    def _handle_request(self, event: Event) -> None:
        match event:
            case events.ElectionRequested(partitions):
                self._elect_preferred(partitions)
            case events.LeadersWanted(partitions, unclean):
                self._elect_leaders(partitions, unclean=unclean)
            case events.RebalanceDue(limit_percent):
                self._rebalance(limit_percent)
            case events.ReassignmentRequested(reassignments):
                self._reassignments.note_requests(reassignments)
                self._reassign(reassignments)
            case events.ReassignmentsAltered(altered):
                self._alter_reassignments(altered)
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
            for topic_partition in context.add_partitions(topic, assignment, event.topic_ids.get(topic)):
                context.load_state(topic_partition, event.leaderships.get(topic_partition))
        self._deletions.request(event.deletions, out)
        if event.preferred_elections and not self._elections.start(event.preferred_elections, out):
            out.add_last(events.DropElections("none of its partitions exists"))
        self._reassignments.resume(event.ongoing)
        self._reassign(event.reassignments, resumed=True)
        self._start_deletions()
        for topic_partition in context.partitions():
            if not self._deletions.is_under_way(topic_partition.topic):
                # It is unknown which brokers the earlier controller had notified of the new replicas.
                force_new_epoch = (
                    topic_partition in self._reassignments and topic_partition in context.leaderships
                )
                if self._reconcile(
                    topic_partition,
                    event.bounced_brokers.get(topic_partition, ()),
                    force_new_epoch=force_new_epoch,
                ):
                    out.add_known_state(topic_partition, context.brokers)
        out.add_live_brokers(broker_id for broker_id in context.brokers if broker_id != self._broker_id)
        # Brokers learn that they lead before clients do. So the metadata waits for pending writes.
        self._full_metadata_pending = bool(self._pending_writes)
        if not self._pending_writes:
            out.add_full_metadata(context.brokers)

    # --- brokers --------------------------------------------------------------------------------------------

    def _brokers_changed(self, brokers: Mapping[int, LiveBroker], sessions: Mapping[int, int]) -> None:
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
                self._effects.add_known_state(topic_partition, started)
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
        """Elect other leaders from the ISR for logs that a broker cannot write; a sole member still leads."""
        context = self._context
        for topic_partition in sorted(partitions):
            known = context.leaderships.get(topic_partition)
            if known is None or known.leader != broker_id:
                continue
            if self._deletions.is_under_way(topic_partition.topic):
                continue
            eligible = context.eligible_brokers()
            if any(replica != broker_id and eligible.is_stable(replica) for replica in known.isr):
                self._effects.add_log_line(
                    f"broker {broker_id} cannot write its log of {topic_partition}: electing another leader",
                    warning=True,
                )
                self._reconcile(topic_partition, (broker_id,))

    # --- topics ---------------------------------------------------------------------------------------------

    def _topics_changed(self, event: events.TopicsChanged) -> None:
        context = self._context
        for topic in sorted(event.removed):
            if topic not in context.assignments or self._deletions.is_under_way(topic):
                continue
            # The znodes were removed by hand: forget the topic, keep the logs (text 003, manual deletion).
            self._effects.add_log_line(
                f"the znodes of topic {topic} were removed by hand: it is no longer served; its logs and "
                "settings stay",
                warning=True,
            )
            self._forget_topic(topic)
        for topic, assignment in event.assignments.items():
            if topic in self._deletions:
                continue
            for topic_partition in context.add_partitions(topic, assignment, event.topic_ids.get(topic)):
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
                self._reassignments.cancel(topic_partition, f"topic {topic} was removed", self._effects)
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

    # --- preferred replica elections, reassignments ---------------------------------------------------------

    def _elect_preferred(self, partitions: Collection[TopicPartition], *, asked: bool = True) -> None:
        electable = self._elections.start(partitions, self._effects, self._deletions, asked=asked)
        if asked and not self._elections.is_requested:
            self._effects.add_last(events.DropElections("none of its partitions can be elected"))
        for topic_partition in electable:
            self._reconcile(topic_partition)

    def _elect_leaders(self, partitions: Collection[TopicPartition], *, unclean: bool) -> None:
        if not unclean:
            self._elect_preferred(partitions, asked=False)
            return
        for topic_partition in sorted(filter(self._has_partition, partitions)):
            self._context.unclean_elections[topic_partition] = None
            self._reconcile(topic_partition)

    def _rebalance(self, limit_percent: int) -> None:
        if not self._reassignments and not self._elections:
            topics = [topic for topic in self._context.assignments if topic not in self._deletions]
            self._elect_preferred(self._elections.imbalanced_partitions(limit_percent, topics), asked=False)

    def _reassign(self, wanted: Mapping[TopicPartition, Replicas], *, resumed: bool = False) -> None:
        reassignments, out = self._reassignments, self._effects
        for topic_partition, replicas in sorted(wanted.items()):
            if reassignments.is_known(topic_partition, replicas, out):
                continue
            refusal = reassignments.rejection_reason(topic_partition, replicas, resumed=resumed)
            if refusal is None and not resumed and topic_partition.topic in self._deletions:
                refusal = f"topic {topic_partition.topic} is being deleted"
            if (
                refusal is None
                and topic_partition not in self._context.leaderships
                and topic_partition not in self._pending_writes
            ):
                refusal = f"{topic_partition} has never had a leader"
            if refusal is not None:
                out.drop_reassignment(topic_partition, refusal)
                continue
            reassignments.start_requested(topic_partition, replicas, out, resumed=resumed)
            if not resumed:
                self._reconcile(topic_partition)

    def _alter_reassignments(self, wanted: Mapping[TopicPartition, Replicas | None]) -> None:
        for topic_partition, replicas in sorted(wanted.items()):
            self._reassignments.alter(topic_partition, replicas, self._effects)
            self._reconcile(topic_partition, force_new_epoch=True)

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
                unclean=context.may_elect_unclean(topic_partition),
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
            context.unclean_elections.pop(topic_partition, None)
            self._elections.complete(topic_partition, out)
            return True
        if known is not None:
            if known.leader not in context.brokers:
                context.set_status(topic_partition, PartitionStatus.OFFLINE)
            if leadership.leader != NO_LEADER and leadership.leader not in known.isr:
                out.add_log_line(
                    f"no replica in the ISR of {topic_partition} is alive ({list(known.isr)}): electing "
                    f"broker {leadership.leader}, messages that it does not have are lost",
                    warning=True,
                )
        self._pending_writes[topic_partition] = _PendingWrite(leadership, bounced_brokers, force_new_epoch)
        out.add_state_write(topic_partition, leadership, known)
        return False

    def _leaderships_written(
        self, leaderships: Mapping[TopicPartition, LeaderAndIsr], missing: Collection[TopicPartition]
    ) -> None:
        context = self._context
        for topic_partition, held in leaderships.items():
            writing = self._pending_writes.pop(topic_partition, None)
            if not self._has_partition(topic_partition):
                continue
            known = context.leaderships.get(topic_partition)
            done = writing is not None and held == writing.leadership
            if not done:
                if writing is None and known is not None and held.version < known.version:
                    continue
                if not self._is_of_this_term(topic_partition, held):
                    continue
            self.election_counts.add(known if done else None, held)
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
                self._announce(topic_partition, known)
        for topic_partition in sorted(missing):
            failed = self._pending_writes.pop(topic_partition, None)
            if context.has_partition(topic_partition):
                if failed is not None:
                    self._failed_writes[topic_partition] = {*failed.bounced_brokers, *failed.bounced_since}
                if topic_partition in self._reassignments:
                    reason = f"the state of {topic_partition} is missing or cannot be read"
                    self._reassignments.cancel(topic_partition, reason, self._effects)
                context.unclean_elections.pop(topic_partition, None)
                self._elections.complete(topic_partition, self._effects)

    def _raise_leader_epochs(self, partitions: Collection[TopicPartition]) -> None:
        """Write higher leader epochs, in growing steps: brokers have refused the current ones as too old."""
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
                f"brokers have a newer leader epoch of {topic_partition} than {known.leader_epoch} in "
                "ZooKeeper, which was restored from an older copy: raising the epoch",
                warning=True,
            )
            self._reconcile(topic_partition, force_new_epoch=True)

    def _isr_changed(self, leaderships: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        context = self._context
        for topic_partition, held in leaderships.items():
            if not self._has_partition(topic_partition):
                continue
            known = context.leaderships.get(topic_partition)
            if known is not None and held.version <= known.version:
                continue
            if self._is_of_this_term(topic_partition, held):
                self._adopt(topic_partition, held, ours=False)
                self._effects.add_update_metadata({topic_partition: context.leaderships[topic_partition]})
                settled = self._reconcile(topic_partition)
                if settled and (known is None or known.leader_epoch != held.leader_epoch):
                    # Written by an earlier controller, which could not announce it.
                    self._announce(topic_partition, known)

    def _has_partition(self, topic_partition: TopicPartition) -> bool:
        """Return True if a partition exists and is not being deleted."""
        exists = self._context.has_partition(topic_partition)
        return exists and not self._deletions.is_under_way(topic_partition.topic)

    def _is_of_this_term(self, topic_partition: TopicPartition, held: LeaderAndIsr) -> bool:
        if held.controller_epoch > self.epoch:
            self._effects.add_log_line(
                f"ignoring the state of {topic_partition}: it has controller epoch {held.controller_epoch}, "
                f"this controller has {self.epoch}",
                warning=True,
            )
            return False
        return True

    def _adopt(self, topic_partition: TopicPartition, held: LeaderAndIsr, *, ours: bool) -> None:
        """Set the known content of a partition's znode, written by this controller (``ours``) or not.

        The znode does not hold the replicas: if the value is not ours, brokers have those of the last value.
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

    def _announce(self, topic_partition: TopicPartition, before: LeaderAndIsr | None) -> None:
        """Send a partition's new state to its replicas, and then its metadata to all brokers."""
        self._effects.announce(topic_partition, NO_LEADER if before is None else before.leader)
        if not self._full_metadata_pending:
            self._effects.add_update_metadata({topic_partition: self._context.leaderships[topic_partition]})
