"""Events for the controller on this broker, and the effects of its decisions.

Everything here runs as jobs of the worker, in order. Requests to other brokers go through their channels. The
local share of a decision is applied to ``replicas`` directly; as that takes longer, it comes last.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from minikafka.base.endpoints import LiveBroker, addresses_on
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS, BrokerAddress, TopicPartition
from minikafka.base.text import counted, first_of
from minikafka.controller import events
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry import paths
from minikafka.registry.entity_configs import ConfigChange
from minikafka.registry.users import DEFAULT_ENTITY
from minikafka.server.admin.dynamic_config import (
    refresh_broker,
    refresh_client,
    refresh_entities,
    refresh_topic,
)
from minikafka.server.control import controller_requests as requests
from minikafka.server.control.controller_channel import ControllerChannelManager, QueuedRequest
from minikafka.server.core.broker import Broker
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.server.zookeeper.counters import observe_topics
from minikafka.wire.api import Api
from minikafka.wire.apis.leader_and_isr import LEADER_AND_ISR, LeaderAndIsrResponse
from minikafka.wire.apis.stop_replica import STOP_REPLICA, StopReplicaResponse
from minikafka.wire.apis.update_metadata import UPDATE_METADATA

_log = logging.getLogger(__name__)

_Brokers = Mapping[int, LiveBroker]
_NAMED_MAX = 10
"""The most partitions that a line names."""
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
        """``fatal`` is called with the reason when this broker must stop."""
        self._broker = broker
        self._replicas = replicas
        self._channels = channels
        self.fatal = fatal
        self._failed_deletions: dict[tuple[int, TopicPartition], None] = {}
        """Replicas that other brokers failed to delete."""
        self._unreadable_deletions: set[str] = set()
        """Topics with unreadable znodes whose deletion has begun."""

    def post(self, event: events.Event) -> None:
        """Pass an event to the controller, and submit the effects of its decision."""
        broker = self._broker
        before = broker.controller.brokers
        led: dict[int, int] = {}
        if isinstance(event, events.BrokersChanged):
            gone = before.keys() - event.brokers.keys()
            led = {number: len(broker.controller.partitions_still_led_by(number)) for number in gone}
            unseen = broker.controller.partitions_with_stale_isr(event.brokers, event.sessions)
            if unseen:
                broker.zk_client.refresh(unseen)
        effects = broker.run(lambda: broker.controller.step(event))
        epoch, brokers, sessions = (
            broker.controller.epoch,
            broker.controller.brokers,
            broker.controller.sessions,
        )
        if isinstance(event, events.BrokersChanged):
            _log_changed_brokers(before, brokers, led)
        # Runs after the effects of earlier decisions and before the requests of this one: all are jobs.
        broker.worker.submit(partial(self._channels.keep, brokers, sessions))
        for effect in _local_broker_last(effects, broker.broker_id):
            broker.worker.submit(partial(self._perform, effect, epoch, brokers))
        if isinstance(event, events.TopicRemoved):
            broker.run(lambda: broker.touch(("topic", event.topic)))

    def when_done(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all decisions so far are written and acknowledged by all live brokers.

        Called by jobs; ``done`` runs as a job.
        """
        submit = self._broker.worker.submit
        # Decisions are written by jobs in the queue, and those jobs submit the requests to brokers.
        submit(lambda: submit(lambda: self.run_when_acknowledged(done)))

    def run_when_acknowledged(self, done: Callable[[], None]) -> None:
        """Submit ``done`` once all live brokers have acknowledged the requests sent so far. For jobs."""

        def acknowledged(broker_id: int) -> None:
            if broker_id in waited_for:
                waited_for.remove(broker_id)
                if not waited_for:
                    done()

        submit = self._broker.worker.submit
        waited_for = self._channels.mark(lambda broker_id: submit(partial(acknowledged, broker_id)))
        if not waited_for:
            submit(done)

    def controller_changed(self, controller_id: int) -> None:
        """Record the controller that ZooKeeper names (-1: none)."""
        self._change_metadata(controller_id=controller_id)

    def unreadable_changed(self, topics: frozenset[str]) -> None:
        """Record the topics whose znodes cannot be read."""
        self._change_metadata(unreadable=topics)

    def _change_metadata(self, **fields: Any) -> None:
        broker = self._broker

        def step() -> None:
            broker.metadata_cache = replace(broker.metadata_cache, **fields)

        broker.run(step)

    def topics_vanished(self, topics: frozenset[str]) -> None:
        """Remove topics from the metadata cache.

        The controller's own UpdateMetadata is lost when it dies, or when this broker's session had expired.
        """
        broker = self._broker

        def step() -> None:
            metadata_cache = broker.metadata_cache
            deleted = {
                TopicPartition(topic, partition): replace(known, leader=LEADER_DURING_DELETE)
                for topic in topics
                for partition, known in metadata_cache.topics.get(topic, {}).items()
            }
            if deleted:
                broker.metadata_cache = metadata_cache.updated(metadata_cache.brokers, deleted, {})
                broker.touch("metadata")
            for topic in {topic for topic, _ in deleted}:
                broker.touch(("topic", topic))

        broker.run(step)

    def delete_unreadable(self, topic: str) -> None:
        """Delete a topic that the controller cannot read: its local logs, then its znodes."""
        broker = self._broker
        if not broker.config.delete_topics:
            _log.warning("ignored the request to delete topic %s: delete.topic.enable is false", topic)
            broker.zk_client.drop_deletion_request(topic)
            return
        self._unreadable_deletions.add(topic)
        self._replicas.stop_and_delete(broker.logs.partitions_of(topic), lambda topic_partition: None)
        if self._replicas.has_pending_deletion(topic):
            return
        broker.zk_client.remove_topic(topic)
        self._unreadable_deletions.discard(topic)
        self.unreadable_changed(broker.metadata_cache.unreadable - {topic})
        _log.info("deleted topic %s", topic)
        self.post(events.TopicRemoved(topic))

    def config_changed(self, change: ConfigChange) -> None:
        """Apply an entity's configs: a topic's to its logs, this broker's, or quotas and credentials."""
        broker, name = self._broker, change.entity_name
        match change.entity_type:
            case paths.TOPICS:
                if broker.logs.partitions_of(name):
                    refresh_topic(broker, name)
            case paths.BROKERS:
                if name.strip() in {str(broker.broker_id), DEFAULT_ENTITY}:
                    refresh_broker(broker)
            case _:
                refresh_client(broker, change)

    def configs_missed(self) -> None:
        """Read all again after missed notifications: configs of clients, users and this broker, and ACLs."""
        refresh_entities(self._broker)
        if self._broker.acl_manager is not None:
            self._broker.acl_manager.read_all()

    def counters_missed(self) -> None:
        """Discard the block of producer ids, which another broker may have been given meanwhile."""
        observe_topics(self._broker.zk_client.store, self._broker.logs.topic_incarnations)
        self._broker.run(self._broker.producer_ids.discard)
        self._broker.raise_counters()

    def _retry_unreadable_deletions(self) -> None:
        for topic in sorted(self._unreadable_deletions):
            self.delete_unreadable(topic)

    def rebalance(self) -> None:
        """Elect preferred leaders where too many do not lead. For the housekeeper's thread."""
        percent = self._broker.config.control.imbalance_percent
        if self._broker.controller.active:
            self._broker.worker.submit(lambda: self.post(events.RebalanceDue(percent)))

    def retry(self) -> None:
        """Retry failed work. For the housekeeper's thread."""
        if not self._broker.zk_client.ticket_kept:
            self._broker.worker.submit(self._broker.zk_client.retry_ticket)
        self._broker.zk_client.see_unseen()
        self._replicas.retry()
        if self._unreadable_deletions:
            self._broker.worker.submit(self._retry_unreadable_deletions)
        if self._failed_deletions:
            self._broker.worker.submit(self._retry_failed_deletions)

    def _retry_failed_deletions(self) -> None:
        again, self._failed_deletions = self._failed_deletions, {}
        controller = self._broker.controller
        by_broker: dict[int, list[TopicPartition]] = {}
        for broker_id, topic_partition in again:
            assignment = controller.assignment_of(topic_partition.topic) or {}
            if broker_id in assignment.get(topic_partition.partition, ()):
                continue  # the broker is a replica again
            by_broker.setdefault(broker_id, []).append(topic_partition)
        for broker_id, partitions in by_broker.items():
            if controller.active and broker_id in controller.brokers:
                effect = events.SendStopReplica(broker_id, tuple(partitions), delete=True)
                self._perform(effect, controller.epoch, controller.brokers)

    def _perform(self, effect: events.Effect, epoch: int, brokers: _Brokers) -> None:
        """Carry out one effect, unless the controller epoch has changed since the decision.

        ``epoch`` and ``brokers`` are those at the time of the decision.
        """
        zk_client = self._broker.zk_client
        if epoch != self._broker.controller.epoch or not zk_client.is_controller:
            return
        match effect:
            case events.WriteLeaderships(leaderships, create):
                controller = self._broker.controller
                before = {} if create else {key: controller.leadership(key) for key in leaderships}
                written = zk_client.write_leaderships(leaderships, create=create)
                _log_shrunk_isrs(before, written)
                if create:
                    own = self._broker.broker_id
                    self._replicas.new |= {key for key, state in written.items() if own in state.replicas}
                deleted = frozenset(leaderships.keys() - written.keys())
                self.post(events.LeadershipsWritten(written, deleted))
            case events.SendLeaderAndIsr() | events.SendUpdateMetadata() | events.SendStopReplica():
                self._send(effect, epoch, brokers)
            case events.RemoveTopic(topic):
                zk_client.remove_topic(topic)
                _log.info("deleted topic %s", topic)
                self.post(events.TopicRemoved(topic))
            case events.DropDeletionRequest(topic, reason):
                _log.warning("ignored the request to delete topic %s: %s", topic, reason)
                zk_client.drop_deletion_request(topic)
            case events.WriteAssignments():
                zk_client.assign(effect, beside_0_10=self._broker.config.beside_0_10)
            case events.DropReassignments(reasons):
                for reason in dict.fromkeys(reasons.values()):
                    named = ", ".join(str(key) for key, own in reasons.items() if own == reason)
                    _log.info("reassignment of %s: %s", named, reason)
                zk_client.requests.drop_reassignments(reasons)
            case events.DropElections(reason):
                _log.info("removed the request for preferred leader elections: %s", reason)
                zk_client.requests.drop_elections()
            case events.LogLine(text, warning):
                _log.log(logging.WARNING if warning else logging.INFO, "%s", text)

    def _send(self, effect: _Sent, epoch: int, brokers: _Brokers) -> None:
        own = self._broker.broker_id
        if effect.broker_id == own:
            if self._replicas.take_epoch(epoch):
                self._apply_locally(effect, brokers)
            return
        on_response = partial(self._on_response, effect.broker_id, epoch)
        message: tuple[Api[Any, Any], int, Any]
        match effect:
            case events.SendLeaderAndIsr(_, leaderships, topic_ids):
                version = self._leader_and_isr_version(effect)
                addresses = self._addresses(brokers)
                body = requests.leader_and_isr(own, epoch, leaderships, addresses, topic_ids, version)
                message = LEADER_AND_ISR, version, body
                on_response = partial(self._on_leader_and_isr_response, effect, epoch)
            case events.SendUpdateMetadata(_, known, leaderships, topic_ids):
                version = self._update_metadata_version
                update = requests.update_metadata(own, epoch, known, leaderships, topic_ids, version)
                message = UPDATE_METADATA, version, update
            case events.SendStopReplica(_, partitions, delete):
                stop = requests.stop_replica(own, epoch, partitions, delete=delete)
                message = STOP_REPLICA, requests.STOP_REPLICA_VERSION, stop
                if delete:
                    on_response = partial(self._on_replica_deletion_response, effect.broker_id, epoch)
        api, version, request = message
        self._channels.send(effect.broker_id, QueuedRequest(api, version, request, on_response))

    def _leader_and_isr_version(self, effect: events.SendLeaderAndIsr) -> int:
        # The response has ids in place of names.
        have_ids = all(topic_partition.topic in effect.topic_ids for topic_partition in effect.leaderships)
        if have_ids and self._broker.config.gives_topic_ids:
            return requests.LEADER_AND_ISR_VERSION
        return requests.LEADER_AND_ISR_VERSION_WITHOUT_IDS

    @property
    def _update_metadata_version(self) -> int:
        config = self._broker.config
        if config.beside_0_10:
            return requests.UPDATE_METADATA_VERSION_IN_0_10_1
        if not config.gives_topic_ids:
            return requests.UPDATE_METADATA_VERSION_WITHOUT_IDS
        return requests.UPDATE_METADATA_VERSION

    def _addresses(self, brokers: _Brokers) -> dict[int, BrokerAddress]:
        return addresses_on(self._broker.config.inter_broker.listener, brokers)

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch that this broker knows."""
        return self._replicas.controller_epoch

    def _apply_locally(self, effect: _Sent, brokers: _Brokers) -> None:
        """Apply this broker's share of a decision of the local controller."""
        own = self._broker.broker_id
        match effect:
            case events.SendLeaderAndIsr(_, leaderships, topic_ids):
                leaders = self._addresses(brokers)
                codes = self._replicas.become_leader_or_follower(leaderships, leaders, topic_ids)
                stale = _partitions_with_newer_epoch(codes)
                if stale:
                    self.post(events.LeaderEpochsRefused(stale))
            case events.SendUpdateMetadata(_, known, leaderships, topic_ids):
                self._replicas.update_metadata(known, leaderships, topic_ids)
            case events.SendStopReplica(_, partitions, False):
                self._replicas.stop(partitions)
            case events.SendStopReplica(_, partitions, True):
                codes = self._replicas.stop_and_delete(
                    partitions, lambda topic_partition: self.post(events.ReplicaDeleted(own, topic_partition))
                )
                for topic_partition, code in codes.items():
                    if code is not ErrorCode.NONE:
                        self.post(events.ReplicaNotDeleted(own, topic_partition))

    # --- responses of other brokers, on their channels' threads ---------------------------------------------

    def _on_response(self, broker_id: int, epoch: int, response: Any) -> None:
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code).name
            _log.warning("broker %d rejected a request of this controller: %s", broker_id, code)
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._broker.worker.submit(partial(self._broker.zk_client.epoch_refused, epoch))

    def _on_leader_and_isr_response(
        self, sent: events.SendLeaderAndIsr, epoch: int, response: LeaderAndIsrResponse
    ) -> None:
        self._on_response(sent.broker_id, epoch, response)
        codes = requests.parse_leader_and_isr_response(response, sent.topic_ids)
        self._broker.worker.submit(partial(self._on_newer_epochs, epoch, _partitions_with_newer_epoch(codes)))

    def _on_newer_epochs(self, epoch: int, partitions: frozenset[TopicPartition]) -> None:
        if partitions and epoch == self._broker.controller.epoch:
            self.post(events.LeaderEpochsRefused(partitions))

    def _on_replica_deletion_response(
        self, broker_id: int, epoch: int, response: StopReplicaResponse
    ) -> None:
        self._on_response(broker_id, epoch, response)
        self._broker.worker.submit(lambda: self._on_replicas_deleted(broker_id, epoch, response))

    def _on_replicas_deleted(self, broker_id: int, epoch: int, response: StopReplicaResponse) -> None:
        if epoch != self._broker.controller.epoch:
            return  # of an earlier epoch: the replica may exist again
        for partition in response.partitions:
            topic_partition = TopicPartition(partition.topic, partition.index)
            if partition.error_code == ErrorCode.NONE:
                self.post(events.ReplicaDeleted(broker_id, topic_partition))
            else:
                self._failed_deletions[broker_id, topic_partition] = None
                self.post(events.ReplicaNotDeleted(broker_id, topic_partition))


