"""The table of states, row by row, and the changes of one transaction outside of it."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.transactions.metadata import TransactionMetadata
from minikafka.transactions.states import VALID_PREDECESSORS, TransactionState, unknown_states

T0 = TopicPartition("t", 0)

EMPTY, ONGOING, DEAD = TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
FENCE = TransactionState.PREPARE_EPOCH_FENCE


@pytest.mark.parametrize(
    ("state", "byte", "label", "predecessors"),
    [
        (EMPTY, 0, "Empty", {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
        (ONGOING, 1, "Ongoing", {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
        (PREPARE_COMMIT, 2, "PrepareCommit", {ONGOING}),
        (PREPARE_ABORT, 3, "PrepareAbort", {ONGOING, FENCE}),
        (COMPLETE_COMMIT, 4, "CompleteCommit", {PREPARE_COMMIT}),
        (COMPLETE_ABORT, 5, "CompleteAbort", {PREPARE_ABORT}),
        (DEAD, 6, "Dead", {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
        (FENCE, 7, "PrepareEpochFence", {ONGOING}),
    ],
)
def test_the_table_is_kafkas(
    state: TransactionState, byte: int, label: str, predecessors: set[TransactionState]
) -> None:
    assert (state.value, state.label) == (byte, label)
    assert VALID_PREDECESSORS[state] == predecessors


def test_names_that_are_no_state_are_found() -> None:
    assert unknown_states(["Ongoing", "Open", "Dead", "", "Stable"]) == ("Open", "", "Stable")


@pytest.fixture
def metadata() -> TransactionMetadata:
    metadata = TransactionMetadata("a", 1_000, 60_000, 0)
    metadata.complete_transition(metadata.prepare_next_epoch(60_000, 0, requested=False))
    return metadata


def test_a_transaction_that_was_not_begun_cannot_end(metadata: TransactionMetadata) -> None:
    with pytest.raises(AssertionError, match="a cannot go from Empty to PrepareCommit"):
        metadata.prepare_end(0, commit=True)
    assert metadata.pending is None


def test_an_ongoing_transaction_cannot_be_forgotten(metadata: TransactionMetadata) -> None:
    metadata.complete_transition(metadata.prepare_add_partitions(frozenset({T0}), 5))
    with pytest.raises(AssertionError, match="a cannot go from Ongoing to Dead"):
        metadata.prepare_dead()
    with pytest.raises(AssertionError, match="a cannot go from Ongoing to Empty"):
        metadata.prepare_next_epoch(60_000, 5, requested=False)


def test_a_second_change_is_not_prepared_while_one_is_pending(metadata: TransactionMetadata) -> None:
    metadata.prepare_add_partitions(frozenset({T0}), 5)
    with pytest.raises(AssertionError, match="pending TxnTransitMetadata"):
        metadata.prepare_add_partitions(frozenset({T0}), 5)


def test_only_the_pending_change_is_completed(metadata: TransactionMetadata) -> None:
    former = metadata.prepare_add_partitions(frozenset({T0}), 5)
    metadata.abandon(former)
    metadata.prepare_add_partitions(frozenset({T0}), 5)
    with pytest.raises(AssertionError, match="is not the pending"):
        metadata.complete_transition(former)
    with pytest.raises(AssertionError, match="is not the pending"):
        metadata.abandon(former)


def test_an_id_never_becomes_dead_in_memory(metadata: TransactionMetadata) -> None:
    with pytest.raises(AssertionError, match="is not the pending"):
        metadata.complete_transition(metadata.prepare_dead())


def test_no_epoch_follows_the_last_one(metadata: TransactionMetadata) -> None:
    metadata.producer_epoch = 32_766
    with pytest.raises(AssertionError, match="no epoch after 32766"):
        metadata.prepare_next_epoch(60_000, 0, requested=False)


def test_an_abandoned_change_leaves_everything_as_it_was(metadata: TransactionMetadata) -> None:
    before = metadata.prepare_same_epoch(60_000, 0)
    metadata.complete_transition(before)
    metadata.abandon(metadata.prepare_next_epoch(1, 99, requested=True))
    metadata.abandon(metadata.prepare_new_producer_id(5, 1, 99, requested=True))
    metadata.abandon(metadata.prepare_add_partitions(frozenset({T0}), 99))
    metadata.abandon(metadata.prepare_dead())
    assert metadata.prepare_same_epoch(60_000, 0) == before
