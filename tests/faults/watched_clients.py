"""Clients of a cluster that write down what they do and what they are told, in a ``History``.

Each is a thread. Producers are librdkafka's, with numbered batches and without, ours, and a hasty one that
sends nothing twice; readers are one of librdkafka's that reads all partitions from the start and is in no
group, and a member each of librdkafka's and of ours of a group of their own, who commit what they have read.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
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

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import confluent_kafka

TOPIC = "t"
TOO_LARGE_BYTES = 120_000
"""What the topic does not take: its ``max.message.bytes`` is less."""
CONFIG = {"min.insync.replicas": "2", "max.message.bytes": "100000"}
"""Of the topic."""
PATIENCE_S = 120.0
PATIENT = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "metadata.max.age.ms": 5_000}
"""How librdkafka's clients look for brokers that are away."""
SILENT = {"log_level": 0}
EVERY_S = 0.02
"""Between two bursts of a producer."""
POLL_MAX = 100

CONFLUENT, OURS = "librdkafka", "minikafka"
GROUPS = (CONFLUENT, OURS)
"""Each with one member, of the client that it is named after."""


class Watched(threading.Thread, ABC):
    """Goes on until it is told to stop."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            self.go_on()
        except Exception as error:  # noqa: BLE001 - whatever ends a client early is a finding
            self.history.wrong.append(f"{self.name} ended: {type(error).__name__}: {error}")

    @abstractmethod
    def go_on(self) -> None:
        """Until ``stopping``."""

    def finish(self) -> None:
        """Have it end; in time, or that is noted."""
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
        """The number of the newest value that was."""
        self.refused: Counter[str] = Counter()
        self._partitions = partitions

    def next(self) -> tuple[int, int, bytes]:
        """The next number, with its partition and value."""
        number = len(self.sent)
        partition, value = number % self._partitions, f"{self.name} {number:07}".encode()
        self.sent.append((partition, value))
        return number, partition, value

    def acknowledged(self, number: int, place: tuple[int, int]) -> None:
        """Value ``number`` is there, in the end, by the brokers."""
        self.history.acknowledged[self.sent[number][1]] = place
        self.newest_acknowledged = max(self.newest_acknowledged, number)


class ConfluentSending(Sending):
    """librdkafka's producer, with acks=all.

    Without numbers (``once``) it keeps no order: it sends on to a new leader before the old one has answered,
    and what that one refuses it sends again.
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

    def go_on(self) -> None:
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
            self.history.wrong.append(f"{self.name}: {left} values are never acknowledged")

    def _on_delivery(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.history.wrong.append(f"{self.name}: value {number} failed: {error}")
        else:
            # Of a batch that is there already, but older than what leaders remember, no offset is told.
            offset = message.offset()
            self.acknowledged(number, (message.partition(), -1 if offset is None else offset))

    def _on_error(self, error: Any) -> None:
        self.refused[error.name()] += 1
        if error.fatal():
            self.history.wrong.append(f"{self.name}: {error}")


class OurSending(Sending):
    """Our producer, with acks=all and numbered batches."""

    def __init__(self, name: str, history: History, servers: str, partitions: int) -> None:
        super().__init__(name, history, partitions, once=True, in_order=True, burst=2)
        self._servers = servers

    def go_on(self) -> None:
        config = BatchingConfig(idempotence=True, delivery_timeout_ms=600_000, request_timeout_ms=10_000)
        under_way: deque[tuple[int, SendFuture]] = deque()
        with (
            Client(self._servers, metadata_max_age_ms=5_000) as client,
            BatchingProducer(client, config) as producer,
        ):
            while not self.stopping.wait(EVERY_S):
                for _ in range(self.burst if len(under_way) < 1_000 else 0):
                    number, partition, value = self.next()
                    under_way.append((number, producer.send(TOPIC, value, partition=partition)))
                while under_way and under_way[0][1].done:
                    self._ended(*under_way.popleft())
            producer.flush(int(PATIENCE_S * 1000))
            for one in under_way:
                self._ended(*one)

    def _ended(self, number: int, delivery: SendFuture) -> None:
        if delivery.error is not None:
            self.history.wrong.append(f"{self.name}: value {number} failed: {delivery.error}")
        else:
            self.acknowledged(number, (delivery.topic_partition.partition, delivery.offset))


class HastySending(Sending):
    """Ours with acks=all, without numbers and without a second attempt: one value after the other, some of
    them too large. Of what fails only that is known which is refused before anything is written.
    """

    def __init__(self, name: str, history: History, servers: str, partitions: int) -> None:
        super().__init__(name, history, partitions, once=True, in_order=False)
        self._servers = servers

    def go_on(self) -> None:
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
        """The offset that comes next, by partition."""
        self.told: dict[int, int] = {}
        """What is committed, by the coordinator."""
        self.refused: Counter[str] = Counter()
        self.count = 0

    def note(self, partition: int, rows: list[tuple[int, bytes]]) -> None:
        """One poll gave this."""
        self._polls.append(Poll(self._assignment, partition, tuple(rows)))
        self.positions[partition] = rows[-1][0] + 1
        self.count += len(rows)

    def assigned_anew(self) -> None:
        """Positions begin anew."""
        self._assignment += 1
        self.positions = {}

    def place(self, partition: int) -> int:
        """Where to go on when a broker says that it has no such offset.

        There is none at the beginning. Later a leader says so that was paused, or cut off, and does not know
        that another one leads since: clients that are given no reliable leader epochs (Metadata before 9)
        come back to it when its metadata are asked for. What was read must be in the log all the same.
        """
        return max(self.positions.get(partition, 0), self.told.get(partition, 0))

    def committed(self, partition: int, offset: int) -> None:
        """The coordinator says so."""
        self.told[partition] = max(offset, self.told.get(partition, 0))


class ConfluentReading(Reading):
    """librdkafka's consumer: alone from the start on, or as the member of a group."""

    def __init__(self, name: str, history: History, servers: str, partitions: int, *, group: bool) -> None:
        super().__init__(name, history)
        self._group, self._under_way = group, False
        self._partitions = partitions
        self._rows: dict[int, list[tuple[int, bytes]]] = {}
        """What this poll has given so far."""
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

    def go_on(self) -> None:
        if self._group:
            self._consumer.subscribe([TOPIC], on_assign=lambda *_: self.assigned_anew())
        else:
            every = range(self._partitions)
            self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, one, 0) for one in every])
        while not self.stopping.is_set():
            self._poll()
            if self._group and self.positions and not self._under_way:
                self._under_way = True
                self._commit()
        self._consumer.close()

    def assigned_anew(self) -> None:
        """What was read before is of the assignment before."""
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
        """A partition that has stopped goes on with another assignment only."""
        same = self._consumer.assignment()
        for one in same:
            one.offset = self.place(one.partition)
        self._consumer.assign(same)

    def _note_all(self) -> None:
        for partition, found in self._rows.items():
            self.note(partition, found)
        self._rows.clear()

    def _commit(self) -> None:
        offsets = [confluent_kafka.TopicPartition(TOPIC, *one) for one in self.positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except confluent_kafka.KafkaException as error:
            self._under_way = False
            self.refused[error.args[0].name()] += 1

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        self._under_way = False
        if error is not None:
            self.refused[error.name()] += 1
        for one in partitions:
            if error is None and one.error is None:
                self.committed(one.partition, one.offset)


class OurReading(Reading):
    """The member of a group, of ours."""

    def __init__(self, name: str, history: History, servers: str) -> None:
        super().__init__(name, history)
        self._servers = servers

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """It is told when others are assigned."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """A new assignment, though it may be the same."""
        self.assigned_anew()

    def go_on(self) -> None:
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
                for one in fetched:
                    rows = [(record.offset, record.value or b"") for record in one.records()]
                    if rows:
                        self.note(one.topic_partition.partition, rows)
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
    """All of them. ``stop_sending``, then ``stop_reading``; the history is whole then."""

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
        for one in (*self.senders, *self.readers):
            one.start()

    @property
    def names(self) -> list[str]:
        """Of whom ``progress`` and ``mark`` tell, in their order."""
        return [one.name for one in (*self.senders, *self.readers)]

    def progress(self) -> list[int]:
        """How far each is: values sent and acknowledged by each producer, records of each reader."""
        return [one.newest_acknowledged for one in self.senders] + [one.count for one in self.readers]

    def mark(self) -> list[int]:
        """What ``progress`` has to pass for all of them to have done something anew from now on."""
        return [len(one.sent) - 1 for one in self.senders] + [one.count for one in self.readers]

    def forgotten(self) -> list[str]:
        """Commits that were acknowledged and are not there. Asked while nobody is away."""
        told = {reader.name: dict(reader.told) for reader in self.readers if reader.name in GROUPS}
        found = []
        with Client(self._servers) as client:
            admin = GroupAdmin(client)
            for group, offsets in told.items():
                kept = admin.offsets(group, timeout_ms=int(PATIENCE_S * 1000))
                for partition, offset in offsets.items():
                    now = kept.get(TopicPartition(TOPIC, partition))
                    if now is None or now.offset < offset:
                        found.append(f"group {group} had committed {offset} of {partition}, and has {now}")
        return found

    def stop_sending(self) -> None:
        """Have all acknowledged."""
        for one in self.senders:
            one.stopping.set()
        for one in self.senders:
            one.finish()

    def stop_reading(self) -> None:
        """Also where not all is read."""
        for one in self.readers:
            one.stopping.set()
        for one in self.readers:
            one.finish()

    def counts(self) -> str:
        """One line."""
        history = self.history
        read = ", ".join(f"{count} by {name}" for name, count in history.all_read().items())
        refused = Counter[str]()
        for one in (*self.senders, *self.readers):
            refused += one.refused
        return (
            f"{history.all_sent()} sent, {len(history.acknowledged)} acknowledged, {len(history.failed)} "
            f"refused; read: {read}; told meanwhile: {dict(refused.most_common())}"
        )
