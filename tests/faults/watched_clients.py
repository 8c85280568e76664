"""Clients of a cluster that record their operations and the responses in a ``History``.

Each is a thread. The producers are librdkafka's, with and without idempotence, ours, and one of ours that
never retries. The readers are one of librdkafka's that reads all partitions from the start without a group,
and a member each of librdkafka's and of ours in groups of their own, which commit what they have read.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Collection
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NoCommittedOffset
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer, SendFuture
from tests.faults.anomalies import History, Poll
from tests.support.python_clients import confluent_kafka

TOPIC = "t"
TOO_LARGE_BYTES = 120_000
"""More than the topic's ``max.message.bytes``."""
CONFIG = {"min.insync.replicas": "2", "max.message.bytes": "100000"}
"""The topic's settings."""
PATIENCE_S = 120.0
PATIENT = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "metadata.max.age.ms": 5_000}
"""Settings of librdkafka's clients for unreachable brokers."""
SILENT = {"log_level": 0}
EVERY_S = 0.02
"""The time between two bursts of a producer."""
POLL_MAX = 100

CONFLUENT, OURS = "librdkafka", "minikafka"
GROUPS = (CONFLUENT, OURS)
"""The groups, each with one member of the client that it is named after."""


class Watched(threading.Thread, ABC):
    """A client thread that runs until ``stopping``."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.stopping = threading.Event()
        self.refused: Counter[str] = Counter()

    def run(self) -> None:
        try:
            self.run_until_stopped()
        except Exception as error:  # noqa: BLE001 - any early end of a client is a problem
            self.history.wrong.append(f"{self.name} ended: {type(error).__name__}: {error}")

    @abstractmethod
    def run_until_stopped(self) -> None:
        """Work until ``stopping`` is set."""

    def finish(self) -> None:
        """Stop the thread. Records a problem if it does not end in time."""
        self.stopping.set()
        self.join(PATIENCE_S)
        if self.is_alive():
            self.history.wrong.append(f"{self.name} does not end")


class Sending(Watched):
    """A producer."""

    def __init__(
        self, name: str, history: History, partitions: int, *, once: bool, in_order: bool, burst: int = 1
    ) -> None:
        super().__init__(name, history)
        self.sent = history.add_sender(name, once=once, in_order=in_order)
        self.burst = burst
        self.newest_acknowledged = -1
        """The number of the newest acknowledged value."""
        self._partitions = partitions

    def next(self) -> tuple[int, int, bytes]:
        """Return the next number, with its partition and value."""
        number = len(self.sent)
        partition, value = number % self._partitions, f"{self.name} {number:07}".encode()
        self.sent.append((partition, value))
        return number, partition, value

    def acknowledged(self, number: int, place: tuple[int, int]) -> None:
        """Record that the brokers have acknowledged value ``number``."""
        self.history.acknowledged[self.sent[number][1]] = place
        self.newest_acknowledged = max(self.newest_acknowledged, number)


class ConfluentSending(Sending):
    """librdkafka's producer, with acks=all.

    Without idempotence (``once``) it keeps no order: it sends to a new leader before the old one has
    responded, and resends what that one rejects.
    """

    def __init__(self, name: str, history: History, servers: str, partitions: int, *, once: bool) -> None:
        super().__init__(name, history, partitions, once=once, in_order=once, burst=3)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": once,
                "acks": "all",
                "max.in.flight": 5,
                "linger.ms": 2,
                "message.timeout.ms": 600_000,
                "error_cb": self._on_error,
                **PATIENT,
                **SILENT,
            }
        )

    def run_until_stopped(self) -> None:
        while not self.stopping.wait(EVERY_S):
            for _ in range(self.burst if len(self._producer) < 1_000 else 0):
                number, partition, value = self.next()
                self._producer.produce(
                    TOPIC,
                    value,
                    partition=partition,
                    on_delivery=lambda error, message, number=number: self._on_delivery(
                        number, error, message
                    ),
                )
            self._producer.poll(0)
        left = self._producer.flush(PATIENCE_S)
        if left:
            self.history.wrong.append(f"{self.name}: {left} values were never acknowledged")

    def _on_delivery(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.history.wrong.append(f"{self.name}: value {number} failed: {error}")
        else:
            # A duplicate batch that is older than what leaders remember has no offset in the response.
            offset = message.offset()
            self.acknowledged(number, (message.partition(), -1 if offset is None else offset))

    def _on_error(self, error: Any) -> None:
        self.refused[error.name()] += 1
        if error.fatal():
            self.history.wrong.append(f"{self.name}: {error}")


class OurSending(Sending):
    """Our producer, with acks=all and idempotence."""

    def __init__(self, name: str, history: History, servers: str, partitions: int) -> None:
        super().__init__(name, history, partitions, once=True, in_order=True, burst=2)
        self._servers = servers

    def run_until_stopped(self) -> None:
        config = BatchingConfig(idempotence=True, delivery_timeout_ms=600_000, request_timeout_ms=10_000)
        in_flight: deque[tuple[int, SendFuture]] = deque()
        with (
            Client(self._servers, metadata_max_age_ms=5_000) as client,
            BatchingProducer(client, config) as producer,
        ):
            while not self.stopping.wait(EVERY_S):
                for _ in range(self.burst if len(in_flight) < 1_000 else 0):
                    number, partition, value = self.next()
                    in_flight.append((number, producer.send(TOPIC, value, partition=partition)))
                while in_flight and in_flight[0][1].done:
                    self._ended(*in_flight.popleft())
            producer.flush(int(PATIENCE_S * 1000))
            for number, future in in_flight:
                self._ended(number, future)

    def _ended(self, number: int, future: SendFuture) -> None:
        if future.error is not None:
            self.history.wrong.append(f"{self.name}: value {number} failed: {future.error}")
        else:
            self.acknowledged(number, (future.topic_partition.partition, future.offset))


class HastySending(Sending):
    """Our producer with acks=all, without idempotence and retries: one value after the other, some of them
    too large. A failed value is certainly not written only if it was rejected before any write.
    """

    def __init__(self, name: str, history: History, servers: str, partitions: int) -> None:
        super().__init__(name, history, partitions, once=True, in_order=False)
        self._servers = servers

    def run_until_stopped(self) -> None:
        config = BatchingConfig(
            acks=-1, retries=0, idempotence=False, request_timeout_ms=3_000, delivery_timeout_ms=4_000
        )
        with (
            Client(self._servers, metadata_max_age_ms=1_000) as client,
            BatchingProducer(client, config) as producer,
        ):
            while not self.stopping.wait(EVERY_S):
                number, partition, value = self.next()
                if number % 50 == 0:
                    value = value.ljust(TOO_LARGE_BYTES)
                    self.sent[number] = partition, value
                self._try(producer, number, partition, value)

    def _try(self, producer: BatchingProducer, number: int, partition: int, value: bytes) -> None:
        try:
            self.acknowledged(
                number, (partition, producer.send(TOPIC, value, partition=partition).result().offset)
            )
        except BrokerError as error:
            self.refused[error.code.name] += 1
            if error.code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE):
                self.history.failed.add(value)
        except MinikafkaError as error:
            self.refused[type(error).__name__] += 1


class Reading(Watched):
    """A consumer."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name, history)
        self._polls = history.add_reader(name)
        self._assignment = 0
        self.positions: dict[int, int] = {}
        """The next offset, by partition."""
        self.committed_offsets: dict[int, int] = {}
        """The offsets whose commits the coordinator has acknowledged."""
        self.count = 0

    def note(self, partition: int, rows: list[tuple[int, bytes]]) -> None:
        """Record the result of one poll."""
        self._polls.append(Poll(self._assignment, partition, tuple(rows)))
        self.positions[partition] = rows[-1][0] + 1
        self.count += len(rows)

    def assigned_anew(self) -> None:
        """Start a new assignment, with new positions."""
        self._assignment += 1
        self.positions = {}

    def place(self, partition: int) -> int:
        """Return the offset to continue at when a broker reports an offset out of range.

        At the start there is no committed offset. Later a leader that was paused or cut off reports it, which
        does not know the new leader yet: clients without reliable leader epochs (Metadata before 9) return to
        it after its metadata. The records that were read must be in the log all the same.
        """
        return max(self.positions.get(partition, 0), self.committed_offsets.get(partition, 0))

    def committed(self, partition: int, offset: int) -> None:
        """Record a commit that the coordinator has acknowledged."""
        self.committed_offsets[partition] = max(offset, self.committed_offsets.get(partition, 0))


