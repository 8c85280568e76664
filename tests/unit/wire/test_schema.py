"""Messages of annotated fields: their generated code, and the errors for values and bytes that do not fit."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Annotated

import pytest

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import FileSlice, RealFiles
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.fields import STRING, ArrayOf, Int8, Int16, Int32, Int64, Records, since, until
from minikafka.wire.frame_parts import join
from minikafka.wire.schema import Struct


@fast_value
class Point:
    x: Int16
    y: Int64


@fast_value
class Drawing:
    name: str
    visible: Annotated[bool, since(1, default=True)]
    colour: Annotated[Int8, until(1, default=7)]
    points: Annotated[tuple[Point, ...] | None, since(1, earlier=tuple[Point, ...])]
    title: Annotated[str | None, since(2)]


HOUSE = Drawing("house", False, -3, (Point(1, -2), Point(-32768, 1 << 62)), None)


@fast_value
class Letter:
    number: Int32
    first: Records
    second: Records | None
    after: Int32


@fast_value
class Names:
    names: Annotated[tuple[str, ...] | None, ArrayOf(STRING, empty_is_null=True)]


@fast_value
class Lists:
    numbers: tuple[Int32, ...]
    names: tuple[str, ...]


@fast_value
class Nothing:
    pass


@fast_value
class Many:
    nothings: tuple[Nothing, ...]


@fast_value
class Row:
    numbers: tuple[Int8, ...]


@fast_value
class Rows:
    rows: tuple[Row, ...]


@fast_value
class WithDefault:
    first: Int8
    second: Annotated[tuple[Int8, ...], since(1), "a note"] = (5,)


@fast_value
class Odd:
    n: Int8
    size: tuple[Int8, ...]
    position: str
    items1: tuple[str, ...]


def test_every_version_has_the_bytes_of_its_own_rows() -> None:
    points = "00000002 0001 fffffffffffffffe 8000 4000000000000000"
    assert join(schema.encode(Drawing, 0, HOUSE)) == bytes.fromhex("0005 686f757365 fd" + points)
    assert join(schema.encode(Drawing, 1, HOUSE)) == bytes.fromhex("0005 686f757365 00 fd" + points)
    assert join(schema.encode(Drawing, 2, HOUSE)) == bytes.fromhex("0005 686f757365 00" + points + "ffff")


def test_a_field_that_a_version_lacks_is_decoded_as_its_default() -> None:
    data = join(schema.encode(Drawing, 0, HOUSE))
    assert schema.decode(Drawing, 0, data) == Drawing("house", True, -3, HOUSE.points, None)
    data = join(schema.encode(Drawing, 2, HOUSE))
    assert schema.decode(Drawing, 2, data) == Drawing("house", False, 7, HOUSE.points, None)


def test_null_differs_from_empty_if_the_version_allows_it() -> None:
    for points in (None, ()):
        drawing = Drawing("", True, 0, points, "t")
        assert schema.decode(Drawing, 1, join(schema.encode(Drawing, 1, drawing))).points == points
    with pytest.raises(LocalWireError, match=r"Drawing\.points \(version 0\): null is not allowed"):
        schema.encode(Drawing, 0, Drawing("", True, 0, None, None))
    with pytest.raises(RemoteWireError, match="array of -1 elements at position 3"):
        schema.decode(Drawing, 0, bytes.fromhex("0000 00 ffffffff"))


def test_where_empty_means_null_an_empty_array_cannot_be_sent() -> None:
    assert join(schema.encode(Names, 0, Names(None))) == bytes(4)
    assert schema.decode(Names, 0, bytes(4)) == Names(None)
    with pytest.raises(LocalWireError, match="empty array means null"):
        schema.encode(Names, 0, Names(()))


def test_records_are_passed_on_by_reference() -> None:
    first, second = bytearray(b"one"), memoryview(b"two")
    parts = schema.encode(Letter, 0, Letter(1, first, second, 2))
    assert [part for part in parts if part is first or part is second] == [first, second]
    assert join(parts) == bytes.fromhex("00000001 00000003") + b"one" + b"\0\0\0\3two" + b"\0\0\0\2"


def test_a_file_slice_stays_a_file_slice(tmp_path: object) -> None:
    file = RealFiles().open(f"{tmp_path}/records", create=True)
    try:
        file.write_at(0, b"0123456789")
        piece = FileSlice(file, 2, 5)
        parts = schema.encode(Letter, 0, Letter(1, piece, None, 2))
        assert any(part is piece for part in parts)
        assert join(parts) == bytes.fromhex("00000001 00000005") + b"23456" + b"\xff\xff\xff\xff\0\0\0\2"
    finally:
        file.close()


def test_decoded_records_are_views_of_the_message() -> None:
    data = bytearray(join(schema.encode(Letter, 0, Letter(1, b"abc", b"", 2))))
    letter = schema.decode(Letter, 0, data)
    data[8:11] = b"xyz"
    assert letter.first == b"xyz"
    assert letter.second == b""


def test_null_records_are_refused_for_non_nullable_field() -> None:
    with pytest.raises(RemoteWireError, match=r"the records Letter\.first at position 4 is null"):
        schema.decode(Letter, 0, bytes.fromhex("00000001 ffffffff ffffffff 00000000"))
    with pytest.raises(LocalWireError, match=r"Letter\.first \(version 0\): null"):
        schema.encode(Letter, 0, Letter(1, None, None, 2))


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
        schema.encode(Drawing, 1, drawing)


def test_bytes_after_the_message_are_refused() -> None:
    with pytest.raises(RemoteWireError, match="Point of version 0 ends at byte 10, the message has 11"):
        schema.decode(Point, 0, bytes(11))


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
        schema.decode(Drawing, 1, bytes.fromhex(data))


def test_announced_array_is_not_allocated_before_its_bytes() -> None:
    assert schema.decode(Lists, 0, bytes(8)) == Lists((), ())
    tracemalloc.start()
    try:
        for data in ("7fffffff", "00000000 7fffffff 0000"):
            with pytest.raises(RemoteWireError, match="array of 2147483647 elements"):
                schema.decode(Lists, 0, bytes.fromhex(data))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_array_of_elements_without_bytes_is_bounded_too() -> None:
    with pytest.raises(RemoteWireError, match="array of 2147483647 elements"):
        schema.decode(Many, 0, bytes.fromhex("7fffffff"))


def test_all_arrays_of_a_message_share_one_limit_of_elements() -> None:
    value = Rows((Row((1, 2)), Row(()), Row((3,))))
    data = join(schema.encode(Rows, 0, value))
    assert schema.decode(Rows, 0, data, 6) == value
    for most, complaint in (
        (5, r"Row\.numbers: an array of 1 elements at position 14 exceeds the limit of 5 "),
        (2, r"Rows\.rows: an array of 3 elements at position 0 exceeds the limit of 2 "),
    ):
        with pytest.raises(RemoteWireError, match=complaint):
            schema.decode(Rows, 0, data, most)


def test_decoded_value_equals_the_original() -> None:
    point = schema.decode(Point, 0, bytes(10))
    assert type(point) is Point
    assert (point, hash(point)) == (Point(0, 0), hash(Point(0, 0)))


def test_a_class_that_cannot_be_filled_field_by_field_is_refused() -> None:
    @dataclass(frozen=True)
    class Loose:
        x: Int8

    @fast_value
    class Computed:
        x: Int8

        def __post_init__(self) -> None:
            raise AssertionError("reading a message would leave this out")

    for cls in (Loose, Computed):
        with pytest.raises(TypeError, match=f"{cls.__name__}"):
            Struct(cls)


def test_field_names_may_equal_generated_variable_names() -> None:
    value = Odd(1, (2, 3), "four", ("five", "six"))
    assert schema.decode(Odd, 0, join(schema.encode(Odd, 0, value))) == value


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (int, r"Wrong\.x: <class 'int'> has no encoding"),
        (tuple[float, ...], r"Wrong\.x: <class 'float'> has no encoding"),
        (Point | Drawing, r"Wrong\.x: .*Point \| .*Drawing has no encoding"),
        (Annotated[Int32, since(1)], r"Wrong\.x needs a default"),
        (Annotated[str | None, since(1, earlier=int)], r"Wrong\.x: <class 'int'> has no encoding"),
    ],
)
def test_an_annotation_without_a_meaning_is_refused_by_name(annotation: object, complaint: str) -> None:
    wrong = fast_value(type("Wrong", (), {"__annotations__": {"x": annotation}, "__module__": __name__}))
    with pytest.raises(TypeError, match=complaint):
        Struct(wrong)


def test_a_field_is_decoded_as_the_default_of_its_class() -> None:
    assert schema.decode(WithDefault, 0, b"\1") == WithDefault(1, (5,))
    assert schema.decode(WithDefault, 1, b"\1\0\0\0\0") == WithDefault(1, ())
