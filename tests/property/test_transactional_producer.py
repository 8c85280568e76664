"""Transactions of one producer under random outcomes: what must never happen does not."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.clients.produce.batch import ProducerBatch
from minikafka.clients.produce.transaction_manager import TransactionState
from minikafka.clients.produce.transaction_requests import (
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    EndTransaction,
    FindCoordinator,
    InitProducerId,
    Outcome,
)
from tests.support.transactional_producers import GROUP, LOST, OFFSETS, A, B, Transactions, refused

State = TransactionState
CODES = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.GROUP_LOAD_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
ACTIONS = [
    *("begin", "batch", "batch", "offsets", "commit", "abort", "time out", "done", "failed"),
    *("serve", "serve", "serve", "serve", "serve", "lose", "refuse"),
]
SEEDS = st.integers(0, 1 << 32)


def steps(seed: int) -> list[tuple[str, int]]:
    """An id, then random actions: so many that transactions come to their ends."""
    chance = random.Random(seed)
    drawn = [(chance.choice(ACTIONS), chance.randrange(7)) for _ in range(300)]
    return [("serve", 0), ("serve", 0), *drawn]


class Model:
    """The manager, a sender with queues, and the rules."""

    def __init__(self) -> None:
        self.txn = Transactions()
        self.manager = self.txn.manager
        self.manager.acknowledge(self.manager.initialize())
        self.queued: list[ProducerBatch] = []
        self.in_flight: list[ProducerBatch] = []
        self.added: set[object] = set()
        self.is_unsure = False
        """True from a lost response until the epoch changes."""
        self.epoch = 0

    def step(self, action: str, number: int) -> None:
        manager = self.manager
        state = manager.state
        try:
            if action == "begin":
                manager.begin()
                assert not self.is_unsure, "a transaction begins after an unsure end without a new epoch"
                self.added.clear()
            elif action == "batch":
                manager.check_open()
                self.queued.append(self.txn.batch(A if number % 2 else B))
            elif action == "offsets":
                manager.send_offsets(OFFSETS, GROUP)
            elif action == "commit":
                manager.commit()
            elif action == "abort":
                manager.abort()
            elif action == "time out" and manager._result is not None:
                manager.time_out(manager._result)
                self.is_unsure = self.is_unsure or state is State.COMMITTING
        except (ValueError, BrokerError):
            pass
        if action in ("done", "failed") and self.in_flight:
            batch = self.in_flight.pop(number % len(self.in_flight))
            if action == "failed":
                manager.handle_failed_batch(batch, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
                self.is_unsure = True
        self.txn.see_result()
        self.send()
        if action in ("serve", "lose", "refuse"):
            self.request(action, number)

    def send(self) -> None:
        """The sender's turn."""
        if self.manager.drops_batches:
            for batch in self.queued:
                self.manager.handle_failed_batch(batch, self.manager.drop_error())
            self.queued.clear()
        for batch in list(self.queued):
            if self.manager.is_ready(batch):
                assert batch.topic_partition in self.added, "a batch is sent before its partition is added"
                self.manager.assign(batch)
                self.queued.remove(batch)
                self.in_flight.append(batch)
        self.manager.add_partitions(batch.topic_partition for batch in self.queued)

    def request(self, action: str, number: int) -> None:
        self.txn.has_batches = bool(self.queued or self.in_flight)
        self.txn.now_ms += 1_000
        task = self.txn.next_task()
        if task is None:
            return
        operation = task.operation
        if isinstance(operation, EndTransaction):
            assert not self.in_flight, "a transaction ends while batches are in flight"
            assert not self.queued, "a transaction ends before its batches are sent"
        if isinstance(operation, AddPartitions | AddOffsets | CommitOffsets | EndTransaction):
            assert operation.producer == self.manager.producer
        outcome: Outcome = self.txn.success(operation)
        if action == "lose":
            outcome = LOST
            if not isinstance(operation, FindCoordinator | InitProducerId):
                self.is_unsure = True
        elif action == "refuse":
            outcome = self.refusal(operation, CODES[number])
        self.txn.end(task, outcome)
        if isinstance(outcome, MinikafkaError):
            return
        if isinstance(operation, InitProducerId):
            self.is_unsure = False
            assert self.manager._partitions == {}
        elif isinstance(operation, AddPartitions):
            self.added.update(operation.partitions)

    def refusal(self, operation: object, code: ErrorCode) -> MinikafkaError:
        if isinstance(operation, InitProducerId | FindCoordinator | EndTransaction):
            code = ErrorCode.GROUP_LOAD_IN_PROGRESS  # the others end the producer
        return refused(code)


@given(SEEDS)
def test_random_outcomes_break_no_rule_of_transactions(seed: int) -> None:
    model = Model()
    for action, number in steps(seed):
        model.step(action, number)
    assert model.manager.state is not State.FATAL_ERROR


@given(SEEDS)
def test_a_producer_can_go_on_after_any_outcome(seed: int) -> None:
    model = Model()
    for action, number in steps(seed):
        model.step(action, number)
    for _ in range(60):
        if model.manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            model.step("abort", 0)
        model.step("done", 0)
        model.step("serve", 0)
    assert model.manager.state is State.READY
    model.step("begin", 0)
    assert model.manager.state is State.IN_TRANSACTION