class ConfluentReading(Reading):
    """librdkafka's consumer: without a group from the start of the logs, or as the member of a group."""

    def __init__(self, name: str, history: History, servers: str, partitions: int, *, group: bool) -> None:
        super().__init__(name, history)
        self._group, self._commit_in_flight = group, False
        self._partitions = partitions
        self._rows: dict[int, list[tuple[int, bytes]]] = {}
        """The records of this poll so far."""
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
                "on_commit": self._on_commit,
                **PATIENT,
                **SILENT,
            }
        )

    def run_until_stopped(self) -> None:
        if self._group:
            self._consumer.subscribe([TOPIC], on_assign=lambda *_: self.assigned_anew())
        else:
            every = range(self._partitions)
            self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in every])
        while not self.stopping.is_set():
            self._poll()
            if self._group and self.positions and not self._commit_in_flight:
                self._commit_in_flight = True
                self._commit()
        self._consumer.close()

    def assigned_anew(self) -> None:
        """Record the records of the previous assignment first."""
        self._note_all()
        super().assigned_anew()

    def _poll(self) -> None:
        for _ in range(POLL_MAX):
            message = self._consumer.poll(0.0 if self._rows else 0.05)
            if message is None:
                break
            error = message.error()
            if error is None:
                rows = self._rows.setdefault(message.partition(), [])
                rows.append((message.offset(), message.value()))
            else:
                self.refused[error.name()] += 1
                if error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                    self._note_all()
                    self._begin_again()
        self._note_all()

    def _begin_again(self) -> None:
        """Assign again: a partition that has stopped does not continue otherwise."""
        same = self._consumer.assignment()
        for partition in same:
            partition.offset = self.place(partition.partition)
        self._consumer.assign(same)

    def _note_all(self) -> None:
        for partition, found in self._rows.items():
            self.note(partition, found)
        self._rows.clear()

    def _commit(self) -> None:
        offsets = [confluent_kafka.TopicPartition(TOPIC, *position) for position in self.positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except confluent_kafka.KafkaException as error:
            self._commit_in_flight = False
            self.refused[error.args[0].name()] += 1

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        self._commit_in_flight = False
        if error is not None:
            self.refused[error.name()] += 1
        for partition in partitions:
            if error is None and partition.error is None:
                self.committed(partition.partition, partition.offset)


class OurReading(Reading):
    """Our consumer, as the member of a group."""

    def __init__(self, name: str, history: History, servers: str) -> None:
        super().__init__(name, history)
        self._servers = servers

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Ignored: ``assigned`` follows."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Start a new assignment, even of the same partitions."""
        self.assigned_anew()

    def run_until_stopped(self) -> None:
        config = GroupConsumerConfig(
            self.name,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=300,
            auto_commit=False,
            auto_offset_reset=Reset.NONE,
            fetch_max_wait_ms=50,
        )
        with (
            Client(self._servers, metadata_max_age_ms=5_000, request_timeout_ms=10_000) as client,
            contextlib.closing(GroupConsumer(client, config, listener=self)) as consumer,
        ):
            consumer.subscribe([TOPIC])
            while not self.stopping.is_set():
                try:
                    fetched = consumer.poll(100)
                except (NoCommittedOffset, BrokerError) as error:
                    if isinstance(error, BrokerError) and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise
                    self.refused[type(error).__name__] += 1
                    for partition in consumer.assignment:
                        consumer.seek(partition, self.place(partition.partition))
                    continue
                for record_set in fetched:
                    rows = [(record.offset, record.value or b"") for record in record_set.records()]
                    if rows:
                        self.note(record_set.topic_partition.partition, rows)
                if fetched:
                    self._commit(consumer)

    def _commit(self, consumer: GroupConsumer) -> None:
        offsets = dict(self.positions)
        try:
            consumer.commit_sync(timeout_ms=5_000)
        except MinikafkaError as error:
            self.refused[type(error).__name__] += 1
            return
        for partition, offset in offsets.items():
            self.committed(partition, offset)


class Clients:
    """All clients. Call ``stop_sending``, then ``stop_reading``; the history is then complete."""

    def __init__(self, servers: str, partitions: int) -> None:
        self.history = History()
        self._servers = servers
        self.senders: list[Sending] = [
            ConfluentSending("numbered", self.history, servers, partitions, once=True),
            ConfluentSending("plain", self.history, servers, partitions, once=False),
            OurSending("ours", self.history, servers, partitions),
            HastySending("hasty", self.history, servers, partitions),
        ]
        self.readers: list[Reading] = [
            ConfluentReading("alone", self.history, servers, partitions, group=False),
            ConfluentReading(CONFLUENT, self.history, servers, partitions, group=True),
            OurReading(OURS, self.history, servers),
        ]
        for client in (*self.senders, *self.readers):
            client.start()

    @property
    def names(self) -> list[str]:
        """The names of the clients in ``progress`` and ``mark``, in order."""
        return [client.name for client in (*self.senders, *self.readers)]

    def progress(self) -> list[int]:
        """Return the newest acknowledged value of each producer and the number of records of each reader."""
        return [sender.newest_acknowledged for sender in self.senders] + [
            reader.count for reader in self.readers
        ]

    def mark(self) -> list[int]:
        """Return the values that ``progress`` must exceed once every client has made progress from now on."""
        return [len(sender.sent) - 1 for sender in self.senders] + [reader.count for reader in self.readers]

    def forgotten(self) -> list[str]:
        """Return the acknowledged commits that are lost. Call it while all brokers are up."""
        committed = {
            reader.name: dict(reader.committed_offsets) for reader in self.readers if reader.name in GROUPS
        }
        found = []
        with Client(self._servers) as client:
            admin = GroupAdmin(client)
            for group, offsets in committed.items():
                kept = admin.offsets(group, timeout_ms=int(PATIENCE_S * 1000))
                for partition, offset in offsets.items():
                    now = kept.get(TopicPartition(TOPIC, partition))
                    if now is None or now.offset < offset:
                        found.append(f"group {group} had committed {offset} of {partition}, and has {now}")
        return found

    def stop_sending(self) -> None:
        """Stop the producers after all values are acknowledged."""
        for sender in self.senders:
            sender.stopping.set()
        for sender in self.senders:
            sender.finish()

    def stop_reading(self) -> None:
        """Stop the readers, even if not all is read."""
        for reader in self.readers:
            reader.stopping.set()
        for reader in self.readers:
            reader.finish()

    def counts(self) -> str:
        """Return a summary in one line."""
        history = self.history
        read = ", ".join(f"{count} by {name}" for name, count in history.all_read().items())
        refused = Counter[str]()
        for client in (*self.senders, *self.readers):
            refused += client.refused
        return (
            f"{history.all_sent()} sent, {len(history.acknowledged)} acknowledged, {len(history.failed)} "
            f"rejected; read: {read}; errors meanwhile: {dict(refused.most_common())}"
        )
