"""The limit on memory of large responses that peers do not read."""

from __future__ import annotations

import contextlib

import pytest

from minikafka.net import server_options
from minikafka.net.request_limiter import FREE_BYTES
from minikafka.net.response_memory import STALL_BYTES, LargeResponse, ResponseMemory
from tests.support.network import Answering, Keeping, eventually
from tests.support.plain_sockets import framed, is_closed, plain, read_frame
from tests.unit.net.test_request_limiter import Serve

LARGE = 8 << 20
"""More than the buffers of a connection hold."""
BUFFER = 65_536


MB = 1 << 20


def begin(unsent: ResponseMemory, size: int, *shared: bytes) -> LargeResponse:
    response = unsent.begin(size, shared)
    assert response is not None
    return response


def test_room_is_for_all_but_the_largest_together_and_comes_back() -> None:
    unsent = ResponseMemory(100 * MB)
    begin(unsent, 500 * MB)
    first = begin(unsent, 60 * MB)
    begin(unsent, 40 * MB)
    assert unsent.begin(MB) is None
    first.end()
    first.end()
    assert unsent.begin(61 * MB) is None
    assert unsent.begin(60 * MB) is not None


def test_shared_pieces_are_counted_once() -> None:
    unsent = ResponseMemory(10 * MB)
    body = bytes(4 * MB)
    sent = [begin(unsent, len(body) + 10, body) for _ in range(1_000)]
    assert unsent._used_bytes == 4 * MB + 10_000
    for response in sent[1:]:
        response.end()
    assert unsent._used_bytes == 4 * MB + 10
    sent[0].end()
    assert unsent._used_bytes == 0


def test_response_of_shared_pieces_is_never_refused() -> None:
    unsent = ResponseMemory(10 * MB)
    body = bytes(4 * MB)
    begin(unsent, len(body) + 10, body)
    begin(unsent, 50 * MB)
    assert unsent.begin(7 * MB) is None
    begin(unsent, 6 * MB - 10)
    assert unsent.begin(MB) is None
    begin(unsent, len(body) + 10, body)


def test_peer_that_reads_enough_between_checks_is_not_stalled() -> None:
    unsent = ResponseMemory(MB)
    slow, fast = begin(unsent, 500_000), begin(unsent, 500_000)
    assert (slow.is_stalled(), fast.is_stalled()) == (False, False)  # the first look
    slow.sent(STALL_BYTES - 1)
    fast.sent(STALL_BYTES)
    assert (slow.is_stalled(), fast.is_stalled()) == (True, False)


def test_a_very_large_response_must_be_taken_faster() -> None:
    unsent = ResponseMemory(100 * MB)
    slow, fast = begin(unsent, 60 * MB), begin(unsent, 60 * MB)
    looks = []
    for _ in range(10):
        looks.append((slow.is_stalled(), fast.is_stalled()))
        slow.sent(MB // 2)
        fast.sent(MB)
    assert looks == [(False, False)] * 5 + [(True, False)] * 5


def test_no_peer_is_stalled_while_there_is_room() -> None:
    unsent = ResponseMemory(MB)
    slow, other = begin(unsent, 400_000), begin(unsent, 500_000)
    slow.is_stalled()
    other.end()
    assert not slow.is_stalled()
    begin(unsent, 500_000)
    assert not slow.is_stalled()  # the first look since it is scarce
    assert slow.is_stalled()


def test_peer_that_does_not_read_is_closed_when_memory_is_scarce(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_options, "STALL_MS", 30)
    big = bytes(LARGE)
    server = serve(Answering(lambda frame: [big]), unsent_bytes=LARGE, send_buffer_bytes=BUFFER)
    with plain(server, receive_buffer=BUFFER) as sock:
        sock.sendall(framed(b"?"))
        eventually(lambda: "too little of its response in" in caplog.text, "it is cut off")


def test_response_without_room_ends_only_its_connection(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {b"large": bytearray(LARGE), b"medium": bytes(2 * FREE_BYTES), b"small": b"small"}
    server = serve(
        Answering(lambda frame: [answers[frame]]), unsent_bytes=LARGE + FREE_BYTES, send_buffer_bytes=BUFFER
    )
    with (
        plain(server, receive_buffer=BUFFER) as largest,
        plain(server, receive_buffer=BUFFER) as holder,
        plain(server) as refused,
        plain(server) as other,
    ):
        for sock in (largest, holder):
            sock.sendall(framed(b"large"))
        eventually(lambda: server._response_memory._used_bytes > 2 * LARGE, "they are being sent")
        refused.sendall(framed(b"medium"))
        assert is_closed(refused)
        assert "no memory for its response" in caplog.text
        other.sendall(framed(b"small"))
        assert read_frame(other) == b"small"
        assert len(read_frame(holder)) == len(read_frame(largest)) == LARGE
        eventually(lambda: not server._response_memory._used_bytes, "all is taken")
        other.sendall(framed(b"medium"))
        assert len(read_frame(other)) == 2 * FREE_BYTES


def test_responses_of_shared_data_do_not_exclude_each_other(serve: Serve) -> None:
    body = bytes(LARGE)
    server = serve(Answering(lambda frame: [body]), unsent_bytes=LARGE + FREE_BYTES, send_buffer_bytes=BUFFER)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(plain(server, receive_buffer=BUFFER)) for _ in range(4)]
        for sock in socks:
            sock.sendall(framed(b"?"))
        eventually(lambda: sum(server._response_memory._holders.values()) == len(socks), "all are being sent")
        assert [len(read_frame(sock)) for sock in socks] == [LARGE] * len(socks)


def test_a_connection_that_breaks_gives_its_room_back(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler, unsent_bytes=LARGE, send_buffer_bytes=BUFFER)
    with plain(server, receive_buffer=BUFFER) as sock:
        sock.sendall(framed(b"?"))
        eventually(lambda: handler.exchanges, "it is read")
        handler.exchanges[0].respond([bytes(LARGE)])
        eventually(lambda: server._response_memory._used_bytes, "it is being sent")
    eventually(lambda: not server._response_memory._used_bytes, "it is let go")
