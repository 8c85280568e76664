"""Administration of transactions (KIP-664): lists and describes them, finds and aborts hanging ones.

A transaction is known to its coordinator, by transactional id, and to the leaders of its partitions, by
producer id. It is hanging if a leader has it open and no coordinator will end it: consumers with
read_committed read no further then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from minikafka.base.config.unknown_names import near_matches
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, RemoteWireError
from minikafka.base.ids import BrokerAddress, TopicPartition, numbers_by_topic
from minikafka.base.text import first_of
from minikafka.clients.group.coordinator_client import found_coordinator
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import denied, is_retriable, raise_for_code
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from minikafka.wire.apis.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribedTransaction,
    DescribeTransactionsRequest,
)
from minikafka.wire.apis.find_coordinator import FIND_COORDINATOR, CoordinatorType, FindCoordinatorRequest
from minikafka.wire.apis.list_transactions import ANY_DURATION, LIST_TRANSACTIONS, ListTransactionsRequest
from minikafka.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

T = TypeVar("T")

MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""The default of brokers' ``transaction.max.timeout.ms``."""
_BATCH = 500
"""The most partitions in a request, so that a large one does not keep a broker busy."""
_DURATIONS_SINCE = 1
_TYPES_SINCE = 1
_EXPLAIN_TIMEOUT_MS = 2_000
_NEEDS_3_0 = "administration of transactions needs brokers with transactions, of Kafka 3.0 or newer"


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: BrokerAddress


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The transaction of a transactional id. Once its end is decided, ``partitions`` are those whose markers
    are not written yet; they are empty if it is complete, or there was none. ``start_time_ms`` is also that
    of one that is complete, and None if this producer has begun none.
    """

    transactional_id: str
    coordinator: BrokerAddress
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as the leader of a partition knows it.

    last_timestamp_ms  the time of its last batch
    coordinator_epoch  of the last marker; -1: there is none
    start_offset       the first offset of its open transaction; None: it has none
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The first open transaction in a partition. None: its id, or its start, is not known or may not be seen
    by this user.
    """

    producer: ProducerState
    transactional_id: str | None
    start_time_ms: int | None


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """The marker that ends a transaction in one partition."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    @classmethod
    def of(cls, producer: ProducerState) -> AbortTransactionSpec:
        """Return the marker for a producer's open transaction."""
        epochs = producer.producer_epoch, producer.coordinator_epoch
        return cls(producer.topic_partition, producer.producer_id, *epochs)


