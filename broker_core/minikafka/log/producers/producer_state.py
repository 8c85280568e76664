"""The state of one idempotent or transactional producer in a log, and the check of its sequence numbers.

A producer gets an id and an epoch from a broker and numbers its records, for each partition, 0, 1, 2 …; after
2^31 - 1 comes 0. A batch has the number of its first record. So a batch that is sent again after a lost
response is recognised, and one that overtakes another is refused:

    same numbers as one of the last five batches   nothing is appended, the response has that batch's offsets
    follows the last batch                         appended
    completely before the last five                46 DUPLICATE_SEQUENCE_NUMBER: the log has it, or had it
    any other number                               45 OUT_OF_ORDER_SEQUENCE_NUMBER
    unknown producer, and the number is not 0      59 UNKNOWN_PRODUCER_ID
    0 again, from another producer                 59 UNKNOWN_PRODUCER_ID
    a higher epoch                                 must begin at 0 again, else 45
    a lower epoch                                  47 INVALID_PRODUCER_EPOCH: a newer producer has the id
    no number (-1), and no lower epoch             appended: offsets that a group coordinator commits for it

Two producers can have the same id: ids are counted in ZooKeeper, and a ZooKeeper that was restored from an
older copy assigns some of them a second time. The second producer begins at 0, and its batches must not be
mistaken for those of the first. A batch that is sent again has the same base timestamp; where that is not
known (a snapshot does not keep it), it is not later than the producer's last activity. And a batch without a
response is among the last five, so where five are known, a batch that begins at 0 before them is from another
producer. Clients handle 59 by another id or epoch, and send the batch again.

Sources: ``ProducerStateManager.scala`` of 2.0 and 2.1, and KIP-98. Different from there: 46 where 2.1 has 45,
as 45 ends a producer whose messages are safe (clients treat 46 as success without an offset); and a producer
expires by the time of its last append, not by its messages' timestamps, which may be arbitrarily old.

A transaction begins with the first transactional batch of a producer, and ends with a marker, which its
coordinator lets the leader append (KIP-98): 47 for a lower epoch of the producer, and 52
TRANSACTION_COORDINATOR_FENCED for a lower epoch of the coordinator than that of the last marker. A marker may
raise the producer's epoch, and need not end a transaction.

Data that arrives after the marker must not begin a transaction that nobody ends (KIP-890). So a client's
batch may begin one only after the coordinator has verified that the partition is in the transaction: the
verification of a producer begins with a ``VerificationGuard``, which is kept until the producer's next batch
or marker is appended. A batch with another guard, from before a marker, gets 48 INVALID_TXN_STATE. A batch of
an open transaction needs no verification if it has its epoch: with a higher one, anybody with a transactional
id could raise the epoch of another producer, and the marker of that one's transaction would be refused. Where
nothing is verified, such a batch gets 48. So an open transaction has no records of an epoch below its
producer's, and a marker that is refused with 47 leaves nothing undecided.

Everything here is a value or a pure function; ``producer_state_manager`` keeps the state of a log and its
files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.values import fast_value
from minikafka.records.format.batch import BatchHeader

BATCHES_KEPT = 5
"""The number of batches that a producer may have in flight."""
UNKNOWN = -1
_SEQUENCES = 1 << 31


def sequence_after(sequence: int, count: int) -> int:
    """Return the number ``count`` records later (earlier if negative); -1, for no numbers, stays -1."""
    return UNKNOWN if sequence < 0 else (sequence + count) % _SEQUENCES


@fast_value
class BatchMetadata:
    """A batch in the log; first and last are inclusive. Sequences are -1 for a batch without numbers."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int
    """The largest timestamp."""
    base_timestamp_ms: int = UNKNOWN
    """The timestamp of the first record, as the producer sent it; -1 for a batch from a snapshot."""


