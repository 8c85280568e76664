"""The states of a transaction, and their valid predecessors: ``TransactionState`` of Kafka.

    Empty ──────▶ Ongoing ──────▶ PrepareCommit ──────▶ CompleteCommit
      ▲             ▲  │  EndTxn                all      │
      │             │  │                        markers  │
      │             │  └────────▶ PrepareAbort ───────▶ CompleteAbort
      │             │     EndTxn, time-out, fence        │
      │             └────────────────────────────────────┤ partitions of the next transaction
      └──────────────────────────────────────────────────┘ InitProducerId

Each change is stored before anybody can see it. An expired id goes from a state without a transaction to
Dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class TransactionState(Enum):
    """The state of a transaction. The values are those in ``__transaction_state``."""

    EMPTY = 0
    """The id has a producer that has not begun a transaction."""
    ONGOING = 1
    """The transaction has partitions."""
    PREPARE_COMMIT = 2
    """It will be committed: its markers are being written."""
    PREPARE_ABORT = 3
    """It will be aborted: its markers are being written."""
    COMPLETE_COMMIT = 4
    """All markers of the commit are written."""
    COMPLETE_ABORT = 5
    """All markers of the abort are written."""
    DEAD = 6
    """The id has expired and is being removed. Never stored: the record is a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """A state of Kafka in memory, before PrepareAbort with a higher epoch. Never stored; not used here."""

    @property
    def label(self) -> str:
        """Kafka's name of the state, as in DescribeTransactions."""
        return "".join(map(str.capitalize, self.name.split("_")))


VALID_PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE}
    ),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(
        {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The states in which markers are being written."""
COMPLETED = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""The states after all markers."""
STORED = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
"""The states that a value in the log may have."""

_BY_LABEL = {state.label: state for state in TransactionState}


def unknown_states(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the ``labels`` that are no state, for ListTransactions."""
    return tuple(label for label in labels if label not in _BY_LABEL)