class TransactionAdmin:
    """Administration of transactions. Thread-safe. It owns no connections: ``cluster`` does.

    All calls raise UNSUPPORTED_VERSION with brokers that have no transactions, or are older than Kafka 3.0.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    # --- at the coordinators

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers that pass the filters and may be described, by name.

        longer_than_ms: only transactions that have been open for longer; needs Kafka 3.8.
        """
        deadline = self._cluster.deadline(timeout_ms)
        duration_ms = ANY_DURATION if longer_than_ms is None else longer_than_ms
        request = ListTransactionsRequest(tuple(states), tuple(producer_ids), duration_ms)
        brokers = self._cluster.metadata(None, timeout_ms=timeout_ms).brokers.values()
        found = [row for broker in brokers for row in self._list_of(broker, request, deadline)]
        return sorted(found, key=lambda row: row.transactional_id)

    def _list_of(
        self, broker: BrokerAddress, request: ListTransactionsRequest, deadline: Deadline
    ) -> list[TransactionListing]:
        def build(version: int) -> ListTransactionsRequest:
            if request.duration_filter != ANY_DURATION and version < _DURATIONS_SINCE:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{broker} cannot filter transactions by duration; this needs Kafka 3.8 or newer",
                )
            return request

        def attempt() -> list[TransactionListing]:
            connection = self._cluster.connection_to(broker)
            reply = self._supported(lambda: connection.send(LIST_TRANSACTIONS, build, deadline))
            response = reply.result(deadline.remaining_ms())
            raise_for_code(response.error_code, None, f"listing the transactions of {broker}")
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"{broker} has no transaction state {unknown}")
            return [
                TransactionListing(row.transactional_id, row.producer_id, row.transaction_state, broker)
                for row in response.transaction_states
            ]

        return self._cluster.retry(f"listing the transactions of {broker}", deadline, attempt)

    def describe(self, transactional_id: str, *, timeout_ms: int | None = None) -> TransactionDescription:
        """Return the transaction of an id. Raises TRANSACTIONAL_ID_NOT_FOUND if its coordinator has none."""
        found = self.find(transactional_id, timeout_ms=timeout_ms)
        if found is None:
            hint = near_matches(transactional_id, self._names())
            raise BrokerError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                f"there is no transactional id {transactional_id!r}{hint} (see `minikafka txn list`)",
            )
        return found

    def find(self, transactional_id: str, *, timeout_ms: int | None = None) -> TransactionDescription | None:
        """Return the transaction of an id; None if its coordinator has none."""
        deadline = self._cluster.deadline(timeout_ms)
        what = f"describing transactional id {transactional_id!r}"

        def attempt() -> TransactionDescription | None:
            coordinator = self._coordinator(transactional_id, deadline)
            (row,) = self._described(coordinator, [transactional_id], deadline)
            return _description(row, coordinator)

        return self._cluster.retry(what, deadline, attempt)

    def _names(self) -> list[str]:
        """Return all ids for a hint; empty if a broker does not respond."""
        try:
            return [row.transactional_id for row in self.list_transactions(timeout_ms=_EXPLAIN_TIMEOUT_MS)]
        except MinikafkaError:
            return []

    def _coordinator(self, transactional_id: str, deadline: Deadline) -> BrokerAddress:
        """Return the coordinator of an id, in one attempt."""
        connection = self._cluster.any_connection(deadline)
        self._supported(lambda: connection.version(DESCRIBE_TRANSACTIONS, deadline))

        def build(version: int) -> FindCoordinatorRequest:
            if version < _TYPES_SINCE:  # the id would be looked up as a group
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"{connection.name}: {_NEEDS_3_0}")
            return FindCoordinatorRequest(transactional_id, CoordinatorType.TRANSACTION, (transactional_id,))

        response = connection.send(FIND_COORDINATOR, build, deadline).result(deadline.remaining_ms())
        row = found_coordinator(response)
        _raise_for_id(row.error_code, "finding the coordinator of", transactional_id)
        return BrokerAddress(row.node_id, row.host, row.port)

    def _described(
        self, coordinator: BrokerAddress, ids: Collection[str], deadline: Deadline
    ) -> tuple[DescribedTransaction, ...]:
        request = DescribeTransactionsRequest(tuple(ids))
        connection = self._cluster.connection_to(coordinator)
        reply = self._supported(lambda: connection.send(DESCRIBE_TRANSACTIONS, lambda _: request, deadline))
        rows = reply.result(deadline.remaining_ms()).transaction_states
        if {row.transactional_id for row in rows} != set(ids):
            raise RemoteWireError(
                f"{coordinator} described other transactional ids than {first_of(list(ids), 3)}"
            )
        return rows

    def _describe_listed(
        self, listed: Iterable[TransactionListing], deadline: Deadline
    ) -> dict[int, TransactionDescription]:
        """Return the transactions of listed ids, by producer id; ids that are gone are left out."""
        by_coordinator: dict[BrokerAddress, list[str]] = {}
        for listing in listed:
            by_coordinator.setdefault(listing.coordinator, []).append(listing.transactional_id)
        found: list[TransactionDescription | None] = []
        for coordinator, ids in by_coordinator.items():
            for row in self._described(coordinator, ids, deadline):
                try:
                    found.append(_description(row, coordinator))
                except BrokerError as error:
                    if not is_retriable(error):
                        raise
                    # The coordinator has moved since.
                    found.append(self.find(row.transactional_id, timeout_ms=deadline.remaining_ms()))
        return {each.producer_id: each for each in found if each is not None}

    # --- at the leaders

    def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers of partitions, as their leaders know them, or the replicas of ``broker_id``.

        Raises BrokerError, which names the partition, for one that does not exist or may not be read.
        """
        deadline = self._cluster.deadline(timeout_ms)
        pending = dict.fromkeys(sorted(partitions))
        wanted = tuple(pending)
        found: dict[TopicPartition, tuple[ProducerState, ...]] = {}

        def attempt() -> None:
            problem: BrokerError | None = None
            for target, chunk in self._targets(pending, broker_id, deadline):
                for tp, code, message, producers in self._producers_of(target, chunk, deadline):
                    if code is ErrorCode.NONE:
                        found[tp] = producers
                        pending.pop(tp, None)
                        continue
                    problem = _producers_error(tp, code, message, target)
                    if not is_retriable(problem):
                        raise problem
                    if broker_id is not None:
                        raise MinikafkaError(str(problem))  # nobody else is asked, so that it is final
                    self._cluster.invalidate(tp.topic)
            if problem is not None:
                raise problem
            if pending:
                raise RemoteWireError(f"{first_of(list(pending), 3)} missing in a response")

        self._cluster.retry(f"describing the producers of {first_of(wanted, 3)}", deadline, attempt)
        return {tp: found[tp] for tp in wanted}

    def _targets(
        self, partitions: Iterable[TopicPartition], broker_id: int | None, deadline: Deadline
    ) -> Iterator[tuple[int, list[TopicPartition]]]:
        """Yield brokers and the partitions to ask them for."""
        wanted = list(partitions)
        groups: dict[int, list[TopicPartition]] = {}
        if broker_id is not None:
            groups[broker_id] = wanted
        else:
            known = self._cluster.metadata(
                {tp.topic for tp in wanted}, timeout_ms=deadline.remaining_ms(), creates_topics=False
            )
            for tp in wanted:
                try:
                    leader = known.require_leader(tp)
                except BrokerError:
                    self._cluster.invalidate(tp.topic)
                    raise
                groups.setdefault(leader.broker_id, []).append(tp)
        for target, found in groups.items():
            for first in range(0, len(found), _BATCH):
                yield target, found[first : first + _BATCH]

    def _producers_of(
        self, broker_id: int, partitions: list[TopicPartition], deadline: Deadline
    ) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, tuple[ProducerState, ...]]]:
        topics = numbers_by_topic(partitions).items()
        request = DescribeProducersRequest(
            tuple(DescribeProducersTopic(name, tuple(numbers)) for name, numbers in topics)
        )
        reply = self._supported(
            lambda: self._cluster.send(broker_id, DESCRIBE_PRODUCERS, request, deadline=deadline)
        )
        for topic in reply.result(deadline.remaining_ms()).topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.index)
                producers = tuple(
                    ProducerState(
                        tp,
                        row.producer_id,
                        row.producer_epoch,
                        row.last_sequence,
                        row.last_timestamp,
                        row.coordinator_epoch,
                        None if row.current_txn_start_offset < 0 else row.current_txn_start_offset,
                    )
                    for row in part.active_producers
                )
                yield tp, ErrorCode.of(part.error_code), part.error_message, producers

    def first_open(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OpenTransaction]:
        """Return the first open transaction of each partition that has one: readers with read_committed wait
        for its end.
        """
        deadline = self._cluster.deadline(timeout_ms)
        described = self.describe_producers(partitions, timeout_ms=timeout_ms)
        first = {
            tp: min(opened, key=lambda row: row.start_offset or 0)
            for tp, producers in described.items()
            if (opened := [row for row in producers if row.start_offset is not None])
        }
        known: Mapping[int, TransactionDescription] = {}
        with contextlib.suppress(MinikafkaError):  # the producers alone are worth telling
            known = self._transactions_of({row.producer_id for row in first.values()}, deadline)
        return {tp: _open(row, known.get(row.producer_id)) for tp, row in first.items()}

    def _transactions_of(
        self, producer_ids: Collection[int], deadline: Deadline
    ) -> dict[int, TransactionDescription]:
        """Return the transactions of producers, by producer id, as far as coordinators know them."""
        if not producer_ids:
            return {}
        listed = self.list_transactions(producer_ids=producer_ids, timeout_ms=deadline.remaining_ms())
        return self._describe_listed(listed, deadline)

    # --- hanging transactions

    def find_hanging(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        max_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        timeout_ms: int | None = None,
    ) -> list[ProducerState]:
        """Return the hanging transactions of partitions: open, without a batch for ``max_timeout_ms``, and of
        no coordinator. ``broker_id``: as in ``describe_producers``.

        Transactions that this user may not describe look hanging: it needs Describe on all transactional ids.
        """
        deadline = self._cluster.deadline(timeout_ms)
        now_ms = self._cluster.clock.now_ms()

        def opened(wanted: Iterable[TopicPartition]) -> list[ProducerState]:
            found = self.describe_producers(wanted, broker_id=broker_id, timeout_ms=deadline.remaining_ms())
            return [row for rows in found.values() for row in rows if row.start_offset is not None]

        old = [row for row in opened(partitions) if now_ms - row.last_timestamp_ms > max_timeout_ms]
        known = self._transactions_of({row.producer_id for row in old}, deadline)
        hanging = [row for row in old if not _will_end(row, known)]
        if not hanging:
            return []
        # One that its coordinator has ended between the two requests is not hanging.
        still = {_key(row) for row in opened({row.topic_partition for row in hanging})}
        return [row for row in hanging if _key(row) in still]

    def open_transaction(
        self, topic_partition: TopicPartition, start_offset: int, *, timeout_ms: int | None = None
    ) -> ProducerState:
        """Return the producer of the open transaction that starts at an offset. Raises BrokerError
        INVALID_TXN_STATE if there is none.
        """
        described = self.describe_producers([topic_partition], timeout_ms=timeout_ms)
        opened = [row for row in described[topic_partition] if row.start_offset is not None]
        for row in opened:
            if row.start_offset == start_offset:
                return row
        starts = ", ".join(map(str, sorted(row.start_offset or 0 for row in opened)))
        others = f"open ones start at {starts}" if starts else "none is open"
        raise BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"no open transaction of {topic_partition} starts at offset {start_offset}: {others}",
        )

    def coordinated(
        self, producer: ProducerState, *, timeout_ms: int | None = None
    ) -> TransactionDescription | None:
        """Return the transaction whose coordinator will end it in the producer's partition; None for a
        hanging one.
        """
        known = self._transactions_of([producer.producer_id], self._cluster.deadline(timeout_ms))
        return known[producer.producer_id] if _will_end(producer, known) else None

    def abort(self, spec: AbortTransactionSpec, *, timeout_ms: int | None = None) -> None:
        """Write the marker that aborts a transaction in one partition. Needs Alter or ClusterAction on the
        cluster.

        A coordinator epoch below 0, of a producer without a marker yet, is sent as 0. Not sent twice: if the
        response is lost, the error says so.
        """
        deadline = self._cluster.deadline(timeout_ms)
        tp = spec.topic_partition
        marker = WritableTxnMarker(
            spec.producer_id,
            spec.producer_epoch,
            False,
            (WritableTxnMarkerTopic(tp.topic, (tp.partition,)),),
            max(0, spec.coordinator_epoch),
        )

        def attempt() -> None:
            leader = self._cluster.leader(tp, deadline.remaining_ms())
            connection = self._cluster.connection(leader.broker_id)
            request = WriteTxnMarkersRequest((marker,))
            reply = connection.send(WRITE_TXN_MARKERS, lambda _: request, deadline)
            try:
                response = reply.result(deadline.remaining_ms())
            except (NetworkError, RemoteWireError) as error:
                raise MinikafkaError(
                    f"no response about the marker for {tp}, which may be written: {error}; look with "
                    f"`minikafka txn find-hanging --topic {tp.topic} --partition {tp.partition}` "
                    "before you try again"
                ) from None
            codes = [
                part.error_code
                for row in response.markers
                for topic in row.topics
                for part in topic.partitions
            ]
            code = ErrorCode.of(codes[0]) if codes else ErrorCode.UNKNOWN
            if code is not ErrorCode.NONE:
                self._cluster.invalidate(tp.topic)
                raise _abort_error(spec, code)

        self._cluster.retry(f"aborting a transaction of {tp}", deadline, attempt)

    def _supported(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, with the needed release in the error of an unsupported request."""
        try:
            return call()
        except BrokerError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION or "needs" in error.detail:
                raise
            raise BrokerError(error.code, f"{error.detail}; {_NEEDS_3_0}") from None


