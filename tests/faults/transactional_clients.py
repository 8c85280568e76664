"""Transactional clients of a cluster that record their operations in a ``TransactionHistory``.

Each is a thread. The writers append values to the partitions of ``LIST``, some in each transaction; one of
them also reads in its transactions. Copiers copy ``LIST`` to ``COPIES`` with the offsets of their groups. The
readers read all with read_committed. After an unsure outcome a writer either waits for it, or goes away as in
a crash; then one with the same transactional id takes its place, and the old one goes on as a zombie. The
dice of each client have the seed of its name.
"""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    NoCommittedOffset,
    TransactionAbortable,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.consumer import Committed, ConsumerRecord, GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import SendFuture
from minikafka.clients.produce.transactional_producer import TransactionalProducer
from tests.faults.anomalies import Poll
from tests.faults.transaction_anomalies import OffsetFetch, Outcome, Transaction, TransactionHistory
from tests.faults.watched_clients import PATIENCE_S, PATIENT, SILENT, Watched
from tests.support.python_clients import confluent_kafka

LIST, COPIES = "list", "copies"
LIST_PARTITIONS, COPIES_PARTITIONS = 3, 2
LISTS = tuple(TopicPartition(LIST, number) for number in range(LIST_PARTITIONS))
ALL = (*LISTS, *(TopicPartition(COPIES, number) for number in range(COPIES_PARTITIONS)))
EVERY_S = 0.02
"""The time between two transactions of a writer."""
CALL_MS = 2_000
"""The time-out of a producer's call."""
REQUEST_MS = 4_000
CLOSE_MS = 500
BRIEF_MS = 1_500
"""The time-out of the transactions that their coordinator may have to abort."""
ZOMBIES = 2
"""The limit of earlier producers of one transactional id."""
_CONSUMER = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "none",
    "fetch.max.wait.ms": 50,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 300,
}


class CommittedRecords:
    """A consumer with read_committed of ours, which reads given partitions from their starts."""

    def __init__(
        self, cluster: ClusterClient, name: str, polls: list[Poll], partitions: Iterable[TopicPartition]
    ):
        self.positions = dict.fromkeys(partitions, 0)
        self._polls = polls
        self._consumer = GroupConsumer(cluster, {"group.id": f"{name} reads", **_CONSUMER})
        self._consumer.assign(self.positions)
        self._go_on()

    def poll(self, timeout_ms: int) -> list[ConsumerRecord]:
        """Return the next records, after they were recorded."""
        try:
            records = self._consumer.poll_records(timeout_ms)
        except (NoCommittedOffset, BrokerError) as error:
            # A leader that was paused does not know of the new one yet.
            if isinstance(error, BrokerError) and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._go_on()
            return []
        self._polls += polls_of(records, 0)
        for record in records:
            self.positions[record.topic_partition] = record.offset + 1
        return records

    def _go_on(self) -> None:
        for partition, offset in self.positions.items():
            self._consumer.seek(partition, offset)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def polls_of(records: Iterable[ConsumerRecord], assignment: int) -> list[Poll]:
    """Return the polls of records that were returned just now."""
    returned_s = time.monotonic()
    rows: dict[TopicPartition, list[tuple[int, bytes]]] = {}
    for record in records:
        rows.setdefault(record.topic_partition, []).append((record.offset, record.value or b""))
    return [Poll(assignment, partition, tuple(found), returned_s) for partition, found in rows.items()]


