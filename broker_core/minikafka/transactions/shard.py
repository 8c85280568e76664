"""All transactions of one partition of ``__transaction_state``, in its leader, which is their coordinator.

A request gives a decision. One with an append makes the change pending; the caller appends, and ``appended``
returns what follows. Until then every other request for the id gets CONCURRENT_TRANSACTIONS.

The end of a transaction takes two appends: Prepare*, after which the outcome is certain and the client gets
its response, and Complete*, after the markers of all partitions. A coordinator that begins between the two
writes the markers again (``resume``).

Errors are those of ``TransactionCoordinator`` of Kafka 3.9, except for late requests of InitProducerId from
version 3 on (KIP-360), which get PRODUCER_FENCED and change nothing: with a former epoch while a transaction
of the newer one is open, which Kafka would abort, and with the epoch before the newest one as soon as that
one has begun a transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import int32
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.transactions.decisions import (
    Answer,
    AppendOutcome,
    AppendTransition,
    Decision,
    IdExpiration,
    NeedProducerId,
    TransactionDescription,
    TransactionListing,
    TxnMarkers,
)
from minikafka.transactions.messages import TransactionLogValue, key_bytes, value_bytes
from minikafka.transactions.metadata import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TxnTransitMetadata,
    is_epoch_exhausted,
)
from minikafka.transactions.states import COMPLETED, PREPARED, TransactionState

ANY_DURATION_MS = -1
"""The ``duration_filter_ms`` that lets all transactions pass."""

_STORED = Answer(ErrorCode.NONE)
_CONCURRENT = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED = Answer(ErrorCode.PRODUCER_FENCED)
_INVALID_STATE = Answer(ErrorCode.INVALID_TXN_STATE)
_NOTHING = AppendOutcome()

_OUTCOMES = {
    TransactionState.PREPARE_COMMIT: True,
    TransactionState.COMPLETE_COMMIT: True,
    TransactionState.PREPARE_ABORT: False,
    TransactionState.COMPLETE_ABORT: False,
}
"""State -> whether its transaction is committed."""

_COORDINATOR_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION: ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN,
}
"""The error of an append -> that of the response."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """A broker's settings for transactions. Times are ms."""

    max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", int32(1), 900_000, "The longest time-out of a transaction."
    )
    id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        int32(1),
        604_800_000,
        "How long a transactional id without a transaction is kept.",
    )


