"""The broker core: one owner of all broker state.

Every change happens in ``Broker.run``, under one lock, by whichever thread brings the event: a processor with
a request, the worker with what ZooKeeper said, the housekeeper with the time. (A queue to a core thread would
cost a hand-off of 10 to 100 microseconds under the interpreter's lock; ARCHITECTURE.md has the measurement.)
A step never blocks and never sends: what is to be sent is collected, and done after the lock was given back.

Everything outside comes in by the constructor (clock, logs, worker, registrar), so that the whole broker also
runs single-threaded over a simulated network, disk and ZooKeeper.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    BrokerError,
    CoordinationError,
    CoordinationLost,
    ErrorCode,
    SessionExpired,
)
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.controller.controller import Controller
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.partition.partition import Partition
from minikafka.partition.purgatory import Purgatory
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.core.converted_records import PieceBudget
from minikafka.server.core.encoded_metadata import EncodedMetadata
from minikafka.server.core.metadata_cache import MetadataCache
from minikafka.server.core.topic_creations import TopicCreations
from minikafka.server.quotas.client_quotas import Quotas
from minikafka.server.quotas.replication_quotas import Throttles
from minikafka.server.security.access_control import AccessControl
from minikafka.server.security.acl_manager import AclManager
from minikafka.server.workers.request_jobs import RequestJobs
from minikafka.server.workers.work_pool import InlineWorkPool, WorkPool
from minikafka.server.workers.worker import Worker
from minikafka.server.zookeeper.counters import raise_broker_ids
from minikafka.server.zookeeper.producer_ids import ProducerIds, highest_producer_id
from minikafka.server.zookeeper.zookeeper_client import ZooKeeperClient

_log = logging.getLogger(__name__)


class Ticket(Protocol):
    """A request that waits. ``satisfied`` runs under the core's lock, the others after it."""

    def satisfied(self, key: Hashable | None = None) -> bool:
        """Whether there is enough to answer now; ``key`` is what something happened to, None: perhaps all."""

    def complete(self) -> None:
        """Answer with what there is."""

    def abandon(self, reason: str) -> None:
        """There is no answer, by a fault of ours: end the connection, so that the client asks again."""

    def __hash__(self) -> int: ...