class Transacting(Watched):
    """A client with one transactional id, and one producer after the other."""

    def __init__(
        self, name: str, history: TransactionHistory, servers: str, *, timeout_ms: int = 20_000
    ) -> None:
        super().__init__(name, history)  # type: ignore[arg-type]
        self.transactions = history.add_writer(name)
        self.dice = Random(name)
        self.committed = 0
        self.producers = 0
        self.unsure = 0
        self.servers = servers
        self.cluster: ClusterClient
        self._timeout_ms = timeout_ms
        self._zombies: list[TransactionalProducer] = []
        self._open_zombie: TransactionalProducer | None = None
        """The one that is to commit after the next one's start."""

    def run_until_stopped(self) -> None:
        with ExitStack() as opened:
            self.cluster = opened.enter_context(ClusterClient(self.servers, metadata_max_age_ms=5_000))
            self.open(opened)
            opened.callback(self._close_zombies, 0)
            while True:
                # At the end too: it ends the last transaction.
                producer = self._begin_producer()
                self.began(producer)
                stopped = self.stopping.is_set()
                while not self.stopping.wait(EVERY_S) and self.transact(producer):
                    pass
                if stopped:
                    producer.close(CLOSE_MS)
                    return
                self._zombies.append(producer)
                self._close_zombies(ZOMBIES)

    def open(self, opened: ExitStack) -> None:
        """Open what the client needs beside its producers."""

    def began(self, producer: TransactionalProducer) -> None:
        """Called when a producer has initialized its transactions: all earlier ones have ended."""
        old, self._open_zombie = self._open_zombie, None
        if old is None:
            return
        try:
            old.commit()
        except (MinikafkaError, ValueError) as error:
            self.refused[f"commit of a zombie: {type(error).__name__}"] += 1
        else:
            self.history.wrong.append(f"{self.name}: a producer has committed after the next one's start")

    @abstractmethod
    def transact(self, producer: TransactionalProducer) -> bool:
        """Make one transaction. Return False if another producer must take over."""

    def _begin_producer(self) -> TransactionalProducer:
        self.producers += 1
        producer = TransactionalProducer(
            self.cluster,
            {
                "transactional.id": self.name,
                "transaction.timeout.ms": self._timeout_ms,
                "request.timeout.ms": REQUEST_MS,
                "max.block.ms": CALL_MS,
                "linger.ms": self.dice.choice([0, 2]),
            },
        )
        self.patiently(producer.init_transactions)
        return producer

    def patiently(self, call: Callable[[], Any]) -> Any:
        """Repeat a call until it does not time out."""
        began_s = time.monotonic()
        while True:
            try:
                return call()
            except NetworkError as error:
                self.refused[type(error).__name__] += 1
                if time.monotonic() - began_s > PATIENCE_S:
                    raise

    def _close_zombies(self, but: int) -> None:
        while len(self._zombies) > but:
            self._zombies.pop(0).close(CLOSE_MS)

    def ends(
        self, producer: TransactionalProducer, transaction: Transaction, work: Callable[[], Any]
    ) -> bool:
        """Do the work of one transaction, and end it. Return False if another producer must take over."""
        self.transactions.append(transaction)
        try:
            self.patiently(producer.begin)
            work()
            chance = self.dice.random()
            if chance < 0.1:
                self.patiently(producer.abort)
                return True
            if chance < 0.12:
                self._open_zombie = producer
                return False
            if chance < 0.14 and self._timeout_ms == BRIEF_MS:
                self.stopping.wait(2 * BRIEF_MS / 1000)
            return self._commit(producer, transaction)
        except TransactionAbortable as error:
            self.refused[f"aborted: {error.code.name}"] += 1
            return self._abort(producer)
        except BrokerError as error:
            self.refused[error.code.name] += 1
            return False
        except NetworkError as error:
            self.refused[type(error).__name__] += 1
            return False

    def _commit(self, producer: TransactionalProducer, transaction: Transaction) -> bool:
        transaction.outcome, transaction.commit_s = Outcome.UNSURE, time.monotonic()
        gives_up = self.dice.random() < 0.5
        while True:
            try:
                producer.commit()
            except TransactionAbortable:
                transaction.outcome = Outcome.ABORTED
                raise
            except NetworkError:
                self.unsure += 1
                if gives_up or time.monotonic() - transaction.commit_s > PATIENCE_S:
                    raise
            else:
                transaction.outcome = Outcome.COMMITTED
                self.committed += 1
                return True

    def _abort(self, producer: TransactionalProducer) -> bool:
        try:
            self.patiently(producer.abort)
        except BrokerError as error:
            self.refused[f"abort: {error.code.name}"] += 1
            return False
        return True


