"""The control path: what the controller wants done, and what this broker does of it.

Everything here runs as jobs of the worker, in order. What fails for one partition is logged, kept, and
tried again by ``retry``; it never keeps others from their leaders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from minikafka.base.errors import MinikafkaError, StorageError
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.controller import events
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.log.log import Log
from minikafka.partition.leadership import Leadership
from minikafka.partition.partition import Partition
from minikafka.server.broker import Broker
from minikafka.server.coordinator import Coordinator
from minikafka.server.settings import refresh_topic

_log = logging.getLogger(__name__)

_LONGEST_PAUSE_MS = 30_000


class ControlPath:
    """Carries events to the controller, and its effects to ZooKeeper, the logs and the broker's state."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        *,
        serving: Callable[[], None],
        fatal: Callable[[str], None],
    ) -> None:
        """``serving`` is called when this broker knows the cluster, ``fatal`` when it cannot go on."""
        self._broker = broker
        self._coordinator = coordinator
        self._serving = serving
        self.fatal = fatal
        self._not_opened: dict[TopicPartition, Leadership] = {}
        self._open_at_ms = 0
        self._open_pause_ms = 0
        """Between tries to open: recovery may read gigabytes."""
        self._new: set[TopicPartition] = set()
        """Partitions that were made just now: they cannot lie in a directory that is left out."""
        self._not_deleted: set[TopicPartition] = set()
        self._unreadable_going: set[str] = set()
        """Topics that cannot be read, whose deletion has begun."""

    def post(self, event: events.Event) -> None:
        """Tell the controller what happened, and carry out what it decides."""
        broker = self._broker
        effects: list[events.Effect] = []
        broker.run(lambda: effects.extend(broker.controller.step(event)))
        for effect in effects:
            broker.worker.submit(partial(self._perform, effect))
        if isinstance(event, events.TopicRemoved):
            broker.run(lambda: broker.touch(("topic", event.topic)))

    def controller_changed(self, controller_id: int) -> None:
        """ZooKeeper names another controller (or none: -1)."""
        broker = self._broker

        def step() -> None:
            broker.image = broker.image.with_controller(controller_id)

        broker.run(step)

    def unreadable_changed(self, topics: frozenset[str]) -> None:
        """ZooKeeper holds nonsense of these topics."""
        broker = self._broker

        def step() -> None:
            broker.image = broker.image.with_unreadable(topics)

        broker.run(step)

    def delete_unreadable(self, topic: str) -> None:
        """Delete a topic that the controller cannot know: what lies here of it, then its znodes."""
        broker = self._broker
        if not broker.config.delete_topics:
            self._perform(events.DropDeletionRequest(topic, "delete.topic.enable is false"))
            return
        self._unreadable_going.add(topic)
        self._drop(broker.logs.partitions_of(topic))
        if any(topic_partition.topic == topic for topic_partition in self._not_deleted):
            return
        broker.registrar.remove_topic(topic)
        self._unreadable_going.discard(topic)
        self.unreadable_changed(broker.image.unreadable - {topic})
        _log.info("topic %s is deleted", topic)
        self.post(events.TopicRemoved(topic))

    def topic_config_changed(self, topic: str) -> None:
        """Give the logs that lie here of a topic its settings."""
        if self._broker.logs.partitions_of(topic):
            refresh_topic(self._broker, topic)

    def client_config_changed(self, name: str) -> None:
        """Give a client its quota."""
        self._broker.quotas.change(name, self._broker.registrar.client_config(name))

    def client_configs_missed(self) -> None:
        """Give all clients their quotas."""
        self._broker.quotas.replace(self._broker.registrar.client_configs())

    def _delete_unreadable_going(self) -> None:
        for topic in sorted(self._unreadable_going):
            self.delete_unreadable(topic)

    def retry(self) -> None:
        """Submit again what could not be opened, deleted or written. For one thread, the housekeeper's."""
        if not self._broker.registrar.ticket_kept:
            self._broker.worker.submit(self._broker.registrar.retry_ticket)
        now_ms = self._broker.clock.monotonic_ms()
        if not self._not_opened:
            self._open_pause_ms = 0
        elif now_ms >= self._open_at_ms:
            self._open_pause_ms = min(max(1_000, 2 * self._open_pause_ms), _LONGEST_PAUSE_MS)
            self._open_at_ms = now_ms + self._open_pause_ms
            self._broker.worker.submit(lambda: self._lead(dict(self._not_opened)))
        if self._not_deleted:
            self._broker.worker.submit(lambda: self._drop(tuple(sorted(self._not_deleted))))
        if self._unreadable_going:
            self._broker.worker.submit(self._delete_unreadable_going)

    def _perform(self, effect: events.Effect) -> None:
        registrar = self._broker.registrar
        match effect:
            case events.WriteLeaderships(leaderships, create):
                written = registrar.write_leaderships(leaderships, create=create)
                if create:
                    self._new |= written.keys()
                gone = frozenset(leaderships.keys() - written.keys())
                self.post(events.LeadershipsWritten(written, gone))
            case events.SendLeaderAndIsr(broker_id, leaderships):
                self._check_own(broker_id)
                self._lead(leaderships)
            case events.SendUpdateMetadata(broker_id, brokers, leaderships):
                self._check_own(broker_id)
                self._update_metadata(brokers, leaderships)
            case events.SendStopReplica(broker_id, partitions, True):
                self._check_own(broker_id)
                self._drop(partitions)
            case events.RemoveTopic(topic):
                registrar.remove_topic(topic)
                _log.info("topic %s is deleted", topic)
                self.post(events.TopicRemoved(topic))
            case events.DropDeletionRequest(topic, reason):
                _log.warning("the request to delete topic %s is dropped: %s", topic, reason)
                registrar.drop_deletion_request(topic)
            case events.Note(text, warning):
                _log.log(logging.WARNING if warning else logging.INFO, "%s", text)
            case _:
                raise MinikafkaError(f"{effect} is not done by a cluster of one broker")

    def _check_own(self, broker_id: int) -> None:
        # Other brokers are reached through the controller's channel, which comes with replication; until then
        # the registrar refuses a second broker in the cluster.
        own = self._broker.broker_id
        if broker_id != own:
            raise MinikafkaError(
                f"broker {broker_id} cannot be reached from {own}: this version serves one broker a cluster"
            )

    def _lead(self, leaderships: Mapping[TopicPartition, Leadership]) -> None:
        broker = self._broker
        opened: dict[TopicPartition, Log] = {}
        for topic in {key.topic for key in leaderships}:
            overrides = broker.registrar.topic_config(topic)
            broker.logs.set_overrides(topic, overrides)
            for topic_partition, leadership in leaderships.items():
                if topic_partition.topic == topic:
                    log = self._open(topic_partition, leadership, overrides)
                    if log is not None:
                        opened[topic_partition] = log
        self._flush_names(opened, leaderships)

        def step() -> None:
            for topic_partition, log in opened.items():
                partition = broker.partitions.get(topic_partition)
                if partition is None:
                    partition = Partition(topic_partition, log, broker.broker_id)
                    broker.partitions[topic_partition] = partition
                partition.lead(leaderships[topic_partition])
                self._coordinator.leadership_changed(topic_partition)
            for topic in {key.topic for key in opened}:
                broker.touch(("topic", topic))

        broker.run(step)

    def _flush_names(
        self, opened: dict[TopicPartition, Log], leaderships: Mapping[TopicPartition, Leadership]
    ) -> None:
        """One flush for all partitions that were made: of a thousand each would cost as much."""
        made = [key for key in opened if key not in self._broker.partitions]
        try:
            if made:
                self._broker.logs.flush_names()
        except (MinikafkaError, FileNotFoundError) as error:
            _log.error("%d partitions have no leader, it is tried again: %s", len(made), error)
            for topic_partition in made:
                self._broker.logs.give_up(topic_partition)
                self._not_opened[topic_partition] = leaderships[topic_partition]
                del opened[topic_partition]

    def _open(
        self, topic_partition: TopicPartition, leadership: Leadership, overrides: Mapping[str, str]
    ) -> Log | None:
        logs, served = self._broker.logs, topic_partition in self._broker.partitions
        try:
            new = topic_partition in self._new
            log = logs.create(topic_partition, overrides, new=new, flush_name=False)
            if not served and log.needs_flush():
                # What recovery found may not be durable, and is about to be readable.
                try:
                    log.flush()
                except StorageError:
                    logs.give_up(topic_partition)
                    raise
            if leadership.leader == self._broker.broker_id:
                log.epochs.begin(leadership.leader_epoch, log.end_offset)
        except (MinikafkaError, FileNotFoundError) as error:
            if topic_partition not in self._not_opened:
                _log.error("%s has no leader, it is tried again: %s", topic_partition, error)
            self._not_opened[topic_partition] = leadership
            return None
        self._not_opened.pop(topic_partition, None)
        self._new.discard(topic_partition)
        return log

    def _update_metadata(
        self, brokers: Mapping[int, BrokerAddress], leaderships: Mapping[TopicPartition, Leadership]
    ) -> None:
        broker = self._broker
        gone = [key for key, leadership in leaderships.items() if leadership.leader == LEADER_DURING_DELETE]

        def step() -> None:
            broker.image = broker.image.updated(brokers, leaderships)
            self._coordinator.partitions_deleted(gone)
            broker.touch("image")
            for topic in {key.topic for key in leaderships}:
                broker.touch(("topic", topic))
            broker.after(self._serving)

        broker.run(step)

    def _drop(self, partitions: tuple[TopicPartition, ...]) -> None:
        broker = self._broker

        def step() -> None:
            for topic_partition in partitions:
                broker.partitions.pop(topic_partition, None)
                broker.touch(topic_partition)
                self._coordinator.leadership_changed(topic_partition)

        broker.run(step)
        for topic_partition in partitions:
            self._not_opened.pop(topic_partition, None)
            try:
                broker.logs.delete(topic_partition)
            except StorageError as error:
                if topic_partition not in self._not_deleted:
                    _log.error("%s is not deleted, it is tried again: %s", topic_partition, error)
                self._not_deleted.add(topic_partition)
                continue
            self._not_deleted.discard(topic_partition)
            self.post(events.ReplicaDeleted(broker.broker_id, topic_partition))
