"""A transaction coordinator with its log: appends succeed, or fail as a test says."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.records.format.record import KeyValue
from minikafka.transactions.decisions import (
    Answer,
    AppendOutcome,
    AppendTransition,
    Decision,
    NeedProducerId,
    TxnMarkers,
)
from minikafka.transactions.loading import TransactionMetadataLoader
from minikafka.transactions.messages import read_value
from minikafka.transactions.shard import TransactionCoordinatorShard, TransactionSettings
from minikafka.transactions.states import TransactionState

TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1_000


class CoordinatorHarness:
    """The coordinator of one partition; ``move`` makes another broker load it from the log."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.shard = TransactionCoordinatorShard(self.settings, 1)
        self.log: list[KeyValue] = []
        self.now_ms = 1_000_000
        self.markers: list[TxnMarkers] = []
        """The markers to write, the newest last."""
        self.error = ErrorCode.NONE
        """The outcome of each append."""
        self.is_written = False
        """True if a failed append is in the log all the same."""
        self._producer_ids = count(FIRST_PRODUCER_ID)

    # --- requests -------------------------------------------------------------------------------------------

    def decide_init(
        self, expected: ProducerIdAndEpoch | None = None, name: str = "a", timeout_ms: int = TIMEOUT_MS
    ) -> Decision:
        """Return the decision for InitProducerId; a new id is there when it is needed."""
        decision = self.shard.init_producer_id(name, timeout_ms, expected, self.now_ms)
        if isinstance(decision, NeedProducerId):
            new = next(self._producer_ids)
            decision = self.shard.init_producer_id(name, timeout_ms, expected, self.now_ms, new)
        return decision

    def init(
        self, expected: ProducerIdAndEpoch | None = None, name: str = "a", timeout_ms: int = TIMEOUT_MS
    ) -> Answer:
        """Return the response to InitProducerId."""
        return self.run(self.decide_init(expected, name, timeout_ms))

    def producer(self, name: str = "a", timeout_ms: int = TIMEOUT_MS) -> ProducerIdAndEpoch:
        """Return a new producer, which must be initialized without an error."""
        answer = self.init(name=name, timeout_ms=timeout_ms)
        assert answer.error is ErrorCode.NONE
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def decide_add(
        self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], name: str = "a"
    ) -> Decision:
        """Return the decision for AddPartitionsToTxn."""
        return self.shard.add_partitions(name, producer, partitions, self.now_ms)

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, name: str = "a") -> ErrorCode:
        """Return the error of the response to AddPartitionsToTxn."""
        return self.run(self.decide_add(producer, partitions, name)).error

    def decide_end(self, producer: ProducerIdAndEpoch, *, commit: bool, name: str = "a") -> Decision:
        """Return the decision for EndTxn."""
        return self.shard.end_txn(name, producer, self.now_ms, commit=commit)

    def end(self, producer: ProducerIdAndEpoch, *, commit: bool = True, name: str = "a") -> ErrorCode:
        """Return the error of the response to EndTxn."""
        return self.run(self.decide_end(producer, commit=commit, name=name)).error

    # --- appends and markers --------------------------------------------------------------------------------

    def run(self, decision: Decision) -> Answer:
        """Perform a decision, with what follows at once; return the response."""
        if isinstance(decision, Answer):
            return decision
        assert isinstance(decision, AppendTransition)
        answer = self.perform(decision).answer
        assert answer is not None
        return answer

    def perform(self, append: AppendTransition) -> AppendOutcome:
        """Append, and what follows; return the outcome of the first."""
        if self.error is ErrorCode.NONE or self.is_written:
            self.log.append(append.record)
        return self.report(append, self.error)

    def report(self, append: AppendTransition, error: ErrorCode) -> AppendOutcome:
        """Report the outcome of an append, and perform what follows."""
        outcome = self.shard.appended(append, error, self.now_ms)
        self.follow(outcome)
        return outcome

    def follow(self, outcome: AppendOutcome) -> None:
        """Take over the markers of an outcome, and perform its append."""
        if outcome.markers is not None:
            self.markers.append(outcome.markers)
        if outcome.append is not None:
            self.perform(outcome.append)

    def write_markers(self, *partitions: TopicPartition) -> None:
        """Report the newest markers as written: to ``partitions``, or to all."""
        markers = self.markers[-1]
        append = self.shard.markers_written(markers, partitions or markers.partitions, self.now_ms)
        if append is not None:
            self.perform(append)

    # --- the log --------------------------------------------------------------------------------------------

    def loaded(self) -> TransactionCoordinatorShard:
        """Return what another broker loads from the log."""
        loader = TransactionMetadataLoader(self.settings)
        keys, values = [key for key, _ in self.log], [value for _, value in self.log]
        loader.add(keys, range(len(keys)), values)
        return loader.finish(self.shard.coordinator_epoch + 1)

    def move(self) -> None:
        """Make another broker the coordinator."""
        loaded = self.loaded()
        self.shard.unload()
        self.shard = loaded
        for outcome in loaded.resume(self.now_ms):
            self.follow(outcome)

    def states(self) -> list[TransactionState]:
        """Return the states in the log, with Dead for a tombstone."""
        return [
            TransactionState.DEAD if value is None else TransactionState(read_value(value).transaction_status)
            for _, value in self.log
        ]

    def state(self, name: str = "a") -> TransactionState:
        """Return the present state of a transaction."""
        return self.shard.describe(name).state
