"""What a log knows of each producer that numbers its batches: which of them it has, and what follows next.

A producer gets an id and an epoch from a broker and numbers its records, for each partition, 0, 1, 2 …; after
2^31 - 1 comes 0. A batch has the number of its first record. So a batch that is sent again, as its answer was
lost, is known, and one that overtakes another is refused:

    it has the numbers of one of the last five     nothing is appended, the answer is that one's offsets
    it follows the last one                        it is appended
    all of it lies before the five                 46 DUPLICATE_SEQUENCE_NUMBER: the log has it, or had it
    any other number                               45 OUT_OF_ORDER_SEQUENCE_NUMBER
    the producer is not known, the number not 0    59 UNKNOWN_PRODUCER_ID
    0 again, from another producer                 59 UNKNOWN_PRODUCER_ID
    a higher epoch                                 numbers begin at 0 again, else 45
    a lower epoch                                  47 INVALID_PRODUCER_EPOCH: another one has the id by now

Two producers can have one id: ids are counted in ZooKeeper, and a ZooKeeper that was restored from an older
copy counts some of them a second time. The second producer begins at 0, and its batches must not be taken for
the first one's. A batch that is sent again has the base timestamp that it had; where that is not known (a
snapshot does not keep it), it is not later than the producer's last activity. And a batch that was answered
neither way is among the last five, so where five are known, one that begins at 0 before them is another's.
Clients answer 59 with another id or epoch, and send the batch again.

Sources: ``ProducerStateManager.scala`` of 2.0 and 2.1, and KIP-98. Otherwise than there: 46 where 2.1 has 45,
as that ends a producer whose messages are safe (clients take 46 for success without an offset); and a
producer is forgotten by the time of its last append, not by its messages' timestamps, which may be as old as
it likes.

Everything here is a value or a decision; ``producers`` keeps the state of a log and its files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.values import fast_value
from minikafka.records.format.batch import BatchHeader

BATCHES_KEPT = 5
"""As many as a producer may have under way at once."""
UNKNOWN = -1
_SEQUENCES = 1 << 31


def sequence_after(sequence: int, count: int) -> int:
    """The number ``count`` records behind (before, where negative); -1 stays: these have no numbers."""
    return UNKNOWN if sequence < 0 else (sequence + count) % _SEQUENCES


@fast_value
class BatchMetadata:
    """A batch that the log has, first and last both included. Sequences are -1 where it has none."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int
    """Its largest."""
    base_timestamp_ms: int = UNKNOWN
    """Of its first record, as the producer sent it; -1 where only a snapshot tells of the batch."""


@fast_value
class ProducerStateEntry:
    """What is known of one producer."""

    epoch: int = UNKNOWN
    batches: tuple[BatchMetadata, ...] = ()
    """Its last ones under this epoch, oldest first; none where only the mark of a transaction is known."""
    last_timestamp_ms: int = UNKNOWN
    """When it wrote last: wall-clock time, or the largest timestamp where only that is known."""
    coordinator_epoch: int = UNKNOWN
    """Of who wrote the last mark that ended a transaction."""
    current_txn_first_offset: int = UNKNOWN
    """First offset of its transaction that has not ended; -1 for none."""

    @property
    def last_sequence(self) -> int:
        """The number of its last record; -1 for none."""
        return self.batches[-1].last_sequence if self.batches else UNKNOWN

    @property
    def last_offset(self) -> int:
        """The offset of its last record; -1 for none."""
        return self.batches[-1].last_offset if self.batches else UNKNOWN

    def with_batch(
        self, epoch: int, batch: BatchMetadata, active_ms: int, *, transactional: bool
    ) -> ProducerStateEntry:
        """After one more batch."""
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
        """After the mark that ends its transaction."""
        batches = self.batches if epoch == self.epoch else ()
        return ProducerStateEntry(epoch, batches, active_ms, coordinator_epoch)


_NOBODY = ProducerStateEntry()
Producers = Mapping[int, ProducerStateEntry]
"""By producer id."""


def appended(header: BatchHeader, first_offset: int) -> BatchMetadata:
    """What is kept of a batch that lies at ``first_offset``."""
    delta = header.last_offset_delta
    first, last = header.base_sequence, sequence_after(header.base_sequence, delta)
    return BatchMetadata(
        first,
        last,
        first_offset,
        first_offset + delta,
        header.max_timestamp_ms,
        header.base_timestamp_ms,
    )


def analyze_batches(
    known: Producers, batches: Sequence[BatchHeader], first_offset: int, now_ms: int
) -> BatchMetadata | dict[int, ProducerStateEntry]:
    """What becomes of a produced set of ``batches`` that would begin at ``first_offset``.

    Either the batch that the log has already, all of the set then being as it was when that was appended; or
    the producers as they are once the set is appended, empty when none of the batches has one. BrokerError as
    the module says, and INVALID_TXN_STATE for a batch outside of the transaction that its producer has open.
    """
    changed: dict[int, ProducerStateEntry] = {}
    for header in batches:
        if header.producer_id >= 0:
            producer = changed.get(header.producer_id) or known.get(header.producer_id, _NOBODY)
            batch = appended(header, first_offset)
            if not _follows(producer, header):
                earlier = _same(producer, header.producer_epoch, batch)
                if earlier is not None:
                    return earlier
                _check(producer, header, batch)
            changed[header.producer_id] = producer.with_batch(
                header.producer_epoch, batch, now_ms, transactional=header.transactional
            )
        first_offset += header.last_offset_delta + 1
    return changed


