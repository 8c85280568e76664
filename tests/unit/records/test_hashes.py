"""The recorded values are in ``test_golden``; here the column against the plain function."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from minikafka.records.columns import partitions_by_key
from minikafka.records.hashes import murmur2, partition_of_key


def test_the_hash_is_signed_and_of_32_bits() -> None:
    hashes = [murmur2(b"%d" % i) for i in range(200)]
    assert min(hashes) < 0 < max(hashes)
    assert all(-(2**31) <= value < 2**31 for value in hashes)


def test_a_column_is_placed_as_each_key_alone() -> None:
    source = random.Random(5)
    keys = [source.randbytes(length) for length in range(70)]
    assert partitions_by_key(pa.array(keys, pa.binary()), 7).tolist() == [
        partition_of_key(key, 7) for key in keys
    ]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_every_kind_of_key_column_is_taken_and_null_is_minus_one(kind: pa.DataType) -> None:
    keys = pa.array(["skipped", "a", None, "ccc", ""], kind).slice(1)
    wanted = [partition_of_key(b"a", 5), -1, partition_of_key(b"ccc", 5), partition_of_key(b"", 5)]
    assert partitions_by_key(keys, 5).tolist() == wanted


def test_a_column_in_chunks_and_empty_columns_are_taken() -> None:
    chunks = pa.chunked_array([pa.array([b"a"]), pa.array([None, b"b"], pa.binary())])
    assert partitions_by_key(chunks, 5).tolist() == [partition_of_key(b"a", 5), -1, partition_of_key(b"b", 5)]
    assert partitions_by_key(pa.array([], pa.binary()), 5).tolist() == []
    assert partitions_by_key(pa.nulls(2), 5).tolist() == [-1, -1]
    assert partitions_by_key(pa.array(["x"]), 5).dtype == np.int32


def test_no_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one partition, not 0"):
        partitions_by_key(pa.array([b"a"]), 0)
