"""``consume -f``: percent codes and escapes."""

from __future__ import annotations

import time

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.base.printable import quoted
from minikafka.cli.records.format import compile_format
from minikafka.records.format.compression import Codec
from minikafka.records.format.record import StoredRecord, TimestampType

TP = TopicPartition("orders", 3)
HEADERS = (("a", b"1"), ("b", None))


def record(
    key: bytes | None = b"k", value: bytes | None = b"\xffv\n", timestamp_ms: int = 1_500
) -> StoredRecord:
    return StoredRecord(
        7,
        timestamp_ms,
        TimestampType.CREATE_TIME,
        key,
        value,
        2,
        Codec.NONE,
        HEADERS,
        producer_id=5,
        producer_epoch=1,
        leader_epoch=4,
    )


def formatted(text: str, *, terminal: bool = False) -> bytes:
    return compile_format("-f", text, terminal=terminal)(TP, record())


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("%t %p %o %k %v", b"orders 3 7 k \xffv\n"),
        ("%s %K %V %S %H", b"\xffv\n 1 3 3 2"),
        ("%d %T %x %y %i", b"1500 1500 5 1 1"),
        ("%h", b"a=1,b="),
        ("%h{<%k=%v{hex}:%V>}", b"<a=31:1><b=:-1>"),
        ("%k{hex} %v{base64}", b"6b /3YK"),
        ("%d{iso} %T{strftime[%H:%M:%S]}", b"1970-01-01T00:00:01.500Z 00:00:01"),
        (r"\t\n\r\\\0\x41\xff", b"\t\n\r\\\0A\xff"),
        ("%%p %{%} é", "%p {} é".encode()),
        ("%p\udcff", b"3\xff"),
        ("%o{hex} %p{hex4} %o{hex8} %o{hex64}", b"7 3 07 0000000000000007"),
        ("%o{ascii} %o{number} %p{bool} %x{hex8}", b"7 7 true 05"),
        ("%p{big32}%p{big16}%o{byte}%o{little16}", b"\0\0\0\x03\0\x03\x07\x07\0"),
        ("%d{hex} %d{big8}", b"5dc \xdc"),
        ("%v{base64raw} %k{base64raw}", b"/3YK aw"),
        ("%K{big32}%k%H{little8}%h{%K{byte}%k}", b"\0\0\0\x01k\x02\x01a\x01b"),
        ("%a{compression} %a{compression;number} %a{timestamp-type;big8}", b"none 0 \0"),
        ("%a{transactional-bit} %a{control-bit;bool} %e", b"0 false 4"),
        ("%d{strftime[[%F]]} %d{strftime## [%F] ##}", b"1970-01-01  [1970-01-01] "),
        ("%d{go[2006-01-02T15:04:05.000Z07:00]}", b"1970-01-01T00:00:01.500Z"),
        ("%d{go#Mon Jan _2 3:04PM .999 -0700 MST#}", b"Thu Jan  1 12:00AM .5 +0000 UTC"),
        ("", b""),
    ],
)
def test_codes_and_escapes_are_those_of_rpk_and_kcat(text: str, output: bytes) -> None:
    assert formatted(text) == output


def test_seconds_since_1970_do_not_depend_on_the_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "America/New_York")
            time.tzset()
            assert formatted("%d{strftime[%s %%s %H]}") == b"1 %s 00"
    finally:
        time.tzset()


def test_null_is_empty_and_its_size_is_minus_one() -> None:
    form = compile_format("-f", "[%k|%K|%v|%V|%d]", terminal=False)
    assert form(TP, record(None, None, -1)) == b"[|-1||-1|-1]"
    assert compile_format("-f", "[%d{iso}]", terminal=False)(TP, record(timestamp_ms=-1)) == b"[]"


def test_messages_are_counted() -> None:
    form = compile_format("-f", "%i,", terminal=False)
    assert b"".join(form(TP, record()) for _ in range(3)) == b"1,2,3,"


def test_a_terminal_gets_control_characters_escaped() -> None:
    assert formatted("%v\n\\x1b", terminal=True) == rb"\xffv\n" + b"\n\x1b"
    evil = StoredRecord(0, 0, TimestampType.CREATE_TIME, b"\x1b[2J", b"", 2, Codec.NONE, (("\x1b", b"\x1b"),))
    assert compile_format("-f", "%k%h", terminal=True)(TP, evil) == rb"\x1b[2J\x1b=\x1b"


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("%", 1, "must be % and one of"),
        ("a%q", 2, "must be % and one of"),
        ("a%q", 2, "one of a d e H h i K k o p S s T t V v x y, or %%"),
        ("%{k}", 1, "must be %k; for a brace, %{ and %}"),
        (r"\q", 1, "must be an escape"),
        (r"\x4", 1, "must be an escape"),
        ("%k{", 3, "closing brace"),
        ("%k{rot13}", 1, "{hex}, {base64}, {base64raw} or {unpack[…]}"),
        ("%v{unpack[>z]}", 1, "must have in {unpack[…]} only bBhHiIqQ for integers"),
        ("%v{unpack[>I}", 1, "must end with ]}"),
        ("%o{hex7}", 1, "must have {hex}, {hex64}"),
        ("%o{iso}", 1, "must have {hex}, {hex64}"),
        ("%a", 1, "must have one of {compression}, {timestamp-type}, {transactional-bit}, {control-bit}"),
        ("%a{compression;word}", 1, "must have {hex}, {hex64}"),
        ("%a{codec}", 1, "must have one of {compression}"),
        ("%[", 1, "%[ is not supported; `minikafka topic describe` prints the start and the end"),
        ("%|%]", 1, "%| is not supported"),
        ("%d{date}", 1, "{iso}, {strftime[…]} or {go[…]}"),
        ("%d{go[[2006]}", 1, "must end with ]]}"),
        ("%d{strftime[\udcff]}", 1, "UTF-8"),
        ("%h{%t}", 4, "in the form of headers"),
    ],
)
def test_a_fault_is_told_with_its_position(text: str, position: int, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        formatted(text)
    assert str(caught.value).startswith(f"-f={quoted(text)}: at character {position}: ")
    assert why in str(caught.value)


def test_the_size_of_null_is_cut_to_the_bytes_of_its_form() -> None:
    form = compile_format("-f", "%V{big16} %V{hex}", terminal=False)
    assert form(TP, record(value=None)) == b"\xff\xff ffffffffffffffff"


def test_bytes_of_numbers_are_escaped_for_a_terminal() -> None:
    assert formatted("%o{byte}%o{hex}", terminal=True) == rb"\x077"


@pytest.mark.parametrize(("text", "whole"), [("%k%%a%d%h{%k}", False), ("%x", True), ("%e", True)])
def test_only_codes_of_attributes_need_whole_records(text: str, whole: bool) -> None:
    assert compile_format("-f", text, terminal=False).whole is whole


@pytest.mark.parametrize(
    ("layout", "output"),
    [
        ("[>q]", b"1"),
        ("[q]", b"72057594037927936"),
        ("[[>iixs$]]", b"01 "),
        ("#>HxHx<HxH$#", b"0 0 0 256"),
        ("[>iIB]", b"01<B needs 1 byte, has 0>"),
        ("[.$]", b"\0<7 bytes left>"),
        ("[]", b""),
    ],
)
def test_binary_data_is_unpacked(layout: str, output: bytes) -> None:
    form = compile_format("-f", f"%v{{unpack{layout}}}", terminal=False)
    assert form(TP, record(value=(1).to_bytes(8, "big"))) == output