@fast_value
class ProducerStateEntry:
    """The state of one producer in a log."""

    epoch: int = UNKNOWN
    batches: tuple[BatchMetadata, ...] = ()
    """Its last batches in this epoch, oldest first; none when only a transaction marker is known."""
    last_timestamp_ms: int = UNKNOWN
    """The time of its last append: wall-clock time, or the largest timestamp where only that is known."""
    coordinator_epoch: int = UNKNOWN
    """The coordinator epoch of the last marker that ended a transaction."""
    current_txn_first_offset: int = UNKNOWN
    """The first offset of its open transaction; -1 for none."""

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record; -1 for none."""
        return self.batches[-1].last_sequence if self.batches else UNKNOWN

    @property
    def last_offset(self) -> int:
        """The offset of its last record; -1 for none."""
        return self.batches[-1].last_offset if self.batches else UNKNOWN

    def with_batch(
        self, epoch: int, batch: BatchMetadata, active_ms: int, *, transactional: bool
    ) -> ProducerStateEntry:
        """Return the state after one more batch."""
        kept = self.batches[1 - BATCHES_KEPT :] if epoch == self.epoch else ()
        open_from = (
            batch.first_offset
            if transactional and self.current_txn_first_offset < 0
            else self.current_txn_first_offset
        )
        return ProducerStateEntry(
            epoch,
            (*kept, batch),
            max(batch.timestamp_ms, batch.base_timestamp_ms, active_ms),
            self.coordinator_epoch,
            open_from,
        )

    def with_end_marker(self, epoch: int, coordinator_epoch: int, active_ms: int) -> ProducerStateEntry:
        """Return the state after the marker that ends its transaction."""
        batches = self.batches if epoch == self.epoch else ()
        return ProducerStateEntry(epoch, batches, active_ms, coordinator_epoch)


_EMPTY = ProducerStateEntry()
Producers = Mapping[int, ProducerStateEntry]
"""Producer id -> state."""


class VerificationGuard:
    """One verification of a producer's transaction. It is equal only to itself."""

    __slots__ = ()


Guard = VerificationGuard | None
"""The guard with which batches were verified; None if they need not be."""
OPEN_TRANSACTION = VerificationGuard()
"""The guard for a batch of an open transaction, which needs no verification. It cannot begin another one."""


@fast_value
class VerificationStateEntry:
    """The verification of a producer's transaction, which has no batch yet."""

    guard: VerificationGuard
    epoch: int
    lowest_sequence: int
    """The lowest sequence number that was seen in this epoch. No higher one may come first: the lower one,
    which is sent again after an error, would then be out of order for ever."""
    started_ms: int
    """Wall-clock time."""

    def seen(self, epoch: int, sequence: int) -> VerificationStateEntry:
        """Return the state after one more batch that is to be verified."""
        if epoch > self.epoch:
            return VerificationStateEntry(self.guard, epoch, sequence, self.started_ms)
        if epoch == self.epoch and sequence < self.lowest_sequence:
            return VerificationStateEntry(self.guard, epoch, sequence, self.started_ms)
        return self


Verifications = Mapping[int, VerificationStateEntry]
"""Producer id -> verification."""
_NO_VERIFICATIONS: Verifications = {}


def appended(header: BatchHeader, first_offset: int) -> BatchMetadata:
    """Return the metadata of a batch that is appended at ``first_offset``."""
    delta = header.last_offset_delta
    first, last = header.base_sequence, sequence_after(header.base_sequence, delta)
    return BatchMetadata(
        first, last, first_offset, first_offset + delta, header.max_timestamp_ms, header.base_timestamp_ms
    )


