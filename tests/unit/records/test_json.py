"""JSON values to columns by the kernel, and what it leaves to others."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minikafka.records.json import JsonReader


def read(kind: pa.DataType, *values: str | bytes | None) -> tuple[list[Any], list[int]]:
    """The column, which must be sound, and the numbers of the values that are refused."""
    given = [value.encode() if isinstance(value, str) else value for value in values]
    column, refused = JsonReader(kind).read(pa.array(given, pa.binary()))
    column.validate(full=True)
    assert column.type == kind
    return column.to_pylist(), refused.tolist()


def field(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("a", kind)])


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(4.07)
@example(0.009000000000000001)
@example(2.2250738585072014e-308)
@example(1.7976931348623157e308)
@example(9007199254740993.0)
def test_doubles_are_those_of_python_or_refused(number: float) -> None:
    (found,), refused = read(pa.float64(), repr(number))
    if refused:
        assert abs(number) < 2.3e-308  # or zero with digits
    else:
        assert struct.pack("<d", found) == struct.pack("<d", number)


@given(st.integers(0, 10**18 - 1), st.integers(-400, 400))
@example(0, 5)
@example(9007199254740993, 0)
@example(5, -324)
@example(179769313486231580, 291)
def test_decimal_digits_become_the_nearest_double(digits: int, exponent: int) -> None:
    text = f"{digits}e{exponent}"
    (found,), refused = read(pa.float64(), text)
    if not refused:
        assert struct.pack("<d", found) == struct.pack("<d", float(text))
    else:
        assert not -300 < exponent < 280


@given(st.text())
def test_texts_are_those_of_python(text: str) -> None:
    for ascii_only in (True, False):
        values, refused = read(field(pa.string()), json.dumps({"a": text}, ensure_ascii=ascii_only))
        assert (values, refused) == ([{"a": text}], [])


def test_columns_grow_with_their_values() -> None:
    kind = pa.struct([("a", pa.string()), ("l", pa.list_(pa.struct([("x", pa.int32())])))])
    rows = [{"a": "é" * 5_000, "l": [{"x": number} for number in range(3_000)]} for _ in range(5)]
    assert read(kind, *(json.dumps(row) for row in rows)) == (rows, [])


def test_a_refused_value_leaves_nothing_behind() -> None:
    kind = pa.struct(
        [("a", pa.string()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int8()))]
    )
    good = '{"a":"x","l":[1,2],"m":{"k":1}}'
    values, refused = read(kind, good, '{"a":"yyyy","l":[3,4,5],"m":{"k":1,"j":300}}', None, good)
    row = {"a": "x", "l": [1, 2], "m": [("k", 1)]}
    assert (values, refused) == ([row, None, None, row], [1])


def test_empty_and_null_items_are_read() -> None:
    kind = pa.list_(pa.list_(pa.struct([("a", pa.int64()), ("s", pa.string())])))
    text = ' [ [ ] , null , [ { } , null , { "s" : null , "a" : 5 } ] ] '
    nothing = {"a": None, "s": None}
    assert read(kind, text, "[]") == ([[[], None, [nothing, None, {"a": 5, "s": None}]], []], [])


def test_maps_are_read_unless_a_key_appears_twice_or_they_are_large() -> None:
    kind = pa.map_(pa.string(), pa.float64())
    many = json.dumps({str(number): number for number in range(65)})
    values, refused = read(kind, '{"a":1,"b":null}', "{}", '{"a":1,"b":2,"a":3}', many)
    assert (values, refused) == ([[("a", 1.0), ("b", None)], [], None, None], [2, 3])


@pytest.mark.parametrize(
    "text",
    [
        '{"z":[1,{"q":[[]]},"\\u00e9\\n",true,false,null,-1.5e-3],"a":1}',
        '{"y":{},"z":[],"a":1}',
        '{"z":' + "[" * 59 + "]" * 59 + ',"a":1}',
        '{"a":1} and more',
    ],
)
def test_other_fields_are_skipped(text: str) -> None:
    assert read(field(pa.int32()), text) == ([{"a": 1}], [])


@pytest.mark.parametrize(
    "text",
    [
        *(
            '{"z":[1,}',
            '{"z":[1}}',
            '{"z":{"a"}}',
            '{"z":{"a":}}',
            '{"z":{,}}',
            '{"z":01}',
            '{"z":1.}',
            '{"z":.5}',
        ),
        *(
            '{"z":-}',
            '{"z":1e}',
            '{"z":tru}',
            '{"z":"\\x"}',
            '{"z":"\\u00g0"}',
            '{"z":"a\nb"}',
            '{"z":"',
            '{"z":"\\',
        ),
        *(
            '{"a":1',
            '{"a":1,}',
            '{"a":1,"a":2}',
            '{"\\u0061":1}',
            "{'a':1}",
            '{"z":NaN}',
            '{"z":Infinity}',
            "[]",
            "",
        ),
        *(
            '{"a":1.0}',
            '{"a":1e2}',
            '{"a":"1"}',
            '{"a":2147483648}',
            '{"a":+1}',
            '{"a":nul}',
            '{"z":[[1,2]',
            "1",
            "\0",
        ),
        '{"z":' + "[" * 61 + "]" * 61 + ',"a":1}',
    ],
)
def test_what_is_not_common_is_refused(text: str) -> None:
    assert read(field(pa.int32()), "null", text, '{"a":7}') == ([None, None, {"a": 7}], [1])


def test_bytes_that_are_not_utf8_are_refused() -> None:
    assert read(field(pa.int32()), b'{"a":1,"z":"\xff"}', b'{"a":1}\xff') == ([None, None], [0, 1])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.string(), "5"),
        (pa.string(), '"\\ud83d"'),
        (pa.int8(), "128"),
        (pa.bool_(), '"true"'),
        (pa.decimal128(5, 2), "1.555"),
        (pa.decimal128(5, 2), "1000"),
        (pa.decimal128(38, 20), "999999999999999999"),
        (pa.date32(), '"2020-02-30"'),
        (pa.date32(), '"2020-1-2"'),
        (pa.timestamp("us", "UTC"), '"2020-01-02T03:04"'),
        (pa.timestamp("us", "UTC"), '"2020-01-02T03:04:05+24:00"'),
        (pa.timestamp("us"), '"2020-01-02T03:04:05Z"'),
        (pa.binary(), '"YWI="'),
    ],
)
def test_what_a_type_does_not_take_at_once_is_refused(kind: pa.DataType, text: str) -> None:
    assert read(kind, text) == ([None], [0])


def test_a_slice_is_read_by_itself() -> None:
    values = pa.array([b"x", b'{"a":1}', None, b'{"a":2}', b"y"]).slice(1, 3)
    column, refused = JsonReader(field(pa.int16())).read(values)
    assert column.to_pylist() == [{"a": 1}, None, {"a": 2}]
    assert refused.tolist() == []


def test_no_values_are_no_rows() -> None:
    assert read(field(pa.int32())) == ([], [])
    assert read(field(pa.int32()), None, None) == ([None, None], [])
