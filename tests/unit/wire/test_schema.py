"""The table of fields: the code that it compiles to, and the errors for values and bytes that do not fit."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import pytest

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import FileSlice, RealFiles
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.frame_parts import Part, join
from minikafka.wire.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_RECORDS,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    ArrayOf,
    Struct,
    field,
)


@fast_value
class Point:
    x: int
    y: int


@fast_value
class Drawing:
    name: str
    visible: bool
    colour: int
    points: tuple[Point, ...] | None
    title: str | None


POINT = Struct(Point, field("x", INT16), field("y", INT64))
DRAWING = Struct(
    Drawing,
    field("name", STRING),
    field("visible", BOOLEAN, since=1, default=True),
    field("colour", INT8, until=1, default=7),
    field("points", ArrayOf(POINT), until=0),
    field("points", ArrayOf(POINT, nullable=True), since=1),
    field("title", NULLABLE_STRING, since=2),
)
HOUSE = Drawing("house", False, -3, (Point(1, -2), Point(-32768, 1 << 62)), None)


@fast_value
class Letter:
    number: int
    first: Part | None
    second: Part | None
    after: int


LETTER = Struct(
    Letter,
    field("number", INT32),
    field("first", RECORDS),
    field("second", NULLABLE_RECORDS),
    field("after", INT32),
)


def test_every_version_has_the_bytes_of_its_own_rows() -> None:
    points = "00000002 0001 fffffffffffffffe 8000 4000000000000000"
    assert join(schema.encode(DRAWING, 0, HOUSE)) == bytes.fromhex("0005 686f757365 fd" + points)
    assert join(schema.encode(DRAWING, 1, HOUSE)) == bytes.fromhex("0005 686f757365 00 fd" + points)
    assert join(schema.encode(DRAWING, 2, HOUSE)) == bytes.fromhex("0005 686f757365 00" + points + "ffff")


def test_a_field_that_a_version_lacks_is_decoded_as_its_default() -> None:
    data = join(schema.encode(DRAWING, 0, HOUSE))
    assert schema.decode(DRAWING, 0, data) == Drawing("house", True, -3, HOUSE.points, None)
    data = join(schema.encode(DRAWING, 2, HOUSE))
    assert schema.decode(DRAWING, 2, data) == Drawing("house", False, 7, HOUSE.points, None)


def test_null_differs_from_empty_if_the_version_allows_it() -> None:
    for points in (None, ()):
        drawing = Drawing("", True, 0, points, "t")
        assert schema.decode(DRAWING, 1, join(schema.encode(DRAWING, 1, drawing))).points == points
    with pytest.raises(LocalWireError, match=r"Drawing\.points \(version 0\): null is not allowed"):
        schema.encode(DRAWING, 0, Drawing("", True, 0, None, None))
    with pytest.raises(RemoteWireError, match="array of -1 elements at position 3"):
        schema.decode(DRAWING, 0, bytes.fromhex("0000 00 ffffffff"))


def test_where_empty_means_null_an_empty_array_cannot_be_sent() -> None:
    @fast_value
    class Names:
        names: tuple[str, ...] | None

    names = Struct(Names, field("names", ArrayOf(STRING, empty_is_null=True)))
    assert join(schema.encode(names, 0, Names(None))) == bytes(4)
    assert schema.decode(names, 0, bytes(4)) == Names(None)
    with pytest.raises(LocalWireError, match="empty array means null"):
        schema.encode(names, 0, Names(()))


def test_records_are_passed_on_by_reference() -> None:
    first, second = bytearray(b"one"), memoryview(b"two")
    parts = schema.encode(LETTER, 0, Letter(1, first, second, 2))
    assert [part for part in parts if part is first or part is second] == [first, second]
    assert join(parts) == bytes.fromhex("00000001 00000003") + b"one" + b"\0\0\0\3two" + b"\0\0\0\2"


def test_a_file_slice_stays_a_file_slice(tmp_path: object) -> None:
    file = RealFiles().open(f"{tmp_path}/records", create=True)
    try:
        file.write_at(0, b"0123456789")
        piece = FileSlice(file, 2, 5)
        parts = schema.encode(LETTER, 0, Letter(1, piece, None, 2))
        assert any(part is piece for part in parts)
        assert join(parts) == bytes.fromhex("00000001 00000005") + b"23456" + b"\xff\xff\xff\xff\0\0\0\2"
    finally:
        file.close()


def test_decoded_records_are_views_of_the_message() -> None:
    data = bytearray(join(schema.encode(LETTER, 0, Letter(1, b"abc", b"", 2))))
    letter = schema.decode(LETTER, 0, data)
    data[8:11] = b"xyz"
    assert letter.first == b"xyz"
    assert letter.second == b""


def test_null_records_are_refused_for_non_nullable_field() -> None:
    with pytest.raises(RemoteWireError, match=r"the records Letter\.first at position 4 is null"):
        schema.decode(LETTER, 0, bytes.fromhex("00000001 ffffffff ffffffff 00000000"))
    with pytest.raises(LocalWireError, match=r"Letter\.first \(version 0\): null"):
        schema.encode(LETTER, 0, Letter(1, None, None, 2))


@pytest.mark.parametrize(
    ("drawing", "complaint"),
    [
        (Drawing("", True, 128, (), None), r"Drawing\.colour \(version 1\): 128 is not a value of type int8"),
        (Drawing("", True, 0, (Point(0, 0), Point(1 << 15, 0)), None), r"Drawing\.points\[1\]\.x .*32768"),
        (Drawing("", True, 0, (Point(0, "1"),), None), r"points\[0\]\.y .*'1' is not a value of type int64"),  # type: ignore[arg-type]
        (Drawing("", True, 0, (None,), None), r"points\[0\] .*a NoneType has no x"),  # type: ignore[arg-type]
        (Drawing("", True, 0, "ab", None), r"points .*got the string 'ab'"),  # type: ignore[arg-type]
        (Drawing("", True, 0, 5, None), r"Drawing\.points .*5 is not a value of type nullable array"),  # type: ignore[arg-type]
        (
            Drawing("a" * 32768, True, 0, (), None),
            r"Drawing\.name .*string of 32768 bytes exceeds the limit of 32767",
        ),
        (Drawing("\ud800", True, 0, (), None), r"Drawing\.name .*is not a value of type string"),
        (Drawing(None, True, 0, (), None), r"Drawing\.name .*null is not allowed"),  # type: ignore[arg-type]
        (Drawing(7, True, 0, (), None), r"Drawing\.name .*7 is not a value of type string"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_path(drawing: Drawing, complaint: str) -> None:
    with pytest.raises(LocalWireError, match=complaint):
        schema.encode(DRAWING, 1, drawing)


def test_bytes_after_the_message_are_refused() -> None:
    with pytest.raises(RemoteWireError, match="Point of version 0 ends at byte 10, the message has 11"):
        schema.decode(POINT, 0, bytes(11))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("", r"Drawing \(name\) needs 2 bytes at position 0, but the message has 0"),
        ("fffe", "length of -2"),
        ("0004 616263", "length of 4 at position 2 does not fit a message of 5 bytes"),
        ("0002 ff61 00 00 00000000", "the string Drawing.name at position 2 is not UTF-8"),
        ("ffff 00 00 00000000", "the string Drawing.name at position 0 is null"),
        ("0000 00", r"Drawing \(visible, colour, points\) needs 6 bytes at position 2, .* has 3"),
        ("0000 00 00 fffffffe", "an array of -2 elements"),
        (
            "0000 00 00 00000002 00000000000000000000",
            "Drawing.points: an array of 2 elements of at least 10 bytes at position 4",
        ),
    ],
)
def test_bytes_that_do_not_fit_are_the_peers_fault(data: str, complaint: str) -> None:
    with pytest.raises(RemoteWireError, match=complaint):
        schema.decode(DRAWING, 1, bytes.fromhex(data))


def test_announced_array_is_not_allocated_before_its_bytes() -> None:
    @fast_value
    class Lists:
        numbers: tuple[int, ...]
        names: tuple[str, ...]

    lists = Struct(Lists, field("numbers", ArrayOf(INT32)), field("names", ArrayOf(STRING)))
    assert schema.decode(lists, 0, bytes(8)) == Lists((), ())
    tracemalloc.start()
    try:
        for data in ("7fffffff", "00000000 7fffffff 0000"):
            with pytest.raises(RemoteWireError, match="array of 2147483647 elements"):
                schema.decode(lists, 0, bytes.fromhex(data))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_array_of_elements_without_bytes_is_bounded_too() -> None:
    @fast_value
    class Nothing:
        pass

    @fast_value
    class Many:
        nothings: tuple[Nothing, ...]

    many = Struct(Many, field("nothings", ArrayOf(Struct(Nothing))))
    with pytest.raises(RemoteWireError, match="array of 2147483647 elements"):
        schema.decode(many, 0, bytes.fromhex("7fffffff"))


def test_all_arrays_of_a_message_share_one_limit_of_elements() -> None:
    @fast_value
    class Row:
        numbers: tuple[int, ...]

    @fast_value
    class Rows:
        rows: tuple[Row, ...]

    rows = Struct(Rows, field("rows", ArrayOf(Struct(Row, field("numbers", ArrayOf(INT8))))))
    value = Rows((Row((1, 2)), Row(()), Row((3,))))
    data = join(schema.encode(rows, 0, value))
    assert schema.decode(rows, 0, data, 6) == value
    for most, complaint in (
        (5, r"Row\.numbers: an array of 1 elements at position 14 exceeds the limit of 5 "),
        (2, r"Rows\.rows: an array of 3 elements at position 0 exceeds the limit of 2 "),
    ):
        with pytest.raises(RemoteWireError, match=complaint):
            schema.decode(rows, 0, data, most)


def test_decoded_value_equals_the_original() -> None:
    point = schema.decode(POINT, 0, bytes(10))
    assert type(point) is Point
    assert (point, hash(point)) == (Point(0, 0), hash(Point(0, 0)))


def test_a_class_that_cannot_be_filled_field_by_field_is_refused() -> None:
    @dataclass(frozen=True)
    class Loose:
        x: int

    @fast_value
    class Computed:
        x: int

        def __post_init__(self) -> None:
            raise AssertionError("reading a message would leave this out")

    for cls in (Loose, Computed):
        with pytest.raises(TypeError, match=f"{cls.__name__}"):
            Struct(cls, field("x", INT8))


def test_field_names_may_equal_generated_variable_names() -> None:
    @fast_value
    class Odd:
        n: int
        size: tuple[int, ...]
        position: str
        items1: tuple[str, ...]

    odd = Struct(
        Odd,
        field("n", INT8),
        field("size", ArrayOf(INT8)),
        field("position", STRING),
        field("items1", ArrayOf(STRING)),
    )
    value = Odd(1, (2, 3), "four", ("five", "six"))
    assert schema.decode(odd, 0, join(schema.encode(odd, 0, value))) == value


def test_rows_must_be_the_fields_of_the_class_in_order() -> None:
    with pytest.raises(TypeError, match="rows of Point must be its fields in order"):
        Struct(Point, field("y", INT64), field("x", INT16))
    with pytest.raises(TypeError, match="rows of Point"):
        Struct(Point, field("x", INT16))


def test_two_rows_of_one_name_must_not_share_a_version() -> None:
    twice = Struct(Point, field("x", INT16, until=1), field("x", INT32, since=1), field("y", INT64))
    assert schema.decode(twice, 0, bytes(10)) == Point(0, 0)
    with pytest.raises(TypeError, match=r"Point\.x has 2 rows for version 1"):
        schema.decode(twice, 1, bytes(12))
