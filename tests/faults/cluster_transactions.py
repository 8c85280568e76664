"""The simulation with transactional clients: writers, a copier, and readers with read_committed.

They record their operations in a ``TransactionHistory``. A client that does not know the end of a transaction
gets a new epoch first, as after a restart, and so it does after every response that was lost on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, iterate
from minikafka.records.scan.isolation import without_aborted
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minikafka.wire.apis.end_txn import EndTxnRequest
from minikafka.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from minikafka.wire.apis.find_coordinator import CoordinatorType, FindCoordinatorRequest
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from minikafka.wire.frame_parts import buffer_of
from tests.faults.anomalies import Poll, shown
from tests.faults.cluster_clients import OK, Call, Client, Committer, Operator, Routine
from tests.faults.cluster_events import MOST_EVENTS
from tests.faults.cluster_machines import World
from tests.faults.cluster_oracle import Broken, Oracle
from tests.faults.cluster_simulation import PROPERTIES, Simulation
from tests.faults.transaction_anomalies import (
    NO_OFFSET,
    OffsetFetch,
    Outcome,
    Transaction,
    TransactionHistory,
    committed_rows,
    find,
)

LIST, COPIES = "list", "copies"
LISTS = (TopicPartition(LIST, 0), TopicPartition(LIST, 1))
COPY = TopicPartition(COPIES, 0)
ALL = (*LISTS, COPY)
READABLE_MS = 10_000
"""The limit of simulated time until all committed messages have been read, after the recovery."""
BRIEF_MS = 400
"""The time-out of the transactions that their coordinator may have to abort."""
ATTEMPTS = 12
"""The attempts of one request in a transaction, before another epoch."""
_AGAIN = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.GROUP_LOAD_IN_PROGRESS}
_RETRIED = {
    *_AGAIN,
    ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
_FATAL = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
"""The errors of an append that no attempt can mend."""


class Failed(Exception):
    """The transaction cannot go on: another epoch must follow."""


class TransactionalClient(Client):
    """A client with one transactional id."""

    def __init__(
        self, world: World, oracle: Oracle, name: str, history: TransactionHistory, timeout_ms: int = 60_000
    ) -> None:
        super().__init__(world, oracle, name)
        self.history = history
        self.transactions = history.add_writer(name)
        self.producer = ProducerIdAndEpoch(-1, -1)
        self.timeout_ms = timeout_ms
        self.sequences: dict[TopicPartition, int] = {}
        self.serial = 0
        self.coordinators: dict[CoordinatorType, int] = {}
        self.begin(self._run())

    def _run(self) -> Routine:
        while True:
            yield from self._get_epoch()
            yield from self.began()
            if self.stopping:
                return
            goes_on = True
            while goes_on and not self.stopping:
                yield self.dice.choice([5, 30, 80])
                goes_on = yield from self.transact()

    def began(self) -> Routine:
        """Do what follows the end of all earlier transactions."""
        yield 0

    def transact(self) -> Routine:
        """Make one transaction. Return False if another epoch must follow."""
        raise NotImplementedError

    # --- requests

    def find(self, kind: CoordinatorType) -> Routine:
        """Return the coordinator of the transactional id, or of the group of the same name."""
        while kind not in self.coordinators:
            body = FindCoordinatorRequest(self.host, kind)
            response = yield Call(self.some_broker(), ApiKey.FIND_COORDINATOR, 1, body)
            if response is not None and response.error_code == OK:
                self.coordinators[kind] = response.node_id
            else:
                yield 60
        return self.coordinators[kind]

    def _get_epoch(self) -> Routine:
        """Get another epoch, which ends a transaction that is open."""
        while True:
            broker = yield from self.find(CoordinatorType.TRANSACTION)
            body = InitProducerIdRequest(self.host, self.timeout_ms)
            response = yield Call(broker, ApiKey.INIT_PRODUCER_ID, 1, body)
            if response is not None and response.error_code == OK:
                self.producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                self.sequences.clear()
                return
            if response is None or response.error_code not in _AGAIN:
                self.coordinators.pop(CoordinatorType.TRANSACTION, None)
            yield self.dice.choice([10, 40])

    def _ask(self, kind: CoordinatorType, key: ApiKey, version: int, body: Any, codes: Any) -> Routine:
        """Send a request of the transaction until it is served. ``codes``: those of a response. Return False
        if a response was lost: then the request may still arrive.
        """
        is_sure = True
        for _ in range(ATTEMPTS):
            broker = yield from self.find(kind)
            response = yield Call(broker, key, version, body, self.dice.choice([100, 700]))
            found = set() if response is None else set(codes(response)) - {OK}
            if response is not None and not found:
                return is_sure
            is_sure = is_sure and response is not None
            if response is None or not found <= _AGAIN:
                self.coordinators.pop(kind, None)
            if not found <= _RETRIED:
                raise Failed(f"{key.name}: {sorted(ErrorCode(code).name for code in found)}")
            yield self.dice.choice([5, 20, 60])
        raise Failed(f"{key.name}: no response")

    def _add(self, partitions: Sequence[TopicPartition]) -> Routine:
        topics: dict[str, list[int]] = {}
        for name in partitions:
            topics.setdefault(name.topic, []).append(name.partition)
        body = AddPartitionsToTxnRequest(
            transactional_id=self.host,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=tuple(AddPartitionsToTxnTopic(topic, tuple(of)) for topic, of in topics.items()),
        )
        return (
            yield from self._ask(
                CoordinatorType.TRANSACTION,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                1,
                body,
                lambda response: [
                    part.partition_error_code
                    for topic in response.results_by_topic
                    for part in topic.results_by_partition
                ],
            )
        )

    def _batch(self, transaction: Transaction, name: TopicPartition, values: list[bytes]) -> ProduceRequest:
        """Return the request for a batch."""
        records = [Record(None, value, 1_700_000_000_000 + self.events.now_ms) for value in values]
        data = build_batch(
            records,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.sequences.get(name, 0),
            transactional=True,
        )
        self.oracle.sending(self.host, name, values, once=True)
        transaction.appends += [(name, value) for value in values]
        topic = ProduceTopic(name.topic, (ProducePartition(name.partition, data),))
        return ProduceRequest(self.host, -1, self.dice.choice([100, 500]), (topic,))

    def _append(self, transaction: Transaction, name: TopicPartition, values: list[bytes]) -> Routine:
        """Append a batch, with as many attempts as it needs."""
        body = self._batch(transaction, name, values)
        for _ in range(ATTEMPTS):
            leader = self.leaders.get(name, 0)
            response = yield Call(leader, ApiKey.PRODUCE, 3, body, self.dice.choice([100, 600]))
            part = None if response is None else response.topics[0].partitions[0]
            if part is not None and part.error_code in {OK, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                self.sequences[name] = self.sequences.get(name, 0) + len(values)
                if part.error_code == OK and part.base_offset >= 0:
                    transaction.places |= {
                        value: part.base_offset + delta for delta, value in enumerate(values)
                    }
                return
            if part is not None and part.error_code in _FATAL:
                raise Failed(f"PRODUCE: {ErrorCode(part.error_code).name}")
            yield self.dice.choice([5, 20, 60])
            yield from self.refresh()
        raise Failed("PRODUCE: no response")

    def _end(self, transaction: Transaction, *, is_sure: bool, chance: float = 0.15) -> Routine:
        """Commit, or abort with this ``chance``. Return False if another epoch must follow."""
        committed = self.dice.random() > chance
        if committed:
            transaction.outcome, transaction.commit_s = Outcome.UNSURE, self.events.now_ms / 1000
        body = EndTxnRequest(self.host, *self.producer, committed)
        was_sure = yield from self._ask(
            CoordinatorType.TRANSACTION, ApiKey.END_TXN, 1, body, lambda response: [response.error_code]
        )
        if committed:
            transaction.outcome = Outcome.COMMITTED
        self.events.note(self.host, f"{transaction.outcome.value}: {transaction.appends}")
        self.oracle.counts[f"transactions {transaction.outcome.value}"] += 1
        return is_sure and was_sure

    def failed(self, transaction: Transaction, failure: Failed) -> None:
        """Count a transaction that cannot go on."""
        self.events.note(self.host, f"{transaction.outcome.value}: {transaction.appends}: {failure}")
        self.oracle.counts[f"transactions {transaction.outcome.value}, failed"] += 1


class TransactionalWriter(TransactionalClient):
    """Appends to the lists."""

    def transact(self) -> Routine:
        if self.dice.random() < 0.1 or not self.leaders:
            yield from self.refresh()
        transaction = Transaction()
        self.transactions.append(transaction)
        try:
            names = self.dice.choice([LISTS, LISTS, LISTS[:1], LISTS[1:]])
            is_sure = yield from self._add(names)
            for name in self.dice.choice([names, names[::-1], names + names[:1]]):
                yield from self._append(transaction, name, self._values())
            if self.dice.random() < 0.1:
                return (yield from self._give_up(transaction, names[0]))
            if self.dice.random() < 0.05:
                yield 2 * BRIEF_MS if self.timeout_ms == BRIEF_MS else 0
            return (yield from self._end(transaction, is_sure=is_sure))
        except Failed as failure:
            self.failed(transaction, failure)
            return False

    def _values(self) -> list[bytes]:
        """Return the next values."""
        first = self.serial
        self.serial += self.dice.choice([1, 1, 2])
        return [b"%s.%d" % (self.host.encode(), number) for number in range(first, self.serial)]

    def _give_up(self, transaction: Transaction, name: TopicPartition) -> Routine:
        """Abort while a batch is on its way, which may arrive later than the marker."""
        body = self._batch(transaction, name, self._values())
        yield Call(self.leaders.get(name, 0), ApiKey.PRODUCE, 3, body, self.dice.choice([1, 5]))
        yield from self._end(transaction, is_sure=False, chance=1.0)
        return False


class ReadsCommitted:
    """The read_committed fetches of a client."""

    def __init__(self, client: Client, polls: list[Poll], names: Sequence[TopicPartition]) -> None:
        self.client = client
        self.polls = polls
        self.names = names
        self.offsets = dict.fromkeys(names, 0)
        self.assignment = 0

    def fetch(self, name: TopicPartition) -> Routine:
        """Return the next committed records of a partition, after they were recorded."""
        client = self.client
        wait_ms = client.dice.choice([0, 30, 100])
        part = FetchPartition(name.partition, -1, self.offsets[name], -1, client.dice.choice([300, 1 << 16]))
        topics = (FetchTopic(name.topic, (part,)),)
        body = FetchRequest(-1, wait_ms, 1, 1 << 20, 1, 0, -1, topics)
        leader = client.leaders.get(name, 0)
        response = yield Call(leader, ApiKey.FETCH, 4, body, wait_ms + 300)
        found = None if response is None else response.topics[0].partitions[0]
        if found is None or found.error_code != OK:
            yield 20
            yield from client.refresh()
            return []
        return self._take(name, found)

    def _take(self, name: TopicPartition, part: Any) -> list[tuple[int, bytes]]:
        start = self.offsets[name]
        data = buffer_of(part.records)
        aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
        try:
            for record in iterate(data):
                self.offsets[name] = max(self.offsets[name], record.offset + 1)
            rows = [
                (record.offset, record.value or b"")
                for record in iterate(without_aborted(memoryview(data), aborted))
                if record.offset >= start and not record.control
            ]
        except BrokerError as error:
            raise Broken(f"{name}: a consumer received damaged data: {error}") from error
        if rows:
            self.polls.append(Poll(self.assignment, name, tuple(rows), self.client.events.now_ms / 1000))
            self.client.oracle.counts["committed messages read"] += len(rows)
        return rows

    def seek(self, offsets: dict[TopicPartition, int]) -> None:
        """Go on at other offsets."""
        self.assignment += 1
        self.offsets.update(offsets)


class CommittedConsumer(Client):
    """Reads all partitions with read_committed, to their ends."""

    def __init__(self, world: World, oracle: Oracle, name: str, history: TransactionHistory) -> None:
        super().__init__(world, oracle, name)
        self.reads = ReadsCommitted(self, history.add_reader(name, ALL), ALL)
        self.begin(self._run())

    def _run(self) -> Routine:
        yield from self.refresh()
        while not self.stopping:
            yield from self.reads.fetch(self.dice.choice(ALL))
            yield self.dice.choice([10, 40, 100])

    def read_to(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read on, to these offsets."""
        self.done = False
        self.begin(self._read_to(ends))

    def _read_to(self, ends: Mapping[TopicPartition, int]) -> Routine:
        for name, end in ends.items():
            while self.reads.offsets[name] < end:
                yield from self.reads.fetch(name)
                yield 20


