"""The replicas on this broker: what the controller, wherever it is, has it lead, follow and give up.

Everything here but ``take_epoch`` runs as jobs of the worker, in order. What fails for one partition is
logged, kept, and tried again by ``retry``; it never keeps others from their leaders. (``ReplicaManager`` of
0.10.1.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from minikafka.base.errors import ErrorCode, MinikafkaError, StorageError
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.base.reports import report
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.log.log import Log
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry import paths
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import portions
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.replication.replica_fetchers import Fetchers
from minikafka.server.replication.unassigned_logs import UnassignedLogs, named
from minikafka.server.zookeeper.counters import look_at_topics

_log = logging.getLogger(__name__)

_LONGEST_PAUSE_MS = 30_000
_TOPICS_PATIENCE_MS = 5_000

_STEP_ITEMS = 1_000
"""Of many partitions or topics, so many are worked on before others have the core's lock."""
_OF_AN_EARLIER_TOPIC = (
    "of an earlier topic of that name, whose znodes were removed or, where ZooKeeper was restored from an "
    "older copy, lost"
)
_OF_A_LOST_TOPIC = (
    "of a topic that was made after the one that is to be deleted, and that ZooKeeper lost when it was "
    "restored from an older copy"
)

_NOT_ITS_LEADERS = "not the one of its leader, which has other messages"

T = TypeVar("T")
Leaderships = Mapping[TopicPartition, LeaderAndIsr]
Brokers = Mapping[int, BrokerAddress]


