"""The recorded values are in ``test_golden``; here the column against the plain function."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from minikafka.records.columns import partitions_by_key
from minikafka.records.hashes import murmur2, partition_of_group, partition_of_key, string_hash


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


@pytest.mark.parametrize(
    ("group", "hashed", "partition_of_50"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("rebalancing", -902201402, 2),
        ("commits-only", 132035773, 23),
        ("golden-group", -1429646149, 49),
        ("console-consumer-12345", 158455506, 6),
        ("polygenelubricants", -2147483648, 0),
        ("группа", 1749938458, 8),
        ("my-group", -1906497762, 12),
        ("spark-kafka-source-1", -1638101322, 22),
    ],
)
def test_groups_are_placed_as_kafka_0_10_1_places_them(group: str, hashed: int, partition_of_50: int) -> None:
    assert string_hash(group) == hashed
    assert partition_of_group(group, 50) == partition_of_50


def test_a_character_outside_of_the_basic_plane_counts_as_two_as_in_java() -> None:
    assert string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
