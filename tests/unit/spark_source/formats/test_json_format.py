"""JSON values as columns, and columns as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, MapType, StringType

from pyspark_minikafka.formats.json_format import JsonFormat
from pyspark_minikafka.formats.spark_schema import parse_schema
from pyspark_minikafka.formats.value_format import ColumnType, Decoded, arrow_type

UTC = datetime.timezone.utc


def decode(schema: str, *values: str | bytes | None) -> Decoded:
    """Decode the values, of which the column must be sound and of the type that Spark expects."""
    given = [value.encode() if isinstance(value, str) else value for value in values]
    found = JsonFormat(parse_schema(schema)).decode(pa.array(given, pa.binary()), "t")
    found.column.validate(full=True)
    assert found.column.type == arrow_type(parse_schema(schema))
    assert len(found.column) == len(values)
    return found


def read(schema: str, *values: str | bytes | None) -> list[Any]:
    """Decode values that must be good."""
    found = decode(schema, *values)
    assert found.reasons == ()
    rows: list[Any] = found.column.to_pylist()
    return rows


def reason(schema: str, value: str | bytes) -> str:
    """Decode a value that must be bad, between good ones."""
    found = decode(schema, "null", value, "null")
    assert found.bad.tolist() == [1]
    assert found.column.to_pylist() == [None, None, None]
    return found.reasons[0]


def test_objects_become_structs_with_null_for_what_is_missing() -> None:
    found = read("a INT, s STRING", '{"s":"x","a":1}', None, "{}", '{"z":[{"a":5}],"a":null}', " null ")
    nothing = {"a": None, "s": None}
    assert found == [{"a": 1, "s": "x"}, None, nothing, nothing, None]


def test_values_are_nested_as_the_schema_says() -> None:
    schema = "l ARRAY<STRUCT<d: DATE, x: STRUCT<y: ARRAY<BIGINT>>>>"
    found = read(schema, '{"l":[{"d":"2020-01-02","x":{"y":[1,null]}},null,{}]}', '{"l":[]}', "{}")
    day = datetime.date(2020, 1, 2)
    assert found[0] == {"l": [{"d": day, "x": {"y": [1, None]}}, None, {"d": None, "x": None}]}
    assert found[1:] == [{"l": []}, {"l": None}]


def test_pretty_printed_values_may_have_line_breaks() -> None:
    assert read("a INT, b INT", '{\n  "a": 1,\r\n\t"b": 2\n}\n', '{"a":3}') == [
        {"a": 1, "b": 2},
        {"a": 3, "b": None},
    ]


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("STRING", '"\\u00e9\\n"', "é\n"),
        ("STRING", "5.10", "5.10"),
        ("STRING", "true", "true"),
        ("STRING", '{"a": [1.50, "x"]}', '{"a":[1.50,"x"]}'),
        ("DOUBLE", "1", 1.0),
        ("DOUBLE", "1e999", float("inf")),
        ("DOUBLE", '"-INF"', float("-inf")),
        ("DOUBLE", "Infinity", float("inf")),
        ("FLOAT", "0.5", 0.5),
        ("TINYINT", "-128", -128),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("BOOLEAN", "true", True),
        ("DECIMAL(5,2)", "1.5", Decimal("1.50")),
        ("DECIMAL(5,2)", "1.555", Decimal("1.56")),
        ("DECIMAL(5,2)", "-1.555", Decimal("-1.56")),
        ("DECIMAL(5,2)", '"1.5"', Decimal("1.50")),
        ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)),
        ("DATE", '"2020-01-02"', datetime.date(2020, 1, 2)),
        ("DATE", '"2020-1"', datetime.date(2020, 1, 1)),
        ("DATE", '"2020-01-02T03:04"', datetime.date(2020, 1, 2)),
        ("BINARY", '"YWI="', b"ab"),
        ("MAP<STRING,INT>", '{"a":1,"b":null}', [("a", 1), ("b", None)]),
        ("ARRAY<INT>", "[1,null]", [1, None]),
    ],
)  # fmt: skip
def test_each_type_is_read_as_from_json_reads_it(kind: str, text: str, wanted: object) -> None:
    assert read(kind, text) == [wanted]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2020-01-02T03:04:05Z", (2020, 1, 2, 3, 4, 5)),
        ("2020-01-02T03:04:05.123456+02:00", (2020, 1, 2, 1, 4, 5, 123456)),
        ("2020-01-02T03:04:05.1234567Z", (2020, 1, 2, 3, 4, 5, 123456)),
        ("2020-01-02 03:04:05", (2020, 1, 2, 3, 4, 5)),
        ("2020-1-2 3:4", (2020, 1, 2, 3, 4)),
        ("2020-01-02T03-0130", (2020, 1, 2, 4, 30)),
        ("2020", (2020, 1, 1)),
        ("2020-07-02T03:04:05 Europe/Paris", (2020, 7, 2, 1, 4, 5)),
        ("2020-07-02T03:04:05UTC+1", (2020, 7, 2, 2, 4, 5)),
    ],
)
def test_times_are_read_in_sparks_forms(text: str, wanted: tuple[int, ...]) -> None:
    moment = datetime.datetime(*wanted, tzinfo=UTC)  # type: ignore[misc,arg-type]
    assert read("TIMESTAMP", f'"{text}"') == [moment]


def test_a_number_is_a_time_in_seconds() -> None:
    assert read("TIMESTAMP", "5") == [datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)]


def test_times_without_a_zone_are_refused_one() -> None:
    local = datetime.datetime(2020, 1, 2, 3, 4, 5)  # noqa: DTZ001
    assert read("TIMESTAMP_NTZ", '"2020-01-02T03:04:05"') == [local]
    assert reason("TIMESTAMP_NTZ", '"2020-01-02T03:04:05Z"').startswith("the value is no timestamp_ntz")


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("a INT", "", "no JSON: Expecting value at character 1"),
        ("a INT", '{"a":1', "no JSON"),
        ("a INT", '{"a":"', "no JSON"),
        ("a INT", "{'a':1}", "no JSON"),
        ("a INT", '{"a":01}', "no JSON"),
        ("a INT", '{"z":Inf}', "no JSON"),
        ("a INT", '\ufeff{"a":1}', "no JSON"),
        ("a INT", '{"a":1}'.encode("utf-16"), "no UTF-8 at byte 0"),
        ("a INT", b'{"z":"\xff"}', "no UTF-8 at byte 6"),
        ("a INT", '{"z":"\x01"}', "no JSON"),
        ("a INT", "\0", "no JSON"),
        ("a INT", "[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("s STRING", '{"s":' + "[" * 700 + "]" * 700 + "}", "nested too deeply"),
        ("a INT", '{"a":' + "[" * 700 + "]" * 700 + "}", "nested too deeply"),
        ("s STRING", '{"s":"\\ud83d"}', "s is no string"),
        ("a INT", "5", "the value is no object: 5"),
        ("a INT", '[{"a":1}]', "the value is no object"),
        ("a INT", '{"a":1.0}', "a is no int: 1.0"),
        ("a INT", '{"a":2147483648}', "a is no int: 2147483648"),
        ("a INT", '{"a":"5"}', 'a is no int: "5"'),
        ("a TINYINT", '{"a":128}', "a is no tinyint: 128"),
        ("a INT", '{"a":' + "9" * 10_000 + "}", "…"),
        ("b BOOLEAN", '{"b":"true"}', 'b is no boolean: "true"'),
        ("m DECIMAL(5,2)", '{"m":12345}', "m is no decimal(5,2): 12345"),
        ("m DECIMAL(5,2)", '{"m":-1000.00}', "m is no decimal(5,2): -1000.00"),
        ("m DECIMAL(5,2)", '{"m":NaN}', "m is no decimal(5,2): NaN"),
        ("m DECIMAL(5,2)", '{"m":1e999999999}', "m is no decimal(5,2)"),
        ("d DATE", '{"d":"2020-02-30"}', "d is no date"),
        ("d DATE", '{"d":5}', "d is no date: 5"),
        ("t TIMESTAMP", '{"t":"2020-01-02T24:00"}', "t is no timestamp"),
        ("t TIMESTAMP", '{"t":"2020-01-02T03:04 Mars/X"}', "t is no timestamp"),
        ("x BINARY", '{"x":"%%"}', "x is no binary"),
        ("l ARRAY<INT>", '{"l":["x"]}', 'l[] is no int: "x"'),
        ("l ARRAY<INT>", '{"l":1}', "l is no array: 1"),
        ("q STRUCT<r: STRUCT<s: INT>>", '{"q":{"r":5}}', "q.r is no object: 5"),
        ("p MAP<STRING,INT>", '{"p":{"k":true}}', "p{} is no int: true"),
    ],
)
def test_a_bad_value_is_null_and_the_reason_names_the_field(
    schema: str, value: str | bytes, said: str
) -> None:
    found = reason(schema, value)
    assert said in found
    assert len(found) < 120


@pytest.mark.parametrize(
    "values",
    [
        ('{"a":1}{"a":2}',),
        ('{"a":1}}\n{"v":{"a":2}', ""),
        ('{"a":1}}{"v":{"a":2}}\0', '{"a":9}'),
        ('{"a":1},"v":{"a":2}',),
        ('{"a":1},"b":2', '{"a":[', "]}"),
        ('{"a":', '1}', '{"a":1}{"a":2}'),
        ('{"z":"', '"}', '{"a":1}}\n{"v":{"a":2}'),
        ('{"z":"\\', "{}"),
        ('{"z":[{"a":1', "]}", "null"),
    ],
)  # fmt: skip
def test_no_value_moves_the_values_of_its_neighbours(values: Sequence[str]) -> None:
    alone = [decode("a INT", value) for value in values]
    found = decode("a INT", '{"a":-1}', *values, '{"a":-2}')
    assert found.column.to_pylist() == [
        {"a": -1},
        *(column.column.to_pylist()[0] for column in alone),
        {"a": -2},
    ]
    assert found.bad.tolist() == [row for row, one in enumerate(alone, 1) if len(one.bad)]


def test_bad_values_among_thousands_are_found_and_others_read() -> None:
    values: list[str | None] = [f'{{"a":{number}}}' for number in range(5_000)]
    values[17] = None
    values[4_000] = "x"
    values[4_999] = '{"a":{}}'
    found = decode("a INT", *values)
    assert found.bad.tolist() == [4_000, 4_999]
    wanted = [None if number in {17, 4_000, 4_999} else {"a": number} for number in range(5_000)]
    assert found.column.to_pylist() == wanted


def test_no_values_are_a_column_without_rows() -> None:
    assert read("a INT") == []
    assert read("a INT", None, None) == [None, None]


def write(column: pa.Array) -> list[bytes | None]:
    encoded = JsonFormat(None).for_column(parse_schema("a INT")).encode(column, "t")
    assert encoded.type == pa.binary()
    texts: list[bytes | None] = encoded.to_pylist()
    return texts


def test_structs_are_written_without_fields_that_are_null() -> None:
    rows = [{"a": 1, "b": None}, None, {"a": None, "b": 'x"\\/é\n\x01\x7f'}, {"a": None, "b": None}]
    column = pa.array(rows, pa.struct([("a", pa.int32()), ("b", pa.string())]))
    wanted = [b'{"a":1}', None, '{"b":"x\\"\\\\/é\\n\\u0001\x7f"}'.encode(), b"{}"]
    assert write(column) == wanted
    assert write(column.slice(2)) == wanted[2:]


def test_arrays_and_maps_are_written_with_null() -> None:
    lists = pa.array([[1, None], [], None, [2]], pa.list_(pa.int64()))
    assert write(lists) == [b"[1,null]", b"[]", None, b"[2]"]
    assert write(lists.slice(3)) == [b"[2]"]
    maps = pa.array([[('a"', 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int64()))
    assert write(maps) == [b'{"a\\"":1,"b":null}', b"{}", None]
    assert write(maps.slice(1)) == [b"{}", None]
    nested = pa.array([[[{"x": [1]}], None, []]], pa.list_(pa.list_(pa.struct([("x", pa.list_(pa.int8()))]))))
    assert write(nested) == [b'[[{"x":[1]}],null,[]]']


def test_numbers_are_written_as_numbers() -> None:
    doubles = pa.array([1.0, 0.1, -0.0, 1e20, float("nan"), float("inf"), float("-inf"), None])
    texts = [b"1.0", b"0.1", b"-0.0", b"1e+20", b'"NaN"', b'"Infinity"', b'"-Infinity"', None]
    assert write(doubles) == texts
    assert write(pa.array([0.1], pa.float32())) == [b"0.1"]
    assert write(pa.array([Decimal("1.50")], pa.decimal128(20, 2))) == [b"1.50"]
    assert write(pa.array([True, None])) == [b"true", None]


def test_times_are_written_with_milliseconds_and_the_sessions_offset() -> None:
    moments = [1_577_934_245_123_456, -1, None]

    def times(zone: str | None) -> list[bytes | None]:
        return write(pa.array(moments, pa.timestamp("us", zone)))

    assert times("UTC") == [b'"2020-01-02T03:04:05.123Z"', b'"1969-12-31T23:59:59.999Z"', None]
    assert times(None)[0] == b'"2020-01-02T03:04:05.123"'
    assert times("Asia/Kolkata")[0] == b'"2020-01-02T08:34:05.123+05:30"'
    assert times("Europe/London")[0] == b'"2020-01-02T03:04:05.123Z"'
    assert write(pa.array([18_263], pa.date32())) == [b'"2020-01-02"']


def test_times_of_an_hour_that_comes_twice_are_written_with_their_offsets() -> None:
    moments = [1_729_989_000_123_456, 1_729_992_600_123_456]
    assert write(pa.array(moments, pa.timestamp("us", "Europe/Berlin"))) == [
        b'"2024-10-27T02:30:00.123+02:00"',
        b'"2024-10-27T02:30:00.123+01:00"',
    ]


def test_bytes_are_written_as_base64() -> None:
    assert write(pa.array([b"ab\0", None])) == [b'"YWIA"', None]


def test_a_column_of_strings_is_written_as_it_is() -> None:
    texts = JsonFormat(None).for_column(StringType())
    assert texts.encode(pa.array(['{"a":1}', None]), "t").to_pylist() == [b'{"a":1}', None]


def test_a_column_that_is_not_of_the_schema_is_refused() -> None:
    json = JsonFormat(parse_schema("a INT"))
    assert json.for_column(parse_schema("a INT NOT NULL")) == json
    assert json.for_column(StringType()).encode(pa.array(["{}"]), "t").to_pylist() == [b"{}"]
    with pytest.raises(ColumnType, match="string, or the type of its schema, struct<a:int>"):
        json.for_column(parse_schema("a STRING"))


def test_a_column_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ColumnType, match="keys of a map must be strings, not bigint"):
        JsonFormat(None).for_column(MapType(LongType(), LongType()))
