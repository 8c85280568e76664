"""Verification that partitions are in a producer's transaction, by its coordinator (KIP-890).

The leader of a partition asks before it appends the first batch of a transaction: data that arrives after the
marker would begin a transaction that nobody ends. A coordinator on this broker is asked directly. Each other
broker gets one AddPartitionsToTxn request at a time, with all that is to be verified there; what comes
meanwhile goes into the next one. When a request fails, or the broker does not answer, the result is
NETWORK_EXCEPTION: the producer tries again.

A coordinator that has been replaced may not have heard of it, and this broker neither: for it, a transaction
that its successor has ended would still be open. So a marker here from a newer coordinator means that nobody
can be asked yet. Kafka asks the former one.

A broker that does not know ``verify_only`` is not asked: its transactions count as verified, as in Kafka.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from minikafka.base.clock import NEVER_MS, Clock
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, ProducerIdAndEpoch, TopicPartition, numbers_by_topic
from minikafka.base.values import fast_value
from minikafka.net.interfaces import Connector
from minikafka.server.core.broker import Broker
from minikafka.server.inter_broker_connection import InterBrokerConnection, Peer, first_due_ms, step_all
from minikafka.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

_log = logging.getLogger(__name__)

RETRY_MS = 100
"""The pause before the next request after one has failed."""
MAX_TRANSACTIONS = 1_000
"""The most transactions in one request."""
_VERIFY_SINCE = 4
"""The first version of AddPartitionsToTxn with ``verify_only``."""

Results = Mapping[TopicPartition, ErrorCode]
Done = Callable[[Results], None]
"""Called with the result of each partition, outside of the core's lock, on any thread."""


class Coordinator(Protocol):
    """The part of the transaction coordinator of this broker that is used here."""

    def partition_of(self, transactional_id: str) -> TopicPartition:
        """Return the partition of the transaction state topic that a transactional id belongs to."""

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> Results:
        """Return for each partition whether it is in the open transaction. Not called within a step."""


