from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError
from minikafka.records.append.conversion import down_convert
from minikafka.records.format.message_set import Codec, build_message_set, iterate, wrap
from tests.oracles import messages as oracle
from tests.support.records import CODECS, some_records


@pytest.mark.parametrize("codec", CODECS)
def test_magic_1_becomes_what_would_have_been_built_as_magic_0(codec: Codec) -> None:
    records = some_records(20)
    converted = down_convert(build_message_set(records, codec=codec, base_offset=90))
    assert converted == build_message_set(records, magic=0, codec=codec, base_offset=90)


def test_a_mixture_keeps_its_order_and_its_offsets() -> None:
    parts = [
        build_message_set(some_records(2), magic=1, base_offset=0),
        build_message_set(some_records(3), magic=0, codec=Codec.GZIP, base_offset=2),
        build_message_set(some_records(4), magic=1, codec=Codec.LZ4, base_offset=5),
        build_message_set(some_records(1), magic=0, base_offset=9),
    ]
    found = list(iterate(down_convert(b"".join(parts))))
    assert [record.offset for record in found] == list(range(10))
    assert {(record.magic, record.timestamp_ms) for record in found} == {(0, -1)}


def test_the_type_of_the_timestamp_leaves_the_attributes() -> None:
    data = oracle.entry(3, magic=1, attributes=8, timestamp=50, value=b"x")
    assert down_convert(data) == oracle.entry(3, magic=0, value=b"x")


def test_gaps_inside_of_a_wrapper_are_kept() -> None:
    content = b"".join(oracle.entry(offset, magic=1, value=b"x") for offset in (1, 4))
    data = wrap(content, offset=104, magic=1, codec=Codec.GZIP, timestamp_ms=-1)
    assert [record.offset for record in iterate(down_convert(data))] == [101, 104]


@pytest.mark.parametrize("inner", [[0, -(2**63)], [-(2**63), 2**63 - 1], [3, 0, -1]])
def test_inner_offsets_beyond_64_bits_wrap_as_in_the_iterator(inner: list[int]) -> None:
    content = b"".join(oracle.entry(offset, magic=1, value=b"x") for offset in inner)
    data = wrap(content, offset=2**63 - 2, magic=1, codec=Codec.GZIP, timestamp_ms=-1)
    wanted = [oracle.wrap64(2**63 - 2 + offset - inner[-1]) for offset in inner]
    assert [record.offset for record in iterate(data)] == wanted
    assert [record.offset for record in iterate(down_convert(data))] == wanted


def test_a_cut_off_last_message_is_left_out() -> None:
    data = build_message_set(some_records(3))
    assert len(list(iterate(down_convert(data[:-1])))) == 2
    assert down_convert(data[:5]) == down_convert(b"") == b""


def test_damage_is_not_covered_by_a_new_checksum() -> None:
    data = bytearray(build_message_set(some_records(3)))
    data[-1] ^= 1
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*checksum"):
        down_convert(data)
    content = bytearray(build_message_set(some_records(2)))
    content[-1] ^= 1
    with pytest.raises(BrokerError, match=r"checksum.*inside|checksum.*content of"):
        down_convert(wrap(content, offset=1, magic=1, codec=Codec.GZIP, timestamp_ms=1))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "holds no message"),
        (oracle.entry(0, magic=1, value=b"x")[:-1], "holds no message|not complete"),
        (build_message_set(some_records(2))[:-1], "not complete"),
        (build_message_set(some_records(1), codec=Codec.GZIP), "compressed itself"),
    ],
)
def test_a_wrapper_with_wrong_content_is_an_error(content: bytes, text: str) -> None:
    with pytest.raises(BrokerError, match=text):
        down_convert(wrap(content, offset=1, magic=1, codec=Codec.SNAPPY, timestamp_ms=1))
