"""Values that are not in their format: how they are found and reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.formats.bad_values import bad_value, decode_blocks, errors
from pyspark_minikafka.formats.json_format import JsonFormat
from pyspark_minikafka.formats.spark_schema import parse_schema
from pyspark_minikafka.formats.value_format import Decoded

ROOT = Path(__file__).resolve().parents[4]


def _whole(block: pa.BinaryArray) -> pa.Array | None:
    return None if b"bad" in block.to_pylist() else block.cast(pa.string())


def _single(value: bytes) -> str:
    if value == b"bad":
        raise ValueError("is bad")
    return value.decode()


@given(st.lists(st.sampled_from([b"good", b"bad", None]), max_size=300))
def test_every_bad_value_is_found(values: list[bytes | None]) -> None:
    decoded = decode_blocks(pa.array(values, pa.binary()), pa.string(), _whole, _single)
    assert decoded.bad.tolist() == [row for row, value in enumerate(values) if value == b"bad"]
    assert decoded.reasons == ("is bad",) * len(decoded.bad)
    wanted = [value.decode() if value == b"good" else None for value in values]
    assert decoded.column.equals(pa.array(wanted, pa.string()))


def test_the_column_of_errors_is_null_where_values_are_good() -> None:
    values = pa.array([b"a", b"\xff", None, b"\xfe"])
    decoded = Decoded(pa.nulls(4), np.array([1, 3]), ("x", "y"))
    assert errors(values, decoded).to_pylist() == [
        None,
        {"bytes": b"\xff", "reason": "x"},
        None,
        {"bytes": b"\xfe", "reason": "y"},
    ]
    assert errors(values, Decoded(pa.nulls(4), np.array([], dtype=np.int64), ())).null_count == 4


def test_the_error_of_a_value_names_its_place_and_the_way_out() -> None:
    error = str(bad_value("value", TopicPartition("t", 3), 17, b"\x1b[2J" + b"x" * 500, "no\ngood"))
    assert "the value of t-3 at offset 17" in error
    assert r"no\ngood" in error
    assert "minikafka.bad.values=permissive" in error
    assert "504 bytes" in error
    assert r"\x1b[2J" in error
    assert error.isprintable()
    assert len(error) < 500


def test_the_guide_quotes_the_error_as_it_is() -> None:
    value = b'{"id":3,"total":"12"}'
    decoded = JsonFormat(parse_schema("id BIGINT, total DOUBLE")).decode(pa.array([value]), "sold")
    (reason,) = decoded.reasons
    guide = (ROOT / "docs" / "guides" / "value-formats.md").read_text(encoding="utf-8")
    error = bad_value("value", TopicPartition("sold", 0), 2, value, reason)
    assert str(error) in " ".join(guide.split())
