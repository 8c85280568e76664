"""Columns written as Avro values: fields by name, unions, what a schema does not allow."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from minikafka.records.avro import (
    NULL,
    Array,
    AvroDecoder,
    AvroEncoder,
    AvroError,
    BadAvroRow,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    encoding,
)

INT, LONG, DOUBLE = map(Primitive, ("int", "long", "double"))
BYTES, STRING = map(Primitive, ("bytes", "string"))
MICROS = pa.timestamp("us", tz="UTC")


def record(*fields: Field, name: str = "R") -> Record:
    return Record(name, fields)


def encode(schema: Type, column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = AvroEncoder(schema, column.type).encode(column).to_pylist()
    return found


@pytest.mark.parametrize(
    ("schema", "kind", "value", "expected"),
    [
        (INT, pa.int8(), -1, b"\x01"),
        (INT, pa.date32(), datetime.date(1970, 1, 2), b"\x02"),
        (Primitive("int", "date"), pa.date32(), datetime.date(1970, 1, 2), b"\x02"),
        (LONG, pa.int32(), 64, b"\x80\x01"),
        (DOUBLE, pa.float32(), 1.5, b"\0\0\0\0\0\0\xf8\x3f"),
        (Primitive("float"), pa.float32(), 1.5, b"\0\0\xc0\x3f"),
        (Primitive("boolean"), pa.bool_(), True, b"\x01"),
        (STRING, pa.large_string(), "hi", b"\x04hi"),
        (BYTES, pa.binary(), b"hi", b"\x04hi"),
        (LONG, MICROS, 1999, b"\x02"),
        (Primitive("long", "timestamp-millis"), MICROS, -1, b"\x01"),
        (Primitive("long", "timestamp-micros"), MICROS, -1, b"\x01"),
        (Primitive("long", "local-timestamp-micros"), pa.timestamp("us"), 3, b"\x06"),
        (Fixed("F", 2), pa.binary(), b"ab", b"ab"),
        (Enum("E", ("A", "BC")), pa.string(), "BC", b"\x02"),
        (Union((NULL, INT)), pa.int32(), 1, b"\x02\x02"),
        (Union((INT, NULL)), pa.int32(), 1, b"\x00\x02"),
        (Union((INT, LONG)), pa.int64(), 1, b"\x02\x02"),
        (Array(Union((NULL, INT))), pa.list_(pa.int32()), [1, None], b"\x04\x02\x02\x00\x00"),
        (Array(INT), pa.large_list(pa.int32()), [], b"\x00"),
        (Map(INT), pa.map_(pa.string(), pa.int32()), [("k", 1)], b"\x02\x02k\x02\x00"),
        (Array(NULL), pa.list_(pa.null()), [None, None], b"\x04\x00"),
    ],
)
def test_value_is_written_in_its_type(schema: Type, kind: pa.DataType, value: Any, expected: bytes) -> None:
    assert encode(schema, pa.array([value, None], kind)) == [expected, None]


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 10**20, -(10**20), 10**38 - 1])
def test_decimal_is_written_in_as_few_bytes_as_it_needs(number: int) -> None:
    with decimal.localcontext(decimal.Context(prec=50)):
        column = pa.array([decimal.Decimal(number)], pa.decimal128(38, 0))
    size = (number.bit_length() + 8) // 8 if number >= 0 else ((~number).bit_length() + 8) // 8
    data = number.to_bytes(size, "big", signed=True)
    assert encode(Primitive("bytes", Decimal(38, 0)), column) == [bytes([2 * size]) + data]
    fixed = number.to_bytes(20, "big", signed=True)
    assert encode(Fixed("F", 20, Decimal(38, 0)), column) == [fixed]
    if size > 1:
        with pytest.raises(BadAvroRow, match="needs more bytes than the schema's fixed type has"):
            encode(Fixed("F", size - 1, Decimal(38, 0)), column)


def test_fields_are_found_by_name_in_any_case() -> None:
    schema = record(Field("a", INT), Field("B", STRING))
    column = pa.array([{"b": "x", "a": 1}], pa.struct({"b": pa.string(), "a": pa.int32()}))
    assert encode(schema, column) == [b"\x02\x02x"]


def test_missing_field_is_its_default_or_null() -> None:
    schema = record(Field("d", STRING, default=b"\x02x"), Field("a", INT), Field("n", Union((STRING, NULL))))
    column = pa.array([{"a": 1}], pa.struct({"a": pa.int32()}))
    assert encode(schema, column) == [b"\x02x\x02\x02"]


def test_members_of_a_union_are_written_by_the_one_that_is_there() -> None:
    schema = Union((STRING, NULL, INT))
    kind = pa.struct({"member0": pa.string(), "member1": pa.int32()})
    column = pa.array([{"member0": "x"}, {"member1": 1}, None], kind)
    assert encode(schema, column) == [b"\x00\x02x", b"\x04\x02", None]
    listed = pa.array([[None, {"member1": 1}]], pa.list_(kind))
    assert encode(Array(schema), listed) == [b"\x04\x02\x04\x02\x00"]
    with pytest.raises(BadAvroRow, match="it has no member that is not null"):
        encode(schema, pa.array([{}], kind))


def test_slices_of_nested_columns_are_written() -> None:
    schema = record(Field("l", Array(record(Field("s", STRING), name="I"))), Field("m", Map(INT)))
    kind = pa.struct({"l": pa.list_(pa.struct({"s": pa.string()})), "m": pa.map_(pa.string(), pa.int32())})
    rows = [{"l": [{"s": f"{i}{j}"} for j in range(i)], "m": [(f"k{i}", i)]} for i in range(6)]
    whole = encode(schema, pa.array(rows, kind))
    assert encode(schema, pa.array(rows, kind).slice(2, 3)) == whole[2:5]
    assert AvroDecoder(schema, schema).decode(pa.array(whole, pa.binary())).column.to_pylist() == rows


def test_every_value_begins_with_the_prefix() -> None:
    encoder = AvroEncoder(INT, pa.int32(), b"\0\0\0\0\7")
    assert encoder.encode(pa.array([1, None], pa.int32())).to_pylist() == [b"\0\0\0\0\7\2", None]


def test_a_row_that_ends_beyond_the_limit_of_a_column_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_OUTPUT_MAX", 4096)
    schema = record(Field("a", STRING), Field("b", STRING))
    rows = [{"a": "x" * 1800, "b": "y" * 1800}, {"a": "x" * 300, "b": "y" * 200}]
    with pytest.raises(AvroError, match="exceed 2 GiB"):
        encode(schema, pa.array(rows))


def test_large_values_are_written() -> None:
    texts = ["x" * 100_000, "", "y" * 300]
    found = encode(STRING, pa.array(texts))
    assert AvroDecoder(STRING, STRING).decode(pa.array(found, pa.binary())).column.to_pylist() == texts


@pytest.mark.parametrize(
    ("schema", "kind", "expected"),
    [
        (INT, pa.int64(), "the value: a column of type int64 cannot be written as Avro's int$"),
        (STRING, pa.binary(), "binary cannot be written as Avro's string"),
        (INT, pa.null(), "null cannot be written as Avro's int"),
        (Primitive("long", "timestamp-micros"), pa.timestamp("us"), "timestamp-micros"),
        (Primitive("bytes", Decimal(5, 1)), pa.decimal128(6, 1), r"decimal128\(6, 1\) .* bytes \(decimal"),
        (record(Field("a", INT)), pa.struct({}), "^a: the column has no such field.* record R requires"),
        (
            record(),
            pa.struct({"x": pa.int32()}),
            "cannot be written as Avro's record R, which has no field x",
        ),
        (
            record(Field("a", Array(INT))),
            pa.struct({"a": pa.list_(pa.string())}),
            "^a.element: a column of type string .* int$",
        ),
        (Union((INT, STRING)), pa.int32(), "expected a struct of member0, member1"),
    ],
)
def test_type_that_cannot_be_written_is_named(schema: Type, kind: pa.DataType, expected: str) -> None:
    with pytest.raises(AvroError, match=expected):
        AvroEncoder(schema, kind)


@pytest.mark.parametrize(
    ("schema", "column", "expected"),
    [
        (
            record(Field("a", record(Field("b", INT), name="I"))),
            pa.array([{"a": {"b": 1}}, {"a": {"b": None}}], pa.struct({"a": pa.struct({"b": pa.int32()})})),
            "cannot write the field a.b of a row as Avro: it is null, which the schema does not allow",
        ),
        (Enum("E", ("A",)), pa.array(["A", "B"]), "the value of a row as Avro: it is not a symbol"),
        (Fixed("F", 2), pa.array([b"ab", b"abc"]), "has another size than the schema's fixed type"),
    ],
)
def test_row_that_cannot_be_written_names_the_field(schema: Type, column: pa.Array, expected: str) -> None:
    with pytest.raises(BadAvroRow, match=expected) as refused:
        encode(schema, column)
    assert refused.value.row == 1
