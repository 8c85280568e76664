"""``records/scan/isolation``: the records that consumers of committed records leave out."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.columns import decode
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch, set_offset_and_epoch
from minikafka.records.format.message_set import Record, build_message_set, iterate
from minikafka.records.scan.isolation import AbortedSearch, without_aborted
from tests.support.records import expected_read_committed, rows_of, segment


def log(*entries: bytes) -> memoryview:
    """Entries of one record each, under the offsets from 0 on."""
    data = bytearray()
    for offset, entry in enumerate(entries):
        one = bytearray(entry)
        if entry[16] == 2:
            set_offset_and_epoch(memoryview(one), offset, 0)
        else:
            one[:8] = offset.to_bytes(8, "big")
        data += one
    return memoryview(bytes(data))


def of(producer: int, value: bytes = b"v", *, transactional: bool = True) -> bytes:
    return build_batch(
        [Record(None, value, 0)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def mark(producer: int, kind: ControlType) -> bytes:
    return build_control_batch(
        kind, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp_ms=0
    )


def abort(producer: int) -> bytes:
    return mark(producer, ControlType.ABORT)


def commit(producer: int) -> bytes:
    return mark(producer, ControlType.COMMIT)


PLAIN = build_batch([Record(None, b"plain", 0)])
OLD = build_message_set([Record(None, b"old", 0)], magic=1)


def kept(data: memoryview, *aborted: tuple[int, int]) -> list[int]:
    """The offsets that have rows."""
    return decode(without_aborted(data, aborted), 0, 1 << 40).offsets.tolist()


def test_a_log_of_kafka_gives_what_kafkas_consumer_gives() -> None:
    data = memoryview(segment("magic2-transactions"))
    search = AbortedSearch()
    search.begin_in(data)
    assert search.aborted
    assert search.open == {}
    committed = without_aborted(data, search.aborted)
    assert rows_of(decode(committed, 0, 1 << 40)) == expected_read_committed()


def test_an_aborted_transaction_ends_with_its_producers_mark() -> None:
    data = log(of(7), of(7), abort(7), of(7), commit(7))
    assert kept(data, (7, 0)) == [3]
    assert kept(data, (7, 1)) == [0, 3]


def test_other_producers_between_and_other_formats_are_kept() -> None:
    data = log(of(7), of(8), PLAIN, of(7), OLD, of(9, transactional=False), abort(7), commit(8))
    assert kept(data, (7, 0)) == [1, 2, 4, 5]


def test_batches_outside_transactions_are_kept() -> None:
    assert kept(log(of(7), of(7, transactional=False), abort(7)), (7, 0)) == [1]


def test_aborted_transaction_without_marker_is_left_out_to_end() -> None:
    assert kept(log(PLAIN, of(7), PLAIN, of(7)), (7, 1)) == [0, 2]


def test_aborted_transaction_begun_before_is_left_out() -> None:
    data = log(*[PLAIN] * 4, of(7), abort(7), of(7), commit(7))
    tail = data[4 * len(PLAIN) :]
    assert kept(tail, (7, 1)) == [6]


def test_order_of_the_aborted_list_does_not_matter() -> None:
    data = log(of(7), abort(7), of(7), commit(7), of(7), abort(7))
    assert kept(data, (7, 4), (7, 0)) == [2]


def test_marks_stay_so_that_whoever_counts_offsets_sees_them() -> None:
    data = log(of(7), abort(7))
    assert [record.offset for record in iterate(without_aborted(data, [(7, 0)]))] == [1]
    assert len(without_aborted(log(of(7), of(7)), [(7, 0)])) == 0


def test_a_mark_of_a_later_kind_ends_nothing() -> None:
    later = build_batch(
        [Record(b"\0\0\0\5", b"", 0)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
        control=True,
    )
    assert kept(log(of(7), later, of(7), abort(7), of(7)), (7, 0)) == [4]


def test_contiguous_result_is_not_copied() -> None:
    data = log(of(7), PLAIN, PLAIN, of(7))
    assert without_aborted(data, [(7, 0)]).obj is data.obj
    assert without_aborted(data, []).obj is data.obj


def test_a_header_that_cannot_be_right_is_an_error() -> None:
    damaged = bytearray(of(7))
    damaged[23:27] = b"\xff" * 4
    with pytest.raises(BrokerError) as caught:
        without_aborted(memoryview(damaged), [(7, 0)])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
