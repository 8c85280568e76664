"""The texts' compact protocol: every message as its bytes, written by hand from the published layout."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import ErrorCode, LocalWireError, RemoteWireError
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire import classic
from minikafka.wire.classic import Fetch, MessageSetSend, MultiFetch, MultiProduce, Offsets, Produce, Request
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import encode_frame

TOPIC = "0001 74"
"""The topic ``t``."""

REQUESTS: list[tuple[str, Request, str]] = [
    ("produce", Produce("t", 2, b"\xaa\xbb\xcc"), f"00000010  0000  {TOPIC} 00000002 00000003 aabbcc"),
    (
        "produce nothing to any partition",
        Produce("t", classic.ANY_PARTITION, b""),
        f"0000000d  0000  {TOPIC} ffffffff 00000000",
    ),
    ("fetch", Fetch("t", 1, 258, 4096), f"00000015  0001  {TOPIC} 00000001 0000000000000102 00001000"),
    (
        "multi-fetch",
        MultiFetch((Fetch("t", 0, 0, 100), Fetch("tt", 1, 5, 200))),
        f"""0000002b  0002  0002
            {TOPIC} 00000000 0000000000000000 00000064
            0002 7474 00000001 0000000000000005 000000c8""",
    ),
    ("multi-fetch of nothing", MultiFetch(()), "00000004  0002  0000"),
    (
        "multi-produce",
        MultiProduce((Produce("t", 0, b"\x01"), Produce("t", 1, b""))),
        f"0000001b  0003  0002  {TOPIC} 00000000 00000001 01  {TOPIC} 00000001 00000000",
    ),
    (
        "offsets",
        Offsets("t", 0, classic.EARLIEST, 10),
        f"00000015  0004  {TOPIC} 00000000 fffffffffffffffe 0000000a",
    ),
]

MESSAGE = """0000000000000007 00000016  05ef4d79 01 00 0000000000000001 ffffffff 00000000"""
"""One entry as on the disk: offset 7, size 22, checksum, magic 1, no codec, time 1, no key, empty value."""


def unhex(text: str) -> bytes:
    return bytes.fromhex(text)


@pytest.mark.parametrize(
    ("request_", "text"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS]
)
def test_request_encodes_to_and_decodes_from_stated_bytes(request_: Request, text: str) -> None:
    frame = unhex(text)
    assert join(encode_frame(classic.encode_request(request_))) == frame
    assert classic.decode_request(frame[4:]) == request_


def test_message_set_send_length_counts_code_and_messages() -> None:
    entry = unhex(MESSAGE)
    assert entry == build_message_set([Record(None, b"", 1)], base_offset=7)
    frame = unhex("00000024 0000" + MESSAGE)
    assert join(encode_frame(classic.encode_message_set_send(MessageSetSend(0, entry)))) == frame
    assert classic.decode_message_set_send(frame[4:]) == MessageSetSend(0, memoryview(entry))


def test_with_an_error_there_are_no_messages() -> None:
    frame = unhex("00000002 0001")
    assert join(encode_frame(classic.encode_message_set_send(MessageSetSend(1, b"")))) == frame
    found = classic.decode_message_set_send(frame[4:])
    assert (found.error_code, bytes(found.messages)) == (1, b"")  # type: ignore[arg-type]


def test_multi_message_set_send_length_counts_set_lengths() -> None:
    answers = [MessageSetSend(0, unhex(MESSAGE)), MessageSetSend(3, b""), MessageSetSend(0, b"\x00\x00")]
    # 2 + (4 + 2 + 34) + (4 + 2) + (4 + 2 + 2); the last set is a piece of a message.
    frame = unhex(f"00000038 0000  00000024 0000 {MESSAGE}  00000002 0003  00000004 0000 0000")
    assert join(encode_frame(classic.encode_multi_message_set_send(answers))) == frame
    code, found = classic.decode_multi_message_set_send(frame[4:])
    assert code == 0
    assert [(send.error_code, bytes(send.messages)) for send in found] == [  # type: ignore[arg-type]
        (send.error_code, send.messages) for send in answers
    ]


def test_offsets_are_counted_and_come_with_the_latest_first() -> None:
    frame = unhex("00000016 0000 00000002 0000000000000064 0000000000000000")
    assert join(encode_frame(classic.encode_offsets(0, [100, 0]))) == frame
    assert classic.decode_offsets(frame[4:]) == (0, [100, 0])
    assert join(classic.encode_offsets(3, [])) == unhex("0003 00000000")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "need 2 bytes"),
        ("0005", "unknown classic request 5"),
        ("ffff", "unknown classic request -1"),
        (f"0000 {TOPIC} 00000000 ffffffff", "messages have a size of -1"),
        (f"0000 {TOPIC} 00000000 00000002 01", "a length of 2"),
        ("0000 ffff 00000000 00000000", "is null"),
        ("0000 0001 ff 00000000 00000000", "not UTF-8"),
        ("0002 ffff", "invalid count of -1 requests"),
        ("0002 7fff", "need 2 bytes"),
        (f"0001 {TOPIC} 00000000 0000000000000000 00000000 00", "1 unexpected bytes"),
    ],
)
def test_invalid_request_is_the_peers_fault(text: str, complaint: str) -> None:
    with pytest.raises(RemoteWireError, match=complaint):
        classic.decode_request(unhex(text))


@pytest.mark.parametrize("text", [row[2] for row in REQUESTS], ids=[row[0] for row in REQUESTS])
def test_a_request_cut_at_any_byte_is_the_peers_fault(text: str) -> None:
    frame = unhex(text)[4:]
    for end in range(len(frame)):
        with pytest.raises(RemoteWireError):
            classic.decode_request(frame[:end])


@pytest.mark.parametrize(
    ("decode", "text"),
    [
        (classic.decode_message_set_send, "00"),
        (classic.decode_multi_message_set_send, "0000 ffffffff"),
        (classic.decode_multi_message_set_send, "0000 00000001 00"),
        (classic.decode_offsets, "0000 00000002 0000000000000064"),
        (classic.decode_offsets, "0000 ffffffff"),
    ],
)
def test_invalid_response_is_the_peers_fault(decode: Any, text: str) -> None:
    with pytest.raises(RemoteWireError):
        decode(unhex(text))


def test_value_that_does_not_fit_is_our_fault() -> None:
    with pytest.raises(LocalWireError):
        classic.encode_request(Fetch("t", 1 << 31, 0, 0))
    with pytest.raises(LocalWireError):
        classic.encode_request(MultiFetch((Fetch("t", 0, 0, 0),) * 32768))


def test_errors_of_today_have_codes_of_then() -> None:
    today = [
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_FETCH_SIZE,
    ]
    assert [classic.code_of(error) for error in today] == [0, 1, 2, 3, 4]
    assert [classic.error_of(code) for code in range(5)] == today
    assert classic.code_of(ErrorCode.NOT_LEADER_FOR_PARTITION) == 3
    assert classic.code_of(ErrorCode.KAFKA_STORAGE_ERROR) == -1
    assert classic.error_of(-1) is ErrorCode.UNKNOWN


topics = st.text(max_size=20)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
produces = st.builds(Produce, topics, int32s, st.binary(max_size=50))
fetches = st.builds(Fetch, topics, int32s, int64s, int32s)
requests = st.one_of(
    produces,
    fetches,
    st.builds(MultiFetch, st.lists(fetches, max_size=5).map(tuple)),
    st.builds(MultiProduce, st.lists(produces, max_size=5).map(tuple)),
    st.builds(Offsets, topics, int32s, int64s, int32s),
)


@given(requests)
def test_any_request_survives_its_bytes(request_: Request) -> None:
    assert classic.decode_request(join(classic.encode_request(request_))) == request_


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_the_peers_fault(noise: bytes) -> None:
    try:
        request = classic.decode_request(noise)
    except RemoteWireError:
        return
    assert join(classic.encode_request(request)) == noise