def error_for_producer(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return the error of a verification as producers know it; ``knows_abortable``: TRANSACTION_ABORTABLE."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


@fast_value
class _Verification:
    """Partitions to verify, and the callback for the results."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]
    done: Done

    def finish(self, results: Results) -> None:
        try:
            self.done({key: results.get(key, ErrorCode.UNKNOWN) for key in self.partitions})
        except Exception:  # noqa: BLE001 - one producer's request must not fail those of others
            _log.exception("unexpected error after the verification of %s", self.transactional_id)

    def fail(self, error: ErrorCode) -> None:
        self.finish(dict.fromkeys(self.partitions, error))


class CoordinatorConnection(InterBrokerConnection):
    """The verifications by the coordinator on one broker, and the connection to it."""

    def __init__(
        self, own_id: int, address: BrokerAddress, connector: Connector, clock: Clock, timeout_ms: int
    ) -> None:
        super().__init__(Peer(address, connector, f"broker-{own_id}-transactions"), clock, timeout_ms)
        self._lock = threading.Lock()
        self._waiting: list[_Verification] = []
        self._in_flight: list[_Verification] = []
        self._closed = False
        self._warned = False

    def verify(self, verification: _Verification) -> None:
        """Queue a verification. Any thread may call this."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting.append(verification)
        if closed:
            verification.fail(ErrorCode.NETWORK_EXCEPTION)
        else:
            self.wake()

    def ask(self) -> bool:
        if not self._waiting:
            return False
        if not self.peer.negotiated:
            self.peer.negotiate()
            return True
        version = self.peer.version(ADD_PARTITIONS_TO_TXN)
        self._in_flight, request = self._next_request()
        if version >= _VERIFY_SINCE:
            self.peer.send(ADD_PARTITIONS_TO_TXN, version, request)
            return True
        if not self._warned:
            self._warned = True
            _log.warning("%s cannot verify transactions: they count as verified", self.peer.address)
        for verification in self._take_in_flight():
            verification.fail(ErrorCode.NONE)
        return True

    def _next_request(self) -> tuple[list[_Verification], AddPartitionsToTxnRequest]:
        """Take what one request can verify: a transactional id may be in it once, for one producer."""
        with self._lock:
            producers: dict[str, ProducerIdAndEpoch] = {}
            partitions: dict[str, dict[TopicPartition, None]] = {}
            taken, left = [], []
            for verification in self._waiting:
                name = verification.transactional_id
                full = len(producers) == MAX_TRANSACTIONS and name not in producers
                if full or producers.get(name, verification.producer) != verification.producer:
                    left.append(verification)
                    continue
                producers[name] = verification.producer
                partitions.setdefault(name, {}).update(dict.fromkeys(verification.partitions))
                taken.append(verification)
            self._waiting = left
        transactions = (
            AddPartitionsToTxnTransaction(name, *producer, True, _topics(partitions[name]))
            for name, producer in producers.items()
        )
        return taken, AddPartitionsToTxnRequest(transactions=tuple(transactions))

    def take(self, response: Any) -> None:
        if not isinstance(response, AddPartitionsToTxnResponse):
            return
        asked = self._take_in_flight()
        if response.error_code != ErrorCode.NONE:
            error = ErrorCode.of(response.error_code)
            _log.error("%s refused to verify transactions: %s", self.peer.address, error.name)
            if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                error = ErrorCode.INVALID_TXN_STATE  # a fault of the brokers, not of the producer
            for verification in asked:
                verification.fail(error)
            return
        found = {
            result.transactional_id: {
                TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.partition_error_code)
                for topic in result.topic_results
                for row in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        for verification in asked:
            verification.finish(found.get(verification.transactional_id, {}))

    def next_ms(self) -> int:
        return 0 if self._waiting else NEVER_MS

    def failed(self, reason: str) -> int:
        self._fail_all()
        return RETRY_MS

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.close()

    def close(self) -> None:
        """Fail all verifications, now and later. Called when no step runs any more."""
        with self._lock:
            self._closed = True
        self.peer.close()
        self._fail_all()

    def _take_in_flight(self) -> list[_Verification]:
        taken, self._in_flight = self._in_flight, []
        return taken

    def _fail_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for verification in (*self._take_in_flight(), *waiting):
            verification.fail(ErrorCode.NETWORK_EXCEPTION)


def _topics(partitions: Iterable[TopicPartition]) -> tuple[AddPartitionsToTxnTopic, ...]:
    by_topic = numbers_by_topic(partitions)
    return tuple(AddPartitionsToTxnTopic(name, tuple(numbers)) for name, numbers in by_topic.items())


class AddPartitionsVerifier:
    """Verifies transactions of the producers that write to this broker.

    ``coordinator``: that of this broker. ``spawn`` runs a connection on a thread; None if the caller steps
    them.
    """

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        connector: Connector,
        spawn: Callable[[InterBrokerConnection, str], None] | None,
    ) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._connector = connector
        self._spawn = spawn
        self._lock = threading.Lock()
        self._connections: dict[BrokerAddress, CoordinatorConnection] = {}
        self._stopped = False

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        done: Done,
    ) -> None:
        """Call ``done`` with NONE for each partition that is in the open transaction, otherwise its error.

        Any thread may call this, outside of steps. ``done`` is called now or later.
        """
        broker = self._broker
        leadership = broker.leadership(self._coordinator.partition_of(transactional_id))
        verification = _Verification(transactional_id, producer, tuple(partitions), done)
        if leadership is None or self._has_newer_marker(verification, leadership.leader_epoch):
            verification.fail(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
            return
        leader = leadership.leader
        if leader == broker.broker_id:
            done(self._coordinator.verify_partitions(transactional_id, producer, partitions))
            return
        addresses = broker.metadata_cache.addresses(broker.config.inter_broker.listener)
        connection = None
        if leader in addresses:
            connection = self._connection_to(addresses[leader], addresses)
        if connection is None:
            verification.fail(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
        else:
            connection.verify(verification)

    def _has_newer_marker(self, verification: _Verification, coordinator_epoch: int) -> bool:
        """Return whether a newer coordinator has ended a transaction of the producer here."""
        producer_id = verification.producer.producer_id
        logs = map(self._broker.partitions.get, verification.partitions)
        return any(
            partition is not None
            and partition.log.producers.coordinator_epoch(producer_id) > coordinator_epoch
            for partition in logs
        )

    def _connection_to(
        self, address: BrokerAddress, addresses: Mapping[int, BrokerAddress]
    ) -> CoordinatorConnection | None:
        """Return the connection to a broker; None if this one has stopped."""
        with self._lock:
            if self._stopped:
                return None
            connection = self._connections.get(address)
            if connection is None:
                alive = set(addresses.values())
                gone = [self._connections.pop(key) for key in list(self._connections) if key not in alive]
                connection = CoordinatorConnection(
                    self._broker.broker_id,
                    address,
                    self._connector,
                    self._broker.clock,
                    self._broker.config.replication.socket_timeout_ms,
                )
                self._connections[address] = connection
                if self._spawn is not None:
                    self._spawn(connection, f"transaction-verifier-{address.broker_id}")
            else:
                gone = []
        self._end(gone)
        return connection

    def _end(self, connections: Iterable[CoordinatorConnection]) -> None:
        for connection in connections:
            connection.stop()
            if self._spawn is None:
                connection.close()

    def step(self) -> bool:
        """Run one step of each connection. Return whether any had work."""
        return step_all(self._connections.values())

    def due_ms(self) -> int:
        """Return the time (monotonic) before which ``step`` has no work if nothing is delivered."""
        return first_due_ms(self._connections.values())

    def stop(self) -> None:
        """Close all connections, and open none from now on: a request may still be served in the pool."""
        with self._lock:
            self._stopped = True
            connections, self._connections = list(self._connections.values()), {}
        self._end(connections)
