"""The replicas on this broker: it leads, follows, stops and deletes them as the controller decides.

Everything here runs as jobs of the worker, in order. A failure of one partition is logged,
recorded and retried by ``retry``; it never delays the leaders of others. (``ReplicaManager`` of 0.10.1.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import ErrorCode, MinikafkaError, StorageError
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.base.reports import report
from minikafka.base.text import counted, first_of
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.log.log import Log
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry import paths
from minikafka.server.context import RequestContext
from minikafka.server.coordination.coordinators import Coordinator
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import portions
from minikafka.server.replication.current_topics import CurrentTopics
from minikafka.server.replication.replica_fetcher_manager import ReplicaFetcherManager
from minikafka.server.replication.unassigned_logs import NAMED_MOST, UnassignedLogs, is_older

_log = logging.getLogger(__name__)

_LONGEST_PAUSE_MS = 30_000
_TOPICS_PATIENCE_MS = 5_000

_STEP_ITEMS = 1_000
"""The number of partitions or topics that one step handles before others get the core's lock."""
_OF_AN_EARLIER_TOPIC = (
    "it belongs to an earlier topic of that name, whose znodes were removed, or lost when ZooKeeper was "
    "restored from an older copy"
)
_OF_A_LOST_TOPIC = (
    "it belongs to a topic that was created after the one being deleted, and that ZooKeeper lost when it was "
    "restored from an older copy"
)

_NOT_ITS_LEADERS = "its leader has other messages"

T = TypeVar("T")
Leaderships = Mapping[TopicPartition, LeaderAndIsr]
Addresses = Mapping[int, BrokerAddress]


