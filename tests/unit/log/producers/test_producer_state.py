"""The check of a producer's batch by its sequence numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.log.producers.producer_state import (
    BatchMetadata,
    ProducerStateEntry,
    analyze_batches,
    expired,
    replayed,
    sequence_after,
)
from minikafka.log.producers.snapshots import encode_producers, parse_producers
from minikafka.records.format.batch import BatchHeader
from minikafka.records.format.message_set import Codec

NOW_MS = 1_700_000_000_000
LARGEST = 0x7FFFFFFF


def batch(
    first: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer: int = 7,
    transactional: bool = False,
    timestamp_ms: int = 5,
    offset: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        size_bytes=100,
        codec=Codec.NONE,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        count=count,
        transactional=transactional,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=first,
    )


class Partition:
    """Appends batches, one at a time, as a log does."""

    def __init__(self) -> None:
        self.known: dict[int, ProducerStateEntry] = {}
        self.end_offset = 0

    def append(self, *batches: BatchHeader) -> tuple[int, int]:
        """Return the first and last offset of the response; a duplicate gets no new ones."""
        found = analyze_batches(self.known, batches, self.end_offset, NOW_MS)
        if isinstance(found, BatchMetadata):
            return found.first_offset, found.last_offset
        self.known.update(found)
        first = self.end_offset
        self.end_offset += sum(header.last_offset_delta + 1 for header in batches)
        return first, self.end_offset - 1

    def refusal(self, header: BatchHeader) -> ErrorCode:
        before = dict(self.known)
        with pytest.raises(BrokerError) as raised:
            self.append(header)
        assert self.known == before
        return raised.value.code


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_a_batch_that_comes_again_gets_the_offsets_that_it_has(partition: Partition) -> None:
    assert partition.append(batch(0, 3)) == (0, 2)
    assert partition.append(batch(3, 2)) == (3, 4)
    assert partition.append(batch(0, 3)) == (0, 2)
    assert partition.append(batch(3, 2)) == (3, 4)
    assert partition.end_offset == 5


def test_last_five_batches_are_known_and_older_ones_are_duplicates(partition: Partition) -> None:
    for number in range(7):
        partition.append(batch(2 * number, 2))
    for number in range(2, 7):
        assert partition.append(batch(2 * number, 2)) == (2 * number, 2 * number + 1)
    assert partition.refusal(batch(2, 2)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert partition.refusal(batch(3, 1)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


LATER_MS = NOW_MS + 60_000


@pytest.mark.parametrize("written", [1, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_first_batch_of_a_second_producer_is_not_a_duplicate(
    partition: Partition, written: int, count: int
) -> None:
    for number in range(written):
        partition.append(batch(2 * number, 2, timestamp_ms=NOW_MS))
    assert partition.refusal(batch(0, count, timestamp_ms=LATER_MS)) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_second_producer_is_distinguished_while_the_first_writes(partition: Partition) -> None:
    for number in range(8):
        partition.append(batch(2 * number, 2, timestamp_ms=LATER_MS))
        assert partition.refusal(batch(0, 2, timestamp_ms=NOW_MS)) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_second_producer_is_distinguished_from_a_snapshot(partition: Partition) -> None:
    partition.known[7] = ProducerStateEntry(0, (BatchMetadata(0, 1, 0, 1, NOW_MS),), NOW_MS)
    assert partition.append(batch(0, 2, timestamp_ms=NOW_MS)) == (0, 1)
    assert partition.refusal(batch(0, 2, timestamp_ms=LATER_MS)) is ErrorCode.UNKNOWN_PRODUCER_ID
    partition.known[7] = ProducerStateEntry(0, (BatchMetadata(10, 11, 10, 11, NOW_MS),), NOW_MS)
    assert partition.refusal(batch(0, 2, timestamp_ms=NOW_MS)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert partition.refusal(batch(0, 2, timestamp_ms=LATER_MS)) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_retried_batch_is_known_though_its_clock_is_ahead(partition: Partition) -> None:
    partition.append(batch(0, 2, timestamp_ms=LATER_MS))
    (known,) = partition.known[7].batches
    partition.known[7] = replace(
        partition.known[7], batches=(replace(known, base_timestamp_ms=-1, timestamp_ms=NOW_MS),)
    )
    assert partition.append(batch(0, 2, timestamp_ms=LATER_MS)) == (0, 1)


@pytest.mark.parametrize(("first", "count"), [(5, 1), (3, 1), (2, 2), (2, 4), (0, 4), (0, 8)])
def test_batch_that_neither_follows_nor_repeats_is_out_of_order(
    partition: Partition, first: int, count: int
) -> None:
    partition.append(batch(0, 2))
    partition.append(batch(2, 1))
    if first == 3:
        partition.append(batch(3, 3))
    assert partition.refusal(batch(first, count)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_after_the_largest_number_comes_0(partition: Partition) -> None:
    partition.known[7] = ProducerStateEntry(0, (BatchMetadata(LARGEST - 2, LARGEST - 1, 0, 1, 5),), NOW_MS)
    assert partition.refusal(batch(0, 1)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    partition.append(batch(LARGEST, 1))
    partition.append(batch(0, 2))
    assert partition.known[7].last_sequence == 1


def test_a_batch_may_go_over_the_largest_number_inside(partition: Partition) -> None:
    partition.known[7] = ProducerStateEntry(0, (BatchMetadata(0, LARGEST - 2, 0, 9, 5),), NOW_MS)
    partition.append(batch(LARGEST - 1, 4))
    assert partition.known[7].last_sequence == 1
    assert partition.append(batch(LARGEST - 1, 4)) == (0, 3)
    partition.append(batch(2, 1))
    assert partition.refusal(batch(LARGEST - 9, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_numbers_without_a_producer_are_not_looked_at(partition: Partition) -> None:
    assert partition.append(batch(-1, 3, producer=-1, epoch=-1)) == (0, 2)
    assert partition.append(batch(-1, 3, producer=-1, epoch=-1)) == (3, 5)
    assert partition.known == {}


def test_a_producer_that_is_not_known_begins_at_0(partition: Partition) -> None:
    assert partition.refusal(batch(1)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert partition.append(batch(0)) == (0, 0)


def test_a_new_epoch_begins_at_0_and_fences_the_one_before(partition: Partition) -> None:
    partition.append(batch(0, 5))
    assert partition.refusal(batch(5, 1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(batch(0, 5, epoch=1)) == (5, 9)
    assert partition.refusal(batch(0, 5)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refusal(batch(5, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refusal(batch(0, 1, epoch=-1, producer=8)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_do_not_know_of_each_other(partition: Partition) -> None:
    partition.append(batch(0, 2))
    assert partition.append(batch(0, 2, producer=8)) == (2, 3)
    assert partition.append(batch(0, 2)) == (0, 1)


def test_batches_of_a_set_follow_each_other_or_none_is_appended(partition: Partition) -> None:
    assert partition.append(batch(0, 2), batch(2, 3)) == (0, 4)
    assert partition.append(batch(2, 3)) == (2, 4)
    before = dict(partition.known)
    with pytest.raises(BrokerError, match="sent sequences 9 to 9 after 5"):
        partition.append(batch(5, 1), batch(9, 1))
    assert partition.known == before


def test_no_batch_outside_of_the_open_transaction_is_taken(partition: Partition) -> None:
    partition.append(batch(0, 2, transactional=True))
    assert partition.known[7].current_txn_first_offset == 0
    assert partition.refusal(batch(2, 1)) is ErrorCode.INVALID_TXN_STATE
    partition.append(batch(2, 1, transactional=True))
    assert partition.known[7].current_txn_first_offset == 0


def test_the_mark_ends_the_transaction_and_the_numbers_go_on(partition: Partition) -> None:
    partition.append(batch(0, 2, transactional=True))
    partition.known[7] = partition.known[7].with_end_marker(0, 3, NOW_MS)
    assert (partition.known[7].current_txn_first_offset, partition.known[7].coordinator_epoch) == (-1, 3)
    partition.append(batch(2, 1))
    assert partition.append(batch(0, 2)) == (0, 1)


def test_marker_of_a_higher_epoch_fences_and_restarts_sequences(partition: Partition) -> None:
    partition.append(batch(0, 2, transactional=True))
    partition.known[7] = partition.known[7].with_end_marker(1, 3, NOW_MS)
    assert partition.refusal(batch(2, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refusal(batch(2, 1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.append(batch(0, 1, epoch=1))


def test_batches_in_the_log_are_replayed_unchecked() -> None:
    known = replayed(None, batch(40, 2, offset=100), NOW_MS)
    known = replayed(known, batch(90, 5, offset=200, epoch=2), NOW_MS)
    assert known.batches == (BatchMetadata(90, 94, 200, 204, 5, 5),)
    assert known.epoch == 2


def test_batches_of_offsets_in_a_transaction_have_no_numbers() -> None:
    known = replayed(None, batch(-1, 3, offset=10, transactional=True), NOW_MS)
    assert (known.last_sequence, known.last_offset, known.current_txn_first_offset) == (-1, 12, 10)


def test_the_silent_are_forgotten_but_not_while_a_transaction_is_open(partition: Partition) -> None:
    partition.append(batch(0, producer=1))
    partition.append(batch(0, producer=2, transactional=True))
    partition.append(batch(0, producer=3, timestamp_ms=NOW_MS + 50))
    assert expired(partition.known, NOW_MS + 99, 100) == []
    assert expired(partition.known, NOW_MS + 100, 100) == [1]
    assert expired(partition.known, NOW_MS + 150, 100) == [1, 3]


def test_a_history_does_not_make_its_producer_old(partition: Partition) -> None:
    partition.append(batch(0, timestamp_ms=600_000_000_000))
    assert expired(partition.known, NOW_MS + 1000, 604_800_000) == []


@pytest.mark.parametrize(
    ("sequence", "count", "wanted"), [(5, 3, 8), (LARGEST, 1, 0), (1, -3, LARGEST - 1), (-1, 4, -1)]
)
def test_numbers_go_round(sequence: int, count: int, wanted: int) -> None:
    assert sequence_after(sequence, count) == wanted


# --- the batches of a group coordinator ---------------------------------------------------------------------


def commit(*, epoch: int = 0) -> BatchHeader:
    """Offsets in a transaction: all such batches look the same."""
    return batch(-1, epoch=epoch, transactional=True)


def test_batches_without_numbers_are_no_duplicates(partition: Partition) -> None:
    for number in range(7):
        assert partition.append(commit()) == (number, number)
    state = partition.known[7]
    assert (state.current_txn_first_offset, state.last_offset, state.last_sequence) == (0, 6, -1)


def test_batch_without_numbers_may_have_any_later_epoch(partition: Partition) -> None:
    partition.append(commit(epoch=2))
    assert partition.refusal(commit(epoch=5)) is ErrorCode.INVALID_TXN_STATE
    partition.known[7] = partition.known[7].with_end_marker(2, 3, NOW_MS)
    assert partition.append(commit(epoch=5)) == (1, 1)
    assert partition.refusal(commit(epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refusal(commit(epoch=-1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_batch_without_numbers_follows_one_with_numbers(partition: Partition) -> None:
    partition.append(batch(0, 3, transactional=True))
    assert partition.append(commit()) == (3, 3)


def test_batch_without_numbers_survives_a_snapshot(partition: Partition) -> None:
    partition.append(commit(epoch=2))
    partition.known, problem = parse_producers("s", encode_producers(partition.known))
    assert problem is None
    assert partition.append(commit(epoch=2)) == (1, 1)
    assert partition.refusal(commit(epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
