"""The broker core: one owner of all broker state.

Every change happens in ``Broker.run``, under one lock, on the thread that brings the event: a processor with
a request, the worker with a change in ZooKeeper, the housekeeper with a timer. (A queue to a core thread
would cost a hand-off of 10 to 100 microseconds under the interpreter's lock; ARCHITECTURE.md has the
measurement.) A step never blocks and never sends: responses are collected and sent once the lock is released.

The constructor takes everything outside of the core (clock, logs, worker, ZooKeeper client), so that the
whole broker also runs single-threaded over a simulated network, disk and ZooKeeper.
"""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from minikafka.base.clock import Clock
from minikafka.base.errors import BrokerError, CoordinationError, CoordinationLost, ErrorCode, SessionExpired
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.controller.controller import Controller
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.partition.partition import Partition
from minikafka.partition.purgatory import Purgatory
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.config.dynamic_properties import DynamicProperties
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.context import RequestContext
from minikafka.server.core.converted_records import PieceBudget
from minikafka.server.core.fetch_sessions import FetchSessionCache
from minikafka.server.core.metadata_cache import EncodedMetadata, MetadataCache
from minikafka.server.core.topic_creations import TopicCreations
from minikafka.server.metrics.broker_metrics import BrokerMetrics
from minikafka.server.quotas.address_quotas import AddressQuotas
from minikafka.server.quotas.client_quotas import ClientQuotaManager
from minikafka.server.quotas.replication_quotas import ReplicationQuotas
from minikafka.server.security.access_control import AccessControl
from minikafka.server.security.acl_manager import AclManager
from minikafka.server.security.scram_credentials import ScramCredentials
from minikafka.server.workers.request_admission import RequestAdmission
from minikafka.server.workers.request_jobs import RequestJobs
from minikafka.server.workers.work_pool import InlineWorkPool, WorkPool
from minikafka.server.workers.worker import Worker
from minikafka.server.zookeeper.counters import raise_broker_ids
from minikafka.server.zookeeper.producer_ids import ProducerIds, highest_producer_id
from minikafka.server.zookeeper.zookeeper_client import ZooKeeperClient

_log = logging.getLogger(__name__)

T = TypeVar("T")

VerifyTransaction = Callable[
    [str, ProducerIdAndEpoch, Sequence[TopicPartition], Callable[[Mapping[TopicPartition, ErrorCode]], None]],
    None,
]
"""``AddPartitionsVerifier.verify``."""
COPIES_BYTES = 64 << 20
"""The memory of batches that are copied at a time, for all requests together."""


class DelayedOperation(Protocol):
    """A delayed request in the purgatory. ``satisfied`` runs under the core's lock, the others after it."""

    def satisfied(self, key: Hashable | None = None) -> bool:
        """Return True if the request can be answered now. ``key`` is what changed; None: perhaps all."""

    def complete(self) -> None:
        """Send the response with the data that is available."""

    def abandon(self, reason: str) -> None:
        """Close the connection after an internal error, so that the client asks again."""

    def __hash__(self) -> int: ...


class DelayedRequest:
    """A client's delayed request, whose connection an internal error closes. For a ``DelayedOperation``."""

    def __init__(self, broker: Broker, context: RequestContext) -> None:
        self._broker = broker
        self._context = context

    def abandon(self, reason: str) -> None:
        self._context.exchange.close(reason)


