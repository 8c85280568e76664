"""``clients/producer/partitioner``: recorded partitions of Kafka 0.10.1.1's partitioners, and all kinds of
keys. (Hashes and columns are in ``records/test_hashes``.)
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from minikafka.clients.producer.partitioner import ByteArrayPartitioner, DefaultPartitioner

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[3] / "data" / "hashes.json").read_text()
)
COUNTS = (1, 2, 3, 4, 7, 10, 12, 50, 100)


def test_strings_get_the_partitions_of_the_release() -> None:
    cases = RECORDED["scala_default_partitioner"]
    keys = [case["key"] for case in cases]
    for count in COUNTS:
        expected = [case["partition"][str(count)] for case in cases]
        assert [DefaultPartitioner().partition(key, count) for key in keys] == expected
        assert DefaultPartitioner().partition_all(keys, count).tolist() == expected


@pytest.mark.parametrize("partitioner", [DefaultPartitioner(), ByteArrayPartitioner()])
def test_byte_keys_hash_as_in_the_releases_byte_array_partitioner(partitioner: Any) -> None:
    cases = RECORDED["scala_byte_array_partitioner"]
    keys = [base64.b64decode(case["key"]) for case in cases]
    for count in COUNTS:
        expected = [case["partition"][str(count)] for case in cases]
        assert [partitioner.partition(key, count) for key in keys] == expected
        assert [partitioner.partition(bytearray(key), count) for key in keys] == expected


def test_keys_get_the_same_partitions_in_lists_and_columns() -> None:
    partitioner = DefaultPartitioner()
    keys = ["a", b"a", None, 5, -5, True, "\ud800", bytearray(b"x"), 1 << 40]
    expected = [-1 if key is None else partitioner.partition(key, 7) for key in keys]
    assert partitioner.partition_all(keys, 7).tolist() == expected
    assert partitioner.partition_all([b"a", None], 7).tolist() == [expected[1], -1]
    assert partitioner.partition_all(["\ud800", None], 7).tolist() == [expected[6], -1]
    assert partitioner.partition_all(pa.array(["a", None]), 7).tolist() == [expected[0], -1]
    assert partitioner.partition_all([None, None], 7).tolist() == [-1, -1]


def test_numbers_and_booleans_have_javas_hashes() -> None:
    partitioner = DefaultPartitioner()
    assert [partitioner.partition(key, 1000) for key in (0, 999, -7, True, False)] == [0, 999, 7, 231, 237]


def test_keys_without_a_java_hash_are_refused() -> None:
    with pytest.raises(TypeError, match=r"got 1\.5, whose hash in Java is unknown"):
        DefaultPartitioner().partition(1.5, 3)
    with pytest.raises(TypeError, match="a key of bytes, got 'a'"):
        ByteArrayPartitioner().partition("a", 3)