class Copier(TransactionalClient):
    """Copies the lists with the offsets of its group, and reads with read_committed."""

    def __init__(self, world: World, oracle: Oracle, name: str, history: TransactionHistory) -> None:
        self._fetches = history.fetches.setdefault(name, [])
        self.reads = ReadsCommitted(self, history.add_reader(name, ()), LISTS)
        super().__init__(world, oracle, name, history)

    def began(self) -> Routine:
        """Go on at the committed offsets."""
        offsets = yield from self._committed()
        for name, offset in offsets.items():
            self._fetches.append(OffsetFetch(name, offset, len(self.transactions)))
        self.reads.seek({name: max(offset, 0) for name, offset in offsets.items()})

    def _committed(self) -> Routine:
        parts = tuple(name.partition for name in LISTS)
        body = OffsetFetchRequest(self.host, (OffsetFetchRequestTopic(LIST, parts),), require_stable=True)
        while True:
            broker = yield from self.find(CoordinatorType.GROUP)
            response = yield Call(broker, ApiKey.OFFSET_FETCH, 7, body)
            if response is not None and response.error_code == OK:
                found = {
                    TopicPartition(LIST, part.partition_index): part for part in response.topics[0].partitions
                }
                if all(part.error_code == OK for part in found.values()):
                    return {name: part.committed_offset for name, part in found.items()}
            else:
                self.coordinators.pop(CoordinatorType.GROUP, None)
            yield 40

    def transact(self) -> Routine:
        name = self.dice.choice(LISTS)
        rows = yield from self.reads.fetch(name)
        if not rows:
            return True
        transaction = Transaction(reads=[value for _, value in rows])
        self.transactions.append(transaction)
        number = len(self.transactions)
        values = [b"%s.%d.%s.%d" % (self.host.encode(), number, str(name).encode(), at) for at, _ in rows]
        try:
            is_sure = yield from self._add([COPY])
            transaction.sources = {value: (name, at) for value, (at, _) in zip(values, rows, strict=True)}
            yield from self._append(transaction, COPY, values)
            transaction.offsets[name] = rows[-1][0] + 1
            is_sure = (yield from self._send_offset(name, rows[-1][0] + 1)) and is_sure
            is_sure = (yield from self._end(transaction, is_sure=is_sure)) and is_sure
        except Failed as failure:
            self.failed(transaction, failure)
            return False
        if transaction.outcome is Outcome.ABORTED:
            self.reads.seek({name: rows[0][0]})
        return is_sure

    def _send_offset(self, name: TopicPartition, offset: int) -> Routine:
        added = AddOffsetsToTxnRequest(self.host, *self.producer, self.host)
        was_added = yield from self._ask(
            CoordinatorType.TRANSACTION,
            ApiKey.ADD_OFFSETS_TO_TXN,
            1,
            added,
            lambda response: [response.error_code],
        )
        part = TxnOffsetCommitRequestPartition(name.partition, offset, "")
        body = TxnOffsetCommitRequest(
            self.host, self.host, *self.producer, (TxnOffsetCommitRequestTopic(name.topic, (part,)),)
        )
        was_sent = yield from self._ask(
            CoordinatorType.GROUP,
            ApiKey.TXN_OFFSET_COMMIT,
            1,
            body,
            lambda response: [part.error_code for topic in response.topics for part in topic.partitions],
        )
        return was_added and was_sent

    def final_offsets(self) -> dict[TopicPartition, int]:
        """Return the group's offsets that were fetched last."""
        last = dict.fromkeys(LISTS, NO_OFFSET)
        last.update({fetch.partition: fetch.offset for fetch in self._fetches})
        return last


