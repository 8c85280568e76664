"""The broker's dealings with ZooKeeper: registration, election, topics; watches in, writes out.

All methods but the constructor and the watch callbacks run as jobs of the worker, one at a time and in order;
ZooKeeper's callbacks only submit jobs. A job that meets a lost connection is run again by the worker once
there is a session again, so every method here can be run twice.

Where text and release disagree: the partitions' state znodes are persistent (the text says ephemeral); see
ARCHITECTURE.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    BadVersion,
    BrokerError,
    ConfigError,
    CoordinationError,
    NoNode,
)
from minikafka.base.files import Files
from minikafka.base.ids import BrokerAddress, TopicPartition, check_topic_name
from minikafka.controller import events
from minikafka.controller.assignment import Assignment
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry import paths
from minikafka.registry.admin_paths import LogFailures
from minikafka.registry.paths import (
    ControllerEpoch,
    ControllerRegistration,
    EntityConfig,
    TopicAssignment,
)
from minikafka.registry.store import SessionState, Stat, Store
from minikafka.server.workers.worker import Job, Worker
from minikafka.server.zookeeper import counters
from minikafka.server.zookeeper.admin_requests import AdminRequests
from minikafka.server.zookeeper.cluster_identity import ClusterIdentity
from minikafka.server.zookeeper.config_changes import ConfigChanges
from minikafka.server.zookeeper.consumer_offsets import ZooKeeperOffsets
from minikafka.server.zookeeper.entity_settings import EntitySettings
from minikafka.server.zookeeper.guarded_store import GuardedStore
from minikafka.server.zookeeper.partition_states import PartitionStates
from minikafka.server.zookeeper.registrations import Registrations
from minikafka.server.zookeeper.session_tickets import SessionTickets
from minikafka.server.zookeeper.topic_watches import TopicWatches
from minikafka.server.zookeeper.znodes import Znodes

_log = logging.getLogger(__name__)

_ADVICE = "; delete the topic, or mend this and restart the broker"

TOPICS_AT_ONCE = 100
"""New topics that the controller takes in before it looks for other news: a second's work, at most."""
_UNSEEN_PATIENCE_MS = 10_000


