"""Text in UTF-8, as columns and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType

from pyspark_minikafka.formats.string_format import StringFormat
from pyspark_minikafka.formats.value_format import ColumnType


def test_text_is_decoded_and_null_stays_null() -> None:
    decoded = StringFormat().decode(pa.array([b"a", None, "é".encode(), b""]), "t")
    assert decoded.column.equals(pa.array(["a", None, "é", ""], pa.string()))
    assert decoded.bad.tolist() == []


def test_bytes_that_are_not_utf8_are_bad_and_null() -> None:
    values: list[bytes | None] = [b"good"] * 100
    values[7] = None
    values[40], values[99] = b"ab\xff", b"\xed\xa0\x80"  # the second is a surrogate
    decoded = StringFormat().decode(pa.array(values), "t")
    assert decoded.bad.tolist() == [40, 99]
    assert decoded.reasons[0] == "no UTF-8 at byte 2 (invalid start byte)"
    assert decoded.column.null_count == 3
    assert decoded.column.to_pylist()[41] == "good"


def test_a_slice_of_values_is_decoded_by_itself() -> None:
    values = pa.array([b"\xff", b"a", b"\xff", b"b"]).slice(1, 2)
    decoded = StringFormat().decode(values, "t")
    assert (decoded.bad.tolist(), decoded.column.to_pylist()) == ([1], ["a", None])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_strings_of_every_layout_are_encoded(kind: pa.DataType) -> None:
    encoded = StringFormat().encode(pa.array(["é", None], kind), "t")
    assert encoded.equals(pa.array(["é".encode(), None], pa.binary()))


def test_only_strings_are_written() -> None:
    assert StringFormat().for_column(StringType()) == StringFormat()
    with pytest.raises(ColumnType, match="string"):
        StringFormat().for_column(BinaryType())
