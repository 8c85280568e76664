"""The manager of a consumer's fetchers, which start and stop with every rebalance."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import AuthenticationFailed
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.consumer.chunks import PartitionTopicInfo
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.fetcher_thread import ConsumerFetcherThread, Gate
from minikafka.clients.consumer.leader_finder import Leader, LeaderFinderThread
from minikafka.clients.consumer.runtime import ShutdownableThread
from minikafka.clients.network.broker_connection import BrokerConnection, ConnectionConfig
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.outage_log import FailureLog
from minikafka.clients.network.retry import Deadline, EventWaiter, Waiter
from minikafka.net.interfaces import Connector
from minikafka.records.format.hashes import string_hash
from minikafka.registry.store import Store

_STOP_TIMEOUT_MS = 500
"""The longest time that a stop waits for threads, which can no longer deliver anything."""
_SHUTDOWN_TIMEOUT_MS = 15_000

logger = logging.getLogger("minikafka.clients")


@dataclass(frozen=True, slots=True)
class _BrokerAndFetcherId:
    broker: BrokerAddress
    fetcher_id: int


class _Connections:
    """The state between a start and the next stop. ``waiter`` is that of the fetchers' connections."""

    def __init__(self, infos: Iterable[PartitionTopicInfo], waiter: Waiter) -> None:
        self.infos = {info.topic_partition: info for info in infos}
        self.without_leader = set(self.infos)
        self.gate = Gate()
        self.waiter = waiter
        self.finder: LeaderFinderThread  # set before they are used
        self.fetchers: dict[_BrokerAndFetcherId, ConsumerFetcherThread] = {}


