"""JSON in bulk against JSON one by one, and there and back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_minikafka.formats.json_format import JsonFormat
from pyspark_minikafka.formats.json_values import json_reader
from pyspark_minikafka.formats.spark_schema import parse_schema
from pyspark_minikafka.formats.value_format import arrow_type

SCHEMA = parse_schema(
    "i INT, d DOUBLE, m DECIMAL(6,2), s STRING, y DATE, t TIMESTAMP, n TIMESTAMP_NTZ, b BOOLEAN, "
    "l ARRAY<INT>, q STRUCT<i: INT>"
)
KIND = arrow_type(SCHEMA)
WORDS = [
    *'{}[]":,\\\n\0 v',
    '"v":',
    '}\n{"v":',
    "null",
    "true",
    *("0", "-0", "1", "1.0", "01", "1e2", "1.555", "99999", "2147483648", "NaN", "-NaN", "Inf", "-Infinity"),
    *('"x"', '"\\u0000"', '"\\ud83d"', '"Info: Inf"', '"é"', '"1"', '"+.5"', '"5."', '""'),
    *('"2020-01-02"', '"0001-01-01"', '"2020-1"', '"2020-01-02T03"', '"2020-01-02T03:04Z"'),
    *('"2020-01-02 03:04:05.123456+0200"', '"2020-01-02T03:04:05.1234567-23:59"', '"9999-12-31T23:59:59+01"'),
]
FIELD = st.tuples(st.sampled_from([*"idmsytnblqz", "\\u0069"]), st.sampled_from(WORDS)).map(
    lambda field: f'"{field[0]}":{field[1]}'
)
TEXT = st.one_of(
    st.lists(FIELD, max_size=4).map(lambda fields: "{" + ",".join(fields) + "}"),
    st.lists(st.one_of(st.sampled_from(WORDS), FIELD), max_size=8).map("".join),
)
VALUE = st.one_of(TEXT.map(str.encode), st.none(), st.binary(max_size=6))


def one_by_one(values: list[bytes | None]) -> tuple[pa.Array, list[int]]:
    """The column as it is read without the bulk reader."""
    read = json_reader(SCHEMA)
    rows: list[Any] = []
    bad = []
    for number, value in enumerate(values):
        try:
            rows.append(None if value is None else read(value))
        except ValueError:
            rows.append(None)
            bad.append(number)
    return pa.array(rows, KIND), bad


@given(st.lists(VALUE, min_size=1, max_size=5))
@example([b'{"i":1}}{"v":{"i":2}}\0', b'{"i":9}'])
@example([b'{"i":1},"b":2', b"{}"])
@example([b'{"d":-Inf}'])
def test_values_read_in_bulk_are_those_read_one_by_one(values: list[bytes | None]) -> None:
    wanted, bad = one_by_one(values)
    found = JsonFormat(SCHEMA).decode(pa.array(values, pa.binary()), "t")
    found.column.validate(full=True)
    assert found.bad.tolist() == bad
    assert repr(found.column.to_pylist()) == repr(wanted.to_pylist())  # as NaN is no NaN


ROW = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "d": st.none() | st.floats(allow_nan=False),
        "m": st.none() | st.decimals(-9999, 9999, places=2),
        "s": st.none() | st.text(),
        "y": st.none() | st.dates(),
        "t": st.none() | st.integers(-(2**40), 2**40).map(lambda milliseconds: milliseconds * 1000),
        "n": st.none() | st.integers(-(2**40), 2**40).map(lambda milliseconds: milliseconds * 1000),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "q": st.none() | st.fixed_dictionaries({"i": st.none() | st.integers(-9, 9)}),
    }
)


@given(st.lists(st.none() | ROW, max_size=5))
def test_what_is_written_is_read_again(rows: list[dict[str, Any] | None]) -> None:
    column = pa.array(rows, KIND)
    values = JsonFormat(None).for_column(SCHEMA).encode(column, "t")
    found = JsonFormat(SCHEMA).decode(values, "t")
    assert found.reasons == ()
    assert found.column.equals(column)
