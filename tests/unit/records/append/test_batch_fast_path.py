"""The fast validation of all plain batches of a request."""

from __future__ import annotations

import pytest

from minikafka.records.append.batch_fast_path import COPIED_BYTES, survey
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import set_max_timestamp, set_producer
from minikafka.records.format.compression import Codec
from minikafka.records.format.message_set import Record, build_message_set

NEWEST = Limits(max_magic=2)


def batch(*values: bytes | None, key: bytes | None = b"k", codec: Codec = Codec.NONE) -> memoryview:
    records = [Record(key, value, 5 + at) for at, value in enumerate(values)]
    return memoryview(bytearray(build_message_set(records, magic=2, codec=codec)))


def test_row_has_the_values_of_header_and_records() -> None:
    data = batch(b"a", b"b", key=None)
    set_producer(data, 77, 3, 9)
    (plain,) = survey([data])
    assert plain is not None
    assert plain.size_bytes == len(data)
    assert (plain.last_offset_delta, plain.keyless) == (1, 2)
    assert (plain.first_timestamp_ms, plain.base_timestamp_ms, plain.max_timestamp_ms) == (5, 5, 6)
    assert (plain.producer_id, plain.producer_epoch, plain.base_sequence) == (77, 3, 9)


def test_a_number_below_zero_stays_one() -> None:
    (plain,) = survey([batch(b"a")])
    assert plain is not None
    assert (plain.producer_id, plain.producer_epoch, plain.base_sequence) == (-1, -1, -1)


def test_batch_after_one_that_is_not_plain_is_left_out() -> None:
    found = survey([batch(b"a"), batch(b"b", codec=Codec.GZIP), batch(b"c")])
    assert [plain is not None for plain in found] == [True, False, False]


def test_two_batches_in_one_set_are_not_mistaken_for_two_sets() -> None:
    one = batch(b"a")
    found = survey([memoryview(bytes(one) + bytes(one)), one])
    assert found == [None, None]


def test_set_that_continues_in_the_next_is_no_plain_batch() -> None:
    one = batch(b"a")
    assert survey([one[:40], one[40:]]) == [None, None]


@pytest.mark.parametrize("size", [COPIED_BYTES // 2, COPIED_BYTES * 2])
def test_large_and_small_batches_are_found_plain_side_by_side(size: int) -> None:
    found = survey([batch(bytes(size)), batch(b"a"), batch(bytes(size), b"b")])
    assert [plain.last_offset_delta for plain in found if plain is not None] == [0, 0, 1]


def test_no_set_has_no_rows() -> None:
    assert survey([]) == []
    assert survey([memoryview(b"")]) == [None]


def test_fast_path_gives_the_result_of_full_validation() -> None:
    data = batch(b"a", b"b")
    before = bytes(data)
    (plain,) = survey([data])
    assert validate(data, NEWEST, 0, plain) == validate(bytearray(before), NEWEST, 0)
    assert bytes(data) == before


def test_full_validation_corrects_the_largest_timestamp() -> None:
    data = batch(b"a")
    set_max_timestamp(data, 0, len(data), 900)
    assert survey([data]) == [None]
    assert validate(data, NEWEST, 0).max_timestamp_ms == 5
