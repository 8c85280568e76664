"""Big-endian primitives: readers return the values that writers wrote."""

from __future__ import annotations

import pytest

from minikafka.base import binary
from minikafka.base.errors import LocalWireError, RemoteWireError


@pytest.mark.parametrize(
    ("form", "value", "raw"),
    [
        (binary.INT8, -2, b"\xfe"),
        (binary.INT16, 258, b"\x01\x02"),
        (binary.INT32, -1, b"\xff\xff\xff\xff"),
        (binary.INT64, 1 << 40, b"\0\0\1\0\0\0\0\0"),
    ],
)
def test_integers_are_big_endian_twos_complement(form: object, value: int, raw: bytes) -> None:
    out = bytearray(b"before")
    binary.write_integer(form, out, value)  # type: ignore[arg-type]
    assert out == b"before" + raw
    assert binary.read_integer(form, out, 6) == (value, len(out))  # type: ignore[arg-type]


def test_an_integer_that_does_not_fit_is_our_fault() -> None:
    with pytest.raises(LocalWireError, match="128 does not fit 1 bytes"):
        binary.write_integer(binary.INT8, bytearray(), 128)


def test_an_integer_cut_short_is_the_peers_fault() -> None:
    with pytest.raises(RemoteWireError, match="need 4 bytes at position 1"):
        binary.read_integer(binary.INT32, b"abcd", 1)


@pytest.mark.parametrize("value", ["", "topic", "Zürich", None])
def test_a_string_comes_back(value: str | None) -> None:
    out = bytearray()
    binary.write_nullable_string(out, value)
    assert binary.read_nullable_string(out, 0) == (value, len(out))


def test_a_string_that_must_be_there_may_not_be_null() -> None:
    with pytest.raises(RemoteWireError, match="is null"):
        binary.read_string(b"\xff\xff", 0)
    assert binary.read_string(b"\0\1x", 0) == ("x", 3)


def test_a_string_with_a_length_beyond_its_buffer_is_refused() -> None:
    with pytest.raises(RemoteWireError, match="a length of 5 at position 2"):
        binary.read_nullable_string(b"\0\5abc", 0)
    with pytest.raises(RemoteWireError, match="a length of -2"):
        binary.read_nullable_string(b"\xff\xfe", 0)


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteWireError, match="not UTF-8"):
        binary.read_nullable_string(b"\0\1\xff", 0)


def test_a_string_longer_than_an_int16_is_our_fault() -> None:
    with pytest.raises(LocalWireError, match="a string of 32768 bytes exceeds the limit of 32767"):
        binary.write_nullable_string(bytearray(), "x" * 32768)


@pytest.mark.parametrize(
    ("data", "value"), [(b"\0\0\0\0", b""), (b"\0\0\0\2\0\1", b"\0\1"), (b"\xff\xff\xff\xff", None)]
)
def test_bytes_come_back_as_a_view(data: bytes, value: bytes | None) -> None:
    read, after = binary.read_nullable_bytes(data, 0)
    assert (None if read is None else bytes(read)) == value
    assert after == len(data)
    if read is not None:
        assert isinstance(read, memoryview)
