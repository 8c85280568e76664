"""Flexible versions of messages: compact lengths, tagged fields, and what is refused in them."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.fields import ZERO_UUID, Float64, Int8, Int16, Int32, Records, Uint16, Uuid, since, tagged
from minikafka.wire.frame_parts import join
from minikafka.wire.schema import Struct


@fast_value
class Point:
    x: Int16
    y: Int16


@fast_value
class Shape:
    number: Int32
    name: str
    title: str | None
    points: tuple[Point, ...] | None
    names: tuple[str, ...]
    data: bytes


@fast_value
class Letter:
    first: Records
    second: Records | None


@fast_value
class Leader:
    node: Int32 = -1
    epoch: Int32 = -1


@fast_value
class Answer:
    code: Int16
    rack: Annotated[str | None, tagged(0, 1)] = None
    leader: Annotated[Leader, tagged(1, 1)] = Leader()
    since_2: Annotated[tuple[Int8, ...], tagged(200, 2)] = ()


@fast_value
class Answers:
    answers: tuple[Answer, ...]


@fast_value
class Fixed:
    topic_id: Uuid
    ids: tuple[Uuid, ...]
    port: Uint16
    ratio: Float64


@fast_value
class Cursor:
    at: Point | None
    after: Int8


def encoded(value: Any, version: int = 1) -> bytes:
    return join(schema.encode(type(value), version, value, flexible=True))


def decoded(cls: type[Any], data: bytes | str, version: int = 1, most: int = 1000) -> Any:
    data = bytes.fromhex(data) if isinstance(data, str) else data
    return schema.decode(cls, version, data, most, flexible=True)


SHAPE = Shape(7, "abc", None, (Point(1, 2), Point(3, 4)), ("", "d"), b"e")


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (SHAPE, "00000007 04616263 00 03 0001000200 0003000400 03 01 0264 0265 00"),
        (Shape(0, "", "", None, (), b""), "00000000 01 01 00 01 01 00"),
        (Letter(b"one", None), "04 6f6e65 00 00"),
        (Letter(b"", b"two"), "01 04 74776f 00"),
        (Cursor(None, 5), "ff 05 00"),
        (Cursor(Point(1, 2), 5), "01 0001 0002 00 05 00"),
        (
            Fixed(bytes(range(16)), (ZERO_UUID,), 0xFFFF, 0.5),
            f"{bytes(range(16)).hex()} 02 {bytes(16).hex()} ffff 3fe0000000000000 00",
        ),
    ],
)
def test_lengths_are_varints_of_one_more_and_0_is_null(value: Any, data: str) -> None:
    assert encoded(value) == bytes.fromhex(data)
    assert decoded(type(value), data) == value


@pytest.mark.parametrize(
    ("size", "head"), [(126, "7f"), (127, "8001"), (128, "8101"), (16383, "808001"), (32767, "808002")]
)
def test_lengths_above_126_take_more_bytes(size: int, head: str) -> None:
    value = Shape(0, "x" * size, None, None, (), b"")
    data = encoded(value)
    assert data[4 : 4 + len(head) // 2].hex() == head
    assert decoded(Shape, data) == value
    items = Shape(0, "", None, (Point(1, 2),) * size, ("a",) * size, b"y" * size)
    assert decoded(Shape, encoded(items), most=2 * size) == items


def test_strings_have_the_limit_of_classic_ones() -> None:
    too_long = "x" * 32768
    with pytest.raises(
        LocalWireError, match=r"Shape\.name .*string of 32768 bytes exceeds the limit of 32767"
    ):
        encoded(Shape(0, too_long, None, None, (), b""))
    data = bytes(4) + bytes.fromhex("818002") + too_long.encode() + bytes.fromhex("00 00 01 01 00")
    with pytest.raises(RemoteWireError, match=r"Shape\.name: a length of 32768 .* exceeds the limit"):
        decoded(Shape, data)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Answer(5), "0005 00"),
        (Answer(5, "r"), "0005 01 00 02 0272"),
        (Answer(5, leader=Leader(1, 2)), "0005 01 01 09 00000001 00000002 00"),
        (Answer(5, "", Leader(3)), "0005 02 00 01 01 01 09 00000003 ffffffff 00"),
    ],
)
def test_tagged_fields_are_encoded_unless_they_are_the_default(value: Answer, data: str) -> None:
    assert encoded(value) == bytes.fromhex(data)
    assert decoded(Answer, data) == value


def test_tagged_field_of_a_later_version_is_left_out() -> None:
    value = Answer(5, since_2=(1, 2))
    assert encoded(value, 1) == bytes.fromhex("0005 00")
    assert encoded(value, 2) == bytes.fromhex("0005 01 c801 03 03 01 02")
    assert decoded(Answer, encoded(value, 2), 2) == value


def test_classic_versions_have_no_tagged_fields() -> None:
    assert join(schema.encode(Answer, 0, Answer(5, "r"))) == bytes.fromhex("0005")
    assert schema.decode(Answer, 0, bytes.fromhex("0005")) == Answer(5)


@pytest.mark.parametrize(
    ("cls", "data", "value"),
    [
        (Answer, "0005 02 00 02 0272 07 03 616263", Answer(5, "r")),
        (Answer, "0005 02 07 03 616263 00 02 0272", Answer(5, "r")),  # Java takes any order
        (Answer, "0005 01 01 0b 00000001 00000002 01 05 00", Answer(5, leader=Leader(1, 2))),
        (Answer, "0005 01 c801 02 0101", Answer(5)),  # of version 2
        (Point, "0001 0002 02 00 00 8101 01 ff", Point(1, 2)),
        (Answers, "02 0005 01 63 00 01 09 00", Answers((Answer(5),))),
    ],
)
def test_unknown_tagged_fields_are_skipped(cls: type[Any], data: str, value: Any) -> None:
    assert decoded(cls, data) == value


@pytest.mark.parametrize("cls", [Answer, Point])
def test_tagged_fields_count_as_elements(cls: type[Any]) -> None:
    count = 200
    data = bytes(2 if cls is Answer else 4) + b"\xc8\x01" + b"\x63\x00" * count
    decoded(cls, data, most=count)
    with pytest.raises(
        RemoteWireError, match=f"{cls.__name__}: {count} tagged fields .* limit of 199 elements"
    ):
        decoded(cls, data, most=count - 1)


@pytest.mark.parametrize(
    ("cls", "data", "complaint"),
    [
        (Shape, "00000000", r"Shape \(number, name\) needs 5 bytes at position 0"),
        (Shape, "00000000 00", r"the string Shape\.name at position 4 is null"),
        (Shape, "00000000 04 6162", r"Shape\.name: a length of 3 at position 5 does not fit"),
        (Shape, "00000000 01", r"Shape \(title\) needs 1 bytes at position 5"),
        (Shape, "00000000 8000 00", r"Shape\.name: the bytes 8000 at position 4 are not a varint"),
        (Shape, "00000000 80", r"Shape\.name needs 2 bytes at position 4, but the message has 5"),
        (Shape, "00000000 ffffffff1f", r"Shape\.name: the bytes ffffffff1f .* are not a varint of 32 bits"),
        (Shape, "00000000 ffffffffff01", r"Shape\.name: the bytes ffffffffff .* are not a varint of 32 bits"),
        (Shape, "00000000 ffffffff0f 00", r"Shape\.name: a length of 4294967294 .* does not fit"),
        (
            Shape,
            "00000000 01 00 05 00",
            r"Shape\.points: an array of 4 elements of at least 5 bytes at position 6",
        ),
        (Shape, "00000000 01 00 00 00", r"Shape\.names: an array of -1 elements at position 7"),
        (
            Shape,
            "00000000 01 00 00 ffffffff0f 00",
            r"Shape\.names: an array of 4294967294 .* at position 7 does",
        ),
        (Point, "0001 0002", r"Point \(x, y, tagged fields\) needs 5 bytes"),
        (Point, "0001 0002 01", "Point needs 1 bytes at position 5"),
        (Point, "0001 0002 01 05", "Point needs 1 bytes at position 6"),
        (Point, "0001 0002 01 05 02 00", "tagged field 5 of Point: a length of 2 at position 7 does not fit"),
        (Point, "0001 0002 8000", "Point: the bytes 8000 .* are not a varint"),
        (Point, "0001 0002 00 00", "ends at byte 5, the message has 6"),
        (Answer, "0005 01 00 03 0272", r"tagged field 0 of Answer: a length of 3"),
        (
            Answer,
            "0005 01 00 03 0272 00",
            r"Answer\.rack: the tagged field ends at position 7, its size says 8",
        ),
        (Answer, "0005 01 00 01 0272", r"Answer\.rack: the tagged field ends at position 7, its size says 6"),
        (Answer, "0005 01 00 00", r"Answer \(rack\) needs 1 bytes at position 5"),
        (Answer, "0005 01 00 06 06 c3a97a7aff", r"the string Answer\.rack at position 6 is not UTF-8"),
    ],
)
def test_flexible_bytes_that_do_not_fit_are_the_peers_fault(
    cls: type[Any], data: str, complaint: str
) -> None:
    with pytest.raises(RemoteWireError, match=complaint):
        decoded(cls, data)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (Shape(0, "", "", (Point(1 << 15, 0),), (), b""), r"Shape\.points\[0\]\.x .*32768 is not"),
        (Shape(0, "", "", None, None, b""), r"Shape\.names .*null is not allowed"),  # type: ignore[arg-type]
        (Answer(0, leader=Leader(1 << 31)), r"Answer\.leader\.node .*2147483648"),
        (Answer(0, leader=None), r"Answer\.leader .*a NoneType has no node"),  # type: ignore[arg-type]
        (Fixed(b"short", (), 0, 0.0), r"Fixed\.topic_id .*b'short' is not a value of type uuid"),
        (Fixed(ZERO_UUID, (bytes(17),), 0, 0.0), r"Fixed\.ids\[0\] .* is not a value of type uuid"),
        (Fixed(ZERO_UUID, (), -1, 0.0), r"Fixed\.port .*-1 is not a value of type uint16"),
        (Cursor(Point(0, 1 << 15), 0), r"Cursor\.at\.y"),
    ],
)
def test_flexible_value_that_does_not_fit_is_named_by_path(value: Any, complaint: str) -> None:
    with pytest.raises(LocalWireError, match=complaint):
        encoded(value)


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (Annotated[Records | None, tagged(0, 1)], r"Wrong\.x is tagged: .* records"),
        (Annotated[Int8, tagged(0, 1)], r"Wrong\.x needs a default"),
    ],
)
def test_a_field_that_cannot_be_tagged_is_refused_by_name(annotation: object, complaint: str) -> None:
    wrong = fast_value(type("Wrong", (), {"__annotations__": {"x": annotation}, "__module__": __name__}))
    with pytest.raises(TypeError, match=complaint):
        Struct(wrong)


def test_neighbouring_integers_and_one_byte_lengths_are_one_call() -> None:
    text = schema.decoder_code(Struct(Shape), 1, flexible=True).text
    assert "message.number, n = unpack_iB(buffer, position)" in text
    assert "item1.x, item1.y, n = unpack_hhB(buffer, position)" in text
    assert schema.encoder_code(Struct(Point), 1, flexible=True).text.count("out +=") == 1


@fast_value
class Mixed:
    a: Annotated[Int8, since(1)] = 3
    b: str = ""


def test_fields_of_later_versions_have_defaults_in_flexible_ones() -> None:
    assert decoded(Mixed, "02 62 00", 0) == Mixed(3, "b")
    assert decoded(Mixed, "04 02 62 00", 1) == Mixed(4, "b")
