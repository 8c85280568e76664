"""Java's hashes: those that Kafka 0.10.1.1 gave, and the column against the plain function. What was recorded
of murmur2 is in ``test_golden``.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minikafka.records.columns import partitions_by_java_hash, partitions_by_key
from minikafka.records.format.hashes import (
    bytes_hash,
    long_hash,
    murmur2,
    partition_of_group,
    partition_of_hash,
    partition_of_key,
    string_hash,
)

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[3] / "data" / "hashes.json").read_text()
)


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
    with pytest.raises(ValueError, match="at least one partition, got 0"):
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


def test_character_outside_the_basic_plane_hashes_as_two() -> None:
    assert string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_string_hashes_and_partitions_match_the_release() -> None:
    cases = RECORDED["scala_default_partitioner"]
    texts = [case["key"] for case in cases]
    assert [string_hash(text) for text in texts] == [case["hashCode"] for case in cases]
    for count in map(int, cases[0]["partition"]):
        wanted = [case["partition"][str(count)] for case in cases]
        assert [partition_of_hash(string_hash(text), count) for text in texts] == wanted
        assert partitions_by_java_hash(pa.array(texts, pa.string()), count).tolist() == wanted
        assert partitions_by_java_hash(pa.array(texts, pa.large_string()), count).tolist() == wanted


def test_byte_hashes_and_partitions_match_the_release() -> None:
    cases = RECORDED["scala_byte_array_partitioner"]
    keys = [base64.b64decode(case["key"]) for case in cases]
    assert [bytes_hash(key) for key in keys] == [case["Arrays.hashCode"] for case in cases]
    for count in map(int, cases[0]["partition"]):
        wanted = [case["partition"][str(count)] for case in cases]
        assert [partition_of_hash(bytes_hash(key), count) for key in keys] == wanted
        assert partitions_by_java_hash(pa.array(keys, pa.binary()), count).tolist() == wanted


def test_texts_of_all_lengths_of_utf8_are_placed_as_each_alone() -> None:
    source = random.Random(6)
    alphabet = "az\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
    texts = ["".join(source.choices(alphabet, k=length)) for length in range(60)]
    assert partitions_by_java_hash(pa.array([*texts, None]), 1000).tolist() == [
        *(partition_of_hash(string_hash(text), 1000) for text in texts),
        -1,
    ]


def test_a_hash_that_has_no_absolute_value_counts_as_0() -> None:
    assert string_hash("polygenelubricants") == -(2**31)
    assert partitions_by_java_hash(pa.array(["polygenelubricants"]), 7).tolist() == [0]


def test_numbers_are_hashed_as_javas_integer_or_long() -> None:
    assert [long_hash(n) for n in (0, 5, -5, 2**31 - 1, -(2**31))] == [0, 5, -5, 2**31 - 1, -(2**31)]
    assert [long_hash(n) for n in (2**31, 2**32, 2**63 - 1, -(2**63))] == [-(2**31), 1, -(2**31), -(2**31)]
    with pytest.raises(OverflowError):
        long_hash(2**63)


def test_invalid_utf8_is_hashed_without_reading_further() -> None:
    broken = pa.array([b"\xf0\x9f", b"\xff\xff", b"\xc3"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 3, broken.buffers())
    assert all(0 <= number < 5 for number in partitions_by_java_hash(texts, 5).tolist())