class Writing(Transacting):
    """A writer of the lists. With ``reads`` its transactions also read them."""

    def __init__(
        self,
        name: str,
        history: TransactionHistory,
        servers: str,
        *,
        reads: bool = False,
        timeout_ms: int = 20_000,
    ) -> None:
        super().__init__(name, history, servers, timeout_ms=timeout_ms)
        self._polls = history.add_reader(name, ()) if reads else None
        self._records: CommittedRecords | None = None
        self._values = 0

    def open(self, opened: ExitStack) -> None:
        if self._polls is not None:
            self._records = CommittedRecords(self.cluster, self.name, self._polls, LISTS)
            opened.callback(self._records.close)

    def transact(self, producer: TransactionalProducer) -> bool:
        transaction = Transaction()
        sent: list[tuple[bytes, SendFuture]] = []

        def append() -> None:
            for _ in range(self.dice.choice([1, 2, 2, 4, 7])):
                self._values += 1
                partition, value = self.dice.choice(LISTS), f"{self.name} {self._values:07}".encode()
                transaction.appends.append((partition, value))
                sent.append((value, producer.send(LIST, value, partition=partition.partition)))
                if self.dice.random() < 0.2:
                    producer.flush(CALL_MS)
            if self._records is not None:
                transaction.reads += [record.value or b"" for record in self._records.poll(10)]

        goes_on = self.ends(producer, transaction, append)
        for value, future in sent:
            if future.done and future.error is None and future.offset >= 0:
                transaction.places[value] = future.offset
        return goes_on


class Copying(Transacting):
    """A copier of the lists, with the offsets of its group: as a member, or with partitions of its own."""

    def __init__(self, name: str, history: TransactionHistory, servers: str, *, member: bool) -> None:
        super().__init__(name, history, servers)
        self._fetches = history.fetches.setdefault(name, [])
        self._polls = history.add_reader(name, ())
        self._member = member
        self._assignment = 0
        self._consumer: GroupConsumer
        self.copied: dict[TopicPartition, int] = {}
        """The ends of what was certainly copied."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Ignored: ``assigned`` follows."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Positions are the committed ones again."""
        self._assignment += 1

    def open(self, opened: ExitStack) -> None:
        config = {"group.id": self.name, **_CONSUMER, "auto.offset.reset": "earliest"}
        self._consumer = opened.enter_context(GroupConsumer(self.cluster, config, listener=self))
        if self._member:
            self._consumer.subscribe([LIST])
        else:
            self._consumer.assign(LISTS)

    def began(self, producer: TransactionalProducer) -> None:
        super().began(producer)
        self._go_back()

    def _go_back(self) -> None:
        """Go on at the committed offsets: all transactions have ended."""
        offsets = self.patiently(lambda: self._consumer.committed(LISTS))
        self._assignment += 1
        for partition in LISTS:
            offset = offsets[partition].offset if partition in offsets else -1
            self._fetches.append(OffsetFetch(partition, offset, len(self.transactions)))
            self.copied[partition] = max(offset, 0)
            if partition in self._consumer.assignment:
                self._consumer.seek(partition, max(offset, 0))

    def transact(self, producer: TransactionalProducer) -> bool:
        try:
            records = self._consumer.poll_records(50, self.dice.choice([1, 5, 20]))
        except BrokerError as error:
            # A leader that was paused does not know of the new one yet.
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._go_back()
            return True
        self._polls += polls_of(records, self._assignment)
        if not records:
            return True
        transaction = Transaction(reads=[record.value or b"" for record in records])
        number = len(self.transactions)

        def copy() -> None:
            for record in records:
                source = record.topic_partition
                value = f"{self.name} {number:06} {source} {record.offset}".encode()
                target = TopicPartition(COPIES, source.partition % COPIES_PARTITIONS)
                transaction.appends.append((target, value))
                transaction.sources[value] = source, record.offset
                transaction.offsets[source] = record.offset + 1
                producer.send(COPIES, value, partition=target.partition)
            offsets = {partition: Committed(offset) for partition, offset in transaction.offsets.items()}
            producer.send_offsets(offsets, self._consumer.group_metadata() if self._member else self.name)

        goes_on = self.ends(producer, transaction, copy)
        if transaction.outcome is Outcome.COMMITTED:
            self.copied.update(transaction.offsets)
        elif goes_on:
            self._go_back()
        return goes_on


class Reading(Watched):
    """A reader of all partitions, with read_committed."""

    def __init__(self, name: str, history: TransactionHistory, servers: str) -> None:
        super().__init__(name, history)  # type: ignore[arg-type]
        self.polls = history.add_reader(name, ALL)
        self.servers = servers
        self.positions: dict[TopicPartition, int] = {}
        self.count = 0


