"""Transactional clients of a cluster that record their operations in a ``TransactionHistory``.

Each is a thread. The writers append values to the partitions of ``LIST``, some in each transaction; one of
them also reads in its transactions. Copiers copy ``LIST`` to ``COPIES`` with the offsets of their groups. The
readers read all with read_committed. After an unsure outcome a writer either waits for it, or goes away as in
a crash; then one with the same transactional id takes its place, and the old one goes on as a zombie. The
dice of each client have the seed of its name.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, TransactionAbortable
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.consumer import Committed, GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import SendFuture
from minikafka.clients.produce.transactional_producer import TransactionalProducer
from tests.faults.committed_readers import (
    COMMITTED_CONSUMER,
    COPIES,
    COPIES_PARTITIONS,
    LIST,
    LISTS,
    CommittedRecords,
    ConfluentReading,
    OurReading,
    Reading,
    polls_of,
)
from tests.faults.transaction_anomalies import OffsetFetch, Outcome, Transaction, TransactionHistory
from tests.faults.watched_clients import PATIENCE_S, PATIENT, SILENT, Watched
from tests.support.python_clients import confluent_kafka

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


class Transacting(Watched, ABC):
    """A client with one transactional id, and one producer after the other."""

    def __init__(self, name: str, history: TransactionHistory, servers: str) -> None:
        super().__init__(name, history)  # type: ignore[arg-type]
        self.transactions = history.add_writer(name)
        self.dice = Random(name)
        self.servers = servers
        self.committed = 0
        self.producers = 0
        self.unsure = 0
        """The commits without a response in time."""


class OurTransacting(Transacting):
    """A client with producers of ours."""

    def __init__(
        self, name: str, history: TransactionHistory, servers: str, *, timeout_ms: int = 20_000
    ) -> None:
        super().__init__(name, history, servers)
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


class Writing(OurTransacting):
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


class ConfluentWriting(Transacting):
    """A writer of the lists with librdkafka's producers.

    They repeat a request whose response is lost, with the same epoch; the first one may arrive late, and end
    the next transaction (Jepsen's finding of 2024 in the protocol). So another producer follows a transaction
    with lost responses.
    """

    def __init__(self, name: str, history: TransactionHistory, servers: str) -> None:
        super().__init__(name, history, servers)
        self._is_disturbed = False
        """A connection has failed in this transaction."""
        self._values = 0

    def run_until_stopped(self) -> None:
        while True:
            producer = self._begin_producer()
            if self.stopping.is_set():
                return
            while not self.stopping.wait(EVERY_S) and self._transact(producer):
                pass
            producer.purge()

    def _begin_producer(self) -> Any:
        self.producers += 1
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 20_000,
                "message.timeout.ms": 20_000,
                "socket.timeout.ms": REQUEST_MS,
                "linger.ms": 2,
                "error_cb": self._on_error,
                **PATIENT,
                **SILENT,
            }
        )
        self._patiently(producer.init_transactions)
        return producer

    def _patiently(self, call: Callable[[float], None]) -> None:
        """Repeat a call until it does not time out."""
        began_s = time.monotonic()
        while True:
            try:
                return call(CALL_MS / 1000)
            except confluent_kafka.KafkaException as error:
                self.refused[error.args[0].name()] += 1
                if not error.args[0].retriable() or time.monotonic() - began_s > PATIENCE_S:
                    raise
                self.unsure += 1
                self._is_disturbed = True

    def _on_error(self, error: Any) -> None:
        self._is_disturbed = True

    def _transact(self, producer: Any) -> bool:
        """Make one transaction. Return False if another producer must take over."""
        transaction, self._is_disturbed = Transaction(), False
        self.transactions.append(transaction)

        def on_delivery(error: Any, message: Any) -> None:
            if error is None and message.offset() is not None:
                transaction.places[message.value()] = message.offset()

        try:
            producer.begin_transaction()
            for _ in range(self.dice.choice([1, 2, 2, 4, 7])):
                self._values += 1
                partition, value = self.dice.choice(LISTS), f"{self.name} {self._values:07}".encode()
                transaction.appends.append((partition, value))
                producer.produce(LIST, value, partition=partition.partition, on_delivery=on_delivery)
            if self.dice.random() < 0.1:
                self._patiently(producer.abort_transaction)
            else:
                transaction.outcome, transaction.commit_s = Outcome.UNSURE, time.monotonic()
                self._patiently(producer.commit_transaction)
                transaction.outcome = Outcome.COMMITTED
                self.committed += 1
        except confluent_kafka.KafkaException:
            return False
        return not self._is_disturbed


class Copying(OurTransacting):
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
        config = {"group.id": self.name, **COMMITTED_CONSUMER, "auto.offset.reset": "earliest"}
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


class TransactionalClients:
    """All clients. Stop the writers, then the copiers, then the readers; the history is then complete."""

    def __init__(self, servers: str) -> None:
        self.history = history = TransactionHistory()
        self.writers: list[Transacting] = [
            Writing("writer", history, servers),
            Writing("brief", history, servers, timeout_ms=BRIEF_MS),
            Writing("mixed", history, servers, reads=True),
            ConfluentWriting("confluent", history, servers),
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
