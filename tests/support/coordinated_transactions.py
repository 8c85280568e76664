"""Simulated brokers that coordinate transactions, without markers that are written: a test says when.

txn = CoordinatedTransactions()
producer = txn.init()
txn.add(producer, T0)
txn.end(producer, commit=True)
txn.write_markers()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.partition.partition import Partition
from minikafka.server import assembly
from minikafka.server.core.broker import Broker
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.server.workers.worker import Worker
from minikafka.transactions.decisions import Answer, TransactionDescription, TxnMarkers
from tests.support.simulation import Simulation

ID = "x"
STATE = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = {"transaction.state.log.num.partitions": "1"}


class HeldMarkers:
    """A marker sender that keeps everything."""

    def __init__(self) -> None:
        self.sent: list[TxnMarkers] = []
        self.deleted: list[TopicPartition] = []

    def send(self, markers: TxnMarkers) -> None:
        self.sent.append(markers)

    def drop(self, is_dropped: Callable[[TxnMarkers], bool]) -> None:
        self.sent = [markers for markers in self.sent if not is_dropped(markers)]

    def partitions_deleted(self, deleted: Iterable[TopicPartition]) -> None:
        self.deleted += deleted


class CoordinatedTransactions:
    """The transaction of ``ID``. A request returns its answer; None while it waits."""

    def __init__(self, *, brokers: int = 1, **more: str) -> None:
        self.coordinators: list[TransactionCoordinator] = []
        self.markers: dict[TransactionCoordinator, HeldMarkers] = {}
        self.world = Simulation()
        self.settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in more.items()}}
        with self._noted():
            self.world.start_brokers(brokers, self.settings)
            self.coordinators[0].create_topic()
            self.world.settle()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        outer = self

        class Noted(TransactionCoordinator):
            def __init__(self, broker: Broker, loading: Worker, sender: object) -> None:
                held = HeldMarkers()
                super().__init__(broker, loading, held)
                outer.coordinators.append(self)
                outer.markers[self] = held

        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(assembly, "TransactionCoordinator", Noted)
            yield

    @property
    def coordinator(self) -> TransactionCoordinator:
        """The coordinator on the broker that leads the topic, or the newest one."""
        leaders = (one for one in reversed(self.coordinators) if self._leads(one))
        return next(leaders, self.coordinators[-1])

    @staticmethod
    def _leads(coordinator: TransactionCoordinator) -> bool:
        partition = coordinator.broker.partitions.get(STATE)
        return partition is not None and partition.is_leader

    @property
    def partition(self) -> Partition:
        return self.coordinator.broker.partitions[STATE]

    @property
    def sent(self) -> list[TxnMarkers]:
        """The markers that are being sent."""
        return self.markers[self.coordinator].sent

    def begin_init(
        self, timeout_ms: int = 60_000, expected: ProducerIdAndEpoch | None = None
    ) -> list[Answer]:
        answers: list[Answer] = []
        self.coordinator.init_producer_id(ID, timeout_ms, expected, answers.append, pytest.fail)
        return answers

    def try_init(self, timeout_ms: int = 60_000, expected: ProducerIdAndEpoch | None = None) -> Answer:
        answers: list[Answer] = []
        self.coordinator.init_producer_id(ID, timeout_ms, expected, answers.append, pytest.fail)
        self.world.settle()
        (answer,) = answers
        return answer

    def init(self, **more: int) -> ProducerIdAndEpoch:
        answer = self.try_init(**more)
        assert answer.error is ErrorCode.NONE
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition) -> ErrorCode | None:
        answers: list[Answer] = []
        self.coordinator.add_partitions(ID, producer, partitions or (T0,), answers.append)
        return answers[0].error if answers else None

    def end(self, producer: ProducerIdAndEpoch, *, commit: bool = True) -> ErrorCode | None:
        answers: list[Answer] = []
        self.coordinator.end_txn(ID, producer, answers.append, commit=commit)
        return answers[0].error if answers else None

    def write_markers(self) -> None:
        """Report that all markers of the last end are written."""
        markers = self.sent.pop()
        self.coordinator.markers_written(markers, markers.partitions)

    def describe(self) -> TransactionDescription:
        return self.coordinator.describe(ID)

    @property
    def state(self) -> str:
        """The name of the transaction's state, or of the error."""
        described = self.describe()
        return described.state.label if described.error is ErrorCode.NONE else described.error.name

    def restart(self) -> None:
        with self._noted():
            self.world.machine.stop()
            self.world.machine.start(self.settings)
            self.world.settle()
