"""The rebalance of one consumer (``ZKRebalancerListener`` of text 004).

An attempt has these steps, in this order, so that a partition never has two readers, and no consumer delivers
messages that another has read:

    1. read      read the group's consumers, the partitions, and their owners; end here if this consumer owns
                 and reads exactly its assignment
    2. close     stop the fetchers, clear the queues and the chunks in the iterators; for partitions to
                 release, wait until the application requests its next message; commit (auto commit only)
    3. release   delete the owners' znodes of the partitions to release
    4. claim     create the owners' znodes of the new partitions; if another consumer still owns one, the
                 attempt has failed, and the next attempt keeps the partitions claimed so far
    5. start     fetch the committed offsets (never before the partition is owned), start the fetchers

An attempt relies on the znodes, not on the consumer's own state: if a response is lost, the next attempt sees
the znode that the request has created. Kafka 0.10.1 releases all its partitions at every attempt, and fetches
offsets before it owns the partitions.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Protocol

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    BrokerError,
    ConsumerRebalanceFailed,
    CoordinationLost,
    NetworkError,
    NodeExists,
    NoNode,
    SessionExpired,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import (
    AssignmentContext,
    ConsumerThreadId,
    PartitionOwner,
    RebalancePlan,
    ThreadIds,
    create_assignor,
    rebalance_plan,
)
from minikafka.clients.consumer.chunks import ChunkQueue, PartitionTopicInfo
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.listeners import ConsumerRebalanceListener
from minikafka.clients.consumer.offsets import ConsumerOffsets
from minikafka.clients.consumer.registration import GroupRegistration
from minikafka.clients.consumer.runtime import Steps, Wait
from minikafka.clients.consumer.streams import KafkaStream
from minikafka.registry import paths
from minikafka.registry.consumers import owned_in_session
from minikafka.registry.store import Store

logger = logging.getLogger("minikafka.clients.consumer")

_PROCESSED_POLL_MS = 5
"""Interval at which a wait checks for the application's next request, and for a shutdown."""


class Fetcher(Protocol):
    """Fetches partitions into the queues: ConsumerFetcherManager, or a model of it."""

    def start_connections(self, infos: list[PartitionTopicInfo]) -> None:
        """Fetch these partitions, each from its ``fetched_offset``."""

    def stop_connections(self) -> None:
        """Stop all fetches; nothing is put into a queue after this has returned."""

    def shutdown(self) -> None:
        """Stop for good."""


class RebalancedConsumer(Protocol):
    """The parts of a consumer that its rebalance uses: a ``ZookeeperConsumerConnector``."""

    config: ConsumerConfig
    consumer_id_string: str
    store: Store
    clock: Clock
    fetcher: Fetcher
    offsets: ConsumerOffsets
    commit_lock: threading.RLock
    topic_registry: dict[str, dict[int, PartitionTopicInfo]]
    topic_thread_id_and_queues: dict[tuple[str, ConsumerThreadId], ChunkQueue]
    consumer_rebalance_listener: ConsumerRebalanceListener | None
    all_streams: list[KafkaStream[Any, Any]]
    registration: GroupRegistration

    @property
    def is_shutting_down(self) -> bool:
        """True if the consumer is shutting down."""

    @property
    def registered_session(self) -> int:
        """The id of the session in which the consumer is registered."""

    def handle_new_session(self) -> Steps[None]:
        """Forget the partitions of an earlier session, and register in the present one."""

    def reinitialize_consumer(self, threads: ThreadIds) -> None:
        """Set up queues and watches for the topics that the consumer reads now."""

    def commit_steps(self, *, with_retries: bool) -> Steps[frozenset[TopicPartition]]:
        """Commit all consumed messages."""


class RebalanceResult(Enum):
    """The result of one attempt."""

    DONE = "done"
    FAILED = "failed"
    """Another consumer has not released a partition: counts against ``rebalance.max.retries``."""
    SUPERSEDED = "superseded"
    """The group, the session or the consumer has changed during the attempt."""


