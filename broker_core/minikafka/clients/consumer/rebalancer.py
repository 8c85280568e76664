"""The rebalance of one consumer, and its triggers (``ZKRebalancerListener``, ``ZKSessionExpireListener`` and
``ZKTopicPartitionChangeListener`` of text 004).

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ConsumerRebalanceFailed,
    CoordinationLost,
    NetworkError,
    NoNode,
    SessionExpired,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import (
    AssignmentContext,
    ConsumerThreadId,
    RebalancePlan,
    ThreadIds,
    create_assignor,
    rebalance_plan,
)
from minikafka.clients.consumer.chunks import PartitionTopicInfo
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.listeners import ConsumerRebalanceListener
from minikafka.clients.consumer.offsets import ConsumerOffsets
from minikafka.clients.consumer.registration import GroupRegistration
from minikafka.clients.consumer.runtime import Steps, Wait
from minikafka.clients.consumer.topic_registry import TopicRegistry
from minikafka.clients.metrics.consumer import CoordinatorMetrics
from minikafka.registry import paths
from minikafka.registry.store import SessionState, Store, Watch
from minikafka.registry.znodes import children

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


@dataclass(frozen=True, slots=True)
class RebalanceContext:
    """The parts of one consumer that its rebalance works with."""

    config: ConsumerConfig
    clock: Clock
    store: Store
    registration: GroupRegistration
    registry: TopicRegistry
    fetcher: Fetcher
    offsets: ConsumerOffsets
    commit: Callable[[], Steps[object]]
    """Commits all consumed messages, with retries."""
    stopping: threading.Event
    """Set when the consumer shuts down."""


class RebalanceResult(Enum):
    """The result of one attempt."""

    DONE = "done"
    FAILED = "failed"
    """Another consumer has not released a partition: counts against ``rebalance.max.retries``."""
    SUPERSEDED = "superseded"
    """The group, the session or the consumer has changed during the attempt."""


class ZkTopicPartitionChangeListener:
    """Triggers a rebalance when the partitions of a topic change. One instance for all topics of a consumer.

    Called on the store's own thread.
    """

    def __init__(self, rebalance_event_triggered: Callable[[], None]) -> None:
        self._triggered = rebalance_event_triggered
        self._seen: set[str] = set()

    def handle_data(self, data_path: str, data: bytes | None, stat: object = None) -> None:
        """Handle a report of a persistent watch: the znode's data, or None if the znode does not exist.

        A rebalance gives up the partitions of a deleted topic. (Kafka 0.10.1 only warns, and keeps their
        owners.)
        """
        if data is not None:
            self._seen.add(data_path)
            logger.debug("%s changed to %r", data_path, data)
        elif data_path in self._seen:
            self._seen.discard(data_path)
            logger.warning("topic %s was deleted while this consumer reads it", data_path.rpartition("/")[2])
        else:
            return
        self._triggered()


class ZkSessionExpireListener:
    """Handles the end of a consumer's session with ZooKeeper."""

    def __init__(self, registration: GroupRegistration, load_balancer_listener: ZkRebalancerListener) -> None:
        self._registration = registration
        self._load_balancer_listener = load_balancer_listener

    def handle_state_changed(self, state: SessionState) -> None:
        """Handle a state of the session, on the store's own thread.

        A reconnection within the same session changes nothing. After an expiry no message is delivered any
        more, and a rebalance is triggered, which starts with ``handle_new_session``.
        """
        if state is SessionState.EXPIRED:
            logger.warning("%s: the session with ZooKeeper has expired", self._registration.consumer_id)
            self._registration.lease.revoke()
        if state is not SessionState.SUSPENDED:
            self._load_balancer_listener.rebalance_event_triggered()

    def handle_new_session(self) -> Steps[None]:
        """Forget the partitions of the old session, and register again; the rebalance follows."""
        self._registration.lease.revoke()
        self._load_balancer_listener.reset_state()
        yield None
        yield from self._registration.register()