class OurReading(Reading):
    """Our consumer."""

    def run_until_stopped(self) -> None:
        with (
            ClusterClient(self.servers, metadata_max_age_ms=5_000, request_timeout_ms=10_000) as cluster,
            contextlib.closing(CommittedRecords(cluster, self.name, self.polls, ALL)) as records,
        ):
            self.positions = records.positions
            while not self.stopping.is_set():
                self.count += len(records.poll(100))


class ConfluentReading(Reading):
    """librdkafka's consumer."""

    def run_until_stopped(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": f"{self.name} reads",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                **PATIENT,
                **SILENT,
            }
        )
        self.positions = dict.fromkeys(ALL, 0)
        self._assign(consumer)
        while not self.stopping.is_set():
            records, is_lost = self._poll(consumer)
            self.polls += polls_of(records, 0)
            for record in records:
                self.positions[record.topic_partition] = record.offset + 1
            self.count += len(records)
            if is_lost:
                self._assign(consumer)
        consumer.close()

    def _assign(self, consumer: Any) -> None:
        consumer.assign(
            [confluent_kafka.TopicPartition(*name, offset) for name, offset in self.positions.items()]
        )

    def _poll(self, consumer: Any) -> tuple[list[ConsumerRecord], bool]:
        """Return records, and True if a partition has stopped: a leader that was paused does not know of the
        new one yet.
        """
        records, is_lost = [], False
        for message in consumer.consume(100, 0.05):
            error = message.error()
            if error is None:
                name = message.topic(), message.partition()
                records.append(ConsumerRecord(*name, message.offset(), -1, None, message.value()))
            else:
                self.refused[error.name()] += 1
                is_lost = is_lost or error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
        return records, is_lost


class TransactionalClients:
    """All clients. Stop the writers, then the copiers, then the readers; the history is then complete."""

    def __init__(self, servers: str) -> None:
        self.history = history = TransactionHistory()
        self.writers: list[Transacting] = [
            Writing("writer", history, servers),
            Writing("brief", history, servers, timeout_ms=BRIEF_MS),
            Writing("mixed", history, servers, reads=True),
        ]
        self.copiers = [
            Copying("copier", history, servers, member=False),
            Copying("member", history, servers, member=True),
        ]
        self.readers: list[Reading] = [
            OurReading("minikafka", history, servers),
            ConfluentReading("librdkafka", history, servers),
        ]
        self.senders: Sequence[Transacting] = (*self.writers, *self.copiers)
        for client in (*self.senders, *self.readers):
            client.start()

    @property
    def names(self) -> list[str]:
        """The names of the clients in ``progress`` and ``mark``, in order."""
        return [client.name for client in (*self.senders, *self.readers)]

    def progress(self) -> list[int]:
        """Return the number of committed transactions of each writer, and of the records of each reader."""
        return [sender.committed for sender in self.senders] + [reader.count for reader in self.readers]

    def mark(self) -> list[int]:
        """Return the values that ``progress`` must exceed once every client has made progress from now on."""
        return self.progress()

    def forgotten(self) -> list[str]:
        """Return nothing: the search for anomalies finds lost offsets."""
        return []

    def stop(self, clients: Iterable[Watched]) -> None:
        """Stop some clients, and wait for their ends."""
        every = list(clients)
        for client in every:
            client.stopping.set()
        for client in every:
            client.finish()

    def offsets(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the offsets of the copiers' groups."""
        found = {}
        with ClusterClient(self.senders[0].servers) as cluster:
            for copier in self.copiers:
                with GroupConsumer(cluster, {"group.id": copier.name}) as consumer:
                    committed = consumer.committed(LISTS, timeout_ms=int(PATIENCE_S * 1000))
                    found[copier.name] = {name: offset.offset for name, offset in committed.items()}
        return found

    def counts(self) -> str:
        """Return a summary in one line."""
        outcomes = Counter(each.outcome.value for each in self.history.each_transaction())
        refused = Counter[str]()
        for client in (*self.senders, *self.readers):
            refused += client.refused
        return (
            f"transactions: {dict(outcomes)}; commits without a response in time: "
            f"{sum(sender.unsure for sender in self.senders)}; producers: "
            f"{sum(sender.producers for sender in self.senders)}; read: "
            f"{ {reader.name: reader.count for reader in self.readers} }; errors meanwhile: "
            f"{dict(refused.most_common())}"
        )