def _log_changed_brokers(before: _Brokers, after: _Brokers, led: Mapping[int, int]) -> None:
    """Log the brokers that are gone or back. led: the replicated partitions that each led before."""
    for broker_id in sorted(before.keys() - after.keys()):
        partitions = counted(led.get(broker_id, 0), "replicated partition")
        _log.info("broker %d is gone: it led %s, for which in-sync replicas take over", broker_id, partitions)
    for broker_id in sorted(after.keys() - before.keys()):
        _log.info("broker %d has joined", broker_id)


def _log_shrunk_isrs(
    before: Mapping[TopicPartition, LeaderAndIsr | None], after: Mapping[TopicPartition, LeaderAndIsr]
) -> None:
    """Log the partitions whose ISR has shrunk, one line for those without the same replicas.

    Those of topics of the brokers' own come last.
    """
    shrunk: dict[tuple[int, ...], list[TopicPartition]] = {}
    for topic_partition in sorted(after, key=lambda key: (key.topic in INTERNAL_TOPICS, key)):
        held, known = after[topic_partition], before.get(topic_partition)
        gone = () if known is None else tuple(sorted(set(known.isr) - set(held.isr)))
        if gone:
            shrunk.setdefault(gone, []).append(topic_partition)
    for gone, partitions in sorted(shrunk.items()):
        replicas = f"{'replica' if len(gone) == 1 else 'replicas'} {', '.join(map(str, gone))}"
        isrs = counted(len(partitions), "ISR")
        _log.info("%s shrank by %s: %s", isrs, replicas, first_of(partitions, _NAMED_MAX))


def _partitions_with_newer_epoch(codes: Mapping[TopicPartition, ErrorCode]) -> frozenset[TopicPartition]:
    """Return the partitions for which the broker has a newer leader epoch than the request."""
    return frozenset(key for key, code in codes.items() if code is ErrorCode.STALE_CONTROLLER_EPOCH)


def _local_broker_last(effects: Iterable[events.Effect], own: int) -> Iterator[events.Effect]:
    """Yield ``effects`` with the local broker last in each run of requests to brokers."""
    for _, run in itertools.groupby(effects, lambda effect: isinstance(effect, _Sent)):
        yield from sorted(run, key=lambda effect: isinstance(effect, _Sent) and effect.broker_id == own)