def _description(row: DescribedTransaction, coordinator: BrokerAddress) -> TransactionDescription | None:
    """Return a described transaction; None if the coordinator does not know the id. Raises its error."""
    if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    _raise_for_id(row.error_code, "describing", row.transactional_id)
    return TransactionDescription(
        row.transactional_id,
        coordinator,
        row.producer_id,
        row.producer_epoch,
        row.transaction_state,
        row.transaction_timeout_ms,
        None if row.transaction_start_time_ms < 0 else row.transaction_start_time_ms,
        tuple(sorted(TopicPartition(topic.topic, n) for topic in row.topics for n in topic.partitions)),
    )


def _raise_for_id(code: int, doing: str, transactional_id: str) -> None:
    refused = code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    hint = f"; {denied('Describe', f'TransactionalId:{transactional_id}')}" if refused else ""
    raise_for_code(code, None, f"{doing} transactional id {transactional_id!r}{hint}")


def _producers_error(tp: TopicPartition, code: ErrorCode, message: str | None, broker_id: int) -> BrokerError:
    hint = f"; {denied('Read', f'Topic:{tp.topic}')}" if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else ""
    more = f": {message}" if message else ""
    return BrokerError(code, f"describing the producers of {tp} at broker {broker_id}{more}{hint}")


def _abort_error(spec: AbortTransactionSpec, code: ErrorCode) -> BrokerError:
    reasons = {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: denied("Alter or ClusterAction", "Cluster"),
        ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has a newer epoch than "
        f"{spec.producer_epoch}, so that the transaction has ended",
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a coordinator with a newer epoch than "
        f"{max(0, spec.coordinator_epoch)} has written a marker of this producer",
    }
    why = f": {reasons[code]}" if code in reasons else ""
    what = f"aborting the transaction of producer {spec.producer_id} in {spec.topic_partition}"
    return BrokerError(code, f"{what}{why}")


def _open(producer: ProducerState, known: TransactionDescription | None) -> OpenTransaction:
    """Return an open transaction, with what its coordinator knows of it."""
    if known is None:
        return OpenTransaction(producer, None, None)
    is_same = producer.topic_partition in known.partitions
    return OpenTransaction(producer, known.transactional_id, known.start_time_ms if is_same else None)


def _will_end(producer: ProducerState, known: Mapping[int, TransactionDescription]) -> bool:
    """Return True if a coordinator will write the marker of an open transaction."""
    found = known.get(producer.producer_id)
    return found is not None and producer.topic_partition in found.partitions


def _key(producer: ProducerState) -> tuple[TopicPartition, int, int | None]:
    return producer.topic_partition, producer.producer_id, producer.start_offset
