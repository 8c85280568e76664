"""The broker's ZooKeeper client: registration, controller election and topics, by watches and writes.

All methods but the constructor and the watch callbacks run as jobs of the worker, one at a time and in order;
ZooKeeper's callbacks only submit jobs. After a lost connection the worker runs the job again once there is a
session again, so every method here can be run twice.

Where text and release disagree (ARCHITECTURE.md): the partitions' state znodes are persistent, not ephemeral.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from minikafka.base.clock import Clock
from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import ConfigError, CoordinationError, NoNode
from minikafka.base.files import Files
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.assignment import Assignment, OngoingReassignment
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration
from minikafka.registry.controller import CONTROLLER_REGISTRATION, EPOCH, ControllerRegistration, LogFailures
from minikafka.registry.entity_configs import ConfigChange
from minikafka.registry.store import SessionState, Stat, Store
from minikafka.registry.topics import TOPIC
from minikafka.registry.znodes import Znodes, make, remove
from minikafka.server.workers.worker import Job, Worker
from minikafka.server.zookeeper import counters
from minikafka.server.zookeeper.admin_requests import AdminRequests, ongoing_reassignments
from minikafka.server.zookeeper.cluster_identity import ClusterIdentity
from minikafka.server.zookeeper.entity_settings import EntitySettings
from minikafka.server.zookeeper.guarded_store import GuardedStore
from minikafka.server.zookeeper.notifications import config_changes
from minikafka.server.zookeeper.partition_states import PartitionStates
from minikafka.server.zookeeper.registrations import Registrations
from minikafka.server.zookeeper.session_tickets import SessionTickets
from minikafka.server.zookeeper.topic_watches import TopicWatches
from minikafka.server.zookeeper.topic_znodes import TopicZnodes

_log = logging.getLogger(__name__)

TOPICS_AT_ONCE = 100
"""The number of new topics that the controller reads before other changes: at most a second's work."""
_UNSEEN_PATIENCE_MS = 10_000


