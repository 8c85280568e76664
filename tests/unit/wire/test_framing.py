"""Frames and headers: each stream is fed whole, byte by byte and in every two pieces."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.wire.codegen import varint
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import (
    FIRST_ALLOCATION,
    MAX_HEADER_FIELDS,
    FrameReader,
    RequestHeader,
    encode_frame,
    response_header,
    split_response,
)

STREAM = bytes.fromhex("00000003 616263 00000000 00000001 7a")
FRAMES = [b"abc", b"", b"z"]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_frames_are_the_same_wherever_the_stream_is_cut(cut: int) -> None:
    reader = FrameReader(10)
    assert reader.feed(STREAM[:cut]) + reader.feed(STREAM[cut:]) == FRAMES
    assert not reader.inside_frame


def test_frames_are_the_same_byte_by_byte() -> None:
    reader = FrameReader(10)
    frames = []
    for byte in STREAM:
        frames += reader.feed(bytes([byte]))
    assert frames == FRAMES


def test_the_end_of_a_stream_is_a_loss_only_inside_a_frame() -> None:
    reader = FrameReader()
    assert not reader.inside_frame
    for size in (1, 4, 6):
        reader = FrameReader()
        reader.feed(STREAM[:size])
        assert reader.inside_frame
    reader.feed(STREAM[6:7])
    assert not reader.inside_frame


def test_a_frame_is_writable_and_its_own() -> None:
    reader = FrameReader()
    one, _, other = reader.feed(STREAM)
    one[0] = 0
    assert (bytes(one), bytes(other)) == (b"\0bc", b"z")


def test_a_large_frame_arrives_exact_through_all_growth() -> None:
    data = bytes(range(256)) * 5000
    reader = FrameReader()
    stream = join(encode_frame([data, b"end"]))
    frames = []
    for start in range(0, len(stream), 7001):
        frames += reader.feed(stream[start : start + 7001])
    assert frames == [data + b"end"]


@pytest.mark.parametrize(
    ("size", "shown", "hint"),
    [
        (b"\x00\x00\x00\x0b", "11", "$"),
        (b"\xff\xff\xff\xff", "-1", "$"),
        (b"GET ", "1195725856", "; these bytes are HTTP"),
        (b"\x16\x03\x01\x02", "369295618", "; these bytes are TLS: .* security.protocol$"),
        (b"\x15\x03\x03\x00", "352518912", "; these bytes are TLS"),
    ],
)
def test_invalid_length_is_refused_before_its_frame(size: bytes, shown: str, hint: str) -> None:
    with pytest.raises(RemoteWireError, match=f"invalid frame length {shown}: expected 0 to 10{hint}"):
        FrameReader(10).feed(size)


def test_the_limit_itself_is_allowed() -> None:
    assert FrameReader(10).feed(b"\0\0\0\x0a" + bytes(10)) == [bytes(10)]


def test_large_frame_uses_memory_only_for_received_pages() -> None:
    size = 1 << 30
    reader = FrameReader(size)
    reader.feed(size.to_bytes(4, "big") + bytes(2 << 20))
    assert reader.space().nbytes == size - (2 << 20)
    assert reader.received_bytes == 2 << 20


def test_memory_grows_with_received_not_announced_bytes() -> None:
    tracemalloc.start()
    try:
        reader = FrameReader(1 << 30)
        reader.feed((1 << 30).to_bytes(4, "big"))
        assert tracemalloc.get_traced_memory()[0] < FIRST_ALLOCATION + 20_000
        reader.feed(bytes(300_000))
        assert tracemalloc.get_traced_memory()[0] < 4 * 300_000 + 20_000
    finally:
        tracemalloc.stop()


def test_the_offered_space_ends_with_the_frame() -> None:
    reader = FrameReader()
    assert len(reader.space()) == 4
    reader.feed(b"\0\0\0\x09ab")
    assert len(reader.space()) == 7


def test_a_request_header_round_trips_and_leaves_the_body() -> None:
    for client_id in (None, "", "räksmörgås"):
        header = RequestHeader(18, 3, -7, client_id)
        decoded, body = RequestHeader.decode(bytes(header.encode()) + b"body")
        assert (decoded, bytes(body)) == (header, b"body")


@pytest.mark.parametrize("frame", [b"", bytes(7), bytes(8), bytes(9), bytes(9) + b"\x05abcd"])
def test_a_frame_that_ends_inside_its_header_is_refused(frame: bytes) -> None:
    with pytest.raises(RemoteWireError, match=r"RequestHeader.*message (has|of) \d"):
        RequestHeader.decode(frame)


@pytest.mark.parametrize(
    "header",
    [
        RequestHeader(1 << 15, 0, 0, None),
        RequestHeader(0, 0, 1 << 31, None),
        RequestHeader(0, 0, 0, "\ud800"),
    ],
)
def test_a_header_that_does_not_fit_is_our_fault(header: RequestHeader) -> None:
    with pytest.raises(
        LocalWireError, match=r"RequestHeader\.(api_key|correlation_id|client_id) .* is not a value of type"
    ):
        header.encode()


def test_a_response_is_its_correlation_id_and_a_body() -> None:
    frame: Buffer = response_header(-2) + b"rest"
    correlation_id, body = split_response(frame)
    assert (correlation_id, bytes(body)) == (-2, b"rest")
    with pytest.raises(RemoteWireError):
        split_response(b"abc")
    with pytest.raises(LocalWireError):
        response_header(1 << 31)


def test_a_frame_beyond_two_gigabytes_is_our_fault() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    with pytest.raises(LocalWireError, match="2147483648 bytes"):
        encode_frame([Huge()])


def test_header_of_a_flexible_version_ends_with_tagged_fields() -> None:
    for client_id, shown in ((None, "ffff"), ("ab", "00026162")):
        header = RequestHeader(18, 3, 7, client_id)
        data = bytes.fromhex("0012 0003 00000007" + shown)
        assert header.encode() == data + b"\0"
        for fields in (b"\0", b"\1\x05\2xy"):
            decoded, body = RequestHeader.decode(data + fields + b"body")
            assert (decoded, bytes(body)) == (header, b"body")


def test_header_of_an_api_without_flexible_versions_has_none() -> None:
    for key in (17, 999):
        assert RequestHeader(key, 99, 7, None).encode() == struct.pack(">hhih", key, 99, 7, -1)


def test_response_header_may_have_tagged_fields() -> None:
    assert response_header(1, flexible=True) == bytes.fromhex("00000001 00")
    for fields in ("00", "01 05 02 7879"):
        frame = bytes.fromhex("00000001" + fields) + b"body"
        correlation_id, body = split_response(frame, flexible=True)
        assert (correlation_id, bytes(body)) == (1, b"body")
    for wrong in ("00000001", "00000001 01", "00000001 02 05 00"):
        with pytest.raises(RemoteWireError):
            split_response(bytes.fromhex(wrong), flexible=True)


def test_the_tagged_fields_of_a_header_have_a_limit() -> None:
    head, count = bytes.fromhex("0012 0003 00000007 ffff"), MAX_HEADER_FIELDS + 1
    many = varint(count) + b"\x63\0" * count
    with pytest.raises(RemoteWireError, match="tagged fields"):
        RequestHeader.decode(head + many)
    with pytest.raises(RemoteWireError, match="tagged fields"):
        split_response(bytes(4) + many, flexible=True)