class ZkRebalancerListener:
    """Rebalances the consumer ``connector``: one rebalance at a time, in steps on one thread.

    ``streams`` maps topics to their streams.
    """

    def __init__(
        self,
        connector: RebalancedConsumer,
        group: str,
        consumer_id: str,
        streams: dict[str, list[KafkaStream[Any, Any]]],
    ) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.kafka_message_and_metadata_streams = streams
        self._connector = connector
        self._assignor = create_assignor(connector.config.partition_assignment_strategy)
        self._triggered = threading.Event()
        self._fetched: Mapping[TopicPartition, ConsumerThreadId] | None = None
        """The partitions that are being fetched; None while fetchers are stopped."""
        self._pause = threading.Event()
        """Never set; used to wait."""
        self._held_by_others: Mapping[TopicPartition, str] = {}
        """Partitions to claim that other consumers owned in the last attempt, with their owners."""
        self._owned_counts: Counter[str] = Counter()
        self._listener_thread: int | None = None
        """The id of the thread that is calling the rebalance listener."""

    # --- triggers
    # -------------------------------------------------------------------------------------------

    def handle_child_change(self, parent_path: str, names: list[str] | None) -> None:
        """Handle a change of the group's consumers, or of the brokers."""
        logger.debug("%s: children of %s changed to %s", self.consumer_id, parent_path, names)
        self.rebalance_event_triggered()

    def rebalance_event_triggered(self) -> None:
        """Trigger a rebalance on the thread that runs them."""
        self._triggered.set()

    @property
    def is_triggered(self) -> bool:
        """True if a rebalance is due."""
        return self._triggered.is_set()

    def wait_until_triggered(self) -> None:
        """Wait until a rebalance is triggered, or the consumer shuts down."""
        self._triggered.wait()

    @property
    def owned_partitions_count(self) -> dict[str, int]:
        """The number of owned partitions by topic (the gauges ``OwnedPartitionsCount``)."""
        return dict(self._owned_counts)

    def clear_owned_partitions(self) -> None:
        """Forget the owned partitions, whose ownership ended with the session."""
        self._owned_counts.clear()

    @property
    def is_called_by_rebalance_listener(self) -> bool:
        """True if the caller is the rebalance listener, which does not know whether delivered messages are
        still in process.
        """
        return self._listener_thread == threading.get_ident()

    @contextlib.contextmanager
    def _calling_listener(self) -> Iterator[None]:
        self._listener_thread = threading.get_ident()
        try:
            yield
        finally:
            self._listener_thread = None

    # --- the rebalance
    # -------------------------------------------------------------------------------------------

    def synced_rebalance(self) -> Steps[None]:
        """Make attempts until one of them succeeds.

        Raises ConsumerRebalanceFailed after ``rebalance.max.retries`` failed attempts. Attempts that lost the
        connection to ZooKeeper, or were superseded by another change, do not count.
        """
        connector, config = self._connector, self._connector.config
        failures, reason = 0, ""
        while not connector.is_shutting_down:
            self._triggered.clear()
            outcome = RebalanceResult.SUPERSEDED
            try:
                outcome = yield from self.rebalance()
                if outcome is RebalanceResult.FAILED:
                    held = list(self._held_by_others.items())[:3]
                    reason = ", ".join(f"{tp} is owned by {owner}" for tp, owner in held)
            except (CoordinationLost, SessionExpired) as error:
                logger.info("%s: rebalance interrupted, retrying: %s", self.consumer_id, error)
            except Exception as error:  # raised by a listener or the assignor, or a znode was deleted
                logger.info("%s: rebalance attempt failed: %s", self.consumer_id, error, exc_info=True)
                outcome, reason = RebalanceResult.FAILED, f"{type(error).__name__}: {error}"
            if outcome is RebalanceResult.DONE:
                return
            if outcome is RebalanceResult.FAILED and not self.is_triggered:
                failures += 1
            if failures >= max(1, config.rebalance_max_retries):
                raise ConsumerRebalanceFailed(
                    f"{self.consumer_id} failed to claim its partitions in {failures} attempts "
                    f"(rebalance.max.retries), {config.rebalance_backoff_ms} ms apart "
                    f"(rebalance.backoff.ms): {reason}"
                )
            yield Wait(config.rebalance_backoff_ms)

    def rebalance(self) -> Steps[RebalanceResult]:
        """Make one attempt, and return its result."""
        connector = self._connector
        if connector.registered_session != connector.store.session_id:
            yield from connector.handle_new_session()
        connector.registration.renew()
        session_id = connector.registered_session
        try:
            context = AssignmentContext(
                self.group, self.consumer_id, connector.config.exclude_internal_topics, connector.store
            )
        except NoNode:
            connector.registration.forget()  # the znode was deleted
            return RebalanceResult.SUPERSEDED
        connector.reinitialize_consumer(context.my_topic_thread_ids)
        yield None
        if not _children(connector.store, paths.BROKER_IDS):
            no_brokers_hint = connector.config.no_brokers_hint
            logger.warning("%s: no brokers to read from: %s", self.consumer_id, no_brokers_hint)
            return RebalanceResult.DONE
        owners = self._owners(context)
        yield None
        plan = rebalance_plan(context, self._assignor, owners, session_id)
        if plan.is_unchanged and plan.my_assignment == self._fetched:
            return RebalanceResult.DONE
        if not (yield from self.close_fetchers(plan)):
            return RebalanceResult.SUPERSEDED
        yield from self.release_partition_ownership(plan.release)
        if not (yield from self.reflect_partition_ownership_decision(plan)):
            return RebalanceResult.FAILED
        offsets = yield from self._fetch_offsets(plan)
        if offsets is None:
            return RebalanceResult.SUPERSEDED
        kept = self._partitions_read
        registry = _by_topic(kept.values())
        for tp, thread in plan.my_assignment.items():
            if tp not in kept:
                self.add_partition_topic_info(registry, tp, offsets.get(tp, -1), thread)
        yield None
        self.update_fetcher(registry, plan)
        return RebalanceResult.DONE

    def _owners(self, context: AssignmentContext) -> dict[TopicPartition, PartitionOwner]:
        """Return the owners of all partitions of this consumer's topics, and of those that it reads."""
        partitions = {
            TopicPartition(topic, number)
            for topic, numbers in context.partitions_for_topic.items()
            for number in numbers
        } | self._partitions_read.keys()
        places = {paths.consumer_owner_path(self.group, *tp): tp for tp in sorted(partitions)}
        return {
            places[path]: PartitionOwner(data.decode("utf-8", "replace"), stat.ephemeral_owner)
            for path, (data, stat) in self._connector.store.read_all(places).items()
        }

    @property
    def _partitions_read(self) -> dict[TopicPartition, PartitionTopicInfo]:
        """The partitions that are read; during a rebalance, those that are kept."""
        registry = self._connector.topic_registry
        return {info.topic_partition: info for infos in registry.values() for info in infos.values()}

    # --- closing
    # -------------------------------------------------------------------------------------------

    def close_fetchers(self, plan: RebalancePlan) -> Steps[bool]:
        """Stop reading, so that no message of a partition to release is delivered.

        Return False as ``close_fetchers_for_queues``.
        """
        connector = self._connector
        if not (yield from self.close_fetchers_for_queues(plan)):
            return False
        yield None
        if connector.consumer_rebalance_listener is not None:
            # The listener may commit: this consumer still owns what it has read.
            before = {topic: set(infos) for topic, infos in connector.topic_registry.items()}
            with self._calling_listener():
                connector.consumer_rebalance_listener.before_releasing_partitions(before)
        with connector.commit_lock:
            # Offsets of a partition that another consumer owns must not be committed.
            connector.topic_registry = _by_topic(self._kept_partitions(plan))
        return True

    def close_fetchers_for_queues(self, plan: RebalancePlan) -> Steps[bool]:
        """Stop the fetchers, clear all queues and iterators, and commit consumed messages (auto commit only).

        If the application is processing a message of a partition to release, wait up to
        ``rebalance.backoff.ms`` until it requests the next message: then the message counts as consumed. The
        application gets nothing until the fetchers start again. Return False if the consumer shuts down
        meanwhile: then the shutdown marks messages as consumed, commits and releases.
        """
        connector = self._connector
        self._fetched = None
        connector.fetcher.stop_connections()
        self.clear_fetcher_queues()
        yield None
        kept = frozenset(self._kept_partitions(plan))
        yield Wait(connector.config.rebalance_backoff_ms, partial(self._wait_until_processed, kept))
        if connector.is_shutting_down:
            return False
        for stream in connector.all_streams:
            stream.iterator().forget_processing(kept)
        if connector.config.auto_commit_enable:
            try:
                yield from connector.commit_steps(with_retries=True)
            except (NetworkError, BrokerError) as error:
                logger.warning(
                    "%s: commit at rebalance failed, messages may be delivered again: %s",
                    self.consumer_id,
                    error,
                )
        return True

    def _kept_partitions(self, plan: RebalancePlan) -> list[PartitionTopicInfo]:
        """Return the partitions that the same stream continues to read, from their present positions."""
        queues = self._connector.topic_thread_id_and_queues
        stays = {
            tp: queues[tp.topic, thread] for tp, thread in plan.my_assignment.items() if tp not in plan.claim
        }
        return [
            info
            for tp, info in self._partitions_read.items()
            if info.queue is stays.get(tp) and info.consumed_offset >= 0
        ]

    def clear_fetcher_queues(self) -> None:
        """Clear the queues, and the chunks that iterators are reading."""
        for queue in set(self._connector.topic_thread_id_and_queues.values()):
            queue.clear()
        for stream in self._connector.all_streams:
            stream.clear()

    def _wait_until_processed(self, kept: frozenset[PartitionTopicInfo], timeout_ms: int) -> bool:
        """Wait until the application is processing no message, or one of a partition in ``kept``."""
        connector = self._connector
        end_ms = connector.clock.monotonic_ms() + timeout_ms
        iterators = [stream.iterator() for stream in connector.all_streams]
        while not {iterator.processing_partition for iterator in iterators} <= {None, *kept}:
            left_ms = end_ms - connector.clock.monotonic_ms()
            if left_ms <= 0 or connector.is_shutting_down:
                return False
            self._pause.wait(min(_PROCESSED_POLL_MS, left_ms) / 1000)
        return True

    def reset_state(self) -> None:
        """Forget all ownership, which ended with its session: none of its offsets is committed any more."""
        connector = self._connector
        self._fetched = None
        self.clear_owned_partitions()
        connector.fetcher.stop_connections()
        with connector.commit_lock:
            connector.topic_registry = {}
            connector.offsets.zookeeper.forget()
        self.clear_fetcher_queues()

    # --- owners
    # -------------------------------------------------------------------------------------------

    def release_partition_ownership(self, partitions: tuple[TopicPartition, ...]) -> Steps[None]:
        """Release partitions, so that other consumers can own them."""
        for tp in partitions:
            self.delete_partition_ownership_from_zk(tp)
            self._owned_counts -= Counter([tp.topic])  # drops counts of 0
            yield None

    def delete_partition_ownership_from_zk(self, tp: TopicPartition) -> None:
        """Delete the owner's znode, if it belongs to this session.

        Raises SessionExpired if the session has ended meanwhile: then the znode may be another consumer's,
        and stays.
        """
        if self.still_owned([tp]):
            self._delete_owner_znode(paths.consumer_owner_path(self.group, *tp))

    def _delete_owner_znode(self, path: str) -> None:
        store, registration = self._connector.store, self._connector.registration.path
        try:
            # The registration ends with the session, and only this thread creates it again.
            store.delete_if_exists(path, registration)
        except NoNode:
            if store.exists(registration) is None:
                raise SessionExpired(
                    f"{registration} no longer exists: another consumer may own {path}"
                ) from None

    def still_owned(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer owns, according to ZooKeeper."""
        connector = self._connector
        return owned_in_session(connector.store, self.group, partitions, connector.registered_session)

    def reflect_partition_ownership_decision(self, plan: RebalancePlan) -> Steps[bool]:
        """Claim the new partitions of the plan. Return whether all of them are owned."""
        held: dict[TopicPartition, str] = {}
        for tp in plan.claim:
            owner = self._claim(tp, plan.my_assignment[tp])
            if owner is not None:
                logger.info("%s: waiting for %s to release %s", self.consumer_id, owner, tp)
                held[tp] = owner
            yield None
        self._held_by_others = held
        return not held

    def _claim(self, tp: TopicPartition, thread: ConsumerThreadId) -> str | None:
        """Claim one partition for ``thread``. Return None, or the owner if another consumer owns it."""
        store, session_id = self._connector.store, self._connector.registered_session
        path, data = paths.consumer_owner_path(self.group, *tp), str(thread).encode("utf-8")
        while True:
            try:
                store.create(path, data, ephemeral=True, make_parents=True)
            except NodeExists:
                try:
                    present, stat = store.read(path)
                except NoNode:
                    continue  # the owner has just released it
                if stat.ephemeral_owner != session_id:
                    return present.decode("utf-8", "replace")
                if present != data:
                    self._delete_owner_znode(path)
                    continue
            if store.session_id != session_id:
                raise SessionExpired(f"{self.consumer_id}: the session ended during the claim of {tp}")
            return None

    # --- starting fetchers
    # -------------------------------------------------------------------------------------------

    def _fetch_offsets(self, plan: RebalancePlan) -> Steps[dict[TopicPartition, int] | None]:
        """Fetch the committed offsets of the new partitions, and retry until they are known. Return None if
        another rebalance is triggered or the consumer shuts down.
        """
        connector = self._connector
        wanted = sorted(plan.my_assignment.keys() - self._partitions_read.keys())
        while True:
            try:
                return connector.offsets.fetch(wanted)
            except (NetworkError, BrokerError) as error:
                logger.info("%s: failed to fetch committed offsets, retrying: %s", self.consumer_id, error)
                yield Wait(connector.config.offsets_channel_backoff_ms)
                if self.is_triggered or connector.is_shutting_down:
                    return None

    def add_partition_topic_info(
        self,
        registry: dict[str, dict[int, PartitionTopicInfo]],
        tp: TopicPartition,
        offset: int,
        thread: ConsumerThreadId,
    ) -> None:
        """Add ``tp`` to ``registry``, to be read from ``offset`` by ``thread``. Offset -1 means the
        position that ``auto.offset.reset`` selects.
        """
        registry.setdefault(tp.topic, {})[tp.partition] = PartitionTopicInfo(
            tp.topic,
            tp.partition,
            self._connector.topic_thread_id_and_queues[tp.topic, thread],
            offset,
            offset,
            self._connector.config.fetch_message_max_bytes,
            self._connector.config.client_id,
        )

    def update_fetcher(self, registry: dict[str, dict[int, PartitionTopicInfo]], plan: RebalancePlan) -> None:
        """Start to read the partitions of ``registry``."""
        connector = self._connector
        self._owned_counts = Counter(tp.topic for tp in plan.my_assignment)
        with connector.commit_lock:
            connector.topic_registry = registry
        if connector.consumer_rebalance_listener is not None:
            assignment: dict[str, dict[int, ConsumerThreadId]] = {}
            for share in plan.assignment.values():
                for tp, thread in share.items():
                    assignment.setdefault(tp.topic, {})[tp.partition] = thread
            with self._calling_listener():
                connector.consumer_rebalance_listener.before_starting_fetchers(self.consumer_id, assignment)
            if connector.is_shutting_down:
                return
        logger.info("%s: reading %s", self.consumer_id, ", ".join(map(str, plan.my_assignment)) or "nothing")
        infos = list(self._partitions_read.values())
        for info in infos:
            # A message in process is not fetched again: it counts as consumed at the next request.
            info.fetched_offset = max(
                stream.iterator().next_fetch_offset(info) for stream in connector.all_streams
            )
        connector.fetcher.start_connections(infos)
        self._fetched = plan.my_assignment


def _by_topic(infos: Iterable[PartitionTopicInfo]) -> dict[str, dict[int, PartitionTopicInfo]]:
    found: dict[str, dict[int, PartitionTopicInfo]] = {}
    for info in infos:
        found.setdefault(info.topic, {})[info.partition] = info
    return found


def _children(store: Store, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNode:
        return []