class ConsumerFetcherManager:
    """Starts and stops the fetchers (``ConsumerFetcherManager`` of text 004).

    ``start_connections`` and ``stop_connections`` are called repeatedly, from one thread; then ``shutdown``.
    With ``threads`` False nothing happens except in ``step``. ``connector``, ``clock`` and ``make_waiter``
    replace sockets and time.
    """

    def __init__(
        self,
        consumer_id: str,
        config: ConsumerConfig,
        store: Store,
        *,
        connector: Connector | None = None,
        clock: Clock | None = None,
        make_waiter: Callable[[], Waiter] = EventWaiter,
        threads: bool = True,
    ) -> None:
        self._consumer_id = consumer_id
        self._config = config
        self._store = store
        self._connector = connector or _socket_connector(config)
        self._clock = clock or SystemClock()
        self._failure_log = FailureLog(self._clock, logging.getLogger("minikafka.clients.consumer"))
        self._make_waiter = make_waiter
        self._threads = threads
        self._lock = threading.Lock()
        self._current: _Connections | None = None
        self._stopping_threads: list[ShutdownableThread] = []

    def start_connections(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Fetch these partitions, each from its ``fetched_offset``. Raises RuntimeError if already
        started.
        """
        connections = _Connections(infos, self._make_waiter())
        finder = connections.finder = self._new_finder(connections)
        with self._lock:
            if self._current is not None:
                raise RuntimeError("connections are already started: call stop_connections first")
            self._current = connections
        for info in connections.infos.values():
            info.queue.on_room(self._wake_fetchers)
        if self._threads:
            finder.start()

    def stop_connections(self) -> None:
        """Stop all fetches. After this returns no fetcher can reach a queue, or move an offset. Does nothing
        if nothing is started.
        """
        with self._lock:
            connections, self._current = self._current, None
        if connections is None:
            return
        connections.gate.close()
        connections.waiter.stop()
        stopping: list[ShutdownableThread] = [connections.finder, *connections.fetchers.values()]
        for info in connections.infos.values():
            info.queue.on_room(None)
        for stopped in stopping:
            stopped.initiate_shutdown()
        # A thread may be in a call that cannot be cancelled, such as to ZooKeeper: it ends after that call.
        self._stopping_threads = _join_all(self._stopping_threads + stopping, _STOP_TIMEOUT_MS)

    def shutdown(self) -> None:
        """Stop for good, and wait for the threads. A second call does nothing."""
        self.stop_connections()
        self._stopping_threads = _join_all(self._stopping_threads, _SHUTDOWN_TIMEOUT_MS)
        if self._stopping_threads:
            names = ", ".join(thread.name for thread in self._stopping_threads)
            logger.warning("timed out waiting for threads to end: %s", names)

    def step(self) -> None:
        """Without threads: run one round of the leader finder and of each fetcher."""
        connections = self._current
        if connections is None:
            return
        connections.finder.do_work()
        for fetcher in list(connections.fetchers.values()):
            fetcher.do_work()

    # --- inside

    def _new_finder(self, connections: _Connections) -> LeaderFinderThread:
        return LeaderFinderThread(
            f"{self._consumer_id}-leader-finder-thread",
            self._store,
            partial(self._partitions_without_leader, connections),
            partial(self._update_fetchers, connections),
            lambda brokers: ClusterClient(
                brokers,
                security=self._config.security,
                connector=self._connector,
                client_id=self._config.client_id,
                request_timeout_ms=self._config.socket_timeout_ms,
                creates_topics=False,
                clock=self._clock,
                waiter=self._make_waiter(),
            ),
            partial(self._fail_partitions, connections),
            self._config.security.protocol,
            self._config.refresh_leader_backoff_ms,
            self._failure_log,
        )

    def _fail_partitions(
        self, connections: _Connections, partitions: Iterable[TopicPartition], error: AuthenticationFailed
    ) -> None:
        """Raise ``error`` in the streams of ``partitions`` whose queues have room, and read them no more."""
        for tp in partitions:
            info = connections.infos[tp]
            if connections.gate.run_if_open(
                partial(info.enqueue, memoryview(b""), info.fetched_offset, error)
            ):
                with self._lock:
                    connections.without_leader.discard(tp)

    def _partitions_without_leader(self, connections: _Connections) -> list[TopicPartition]:
        with self._lock:
            return sorted(connections.without_leader)

    def _mark_without_leader(self, connections: _Connections, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            connections.without_leader.update(tp for tp in partitions if tp in connections.infos)
        connections.finder.wake()

    def _wake_fetchers(self) -> None:
        # The caller holds the lock of a queue: nothing here may wait.
        connections = self._current
        if connections is not None:
            for fetcher in list(connections.fetchers.values()):
                fetcher.wake()

    def _update_fetchers(self, connections: _Connections, leaders: Mapping[TopicPartition, Leader]) -> None:
        """Fetch partitions from these leaders, and shut down the fetchers without partitions."""
        with self._lock:
            if self._current is not connections:
                return
            groups: dict[_BrokerAndFetcherId, list[PartitionTopicInfo]] = {}
            for tp, leader in leaders.items():
                connections.without_leader.discard(tp)
                key = _BrokerAndFetcherId(leader.broker, self._fetcher_id(tp))
                info = connections.infos[tp]
                info.leader_epoch, info.topic_id = leader.epoch, leader.topic_id
                groups.setdefault(key, []).append(info)
            for key, infos in groups.items():
                fetcher = connections.fetchers.get(key)
                if fetcher is None:
                    fetcher = self._new_fetcher(connections, key)
                    connections.fetchers = {**connections.fetchers, key: fetcher}
                fetcher.add_partitions(infos)
            idle = [fetcher for fetcher in connections.fetchers.values() if not fetcher.partition_count]
            connections.fetchers = {
                key: fetcher for key, fetcher in connections.fetchers.items() if fetcher not in idle
            }
        for fetcher in idle:
            fetcher.initiate_shutdown()

    def _new_fetcher(self, connections: _Connections, key: _BrokerAndFetcherId) -> ConsumerFetcherThread:
        broker = key.broker
        connection_config = ConnectionConfig(
            self._connector,
            self._clock,
            connections.waiter,
            self._config.client_id,
            self._config.socket_timeout_ms,
        )
        fetcher = ConsumerFetcherThread(
            f"ConsumerFetcherThread-{self._consumer_id}-{key.fetcher_id}-{broker.broker_id}",
            self._config,
            broker,
            BrokerConnection(str(broker), broker.host, broker.port, connection_config),
            connections.gate,
            partial(self._mark_without_leader, connections),
            self._clock,
            self._failure_log,
        )
        if self._threads:
            fetcher.start()
        return fetcher

    def _fetcher_id(self, tp: TopicPartition) -> int:
        """Return the number of the fetcher, among those of one broker, for a partition, as in the release."""
        number = 31 * string_hash(tp.topic) + tp.partition & 0xFFFFFFFF
        number -= (number >> 31) << 32
        # Java's Integer.MIN_VALUE has no absolute value.
        return (0 if number == -(1 << 31) else abs(number)) % self._config.num_consumer_fetchers


def _join_all(threads: Iterable[ShutdownableThread], milliseconds: int) -> list[ShutdownableThread]:
    """Return the threads that have not ended within that time in all."""
    deadline = Deadline(SystemClock(), milliseconds)  # threads live in real time
    return [thread for thread in threads if not thread.await_shutdown(deadline.remaining_ms())]


def _socket_connector(config: ConsumerConfig) -> Connector:
    buffer_bytes = config.socket_receive_buffer_bytes
    return config.security.connector(
        client_id=config.client_id,
        request_timeout_ms=config.socket_timeout_ms,
        receive_buffer_bytes=buffer_bytes if buffer_bytes > 0 else None,
    )
