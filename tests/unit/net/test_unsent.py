"""Large responses that their peers do not take."""

from __future__ import annotations

import pytest

from minikafka.net import processor
from minikafka.net.backlog import FREE_BYTES
from minikafka.net.unsent import STALL_BYTES, Unsent
from tests.unit.net.support import Answering, Keeping, eventually
from tests.unit.net.test_backlog import Serve
from tests.unit.net.test_server import framed, gone, plain, read_frame

LARGE = 8 << 20
"""More than the buffers of a connection take."""
BUFFER = 65_536


def test_room_is_for_all_together_and_comes_back() -> None:
    unsent = Unsent(100)
    first, second = unsent.begin(60), unsent.begin(40)
    assert first is not None
    assert second is not None
    assert unsent.begin(1) is None
    first.end()
    first.end()
    assert unsent.begin(61) is None
    assert unsent.begin(60) is not None


def test_a_response_alone_may_be_of_any_size() -> None:
    unsent = Unsent(100)
    assert unsent.begin(1_000) is not None
    assert unsent.begin(1) is None


def test_who_takes_enough_between_two_looks_does_not_stall() -> None:
    unsent = Unsent(100)
    slow, fast = unsent.begin(50), unsent.begin(50)
    assert slow is not None
    assert fast is not None
    assert (slow.stalls(), fast.stalls()) == (False, False)  # the first look
    slow.took(STALL_BYTES - 1)
    fast.took(STALL_BYTES)
    assert (slow.stalls(), fast.stalls()) == (True, False)


def test_nobody_stalls_while_there_is_room() -> None:
    unsent = Unsent(100)
    slow, other = unsent.begin(40), unsent.begin(50)
    assert slow is not None
    assert other is not None
    slow.stalls()
    other.end()
    assert not slow.stalls()
    assert unsent.begin(50) is not None
    assert not slow.stalls()  # the first look since it is scarce
    assert slow.stalls()


def test_who_does_not_read_is_cut_off_where_memory_is_scarce(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "STALL_MS", 30)
    big = bytes(LARGE)
    server = serve(Answering(lambda frame: [big]), unsent_bytes=LARGE, send_buffer_bytes=BUFFER)
    with plain(server, receive_buffer=BUFFER) as sock:
        sock.sendall(framed(b"?"))
        eventually(lambda: "of its response in" in caplog.text, "it is cut off")


def test_a_response_for_which_there_is_no_room_ends_its_connection_only(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {b"large": bytes(LARGE), b"medium": bytes(2 * FREE_BYTES), b"small": b"small"}
    server = serve(
        Answering(lambda frame: [answers[frame]]), unsent_bytes=LARGE + FREE_BYTES, send_buffer_bytes=BUFFER
    )
    with (
        plain(server, receive_buffer=BUFFER) as holder,
        plain(server) as refused,
        plain(server) as other,
    ):
        holder.sendall(framed(b"large"))
        eventually(lambda: server._unsent._used_bytes, "it is being sent")
        refused.sendall(framed(b"medium"))
        assert gone(refused)
        assert "no room for its response" in caplog.text
        other.sendall(framed(b"small"))
        assert read_frame(other) == b"small"
        assert len(read_frame(holder)) == LARGE
        eventually(lambda: not server._unsent._used_bytes, "all is taken")
        other.sendall(framed(b"medium"))
        assert len(read_frame(other)) == 2 * FREE_BYTES


def test_a_connection_that_breaks_gives_its_room_back(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler, unsent_bytes=LARGE, send_buffer_bytes=BUFFER)
    with plain(server, receive_buffer=BUFFER) as sock:
        sock.sendall(framed(b"?"))
        eventually(lambda: handler.exchanges, "it is read")
        handler.exchanges[0].respond([bytes(LARGE)])
        eventually(lambda: server._unsent._used_bytes, "it is being sent")
    eventually(lambda: not server._unsent._used_bytes, "it is let go")