class ReplicaManager:
    """Leads, follows and drops. See the module for who may call what."""

    def __init__(
        self,
        broker: Broker,
        coordinator: GroupCoordinator,
        fetchers: Fetchers,
        *,
        serving: Callable[[], None],
    ) -> None:
        """``serving`` is called when this broker knows the cluster."""
        fetchers.owner = self
        self._broker = broker
        self._coordinator = coordinator
        self._fetchers = fetchers
        self._serving = serving
        self._serves = False
        """Whether ``serving`` was called."""
        self._known_since_ms: int | None = None
        """When this broker heard of the cluster, and not yet of topics that there are."""
        self._unassigned = UnassignedLogs(broker)
        self._registered_at: int | None = None
        self._controller_epoch = 0
        self._not_opened: dict[TopicPartition, tuple[LeaderAndIsr, Brokers]] = {}
        self._open_at_ms = 0
        self._open_pause_ms = 0
        """Between tries to open: recovery may read gigabytes."""
        self._begun: dict[TopicPartition, int] = {}
        """The epochs that this process led last."""
        self._refused_ms: dict[TopicPartition, tuple[int, int]] = {}
        """Epochs that it does not lead again, and since when."""
        self.new: set[TopicPartition] = set()
        """Partitions that were made just now: they cannot lie in a directory that is left out."""
        self._ahead: set[TopicPartition] = set()
        """Whose logs have what ZooKeeper does not know of: newer epochs when this broker was started, or the
        messages of a replica that it was not.
        """
        self._differing: set[TopicPartition] = set()
        """Whose logs are to be set aside before they are opened again: their leaders have other messages."""
        self._leaving = False
        self._not_deleted: dict[TopicPartition, Callable[[], None]] = {}
        """What could not be deleted, and what is to be done once it is."""
        self._spared: set[TopicPartition] = set()
        """Of those that are to be deleted, the ones whose logs are of later topics: they are set aside."""

    def follow_no_more(self) -> None:
        """This broker is about to stop: what it copied it would be in sync by, and missing a moment later."""
        self._leaving = True

    @property
    def controller_epoch(self) -> int:
        """The highest that this broker has heard of."""
        return self._controller_epoch

    def take_epoch(self, controller_epoch: int) -> bool:
        """In a step: whether a message of the controller of this epoch counts; an older one's does not."""
        if controller_epoch < self._controller_epoch:
            return False
        self._controller_epoch = controller_epoch
        return True

    def obey(
        self,
        controller_epoch: int,
        context: RequestContext,
        respond: Callable[[], Any],
        refuse: Callable[[], Any],
    ) -> None:
        """Answer a request of a controller by ``respond``, a job; by ``refuse`` when it is one no longer."""

        def job() -> None:
            current: list[bool] = []
            self._broker.run(lambda: current.append(self.take_epoch(controller_epoch)))
            context.answer(respond if current[0] else refuse)

        self._broker.worker.submit(job)

    def is_left_over(self, topic: str) -> bool:
        """Whether some of a topic could not be deleted yet."""
        return any(topic_partition.topic == topic for topic_partition in self._not_deleted)

    def wanted(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        """What the controller said of a partition whose log cannot be opened; None for the others."""
        found = self._not_opened.get(topic_partition)
        return None if found is None else found[0]

    def retry(self) -> None:
        """Submit again what could not be opened or deleted. For one thread, the housekeeper's."""
        now_ms = self._broker.clock.monotonic_ms()
        if self._known_since_ms is not None and now_ms - self._known_since_ms >= _TOPICS_PATIENCE_MS:
            self._serve()  # topics without a leader are no reason to wait for ever
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
        leaders: dict[int, BrokerAddress] = {}
        for _, known in self._not_opened.values():
            leaders |= known
        self.become({key: leadership for key, (leadership, _) in self._not_opened.items()}, leaders)

    # --- leading and following ------------------------------------------------------------------------------

    def become(self, leaderships: Leaderships, leaders: Brokers) -> dict[TopicPartition, ErrorCode]:
        """Lead or follow each partition; ``leaders`` says where the others' leaders are.

        What became of each. An older leader epoch than the known one changes nothing:
        STALE_CONTROLLER_EPOCH, as 0.10.1.
        """
        broker = self._broker
        codes = dict.fromkeys(leaderships, ErrorCode.NONE)
        opened: dict[TopicPartition, Log] = {}
        # All before anything is changed: without ZooKeeper the controller asks again.
        configs = broker.registrar.settings.of_topics(_topics(leaderships))
        created = broker.registrar.creations(configs)
        look_at_topics(broker.registrar.store, broker.logs.topic_incarnations)
        held, registered_at = set(broker.logs.partitions()), self._registered()
        leaderships = self._of_these_topics(leaderships, created, leaders)
        behind = {key for key, leadership in leaderships.items() if self._is_behind(key, leadership)}
        codes |= dict.fromkeys(behind, ErrorCode.STALE_CONTROLLER_EPOCH)
        leaderships = {key: value for key, value in leaderships.items() if key not in behind}
        self._ahead |= self._unassigned.take(leaderships)
        for topic_partition, leadership in leaderships.items():
            if not self._is_known(topic_partition, leadership):
                self._fetchers.leave(topic_partition)  # all at once: they would ask leaders that are none now
        for topic, overrides in configs.items():
            broker.logs.set_overrides(topic, overrides)
            broker.throttles.set_topic(topic, overrides)
            for topic_partition, leadership in leaderships.items():
                if topic_partition.topic != topic or self._is_known(topic_partition, leadership):
                    continue
                if broker.broker_id not in leadership.replicas:
                    codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                log = self._open(topic_partition, leadership, leaders, overrides)
                if log is None:
                    codes[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    opened[topic_partition] = log
        made = [key for key in opened.keys() - held if created.get(key.topic, registered_at) < registered_at]
        self._tell_lost(key for key in made if leaderships[key].leader == broker.broker_id)
        self._write_down(opened, created, leaderships, leaders)
        self._write_begun(opened, leaderships, leaders)
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

    def _registered(self) -> int:
        """The change of ZooKeeper that registered this process first; 0 where nobody knows."""
        if self._registered_at is None:
            path = paths.broker_path(self._broker.broker_id)
            found = self._broker.registrar.store.read_all((path,)).get(path)
            if found is None:
                return 0
            self._registered_at = found[1].created_at
        return self._registered_at

    def _tell_lost(self, led: Iterable[TopicPartition]) -> None:
        """Of topics that are older than this process, and had no log here."""
        lost = sorted(map(str, led))
        if lost:
            paths = ", ".join(self._broker.logs.paths)
            told = (
                f"partitions that this broker is to lead had no log in {paths}, and begin empty; if they "
                "were written to before, their directories were removed or moved: stop this broker and put "
                f"them back, before others write: {named(lost)}"
            )
            _log.warning("%s", told)
            report("warning", message=told)

    def _resign(self, leaderships: Leaderships) -> None:
        """Serve those no longer that were served, and cannot be as the controller says now: who led one
        would go on to, for clients that have not heard of the new leader.
        """
        broker = self._broker
        served = [key for key in leaderships if key in self._not_opened and key in broker.partitions]
        left = [key for key in served if not self._is_known(key, leaderships[key])]
        if left:
            broker.run(lambda: self._let_go(left))

    def _is_known(self, topic_partition: TopicPartition, leadership: LeaderAndIsr) -> bool:
        partition = self._broker.partitions.get(topic_partition)
        known = None if partition is None else partition.leadership
        return known is not None and known.leader_epoch >= leadership.leader_epoch

    def _is_behind(self, topic_partition: TopicPartition, told: LeaderAndIsr) -> bool:
        """Whether this broker knows of a newer leader than the controller: ZooKeeper's epochs went back. By
        an epoch that the log has already, followers could not tell where their logs part from the leader's.
        """
        partition = self._broker.partitions.get(topic_partition)
        known = None if partition is None else partition.leadership
        if known is not None:
            if told.leader_epoch == known.leader_epoch:
                return told.leader != known.leader
            return told.leader_epoch < known.leader_epoch
        log = self._broker.logs.get(topic_partition)
        if log is None or told.leader_epoch >= max(log.epochs.latest, log.epochs.begun):
            return False
        self._ahead.add(topic_partition)
        return True

    def _take_over(self, opened: Mapping[TopicPartition, Log], leaderships: Leaderships) -> None:
        """In a step: the partitions have their leaders."""
        broker = self._broker
        now_ms = broker.clock.monotonic_ms()
        for topic_partition, log in opened.items():
            partition = broker.partitions.get(topic_partition)
            if partition is None:
                watermark = broker.logs.high_watermarks.of(topic_partition)
                partition = Partition(topic_partition, log, broker.broker_id, high_watermark=watermark)
                broker.serve(partition)
            partition.apply_leadership(leaderships[topic_partition], now_ms)
            self._coordinator.leadership_changed(topic_partition)
            broker.touch(topic_partition)
        for topic in _topics(opened):
            broker.touch(("topic", topic))

    def _of_these_topics(
        self, leaderships: Leaderships, created: Mapping[str, int], leaders: Brokers
    ) -> Leaderships:
        """Set aside the logs that are of earlier topics of these names, and leave out what was said of those.

        Their znodes were removed past the controller: nobody had the logs deleted, here or on a broker that
        was away. What was said when the topic of the name was another is told by the state that there is now.
        """
        logs, left = self._broker.logs, dict(leaderships)
        strays = {
            key: leadership.replicas
            for key, leadership in leaderships.items()
            if key.topic in created and logs.topic_incarnations.is_of_another(key, created[key.topic])
        }
        for topic_partition in self._of_lost_topics(leaderships.keys() - strays.keys(), created):
            _log.warning(
                "the log of %s may be of a topic that ZooKeeper lost when it was restored from an older "
                "copy: it is taken for the log of the topic of that name that there is",
                topic_partition,
            )
        states = self._broker.registrar.states.read(strays) if strays else {}
        for topic_partition in strays:
            said, state = leaderships[topic_partition], states.get(topic_partition)
            current = state is not None and state.leader_epoch == said.leader_epoch
            if state is None or not current or state.leader != said.leader:
                _log.info(
                    "what was said of %s is of an earlier topic, or another leads since", topic_partition
                )
                del left[topic_partition]
            try:
                self._set_aside(topic_partition, _OF_AN_EARLIER_TOPIC)
            except StorageError as error:
                _log.error("%s has no leader, the log of an earlier topic stays: %s", topic_partition, error)
                if left.pop(topic_partition, None) is not None:
                    self._not_opened[topic_partition] = said, leaders
        return left

    def _of_lost_topics(
        self, partitions: Iterable[TopicPartition], created: Mapping[str, int]
    ) -> list[TopicPartition]:
        """Those whose logs may be of topics of these names that ZooKeeper lost when it went back."""
        known = self._broker.logs.topic_incarnations
        return sorted(
            key for key in partitions if key.topic in created and known.is_of_later(key, created[key.topic])
        )

    def _set_aside(self, topic_partition: TopicPartition, why: str) -> None:
        self.stop((topic_partition,))
        self._broker.run(lambda: self._let_go((topic_partition,)))
        for table in (self._begun, self._refused_ms):
            table.pop(topic_partition, None)
        self._ahead.discard(topic_partition)
        aside = self._broker.logs.mark_stray(topic_partition)
        _log.warning(
            "the log of %s is %s: it is set aside as %s, and not served any more; `minikafka log dump` reads "
            "the files there; remove the directory when nobody needs its records",
            topic_partition,
            why,
            aside,
        )

    def start_over(self, topic_partition: TopicPartition, leader: BrokerAddress) -> None:
        """A job: copy the leader's log whole, and keep the one here, which has other messages."""
        partition = self._broker.partitions.get(topic_partition)
        known = None if partition is None else partition.leadership
        if known is None:
            return
        self._differing.add(topic_partition)
        self.stop((topic_partition,))
        self._broker.run(lambda: self._let_go((topic_partition,)))
        self._not_opened[topic_partition] = known, {leader.broker_id: leader}
        self._open_at_ms = self._broker.clock.monotonic_ms()

    def agreed(self, topic_partition: TopicPartition) -> None:
        """A job: the log here has nothing that its leader's has not."""
        self._ahead.discard(topic_partition)

    def _let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """In a step: these are not served any more."""
        for topic_partition in partitions:
            partition = self._broker.serve_no_more(topic_partition)
            if partition is not None:
                partition.drop_replica()
            self._broker.touch(topic_partition)
            self._coordinator.leadership_changed(topic_partition)

    def _write_down(
        self,
        opened: dict[TopicPartition, Log],
        created: Mapping[str, int],
        leaderships: Leaderships,
        leaders: Brokers,
    ) -> None:
        """Which topics the logs are of, and the names of those that were made: one flush for all partitions,
        as of a thousand each would cost as much.
        """
        made = [key for key in opened if key not in self._broker.partitions]
        changes = {key: created[key.topic] for key in opened if key.topic in created}
        try:
            if made:
                self._broker.logs.flush_names()
            self._broker.logs.topic_incarnations.record(changes)
        except (MinikafkaError, FileNotFoundError) as error:
            if not made:
                _log.warning("%s; it is tried again when a leader changes", error)
                return
            _log.error("%d partitions have no leader, it is tried again: %s", len(made), error)
            for topic_partition in made:
                self._broker.logs.give_up(topic_partition)
                self._not_opened[topic_partition] = leaderships[topic_partition], leaders
                self._broker.log_failed(topic_partition, "")
                del opened[topic_partition]

    def _write_begun(
        self, opened: dict[TopicPartition, Log], leaderships: Leaderships, leaders: Brokers
    ) -> None:
        """The epochs that begin here, and that nothing begins in the logs of leaders elsewhere: one flush."""
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
            ending = [key for key, entries in begun.items() if not entries and record.may_tell(key)]
            # Leaders flush the file of each log instead, before they write to it.
            _log.warning("%s; %d partitions follow their leaders later", error, len(ending))
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
        leaders: Brokers,
        overrides: Mapping[str, str],
    ) -> Log | None:
        logs, served = self._broker.logs, topic_partition in self._broker.partitions
        late = self._not_deleted.get(topic_partition)
        if late is not None and self._delete({topic_partition: late})[topic_partition] != ErrorCode.NONE:
            # What is made beside it now, the next try would delete.
            self._not_opened[topic_partition] = leadership, leaders
            return None
        try:
            if topic_partition in self._differing:
                self._set_aside(topic_partition, _NOT_ITS_LEADERS)
                self._differing.discard(topic_partition)
            new = topic_partition in self.new
            log = logs.create(topic_partition, overrides, new=new, flush_name=False)
            if not served and log.needs_flush():
                # What recovery found may not be durable, and is about to be readable.
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
                self._begun[topic_partition] = leadership.leader_epoch
                log.start_epoch(leadership.leader_epoch)
            elif logs.epoch_journal.of(topic_partition):
                log.epochs.stand_alone()
        except (MinikafkaError, FileNotFoundError) as error:
            if topic_partition not in self._not_opened:
                _log.error("%s has no leader, it is tried again: %s", topic_partition, error)
            self._not_opened[topic_partition] = leadership, leaders
            self._broker.log_failed(topic_partition, "")
            return None
        self._not_opened.pop(topic_partition, None)
        self.new.discard(topic_partition)
        return log

    def _is_of_an_earlier_life(self, topic_partition: TopicPartition, epoch: int, log: Log) -> bool:
        """Whether this broker led this very epoch before it was restarted.

        Then the controller does not know yet of the restart, and decides anew once it does. Until then
        nobody leads: the log may have lost what followers have, and an epoch must not have two histories.
        One that never decides anew (0.10.1's, after an election of its own) is believed after a while.
        """
        # Of one in which nothing was written, or of which a crash left nothing, only the file tells.
        if epoch not in (log.epochs.latest, log.epochs.begun) or self._begun.get(topic_partition) == epoch:
            return False
        now_ms = self._broker.clock.monotonic_ms()
        refused = self._refused_ms.get(topic_partition)
        if refused is None or refused[0] != epoch:
            self._refused_ms[topic_partition] = refused = epoch, now_ms
            _log.info("%s was led from here in epoch %d, before the restart", topic_partition, epoch)
        return now_ms - refused[1] < self._broker.config.replication.lag_time_max_ms

    # --- what clients are told ------------------------------------------------------------------------------

    def update_metadata(self, brokers: Brokers, leaderships: Leaderships) -> None:
        """Take over who lives and who leads."""
        broker = self._broker
        gone = [key for key, leadership in leaderships.items() if leadership.leader == LEADER_DURING_DELETE]
        taken, led = self._unassigned.find_taken(leaderships), self._unassigned.find_led(leaderships)
        self.stop((*gone, *taken, *led))

        # Only jobs replace the image. Beside the core's lock: a controller may name a hundred thousand.
        image = broker.image.updated(brokers, leaderships)

        def step() -> None:
            broker.image = image
            broker.touch("image")

        broker.run(step)
        self._in_steps((*gone, *taken, *led), self._let_go)
        self._in_steps(gone, self._coordinator.partitions_deleted)
        self._in_steps(tuple(_topics(leaderships)), self._touch_topics)
        self._unassigned.tell_taken(taken)
        # The controller first says who lives, then who leads, and then all that clients are to be told.
        if leaderships or not (self._serves or broker.registrar.has_topics()):
            self._serve()
            self._unassigned.tell_found(broker.partitions.keys() | self._not_opened.keys())
        elif self._known_since_ms is None:
            self._known_since_ms = broker.clock.monotonic_ms()

    def _in_steps(self, items: Sequence[T], do: Callable[[Sequence[T]], None]) -> None:
        """``do``, in steps of a few milliseconds."""
        for portion in portions(items, _STEP_ITEMS):
            self._broker.run(partial(do, portion))

    def _touch_topics(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._broker.touch(("topic", topic))

    def _serve(self) -> None:
        self._serves = True
        self._serving()

    # --- giving up ------------------------------------------------------------------------------------------

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Copy these no longer; their logs stay."""
        for topic_partition in partitions:
            self._not_opened.pop(topic_partition, None)
            self._fetchers.leave(topic_partition)

    def drop(
        self, partitions: Iterable[TopicPartition], deleted: Callable[[TopicPartition], None]
    ) -> dict[TopicPartition, ErrorCode]:
        """Serve these no longer and delete their logs; ``deleted`` is told of each, now or later.

        KAFKA_STORAGE_ERROR for those that will be later.
        """
        partitions = tuple(partitions)
        created = self._broker.registrar.creations(_topics(partitions))
        look_at_topics(self._broker.registrar.store, self._broker.logs.topic_incarnations)
        self._spared.update(self._of_lost_topics(partitions, created))
        self.stop(partitions)
        self._broker.run(lambda: self._let_go(partitions))

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
                _log.error("%s is not deleted, it is tried again: %s", topic_partition, error)
            self._not_deleted[topic_partition] = partitions[topic_partition]
        for topic_partition, deleted in partitions.items():
            if topic_partition not in failed:
                for table in (self._not_deleted, self._begun, self._refused_ms):
                    table.pop(topic_partition, None)
                self._differing.discard(topic_partition)
                deleted()
        return {key: ErrorCode.KAFKA_STORAGE_ERROR if key in failed else ErrorCode.NONE for key in partitions}

    def _set_spared_aside(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, MinikafkaError | FileNotFoundError]:
        """Those that could not be: their logs stay where they are."""
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
    """Their topics, in order: a run that is repeated goes the same way."""
    return dict.fromkeys(topic_partition.topic for topic_partition in partitions)