def analyze_batches(
    known: Producers,
    batches: Sequence[BatchHeader],
    first_offset: int,
    now_ms: int,
    guard: Guard = None,
    verifications: Verifications = _NO_VERIFICATIONS,
) -> BatchMetadata | dict[int, ProducerStateEntry]:
    """Check the produced ``batches``, which would be appended at ``first_offset``.

    Returns the earlier batch if they are a duplicate of it; otherwise the state of their producers after the
    append, empty when no batch has a producer. Raises BrokerError as in the module's table, and
    INVALID_TXN_STATE for a non-transactional batch of a producer with an open transaction, and for a
    transactional one that would begin a transaction without having been verified, or join one of a lower
    epoch.
    """
    changed: dict[int, ProducerStateEntry] = {}
    for header in batches:
        if header.producer_id >= 0:
            producer = changed.get(header.producer_id) or known.get(header.producer_id, _EMPTY)
            batch = appended(header, first_offset)
            if not _follows(producer, header):
                _check_epoch(producer, header.producer_id, header.producer_epoch)
                # Only a group coordinator may leave the numbers out, in its own batches (``validation``).
                if header.base_sequence >= 0:
                    earlier = _find_duplicate(producer, header.producer_epoch, batch)
                    if earlier is not None:
                        return earlier
                    if header.producer_id in verifications:
                        _check_lowest(verifications[header.producer_id], header)
                    _check(producer, header, batch)
            if header.transactional and not is_in_open_transaction(producer, header.producer_epoch):
                if guard is not None:
                    _check_verified(verifications.get(header.producer_id), guard, header.producer_id)
                elif producer.current_txn_first_offset >= 0:
                    raise _in_older_transaction(producer, header)
            changed[header.producer_id] = producer.with_batch(
                header.producer_epoch, batch, now_ms, transactional=header.transactional
            )
        first_offset += header.last_offset_delta + 1
    return changed


def _follows(producer: ProducerStateEntry, header: BatchHeader) -> bool:
    """Return whether the batch is the next in sequence, as nearly all are; then no other check is needed."""
    return (
        header.producer_epoch == producer.epoch >= 0
        and header.base_sequence == (producer.last_sequence + 1) % _SEQUENCES
        and (producer.current_txn_first_offset < 0 or header.transactional)
    )


def is_in_open_transaction(producer: ProducerStateEntry, epoch: int) -> bool:
    """Return whether a transactional batch of that epoch goes on with the producer's open transaction."""
    return producer.current_txn_first_offset >= 0 and producer.epoch == epoch


def _find_duplicate(producer: ProducerStateEntry, epoch: int, batch: BatchMetadata) -> BatchMetadata | None:
    if epoch == producer.epoch:
        for earlier in producer.batches:
            if (
                earlier.first_sequence == batch.first_sequence
                and earlier.last_sequence == batch.last_sequence
                and _may_be_duplicate(producer, batch, earlier.base_timestamp_ms)
            ):
                return earlier
    return None


def _may_be_duplicate(producer: ProducerStateEntry, batch: BatchMetadata, base_timestamp_ms: int) -> bool:
    """Return whether this producer may have written ``batch`` with that base timestamp; -1 for unknown."""
    if base_timestamp_ms == UNKNOWN:
        return batch.base_timestamp_ms <= producer.last_timestamp_ms
    return batch.base_timestamp_ms == base_timestamp_ms


def _is_of_another(producer: ProducerStateEntry, batch: BatchMetadata) -> bool:
    """Return whether ``batch``, which does not follow, must be from a second producer with the same id."""
    if batch.first_sequence != 0:
        return False  # the first batch of such a producer was refused
    same = [
        kept
        for kept in producer.batches
        if (kept.first_sequence, kept.last_sequence) == (0, batch.last_sequence)
    ]
    full = len(producer.batches) == BATCHES_KEPT and _is_before(batch, producer.batches)
    return bool(same) or full or not _may_be_duplicate(producer, batch, UNKNOWN)


