"""A transaction manager without I/O, its batches, and outcomes of its requests."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import BrokerAddress, ProducerIdAndEpoch, TopicPartition
from minikafka.clients.group.offsets import Committed, GroupMetadata
from minikafka.clients.produce.batch import RecordListBatch
from minikafka.clients.produce.config import TransactionalConfig
from minikafka.clients.produce.requests import TransactionTask
from minikafka.clients.produce.send_future import ProduceRequestResult
from minikafka.clients.produce.transaction_manager import TransactionManager
from minikafka.clients.produce.transaction_requests import (
    AddPartitions,
    CommitOffsets,
    FindCoordinator,
    InitProducerId,
    Operation,
    Outcome,
)
from minikafka.records.format.message_set import Record

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
COORDINATOR = BrokerAddress(1, "memory", 9_001)
GROUP = GroupMetadata("g", 3, "member")
OFFSETS = {A: Committed(7)}
LOST = NetworkError("the connection was cut", "broker 1")
OperationT = TypeVar("OperationT")


def refused(code: ErrorCode) -> BrokerError:
    """The error of a response with ``code``."""
    return BrokerError(code, "refused")


class Transactions:
    """A manager, and its coordinator: every epoch is one more than the last."""

    def __init__(self, **settings: Any) -> None:
        self.manager = TransactionManager(TransactionalConfig(transactional_id="x", **settings))
        self.now_ms = 0
        self.has_batches = False
        self.epoch = -1

    def success(self, operation: Operation) -> Outcome:
        """The outcome of an operation that is served."""
        if isinstance(operation, FindCoordinator):
            return COORDINATOR
        if isinstance(operation, InitProducerId):
            self.epoch += 1
            return ProducerIdAndEpoch(9, self.epoch)
        if isinstance(operation, AddPartitions):
            return dict.fromkeys(operation.partitions, ErrorCode.NONE)
        if isinstance(operation, CommitOffsets):
            return dict.fromkeys(operation.offsets, ErrorCode.NONE)
        return None

    def next_task(self) -> TransactionTask | None:
        """The request that is due, without waiting."""
        return self.manager.next_task(self.now_ms, has_batches=self.has_batches)

    def take(self, kind: type[OperationT]) -> tuple[TransactionTask, OperationT]:
        """The next request, of one kind. Time passes until it is due; coordinators are found."""
        while True:
            task = self.next_task()
            if task is None:
                pause_ms = self.manager.next_id_request_ms(self.now_ms)
                assert pause_ms is not None, f"nothing to do: {self.manager.state}"
                self.now_ms += pause_ms
            elif isinstance(task.operation, kind):
                return task, task.operation
            else:
                assert isinstance(task.operation, FindCoordinator), task
                self.end(task)

    def end(self, task: TransactionTask, *outcome: Outcome) -> None:
        """Give an outcome, by default that of success."""
        given = outcome[0] if outcome else self.success(task.operation)
        self.manager.handle(task, given, self.now_ms)

    def serve(self, kind: type[OperationT], *outcome: Outcome) -> OperationT:
        """``take`` and ``end``."""
        task, operation = self.take(kind)
        self.end(task, *outcome)
        return operation

    def begin(self, *partitions: TopicPartition) -> None:
        """Begin a transaction that has these partitions; initialize it if it is the first."""
        if self.epoch < 0:
            self.manager.acknowledge(self.manager.initialize())
            self.serve(InitProducerId)
        self.see_result()
        self.manager.begin()
        if partitions:
            self.manager.add_partitions(partitions)
            self.serve(AddPartitions)

    def see_result(self) -> None:
        """Let the caller of the last call see its result, if there is one."""
        result = self.manager._result
        if result is not None and result.done:
            self.manager.acknowledge(result)

    def batch(self, tp: TopicPartition = A, *, count: int = 1) -> RecordListBatch:
        """A batch that is not sent."""
        batch = RecordListBatch(tp, ProduceRequestResult(threading.Condition()), 0)
        for _ in range(count):
            batch.append(Record(None, b"v"), 40)
        return batch

    def sent(self, tp: TopicPartition = A, *, count: int = 1) -> RecordListBatch:
        """A batch in flight."""
        batch = self.batch(tp, count=count)
        assert self.manager.is_ready(batch)
        self.manager.assign(batch)
        return batch