class ZooKeeperListener(Protocol):
    """Receives the changes that the client reads; ``ControllerEventManager`` implements it."""

    def post(self, event: events.Event) -> None:
        """Pass an event to the controller."""

    def controller_changed(self, controller_id: int) -> None:
        """Record the current controller; -1 for none."""

    def unreadable_changed(self, topics: frozenset[str]) -> None:
        """Record all topics whose znodes are invalid: the controller does not know them."""

    def topics_vanished(self, topics: frozenset[str]) -> None:
        """Remove topics that are no longer in ZooKeeper."""

    def when_done(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all live brokers have the decisions so far. For jobs."""

    def delete_unreadable(self, topic: str) -> None:
        """Delete a topic whose znode is invalid."""

    def config_changed(self, change: ConfigChange) -> None:
        """Apply the changed configs of an entity, which need not exist; a broker may be another one."""

    def configs_missed(self) -> None:
        """Read all configs but those of topics again: notifications may have been missed."""

    def counters_missed(self) -> None:
        """Check the counters: ZooKeeper may have been restored from an older copy since the last session."""

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch that this broker knows."""

    @property
    def fatal(self) -> Callable[[str], None]:
        """Called with the reason when this broker cannot stay in the cluster."""


class ZooKeeperClient:
    """One broker's registration, its part in the controller election, and its view of the cluster."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        worker: Worker,
        *,
        random_bytes: Callable[[int], bytes],
        gives_topic_ids: bool = True,
        may_be_unclean: Callable[[Mapping[str, str]], bool] = lambda overrides: False,
        cluster_id: str | None = None,
    ) -> None:
        """``may_be_unclean`` returns True if a topic's configs allow unclean leader election.

        ``cluster_id``: if given, InconsistentClusterId is raised when ZooKeeper holds another cluster.
        ``gives_topic_ids``: the topics get ids.
        """
        self._may_be_unclean = may_be_unclean
        self.tree = counters.agree_on_cluster_id(store, random_bytes, cluster_id)
        """The cluster id, and the zxid that created its znode."""
        self.cluster_id = self.tree[0]
        self._identity = ClusterIdentity(store, self.cluster_id)
        self.store = self._store = store = GuardedStore(store, self._identity.check)
        """The store for all reads and writes of this broker."""
        self._clock = clock
        self._worker = worker
        self._assignments: dict[str, Assignment] = {}
        self._ongoing: dict[TopicPartition, OngoingReassignment] = {}
        self._stats: dict[str, Stat] = {}
        """The stats of the topics' znodes when they were read."""
        self._ids: dict[str, bytes] = {}
        """The ids of topics that have one."""
        self._configs_changed: set[str] = set()
        """Topics with changed configs, which may have changed whether unclean election is allowed."""
        self._config_changes = config_changes(store, clock)
        self._unreadable: frozenset[str] = frozenset()
        self._znodes = Znodes(store)
        self.topics = TopicZnodes(store, random_bytes if gives_topic_ids else None)
        """The znodes of topics."""
        self.states = PartitionStates(store)
        """The leader and ISR of each partition."""
        self.settings = EntitySettings(store)
        """The configs of topics, clients and brokers."""
        self.requests = AdminRequests(store)
        """Operators' requests to the controller."""
        self._topic_watches = TopicWatches(store, partial(self._submit, self._see_written))
        self._unclean: frozenset[str] = frozenset()
        self._submitted: set[Job] = set()
        """Jobs for changes that are queued at the worker."""
        self._unseen_since_ms: int | None = None
        """The time since which new topics wait until the topics before them are processed."""
        self.connected = True
        """True while the ZooKeeper session is connected."""
        self._expired = False
        self._elected_in: int | None = None
        self._own_epoch = 0
        """The controller epoch of the last election of this broker."""
        self._refused_epoch = 0
        """Controller epochs up to this one are too low: a broker rejected the one before it."""
        self._tickets = SessionTickets(store)
        self._registrations = Registrations(store, clock, self._tickets.end)
        for path in paths.PERSISTENT_PATHS:
            make(self._store, path, b"")

    @property
    def ticket_kept(self) -> bool:
        """Return True if this session's ticket is saved in the data directory."""
        return self._tickets.kept

    def has_topics(self) -> bool:
        """Return True if there are topics with valid znodes."""
        return bool(set(self._store.children(paths.BROKER_TOPICS)) - self._unreadable)

    def end_predecessor(self, files: Files, directory: str) -> None:
        """End the session of the previous broker on ``directory``: see ``SessionTickets.take_over``."""
        self._tickets.take_over(files, directory)

    def others(self, own_id: int) -> dict[int, LiveBroker]:
        """Return the other registered brokers."""
        return {key: broker for key, broker in self._registrations.read()[0].items() if key != own_id}

    def start(
        self, own: BrokerRegistration, listener: ZooKeeperListener, keep_ticket: Callable[[], None]
    ) -> None:
        """Register ``own`` and start to watch the cluster. Raises ConfigError if the id is taken."""
        self._own, self._broker_id = own, own.broker.broker_id
        self._listener = listener
        self._keep_ticket = keep_ticket
        self._registrations.register(self._own)
        self._store.on_session(self._session_changed)
        for path, see in (
            (paths.CONTROLLER, self._see_controller),
            (paths.broker_path(self._broker_id), self._registrations.mend),
            (paths.PREFERRED_ELECTION, self._see_elections),
            (paths.REASSIGN_PARTITIONS, self._see_reassignments),
            (paths.CLUSTER_ID, self._see_cluster),
        ):
            self._store.watch_data(path, partial(self._submit, see))
        for path, see in (
            (paths.BROKER_IDS, self._see_brokers),
            (paths.BROKER_TOPICS, self._see_topics),
            (paths.DELETE_TOPICS, self._see_deletions),
            (paths.CONFIG_CHANGES, self._see_config_changes),
            (paths.ISR_CHANGES, self._see_isr_changes),
            (paths.LOG_FAILURES, self._see_log_failures),
        ):
            self._store.watch_children(path, partial(self._submit, see))

    def retry_ticket(self) -> None:
        """Retry to save the ticket if that failed."""
        if not self.ticket_kept:
            self._keep_ticket()

    # --- topics ---------------------------------------------------------------------------------------------

    def add_partitions(self, topic: str, added: Assignment) -> None:
        """Add partitions to a topic (see ``TopicZnodes``), and inform the controller."""
        self._assignments[topic] = grown = self.topics.add_partitions(topic, added)
        self._listener.post(events.TopicsChanged({topic: grown}))

    def creations(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the zxids that created the znodes of topics, for those that exist."""
        wanted = {paths.topic_path(topic): topic for topic in topics}
        return {wanted[path]: stat.created_at for path, (_, stat) in self._store.read_all(wanted).items()}

    def request_deletions(self, topics: Iterable[str]) -> None:
        """Mark topics for deletion; the controller deletes them."""
        self._store.create_all({f"{paths.DELETE_TOPICS}/{topic}": b"" for topic in topics})

    def drop_deletion_request(self, topic: str) -> None:
        """Remove a topic's mark for deletion."""
        remove(self._store, f"{paths.DELETE_TOPICS}/{topic}")

    def remove_topic(self, topic: str) -> None:
        """Remove the topic's znodes: after a crash in between, a mark without a topic is only dropped."""
        remove(self._store, paths.topic_config_path(topic))
        remove(self._store, paths.topic_path(topic))
        remove(self._store, f"{paths.DELETE_TOPICS}/{topic}")
        self._forget_topic(topic)
        self.settings.forget(topic)
        self._znodes.forget(paths.topic_path(topic))

    def write_leaderships(
        self, leaderships: Mapping[TopicPartition, LeaderAndIsr], *, create: bool
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Write partitions' state znodes; return the stored states, without those of deleted topics.

        A state that another process wrote first is kept and returned.
        """
        return self.states.create(leaderships) if create else self.states.write(leaderships)

    def take_producer_ids(self, above: int = -1, *, doubtful: bool = False) -> range:
        """Allocate a block of producer ids for this broker, all larger than ``above``.

        When it is run again after a lost connection it may skip a block. Raises CoordinationError if no ids
        are left, or if the znode is invalid. ``doubtful``: see ``counters.next_producer_ids``.
        """
        return counters.next_producer_ids(self._store, self._broker_id, above, doubtful=doubtful)

    def raise_producer_ids(self, broker_id: int, above: int) -> int | None:
        """Call ``counters.raise_producer_ids``. Raises CoordinationError like ``take_producer_ids``."""
        return counters.raise_producer_ids(self._store, broker_id, above)

    # --- registration and election --------------------------------------------------------------------------

    def _submit(self, see: Job, *_: object) -> None:
        """Submit a job for a change, unless it is queued: it reads the latest state when it runs."""
        if see not in self._submitted:
            self._submitted.add(see)
            self._worker.submit(partial(self._if_it_holds, see))

    def _if_it_holds(self, see: Job) -> None:
        self._submitted.discard(see)
        if self._identity.holds():
            see()
        else:
            self._registrations.forget()
            self._elected_in = None
            self._topic_watches.keep({})
            self._listener.controller_changed(-1)
            self._listener.post(events.Resigned())

    def _see_cluster(self) -> None:
        """Register again if ZooKeeper holds this cluster again."""
        if not self._registrations.is_current:
            self._renew()

    def _session_changed(self, state: SessionState) -> None:
        _log.info("ZooKeeper session: %s", state.value)
        self.connected = state is SessionState.CONNECTED
        if state is SessionState.EXPIRED:
            self._expired = True
        elif state is SessionState.CONNECTED:
            self._worker.resume()
            if self._expired:
                self._expired = False
                self._submit(self._renew)
            else:
                self._submit(self._see_again)

    def _see_again(self) -> None:
        """Check the counters after a reconnect: ZooKeeper may have been restored from an older copy, and
        watches only report changes that they see.
        """
        self._listener.counters_missed()
        held = self._znodes.read(paths.CONTROLLER_EPOCH, EPOCH)
        if self.is_controller and (held is None or held.epoch < self._own_epoch):
            self.epoch_refused(self._own_epoch)

    def _renew(self) -> None:
        """Register again and take part in the election after the session and its ephemeral znodes ended."""
        if self._elected_in != self._store.session_id:
            self._listener.post(events.Resigned())
        for path in paths.PERSISTENT_PATHS:
            make(self._store, path, b"")
        self._keep_ticket()  # before the session owns anything: the next start must be able to end it
        try:
            self._registrations.register(self._own)
        except ConfigError as error:
            self._listener.fatal(f"failed to register again after the ZooKeeper session expired: {error}")
            return
        self._listener.counters_missed()
        self._listener.configs_missed()
        self._see_controller()

    def _see_controller(self) -> None:
        """Follow the current controller, or become the controller."""
        if not self._registrations.is_current:
            return  # a controller without a registration would take itself for dead
        own = ControllerRegistration(self._broker_id, self._clock.now_ms())
        try:
            data, stat = self._store.read(paths.CONTROLLER)
        except NoNode:
            self._listener.controller_changed(-1)
            make(self._store, paths.CONTROLLER, own.to_json(), ephemeral=True)
            self._see_controller()  # another broker may have been faster
            return
        self._listener.controller_changed(self._controller_in(data, stat, own))
        if stat.ephemeral_owner != self._store.session_id:
            self._elected_in = None
            self._topic_watches.keep({})
            self._listener.post(events.Resigned())
        elif self._elected_in != stat.ephemeral_owner:
            # Created just now, or by an earlier run of this job whose response was lost.
            self._become_controller(stat.ephemeral_owner)

    def _controller_in(self, data: bytes, stat: Stat, own: ControllerRegistration) -> int:
        """Return the controller's id; -1 if the znode is invalid. This broker rewrites its own znode."""
        if stat.ephemeral_owner != self._store.session_id:
            found = self._znodes.parse(paths.CONTROLLER, (data, stat), CONTROLLER_REGISTRATION)
            return -1 if found is None else found[0].broker_id
        try:
            return CONTROLLER_REGISTRATION.decode(data, paths.CONTROLLER).broker_id
        except CoordinationError as error:
            _log.error("rewriting an invalid znode: %s", error)
            self._store.write(paths.CONTROLLER, own.to_json())
            return own.broker_id

    def _highest_epoch_seen(self) -> int:
        """Return the highest controller epoch in the states of partitions."""
        self._read_all_assignments()
        states = self.states.read(self._replicas()).values()
        return max((state.controller_epoch for state in states), default=0)

    def _replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {
            TopicPartition(topic, partition): replicas
            for topic, assignment in self._assignments.items()
            for partition, replicas in assignment.items()
        }

    def _become_controller(self, session_id: int) -> None:
        floor = max(self._refused_epoch, self._listener.controller_epoch)
        epoch = counters.next_controller_epoch(self._store, self._highest_epoch_seen, floor)
        elected = self._snapshot(epoch)
        newest = max((state.controller_epoch for state in elected.leaderships.values()), default=0)
        if newest > epoch:
            # Brokers would ignore this controller, and it could not change the states.
            epoch = counters.next_controller_epoch(self._store, self._highest_epoch_seen, newest)
            elected = replace(elected, epoch=epoch)
        self._own_epoch = epoch
        _log.info("broker %d was elected as controller, epoch %d", self._broker_id, epoch)
        self._listener.post(elected)
        self._elected_in = session_id
        if self._unseen_since_ms is not None:
            self._see_more()
        self._topic_watches.keep(self._stats_of(self._assignments))
        self._delete_unreadable()
        self._see_log_failures()

    def epoch_refused(self, epoch: int) -> None:
        """Handle that a broker knows a higher controller epoch than ``epoch``, that of this controller.

        If another broker is the controller this one resigns; otherwise the counter went back, and this
        broker becomes controller with a higher epoch.
        """
        if self.is_controller and epoch == self._own_epoch:
            self._refused_epoch, self._elected_in = epoch + 1, None  # the difference is unknown
            self._see_controller()

    def _snapshot(self, epoch: int) -> events.Elected:
        known = frozenset(self._assignments)
        self._assignments.clear()
        self._ids.clear()
        self._ongoing = {}
        self._listener.topics_vanished(known - self._read_all_assignments())
        replicas = self._replicas()
        brokers, sessions = self._registrations.read()
        self._unclean = self._unclean_among(self._assignments)
        leaderships, bounced_brokers = self.states.read_with_bounced_brokers(
            replicas, self._registrations.registered_at
        )
        marked, reassignments = self._marked(), self.requests.reassignments()
        elections = self.requests.elections()
        named = {key.topic for keys in (leaderships, reassignments, elections) for key in keys} | marked
        self._leave_for_later([topic for topic in self._assignments if topic not in named])
        self._give_ids(self._assignments)
        return events.Elected(
            epoch=epoch,
            brokers=brokers,
            sessions=sessions,
            assignments=dict(self._assignments),
            topic_ids=dict(self._ids),
            leaderships=leaderships,
            bounced_brokers=bounced_brokers,
            deletions=marked - self._unreadable,
            unclean_election_topics=self._unclean,
            reassignments=reassignments,
            preferred_elections=elections,
            ongoing=self._ongoing,
        )

    def _leave_for_later(self, new: Sequence[str]) -> None:
        """Keep a few of the topics without states for the election, and process the others after it."""
        for topic in new[TOPICS_AT_ONCE:]:
            self._forget_topic(topic)
        more = len(new) > TOPICS_AT_ONCE
        self._unseen_since_ms = self._clock.monotonic_ms() if more else None

    def _read_all_assignments(self) -> frozenset[str]:
        names = self._store.children(paths.BROKER_TOPICS)
        self._unreadable &= frozenset(names)
        self._read_assignments([name for name in names if name not in self._assignments])
        return frozenset(names)

    def _unclean_among(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the topics whose configs allow unclean leader election."""
        settings = self.settings.peek(topics)
        return frozenset(topic for topic, own in settings.items() if self._may_be_unclean(own))

    # --- changes that the watches report --------------------------------------------------------------------

    # The data of a watch may be older than what the controller knows by then, so each job reads again.

    @property
    def is_controller(self) -> bool:
        """Return True if this broker was elected as controller in the current session."""
        return self._elected_in == self._store.session_id

    def _see_brokers(self) -> None:
        # A controller whose session expired would take itself for dead; Elected has all brokers again.
        if self.is_controller:
            self._listener.post(events.BrokersChanged(*self._registrations.read()))

    def _see_deletions(self) -> None:
        marked = self._marked()
        unknown = marked - self._assignments.keys() - self._unreadable
        if unknown:
            self._look_at_topics(unknown)  # Created just now: the deletion must not be processed first.
        self._listener.post(events.DeletionRequested(marked - self._unreadable))
        if self.is_controller:
            self._delete_unreadable()

    def _marked(self) -> frozenset[str]:
        return frozenset(self._store.children(paths.DELETE_TOPICS))

    def _delete_unreadable(self) -> None:
        for topic in sorted(self._marked() & self._unreadable):
            self._listener.delete_unreadable(topic)

    def _see_topics(self) -> None:
        self._look_at_topics(())

    def _look_at_topics(self, urgent: Collection[str]) -> None:
        """Report new and deleted topics: all deleted ones, the ``urgent`` new ones, and some of the others.

        Their number is limited so that an election need not wait for them. The rest follows.
        """
        try:
            names = frozenset(self._store.children(paths.BROKER_TOPICS))
        except NoNode as error:
            _log.warning("ZooKeeper: %s; the known topics are kept until it exists again", error)
            return
        vanished = frozenset(self._assignments.keys() - names)
        for topic in vanished:
            self._forget_topic(topic)
        unseen = sorted(names - self._assignments.keys() - self._unreadable)
        first = {*unseen[:TOPICS_AT_ONCE], *(self._unreadable & names), *(names & set(urgent))}
        new = sorted(first - self._assignments.keys())
        self._unreadable &= names
        self._read_assignments(new)
        if self.is_controller:
            self._give_ids(new)
            self._unclean_are((self._unclean - vanished - first) | self._unclean_among(new))
            self._topic_watches.drop(vanished)
            self._topic_watches.add(self._stats_of(new))
        else:
            self._topic_watches.keep({})
        self._listener.topics_vanished(vanished)
        added = {topic: self._assignments[topic] for topic in new if topic in self._assignments}
        ids = {topic: self._ids[topic] for topic in added if topic in self._ids}
        self._listener.post(events.TopicsChanged(added, vanished, ids))
        more = len(unseen) > TOPICS_AT_ONCE
        self._unseen_since_ms = self._clock.monotonic_ms() if more else None
        if more:
            self._see_more()

    def _see_more(self) -> None:
        """Process more new topics; on the controller once all brokers have the topics before."""
        if self.is_controller:
            self._listener.when_done(partial(self._submit, self._see_topics))
        else:
            self._submit(self._see_topics)

    def see_unseen(self) -> None:
        """Process waiting topics after a time-out, if a broker does not respond. For the housekeeper."""
        since_ms = self._unseen_since_ms
        if since_ms is not None and self._clock.monotonic_ms() - since_ms >= _UNSEEN_PATIENCE_MS:
            self._submit(self._see_topics)

    def _stats_of(self, topics: Iterable[str]) -> dict[str, Stat]:
        return {topic: self._stats[topic] for topic in topics if topic in self._stats}

    def _see_written(self) -> None:
        """Process topics whose assignments were written, perhaps with more partitions."""
        self._topic_watches.look(self._look_again)

    def _look_again(self, topics: Collection[str]) -> None:
        by_path = {paths.topic_path(topic): topic for topic in topics}
        read = self._znodes.read_all(by_path, TOPIC)
        if not self.is_controller:
            return
        deleted, other, without_id = set(), [], set()
        for path, (held, stat) in read.items():
            topic = by_path[path]
            known = self._assignments.get(topic)
            if known is not None and stat.created_at != self._stats.get(topic, stat).created_at:
                deleted.add(topic)  # Deleted and created again by hand between two reads.
            elif known is not None and held.topic_id is None:
                without_id.add(topic)  # Written by a tool of a release without ids.
            new_id = held.topic_id not in {None, self._ids.get(topic)}
            if topic in deleted or new_id or held.partitions != known:
                other.append(topic)
        self.topics.give_ids({topic: self._ids.get(topic) for topic in without_id})
        for topic in other:
            self._forget_topic(topic)
        if deleted:
            self._listener.post(events.TopicsChanged({}, frozenset(deleted)))
        if other:
            self._look_at_topics(other)

    def _see_elections(self) -> None:
        if self.is_controller and (asked := self.requests.elections()):
            self.refresh(asked)
            self._listener.post(events.ElectionRequested(asked))

    def _see_reassignments(self) -> None:
        if self.is_controller:
            self._listener.post(events.ReassignmentRequested(self.requests.reassignments()))

    def assign(self, change: events.WriteAssignments, *, beside_0_10: bool) -> None:
        """Write the assignments of reassigned topics; 0.10.1 does not know which replicas are moving."""
        moving = {} if beside_0_10 else change.moving
        self._assignments |= self.requests.write_assignments(change.assignments, moving)

    def _see_isr_changes(self) -> None:
        if self.is_controller:
            self.states.take_isr_changes(self.refresh)

    def _see_log_failures(self) -> None:
        def seen(failures: list[LogFailures]) -> None:
            for failure in failures:
                self.refresh(failure.partitions)
                self._listener.post(events.LogsFailed(failure.broker_id, failure.partitions))

        if self.is_controller:
            self.states.take_log_failures(seen)

    def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Pass the current states of partitions to the controller."""
        replicas = {
            key: self._assignments[key.topic][key.partition]
            for key in sorted(partitions)
            if key.partition in self._assignments.get(key.topic, {})
        }
        self._listener.post(events.IsrChanged(self.states.read(replicas)))

    def _see_config_changes(self) -> None:
        def changed_entity(change: ConfigChange) -> None:
            topics = {paths.TOPICS: [change.entity_name], paths.BROKERS: self._assignments}
            self._configs_changed.update(topics.get(change.entity_type, ()))
            self._listener.config_changed(change)

        self._config_changes.follow(changed_entity)
        changed = self._configs_changed & self._assignments.keys()
        if self.is_controller and changed:
            self._unclean_are((self._unclean - changed) | self._unclean_among(changed))
        self._configs_changed.clear()

    def _unclean_are(self, topics: frozenset[str]) -> None:
        known, self._unclean = self._unclean, topics
        if topics != known:
            self._listener.post(events.UncleanElectionChanged(topics))

    def _give_ids(self, topics: Iterable[str]) -> None:
        """Give ids to those known topics that have none."""
        self._ids |= self.topics.give_ids(
            {topic: None for topic in topics if topic in self._assignments and topic not in self._ids}
        )

    def _forget_topic(self, topic: str) -> None:
        for table in (self._assignments, self._stats, self._ids):
            table.pop(topic, None)

    def _read_assignments(self, topics: Collection[str]) -> None:
        """Read the assignments of topics that are not known."""
        by_path = {paths.topic_path(topic): topic for topic in topics}
        found, problems = self._znodes.read_all_with_problems(by_path, TOPIC)
        for path, (assignment, stat) in found.items():
            self._assignments[by_path[path]] = assignment.partitions
            self._ongoing |= ongoing_reassignments(by_path[path], assignment)
            self._stats[by_path[path]] = stat
            if assignment.topic_id is not None:
                self._ids[by_path[path]] = assignment.topic_id
        self._unreadable = self._unreadable - set(topics) | {by_path[path] for path in problems}
        self._listener.unreadable_changed(self._unreadable)