class Broker:
    """All state of one broker. See the module for who may call what, and under which lock."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        broker_id: int,
        clock: Clock,
        logs: LogManager,
        worker: Worker,
        registrar: ZooKeeperClient,
        pool: WorkPool | None = None,
    ) -> None:
        self.config = config
        self.broker_id = broker_id
        self.clock = clock
        self.logs = logs
        self.worker = worker
        self.registrar = registrar
        self.pool: WorkPool = pool or InlineWorkPool()
        """Where a handler continues a request that takes more than a few milliseconds."""
        self.pieces = PieceBudget()
        """Bounds what is converted for old consumers and not yet sent."""
        self.image = MetadataCache(registrar.cluster_id)
        self.advertised: Mapping[str, BrokerAddress] = {}
        """By the listener's name, where its clients reach this broker. Set once, when the ports are known."""
        self.partitions: dict[TopicPartition, Partition] = {}
        """What this broker serves. ``serve`` and ``serve_no_more`` change it."""
        self.served_version = 0
        """How often ``partitions`` has changed."""
        self.encoded_metadata = EncodedMetadata()
        self.waiting: Purgatory[Ticket] = Purgatory()
        self.controller = Controller(broker_id, delete_topics=config.delete_topics)
        self.quotas = Quotas(config.quotas)
        self.throttles = Throttles(
            broker_id, config.replication.throttle_windows, config.replication.throttle_window_ms
        )
        self.access_control = AccessControl()
        """Who may do what: everybody everything, where no authorizer is configured."""
        self.acl_manager: AclManager | None = None
        """Where the rules are changed. Set once, before this broker serves; None: there are none."""
        self.producer_ids = ProducerIds()
        self.deadline_added: Callable[[int], None] = lambda deadline_ms: None
        """Told of each new deadline (monotonic ms), so that the housekeeper wakes in time."""
        self.propose_isr: Callable[[Partition, LeaderAndIsr], None] = lambda partition, wanted: None
        """Told of each ISR that a leader here wants written."""
        self.log_failed: Callable[[TopicPartition, str], None] = lambda topic_partition, complaint: None
        """Told, from within steps too, of each log that does not take what its leader here writes, and with
        which line the log of this broker says so ("" for none)."""
        self.unwritable: set[TopicPartition] = set()
        """Whose logs take nothing at the moment: they are not copied. For the module ``failing_logs``."""
        self.request_jobs = RequestJobs(worker, clock)
        """What clients ask of ZooKeeper."""
        self.creations = TopicCreations(worker, clock, registrar.create_topics)
        """Topics that wait to be made."""
        self._lock = threading.Lock()
        self._after: list[Callable[[], None]] = []
        self._stopping = False

    def address_for(self, listener: str, broker: BrokerAddress) -> BrokerAddress:
        """What a client that asked by ``listener`` is to be told of ``broker``: every answer with an address
        takes it from here. Another broker's listeners are not known, only what it registered.
        """
        return self.advertised.get(listener, broker) if broker.broker_id == self.broker_id else broker

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """A partition that this broker has.

        Raises BrokerError NOT_LEADER_FOR_PARTITION for another's, UNKNOWN_TOPIC_OR_PARTITION for nobody's.
        """
        partition = self.partitions.get(topic_partition)
        if partition is None:
            known = self.image.leadership(topic_partition) is not None
            raise BrokerError(
                ErrorCode.NOT_LEADER_FOR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                str(topic_partition),
            )
        return partition

    def serve(self, partition: Partition) -> None:
        """From within a step: this broker has a partition from now on."""
        self.partitions[partition.topic_partition] = partition
        self.served_version += 1

    def serve_no_more(self, topic_partition: TopicPartition) -> Partition | None:
        """From within a step: this broker has a partition no more; None where it had none."""
        self.served_version += 1
        return self.partitions.pop(topic_partition, None)

    def readable_up_to(self, topic_partition: TopicPartition, log: Log) -> int:
        """The high watermark of a log; the log's start where this broker does not serve it."""
        partition = self.partitions.get(topic_partition)
        return log.start_offset if partition is None else partition.high_watermark

    def raise_counters(self) -> None:
        """Have ZooKeeper count above all ids that are in use here. A job: may be run twice."""
        self.raise_producer_ids()
        if self.config.generate_broker_id:
            known = {self.broker_id, *self.image.brokers}
            raise_broker_ids(self.registrar.store, known, self.config.reserved_broker_max_id)

    def raise_producer_ids(self) -> None:
        """Have ZooKeeper count above all producer ids that are in use here. A job: may be run twice."""
        try:
            counted = self.registrar.raise_producer_ids(self.broker_id, self.highest_producer_id())
        except (CoordinationLost, SessionExpired):
            raise
        except CoordinationError as error:
            _log.error("producer ids may be given out twice: %s", error)
        else:
            if counted is not None:
                self.run(lambda: self.producer_ids.compare(counted))

    def highest_producer_id(self) -> int:
        """The largest producer id that is in use, as far as this broker knows; -1 for none."""
        return max(self.producer_ids.highest_taken, highest_producer_id(self.logs.logs().values()))

    # --- the core -------------------------------------------------------------------------------------------

    def run(self, step: Callable[[], None]) -> None:
        """Run one step under the core's lock, then do what it left to do.

        Not to be called from within a step.
        """
        with self._lock:
            try:
                step()
            finally:
                after, self._after = self._after, []
        for action in after:
            try:
                action()
            except Exception:  # noqa: BLE001
                # Others' answers wait behind it, and the thread belongs to somebody else.
                _log.exception("something that a step left to do failed")

    def after(self, action: Callable[[], None]) -> None:
        """From within a step: do ``action`` once the lock is free. This is where answers are sent."""
        self._after.append(action)

    def answer(self, ticket: Ticket) -> None:
        """From within a step: complete ``ticket`` once the lock is free."""

        def complete() -> None:
            try:
                ticket.complete()
            except Exception:  # noqa: BLE001
                _log.exception("a request that waited cannot be answered")
                ticket.abandon("its answer could not be made")

        self.after(complete)

    def wait(self, ticket: Ticket, keys: list[Hashable], deadline_ms: int) -> None:
        """From within a step: keep ``ticket`` until one of ``keys`` is touched or the deadline has come."""
        if self._stopping:
            self.answer(ticket)
            return
        self.waiting.add(ticket, keys, deadline_ms)
        self.after(lambda: self.deadline_added(deadline_ms))

    def stop_waiting(self) -> None:
        """Answer every request that waits, and let none wait from now on: the broker is about to stop."""

        def step() -> None:
            self._stopping = True
            for ticket in self.waiting.clear():
                self.answer(ticket)

        self.run(step)

    def touch(self, key: Hashable) -> None:
        """From within a step: something happened to ``key``; complete the tickets that this satisfies."""
        for ticket in self.waiting.tickets_of(key):
            if ticket.satisfied(key):
                self.waiting.remove(ticket)
                self.answer(ticket)

    def expire(self) -> int | None:
        """Complete the tickets whose time is up; return the next deadline (monotonic ms)."""
        next_deadline: list[int | None] = [None]

        def step() -> None:
            for ticket in self.waiting.take_expired(self.clock.monotonic_ms()):
                self.answer(ticket)
            next_deadline[0] = self.waiting.next_deadline_ms()

        self.run(step)
        return next_deadline[0]
