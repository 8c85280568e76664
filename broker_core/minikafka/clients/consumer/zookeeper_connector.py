"""A consumer of a group that shares its partitions through ZooKeeper (``ZookeeperConsumerConnector`` of text
004), and the factory of such consumers, ``Consumer``.

    /consumers/G/ids/ID          ConsumerRegistration, ephemeral: this consumer and its subscription
    /consumers/G/owners/T/P      ID-N, ephemeral: the owner's thread N reads the partition
    /consumers/G/offsets/T/P     the offset of the next message

Threads: one rebalances (``_watcher_executor``), one commits every ``auto.commit.interval.ms``, and one
queries ZooKeeper three times in each session timeout, which renews the ``Lease``. Fetchers have their own
threads. With ``threads=False`` there are none: the caller supplies the clock, the store and the network, and
nothing happens except in ``step``.

The classes that the texts nest in this class are in ``rebalancer``, ``listeners`` and ``streams``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import (
    BrokerError,
    CommitFailed,
    ConsumerRebalanceFailed,
    MessageStreamsExist,
    MinikafkaError,
    NetworkError,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer import arguments
from minikafka.clients.consumer.assignment import (
    StaticTopicCount,
    TopicCount,
    WildcardTopicCount,
    list_topics,
)
from minikafka.clients.consumer.config import KAFKA, ZOOKEEPER, ConsumerConfig
from minikafka.clients.consumer.connector import ConsumerConnector, Decoders
from minikafka.clients.consumer.fetcher_manager import ConsumerFetcherManager
from minikafka.clients.consumer.listeners import ConsumerRebalanceListener, ZookeeperTopicEventWatcher
from minikafka.clients.consumer.metrics import consumed_metrics, fetch_metrics
from minikafka.clients.consumer.offsets import (
    ConsumerOffsets,
    GroupOffsetsChannel,
    OffsetsChannel,
    registered_brokers,
)
from minikafka.clients.consumer.rebalancer import Fetcher, RebalanceContext, ZkRebalancerListener
from minikafka.clients.consumer.registration import GroupRegistration, make_consumer_id
from minikafka.clients.consumer.runtime import Scheduler, Stepper, Steps, run_steps
from minikafka.clients.consumer.stats import (
    ConsumerTopicStats,
    ConsumerTopicStatsRegistry,
    FetchRequestAndResponseStats,
    FetchRequestAndResponseStatsRegistry,
    acquire_stats,
    release_stats,
)
from minikafka.clients.consumer.streams import KafkaStream, WildcardStreamsHandler
from minikafka.clients.consumer.topic_filter import TopicFilter
from minikafka.clients.consumer.topic_registry import TopicRegistry
from minikafka.clients.metrics.registry import Metrics, merged_groups
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.outage_log import FailureLog
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import EventWaiter, Waiter
from minikafka.net.zookeeper_tls import zookeeper_security
from minikafka.registry.consumer_offsets import ZookeeperOffsets
from minikafka.registry.store import Store
from minikafka.registry.zookeeper import ZooKeeperStore

OFFSET_MANAGER_TIMEOUT_MS = 60_000
"""Timeout of a new connector's look-up of its group's coordinator. (The release has none.)"""

logger = logging.getLogger("minikafka.clients.consumer")


class ZookeeperConsumerConnector(ConsumerConnector):
    """A consumer of a group. Thread-safe; each of its streams is for one thread.

    ``store``, ``fetcher`` and ``channel`` replace the objects that the connector would create; it closes them
    too. Raises CoordinationLost if ZooKeeper does not answer, and NetworkError or BrokerError if the group's
    coordinator is needed and not found within a minute.
    """

    def __init__(
        self,
        config: ConsumerConfig | Mapping[str, object],
        *,
        store: Store | None = None,
        fetcher: Fetcher | None = None,
        channel: OffsetsChannel | None = None,
        clock: Clock | None = None,
        waiter: Waiter | None = None,
        threads: bool = True,
    ) -> None:
        config = self.config = arguments.checked_config(config)
        self.clock = clock or SystemClock()
        self.consumer_id_string = make_consumer_id(config, self.clock)
        self.message_stream_created = False
        self.wildcard_topic_watcher: ZookeeperTopicEventWatcher | None = None
        self._threads = threads
        self._waiter = waiter or EventWaiter()
        self._stopping = threading.Event()
        self._has_left = False
        self._shutdown_lock = threading.Lock()
        self._rebalance_lock = threading.RLock()  # a rebalance listener may shut its consumer down
        self._create_lock = threading.Lock()
        self._executor: threading.Thread | None = None
        self._stepper = Stepper(self.clock)
        self.store: Store = store or ZooKeeperStore(
            config.zookeeper_connect,
            config.zookeeper_session_timeout_ms,
            connect_timeout_ms=config.zookeeper_connection_timeout_ms,
            security=zookeeper_security(config.zookeeper),
        )
        try:
            self.fetcher: Fetcher = fetcher or ConsumerFetcherManager(
                self.consumer_id_string, config, self.store
            )
            self.registration = GroupRegistration(
                config, self.consumer_id_string, self.store, self.clock, self._trigger_rebalance
            )
            self.lease = self.registration.lease
            self.topic_registry = TopicRegistry(config, self.lease)
            self.offsets_channel = self._offsets_channel(channel)
            self.offsets = ConsumerOffsets(
                ZookeeperOffsets(self.store, config.group_id),
                self.offsets_channel,
                in_zookeeper=config.offsets_storage == ZOOKEEPER or config.dual_commit_enabled,
                zookeeper_first=config.offsets_storage == ZOOKEEPER,
                still_owned=self.registration.session.still_owned,
                max_retries=config.offsets_commit_max_retries,
                backoff_ms=config.offsets_channel_backoff_ms,
            )
            self.load_balancer_listener = ZkRebalancerListener(
                RebalanceContext(
                    config=config,
                    clock=self.clock,
                    store=self.store,
                    registration=self.registration,
                    registry=self.topic_registry,
                    fetcher=self.fetcher,
                    offsets=self.offsets,
                    commit=partial(self.commit_steps, with_retries=True),
                    stopping=self._stopping,
                )
            )
            self.ensure_offset_manager_connected()
        except BaseException:
            self.store.close()
            raise
        acquire_stats(config.client_id)
        self.scheduler = Scheduler(self.clock, threads=threads)
        self._schedule()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._shut_down(mark_consumed=kind is None)

    @property
    def is_shutting_down(self) -> bool:
        """True if ``shutdown`` has started."""
        return self._stopping.is_set()

    @property
    def owned_partitions(self) -> tuple[TopicPartition, ...]:
        """See ``ConsumerConnector.owned_partitions``."""
        return tuple(sorted(self.topic_registry.partitions))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """See ``ConsumerConnector.positions``."""
        return self.topic_registry.positions()

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """See ``ConsumerConnector.lag``."""
        return self.topic_registry.lag()

    @property
    def topic_stats(self) -> ConsumerTopicStats:
        """See ``ConsumerConnector.topic_stats``."""
        return ConsumerTopicStatsRegistry.get(self.config.client_id)

    @property
    def fetch_stats(self) -> FetchRequestAndResponseStats:
        """See ``ConsumerConnector.fetch_stats``."""
        return FetchRequestAndResponseStatsRegistry.get(self.config.client_id)

    def metrics(self) -> Metrics:
        """See ``ConsumerConnector.metrics``."""
        return merged_groups(
            consumed_metrics(self.topic_stats, self.lag),
            fetch_metrics(self.fetch_stats),
            self.load_balancer_listener.metrics.read(len(self.topic_registry.partitions)),
        )

    def _trigger_rebalance(self) -> None:
        self.load_balancer_listener.rebalance_event_triggered()

    def _schedule(self) -> None:
        """Schedule the periodic tasks."""
        config = self.config
        self.scheduler.schedule(
            f"{self.consumer_id_string}_lease", self.registration.renew_if_registered, self.lease.interval_ms
        )
        if config.auto_commit_enable:
            self.scheduler.schedule(
                f"{self.consumer_id_string}_autocommit", self.auto_commit, config.auto_commit_interval_ms
            )

    # --- streams --------------------------------------------------------------------------------------------

    def _create_message_streams(
        self, topic_count_map: dict[str, int], decoders: Decoders
    ) -> dict[str, list[KafkaStream[Any, Any]]]:
        topic_count = StaticTopicCount(self.consumer_id_string, topic_count_map)
        self._mark_streams_created()
        streams = {
            topic: self.topic_registry.create_streams(topic, number, *decoders)
            for topic, number in topic_count_map.items()
        }
        self._join_group(topic_count)
        return streams

    def _create_streams_by_filter(
        self, topic_filter: TopicFilter, num_streams: int, decoders: Decoders
    ) -> list[KafkaStream[Any, Any]]:
        excluded = self.config.exclude_internal_topics
        topic_count = WildcardTopicCount(
            self.consumer_id_string, topic_filter, num_streams, excluded, lambda: list_topics(self.store)
        )
        self._mark_streams_created()
        streams = self.topic_registry.create_streams(None, num_streams, *decoders)
        handler = WildcardStreamsHandler(
            topic_filter, excluded, list_topics(self.store), lambda topics: self._trigger_rebalance()
        )
        self._join_group(topic_count)
        self.wildcard_topic_watcher = ZookeeperTopicEventWatcher(self.store, handler)
        return streams

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the listener that each rebalance calls. Raises MessageStreamsExist once streams are created."""
        arguments.check_listener(listener)
        if self.message_stream_created:
            raise MessageStreamsExist("message streams exist: set the rebalance listener before them")
        self.load_balancer_listener.consumer_rebalance_listener = listener

    def _mark_streams_created(self) -> None:
        with self._create_lock:
            if self.is_shutting_down:
                raise ValueError(f"{self.consumer_id_string} is shut down")
            if self.message_stream_created:
                raise MessageStreamsExist("message streams exist: a connector creates them only once")
            self.message_stream_created = True

    def _join_group(self, topic_count: TopicCount) -> None:
        """Register, watch the group and make the first rebalance."""
        self.registration.topic_count = topic_count
        listener = self.load_balancer_listener
        if not self._threads:
            listener.watch_group()
            listener.rebalance_event_triggered()
            return
        with self._rebalance_lock:
            try:
                run_steps(self.registration.register(), self._waiter)
                listener.watch_group()
                run_steps(listener.synced_rebalance(), self._waiter)
                failed = None
            except MinikafkaError as error:
                failed = error
        if failed is not None:
            self._leave_after_failure(failed)
            raise failed
        self._executor = threading.Thread(
            target=self._watcher_executor, name=f"{self.consumer_id_string}_watcher_executor", daemon=True
        )
        self._executor.start()

    # --- offsets --------------------------------------------------------------------------------------------

    def _offsets_channel(self, channel: OffsetsChannel | None) -> OffsetsChannel | None:
        config = self.config
        if config.offsets_storage != KAFKA and not config.dual_commit_enabled:
            return None
        timeout_ms = config.offsets_channel_socket_timeout_ms

        def make_cluster() -> ClusterClient:
            brokers = registered_brokers(config.security.protocol, self.store, config.no_brokers_hint)
            return ClusterClient(
                brokers, security=config.security, client_id=config.client_id, request_timeout_ms=timeout_ms
            )

        return channel or GroupOffsetsChannel(make_cluster, config.group_id, timeout_ms)

    def ensure_offset_manager_connected(self) -> None:
        """Find the group's coordinator, if offsets are kept there. Retries for up to a minute, but not after
        a permanent error, such as a missing permission.
        """
        end_ms = self.clock.monotonic_ms() + OFFSET_MANAGER_TIMEOUT_MS
        failure_log = FailureLog(self.clock, logger)
        while self.offsets_channel is not None:
            try:
                self.offsets_channel.connect()
            except (NetworkError, BrokerError) as error:
                is_over = self.is_shutting_down or self.clock.monotonic_ms() >= end_ms
                if is_over or not is_retriable(error):
                    self.offsets_channel.close()
                    raise
                failure_log.record_failure(
                    self.consumer_id_string, error, "failed to find the group's coordinator, retrying: "
                )
                self._waiter.wait(self.config.offsets_channel_backoff_ms)
            else:
                failure_log.record_recovery(self.consumer_id_string)
                return

    def auto_commit(self) -> None:
        """Commit all consumed messages, in one attempt. A failure is logged; the next run retries."""
        if not self.topic_registry.partitions:
            return
        try:
            run_steps(self.commit_steps(with_retries=False), self._waiter)
        except MinikafkaError as error:
            after_ms = self.config.auto_commit_interval_ms
            logger.warning(
                "%s: auto commit failed, retrying in %d ms: %s", self.consumer_id_string, after_ms, error
            )

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``; by default all delivered messages, which the caller thereby declares as
        processed. A rebalance listener cannot know that: then the commit excludes messages in process.

        Retries a failed commit up to ``offsets.commit.max.retries`` times, and raises the last error. A
        message that could not be decoded counts as consumed only after the next message was requested, or if
        ``offsets`` passes it.

        Once there are streams, the connector commits only partitions that this consumer owns. It raises
        CommitFailed, which names the other partitions, after the commit of its own, and CoordinationLost or
        SessionExpired if other consumers may own its partitions by now. A connector without streams writes
        ``offsets`` regardless of the partitions' owners.
        """
        if offsets is not None:
            offsets = arguments.checked_offsets(offsets)
        registry = self.topic_registry
        with registry.lock:  # before messages are marked: a rebalance may wait for them, then for the lock
            if offsets is None and not self.load_balancer_listener.is_called_by_rebalance_listener:
                registry.mark_delivered_consumed()
            lost = run_steps(self.commit_steps(with_retries=True, offsets=offsets), self._waiter)
        if lost:
            names = ", ".join(map(str, sorted(lost)))
            raise CommitFailed(
                f"{self.consumer_id_string} does not own {names}: their offsets are not committed"
            )

    def commit_steps(
        self, *, with_retries: bool, offsets: Mapping[TopicPartition, int] | None = None
    ) -> Steps[frozenset[TopicPartition]]:
        """Commit in steps, under the commit lock, so that ownership does not change meanwhile. Return the
        partitions that this consumer does not own, whose offsets are not committed.
        """
        with self.topic_registry.lock:
            if offsets is not None and not self.message_stream_created:
                return (yield from self.offsets.commit(offsets, with_retries=with_retries, check=None))
            consumed = self.topic_registry.positions()
            wanted = consumed if offsets is None else offsets
            own = {tp: offset for tp, offset in wanted.items() if tp in consumed}
            began_ms, metrics = self.clock.monotonic_ms(), self.load_balancer_listener.metrics
            lost = yield from self.offsets.commit(
                own, with_retries=with_retries, check=self.registration.check_lease
            )
            metrics.record(metrics.commits, self.clock.monotonic_ms() - began_ms)
            return lost | (wanted.keys() - own.keys())

    def fetch_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets of ``partitions``, without partitions that have none."""
        wanted = [arguments.checked_partition(partition) for partition in partitions]
        with self.topic_registry.lock:
            return self.offsets.fetch_offsets(wanted)

    # --- without threads ------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run the tasks that are due, then one step of a rebalance. Return whether there was such a step.

        ConsumerRebalanceFailed is raised by the streams, as with threads, and not here.
        """
        if self.is_shutting_down or self.registration.topic_count is None:
            return False
        self.scheduler.step()
        listener = self.load_balancer_listener
        if not self._stepper.is_busy and listener.is_triggered:
            self._stepper.start(listener.synced_rebalance())
        try:
            return self._stepper.step()
        except ConsumerRebalanceFailed as error:
            self._leave_after_failure(error)
            return True

    @property
    def is_rebalancing(self) -> bool:
        """True if a rebalance is due, or under way in ``step``."""
        if self.is_shutting_down:
            return False
        return self._stepper.is_busy or self.load_balancer_listener.is_triggered

    # --- the end --------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Leave the group: end the streams, commit all delivered messages (auto commit only, and except a
        last message that could not be decoded), and release the partitions to the other consumers. Errors are
        logged. A second call does nothing.

        Do not call this in a signal handler, which may have interrupted code that holds a lock: set an event
        there, or raise.
        """
        self._shut_down(mark_consumed=True)

    def _shut_down(self, *, mark_consumed: bool) -> None:
        # Another caller may wait in _leave for the rebalance thread, on which a listener calls this.
        may_wait = threading.current_thread() is not self._executor
        if self._shutdown_lock.acquire(blocking=may_wait):
            try:
                self._leave(None, mark_consumed=mark_consumed)
            finally:
                self._shutdown_lock.release()

    def _watcher_executor(self) -> None:
        listener = self.load_balancer_listener
        while not self._stopping.is_set():
            listener.wait_until_triggered()
            if self._stopping.is_set():
                return
            try:
                with self._rebalance_lock:
                    run_steps(listener.synced_rebalance(), self._waiter)
            except ConsumerRebalanceFailed as error:
                self._leave_after_failure(error)

    def _leave_after_failure(self, error: MinikafkaError) -> None:
        """Leave the group after an error, which the streams raise."""
        if self._shutdown_lock.acquire(blocking=False):
            try:
                logger.error("%s: leaving the group: %s", self.consumer_id_string, error)
                self._leave(error, mark_consumed=False)
            finally:
                self._shutdown_lock.release()

    def _leave(self, error: MinikafkaError | None, *, mark_consumed: bool) -> None:
        if self._has_left:
            return
        self._has_left = True
        self._stopping.set()
        self._waiter.stop()
        self.registration.stop()
        self.load_balancer_listener.rebalance_event_triggered()
        if self.wildcard_topic_watcher is not None:
            self.wildcard_topic_watcher.shutdown()
        self.scheduler.shutdown()
        self._stepper.cancel()
        if self._executor is not None and self._executor is not threading.current_thread():
            self._executor.join()
        with self._rebalance_lock:
            try:
                self.fetcher.stop_connections()
                self.fetcher.shutdown()
                self.topic_registry.send_shutdown_to_all_queues(error, mark_consumed=mark_consumed)
                if self.config.auto_commit_enable and self.topic_registry.partitions:
                    run_steps(
                        self.commit_steps(with_retries=True), EventWaiter() if self._threads else self._waiter
                    )
            except MinikafkaError as failure:
                logger.error("%s: commit at shutdown failed: %s", self.consumer_id_string, failure)
            finally:
                self.lease.revoke()
                if self.offsets_channel is not None:
                    self.offsets_channel.close()
                # The end of the session removes the registration and the owners' znodes.
                self.store.close()
                # Last, as it waits for a commit of another thread, which fails now.
                self.topic_registry.replace(())
                release_stats(self.config.client_id)


class Consumer:
    """The factory of connectors. The texts' second method, ``createJavaConsumerConnector``, returns Java's
    collections; in Python ``create`` serves for both.
    """

    @staticmethod
    def create(config: ConsumerConfig | Mapping[str, object]) -> ConsumerConnector:
        """Return a connector that is connected to ZooKeeper. ``config`` may be a mapping of Kafka's property
        names, as for ``ConsumerConfig.from_properties``.

        Raises ConfigErrors for its faults, CoordinationLost if ZooKeeper does not answer, and NetworkError or
        BrokerError if the group's coordinator is needed and not found.
        """
        return ZookeeperConsumerConnector(config)
