"""The decisions of a transaction coordinator: for a request, and after an append.

All values. The caller performs them under the lock that it holds for the shard, and reports the outcome.
Times are ms since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.records.format.record import KeyValue
from minikafka.transactions.metadata import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TxnTransitMetadata
from minikafka.transactions.states import TransactionState


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request. Only InitProducerId has an id and an epoch.

    PRODUCER_FENCED is for clients that know it; others get INVALID_PRODUCER_EPOCH: InitProducerId before
    version 4, and AddPartitionsToTxn, AddOffsetsToTxn and EndTxn before version 2.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    def error_at(self, version: int, fenced_since: int) -> ErrorCode:
        """Return the error for a request's version; ``fenced_since`` is the first with PRODUCER_FENCED."""
        if self.error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return self.error


@dataclass(frozen=True, slots=True)
class NeedProducerId:
    """InitProducerId needs a producer id that was never used: get one, and call again with it."""


@dataclass(frozen=True, slots=True)
class AppendTransition:
    """Append ``record`` so that every in-sync replica has it; then ``TransactionCoordinatorShard.appended``.

    ``answer`` is the response once it is stored; None if nobody waits.
    """

    transactional_id: str
    transition: TxnTransitMetadata
    record: KeyValue
    answer: Answer | None = None


Decision = Answer | NeedProducerId | AppendTransition
"""The decision for a request."""


@dataclass(frozen=True, slots=True)
class TxnMarkers:
    """The markers of a transaction: to be written to ``partitions``, until each has its own."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class AppendOutcome:
    """The consequences of an append, in this order: the response, markers to write, and another append.

    ``retry``: the append failed and must be repeated after a while; nothing else follows.
    """

    answer: Answer | None = None
    markers: TxnMarkers | None = None
    append: AppendTransition | None = None
    retry: AppendTransition | None = None


@dataclass(frozen=True, slots=True)
class IdExpiration:
    """Append the tombstones of expired ids, as an AppendTransition; then ``ids_expired``."""

    transitions: tuple[tuple[str, TxnTransitMetadata], ...]
    records: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction in DescribeTransactions; with an error, only that counts."""

    error: ErrorCode
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transaction in ListTransactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState
