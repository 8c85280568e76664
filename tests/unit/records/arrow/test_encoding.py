from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.columns import decode, encode
from minikafka.records.format.batch import set_producer
from minikafka.records.format.message_set import Codec, Record, build_message_set, iterate
from tests.oracles import messages as oracle
from tests.support.records import CODECS, MAGICS

KEYS = pa.array([None, b"", b"key", b"k" * 200, None, b"x"], pa.binary())
VALUES = pa.array([b"v", None, b"", b"v" * 3000, None, b"y"], pa.binary())
TIMES = np.array([10, 30, 20, -1, 0, 5], dtype=np.int64)


def all_rows(count: int = 6) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(count, dtype=np.int64)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_encoded_columns_equal_a_built_set(magic: int, codec: Codec) -> None:
    (encoded,) = encode(KEYS, VALUES, TIMES, all_rows(), magic=magic, codec=codec, max_bytes=1 << 20)
    records = [
        Record(k, v, int(t)) for k, v, t in zip(KEYS.to_pylist(), VALUES.to_pylist(), TIMES, strict=True)
    ]
    assert bytes(encoded.data) == build_message_set(records, magic=magic, codec=codec)
    assert (encoded.count, encoded.max_timestamp_ms) == (6, 30)


@pytest.mark.parametrize("codec", CODECS)
def test_only_the_chosen_rows_are_encoded_in_their_order(codec: Codec) -> None:
    rows = np.array([5, 0, 5], dtype=np.int64)
    (encoded,) = encode(KEYS, VALUES, TIMES, rows, codec=codec, max_bytes=1 << 20)
    found = [(m.offset, m.timestamp, m.key, m.value) for m in oracle.decode(bytes(encoded.data))]
    assert found == [(0, 5, b"x", b"y"), (1, 10, None, b"v"), (2, 5, b"x", b"y")]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_before_magic_2_are_sealed_in_any_case(magic: int, codec: Codec) -> None:
    sets = [
        [
            bytes(encoded.data)
            for encoded in encode(
                KEYS, VALUES, TIMES, all_rows(), magic=magic, codec=codec, max_bytes=100, sealed=sealed
            )
        ]
        for sealed in (True, False)
    ]
    assert sets[0] == sets[1]


@pytest.mark.parametrize("codec", Codec)
def test_unsealed_batch_gets_its_checksum_with_the_producer(codec: Codec) -> None:
    (open_one,) = encode(
        KEYS, VALUES, TIMES, all_rows(), magic=2, codec=codec, max_bytes=1 << 20, sealed=False
    )
    (sealed,) = encode(KEYS, VALUES, TIMES, all_rows(), magic=2, codec=codec, max_bytes=1 << 20)
    assert open_one.data[17:21] == bytes(4)
    set_producer(open_one.data, -1, -1, -1)
    assert open_one.data == sealed.data
    set_producer(open_one.data, 5, 6, 7)
    assert [(r.producer_id, r.sequence) for r in iterate(open_one.data)] == [(5, 7 + n) for n in range(6)]


def test_no_rows_make_no_sets() -> None:
    assert list(encode(KEYS, VALUES, TIMES, all_rows(0), max_bytes=100)) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary()])
def test_every_kind_of_column_is_taken_also_from_its_middle(kind: pa.DataType) -> None:
    column = pa.array(["before", "a", None, "ccc"], kind).slice(1)
    (encoded,) = encode(column, column, TIMES[:3], all_rows(3), max_bytes=1000)
    assert [(r.key, r.value) for r in iterate(encoded.data)] == [(b"a", b"a"), (None, None), (b"ccc", b"ccc")]