def _check(producer: ProducerStateEntry, header: BatchHeader, batch: BatchMetadata) -> None:
    """Raise unless ``batch`` may be appended, by its numbers and its transaction."""
    name, first, epoch = f"producer {header.producer_id}", batch.first_sequence, header.producer_epoch
    if epoch != producer.epoch:
        if first != 0 and producer is _EMPTY:
            raise BrokerError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"{name} continues with sequence {first}, but is unknown: its records were deleted, or it "
                "was idle for longer than transactional.id.expiration.ms",
            )
        if first != 0:
            raise _out_of_order(f"{name} begins epoch {epoch} with sequence {first}, expected 0")
    elif first != (producer.last_sequence + 1) % _SEQUENCES:
        if _is_of_another(producer, batch):
            raise BrokerError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"{name} begins with sequence 0, but another producer has written sequences up to "
                f"{producer.last_sequence} with this id: the id was assigned twice; the client must request "
                "another id or bump its epoch",
            )
        text = f"{name} sent sequences {first} to {batch.last_sequence} after {producer.last_sequence}"
        if _is_before(batch, producer.batches):
            raise BrokerError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, f"{text}: already appended")
        raise _out_of_order(text)
    if producer.current_txn_first_offset >= 0 and not header.transactional:
        raise BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"{name} sent a non-transactional batch in its transaction, open since offset "
            f"{producer.current_txn_first_offset}",
        )


def _check_lowest(verification: VerificationStateEntry, header: BatchHeader) -> None:
    """Raise if a batch with a lower number, which is to be verified, must come before this one."""
    lowest = verification.lowest_sequence
    if header.producer_epoch == verification.epoch and 0 <= lowest < header.base_sequence:
        raise _out_of_order(
            f"producer {header.producer_id} sent sequence {header.base_sequence} before {lowest}, which is "
            "not appended yet"
        )


def _check_verified(
    verification: VerificationStateEntry | None, guard: VerificationGuard, producer_id: int
) -> None:
    """Raise unless a transaction may begin with a batch that was verified with ``guard``."""
    if verification is None or verification.guard is not guard:
        raise BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {producer_id} sent a batch of a transaction that ended while it was verified",
        )


def _in_older_transaction(producer: ProducerStateEntry, header: BatchHeader) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_TXN_STATE,
        f"producer {header.producer_id} sent a batch of epoch {header.producer_epoch} in the transaction of "
        f"epoch {producer.epoch}, open since offset {producer.current_txn_first_offset}",
    )


def _check_epoch(producer: ProducerStateEntry, producer_id: int, epoch: int) -> None:
    """Raise if a newer producer has the id."""
    if epoch < max(producer.epoch, 0):
        raise BrokerError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} has epoch {epoch}, but the producer of epoch {producer.epoch} has "
            "written to this log",
        )


def analyze_end_marker(
    known: Producers, producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int
) -> ProducerStateEntry:
    """Check a marker that would be appended, and return the state of its producer after that.

    Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    producer = known.get(producer_id, _EMPTY)
    _check_epoch(producer, producer_id, producer_epoch)
    if coordinator_epoch < producer.coordinator_epoch:
        raise BrokerError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"the marker for producer {producer_id} has coordinator epoch {coordinator_epoch}, but the "
            f"coordinator of epoch {producer.coordinator_epoch} has written to this log",
        )
    return producer.with_end_marker(producer_epoch, coordinator_epoch, now_ms)


def _out_of_order(text: str) -> BrokerError:
    return BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)


def _is_before(batch: BatchMetadata, kept: Sequence[BatchMetadata]) -> bool:
    """Return whether ``batch`` is certainly before the kept batches. False if their numbers wrapped to 0."""
    if not kept or not 0 <= batch.first_sequence <= batch.last_sequence:
        return False
    oldest = kept[0].first_sequence
    return batch.last_sequence < oldest <= kept[-1].last_sequence


def replayed(producer: ProducerStateEntry | None, header: BatchHeader, active_ms: int) -> ProducerStateEntry:
    """Return the state after a batch that is already in the log: nothing is checked, the last one counts."""
    return (producer or _EMPTY).with_batch(
        header.producer_epoch,
        appended(header, header.base_offset),
        active_ms,
        transactional=header.transactional,
    )


def expired(known: Producers, now_ms: int, expiration_ms: int) -> list[int]:
    """Return the producers that have been idle for that long, except those with an open transaction."""
    return [
        producer_id
        for producer_id, producer in known.items()
        if producer.current_txn_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms
    ]


def last_offsets(known: Producers) -> dict[int, int]:
    """Return the offset of each producer's last record, which compaction must keep."""
    return {producer_id: producer.last_offset for producer_id, producer in known.items()}