class Broker:
    """All state of one broker. The module says which thread may call which method, and under which lock."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        broker_id: int,
        clock: Clock,
        logs: LogManager,
        worker: Worker,
        zk_client: ZooKeeperClient,
        pool: WorkPool | None = None,
        metrics: BrokerMetrics | None = None,
    ) -> None:
        self.config = config
        self.broker_id = broker_id
        self.clock = clock
        self.logs = logs
        self.worker = worker
        self.zk_client = zk_client
        self.pool: WorkPool = pool or InlineWorkPool()
        """Runs requests that take more than a few milliseconds."""
        self.metrics = metrics or BrokerMetrics()
        self.pieces = PieceBudget()
        """Bounds the memory of records that are converted for old consumers and not yet sent."""
        self.copies = RequestAdmission(COPIES_BYTES)
        """Bounds the memory of batches that are copied (``handlers.copy_batches``)."""
        self.metadata_cache = MetadataCache(zk_client.cluster_id)
        self.partitions: dict[TopicPartition, Partition] = {}
        """The partitions that this broker serves, changed by ``add_partition`` and ``remove_partition``."""
        self.served_version = 0
        """The number of changes to ``partitions``."""
        self.encoded_metadata = EncodedMetadata()
        self.purgatory: Purgatory[DelayedOperation] = Purgatory()
        self.fetch_sessions: FetchSessionCache[Any] = FetchSessionCache(
            config.fetching.session_slots, lambda: 1 + secrets.randbelow((1 << 31) - 1), self.purgatory.remove
        )
        """The fetch sessions of followers and consumers. Used within steps."""
        self.controller = Controller(broker_id, delete_topics=config.delete_topics)
        self.dynamic_properties = DynamicProperties(config)
        self.quotas = ClientQuotaManager(config.quotas)
        self.address_quotas = AddressQuotas()
        self.scram_credentials = ScramCredentials()
        self.replication_quotas = ReplicationQuotas(broker_id, config.replication)
        self.access_control = AccessControl(self.topic_name)
        """The ACLs in force. Without an authorizer everything is allowed to everyone."""
        self.acl_manager: AclManager | None = None
        """Changes the ACLs. Set once, before this broker serves; None without an authorizer."""
        self.logged_software: set[tuple[str, str]] = set()
        """The names and versions of clients' software that the log has already."""
        self.producer_ids = ProducerIds()
        self.deadline_added: Callable[[int], None] = lambda deadline_ms: None
        """Called with each new deadline (monotonic ms), so that the housekeeper wakes in time."""
        self.propose_isr: Callable[[Partition, LeaderAndIsr], None] = lambda partition, wanted: None
        """Called with each ISR that a leader on this broker proposes."""
        self.verify_transaction: VerifyTransaction | None = None
        """Asks the coordinator whether partitions are in a transaction. None: this broker serves none."""
        self.alter_log_dir: Callable[[TopicPartition, str], None] = lambda topic_partition, path: None
        """Moves a replica here to another data directory. Called on the worker; raises BrokerError."""
        self.log_failed: Callable[[TopicPartition, str], None] = lambda topic_partition, complaint: None
        """Called, also within steps, when a leader here cannot write, with a line for the log, or ""."""
        self.unwritable: set[TopicPartition] = set()
        """Partitions whose logs accept no writes at present: they are not fetched. See ``failing_logs``."""
        self.request_jobs = RequestJobs(worker, clock)
        """Jobs on ZooKeeper for clients' requests."""
        self.large_operations: list[weakref.ref[Any]] = []
        """Delayed operations on very many topics, oldest first (``server.admin.topics``)."""
        self.creations = TopicCreations(worker, clock, zk_client.topics.create)
        """The queue of topics to be created."""
        self._lock = threading.Lock()
        self._after: list[Callable[[], None]] = []
        self._stopping = False

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id; None if this broker knows of none."""
        return self.metadata_cache.topics_by_id.get(topic_id)

    def leadership(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        """Return the leadership of a partition as this broker knows it, best of its own replica."""
        partition = self.partitions.get(topic_partition)
        if partition is not None and partition.leadership is not None:
            return partition.leadership
        return self.metadata_cache.leadership(topic_partition)

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """Return a partition that this broker has.

        Raises BrokerError: NOT_LEADER_FOR_PARTITION if other brokers have it, UNKNOWN_TOPIC_OR_PARTITION if
        it does not exist.
        """
        partition = self.partitions.get(topic_partition)
        if partition is None:
            known = self.metadata_cache.leadership(topic_partition) is not None
            raise BrokerError(
                ErrorCode.NOT_LEADER_FOR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                str(topic_partition),
            )
        return partition

    def add_partition(self, partition: Partition) -> None:
        """Add a partition to those that this broker has. Called within a step."""
        self.partitions[partition.topic_partition] = partition
        self.served_version += 1

    def remove_partition(self, topic_partition: TopicPartition) -> Partition | None:
        """Remove and return a partition; None if this broker does not have it. Called within a step."""
        self.served_version += 1
        return self.partitions.pop(topic_partition, None)

    def readable_up_to(self, topic_partition: TopicPartition, log: Log) -> int:
        """Return the high watermark of a log, or the log's start if this broker does not serve it."""
        partition = self.partitions.get(topic_partition)
        return log.start_offset if partition is None else partition.high_watermark

    def raise_counters(self) -> None:
        """Raise ZooKeeper's counters above all ids in use on this broker. A job: may be run twice."""
        self.raise_producer_ids()
        if self.config.generate_broker_id:
            known = {self.broker_id, *self.metadata_cache.brokers}
            raise_broker_ids(self.zk_client.store, known, self.config.reserved_broker_max_id)

    def raise_producer_ids(self) -> None:
        """Raise ZooKeeper's counter above all producer ids in use on this broker. A job: may be run twice."""
        try:
            counted = self.zk_client.raise_producer_ids(self.broker_id, self.highest_producer_id())
        except (CoordinationLost, SessionExpired):
            raise
        except CoordinationError as error:
            _log.error("failed to raise the counter of producer ids, ids may be allocated twice: %s", error)
        else:
            if counted is not None:
                self.run(lambda: self.producer_ids.compare(counted))

    def highest_producer_id(self) -> int:
        """Return the largest producer id that this broker knows to be in use; -1 for none."""
        ids = self.producer_ids
        in_logs = highest_producer_id(self.logs.logs().values())
        return max(ids.highest_taken, ids.highest_of_transactions, in_logs)

    # --- the core -------------------------------------------------------------------------------------------

    def run(self, step: Callable[[], T]) -> T:
        """Run one step under the core's lock, then the actions that it passed to ``after``; return its value.

        Must not be called within a step.
        """
        with self._lock:
            try:
                value = step()
            finally:
                after, self._after = self._after, []
        for action in after:
            try:
                action()
            except Exception:  # noqa: BLE001
                # Responses to other requests come after it, and the thread is the caller's.
                _log.exception("unexpected error in an action deferred until the lock was free")
        return value

    def turns(self, timeout_s: float) -> bool:
        """Return True if the core's lock is free within a time. Not called within a step."""
        if not self._lock.acquire(timeout=timeout_s):
            return False
        self._lock.release()
        return True

    def after(self, action: Callable[[], None]) -> None:
        """Run ``action`` once the lock is free. Called within a step; responses are sent this way."""
        self._after.append(action)

    def answer(self, operation: DelayedOperation) -> None:
        """Complete ``operation`` once the lock is free. Called within a step."""

        def complete() -> None:
            try:
                operation.complete()
            except Exception:  # noqa: BLE001
                _log.exception("unexpected error while completing a delayed request")
                operation.abandon("failed to complete a delayed request")

        self.after(complete)

    def wait(self, operation: DelayedOperation, keys: list[Hashable], deadline_ms: int) -> None:
        """Keep ``operation`` until one of ``keys`` is touched or the deadline. Called within a step."""
        if self._stopping:
            self.answer(operation)
            return
        self.purgatory.add(operation, keys, deadline_ms)
        self.after(lambda: self.deadline_added(deadline_ms))

    def stop_waiting(self) -> None:
        """Answer every delayed request, and delay none from now on. Called before the broker stops."""

        def step() -> None:
            self._stopping = True
            for operation in self.purgatory.clear():
                self.answer(operation)

        self.run(step)

    def touch(self, key: Hashable) -> None:
        """Complete the delayed operations that a change to ``key`` satisfies. Called within a step."""
        for operation in self.purgatory.tickets_of(key):
            if operation.satisfied(key):
                self.purgatory.remove(operation)
                self.answer(operation)

    def expire(self) -> int | None:
        """Complete the operations whose deadline has passed; return the next deadline (monotonic ms)."""

        def step() -> int | None:
            for operation in self.purgatory.take_expired(self.clock.monotonic_ms()):
                self.answer(operation)
            return self.purgatory.next_deadline_ms()

        return self.run(step)