def test_chunked_fixed_size_and_missing_columns_are_encoded() -> None:
    chunks = pa.chunked_array([pa.array([b"a"]), pa.array([b"b"])])
    fixed = pa.array([b"12", b"34"], pa.binary(2))
    (encoded,) = encode(chunks, fixed, TIMES[:2], all_rows(2), max_bytes=1000)
    assert [(r.key, r.value) for r in iterate(encoded.data)] == [(b"a", b"12"), (b"b", b"34")]
    (encoded,) = encode(None, pa.nulls(2), TIMES[:2], all_rows(2), max_bytes=1000)
    assert [(r.key, r.value) for r in iterate(encoded.data)] == [(None, None)] * 2


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("max_bytes", [1, 60, 500, 4096, 70_000])
def test_no_set_of_several_rows_is_larger_than_the_bound(magic: int, codec: Codec, max_bytes: int) -> None:
    source = random.Random(2)
    values = [source.randbytes(source.choice((0, 10, 100, 1000))) for _ in range(200)]
    column = pa.array(values, pa.binary())
    times = np.zeros(200, dtype=np.int64)
    sets = list(encode(None, column, times, all_rows(200), magic=magic, codec=codec, max_bytes=max_bytes))
    assert all(len(encoded.data) <= max_bytes or encoded.count == 1 for encoded in sets)
    read = [list(iterate(encoded.data)) for encoded in sets]
    assert [record.value for records in read for record in records] == values
    for encoded, records in zip(sets, read, strict=True):
        assert [record.offset for record in records] == list(range(encoded.count))
    if codec is Codec.NONE and max_bytes >= 4096:
        # Nothing more would have fitted.
        for encoded, following in pairwise(sets):
            first = 12 + int.from_bytes(following.data[8:12], "big")
            assert len(encoded.data) + first > max_bytes


@pytest.mark.parametrize("codec", CODECS[1:])
def test_incompressible_rows_are_split_to_fit_the_wrapper_limit(codec: Codec) -> None:
    noise = random.Random(4)
    values = [noise.randbytes(30_000) for _ in range(4)]
    plain = len(build_message_set([Record(None, value, 1) for value in values]))
    times = np.ones(4, dtype=np.int64)
    sets = list(
        encode(None, pa.array(values), times, all_rows(4), magic=1, codec=codec, max_bytes=plain + 34)
    )
    assert [encoded.count for encoded in sets] == [2, 2]
    assert [r.value for encoded in sets for r in iterate(encoded.data)] == values


@pytest.mark.parametrize("row", [-1, 6, 1 << 40])
def test_a_row_that_is_not_there_is_an_index_error(row: int) -> None:
    rows = np.array([0, row], dtype=np.int64)
    with pytest.raises(IndexError, match=f"row {row} is outside"):
        list(encode(KEYS, VALUES, TIMES, rows, max_bytes=1000))


def test_a_row_without_timestamp_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="row 3 is outside"):
        list(encode(KEYS, VALUES, TIMES[:3], all_rows(), max_bytes=1 << 20))


@pytest.mark.parametrize("codec", CODECS)
def test_encoded_sets_pass_the_brokers_validation_as_they_are(codec: Codec) -> None:
    (encoded,) = encode(KEYS, VALUES, TIMES, all_rows(), codec=codec, max_bytes=1 << 20)
    valid = validate(encoded.data, Limits(), 0)
    assert valid.count == 6
    assert bytes(valid.data) == bytes(encoded.data)


def test_encoded_columns_decode_to_the_same_columns() -> None:
    (encoded,) = encode(KEYS, VALUES, TIMES, all_rows(), max_bytes=1 << 20)
    columns = decode(encoded.data, 0, 10)
    assert columns.key_array().equals(KEYS)
    assert columns.value_array().equals(VALUES)
    assert columns.timestamps.tolist() == TIMES.tolist()


def test_a_small_set_holds_little_memory() -> None:
    """A producer holds thousands of them when an Arrow batch spreads over many partitions."""
    values = pa.array([b"v" * 100] * 10, pa.binary())
    before = pa.total_allocated_bytes()
    (only,) = encode(None, values, np.zeros(10, np.int64), np.arange(10), max_bytes=1 << 20)
    assert pa.total_allocated_bytes() - before < 2 * len(only.data)
