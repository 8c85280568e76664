"""Keys and values as people read them."""

from __future__ import annotations

import pytest

from minikafka.console.payloads import LONG_BYTES, SHORT_BYTES, Kind, hex_dump, payload
from minikafka.console.schemas import Schemas


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, Kind.NULL, "null"),
        (b"", Kind.EMPTY, "empty"),
        (b"plain", Kind.TEXT, "plain"),
        ("größe".encode(), Kind.TEXT, "größe"),
        (b"a\tb\r\nc", Kind.TEXT, "a\tb\nc"),
        (b"\x00\x01\x02", Kind.BINARY, "00 01 02"),
        (b"\xff\xfe", Kind.BINARY, "ff fe"),
        (b"{not json}", Kind.TEXT, "{not json}"),
        (b"12", Kind.TEXT, "12"),
        (b'{"a":[1,{}],"b":[]}', Kind.JSON, '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}'),
    ],
)
def test_bytes_are_shown_by_their_kind(data: bytes | None, kind: Kind, text: str) -> None:
    found = payload(data)
    assert (found.kind, found.text, found.size_bytes) == (kind, text, len(data or b""))
    assert not found.is_cut


def test_json_keeps_its_digits_and_repeated_names() -> None:
    text = payload(b'{"n":1.10000000000000000000001,"n":12345678901234567890,"e":1e400}').text
    assert '"n": 1.10000000000000000000001' in text
    assert '"n": 12345678901234567890' in text
    assert '"e": 1e400' in text


def test_json_strings_keep_their_punctuation() -> None:
    assert payload(rb'{"a":"x,y:{\"z\"}"}').text == '{\n  "a": "x,y:{\\"z\\"}"\n}'


def test_deep_json_is_shown_as_text() -> None:
    data = b"[" * 100_000
    assert payload(data, whole=True).kind is Kind.TEXT


@pytest.mark.parametrize(
    "data", [b"[" * 900 + b"1," * 120_000 + b"1" + b"]" * 900, b"[" * 90 + b"1," * 200_000 + b"1" + b"]" * 90]
)
def test_json_whose_indent_would_be_large_is_shown_as_text(data: bytes) -> None:
    found = payload(data, whole=True)
    assert (found.kind, len(found.text)) == (Kind.TEXT, len(data))


def test_long_json_that_is_flat_has_an_indent() -> None:
    data = b"[" + b"1," * 200_000 + b"1]"
    assert payload(data, whole=True).text.startswith("[\n  1,\n  1,")


def test_a_long_value_is_cut_between_characters() -> None:
    found = payload("ä".encode() * SHORT_BYTES + b"b")
    assert found.is_cut
    assert found.kind is Kind.TEXT
    assert set(found.text) == {"ä"}
    odd = payload(b"b" + "ä".encode() * SHORT_BYTES)
    assert odd.text.endswith("ä")


def test_the_page_of_one_message_is_bounded_too() -> None:
    found = payload(b"x" * (LONG_BYTES + 1), whole=True)
    assert found.is_cut
    assert len(found.text) == LONG_BYTES
    assert payload(b"\0" * (LONG_BYTES + 1), whole=True).is_cut


def test_whole_bytes_are_a_dump_and_base64() -> None:
    found = payload(b"\x00ABC\xff", whole=True)
    assert found.text == hex_dump(b"\x00ABC\xff")
    assert found.text == "00000000  00 41 42 43 ff" + " " * 33 + "  .ABC."
    assert found.base64 == "AEFCQ/8="


SCHEMA = "schema id 7 (Confluent wire format)"


@pytest.mark.parametrize(
    ("data", "kind", "text", "schema"),
    [
        (b'\0\0\0\0\x07{"a":1}', Kind.JSON, '{\n  "a": 1\n}', SCHEMA),
        (b"\0\0\0\0\x07\x02\x06abc", Kind.BINARY, "00 00 00 00 07 02 06 61 62 63", SCHEMA),
        (b"\0\0\0\0\x07", Kind.BINARY, "00 00 00 00 07", ""),
        (b"\0\0\0\0\0\x02\x06abc", Kind.BINARY, "00 00 00 00 00 02 06 61 62 63", ""),
        (b"\0\0\x01\x9a\0\0\0\0", Kind.BINARY, "00 00 01 9a 00 00 00 00", ""),  # a time in ms
        (b"\0\xff\0\0\0\x02\x06", Kind.BINARY, "00 ff 00 00 00 02 06", ""),
        (b'\x01\0\0\0\x07{"a":1}', Kind.BINARY, "01 00 00 00 07 7b 22 61 22 3a 31 7d", ""),
    ],
)
def test_bytes_that_name_a_schema_say_so(data: bytes, kind: Kind, text: str, schema: str) -> None:
    found = payload(data)
    assert (found.kind, found.text, found.schema, found.size_bytes) == (kind, text, schema, len(data))
    assert payload(data, whole=True).schema == schema


def test_long_json_behind_a_schema_is_cut_text() -> None:
    found = payload(b"\0\0\0\0\x07[" + b"1," * 2_000 + b"1]")
    assert (found.kind, found.is_cut, found.schema) == (Kind.TEXT, True, SCHEMA)


def test_bytes_of_many_schema_ids_in_a_row_are_shown() -> None:
    found = payload(b"\0\0\0\0\x07" * 20_000)
    assert (found.kind, found.schema) == (Kind.BINARY, SCHEMA)


def test_a_defect_in_one_value_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Schemas):
        def __init__(self) -> None: ...

        def decode(self, *_: object) -> tuple[str, str]:
            raise RuntimeError("boom")

    found = payload(b"\0\0\0\0\x07ab", Broken())
    assert (found.kind, found.schema) == (
        Kind.BINARY,
        f"{SCHEMA}: unexpected error; see the log of the console",
    )
    assert "boom" in caplog.text