class ReplicaManager:
    """Leads, follows, stops and deletes replicas. The module says which thread may call which method."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        fetchers: ReplicaFetcherManager,
        *,
        serving: Callable[[], None],
    ) -> None:
        """``serving`` is called when this broker has received the metadata of the cluster."""
        fetchers.owner = self
        self._broker = broker
        self._coordinator = coordinator
        self._fetchers = fetchers
        self._serving = serving
        self._serves = False
        """True once ``serving`` was called."""
        self._known_since_ms: int | None = None
        """The time of the first metadata update, if it had no topics although there are some."""
        self._unassigned = UnassignedLogs(broker)
        self._registered_at: int | None = None
        self._controller_epoch = 0
        self._not_opened: dict[TopicPartition, tuple[LeaderAndIsr, Addresses]] = {}
        self._open_at_ms = 0
        self._open_pause_ms = 0
        """The pause between attempts to open logs: recovery may read gigabytes."""
        self._led_epochs: dict[TopicPartition, int] = {}
        """The last leader epochs in which this process led."""
        self._refused_ms: dict[TopicPartition, tuple[int, int]] = {}
        """Leader epochs in which this process does not lead again, and since when."""
        self.new: set[TopicPartition] = set()
        """Partitions that were created just now: an offline directory cannot hold them."""
        self._ahead: set[TopicPartition] = set()
        """Partitions whose logs are ahead of ZooKeeper: with newer epochs at the start of this broker, or
        without a replica on it.
        """
        self._differing: set[TopicPartition] = set()
        """Partitions whose logs are set aside before they are opened: their leaders have other messages."""
        self._leaving = False
        self._not_deleted: dict[TopicPartition, Callable[[], None]] = {}
        """Partitions whose deletion failed, and the callbacks for when it succeeds."""
        self._spared: set[TopicPartition] = set()
        """Partitions to be deleted whose logs belong to later topics: those logs are set aside."""

    def stop_following(self) -> None:
        """Follow no partition from now on: this broker stops, and would leave the ISR at once."""
        self._leaving = True

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch that this broker knows."""
        return self._controller_epoch

    def take_epoch(self, controller_epoch: int) -> bool:
        """Record a controller epoch; return False if a newer one is known."""
        if controller_epoch < self._controller_epoch:
            return False
        self._controller_epoch = controller_epoch
        return True

    def answer_controller(
        self,
        controller_epoch: int,
        context: RequestContext,
        respond: Callable[[], Any],
        refuse: Callable[[], Any],
    ) -> None:
        """Answer a controller's request by ``respond``, as a job, or by ``refuse`` if its epoch is old."""

        def job() -> None:
            context.answer(respond if self.take_epoch(controller_epoch) else refuse)

        self._broker.worker.submit(job)

    def has_pending_deletion(self, topic: str) -> bool:
        """Return True if the deletion of some partition of a topic has failed so far."""
        return any(topic_partition.topic == topic for topic_partition in self._not_deleted)

    def pending_leadership(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        """Return the leadership of a partition whose log cannot be opened; None for other partitions."""
        found = self._not_opened.get(topic_partition)
        return None if found is None else found[0]

    def retry(self) -> None:
        """Retry to open and delete the logs for which that failed. For the housekeeper's thread."""
        now_ms = self._broker.clock.monotonic_ms()
        if self._known_since_ms is not None and now_ms - self._known_since_ms >= _TOPICS_PATIENCE_MS:
            self._serve()  # do not wait for ever for topics without a leader
        if not self._not_opened:
            self._open_pause_ms = 0
        elif now_ms >= self._open_at_ms:
            self._open_pause_ms = min(max(1_000, 2 * self._open_pause_ms), _LONGEST_PAUSE_MS)
            self._open_at_ms = now_ms + self._open_pause_ms
            self._broker.worker.submit(self._open_again)
        if self._not_deleted:
            self._broker.worker.submit(self._delete_again)

    def _delete_again(self) -> None:
        self._delete(dict(self._not_deleted))

    def _open_again(self) -> None:
        leaderships: dict[TopicPartition, LeaderAndIsr] = {}
        leaders: dict[int, BrokerAddress] = {}
        for key, (leadership, known) in self._not_opened.items():
            leaderships[key] = leadership
            leaders |= known
        self.become_leader_or_follower(leaderships, leaders, {})

    # --- leading and following ------------------------------------------------------------------------------

    def become_leader_or_follower(
        self, leaderships: Leaderships, leaders: Addresses, topic_ids: Mapping[str, bytes]
    ) -> dict[TopicPartition, ErrorCode]:
        """Lead or follow each partition; ``leaders`` has the addresses of the leaders, ``topic_ids`` the ids
        of the topics that the controller means.

        Return the result of each. An older leader epoch than the known one changes nothing and results in
        STALE_CONTROLLER_EPOCH, as in 0.10.1; another topic of that name in INCONSISTENT_TOPIC_ID.
        """
        broker = self._broker
        codes = dict.fromkeys(leaderships, ErrorCode.NONE)
        opened: dict[TopicPartition, Log] = {}
        # All reads come before any change: without ZooKeeper the job is run again from the start.
        configs = broker.zk_client.settings.of_topics(_topics(leaderships))
        topics = self._read_topics(configs, topic_ids)
        held, registered_at = set(broker.logs.partitions()), self._registered()
        inconsistent = topics.inconsistent(leaderships)
        codes |= dict.fromkeys(inconsistent, ErrorCode.INCONSISTENT_TOPIC_ID)
        leaderships = {key: value for key, value in leaderships.items() if key not in inconsistent}
        leaderships = self._of_these_topics(leaderships, topics, leaders)
        behind = {key for key, leadership in leaderships.items() if self._is_behind(key, leadership)}
        codes |= dict.fromkeys(behind, ErrorCode.STALE_CONTROLLER_EPOCH)
        leaderships = {key: value for key, value in leaderships.items() if key not in behind}
        self._ahead |= self._unassigned.take(leaderships)
        for topic_partition, leadership in leaderships.items():
            if not self._is_known(topic_partition, leadership):
                self._fetchers.leave(topic_partition)  # all at once: their leaders may have changed
        for topic, overrides in configs.items():
            broker.logs.set_overrides(topic, overrides)
            broker.replication_quotas.set_topic(topic, overrides)
            for topic_partition, leadership in leaderships.items():
                if topic_partition.topic != topic or self._is_known(topic_partition, leadership):
                    continue
                if broker.broker_id not in leadership.replicas:
                    codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                log = self._open(topic_partition, leadership, leaders, overrides, topics)
                if log is None:
                    codes[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    opened[topic_partition] = log
        made = topics.created_before(registered_at, opened.keys() - held)
        self._warn_of_missing_logs(key for key in made if leaderships[key].leader == broker.broker_id)
        self._record_topics(opened, topics, leaderships, leaders)
        self._record_epochs(opened, leaderships, leaders)
        self._resign(leaderships)
        broker.run(lambda: self._take_over(opened, leaderships))
        for topic_partition in opened:
            leader = leaders.get(leaderships[topic_partition].leader)
            if leader is not None and leader.broker_id != broker.broker_id and not self._leaving:
                epoch = leaderships[topic_partition].leader_epoch
                partition, is_ahead = broker.partitions[topic_partition], topic_partition in self._ahead
                self._fetchers.follow(partition, leader, epoch, is_ahead=is_ahead)
            elif leader is not None:
                self._ahead.discard(topic_partition)
        self._fetchers.sweep()
        return codes

    def _read_topics(self, topics: Iterable[str], sent_ids: Mapping[str, bytes]) -> CurrentTopics:
        broker = self._broker
        return CurrentTopics.read(broker.zk_client, broker.logs.topic_incarnations, topics, sent_ids)

    def _registered(self) -> int:
        """Return the zxid of this process's first registration in ZooKeeper; 0 if it is unknown."""
        if self._registered_at is None:
            path = paths.broker_path(self._broker.broker_id)
            found = self._broker.zk_client.store.read_all((path,)).get(path)
            if found is None:
                return 0
            self._registered_at = found[1].created_at
        return self._registered_at

    def _warn_of_missing_logs(self, led: Iterable[TopicPartition]) -> None:
        """Warn of partitions led by this broker that existed before this process and had no log."""
        lost = sorted(map(str, led))
        if lost:
            paths = ", ".join(self._broker.logs.paths)
            text = (
                f"partitions led by this broker had no log in {paths} and start empty; if they held records "
                "before, their directories were removed or moved: stop this broker and put them back before "
                f"anything is written: {first_of(lost, NAMED_MOST)}"
            )
            _log.warning("%s", text)
            report("warning", message=text)

    def _resign(self, leaderships: Leaderships) -> None:
        """Stop serving the partitions that cannot be opened under their new leader epoch.

        Otherwise a former leader would still serve clients that do not know the new leader.
        """
        broker = self._broker
        served = [key for key in leaderships if key in self._not_opened and key in broker.partitions]
        left = [key for key in served if not self._is_known(key, leaderships[key])]
        if left:
            broker.run(lambda: self._stop_serving(left))

    def _is_known(self, topic_partition: TopicPartition, leadership: LeaderAndIsr) -> bool:
        partition = self._broker.partitions.get(topic_partition)
        known = None if partition is None else partition.leadership
        return known is not None and known.leader_epoch >= leadership.leader_epoch

    def _is_behind(self, topic_partition: TopicPartition, state: LeaderAndIsr) -> bool:
        """Return True if this broker knows a newer leader epoch than the controller: ZooKeeper went back.

        If a leader used an epoch again that the log has already, followers could not find the offset at which
        their logs diverge from the leader's.
        """
        partition = self._broker.partitions.get(topic_partition)
        known = None if partition is None else partition.leadership
        if known is not None:
            return is_older(state, known)
        log = self._broker.logs.get(topic_partition)
        if log is None or state.leader_epoch >= max(log.epochs.latest, log.epochs.latest_at_open):
            return False
        self._ahead.add(topic_partition)
        return True

    def _take_over(self, opened: Mapping[TopicPartition, Log], leaderships: Leaderships) -> None:
        """Apply the leaderships to the partitions. Called within a step."""
        broker = self._broker
        now_ms = broker.clock.monotonic_ms()
        for topic_partition, log in opened.items():
            partition = broker.partitions.get(topic_partition)
            if partition is None:
                watermark = broker.logs.high_watermarks.of(topic_partition)
                partition = Partition(topic_partition, log, broker.broker_id, high_watermark=watermark)
                broker.add_partition(partition)
            partition.apply_leadership(leaderships[topic_partition], now_ms)
            self._coordinator.leadership_changed(topic_partition)
            broker.touch(topic_partition)
        self._touch_topics(_topics(opened))

    def _of_these_topics(
        self, leaderships: Leaderships, topics: CurrentTopics, leaders: Addresses
    ) -> Leaderships:
        """Set aside the logs of earlier topics of these names; return the leaderships of the current topics.

        The znodes of an earlier topic were removed without the controller, so its logs were not deleted, on
        this broker or on one that was stopped. A leadership that differs from the state in ZooKeeper was sent
        for the earlier topic and is left out.
        """
        left = dict(leaderships)
        strays = {
            key: leadership.replicas for key, leadership in leaderships.items() if topics.is_of_another(key)
        }
        for topic_partition in topics.lost(leaderships.keys() - strays.keys()):
            _log.warning(
                "the log of %s may belong to a topic that ZooKeeper lost when it was restored from an older "
                "copy: using it for the existing topic of that name",
                topic_partition,
            )
        states = self._broker.zk_client.states.read(strays) if strays else {}
        for topic_partition in strays:
            sent, state = leaderships[topic_partition], states.get(topic_partition)
            current = state is not None and state.leader_epoch == sent.leader_epoch
            if state is None or not current or state.leader != sent.leader:
                _log.info("ignored a leadership of %s for an earlier topic or leader", topic_partition)
                del left[topic_partition]
            try:
                self._set_aside(topic_partition, _OF_AN_EARLIER_TOPIC)
            except StorageError as error:
                _log.error("failed to set aside the old log of %s, retrying: %s", topic_partition, error)
                if left.pop(topic_partition, None) is not None:
                    self._not_opened[topic_partition] = sent, leaders
        return left

    def _set_aside(self, topic_partition: TopicPartition, why: str) -> None:
        self.stop((topic_partition,))
        self._broker.run(lambda: self._stop_serving((topic_partition,)))
        for table in (self._led_epochs, self._refused_ms):
            table.pop(topic_partition, None)
        self._ahead.discard(topic_partition)
        aside = self._broker.logs.mark_stray(topic_partition)
        _log.warning(
            "set aside the log of %s as %s: %s; read its records with `minikafka log dump`, and remove the "
            "directory when they are not needed",
            topic_partition,
            aside,
            why,
        )

    def start_over(self, topic_partition: TopicPartition, leader: BrokerAddress) -> None:
        """Set aside the log on this broker, which has other messages, and copy the leader's log. A job."""
        partition = self._broker.partitions.get(topic_partition)
        known = None if partition is None else partition.leadership
        if known is None:
            return
        self._differing.add(topic_partition)
        self.stop((topic_partition,))
        self._broker.run(lambda: self._stop_serving((topic_partition,)))
        self._not_opened[topic_partition] = known, {leader.broker_id: leader}
        self._open_at_ms = self._broker.clock.monotonic_ms()

    def agreed(self, topic_partition: TopicPartition) -> None:
        """Record that the log on this broker is a prefix of its leader's. A job."""
        self._ahead.discard(topic_partition)

    def _stop_serving(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop serving partitions. Called within a step."""
        for topic_partition in partitions:
            partition = self._broker.remove_partition(topic_partition)
            if partition is not None:
                partition.drop_replica()
            self._broker.touch(topic_partition)
            self._coordinator.leadership_changed(topic_partition)

    def _record_topics(
        self,
        opened: dict[TopicPartition, Log],
        topics: CurrentTopics,
        leaderships: Leaderships,
        leaders: Addresses,
    ) -> None:
        """Record the topics of logs and the directory names of new logs: one flush for all of them."""
        served = self._broker.partitions.keys() & leaderships.keys()
        made = [key for key in opened if key not in served]
        try:
            if made:
                self._broker.logs.flush_names()
            topics.logs.record(topics.to_record(opened, served))
        except (MinikafkaError, FileNotFoundError) as error:
            if not made:
                _log.warning("failed to record topics of logs, retrying at a leader change: %s", error)
                return
            _log.error("failed to record %s, retrying: %s", counted(len(made), "new log"), error)
            for topic_partition in made:
                self._broker.logs.give_up(topic_partition)
                self._not_opened[topic_partition] = leaderships[topic_partition], leaders
                self._broker.log_failed(topic_partition, "")
                del opened[topic_partition]

    def _record_epochs(
        self, opened: dict[TopicPartition, Log], leaderships: Leaderships, leaders: Addresses
    ) -> None:
        """Record in the journal which epochs start on this broker, with one flush for all partitions."""
        record, own = self._broker.logs.epoch_journal, self._broker.broker_id
        begun = {key: record.of(key) if leaderships[key].leader == own else () for key in opened}
        begun |= {
            key: log.epochs.entries
            for key, log in opened.items()
            if leaderships[key].leader == own and not log.epochs.written
        }
        try:
            record.record(begun)
        except StorageError as error:
            ending = [key for key, entries in begun.items() if not entries and record.may_contain(key)]
            # Leaders flush the file of each log instead, before they write to it.
            delayed = counted(len(ending), "partition")
            _log.warning("failed to record leader epochs, %s cannot follow, retrying: %s", delayed, error)
            for topic_partition in ending:
                self._not_opened[topic_partition] = leaderships[topic_partition], leaders
                del opened[topic_partition]
            return
        for topic_partition, entries in begun.items():
            opened[topic_partition].epochs.recorded(entries)

    def _open(
        self,
        topic_partition: TopicPartition,
        leadership: LeaderAndIsr,
        leaders: Addresses,
        overrides: Mapping[str, str],
        topics: CurrentTopics,
    ) -> Log | None:
        logs, served = self._broker.logs, topic_partition in self._broker.partitions
        late = self._not_deleted.get(topic_partition)
        if late is not None and self._delete({topic_partition: late})[topic_partition] != ErrorCode.NONE:
            # The next attempt would delete a log that is created now.
            self._not_opened[topic_partition] = leadership, leaders
            return None
        try:
            if topic_partition in self._differing:
                self._set_aside(topic_partition, _NOT_ITS_LEADERS)
                self._differing.discard(topic_partition)
            new = topic_partition in self.new
            log = logs.create(topic_partition, overrides, new=new, flush_name=False)
            if topics.is_of_another(topic_partition):
                # Its topic id could not be read before. It is set aside at the next attempt.
                logs.give_up(topic_partition)
                self._not_opened[topic_partition] = leadership, leaders
                return None
            if not served and log.needs_flush():
                # The end that recovery found may not be durable, and is about to become readable.
                try:
                    log.flush()
                except StorageError:
                    logs.give_up(topic_partition)
                    raise
            if leadership.leader == self._broker.broker_id:
                others = len(leadership.replicas) > 1
                if others and self._is_of_an_earlier_life(topic_partition, leadership.leader_epoch, log):
                    self._not_opened[topic_partition] = leadership, leaders
                    return None
                self._led_epochs[topic_partition] = leadership.leader_epoch
                log.start_epoch(leadership.leader_epoch)
            elif logs.epoch_journal.of(topic_partition):
                log.epochs.save_durably()
        except (MinikafkaError, FileNotFoundError) as error:
            if topic_partition not in self._not_opened:
                _log.error("failed to open the log of %s, retrying: %s", topic_partition, error)
            self._not_opened[topic_partition] = leadership, leaders
            self._broker.log_failed(topic_partition, "")
            return None
        self._not_opened.pop(topic_partition, None)
        self.new.discard(topic_partition)
        return log

    def _is_of_an_earlier_life(self, topic_partition: TopicPartition, epoch: int, log: Log) -> bool:
        """Return True if this broker led in this leader epoch before it was restarted.

        Then the controller does not know of the restart yet, and elects again once it does. Until then no
        broker leads: the log may have lost messages that followers have, and an epoch must not have two
        histories. A controller that never elects again (0.10.1, after an election of its own) is obeyed after
        ``replica.lag.time.max.ms``.
        """
        # Only the journal has an epoch in which nothing was written, or of which a crash left nothing.
        if (
            epoch not in (log.epochs.latest, log.epochs.latest_at_open)
            or self._led_epochs.get(topic_partition) == epoch
        ):
            return False
        now_ms = self._broker.clock.monotonic_ms()
        refused = self._refused_ms.get(topic_partition)
        if refused is None or refused[0] != epoch:
            self._refused_ms[topic_partition] = refused = epoch, now_ms
            text = "waiting for an election of %s: this broker led in epoch %d before its restart"
            _log.info(text, topic_partition, epoch)
        return now_ms - refused[1] < self._broker.config.replication.lag_time_max_ms

    # --- metadata -------------------------------------------------------------------------------------------

    def update_metadata(
        self, brokers: Mapping[int, LiveBroker], leaderships: Leaderships, topic_ids: Mapping[str, bytes]
    ) -> None:
        """Update the metadata cache with the live brokers, the leaders and the ids of their topics."""
        broker = self._broker
        gone = [key for key, leadership in leaderships.items() if leadership.leader == LEADER_DURING_DELETE]
        taken, led = self._unassigned.find_taken(leaderships), self._unassigned.find_led(leaderships)
        self.stop((*gone, *taken, *led))

        # Only jobs replace the cache. Built outside the core's lock: there may be 100,000 partitions.
        metadata_cache = broker.metadata_cache.updated(brokers, leaderships, topic_ids)

        def step() -> None:
            broker.metadata_cache = metadata_cache
            broker.touch("metadata")

        broker.run(step)
        self._in_steps((*gone, *taken, *led), self._stop_serving)
        self._in_steps(gone, self._coordinator.partitions_deleted)
        self._in_steps(tuple(_topics(leaderships)), self._touch_topics)
        self._unassigned.log_taken(taken)
        # The controller sends first the live brokers, then the leaders, and then the metadata for clients.
        if leaderships or not (self._serves or broker.zk_client.has_topics()):
            self._serve()
            self._unassigned.log_found(broker.partitions.keys() | self._not_opened.keys())
        elif self._known_since_ms is None:
            self._known_since_ms = broker.clock.monotonic_ms()

    def _in_steps(self, items: Sequence[T], do: Callable[[Sequence[T]], None]) -> None:
        """Run ``do`` for portions of ``items``, each under the lock for a few milliseconds."""
        for portion in portions(items, _STEP_ITEMS):
            self._broker.run(partial(do, portion))

    def _touch_topics(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._broker.touch(("topic", topic))

    def _serve(self) -> None:
        self._serves = True
        self._serving()

    # --- stopping and deleting ------------------------------------------------------------------------------

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop following partitions; their logs are kept."""
        for topic_partition in partitions:
            self._not_opened.pop(topic_partition, None)
            self._fetchers.leave(topic_partition)

    def stop_and_delete(
        self, partitions: Iterable[TopicPartition], deleted: Callable[[TopicPartition], None]
    ) -> dict[TopicPartition, ErrorCode]:
        """Stop serving partitions and delete their logs; ``deleted`` is called for each, now or later.

        The result is KAFKA_STORAGE_ERROR for those whose deletion failed and is retried.
        """
        partitions = tuple(partitions)
        self._spared.update(self._read_topics(_topics(partitions), {}).lost(partitions))
        self.stop(partitions)
        self._broker.run(lambda: self._stop_serving(partitions))

        def tell(topic_partition: TopicPartition) -> Callable[[], None]:
            return lambda: deleted(topic_partition)

        return self._delete({topic_partition: tell(topic_partition) for topic_partition in partitions})

    def _delete(
        self, partitions: Mapping[TopicPartition, Callable[[], None]]
    ) -> dict[TopicPartition, ErrorCode]:
        for topic_partition in partitions:
            self._not_opened.pop(topic_partition, None)
        failed = self._set_spared_aside(partitions)
        failed |= self._broker.logs.delete_all([key for key in partitions if key not in failed])
        for topic_partition, error in failed.items():
            if topic_partition not in self._not_deleted:
                _log.error("failed to delete %s, retrying: %s", topic_partition, error)
            self._not_deleted[topic_partition] = partitions[topic_partition]
        for topic_partition, deleted in partitions.items():
            if topic_partition not in failed:
                for table in (self._not_deleted, self._led_epochs, self._refused_ms):
                    table.pop(topic_partition, None)
                self._differing.discard(topic_partition)
                deleted()
        return {key: ErrorCode.KAFKA_STORAGE_ERROR if key in failed else ErrorCode.NONE for key in partitions}

    def _set_spared_aside(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, MinikafkaError | FileNotFoundError]:
        """Set aside the logs of later topics; return the errors of those for which that failed."""
        failed: dict[TopicPartition, MinikafkaError | FileNotFoundError] = {}
        for topic_partition in sorted(self._spared.intersection(partitions)):
            try:
                self._set_aside(topic_partition, _OF_A_LOST_TOPIC)
            except (MinikafkaError, FileNotFoundError) as error:
                failed[topic_partition] = error
            else:
                self._spared.discard(topic_partition)
        return failed


def _topics(partitions: Iterable[TopicPartition]) -> Iterable[str]:
    """Return the topics of partitions, in order: a repeated run takes the same path."""
    return dict.fromkeys(topic_partition.topic for topic_partition in partitions)
