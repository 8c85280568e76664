from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

import minikafka
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.format.message_set import (
    Codec,
    Record,
    StoredRecord,
    TimestampType,
    build_message_set,
    iterate,
    wrap,
    wrapper_value,
)
from tests.oracles import messages as oracle
from tests.support.records import CODECS, MAGICS, row_of, some_records


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_built_set_is_read_back(magic: int, codec: Codec) -> None:
    records = [Record(None, b"", 5), Record(b"", None, 7), Record(b"k", b"v" * 100_000, 6)]
    found = list(iterate(build_message_set(records, magic=magic, codec=codec, base_offset=40)))
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE
    assert found == [
        StoredRecord(40 + i, r.timestamp_ms if magic else -1, kind, r.key, r.value, magic, codec)
        for i, r in enumerate(records)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_the_oracle_reads_what_is_built(magic: int, codec: Codec) -> None:
    data = build_message_set(some_records(30, 5000), magic=magic, codec=codec, base_offset=3)
    found = [(m.offset, m.timestamp, m.timestamp_type, m.key, m.value) for m in oracle.decode(data)]
    assert found == [row_of(record) for record in iterate(data)]


def test_no_records_make_no_bytes() -> None:
    assert build_message_set([], codec=Codec.GZIP) == b""
    assert list(iterate(b"")) == []


def test_wrapper_has_last_offset_and_largest_timestamp() -> None:
    records = [Record(None, b"a", 9), Record(None, b"b", 30), Record(None, b"c", 7)]
    (wrapper,) = iterate(build_message_set(records, codec=Codec.GZIP, base_offset=10), deep=False)
    assert (wrapper.offset, wrapper.timestamp_ms, wrapper.codec) == (12, 30, Codec.GZIP)


def test_inner_offsets_are_absolute_in_magic_0_only() -> None:
    records = some_records(3)
    inner = {}
    for magic in MAGICS:
        data = build_message_set(records, magic=magic, codec=Codec.GZIP, base_offset=70)
        (wrapper,) = iterate(data, deep=False)
        assert wrapper.value is not None
        inner[magic] = [record.offset for record in iterate(gzip.decompress(wrapper.value))]
    assert inner == {0: [70, 71, 72], 1: [0, 1, 2]}


def test_gaps_that_compaction_left_in_a_wrapper_are_kept() -> None:
    content = b"".join(oracle.entry(offset, magic=1, value=b"x", timestamp=1) for offset in (0, 3, 9))
    data = wrap(content, offset=109, magic=1, codec=Codec.GZIP, timestamp_ms=1)
    assert [record.offset for record in iterate(data)] == [100, 103, 109]


def test_append_time_of_wrapper_applies_to_every_message() -> None:
    content = build_message_set(some_records(3))
    data = wrap(
        content,
        offset=2,
        magic=1,
        codec=Codec.SNAPPY,
        timestamp_ms=77,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    found = list(iterate(data))
    assert [record.timestamp_ms for record in found] == [77, 77, 77]
    assert {record.timestamp_type for record in found} == {TimestampType.LOG_APPEND_TIME}


@pytest.mark.parametrize("cut", [1, 5, 11, 12, 13, 20, 33])
def test_a_cut_off_last_message_ends_the_iteration(cut: int) -> None:
    whole = build_message_set(some_records(2, 20))
    last = oracle.entry(2, magic=1, value=b"x" * 30)
    assert len(list(iterate(whole + last[:cut]))) == 2


def damaged(at: int, new: bytes) -> bytes:
    first = oracle.entry(0, magic=1, value=b"first")
    second = bytearray(oracle.entry(1, magic=1, key=b"key", value=b"value"))
    second[at : at + len(new)] = new
    return first + bytes(second)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (damaged(8, b"\xff\xff\xff\xff"), "size field"),
        (damaged(8, b"\x00\x00\x00\x0d"), "size field"),
        (damaged(12, b"\x00"), "checksum"),
        (damaged(30, b"\x00"), "checksum"),
        (oracle.repaired(damaged(16, b"\x07")), "magic byte"),
        (oracle.repaired(damaged(17, b"\x04")), "codec"),
        (oracle.repaired(damaged(26, b"\x7f\xff\xff\xff")), "key's length"),
        (oracle.repaired(damaged(26, b"\xff\xff\xff\xfe")), "key's length"),
        (oracle.repaired(damaged(33, b"\x00\x00\x00\x06")), "value's length"),
        (oracle.repaired(damaged(33, b"\x00\x00\x00\x04")), "value's length"),
        (oracle.repaired(damaged(33, b"\x80\x00\x00\x00")), "value's length"),
    ],
)
def test_damage_is_reported_with_position_after_good_messages(data: bytes, text: str) -> None:
    found = iterate(data)
    assert next(found).value == b"first"
    with pytest.raises(BrokerError, match=f"{text}.*position 39") as raised:
        next(found)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def wrapper_of(content: bytes | None, magic: int = 1, codec: Codec = Codec.GZIP) -> bytes:
    if content is None:
        return oracle.entry(0, magic=magic, attributes=int(codec))
    return wrap(content, offset=5, magic=magic, codec=codec, timestamp_ms=1)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (wrapper_of(None), "no value"),
        (wrapper_of(b""), "holds no message"),
        (oracle.entry(0, magic=1, attributes=2, value=b"not snappy"), "snappy content"),
        (wrapper_of(oracle.entry(0, magic=0, value=b"x")), "different magic"),
        (wrapper_of(wrapper_of(oracle.entry(0, magic=1, value=b"x"))), "compressed itself"),
        (wrapper_of(oracle.entry(0, magic=1, value=b"x")[:-1]), "not complete"),
        (wrapper_of(oracle.entry(0, magic=1, value=b"x") + b"12345"), "not complete"),
        (wrapper_of(oracle.entry(0, magic=1, value=b"x")[:-1] + b"y"), "checksum"),
        (wrapper_of(bytes(26)), "size field"),
    ],
)
def test_damage_in_a_wrapper_is_reported_with_its_position(data: bytes, text: str) -> None:
    first = oracle.entry(0, magic=1, value=b"x")
    with pytest.raises(BrokerError, match=f"CORRUPT_MESSAGE: .*{text}.*position {len(first)}"):
        list(iterate(first + data))


@pytest.mark.process
def test_the_broker_side_imports_neither_pyarrow_nor_numba() -> None:
    code = (
        "import sys, minikafka.records.append.conversion, minikafka.records.append.validation, "
        "minikafka.records.format.message_set, minikafka.records.scan.scan; "
        "print([m for m in ('pyarrow', 'numba') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(minikafka.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("number", [4, 5, 7])
def test_a_wrapper_of_an_unknown_codec_is_damage(number: int) -> None:
    data = bytearray(build_message_set([Record(None, b"value", 1)], codec=Codec.GZIP))
    data[17] = number
    with pytest.raises(BrokerError, match="CORRUPT_MESSAGE: unknown codec in the attributes"):
        wrapper_value(memoryview(data), 0)