class TransactionCoordinatorShard:
    """The transactions of one partition. ``now_ms`` is since the epoch."""

    def __init__(self, settings: TransactionSettings, coordinator_epoch: int) -> None:
        self.coordinator_epoch = coordinator_epoch
        """The leader epoch of the partition."""
        self._settings = settings
        self._transactions: dict[str, TransactionMetadata] = {}
        self._markers: dict[str, TxnMarkers] = {}
        """Id -> the markers that are being written. As transactions of one producer have one epoch, only the
        object tells them apart.
        """
        self._unloaded = False

    def __len__(self) -> int:
        return len(self._transactions)

    # --- queries --------------------------------------------------------------------------------------------

    def transactional_ids(self) -> list[str]:
        """Return all ids."""
        return list(self._transactions)

    def states(self) -> list[tuple[TransactionState, int]]:
        """Return the state of each transaction, and when it began. Any thread may call this."""
        return [(metadata.state, metadata.start_ms) for metadata in list(self._transactions.values())]

    def highest_producer_id(self) -> int:
        """Return the largest producer id of all transactions; -1 for none."""
        ids = (metadata.producer_id for metadata in self._transactions.values())
        return max(ids, default=NO_PRODUCER_ID)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Return the description of a transaction."""
        if not transactional_id:
            return TransactionDescription(ErrorCode.INVALID_REQUEST)
        if self._unloaded:
            return TransactionDescription(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        metadata = self._transactions.get(transactional_id)
        if metadata is None or metadata.producer_epoch == NO_PRODUCER_EPOCH:
            return TransactionDescription(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return TransactionDescription(
            ErrorCode.NONE,
            metadata.state,
            metadata.timeout_ms,
            metadata.start_ms,
            metadata.producer_id,
            metadata.producer_epoch,
            tuple(sorted(metadata.partitions)),
        )

    def list_transactions(
        self,
        now_ms: int,
        state_filters: Collection[str] = (),
        producer_id_filters: Collection[int] = (),
        duration_filter_ms: int = ANY_DURATION_MS,
    ) -> list[TransactionListing]:
        """Return the transactions that all filters let pass; an empty one lets all pass, and one of unknown
        states none.
        """
        return [
            TransactionListing(transactional_id, metadata.producer_id, metadata.state)
            for transactional_id, metadata in self._transactions.items()
            if metadata.producer_epoch != NO_PRODUCER_EPOCH
            and (not state_filters or metadata.state.label in state_filters)
            and (not producer_id_filters or metadata.producer_id in producer_id_filters)
            and (duration_filter_ms < 0 or now_ms - metadata.start_ms > duration_filter_ms)
        ]

    # --- producers ------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        now_ms: int,
        new_producer_id: int | None = None,
    ) -> Decision:
        """Give a producer its id and epoch, and fence the former one. The end of an open transaction goes
        first; the response then is CONCURRENT_TRANSACTIONS.

        ``expected``: the producer's present id and epoch (version 3); None if it has none.
        ``new_producer_id``: after a NeedProducerId; it is lost if it is not needed any more.
        """
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            return Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if self._unloaded:
            return Answer(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        metadata = self._transactions.get(transactional_id)
        if metadata is not None:
            return self._next_producer(metadata, timeout_ms, expected, now_ms, new_producer_id)
        if new_producer_id is None:
            return NeedProducerId()
        metadata = TransactionMetadata(transactional_id, new_producer_id, timeout_ms, now_ms)
        self._transactions[transactional_id] = metadata
        return self._initialize(metadata, metadata.prepare_next_epoch(timeout_ms, now_ms, requested=False))

    def _next_producer(
        self,
        metadata: TransactionMetadata,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        now_ms: int,
        new_producer_id: int | None,
    ) -> Decision:
        """Return the decision of ``init_producer_id`` for a known id."""
        if metadata.pending is not None:
            return _CONCURRENT
        is_current = expected is None or expected == (metadata.producer_id, metadata.producer_epoch)
        is_repeated = (
            expected == (metadata.last_producer_id, metadata.last_producer_epoch)
            and metadata.last_producer_epoch != NO_PRODUCER_EPOCH
        )
        if not is_current and not is_repeated:
            return _FENCED
        if metadata.state in PREPARED:
            return _CONCURRENT
        if not is_current:
            if metadata.state is not TransactionState.EMPTY:
                return _FENCED
            return self._initialize(metadata, metadata.prepare_same_epoch(timeout_ms, now_ms))
        if metadata.state is TransactionState.ONGOING:
            return self._append(metadata, metadata.prepare_fence(now_ms), _CONCURRENT)
        requested = expected is not None
        if not is_epoch_exhausted(metadata.producer_epoch):
            return self._initialize(
                metadata, metadata.prepare_next_epoch(timeout_ms, now_ms, requested=requested)
            )
        if new_producer_id is None:
            return NeedProducerId()
        return self._initialize(
            metadata,
            metadata.prepare_new_producer_id(new_producer_id, timeout_ms, now_ms, requested=requested),
        )

    def _initialize(self, metadata: TransactionMetadata, transition: TxnTransitMetadata) -> AppendTransition:
        answer = Answer(ErrorCode.NONE, transition.producer_id, transition.producer_epoch)
        return self._append(metadata, transition, answer)

    # --- transactions ---------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        now_ms: int,
    ) -> Decision:
        """Add partitions to the transaction; the first ones begin it. For AddOffsetsToTxn, it is the
        partition of ``__consumer_offsets`` of the group.
        """
        metadata = self._find(transactional_id, producer)
        if isinstance(metadata, Answer):
            return metadata
        if metadata.pending is not None or metadata.state in PREPARED:
            return _CONCURRENT
        added = frozenset(partitions)
        if (
            metadata.state is TransactionState.ONGOING
            and added <= metadata.partitions
            and not metadata.has_failed_append
        ):
            return _STORED
        return self._append(metadata, metadata.prepare_add_partitions(added, now_ms), _STORED)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether it is in the open transaction; if not, TRANSACTION_ABORTABLE.

        A pending change does not matter: a marker, which comes later, covers or fences the batch that the
        leader of the partition asks for.
        """
        metadata = self._find(transactional_id, producer)
        if isinstance(metadata, Answer):
            return dict.fromkeys(partitions, metadata.error)
        if metadata.state in PREPARED:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            partition: ErrorCode.NONE if partition in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end_txn(
        self, transactional_id: str, producer: ProducerIdAndEpoch, now_ms: int, *, commit: bool
    ) -> Decision:
        """End the transaction. A request that is repeated gets the same response."""
        metadata = self._find(transactional_id, producer)
        if isinstance(metadata, Answer):
            return metadata
        if metadata.pending is not None:
            return _CONCURRENT
        if metadata.state is TransactionState.ONGOING:
            return self._append(metadata, metadata.prepare_end(now_ms, commit=commit), _STORED)
        if _OUTCOMES.get(metadata.state) is not commit:
            return _INVALID_STATE
        return _CONCURRENT if metadata.state in PREPARED else _STORED

    def expired(self, now_ms: int, limit: int) -> list[AppendTransition]:
        """Abort up to ``limit`` transactions that are open for longer than their time-out, and fence their
        producers.
        """
        late = (
            metadata
            for metadata in self._transactions.values()
            if metadata.state is TransactionState.ONGOING
            and metadata.pending is None
            and metadata.start_ms + metadata.timeout_ms < now_ms
        )
        return [
            self._append(metadata, metadata.prepare_fence(now_ms), None) for metadata in islice(late, limit)
        ]

    def _find(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionMetadata | Answer:
        """Return the transaction of a producer, or the answer to somebody else."""
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        if self._unloaded:
            return Answer(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        metadata = self._transactions.get(transactional_id)
        if metadata is None or metadata.producer_id != producer.producer_id:
            return Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if metadata.producer_epoch != producer.epoch:
            return _FENCED
        return metadata

    # --- appends and markers --------------------------------------------------------------------------------

    def appended(self, append: AppendTransition, error: ErrorCode, now_ms: int) -> AppendOutcome:
        """Complete a change that is stored, or undo it. ``error``: of the append; NONE if it is stored."""
        metadata, transition = self._transactions.get(append.transactional_id), append.transition
        if metadata is None or metadata.pending is not transition:
            # Unloaded meanwhile. The next coordinator finds the record in the log, or not.
            return _refusal(append, ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        if error is ErrorCode.NONE:
            metadata.complete_transition(transition)
            return self._after_change(metadata, append.answer, now_ms)
        if transition.state in COMPLETED:
            return AppendOutcome(retry=append)
        metadata.abandon(transition)
        if metadata.producer_epoch == NO_PRODUCER_EPOCH:
            del self._transactions[append.transactional_id]
        return _refusal(append, _COORDINATOR_ERRORS.get(error, error))

    def markers_written(
        self, markers: TxnMarkers, partitions: Iterable[TopicPartition], now_ms: int
    ) -> AppendTransition | None:
        """Remove partitions that have their marker, or need none; return the append after the last one.

        A response for markers of a former transaction, or a former coordinator, changes nothing.
        """
        if self._markers.get(markers.transactional_id) is not markers:
            return None
        metadata = self._transactions[markers.transactional_id]
        metadata.remove_partitions(partitions)
        return self._complete_if_written(metadata, now_ms)

    def partitions_deleted(self, deleted: Iterable[TopicPartition], now_ms: int) -> list[AppendTransition]:
        """Remove deleted partitions from all transactions; return the appends of those that are complete."""
        partitions = frozenset(deleted)
        appends = []
        for metadata in self._transactions.values():
            if not metadata.partitions and metadata.pending is None:
                continue  # most: there may be very many ids, and this is a step
            metadata.partitions_deleted(partitions)
            append = self._complete_if_written(metadata, now_ms)
            if append is not None:
                appends.append(append)
        return appends

    def _after_change(
        self, metadata: TransactionMetadata, answer: Answer | None, now_ms: int
    ) -> AppendOutcome:
        """Return what follows a stored change: in Prepare* the markers, or without partitions its end."""
        if metadata.state not in PREPARED:
            return AppendOutcome(answer)
        if not metadata.partitions:
            return AppendOutcome(answer, append=self._complete_if_written(metadata, now_ms))
        markers = TxnMarkers(
            metadata.transactional_id,
            metadata.producer_id,
            metadata.producer_epoch,
            _OUTCOMES[metadata.state],
            self.coordinator_epoch,
            metadata.partitions,
        )
        self._markers[metadata.transactional_id] = markers
        return AppendOutcome(answer, markers)

    def _complete_if_written(self, metadata: TransactionMetadata, now_ms: int) -> AppendTransition | None:
        if metadata.state not in PREPARED or metadata.pending is not None or metadata.partitions:
            return None
        self._markers.pop(metadata.transactional_id, None)
        return self._append(metadata, metadata.prepare_complete(now_ms), None)

    @staticmethod
    def _append(
        metadata: TransactionMetadata, transition: TxnTransitMetadata, answer: Answer | None
    ) -> AppendTransition:
        transactional_id = metadata.transactional_id
        record = key_bytes(transactional_id), value_bytes(transition.log_value())
        return AppendTransition(transactional_id, transition, record, answer)

    # --- expiration of ids ----------------------------------------------------------------------------------

    def expire_ids(self, now_ms: int, limit: int) -> IdExpiration | None:
        """Remove up to ``limit`` ids without a transaction that nobody has used for long; None: there are
        none. They stay until ``ids_expired``.
        """
        expires_ms = now_ms - self._settings.id_expiration_ms
        transitions: list[tuple[str, TxnTransitMetadata]] = []
        for transactional_id, metadata in self._transactions.items():
            if len(transitions) >= limit:
                break
            is_idle = metadata.state is TransactionState.EMPTY or metadata.state in COMPLETED
            if is_idle and metadata.pending is None and metadata.last_update_ms <= expires_ms:
                transitions.append((transactional_id, metadata.prepare_dead()))
        if not transitions:
            return None
        return IdExpiration(
            tuple(transitions),
            tuple((key_bytes(transactional_id), None) for transactional_id, _ in transitions),
        )

    def ids_expired(self, expiration: IdExpiration, error: ErrorCode) -> None:
        """Forget ids whose tombstones are stored; with an error they stay, and expire again."""
        for transactional_id, transition in expiration.transitions:
            metadata = self._transactions.get(transactional_id)
            if metadata is None or metadata.pending is not transition:
                continue
            if error is ErrorCode.NONE:
                del self._transactions[transactional_id]
            else:
                metadata.abandon(transition)

    # --- loading --------------------------------------------------------------------------------------------

    def restore(self, transactional_id: str, value: TransactionLogValue) -> None:
        """Add a stored transaction. Raises RemoteWireError for a state that is never stored."""
        self._transactions[transactional_id] = TransactionMetadata.loaded(transactional_id, value)

    def resume(self, now_ms: int) -> list[AppendOutcome]:
        """Return what is left of the ends of transactions, after loading: markers and appends."""
        outcomes = (self._after_change(metadata, None, now_ms) for metadata in self._transactions.values())
        return [outcome for outcome in outcomes if outcome != _NOTHING]

    def unload(self) -> None:
        """Forget all transactions, as another broker takes over. Requests get NOT_COORDINATOR from now on,
        and so do those that wait for an append, by ``appended``.
        """
        self._unloaded = True
        self._transactions.clear()
        self._markers.clear()


def _refusal(append: AppendTransition, error: ErrorCode) -> AppendOutcome:
    return AppendOutcome(None if append.answer is None else Answer(error))
