"""Avro values read into columns: resolution to a reader's schema, and values that are bad."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minikafka.records.arrow import nested_columns
from minikafka.records.avro import (
    NULL,
    Array,
    AvroDecoder,
    AvroError,
    Decimal,
    DecodedAvro,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    UnresolvedSchema,
)
from minikafka.records.avro import decoding as decoding_module
from minikafka.records.kernels import avro_ops

INT, LONG, FLOAT, DOUBLE = map(Primitive, ("int", "long", "float", "double"))
BYTES, STRING, BOOLEAN = map(Primitive, ("bytes", "string", "boolean"))


def record(*fields: Field, name: str = "R", aliases: tuple[str, ...] = ()) -> Record:
    return Record(name, fields, aliases)


def decode(writer: Type, reader: Type, *values: bytes | None) -> DecodedAvro:
    found = AvroDecoder(writer, reader).decode(pa.array(values, pa.binary()))
    found.column.validate(full=True)
    return found


def read(writer: Type, reader: Type, value: bytes) -> Any:
    found = decode(writer, reader, value)
    assert found.reasons == ()
    return found.column[0].as_py()


@pytest.mark.parametrize(
    ("writer", "reader", "data", "expected"),
    [
        (INT, LONG, b"\x03", -2),
        (INT, FLOAT, b"\x04", 2.0),
        (INT, DOUBLE, b"\x04", 2.0),
        (LONG, FLOAT, b"\x04", 2.0),
        (LONG, DOUBLE, b"\x04", 2.0),
        (FLOAT, DOUBLE, b"\x00\x00\xc0\x3f", 1.5),
        (BYTES, STRING, b"\x02a", "a"),
        (STRING, BYTES, b"\x02a", b"a"),
        (INT, Union((NULL, LONG)), b"\x04", 2),
        (Union((NULL, INT)), LONG, b"\x02\x04", 2),
        (Union((STRING, INT)), Union((INT, NULL, STRING)), b"\x02\x04", {"member0": 2, "member1": None}),
        (STRING, Union((BYTES, STRING)), b"\x02a", {"member0": None, "member1": "a"}),
        (Union((INT, LONG)), Union((INT, LONG)), b"\x00\x04", 2),
        (Union((FLOAT, DOUBLE)), Union((FLOAT, DOUBLE)), b"\x00\x00\x00\xc0\x3f", 1.5),
        (Array(INT), Array(DOUBLE), b"\x04\x02\x04\x00", [1.0, 2.0]),
        (Map(INT), Map(Union((NULL, LONG))), b"\x02\x02k\x04\x00", [("k", 2)]),
    ],
)
def test_types_are_promoted(writer: Type, reader: Type, data: bytes, expected: Any) -> None:
    assert read(writer, reader, data) == expected


def test_fields_are_found_by_name_and_alias() -> None:
    writer = record(Field("a", INT), Field("gone", Map(Array(STRING))), Field("b", STRING))
    reader = record(Field("new_b", STRING, aliases=("b",)), Field("a", INT))
    data = b"\x02" + b"\x02\x02k\x02\x02x\x00\x00" + b"\x04hi"
    assert read(writer, reader, data) == {"new_b": "hi", "a": 1}


def test_blocks_with_sizes_are_skipped_by_them() -> None:
    writer = record(Field("gone", Array(INT)), Field("a", INT))
    # The size of the first block is right; its item is not even a number.
    assert read(writer, record(Field("a", INT)), b"\x01\x04\xff\xff\x00\x02") == {"a": 1}


def test_fields_of_the_reader_alone_have_their_defaults() -> None:
    inner = record(Field("x", LONG), Field("tags", Array(STRING)), name="I")
    reader = record(
        Field("a", INT),
        Field("i", Union((inner, NULL)), default=b"\x00\x0e\x02\x02t\x00"),
        Field("n", Union((NULL, INT)), default=b"\x00"),
    )
    found = decode(record(Field("a", INT)), reader, b"\x02", None, b"\x04")
    assert found.column.to_pylist() == [
        {"a": 1, "i": {"x": 7, "tags": ["t"]}, "n": None},
        None,
        {"a": 2, "i": {"x": 7, "tags": ["t"]}, "n": None},
    ]


def test_symbols_are_those_of_the_reader_or_its_default() -> None:
    writer = Enum("ns.E", ("A", "B", "C"))
    reader = Enum("E", ("C", "A"), default="C")
    assert decode(writer, reader, b"\x00", b"\x02", b"\x04").column.to_pylist() == ["A", "C", "C"]
    found = decode(writer, Enum("E", ("C", "A")), b"\x02", b"\x04")
    assert found.column.to_pylist() == [None, "C"]
    assert found.reasons == ("the branch or symbol is not in the reader's schema",)


def test_times_keep_the_unit_of_their_writer() -> None:
    millis, micros = Primitive("long", "timestamp-millis"), Primitive("long", "timestamp-micros")
    for writer, reader, us in ((millis, micros, 2000), (micros, millis, 2), (LONG, millis, 2000)):
        found = decode(writer, reader, b"\x04").column
        assert found.cast(pa.int64()).to_pylist() == [us]


def test_branch_that_no_reader_has_is_bad_only_where_it_is_written() -> None:
    found = decode(Union((INT, STRING)), INT, b"\x00\x04", b"\x02\x02a")
    assert (found.column.to_pylist(), found.bad.tolist()) == ([2, None], [1])


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        (LONG, INT, "the value: the writer's type long cannot be read as the reader's type int"),
        (STRING, record(), "the writer's type string cannot be read as the reader's type record R"),
        (record(Field("a", Array(STRING))), record(Field("a", Array(INT))), "^a.element: .*string .*int"),
        (record(), record(Field("b", INT)), "^b: .*record R .no such field.*int, which has no default"),
        (Enum("E", ("A",)), Enum("F", ("A",)), "enum E .*enum F"),
        (Fixed("F", 2), Fixed("F", 3), r"fixed F \(2 bytes\) .*fixed F \(3 bytes\)"),
        (
            Primitive("bytes", Decimal(5, 1)),
            Primitive("bytes", Decimal(5, 2)),
            r"bytes \(decimal\(5,1\)\) .* bytes \(decimal\(5,2\)\): their scales differ",
        ),
        (Union((INT, STRING)), BOOLEAN, "union of int, string .*boolean"),
        (record(Field("a", LONG)), Union((NULL, record(Field("a", INT)))), "^a: .*long .*int"),
    ],
)
def test_what_cannot_be_resolved_names_field_and_types(writer: Type, reader: Type, expected: str) -> None:
    with pytest.raises(UnresolvedSchema, match=expected):
        AvroDecoder(writer, reader)


def varint(number: int) -> bytes:
    raw, data = number << 1 if number >= 0 else ~(number << 1), bytearray()
    while raw > 127:
        data.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*data, raw])


@pytest.mark.parametrize(
    ("kind", "data", "code"),
    [
        (LONG, b"", avro_ops.TRUNCATED),
        (LONG, b"\x80", avro_ops.TRUNCATED),
        (DOUBLE, b"1234567", avro_ops.TRUNCATED),
        (LONG, b"\x80" * 10 + b"\x01", avro_ops.BAD_NUMBER),
        (LONG, b"\xff" * 9 + b"\x02", avro_ops.BAD_NUMBER),
        (INT, varint(1 << 31), avro_ops.BAD_NUMBER),
        (INT, b"\x82" + b"\x80" * 4 + b"\x00", avro_ops.BAD_NUMBER),
        (LONG, b"\x02\x00", avro_ops.TRAILING),
        (BOOLEAN, b"\x02", avro_ops.BAD_BOOLEAN),
        (STRING, b"\x01", avro_ops.BAD_LENGTH),
        (STRING, b"\x04a", avro_ops.BAD_LENGTH),
        (BYTES, varint(1 << 62), avro_ops.BAD_LENGTH),
        (Union((NULL, INT)), b"\x04", avro_ops.BAD_BRANCH),
        (Union((NULL, INT)), b"\x01", avro_ops.BAD_BRANCH),
        (Enum("E", ("A",)), b"\x02", avro_ops.BAD_BRANCH),
        (Array(INT), varint(1 << 60), avro_ops.BAD_COUNT),
        (Array(INT), varint(-(1 << 63)) + b"\x00", avro_ops.BAD_COUNT),
        (Array(INT), b"\x01\x7e\x00", avro_ops.BAD_COUNT),
        (Array(INT), b"\x01\x01\x00", avro_ops.BAD_COUNT),
        (Array(NULL), varint(1 << 60) + b"\x00", avro_ops.BAD_COUNT),
        (Array(record()), varint(1024) + b"\x02\x00", avro_ops.BAD_COUNT),
        (Map(NULL), varint(1 << 60), avro_ops.BAD_COUNT),
        (Primitive("bytes", Decimal(4, 0)), b"\x04\x27\x10", avro_ops.BAD_DECIMAL),
        (Primitive("bytes", Decimal(4, 0)), b"\x04\xd8\xf0", avro_ops.BAD_DECIMAL),
        (Primitive("bytes", Decimal(38, 0)), varint(17) + b"\x01" + bytes(16), avro_ops.BAD_DECIMAL),
        (Primitive("bytes", Decimal(38, 0)), varint(16) + b"\x80" + bytes(15), avro_ops.BAD_DECIMAL),
        (Primitive("bytes", Decimal(4, 0)), b"\x00", avro_ops.BAD_DECIMAL),
        (Primitive("long", "timestamp-millis"), varint(1 << 62), avro_ops.OUT_OF_RANGE),
    ],
)
def test_bad_value_is_null_with_its_reason(kind: Type, data: bytes, code: int) -> None:
    found = decode(kind, kind, data, data)
    assert found.column.to_pylist() == [None, None]
    assert found.bad.tolist() == [0, 1]
    assert set(found.reasons) == {decoding_module._REASONS[code]}


@pytest.mark.parametrize(
    "text",
    [
        b"\x80",
        b"\xc0\x80",
        b"\xc3",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xff",
        b"12345678\xe2\x82",
        b"\xc3(",
    ],
)
def test_text_that_is_no_utf8_is_bad(text: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        text.decode()
    assert decode(STRING, STRING, varint(len(text)) + text).reasons == ("a string is not UTF-8",)


def test_reason_names_the_field() -> None:
    kind = record(Field("a", INT), Field("b", Array(record(Field("c", BOOLEAN), name="I"))))
    assert decode(kind, kind, b"\x02\x04\x01\x09\x00").reasons == (
        "b.element.c: a boolean is neither 0 nor 1",
    )


def test_bad_value_leaves_nothing_in_the_columns() -> None:
    kind = record(Field("s", STRING), Field("l", Array(STRING)), Field("n", INT))
    good = b"\x02a" + b"\x04\x02x\x02y\x00" + b"\x02"
    found = decode(kind, kind, good, good[:-1], None, good)
    one = {"s": "a", "l": ["x", "y"], "n": 1}
    assert found.column.to_pylist() == [one, None, None, one]
    assert found.column.field("s").to_pylist()[1] == ""
    assert found.column.field("l").values.to_pylist() == ["x", "y"] * 2


def test_columns_grow_with_their_items() -> None:
    kind = record(Field("l", Array(record(Field("s", STRING), Field("b", BOOLEAN), name="I"))))
    one = varint(700) + (b"\x14" + b"0123456789" + b"\x01") * 700 + b"\x00"
    found = decode(kind, kind, one, one, one)
    assert found.column.to_pylist() == [{"l": [{"s": "0123456789", "b": True}] * 700}] * 3


def test_wide_items_do_not_take_many_times_the_memory_of_the_data() -> None:
    numbers = nested_columns.ColumnNumbers()
    wide = pa.list_(pa.struct([(f"f{i}", pa.float64()) for i in range(60)]))
    root = numbers.column(wide, True)
    sizes = nested_columns.ColumnSizes(root, numbers.counters)
    memory = nested_columns.ColumnMemory(sizes, 10, 1 << 20)
    assert sum(buffer.size for buffer in memory._buffers.values()) < 4 << 20


def test_text_gets_as_much_memory_as_it_took_before(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = record(Field("n", INT), Field("long", STRING), Field("short", STRING))
    decoder = AvroDecoder(kind, kind)
    one = b"\x02" + varint(900) + b"a" * 900 + b"\x02b"
    values = pa.array([one] * 100, pa.binary())
    first = decoder.decode(values).column
    grown: list[int] = []
    monkeypatch.setattr(nested_columns.ColumnMemory, "grow", lambda _, counter, wanted: grown.append(counter))
    assert decoder.decode(values).column.equals(first)
    assert grown == []


def test_memory_of_text_is_limited_by_the_data() -> None:
    numbers = nested_columns.ColumnNumbers()
    root = numbers.column(pa.struct([("s", pa.string()), ("t", pa.string())]), True)
    sizes = nested_columns.ColumnSizes(root, numbers.counters)
    sizes.learn(np.array([1, 1_000_000, 0], dtype=np.int64), 1)
    sizes.learn(np.array([1, 0, 0], dtype=np.int64), 0)
    memory = nested_columns.ColumnMemory(sizes, 10, 1 << 20)
    assert sum(buffer.size for buffer in memory._buffers.values()) < 2 << 20


def test_value_that_is_too_large_for_a_column_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_columns, "_COLUMN_MAX", 10_000)
    kind = Array(Enum("E", ("A" * 100,)))
    found = decode(kind, kind, varint(99) + bytes(99) + b"\x00", varint(101) + bytes(101) + b"\x00", b"\x00")
    assert found.bad.tolist() == [1]
    assert found.reasons == ("a column of this value exceeds 2 GiB",)
    assert [None if one is None else len(one) for one in found.column.to_pylist()] == [99, None, 0]


def test_decimals_are_exact_up_to_38_digits() -> None:
    kind = Primitive("bytes", Decimal(38, 2))
    with decimal.localcontext(decimal.Context(prec=50)):
        for number in (0, -1, 127, -128, 128, 10**38 - 1, 1 - 10**38):
            for extra in (0, 3, 30):
                size = (number.bit_length() + 8) // 8 + extra
                data = varint(size) + number.to_bytes(size, "big", signed=True)
                assert read(kind, kind, data) == decimal.Decimal(number).scaleb(-2)


def test_more_digits_than_a_column_can_have_are_refused() -> None:
    with pytest.raises(AvroError, match="more than 38 digits"):
        AvroDecoder(Primitive("bytes", Decimal(39, 2)), Primitive("bytes", Decimal(39, 2)))


def test_types_that_multiply_are_refused() -> None:
    kind: Type = INT
    for level in range(14):
        kind = record(Field("a", kind), Field("b", kind), name=f"R{level}")
    with pytest.raises(AvroError, match="more than 10000 columns"):
        AvroDecoder(kind, kind)


def test_slices_and_prefixes_are_read() -> None:
    values = pa.array([b"?????\x02", None, b"?????\x04", b"?????\x06"], pa.binary())
    found = AvroDecoder(INT, INT).decode(values.slice(1), prefix_bytes=5)
    assert found.column.to_pylist() == [None, 2, 3]
    empty = AvroDecoder(INT, INT).decode(values.slice(0, 0))
    assert (len(empty.column), empty.bad.dtype) == (0, np.int64)


def test_records_and_columns_without_content_are_read() -> None:
    kind = record(Field("n", NULL), Field("r", record(name="I")))
    assert decode(kind, kind, b"", None).column.to_pylist() == [{"n": None, "r": {}}, None]
    assert decode(NULL, NULL, b"", None).column.to_pylist() == [None, None]
    all_null = AvroDecoder(kind, kind).decode(pa.nulls(2))
    assert all_null.column.to_pylist() == [None, None]