class Listener(Protocol):
    """Who hears what the registrar learns; see ``control``."""

    def post(self, event: events.Event) -> None:
        """Something that the controller must know."""

    def controller_changed(self, controller_id: int) -> None:
        """Another controller, or none: -1."""

    def unreadable_changed(self, topics: frozenset[str]) -> None:
        """These topics, and no others, cannot be read: the controller does not learn of them."""

    def topics_vanished(self, topics: frozenset[str]) -> None:
        """ZooKeeper has these no more."""

    def when_done(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all brokers that live have what was decided so far. For jobs."""

    def delete_unreadable(self, topic: str) -> None:
        """Somebody wants a topic deleted that cannot be read."""

    def topic_config_changed(self, topic: str) -> None:
        """A topic, which need not exist, has other settings."""

    def client_config_changed(self, name: str) -> None:
        """A client, by the name of its znode, has other settings."""

    def broker_config_changed(self, name: str) -> None:
        """A broker, which may be another one, has other settings."""

    def configs_missed(self) -> None:
        """Settings of clients and of this broker may have changed, and the news be gone."""

    def counters_missed(self) -> None:
        """ZooKeeper may have gone back to an older copy since the session before."""

    @property
    def controller_epoch(self) -> int:
        """The highest that this broker has heard of."""

    @property
    def fatal(self) -> Callable[[str], None]:
        """To be called when this broker cannot stay in the cluster, with the reason."""


class ZooKeeperClient:
    """One broker's view of ZooKeeper and its place in it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        worker: Worker,
        *,
        random_bytes: Callable[[int], bytes],
        may_be_unclean: Callable[[Mapping[str, str]], bool] = lambda overrides: False,
        cluster_id: str | None = None,
    ) -> None:
        """``may_be_unclean``: whether a topic with these settings may be led by a replica out of sync.
        ``cluster_id``: where it is known, OtherCluster is raised in another one's ZooKeeper.
        """
        self._may_be_unclean = may_be_unclean
        self.tree = counters.agree_on_cluster_id(store, random_bytes, cluster_id)
        """The cluster's id, and the change of ZooKeeper that made its znode."""
        self.cluster_id = self.tree[0]
        self._identity = ClusterIdentity(store, self.cluster_id)
        self.store = self._store = store = GuardedStore(store, self._identity.check)
        """For all that this broker does in ZooKeeper."""
        self._clock = clock
        self._worker = worker
        self._assignments: dict[str, Assignment] = {}
        self._stats: dict[str, Stat] = {}
        """The znodes of these topics as they were read."""
        self._configs_changed: set[str] = set()
        """Topics whose settings changed, and that may be led by a replica out of sync since, or no more."""
        self._config_changes = ConfigChanges(store, clock)
        self._unreadable: frozenset[str] = frozenset()
        self._znodes = znodes = Znodes(store)
        self.states = PartitionStates(store, lambda path, what: znodes.complain(path, what + _ADVICE))
        """Who leads each partition."""
        self.settings = EntitySettings(store, znodes)
        """Own settings of topics, clients and brokers."""
        self.requests = AdminRequests(store)
        """What operators ask the controller for."""
        self.offsets = ZooKeeperOffsets(store)
        """What groups have committed to ZooKeeper."""
        self._grown = TopicWatches(store, partial(self._submit, self._see_written))
        self._unclean: frozenset[str] = frozenset()
        self._submitted: set[Job] = set()
        """Jobs on news that wait for the worker."""
        self._unseen_since_ms: int | None = None
        """Since when topics wait for those that were seen before them."""
        self.connected = True
        """Whether ZooKeeper answers."""
        self._expired = False
        self._elected_in: int | None = None
        self._office_epoch = 0
        """The controller epoch of the last term of office."""
        self._refused_epoch = 0
        """Controller epochs up to this one are too low: a broker refused the one before it."""
        self._tickets = SessionTickets(store)
        self._registrations = Registrations(store, clock, znodes.read_with_stat, self._tickets.end)
        for path in paths.PERSISTENT_PATHS:
            self._znodes.make(path, b"")

    @property
    def ticket_kept(self) -> bool:
        """Whether the directory has this session's ticket."""
        return self._tickets.kept

    def has_topics(self) -> bool:
        """Whether there are topics that can be read."""
        return bool(set(self._store.children(paths.BROKER_TOPICS)) - self._unreadable)

    def end_predecessor(self, files: Files, directory: str) -> None:
        """End the session of the broker that held ``directory`` before, and keep the own ticket there: see
        ``SessionTickets.take_over``.
        """
        self._tickets.take_over(files, directory)

    def others(self, own_id: int) -> list[BrokerAddress]:
        """The other brokers that are registered."""
        return [
            address for broker_id, address in self._registrations.read()[0].items() if broker_id != own_id
        ]

    def start(self, address: BrokerAddress, listener: Listener, keep_ticket: Callable[[], None]) -> None:
        """Register ``address`` and follow the cluster from now on.

        Raises ConfigError when the id is taken.
        """
        self._address = address
        self._listener = listener
        self._keep_ticket = keep_ticket
        self._registrations.register(self._address)
        self._store.on_session(self._session_changed)
        for path, see in (
            (paths.CONTROLLER, self._see_controller),
            (paths.broker_path(address.broker_id), self._registrations.mend),
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
        """Try again to keep the ticket, where that failed."""
        if not self.ticket_kept:
            self._keep_ticket()

    # --- topics ---------------------------------------------------------------------------------------------

    def create_topics(self, topics: Mapping[str, tuple[Assignment, Mapping[str, str]]]) -> frozenset[str]:
        """Write the settings, then the assignments, which is what the controller watches; all at once.

        Gives the topics that were there before, which keep what they have.
        """
        here = self._store.read_all(paths.topic_path(topic) for topic in topics)
        new = {topic: made for topic, made in topics.items() if paths.topic_path(topic) not in here}
        settings = {
            paths.topic_config_path(topic): EntityConfig(config).to_json()
            for topic, (_, config) in new.items()
        }
        for path in sorted(self._store.create_all(settings)):  # left over
            self._store.write(path, settings[path])
        refused = self._store.create_all(
            {
                paths.topic_path(topic): TopicAssignment(assignment).to_json()
                for topic, (assignment, _) in new.items()
            }
        )
        return frozenset(topic for topic in topics if topic not in new or paths.topic_path(topic) in refused)

    def add_partitions(self, topic: str, added: Assignment) -> None:
        """Write a topic's new partitions beside those that it has, and tell the controller.

        Raises NoNode for a topic that is not there or is being deleted, BadVersion where somebody else gave
        it other partitions.
        """
        path = paths.topic_path(topic)
        if self._store.exists(f"{paths.DELETE_TOPICS}/{topic}") is not None:
            raise NoNode(f"topic {topic} is being deleted")
        data, stat = self._store.read(path)
        known = TopicAssignment.from_json(data, path).partitions
        grown = {**known, **added}
        if any(known.get(partition, replicas) != replicas for partition, replicas in added.items()) or sorted(
            grown
        ) != list(range(len(grown))):
            raise BadVersion(f"topic {topic} has other partitions meanwhile, {sorted(known)}: ask again")
        if grown != known:
            self._store.write(path, TopicAssignment(grown).to_json(), stat.version)
        self._assignments[topic] = grown
        self._listener.post(events.TopicsChanged({topic: grown}))

    def creations(self, topics: Iterable[str]) -> dict[str, int]:
        """The changes of ZooKeeper that made topics, of those that are there."""
        wanted = {paths.topic_path(topic): topic for topic in topics}
        return {wanted[path]: stat.created_at for path, (_, stat) in self._store.read_all(wanted).items()}

    def request_deletions(self, topics: Iterable[str]) -> None:
        """Mark topics for deletion; the controller does the rest."""
        self._store.create_all({f"{paths.DELETE_TOPICS}/{topic}": b"" for topic in topics})

    def drop_deletion_request(self, topic: str) -> None:
        """Take the mark away."""
        self._znodes.remove(f"{paths.DELETE_TOPICS}/{topic}")

    def remove_topic(self, topic: str) -> None:
        """Remove the topic's znodes, the mark last, so that a crash in between repeats the deletion."""
        self._znodes.remove(paths.topic_path(topic))
        self._znodes.remove(paths.topic_config_path(topic))
        self._znodes.remove(f"{paths.DELETE_TOPICS}/{topic}")
        self._assignments.pop(topic, None)
        self._stats.pop(topic, None)
        self.settings.forget(topic)
        self._znodes.forget(paths.topic_path(topic))

    def write_leaderships(
        self, leaderships: Mapping[TopicPartition, LeaderAndIsr], *, create: bool
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Write partitions' state znodes; return what they hold then, without those whose topic is gone.

        Where somebody else wrote first, theirs stays, and is returned.
        """
        return self.states.create(leaderships) if create else self.states.write(leaderships)

    def take_producer_ids(self, above: int = -1, *, doubtful: bool = False) -> range:
        """The next block of ids for producers, of this broker alone, all larger than ``above``.

        Run again after a lost connection it may pass over a block. CoordinationError when there are none
        left, or the znode holds nonsense. ``doubtful``: see ``counters.next_producer_ids``.
        """
        return counters.next_producer_ids(self._store, self._address.broker_id, above, doubtful=doubtful)

    def raise_producer_ids(self, broker_id: int, above: int) -> int | None:
        """See ``counters.raise_producer_ids``. CoordinationError as above."""
        return counters.raise_producer_ids(self._store, broker_id, above)

    # --- registration and election --------------------------------------------------------------------------

    def _submit(self, see: Job, *_: object) -> None:
        """News: the job reads what there is when it runs, so one that waits stands for all that come."""
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
            self._grown.keep({})
            self._listener.controller_changed(-1)
            self._listener.post(events.Resigned())

    def _see_cluster(self) -> None:
        """ZooKeeper has this cluster, perhaps again."""
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
        """The session goes on, perhaps in a copy from before what this broker knows: the watches tell only of
        what they see changed.
        """
        self._listener.counters_missed()
        held = self._znodes.read(paths.CONTROLLER_EPOCH, ControllerEpoch.from_json)
        if self.in_office and (held is None or held.epoch < self._office_epoch):
            self.epoch_refused(self._office_epoch)

    def _renew(self) -> None:
        """After an expired session all that is ephemeral is gone: register anew and stand for election."""
        if self._elected_in != self._store.session_id:
            self._listener.post(events.Resigned())
        for path in paths.PERSISTENT_PATHS:
            self._znodes.make(path, b"")
        self._keep_ticket()  # before it holds anything: whoever starts after a kill must be able to end it
        try:
            self._registrations.register(self._address)
        except ConfigError as error:
            self._listener.fatal(
                f"the ZooKeeper session expired, and this broker cannot register again: {error}"
            )
            return
        self._listener.counters_missed()
        self._listener.configs_missed()
        self._see_controller()

    def _see_controller(self) -> None:
        """Follow the controller that there is, or become it."""
        if not self._registrations.is_current:
            return  # A controller that is no broker would take itself for dead; ``_renew`` comes back.
        own = ControllerRegistration(self._address.broker_id, self._clock.now_ms())
        try:
            data, stat = self._store.read(paths.CONTROLLER)
        except NoNode:
            self._listener.controller_changed(-1)
            self._znodes.make(paths.CONTROLLER, own.to_json(), ephemeral=True)
            data, stat = self._store.read(paths.CONTROLLER)
        self._listener.controller_changed(self._controller_in(data, stat, own))
        if stat.ephemeral_owner != self._store.session_id:
            self._elected_in = None
            self._grown.keep({})
            self._listener.post(events.Resigned())
        elif self._elected_in != stat.ephemeral_owner:
            # Made just now, or by an earlier run of this job whose answer was lost.
            self._take_office(stat.ephemeral_owner)

    def _controller_in(self, data: bytes, stat: Stat, own: ControllerRegistration) -> int:
        """Who is the controller; -1 where nobody can tell. What this broker holds is mended."""
        try:
            known = ControllerRegistration.from_json(data).broker_id
        except CoordinationError as error:
            if stat.ephemeral_owner != self._store.session_id:
                mine = (
                    "its owner mends it" if stat.ephemeral_owner else "nobody is elected before it is removed"
                )
                self._znodes.complain(paths.CONTROLLER, f"nobody knows the controller, {mine}: {error}")
                return -1
            _log.error("%s is written again: %s", paths.CONTROLLER, error)
            self._store.write(paths.CONTROLLER, own.to_json())
            known = own.broker_id
        self._znodes.forget(paths.CONTROLLER)
        return known

    def _highest_epoch_seen(self) -> int:
        """The highest controller epoch in the states of partitions."""
        self._read_all_assignments()
        states = self.states.read(self._replicas())
        return max((one.controller_epoch for one in states.values()), default=0)

    def _replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {
            TopicPartition(topic, partition): replicas
            for topic, assignment in self._assignments.items()
            for partition, replicas in assignment.items()
        }

    def _take_office(self, session_id: int) -> None:
        floor = max(self._refused_epoch, self._listener.controller_epoch)
        epoch = counters.next_controller_epoch(self._store, self._highest_epoch_seen, floor)
        elected = self._snapshot(epoch)
        newest = max((one.controller_epoch for one in elected.leaderships.values()), default=0)
        if newest > epoch:
            # Brokers and states would be left as they are by this controller.
            epoch = counters.next_controller_epoch(self._store, self._highest_epoch_seen, newest)
            elected = replace(elected, epoch=epoch)
        self._office_epoch = epoch
        _log.info("broker %d is the controller, epoch %d", self._address.broker_id, epoch)
        self._listener.post(elected)
        self._elected_in = session_id
        if self._unseen_since_ms is not None:
            self._see_more()
        self._grown.keep(self._stats_of(self._assignments))
        self._delete_unreadable()
        self._see_log_failures()

    def epoch_refused(self, epoch: int) -> None:
        """A broker has heard of a controller of a higher epoch than this one's, ``epoch``: if that is in
        office by ZooKeeper's word no more, it resigns; else the counter went back, and it takes office anew.
        """
        if self.in_office and epoch == self._office_epoch:
            self._refused_epoch, self._elected_in = epoch + 1, None  # nobody knows by how much
            self._see_controller()

    def _snapshot(self, epoch: int) -> events.Elected:
        known = frozenset(self._assignments)
        self._assignments.clear()
        self._listener.topics_vanished(known - self._read_all_assignments())
        replicas = self._replicas()
        brokers, sessions = self._registrations.read()
        self._unclean = self._unclean_among(self._assignments)
        leaderships, bounced_brokers = self.states.read_with_doubts(
            replicas, self._registrations.registered_at
        )
        marked, reassignments = self._marked(), self.requests.reassignments()
        elections = self.requests.elections()
        named = {key.topic for keys in (leaderships, reassignments, elections) for key in keys} | marked
        self._leave_for_later([topic for topic in self._assignments if topic not in named])
        return events.Elected(
            epoch=epoch,
            brokers=brokers,
            sessions=sessions,
            assignments=dict(self._assignments),
            leaderships=leaderships,
            bounced_brokers=bounced_brokers,
            deletions=marked - self._unreadable,
            unclean_election_topics=self._unclean,
            reassignments=reassignments,
            preferred_elections=elections,
        )

    def _leave_for_later(self, new: Sequence[str]) -> None:
        """Of topics that nobody ever led, take in a few with the office, and see the others after that."""
        for topic in new[TOPICS_AT_ONCE:]:
            del self._assignments[topic]
            self._stats.pop(topic, None)
        more = len(new) > TOPICS_AT_ONCE
        self._unseen_since_ms = self._clock.monotonic_ms() if more else None

    def _read_all_assignments(self) -> frozenset[str]:
        names = self._store.children(paths.BROKER_TOPICS)
        self._unreadable &= frozenset(names)
        self._read_assignments([name for name in names if name not in self._assignments])
        return frozenset(names)

    def _unclean_among(self, topics: Iterable[str]) -> frozenset[str]:
        """Those where a replica out of sync may lead."""
        settings = self.settings.peek(topics)
        return frozenset(topic for topic, own in settings.items() if self._may_be_unclean(own))

    # --- what the watches saw -------------------------------------------------------------------------------

    # The watches' own news may be older than what the controller knows by then, so each job reads again.

    @property
    def in_office(self) -> bool:
        """Whether this broker was elected in the present session."""
        return self._elected_in == self._store.session_id

    def _see_brokers(self) -> None:
        # A controller whose session expired would take itself for dead; Elected says it all anew.
        if self.in_office:
            self._listener.post(events.BrokersChanged(*self._registrations.read()))

    def _see_deletions(self) -> None:
        marked = self._marked()
        unknown = marked - self._assignments.keys() - self._unreadable
        if unknown:
            self._look_at_topics(unknown)  # One that was made just now: its deletion must not come first.
        self._listener.post(events.DeletionRequested(marked - self._unreadable))
        if self.in_office:
            self._delete_unreadable()

    def _marked(self) -> frozenset[str]:
        return frozenset(self._store.children(paths.DELETE_TOPICS))

    def _delete_unreadable(self) -> None:
        for topic in sorted(self._marked() & self._unreadable):
            self._listener.delete_unreadable(topic)

    def _see_topics(self) -> None:
        self._look_at_topics(())

    def _look_at_topics(self, urgent: Collection[str]) -> None:
        """Tell of topics that are new or gone: all that are gone, the ``urgent``, and so many of the others
        that an election which comes meanwhile does not have to wait. The rest follows.
        """
        names = frozenset(self._store.children(paths.BROKER_TOPICS))
        vanished = frozenset(self._assignments.keys() - names)
        for topic in vanished:
            del self._assignments[topic]
            self._stats.pop(topic, None)
        unseen = sorted(names - self._assignments.keys() - self._unreadable)
        first = {*unseen[:TOPICS_AT_ONCE], *(self._unreadable & names), *(names & set(urgent))}
        new = sorted(first - self._assignments.keys())
        self._unreadable &= names
        self._read_assignments(new)
        if self.in_office:
            self._unclean_are((self._unclean - vanished - first) | self._unclean_among(new))
            self._grown.drop(vanished)
            self._grown.add(self._stats_of(new))
        else:
            self._grown.keep({})
        self._listener.topics_vanished(vanished)
        added = {topic: self._assignments[topic] for topic in new if topic in self._assignments}
        self._listener.post(events.TopicsChanged(added, vanished))
        more = len(unseen) > TOPICS_AT_ONCE
        self._unseen_since_ms = self._clock.monotonic_ms() if more else None
        if more:
            self._see_more()

    def _see_more(self) -> None:
        """Look again; where this broker is the controller, once all brokers have those before."""
        if self.in_office:
            self._listener.when_done(partial(self._submit, self._see_topics))
        else:
            self._submit(self._see_topics)

    def see_unseen(self) -> None:
        """Look at topics that wait although nothing is heard of those before them: a broker may not answer.
        For one thread, the housekeeper's.
        """
        since_ms = self._unseen_since_ms
        if since_ms is not None and self._clock.monotonic_ms() - since_ms >= _UNSEEN_PATIENCE_MS:
            self._submit(self._see_topics)

    def _stats_of(self, topics: Iterable[str]) -> dict[str, Stat]:
        return {topic: self._stats[topic] for topic in topics if topic in self._stats}

    def _see_written(self) -> None:
        """Somebody wrote the assignments of topics, perhaps with more partitions."""
        self._grown.look(self._look_again)

    def _look_again(self, topics: Collection[str]) -> None:
        by_path = {paths.topic_path(topic): topic for topic in topics}
        read = self._store.read_all(by_path)
        if not self.in_office:
            return
        gone, other = set(), []
        for path, topic in by_path.items():
            held = self._znodes.parse(path, read.get(path), _assignment_in, _ADVICE)
            known = self._assignments.get(topic)
            if held is None:
                continue
            if known is not None and held[1].created_at != self._stats.get(topic, held[1]).created_at:
                gone.add(topic)  # Removed and made again by hand, and no look came in between.
            if topic in gone or held[0].partitions != known:
                other.append(topic)
        for topic in other:
            self._assignments.pop(topic, None)
        if gone:
            self._listener.post(events.TopicsChanged({}, frozenset(gone)))
        if other:
            self._look_at_topics(other)

    def _see_elections(self) -> None:
        if self.in_office:
            asked = self.requests.elections()
            if asked:
                self.refresh(asked)
                self._listener.post(events.ElectionRequested(asked))

    def _see_reassignments(self) -> None:
        if self.in_office:
            asked = self.requests.reassignments()
            if asked:
                self._listener.post(events.ReassignmentRequested(asked))

    def assign(self, assignments: Mapping[str, Assignment]) -> None:
        """Give the partitions of topics these replicas."""
        self._assignments |= self.requests.write_assignments(assignments)

    def _see_isr_changes(self) -> None:
        if self.in_office:
            self.states.take_changes(self.refresh)

    def _see_log_failures(self) -> None:
        def seen(failures: list[LogFailures]) -> None:
            for one in failures:
                self.refresh(one.partitions)
                self._listener.post(events.LogsFailed(one.broker_id, one.partitions))

        if self.in_office:
            self.states.take_failures(seen)

    def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the controller what the states of these partitions are now."""
        replicas = {
            key: self._assignments[key.topic][key.partition]
            for key in sorted(partitions)
            if key.partition in self._assignments.get(key.topic, {})
        }
        self._listener.post(events.IsrChanged(self.states.read(replicas)))

    def _see_config_changes(self) -> None:
        listener = self._listener

        def topic_config_changed(topic: str) -> None:
            self._configs_changed.add(topic)
            listener.topic_config_changed(topic)

        self._config_changes.follow(
            {
                paths.TOPICS: topic_config_changed,
                paths.CLIENTS: listener.client_config_changed,
                paths.BROKERS: listener.broker_config_changed,
            }
        )
        changed = self._configs_changed & self._assignments.keys()
        if self.in_office and changed:
            self._unclean_are((self._unclean - changed) | self._unclean_among(changed))
        self._configs_changed.clear()

    def _unclean_are(self, topics: frozenset[str]) -> None:
        known, self._unclean = self._unclean, topics
        if topics != known:
            self._listener.post(events.UncleanElectionChanged(topics))

    def _read_assignments(self, topics: Collection[str]) -> None:
        """Of topics that are not known."""
        by_path = {paths.topic_path(topic): topic for topic in topics}
        read = self._store.read_all(by_path)
        for path, topic in by_path.items():
            found = self._znodes.parse(path, read.get(path), _assignment_in, _ADVICE)
            if found is not None:
                self._assignments[topic] = found[0].partitions
                self._stats[topic] = found[1]
        bad = {topic for path, topic in by_path.items() if self._znodes.is_nonsense(path)}
        self._unreadable = self._unreadable - set(topics) | bad
        self._listener.unreadable_changed(self._unreadable)


def _assignment_in(data: bytes, path: str) -> TopicAssignment:
    """The assignment of a topic whose name, which becomes a directory's, is legal."""
    topic = path.rpartition("/")[2]
    try:
        check_topic_name(topic)
    except BrokerError as error:
        raise CoordinationError(f"{path!r} is no topic: {error.detail}") from None
    return TopicAssignment.from_json(data, path)