class TransactionSimulation(Simulation):
    """The run of one seed, with transactional clients."""

    PROPERTIES: ClassVar[Mapping[str, str]] = {
        **PROPERTIES,
        "log.segment.bytes": "1500",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }

    def _begin_clients(self, operator: Operator) -> list[Client]:
        world, oracle = self.world, self.oracle
        # A lost request with markers is repeated after 40 s, and clients ask all the time.
        self.events.most = 4 * MOST_EVENTS
        self.history = history = TransactionHistory()
        operator.create(
            TRANSACTION_STATE_TOPIC,
            {0: operator.some_replicas(3)},
            cleanup_policy="compact",
            min_insync_replicas="2",
        )
        for topic, count in ((LIST, 2), (COPIES, 1)):
            assignment = {number: operator.some_replicas(3) for number in range(count)}
            operator.create(topic, assignment, min_insync_replicas="2")
        self.copier = Copier(world, oracle, "copier", history)
        self.consumers = [CommittedConsumer(world, oracle, f"reader-{number}", history) for number in (0, 1)]
        return [
            TransactionalWriter(world, oracle, "writer-0", history),
            TransactionalWriter(world, oracle, "writer-1", history, BRIEF_MS),
            self.copier,
            *self.consumers,
            Committer(world, oracle, "group", COPY, asks=self.more),
        ]

    def _check_clients(self) -> None:
        super()._check_clients()
        logs = {name: self._committed(name) for name in ALL}
        for consumer in self.consumers:
            consumer.read_to({name: rows[-1][0] + 1 for name, rows in logs.items() if rows})
        until_ms = self.events.now_ms + READABLE_MS
        if not self.events.run(lambda: all(consumer.done for consumer in self.consumers), until_ms):
            raise Broken("committed messages cannot be read")
        found = find(self.history, logs, {self.copier.host: self.copier.final_offsets()})
        if found:
            raise Broken(f"anomalies of transactions: {shown(found)}")

    def _committed(self, name: TopicPartition) -> list[tuple[int, bytes]]:
        """Return the committed messages in the log of a partition's leader."""
        for machine in self.world.machines.values():
            if self.oracle.coordinates(machine.number, name) >= 0:
                assert machine.running is not None
                log = machine.running.broker.partitions[name].log
                content = b"".join(bytes(buffer_of(part.file.read_at(0, part.size))) for part in log.segments)
                return committed_rows(iterate(content))
        raise Broken(f"{name} has no leader")
