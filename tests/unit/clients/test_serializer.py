"""Bytes of keys and values, and back."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.clients.serializer import (
    DefaultDecoder,
    DefaultEncoder,
    IntegerDecoder,
    IntegerEncoder,
    LongDecoder,
    LongEncoder,
    NullEncoder,
    StringDecoder,
    StringEncoder,
)


def test_bytes_stay_as_they_are_by_default() -> None:
    data = b"\x00\xff"
    assert DefaultEncoder().to_bytes(data) is data
    assert DefaultDecoder({"serializer.encoding": "UTF-8"}).from_bytes(data) is data


def test_the_null_encoder_sends_null_whatever_it_is_given() -> None:
    NullEncoder().to_bytes("a")
    assert str(NullEncoder.to_bytes.__annotations__["return"]) == "None"


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("UTF8", "é€".encode()),
        ("UTF-8", "é€".encode()),
        ("ISO-8859-1", b"\xe9?"),
        ("UTF-16", b"\xfe\xff\x00\xe9\x20\xac"),
        ("UTF-16LE", b"\xe9\x00\xac\x20"),
    ],
)
def test_text_is_encoded_as_by_java(encoding: str, data: bytes) -> None:
    assert StringEncoder({"serializer.encoding": encoding}).to_bytes("é€") == data


@pytest.mark.parametrize("encoding", ["UTF8", "UTF-16", "UTF-16BE", "windows-1252"])
def test_text_comes_back_from_its_bytes(encoding: str) -> None:
    properties = {"serializer.encoding": encoding}
    for text in ("", "é€", "a"):
        assert StringDecoder(properties).from_bytes(StringEncoder(properties).to_bytes(text)) == text


def test_bytes_without_a_mark_are_big_endian_in_utf_16() -> None:
    assert StringDecoder({"serializer.encoding": "UTF-16"}).from_bytes(b"\x00\xe9") == "é"


def test_what_is_no_text_is_replaced() -> None:
    assert StringDecoder().from_bytes(b"a\xffb") == "a�b"
    assert StringEncoder().to_bytes("a\ud800") == b"a?"


def test_a_character_set_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"serializer\.encoding='klingon'"):
        StringDecoder({"serializer.encoding": "klingon"})


@pytest.mark.parametrize("number", [0, 1, -1, (1 << 63) - 1, -(1 << 63)])
def test_longs_have_eight_bytes_big_endian(number: int) -> None:
    data = LongEncoder().to_bytes(number)
    assert data == number.to_bytes(8, "big", signed=True)
    assert LongDecoder().from_bytes(data) == number


@pytest.mark.parametrize("number", [0, 1, -1, (1 << 31) - 1, -(1 << 31)])
def test_integers_have_four_bytes_big_endian(number: int) -> None:
    data = IntegerEncoder().to_bytes(number)
    assert data == number.to_bytes(4, "big", signed=True)
    assert IntegerDecoder().from_bytes(data) == number
