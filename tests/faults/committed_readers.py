"""Readers with read_committed of the lists and their copies, which record their polls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, NoCommittedOffset
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.consumer import ConsumerRecord, GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from tests.faults.anomalies import Poll
from tests.faults.transaction_anomalies import TransactionHistory
from tests.faults.watched_clients import PATIENT, SILENT, Watched
from tests.support.python_clients import confluent_kafka

LIST, COPIES = "list", "copies"
LIST_PARTITIONS, COPIES_PARTITIONS = 3, 2
LISTS = tuple(TopicPartition(LIST, number) for number in range(LIST_PARTITIONS))
ALL = (*LISTS, *(TopicPartition(COPIES, number) for number in range(COPIES_PARTITIONS)))
COMMITTED_CONSUMER = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "none",
    "fetch.max.wait.ms": 50,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 300,
}
"""The settings of a consumer."""


class CommittedRecords:
    """A consumer with read_committed of ours, which reads given partitions from their starts."""

    def __init__(
        self, cluster: ClusterClient, name: str, polls: list[Poll], partitions: Iterable[TopicPartition]
    ):
        self.positions = dict.fromkeys(partitions, 0)
        self._polls = polls
        self._consumer = GroupConsumer(cluster, {"group.id": f"{name} reads", **COMMITTED_CONSUMER})
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
