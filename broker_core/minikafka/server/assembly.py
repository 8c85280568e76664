"""The assembly of a broker from its ports, with its start and stop in the right order.

The real ports are files, clock, threads, sockets and ZooKeeper; a simulation passes others and steps them.

Start: connect to ZooKeeper, lock and recover the logs, agree on broker id and cluster id, end the session of
a killed predecessor, listen, register, take part in the controller election; the broker serves when it has
the metadata of the cluster. Stop: move leadership to other brokers, accept no more requests, end the
registration, close the logs with the clean-shutdown marker.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from minikafka.base.clock import Clock
from minikafka.base.endpoints import LiveBroker, addresses_on
from minikafka.base.errors import ConfigError, CoordinationLost, InconsistentClusterId, SessionExpired
from minikafka.base.files import Files
from minikafka.base.ids import BrokerAddress
from minikafka.log.checkpoints.data_directory import contents
from minikafka.log.checkpoints.meta_properties import claim_directories, known_cluster
from minikafka.log.cleanup.cleaner import Cleaner
from minikafka.log.cleanup.cleaner_manager import LogCleanerManager
from minikafka.log.manager import Jobs, LogManager, run_sequentially
from minikafka.net.interfaces import Connector, ServerTlsContext
from minikafka.net.server import Endpoint, RequestHandler, Server
from minikafka.records.compaction import OffsetMap
from minikafka.registry.brokers import BrokerRegistration
from minikafka.registry.store import SessionState, Store
from minikafka.server.admin.dynamic_config import refresh_entities
from minikafka.server.config.listeners import check_not_registered, registered_endpoints
from minikafka.server.config.properties import BrokerConfig, CleanerConfig
from minikafka.server.control.controlled_shutdown import request_controlled_shutdown
from minikafka.server.control.controller_channel import ControllerChannelManager
from minikafka.server.control.controller_event_manager import ControllerEventManager
from minikafka.server.control.protocol_compatibility import check_protocol_compatibility
from minikafka.server.coordination.coordinators import Coordinators
from minikafka.server.core.broker import Broker
from minikafka.server.dispatch import Dispatcher
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.handlers import Services
from minikafka.server.housekeeper import Housekeeper
from minikafka.server.inter_broker_connection import InterBrokerConnection, check_own_login
from minikafka.server.metrics.broker_metrics import BrokerMetrics
from minikafka.server.metrics.definitions import ZOOKEEPER_SESSION_EVENTS
from minikafka.server.replication.alter_log_dirs import ReplicaAlterLogDirsManager
from minikafka.server.replication.failing_logs import FailingLogs
from minikafka.server.replication.isr_writer import IsrWriter
from minikafka.server.replication.replica_fetcher_manager import ReplicaFetcherManager
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.server.security.acl_manager import AclManager
from minikafka.server.security.authentication import authenticating
from minikafka.server.transactions.add_partitions_verifier import AddPartitionsVerifier
from minikafka.server.transactions.marker_writer import MarkerWriter
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.server.transactions.transaction_marker_sender import TransactionMarkerSender
from minikafka.server.workers.work_pool import InlineWorkPool, WorkPool
from minikafka.server.workers.worker import Worker
from minikafka.server.zookeeper.counters import next_broker_id, observe_topics
from minikafka.server.zookeeper.guarded_store import GuardedStore
from minikafka.server.zookeeper.zookeeper_client import ZooKeeperClient

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ports:
    """The interfaces of a broker to files, clock, threads, network and ZooKeeper."""

    files: Files
    clock: Clock
    worker: Worker
    loader: Worker
    """Loads groups and transactions, which may take long and must not block the other worker."""
    connect_store: Callable[[], Store]
    listen: Callable[[BrokerConfig, RequestHandler], Server]
    random_bytes: Callable[[int], bytes]
    connector: Connector
    """Connects to other brokers."""
    run_all: Callable[[Jobs], None] = run_sequentially
    """Runs the jobs that open logs: in parallel, if there are threads."""
    spawn: Callable[[InterBrokerConnection, str], None] | None = None
    """Runs a connection to another broker on a thread of that name; None: ``RunningBroker.step`` does."""
    metrics: BrokerMetrics = field(default_factory=BrokerMetrics)
    """Counts what the ports and the broker do."""
    pool: WorkPool = field(default_factory=InlineWorkPool)
    """Runs long requests outside of the processors."""
    renew_certificates: Callable[[], None] = lambda: None
    """Makes new connections use the certificates that are in the files now."""
    identified: Callable[[int, str], None] = lambda broker_id, cluster_id: None
    """Called with the ids of the broker and the cluster as soon as they are known."""


class _Stepped(Protocol):
    """Connections to other brokers, or other work, run by ``step`` if there are no threads."""

    def step(self) -> bool: ...

    def due_ms(self) -> int: ...


class RunningBroker:
    """A started broker. ``address``: of its first listener; ``endpoints``: those that it registered."""

    def __init__(
        self, config: BrokerConfig, ports: Ports, fatal: Callable[[str], None] = lambda reason: None
    ) -> None:
        """Start the broker. ``fatal`` is called later with the reason if it must be stopped.

        Raises ConfigError, StorageError (DirectoryLocked) or CoordinationError, after cleaning up.
        ``start_patiently`` retries when the connection to ZooKeeper is lost.
        """
        self.serving = threading.Event()
        """Set when the broker has the first metadata of the cluster."""
        self._stops = contextlib.ExitStack()
        try:
            self._start(config, ports, fatal)
        except BaseException:
            self.stop()
            raise

    def _start(self, config: BrokerConfig, ports: Ports, fatal: Callable[[str], None]) -> None:
        logs = _log_manager(config, ports)
        self._stops.callback(logs.close)
        store = ports.connect_store()
        for end in (store.close, ports.worker.stop, ports.loader.stop, ports.pool.stop):
            self._stops.callback(end)
        zk_client = _zk_client(config, ports, store, logs)
        _open(logs, zk_client)
        broker_id = self._agree_on_broker_id(config, logs.paths, ports.files, zk_client)
        ports.identified(broker_id, zk_client.cluster_id)
        self.broker = Broker(
            config,
            broker_id=broker_id,
            clock=ports.clock,
            logs=logs,
            worker=ports.worker,
            zk_client=zk_client,
            pool=ports.pool,
            metrics=ports.metrics,
        )
        _prepare(self.broker, zk_client.store, ports)
        self.coordinator = coordinator = GroupCoordinator(self.broker, ports.loader, ports.random_bytes)
        marker_writer = MarkerWriter(self.broker, coordinator)
        self.transactions = transactions = self._transactions(ports, marker_writer)
        self._fetchers = ReplicaFetcherManager(self.broker, ports.connector, ports.spawn)
        timeout_ms = config.replication.controller_timeout_ms
        self._channels = ControllerChannelManager(
            broker_id, config.inter_broker.listener, ports.connector, ports.clock, timeout_ms, ports.spawn
        )
        self._moves = self._moves_between_directories(with_threads=ports.spawn is not None)
        self._stops.callback(self._fetchers.stop)
        self._stops.callback(self._channels.close)
        replicas = ReplicaManager(
            self.broker, Coordinators(coordinator, transactions), self._fetchers, serving=self.serving.set
        )
        control = ControllerEventManager(self.broker, replicas, self._channels, fatal=fatal)
        in_sync = IsrWriter(self.broker)
        self.broker.propose_isr = in_sync.write
        self.cleaning = cleaning = self._cleaning(config, ports, logs)
        failing = FailingLogs(self.broker, replicas, ports.files, fatal)
        self.broker.log_failed = failing.failed
        self.housekeeper = Housekeeper(
            self.broker,
            coordinator,
            transactions,
            control,
            in_sync,
            cleaning,
            failing,
            ports.renew_certificates,
        )
        self._stops.callback(self.housekeeper.write_watermarks)
        services = Services(self.broker, coordinator, transactions, marker_writer, replicas, control)
        handler = authenticating(Dispatcher(services), self.broker, ports.random_bytes)
        self.server = server = ports.listen(config, handler)
        self._stops.callback(server.stop)
        _limit_connections(self.broker, server)
        for end in (self.broker.stop_waiting, coordinator.stop, transactions.stop):
            self._stops.callback(end)
        self._register(config, ports, zk_client, server, control, logs.paths[0])
        if config.control.controlled_shutdown:
            self._stops.callback(lambda: request_controlled_shutdown(self.broker, ports.connector))
            self._stops.callback(replicas.stop_following)

    def _register(
        self,
        config: BrokerConfig,
        ports: Ports,
        zk_client: ZooKeeperClient,
        server: Server,
        control: ControllerEventManager,
        directory: str,
    ) -> None:
        """Register the broker, and take part in the controller election."""
        self.endpoints = registered_endpoints(config.listeners, server.ports)
        self.address = BrokerAddress(
            self.broker.broker_id, self.endpoints[0].host, self.endpoints[0].port, config.rack
        )

        def keep_ticket() -> None:
            zk_client.end_predecessor(ports.files, directory)

        keep_ticket()
        own = LiveBroker(self.broker.broker_id, self.endpoints, config.rack)
        _check_others(config, own, zk_client.others(self.broker.broker_id), ports.connector)
        registration = BrokerRegistration(own)
        if config.beside_0_10:
            registration = BrokerRegistration.beside_0_10(registration.broker)
        zk_client.start(registration, control, keep_ticket)

    def stopped_threads(self) -> str:
        """Return which threads have ended, although they should run; "" for none."""
        return ", ".join((*self.server.ended_threads(), *self.housekeeper.ended_threads()))

    def step(self) -> bool:
        """Run one step of each connection to another broker, and of the moves between data directories,
        without threads. Return True if any had work.
        """
        worked = [part.step() for part in self._stepped]
        return any(worked)

    def due_ms(self) -> int:
        """Return the time (monotonic) before which nothing is to be done here if nothing is delivered.

        For a simulation, which calls ``step`` and the housekeeper's ``tick``.
        """
        return min(self.housekeeper.due_ms(), *(part.due_ms() for part in self._stepped))

    @property
    def _stepped(self) -> tuple[_Stepped, ...]:
        return self._fetchers, self._channels, self._markers, self._verifier, self._moves

    def stop(self) -> None:
        """Stop in the reverse order of the start; a second call does nothing.

        Everything is stopped; then the last error is raised. StorageError: messages may not be on disk.
        """
        self._stops.close()

    def _transactions(self, ports: Ports, marker_writer: MarkerWriter) -> TransactionCoordinator:
        self._markers = TransactionMarkerSender(
            self.broker, ports.connector, ports.spawn, marker_writer.write
        )
        self._stops.callback(self._markers.stop)
        coordinator = TransactionCoordinator(self.broker, ports.loader, self._markers)
        self._markers.written = coordinator.markers_written
        self._verifier = AddPartitionsVerifier(self.broker, coordinator, ports.connector, ports.spawn)
        self._stops.callback(self._verifier.stop)
        if coordinator.is_served:
            self.broker.verify_transaction = self._verifier.verify
        return coordinator

    def _moves_between_directories(self, *, with_threads: bool) -> ReplicaAlterLogDirsManager:
        moves = ReplicaAlterLogDirsManager(self.broker)
        self.broker.alter_log_dir = moves.alter
        self._stops.callback(moves.stop)
        if with_threads:
            moves.start()
        return moves

    def _cleaning(self, config: BrokerConfig, ports: Ports, logs: LogManager) -> LogCleanerManager | None:
        if not config.cleaner.enabled:
            return None
        stopping = threading.Event()
        self._stops.callback(stopping.set)
        cleaner = Cleaner(
            ports.files,
            ports.clock,
            _offset_map(config.cleaner),
            logs.file_deletion.add,
            bytes_per_second=config.cleaner.bytes_per_second,
            wait=stopping.wait,
        )
        self.broker.dynamic_properties.attach(
            lambda properties: cleaner.reconfigure(
                _offset_map(properties.cleaner), properties.cleaner.bytes_per_second
            )
        )
        logs.cleaner_control = cleaning = LogCleanerManager(
            ports.files, logs.logs, cleaner, new_mutex=threading.Lock
        )
        cleaning.begin(logs.paths)
        for topic_partition in logs.futures.all():
            logs.futures.pause_cleaning(topic_partition)
        return cleaning

    @staticmethod
    def _agree_on_broker_id(
        config: BrokerConfig, directories: Sequence[str], files: Files, zk_client: ZooKeeperClient
    ) -> int:
        cluster_id, given = zk_client.cluster_id, config.broker_id if config.broker_id >= 0 else None
        meta = claim_directories(files, directories, given, cluster_id)
        if meta is None:
            if not config.generate_broker_id:
                raise ConfigError(
                    "broker.id", config.broker_id, "must be set when broker.id.generation.enable=false"
                )
            broker_id = next_broker_id(zk_client.store, config.reserved_broker_max_id)
            meta = claim_directories(files, directories, broker_id, cluster_id)
        assert meta is not None
        return meta.broker_id


def _log_manager(config: BrokerConfig, ports: Ports) -> LogManager:
    return LogManager(
        ports.files,
        config.log_dirs,
        config.log,
        config.layout,
        ports.clock,
        # The worker and the housekeeper write checkpoints; they and the processors flush logs.
        new_mutex=threading.Lock,
        run_all=ports.run_all,
        flush_times=ports.metrics.flushes,
    )


def _zk_client(config: BrokerConfig, ports: Ports, store: Store, logs: LogManager) -> ZooKeeperClient:
    """Return the ZooKeeper client. Raises InconsistentClusterId with the contents of the data directories."""
    for state in SessionState:
        # A counter that began with 1 would hide its first event from every rate.
        ports.metrics.count(ZOOKEEPER_SESSION_EVENTS, state.value, count=0)
    store.on_session(lambda state: ports.metrics.count(ZOOKEEPER_SESSION_EVENTS, state.value))
    try:
        return ZooKeeperClient(
            store,
            ports.clock,
            ports.worker,
            random_bytes=ports.random_bytes,
            gives_topic_ids=config.gives_topic_ids,
            may_be_unclean=lambda overrides: (
                logs.defaults.with_known_overrides(overrides)[0].unclean_election
            ),
            cluster_id=known_cluster(ports.files, config.log_dirs),
        )
    except InconsistentClusterId as error:
        here = "; ".join(
            f"{contents(ports.files, path)}; check it with `minikafka log verify {shlex.quote(path)}`"
            for path in config.log_dirs
        )
        raise InconsistentClusterId(
            f"{error}. zookeeper.connect is {config.zookeeper_connect}. {here}"
        ) from None


def _open(logs: LogManager, zk_client: ZooKeeperClient) -> None:
    """Open all logs, and check which topics they may belong to."""
    logs.open_all(zk_client.settings.of_all_topics(), zk_client.tree)
    observe_topics(zk_client.store, logs.topic_incarnations)


def _check_others(
    config: BrokerConfig, own: LiveBroker, others: Mapping[int, LiveBroker], connector: Connector
) -> None:
    """Raise ConfigError if this broker cannot be in a cluster with ``others``; report a refused login."""
    check_not_registered(config.listeners, others.values())
    address = own.address(config.inter_broker.listener)
    if config.inter_broker.sasl is not None and address is not None:
        check_own_login(address, connector)
    if not config.beside_0_10:
        addresses = addresses_on(config.inter_broker.listener, others)
        check_protocol_compatibility(addresses.values(), connector)


def endpoints_of(config: BrokerConfig, tls: Mapping[str, ServerTlsContext]) -> list[Endpoint]:
    """Return the endpoint of each listener. tls: that of listeners with TLS, by their names."""
    return [
        Endpoint(
            listener.name,
            listener.host,
            listener.port,
            demands_authentication=config.security[listener.name].sasl is not None,
            tls=tls.get(listener.name),
        )
        for listener in config.listeners
    ]


def start_patiently(
    start: Callable[[], RunningBroker], patience_ms: int, clock: Clock, pause: Callable[[], object]
) -> RunningBroker:
    """Call ``start``, again after a ``pause`` if the connection to ZooKeeper is lost; return its result.

    Kafka's client retries as well. Raises the last error once ``patience_ms`` have passed.
    """
    until_ms = clock.monotonic_ms() + patience_ms
    while True:
        try:
            return start()
        except (CoordinationLost, SessionExpired) as error:
            left_ms = until_ms - clock.monotonic_ms()
            if left_ms <= 0:
                raise
            _log.warning(
                "lost the connection to ZooKeeper during the start, retrying for %d s: %s",
                left_ms / 1000,
                error,
            )
            pause()


def _offset_map(config: CleanerConfig) -> OffsetMap:
    return OffsetMap(config.map_bytes, config.map_load_factor)


def _limit_connections(broker: Broker, server: Server) -> None:
    """Have the server follow the limits of connections that change while the broker runs."""
    broker.dynamic_properties.attach(lambda properties: server.set_limits(properties.connection_limits))
    broker.address_quotas.attach(server.set_ip_rates)


def _prepare(broker: Broker, store: GuardedStore, ports: Ports) -> None:
    """Load the producer id counter, the quotas, credentials and ACLs before the first client connects."""
    broker.raise_counters()
    refresh_entities(broker)
    authorizer = broker.config.authorizer
    if authorizer is not None:
        broker.acl_manager = AclManager(store, ports.clock, ports.worker, authorizer, broker.access_control)
        broker.acl_manager.start()
