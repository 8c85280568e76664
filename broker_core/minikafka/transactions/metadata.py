"""The transaction of one transactional id: ``TransactionMetadata`` of Kafka.

A change is *prepared* (``prepare_…`` returns its target and makes it pending), stored, and then *completed*;
when it could not be stored, it is *abandoned*, and nothing has changed. While one is pending there is no
other: it is not known yet which state counts. So all that anybody can see is stored.

An append that failed may still be in the log, and a later coordinator may find it there. Therefore the next
change after it is always appended too, even one that would change nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter

from minikafka.base.errors import RemoteWireError
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.transactions.messages import TransactionLogPartitions, TransactionLogValue
from minikafka.transactions.states import STORED, VALID_PREDECESSORS, TransactionState

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_START_MS = -1
"""``start_ms`` of an id that has not begun a transaction since its producer was initialized."""
MAX_EPOCH = (1 << 15) - 1
SORTED_FROM = 100
"""From so many partitions on they are kept in order, too."""

_STORED_BY_VALUE = {state.value: state for state in STORED}


def is_epoch_exhausted(epoch: int) -> bool:
    """Return True for the last epoch that a client may have. One more is for the coordinator, to fence it."""
    return epoch >= MAX_EPOCH - 1


LogPartitions = tuple[TransactionLogPartitions, ...]
"""Partitions as they are stored: by topic and number, in order."""


@dataclass(frozen=True, slots=True)
class TxnTransitMetadata:
    """The target of a change. Times are ms since the epoch."""

    state: TransactionState
    producer_id: int
    last_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    last_update_ms: int
    rows: LogPartitions = field(compare=False)
    """``partitions`` as they are stored."""

    def log_value(self) -> TransactionLogValue:
        """Return the value that is stored. The last id and epoch are not."""
        return TransactionLogValue(
            self.producer_id,
            self.producer_epoch,
            self.timeout_ms,
            self.state.value,
            None if self.state is TransactionState.EMPTY else self.rows,
            self.last_update_ms,
            self.start_ms,
        )


def _rows_of(partitions: Iterable[TopicPartition]) -> LogPartitions:
    topics = numbers_by_topic(sorted(partitions))
    return tuple(TransactionLogPartitions(topic, tuple(numbers)) for topic, numbers in topics.items())


def _rows_with(rows: LogPartitions, added: Iterable[TopicPartition]) -> LogPartitions:
    """Return the rows with partitions that they do not have. Few cost little, however many there are."""
    merged = list(rows)
    for row in _rows_of(added):
        at = bisect_left(merged, row.topic, key=attrgetter("topic"))
        if at < len(merged) and merged[at].topic == row.topic:
            numbers = sorted((*merged[at].partition_ids, *row.partition_ids))
            merged[at] = TransactionLogPartitions(row.topic, tuple(numbers))
        else:
            merged.insert(at, row)
    return tuple(merged)


class TransactionMetadata:
    """The mutable state of one transactional id."""

    __slots__ = (
        "_deleted",
        "_rows",
        "has_failed_append",
        "last_producer_epoch",
        "last_producer_id",
        "last_update_ms",
        "partitions",
        "pending",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.EMPTY
        self.producer_id = producer_id
        self.last_producer_id = NO_PRODUCER_ID
        """The id before ``producer_id``, and below the epoch before ``producer_epoch``: those of the producer
        that asked for the newer ones (KIP-360), and may ask again because it got no response.
        """
        self.producer_epoch = NO_PRODUCER_EPOCH
        """-1 until the first change is stored."""
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        """-1 if somebody else may have asked, so that the former producer is fenced."""
        self.timeout_ms = timeout_ms
        self.partitions: frozenset[TopicPartition] = frozenset()
        """Those of the transaction; with markers being written, those without one."""
        self.start_ms = NO_START_MS
        self.last_update_ms = now_ms
        self.pending: TxnTransitMetadata | None = None
        """The change that is being stored."""
        self.has_failed_append = False
        """True if the log may have a change that was abandoned."""
        self._deleted: frozenset[TopicPartition] = frozenset()
        """Partitions that were deleted while ``pending`` has them."""
        self._rows: LogPartitions | None = ()
        """``partitions`` as they are stored; None: not known."""

    @classmethod
    def loaded(cls, transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
        """Return the stored state. Raises RemoteWireError for a state that is never stored."""
        state = _STORED_BY_VALUE.get(value.transaction_status)
        if state is None:
            raise RemoteWireError(f"transaction state {value.transaction_status} of {transactional_id!r}")
        metadata = cls(
            transactional_id,
            value.producer_id,
            value.transaction_timeout_ms,
            value.transaction_last_update_timestamp_ms,
        )
        metadata.state = state
        metadata.producer_epoch = value.producer_epoch
        metadata.start_ms = value.transaction_start_timestamp_ms
        if state is not TransactionState.EMPTY:
            metadata.partitions = frozenset(
                TopicPartition(topic.topic, number)
                for topic in value.transaction_partitions or ()
                for number in topic.partition_ids
            )
            metadata._rows = None
        return metadata

    # --- changes --------------------------------------------------------------------------------------------

    def prepare_next_epoch(self, timeout_ms: int, now_ms: int, *, requested: bool) -> TxnTransitMetadata:
        """Prepare the next epoch. ``requested``: by the producer that has this one, which is remembered."""
        if is_epoch_exhausted(self.producer_epoch):
            raise AssertionError(f"{self.transactional_id}: no epoch after {self.producer_epoch}")
        epoch = self.producer_epoch + 1
        return self._prepare_producer(self.producer_id, epoch, timeout_ms, now_ms, requested=requested)

    def prepare_new_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, requested: bool
    ) -> TxnTransitMetadata:
        """Prepare a new id, when the epochs of this one are exhausted. ``requested``: as for the epoch."""
        return self._prepare_producer(producer_id, 0, timeout_ms, now_ms, requested=requested)

    def prepare_same_epoch(self, timeout_ms: int, now_ms: int) -> TxnTransitMetadata:
        """Prepare the response to a producer that requests its newest epoch again."""
        return self._prepare(replace(self._current(now_ms), timeout_ms=timeout_ms))

    def prepare_add_partitions(
        self, partitions: frozenset[TopicPartition], now_ms: int
    ) -> TxnTransitMetadata:
        """Prepare more partitions; the first ones begin the transaction."""
        is_first = self.state is not TransactionState.ONGOING
        current = self._current(now_ms)
        return self._prepare(
            replace(
                current,
                state=TransactionState.ONGOING,
                partitions=self.partitions | partitions,
                rows=_rows_with(current.rows, partitions - self.partitions),
                start_ms=now_ms if is_first else self.start_ms,
            )
        )

    def prepare_end(self, now_ms: int, *, commit: bool) -> TxnTransitMetadata:
        """Prepare the end that the producer requested."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return self._prepare(replace(self._current(now_ms), state=state))

    def prepare_fence(self, now_ms: int) -> TxnTransitMetadata:
        """Prepare an abort with the next epoch, which no client gets: it fences the producer."""
        return self._prepare(
            replace(
                self._current(now_ms),
                state=TransactionState.PREPARE_ABORT,
                producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
                last_producer_epoch=NO_PRODUCER_EPOCH,
            )
        )

    def prepare_complete(self, now_ms: int) -> TxnTransitMetadata:
        """Prepare the end of a transaction whose markers are written."""
        commit = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        return self._prepare(replace(self._current(now_ms), state=state, partitions=frozenset(), rows=()))

    def prepare_dead(self) -> TxnTransitMetadata:
        """Prepare the removal of the id. It is never completed: the caller forgets this object."""
        return self._prepare(replace(self._current(self.last_update_ms), state=TransactionState.DEAD))

    def complete_transition(self, transition: TxnTransitMetadata) -> None:
        """Complete the pending change, which is stored."""
        if self.pending is not transition or transition.state is TransactionState.DEAD:
            raise AssertionError(f"{self.transactional_id}: {transition} is not the pending {self.pending}")
        self.state = transition.state
        self.producer_id = transition.producer_id
        self.last_producer_id = transition.last_producer_id
        self.producer_epoch = transition.producer_epoch
        self.last_producer_epoch = transition.last_producer_epoch
        self.timeout_ms = transition.timeout_ms
        self.partitions = transition.partitions
        # Each addition stores all partitions: many are not sorted again. Few would only take memory.
        self._rows = transition.rows if len(self.partitions) >= SORTED_FROM else None
        if self._deleted:
            self._remove(self._deleted)
        self.start_ms = transition.start_ms
        self.last_update_ms = transition.last_update_ms
        self.has_failed_append = False
        self._settle()

    def abandon(self, transition: TxnTransitMetadata) -> None:
        """Undo the pending change, which could not be stored, or may not have been."""
        if self.pending is not transition:
            raise AssertionError(f"{self.transactional_id}: {transition} is not the pending {self.pending}")
        self.has_failed_append = True
        self._settle()

    def remove_partitions(self, written: Iterable[TopicPartition]) -> None:
        """Remove the partitions whose markers are written."""
        self._remove(written)

    def partitions_deleted(self, deleted: frozenset[TopicPartition]) -> None:
        """Remove partitions that no longer exist."""
        if not self.partitions.isdisjoint(deleted):
            self._remove(deleted)
        if self.pending is not None:
            self._deleted |= deleted & self.pending.partitions

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = self.partitions.difference(partitions)
        self._rows = None

    def _settle(self) -> None:
        self.pending = None
        self._deleted = frozenset()

    def _current(self, now_ms: int) -> TxnTransitMetadata:
        """Return the present state as a target, with ``now_ms`` as the time of its change."""
        if self._rows is None:
            self._rows = _rows_of(self.partitions)
        return TxnTransitMetadata(
            self.state,
            self.producer_id,
            self.last_producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            self.partitions,
            self.start_ms,
            now_ms,
            self._rows,
        )

    def _prepare_producer(
        self, producer_id: int, epoch: int, timeout_ms: int, now_ms: int, *, requested: bool
    ) -> TxnTransitMetadata:
        return self._prepare(
            replace(
                self._current(now_ms),
                state=TransactionState.EMPTY,
                producer_id=producer_id,
                last_producer_id=self.producer_id,
                producer_epoch=epoch,
                last_producer_epoch=self.producer_epoch if requested else NO_PRODUCER_EPOCH,
                timeout_ms=timeout_ms,
                partitions=frozenset(),
                rows=(),
                start_ms=NO_START_MS,
            )
        )

    def _prepare(self, target: TxnTransitMetadata) -> TxnTransitMetadata:
        if self.pending is not None or self.state not in VALID_PREDECESSORS[target.state]:
            raise AssertionError(
                f"{self.transactional_id} cannot go from {self.state.label} to {target.state.label}, "
                f"pending {self.pending}"
            )
        self.pending = target
        return target
