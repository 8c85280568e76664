"""The control path: what the controller on this broker hears of, and what becomes of its decisions.

Everything here runs as jobs of the worker, in order. What a decision says of other brokers' replicas goes
through their channels, what it says of this broker's own to ``replicas`` at once, which takes longer, and so
comes last.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.registry import paths
from minikafka.server.admin.dynamic_config import refresh_broker, refresh_limits, refresh_topic
from minikafka.server.control import controller_requests as messages
from minikafka.server.control.controller_channel import ControllerChannelManager, QueuedRequest
from minikafka.server.core.broker import Broker
from minikafka.server.replication.replica_manager import Brokers, ReplicaManager
from minikafka.server.zookeeper.counters import look_at_topics
from minikafka.wire.apis.leader_and_isr import LEADER_AND_ISR, LeaderAndIsrResponse
from minikafka.wire.apis.stop_replica import STOP_REPLICA, StopReplicaResponse
from minikafka.wire.apis.update_metadata import UPDATE_METADATA

_log = logging.getLogger(__name__)

_Sent = events.SendLeaderAndIsr | events.SendUpdateMetadata | events.SendStopReplica


class ControllerEventManager:
    """Carries events to the controller, and its effects to ZooKeeper and to all brokers."""

    def __init__(
        self,
        broker: Broker,
        replicas: ReplicaManager,
        channels: ControllerChannelManager,
        *,
        fatal: Callable[[str], None],
    ) -> None:
        """``fatal`` is called when this broker cannot go on."""
        self._broker = broker
        self._replicas = replicas
        self._channels = channels
        self.fatal = fatal
        self._not_stopped: dict[tuple[int, TopicPartition], None] = {}
        """Replicas that other brokers could not delete."""
        self._unreadable_going: set[str] = set()
        """Topics that cannot be read, whose deletion has begun."""

    def post(self, event: events.Event) -> None:
        """Tell the controller what happened, and carry out what it decides."""
        broker = self._broker
        effects: list[events.Effect] = []
        if isinstance(event, events.BrokersChanged):
            unseen = broker.controller.partitions_with_stale_isr(event.brokers, event.sessions)
            if unseen:
                broker.registrar.refresh(unseen)
        broker.run(lambda: effects.extend(broker.controller.step(event)))
        epoch, brokers, sessions = (
            broker.controller.epoch,
            broker.controller.brokers,
            broker.controller.sessions,
        )
        # Before what is to be sent, and behind what was decided earlier: both are jobs.
        broker.worker.submit(partial(self._channels.keep, brokers, sessions))
        for effect in _local_broker_last(effects, broker.broker_id):
            broker.worker.submit(partial(self._perform, effect, epoch, brokers))
        if isinstance(event, events.TopicRemoved):
            broker.run(lambda: broker.touch(("topic", event.topic)))

    def when_done(self, done: Callable[[], None]) -> None:
        """Call ``done``, as a job, once all that was decided so far is written and all brokers that live know
        it. For jobs.
        """
        submit = self._broker.worker.submit
        # What was decided is written by jobs that wait, and those submit what is to be told.
        submit(lambda: submit(lambda: self.run_when_acknowledged(done)))

    def run_when_acknowledged(self, done: Callable[[], None]) -> None:
        """Submit ``done`` once all brokers that live know what was decided so far. For jobs."""

        def told(broker_id: int) -> None:
            if broker_id in waited_for:
                waited_for.remove(broker_id)
                if not waited_for:
                    done()

        submit = self._broker.worker.submit
        waited_for = self._channels.mark(lambda broker_id: submit(partial(told, broker_id)))
        if not waited_for:
            submit(done)

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

    def topics_vanished(self, topics: frozenset[str]) -> None:
        """Tell clients of these no more. The controller's own word was lost where it died, or where this
        broker's session had ended.
        """
        broker = self._broker

        def step() -> None:
            image = broker.image
            gone = {
                TopicPartition(topic, partition): replace(known, leader=LEADER_DURING_DELETE)
                for topic in topics
                for partition, known in image.topics.get(topic, {}).items()
            }
            if gone:
                broker.image = image.updated(image.brokers, gone)
                broker.touch("image")
            for topic in {topic for topic, _ in gone}:
                broker.touch(("topic", topic))

        broker.run(step)

    def delete_unreadable(self, topic: str) -> None:
        """Delete a topic that the controller cannot know: what lies here of it, then its znodes."""
        broker = self._broker
        if not broker.config.delete_topics:
            _log.warning("the request to delete topic %s is dropped: delete.topic.enable is false", topic)
            broker.registrar.drop_deletion_request(topic)
            return
        self._unreadable_going.add(topic)
        self._replicas.drop(broker.logs.partitions_of(topic), lambda topic_partition: None)
        if self._replicas.is_left_over(topic):
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
        self._broker.quotas.change(name, self._broker.registrar.settings.of(paths.CLIENTS, name))

    def broker_config_changed(self, name: str) -> None:
        """Give replication its limits, where it is this broker."""
        if name.strip() == str(self._broker.broker_id):
            refresh_broker(self._broker)

    def configs_missed(self) -> None:
        """Give all clients their quotas, and replication its limits."""
        refresh_limits(self._broker)
        if self._broker.acl_manager is not None:
            self._broker.acl_manager.read_all()

    def counters_missed(self) -> None:
        """Give out no producer ids that another broker may have got meanwhile."""
        look_at_topics(self._broker.registrar.store, self._broker.logs.creations)
        self._broker.run(self._broker.producer_ids.discard)
        self._broker.raise_counters()

    def _delete_unreadable_going(self) -> None:
        for topic in sorted(self._unreadable_going):
            self.delete_unreadable(topic)

    def rebalance(self) -> None:
        """Have the preferred replicas lead, where too many do not. For one thread, the housekeeper's."""
        percent = self._broker.config.control.imbalance_percent
        if self._broker.controller.active:
            self._broker.worker.submit(lambda: self.post(events.RebalanceDue(percent)))

    def retry(self) -> None:
        """Submit again what could not be done. For one thread, the housekeeper's."""
        if not self._broker.registrar.ticket_kept:
            self._broker.worker.submit(self._broker.registrar.retry_ticket)
        self._broker.registrar.see_unseen()
        self._replicas.retry()
        if self._unreadable_going:
            self._broker.worker.submit(self._delete_unreadable_going)
        if self._not_stopped:
            self._broker.worker.submit(self._stop_again)

    def _stop_again(self) -> None:
        again, self._not_stopped = self._not_stopped, {}
        controller = self._broker.controller
        by_broker: dict[int, list[TopicPartition]] = {}
        for broker_id, topic_partition in again:
            assignment = controller.assignment_of(topic_partition.topic) or {}
            if broker_id in assignment.get(topic_partition.partition, ()):
                continue  # it has come to be a replica again
            by_broker.setdefault(broker_id, []).append(topic_partition)
        for broker_id, partitions in by_broker.items():
            if controller.active and broker_id in controller.brokers:
                effect = events.SendStopReplica(broker_id, tuple(partitions), delete=True)
                self._perform(effect, controller.epoch, controller.brokers)

    def _perform(self, effect: events.Effect, epoch: int, brokers: Brokers) -> None:
        """``epoch`` and ``brokers`` are those at the time of the decision. What was decided in a term of
        office that has ended is not done any more.
        """
        registrar = self._broker.registrar
        if epoch != self._broker.controller.epoch or not registrar.in_office:
            return
        match effect:
            case events.WriteLeaderships(leaderships, create):
                written = registrar.write_leaderships(leaderships, create=create)
                if create:
                    own = self._broker.broker_id
                    self._replicas.new |= {key for key, one in written.items() if own in one.replicas}
                gone = frozenset(leaderships.keys() - written.keys())
                self.post(events.LeadershipsWritten(written, gone))
            case events.SendLeaderAndIsr() | events.SendUpdateMetadata() | events.SendStopReplica():
                self._send(effect, epoch, brokers)
            case events.RemoveTopic(topic):
                registrar.remove_topic(topic)
                _log.info("topic %s is deleted", topic)
                self.post(events.TopicRemoved(topic))
            case events.DropDeletionRequest(topic, reason):
                _log.warning("the request to delete topic %s is dropped: %s", topic, reason)
                registrar.drop_deletion_request(topic)
            case events.WriteAssignments(assignments):
                registrar.assign(assignments)
            case events.DropReassignments(reasons):
                for reason in dict.fromkeys(reasons.values()):
                    named = ", ".join(str(key) for key, own in reasons.items() if own == reason)
                    _log.info("reassignment of %s: %s", named, reason)
                registrar.requests.drop_reassignments(reasons)
            case events.DropElections(reason):
                _log.info("the request for preferred elections is taken away: %s", reason)
                registrar.requests.drop_elections()
            case events.LogLine(text, warning):
                _log.log(logging.WARNING if warning else logging.INFO, "%s", text)

    def _send(self, effect: _Sent, epoch: int, brokers: Brokers) -> None:
        own = self._broker.broker_id
        if effect.broker_id == own:
            if self._is_current(epoch):
                self._take(effect, brokers)
            return
        target = effect.broker_id
        message: QueuedRequest
        match effect:
            case events.SendLeaderAndIsr(_, leaderships):
                told = messages.leader_and_isr(own, epoch, leaderships, brokers)
                message = QueuedRequest(
                    LEADER_AND_ISR, messages.LEADER_AND_ISR_VERSION, told, partial(self._told, target, epoch)
                )
            case events.SendUpdateMetadata(_, known, leaderships):
                news = messages.update_metadata(own, epoch, known, leaderships)
                message = QueuedRequest(
                    UPDATE_METADATA,
                    messages.UPDATE_METADATA_VERSION,
                    news,
                    partial(self._told, target, epoch),
                )
            case events.SendStopReplica(_, partitions, delete):
                stopped = messages.stop_replica(own, epoch, partitions, delete=delete)
                answered = (
                    partial(self._stopped, target, epoch) if delete else partial(self._told, target, epoch)
                )
                message = QueuedRequest(STOP_REPLICA, messages.STOP_REPLICA_VERSION, stopped, answered)
        self._channels.send(target, message)

    @property
    def controller_epoch(self) -> int:
        """The highest that this broker has heard of."""
        return self._replicas.controller_epoch

    def _is_current(self, epoch: int) -> bool:
        current = [False]

        def step() -> None:
            current[0] = self._replicas.take_epoch(epoch)

        self._broker.run(step)
        return current[0]

    def _take(self, effect: _Sent, brokers: Brokers) -> None:
        """This broker's share of what the controller, here, decided."""
        own = self._broker.broker_id
        match effect:
            case events.SendLeaderAndIsr(_, leaderships):
                codes = self._replicas.become(leaderships, brokers)
                stale = [key for key, code in codes.items() if code is ErrorCode.STALE_CONTROLLER_EPOCH]
                if stale:
                    self.post(events.LeaderEpochsRefused(frozenset(stale)))
            case events.SendUpdateMetadata(_, known, leaderships):
                self._replicas.update_metadata(known, leaderships)
            case events.SendStopReplica(_, partitions, False):
                self._replicas.stop(partitions)
            case events.SendStopReplica(_, partitions, True):
                codes = self._replicas.drop(
                    partitions, lambda topic_partition: self.post(events.ReplicaDeleted(own, topic_partition))
                )
                for topic_partition, code in codes.items():
                    if code is not ErrorCode.NONE:
                        self.post(events.ReplicaNotDeleted(own, topic_partition))

    # --- what other brokers answer, on their channels' threads ----------------------------------------------

    def _told(self, broker_id: int, epoch: int, response: Any) -> None:
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code).name
            _log.warning("broker %d does not take what this controller says: %s", broker_id, code)
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._broker.worker.submit(partial(self._broker.registrar.epoch_refused, epoch))
        elif isinstance(response, LeaderAndIsrResponse):
            self._broker.worker.submit(
                partial(self._epochs_refused, epoch, _partitions_with_newer_epoch(response))
            )

    def _epochs_refused(self, epoch: int, partitions: frozenset[TopicPartition]) -> None:
        if partitions and epoch == self._broker.controller.epoch:
            self.post(events.LeaderEpochsRefused(partitions))

    def _stopped(self, broker_id: int, epoch: int, response: StopReplicaResponse) -> None:
        self._told(broker_id, epoch, response)
        self._broker.worker.submit(lambda: self._deleted(broker_id, epoch, response))

    def _deleted(self, broker_id: int, epoch: int, response: StopReplicaResponse) -> None:
        if epoch != self._broker.controller.epoch:
            return  # of an earlier term: what it asked for may have been made anew
        for one in response.partitions:
            topic_partition = TopicPartition(one.topic, one.index)
            if one.error_code == ErrorCode.NONE:
                self.post(events.ReplicaDeleted(broker_id, topic_partition))
            else:
                self._not_stopped[broker_id, topic_partition] = None
                self.post(events.ReplicaNotDeleted(broker_id, topic_partition))


def _partitions_with_newer_epoch(response: LeaderAndIsrResponse) -> frozenset[TopicPartition]:
    """Of which partitions a broker knows a newer leader epoch than the one that it was told."""
    stale = ErrorCode.STALE_CONTROLLER_EPOCH
    return frozenset(
        TopicPartition(one.topic, one.index) for one in response.partitions if one.error_code == stale
    )


def _local_broker_last(effects: Iterable[events.Effect], own: int) -> Iterator[events.Effect]:
    """The same, but of what follows one another to brokers that of this one last."""
    for _, run in itertools.groupby(effects, lambda effect: isinstance(effect, _Sent)):
        yield from sorted(run, key=lambda effect: isinstance(effect, _Sent) and effect.broker_id == own)