def _follows(producer: ProducerStateEntry, header: BatchHeader) -> bool:
    """Return whether it is what nearly every batch is: the next one. Then nothing else is looked at."""
    return (
        header.producer_epoch == producer.epoch >= 0
        and header.base_sequence == (producer.last_sequence + 1) % _SEQUENCES
        and (producer.current_txn_first_offset < 0 or header.transactional)
    )


def _same(producer: ProducerStateEntry, epoch: int, batch: BatchMetadata) -> BatchMetadata | None:
    if epoch == producer.epoch:
        for earlier in producer.batches:
            if (
                earlier.first_sequence == batch.first_sequence
                and earlier.last_sequence == batch.last_sequence
                and _may_be_sent_again(producer, batch, earlier.base_timestamp_ms)
            ):
                return earlier
    return None


def _may_be_sent_again(producer: ProducerStateEntry, batch: BatchMetadata, base_timestamp_ms: int) -> bool:
    """Whether ``batch`` can be one that this producer wrote with that base timestamp; -1: it is not known."""
    if base_timestamp_ms == UNKNOWN:
        return batch.base_timestamp_ms <= producer.last_timestamp_ms
    return batch.base_timestamp_ms == base_timestamp_ms


def _is_of_another(producer: ProducerStateEntry, batch: BatchMetadata) -> bool:
    """Return whether ``batch``, which does not follow, must be from a second producer with the same id."""
    if batch.first_sequence != 0:
        return False  # that one's first batch was refused
    same = [
        one for one in producer.batches if (one.first_sequence, one.last_sequence) == (0, batch.last_sequence)
    ]
    full = len(producer.batches) == BATCHES_KEPT and _lies_before(batch, producer.batches)
    return bool(same) or full or not _may_be_sent_again(producer, batch, UNKNOWN)


def _check(producer: ProducerStateEntry, header: BatchHeader, batch: BatchMetadata) -> None:
    """Raise unless ``batch`` may be appended."""
    name, first, epoch = f"producer {header.producer_id}", batch.first_sequence, header.producer_epoch
    if epoch < max(producer.epoch, 0):
        raise BrokerError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{name} has epoch {epoch}, but a producer with epoch {producer.epoch} has written here",
        )
    if epoch != producer.epoch:
        if first != 0 and producer is _NOBODY:
            raise BrokerError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"{name} continues with sequence {first}, but is unknown: its records were deleted, or it "
                "was idle for longer than transactional.id.expiration.ms",
            )
        if first != 0:
            raise _gap(f"{name} begins epoch {epoch} with sequence {first}, expected 0")
    elif first != (producer.last_sequence + 1) % _SEQUENCES:
        if _is_of_another(producer, batch):
            raise BrokerError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"{name} begins with sequence 0, but another producer has written sequences up to "
                f"{producer.last_sequence} with this id: the id was assigned twice; the client must request "
                "another id or bump its epoch",
            )
        text = f"{name} sent sequences {first} to {batch.last_sequence} after {producer.last_sequence}"
        if _lies_before(batch, producer.batches):
            raise BrokerError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, f"{text}: already appended")
        raise _gap(text)
    if producer.current_txn_first_offset >= 0 and not header.transactional:
        raise BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"{name} sent a non-transactional batch in its transaction, open since offset "
            f"{producer.current_txn_first_offset}",
        )


def _gap(text: str) -> BrokerError:
    return BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)


def _lies_before(batch: BatchMetadata, kept: Sequence[BatchMetadata]) -> bool:
    """Whether all of it must have been there before ``kept``. Where numbers went over to 0, nobody knows."""
    if not kept or not 0 <= batch.first_sequence <= batch.last_sequence:
        return False
    oldest = kept[0].first_sequence
    return batch.last_sequence < oldest <= kept[-1].last_sequence


def replayed(producer: ProducerStateEntry | None, header: BatchHeader, active_ms: int) -> ProducerStateEntry:
    """After a batch of records that the log holds: nothing is refused, the last one counts."""
    return (producer or _NOBODY).with_batch(
        header.producer_epoch,
        appended(header, header.base_offset),
        active_ms,
        transactional=header.transactional,
    )


def expired(known: Producers, now_ms: int, expiration_ms: int) -> list[int]:
    """The producers that have not written for so long, but for those with an open transaction."""
    return [
        producer_id
        for producer_id, producer in known.items()
        if producer.current_txn_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms
    ]


def last_offsets(known: Producers) -> dict[int, int]:
    """The offset of each producer's last record: what compaction keeps of it."""
    return {producer_id: producer.last_offset for producer_id, producer in known.items()}