class ZkRebalancerListener:
    """Rebalances one consumer: one rebalance at a time, in steps on one thread."""

    def __init__(self, context: RebalanceContext) -> None:
        self.consumer_id = context.registration.consumer_id
        self.consumer_rebalance_listener: ConsumerRebalanceListener | None = None
        """The application's listener."""
        self.session_expiration_listener = ZkSessionExpireListener(context.registration, self)
        self.topic_partition_change_listener = ZkTopicPartitionChangeListener(self.rebalance_event_triggered)
        self.metrics = CoordinatorMetrics(context.clock)
        self._context = context
        self._assignor = create_assignor(context.config.partition_assignment_strategy)
        self._triggered = threading.Event()
        self._topic_watches: dict[str, Watch] = {}
        self._fetched: Mapping[TopicPartition, ConsumerThreadId] | None = None
        """The partitions that are being fetched; None while fetchers are stopped."""
        self._pause = threading.Event()
        """Never set; used to wait."""
        self._held_by_others: Mapping[TopicPartition, str] = {}
        """Partitions to claim that other consumers owned in the last attempt, with their owners."""
        self._listener_thread: int | None = None
        """The id of the thread that is calling the rebalance listener."""

    # --- triggers -------------------------------------------------------------------------------------------

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

    def watch_group(self) -> None:
        """Trigger a rebalance when the session, the group's consumers or the brokers change."""
        store = self._context.store
        store.on_session(self.session_expiration_listener.handle_state_changed)
        for path in (paths.consumer_ids_path(self._context.registration.group), paths.BROKER_IDS):
            store.watch_children(path, partial(self.handle_child_change, path))

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

    # --- the rebalance --------------------------------------------------------------------------------------

    def synced_rebalance(self) -> Steps[None]:
        """Make attempts until one of them succeeds.

        Raises ConsumerRebalanceFailed after ``rebalance.max.retries`` failed attempts. Attempts that lost the
        connection to ZooKeeper, or were superseded by another change, do not count.
        """
        config = self._context.config
        failures, reason = 0, ""
        self.metrics.begin_rebalance()
        while not self._context.stopping.is_set():
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
                self.metrics.end_rebalance()
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
        parts, registration = self._context, self._context.registration
        if registration.session_id != parts.store.session_id:
            yield from self.session_expiration_listener.handle_new_session()
        registration.renew()
        session_id = registration.session_id
        try:
            context = AssignmentContext(
                registration.group, self.consumer_id, parts.config.exclude_internal_topics, parts.store
            )
        except NoNode:
            registration.forget()  # the znode was deleted
            return RebalanceResult.SUPERSEDED
        self.reinitialize_consumer(context.my_topic_thread_ids)
        yield None
        if not children(parts.store, paths.BROKER_IDS):
            logger.warning("%s: no brokers to read from: %s", self.consumer_id, parts.config.no_brokers_hint)
            return RebalanceResult.DONE
        owners = registration.session.owners(context.my_partitions | parts.registry.partitions.keys())
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
        infos = dict(parts.registry.partitions)
        for tp, thread in plan.my_assignment.items():
            if tp not in infos:
                self.add_partition_topic_info(infos, tp, offsets.get(tp, -1), thread)
        yield None
        self.update_fetcher(infos, plan)
        return RebalanceResult.DONE

    def reinitialize_consumer(self, threads: ThreadIds) -> None:
        """Set up the queues and the watches of the topics of ``threads``, and drop those of other topics."""
        self._context.registry.assign_queues(threads)
        for topic in threads:
            if topic not in self._topic_watches:
                path = paths.topic_path(topic)
                handle = partial(self.topic_partition_change_listener.handle_data, path)
                self._topic_watches[topic] = self._context.store.watch_data(path, handle)
        for topic in self._topic_watches.keys() - threads.keys():
            self._topic_watches.pop(topic).cancel()

    # --- closing --------------------------------------------------------------------------------------------

    def close_fetchers(self, plan: RebalancePlan) -> Steps[bool]:
        """Stop reading, so that no message of a partition to release is delivered.

        Return False as ``close_fetchers_for_queues``.
        """
        if not (yield from self.close_fetchers_for_queues(plan)):
            return False
        yield None
        registry = self._context.registry
        if self.consumer_rebalance_listener is not None:
            # The listener may commit: this consumer still owns what it has read.
            before: dict[str, set[int]] = {}
            for topic, partition in registry.partitions:
                before.setdefault(topic, set()).add(partition)
            with self._calling_listener():
                self.consumer_rebalance_listener.before_releasing_partitions(before)
        # Offsets of a partition that another consumer owns must not be committed.
        registry.replace(self._kept_partitions(plan))
        return True

    def close_fetchers_for_queues(self, plan: RebalancePlan) -> Steps[bool]:
        """Stop the fetchers, clear all queues and iterators, and commit consumed messages (auto commit only).

        If the application is processing a message of a partition to release, wait up to
        ``rebalance.backoff.ms`` until it requests the next message: then the message counts as consumed. The
        application gets nothing until the fetchers start again. Return False if the consumer shuts down
        meanwhile: then the shutdown marks messages as consumed, commits and releases.
        """
        parts = self._context
        self._fetched = None
        parts.fetcher.stop_connections()
        parts.registry.clear_fetcher_queues()
        yield None
        kept = frozenset(self._kept_partitions(plan))
        yield Wait(parts.config.rebalance_backoff_ms, partial(self._wait_until_processed, kept))
        if parts.stopping.is_set():
            return False
        for stream in parts.registry.streams:
            stream.iterator().forget_processing(kept)
        if parts.config.auto_commit_enable:
            try:
                yield from parts.commit()
            except (NetworkError, BrokerError) as error:
                logger.warning(
                    "%s: commit at rebalance failed, messages may be delivered again: %s",
                    self.consumer_id,
                    error,
                )
        return True

    def _kept_partitions(self, plan: RebalancePlan) -> list[PartitionTopicInfo]:
        """Return the partitions that the same stream continues to read, from their present positions."""
        registry = self._context.registry
        stays = {
            tp: registry.topic_thread_id_and_queues[tp.topic, thread]
            for tp, thread in plan.my_assignment.items()
            if tp not in plan.claim
        }
        return [
            info
            for tp, info in registry.partitions.items()
            if info.queue is stays.get(tp) and info.consumed_offset >= 0
        ]

    def _wait_until_processed(self, kept: frozenset[PartitionTopicInfo], timeout_ms: int) -> bool:
        """Wait until the application is processing no message, or one of a partition in ``kept``."""
        parts = self._context
        end_ms = parts.clock.monotonic_ms() + timeout_ms
        while not parts.registry.processed(kept):
            left_ms = end_ms - parts.clock.monotonic_ms()
            if left_ms <= 0 or parts.stopping.is_set():
                return False
            self._pause.wait(min(_PROCESSED_POLL_MS, left_ms) / 1000)
        return True

    def reset_state(self) -> None:
        """Forget all ownership, which ended with its session: none of its offsets is committed any more."""
        parts = self._context
        self._fetched = None
        parts.fetcher.stop_connections()
        with parts.registry.lock:
            parts.registry.replace(())
            parts.offsets.zookeeper.forget()
        parts.registry.clear_fetcher_queues()

    # --- owners ---------------------------------------------------------------------------------------------

    def release_partition_ownership(self, partitions: tuple[TopicPartition, ...]) -> Steps[None]:
        """Release partitions, so that other consumers can own them."""
        for tp in partitions:
            self._context.registration.session.delete_partition_ownership_from_zk(tp)
            yield None

    def reflect_partition_ownership_decision(self, plan: RebalancePlan) -> Steps[bool]:
        """Claim the new partitions of the plan. Return whether all of them are owned."""
        held: dict[TopicPartition, str] = {}
        for tp in plan.claim:
            owner = self._context.registration.session.claim(tp, str(plan.my_assignment[tp]))
            if owner is not None:
                logger.info("%s: waiting for %s to release %s", self.consumer_id, owner, tp)
                held[tp] = owner
            yield None
        self._held_by_others = held
        return not held

    # --- starting fetchers ----------------------------------------------------------------------------------

    def _fetch_offsets(self, plan: RebalancePlan) -> Steps[dict[TopicPartition, int] | None]:
        """Fetch the committed offsets of the new partitions, and retry until they are known. Return None if
        another rebalance is triggered or the consumer shuts down.
        """
        parts = self._context
        wanted = sorted(plan.my_assignment.keys() - parts.registry.partitions.keys())
        while True:
            try:
                return parts.offsets.fetch_offsets(wanted)
            except AuthenticationFailed:
                raise  # this attempt of the rebalance fails, and at last the streams
            except (NetworkError, BrokerError) as error:
                logger.info("%s: failed to fetch committed offsets, retrying: %s", self.consumer_id, error)
                yield Wait(parts.config.offsets_channel_backoff_ms)
                if self.is_triggered or parts.stopping.is_set():
                    return None

    def add_partition_topic_info(
        self,
        infos: dict[TopicPartition, PartitionTopicInfo],
        tp: TopicPartition,
        offset: int,
        thread: ConsumerThreadId,
    ) -> None:
        """Add ``tp`` to ``infos``, to be read from ``offset`` by ``thread``. Offset -1 means the position
        that ``auto.offset.reset`` selects.
        """
        parts = self._context
        queue = parts.registry.topic_thread_id_and_queues[tp.topic, thread]
        size, client_id = parts.config.fetch_message_max_bytes, parts.config.client_id
        infos[tp] = PartitionTopicInfo(*tp, queue, offset, offset, size, client_id)

    def update_fetcher(self, infos: Mapping[TopicPartition, PartitionTopicInfo], plan: RebalancePlan) -> None:
        """Start to read the partitions of ``infos``."""
        parts = self._context
        parts.registry.replace(infos.values())
        if self.consumer_rebalance_listener is not None:
            assignment: dict[str, dict[int, ConsumerThreadId]] = {}
            for share in plan.assignment.values():
                for tp, thread in share.items():
                    assignment.setdefault(tp.topic, {})[tp.partition] = thread
            with self._calling_listener():
                self.consumer_rebalance_listener.before_starting_fetchers(self.consumer_id, assignment)
            if parts.stopping.is_set():
                return
        logger.info("%s: reading %s", self.consumer_id, ", ".join(map(str, plan.my_assignment)) or "nothing")
        for info in infos.values():
            # A message in process is not fetched again: it counts as consumed at the next request.
            info.fetched_offset = max(
                stream.iterator().next_fetch_offset(info) for stream in parts.registry.streams
            )
        parts.fetcher.start_connections(list(infos.values()))
        self._fetched = plan.my_assignment
