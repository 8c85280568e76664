"""The server against peers that are slow, misbehave or disconnect: hand-made bytes in real sockets."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ConfigError, NetworkError
from minikafka.base.files import FileSlice, RealFiles
from minikafka.net import network_send
from minikafka.net.connection import connect
from minikafka.net.connection_quotas import ConnectionLimits
from minikafka.net.interfaces import Endpoint, Exchange
from minikafka.net.processor import ROUNDS
from minikafka.net.server import SocketServer
from tests.support.network import HOST, PATIENCE_SECONDS, Answering, Keeping, eventually, run_processors
from tests.support.plain_sockets import exactly, framed, is_closed, plain, read_frame
from tests.unit.net.test_network_send import Made

Serve = Callable[..., SocketServer]


def test_a_request_may_come_one_byte_at_a_time(serve: Serve) -> None:
    with plain(serve(Answering())) as sock:
        for byte in framed(b"hello", b"again"):
            sock.sendall(bytes([byte]))
        assert [read_frame(sock), read_frame(sock)] == [b"hello", b"again"]


def test_threads_that_wait_become_more_idle(serve: Serve) -> None:
    server = serve(Answering())
    began_s, before = time.perf_counter(), server.idle_seconds()
    eventually(lambda: all(server.idle_seconds()[name] > idle for name, idle in before.items()), "they do")
    after, most_s = server.idle_seconds(), time.perf_counter() - began_s
    assert all(after[name] - idle <= most_s for name, idle in before.items())


def test_many_requests_may_come_in_one_piece(serve: Serve) -> None:
    frames = [str(number).encode() * number for number in range(200)]
    with plain(serve(Answering())) as sock:
        sock.sendall(framed(*frames))
        assert [read_frame(sock) for _ in frames] == frames


def test_a_large_request_arrives_exact(serve: Serve) -> None:
    body = os.urandom(1 << 20) * 3
    handler = Answering(lambda frame: [b"ok"])
    with plain(serve(handler)) as sock:
        sock.sendall(framed(body))
        assert read_frame(sock) == b"ok"
    assert handler.seen == [body]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", -1), "invalid frame length -1"),
        (struct.pack(">i", 1001), "invalid frame length 1001: expected 0 to 1000"),
        (b"GET / HTTP/1.1\r\n\r\n", "invalid frame length 1195725856"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "invalid frame length 369295618"),
    ],
    ids=["negative", "oversized", "http", "tls"],
)
def test_invalid_frame_closes_only_its_connection(
    serve: Serve, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    server = serve(Answering(), max_request_bytes=1000)
    with plain(server) as other, plain(server) as sock:
        host, port = sock.getsockname()
        sock.sendall(data)
        assert is_closed(sock)
        other.sendall(framed(b"fine"))
        assert read_frame(other) == b"fine"
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage().startswith(f"connection from {host}:{port} closed: {reason}")


def test_a_peer_that_leaves_in_the_middle_of_a_request_is_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with plain(serve(Answering())) as sock:
        sock.sendall(framed(b"hello")[:6])
    eventually(lambda: "disconnected in the middle of a request" in caplog.text, "it is logged")


def test_reset_connection_does_not_disturb_others(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = serve(Answering())
    with plain(server) as other:
        with plain(server) as sock:
            sock.sendall(b"\0")
            run_processors(server)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: "reset" in caplog.text, "it is logged")
        other.sendall(framed(b"fine"))
        assert read_frame(other) == b"fine"
    assert all(record.levelno < logging.WARNING for record in caplog.records)


def test_reset_while_a_request_waits_frees_the_connection(handler: Keeping, serve: Serve) -> None:
    server = serve(handler, limits=ConnectionLimits(total=1))
    with plain(server) as sock:
        sock.sendall(framed(b"?"))
        eventually(lambda: handler.exchanges, "the request has come")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: not server._processors[0]._channels, "the place is free")
    handler.exchanges[0].respond([b"no peer is there"])
    with plain(server) as other:
        other.sendall(framed(b"next"))
        eventually(lambda: len(handler.exchanges) == 2, "another connection is served")


def test_a_peer_that_has_closed_its_side_still_gets_its_response(handler: Keeping, serve: Serve) -> None:
    server = serve(handler)
    with plain(server) as sock:
        sock.sendall(framed(b"?"))
        sock.shutdown(socket.SHUT_WR)
        eventually(lambda: handler.exchanges, "the request has come")
        run_processors(server)
        handler.exchanges[0].respond([b"answer"])
        assert read_frame(sock) == b"answer"
        assert is_closed(sock)


def test_a_slow_reader_does_not_hold_up_the_others(serve: Serve) -> None:
    big = bytes(8 << 20)
    server = serve(Answering(lambda frame: [big] if frame == b"big" else [frame]), send_buffer_bytes=65536)
    with plain(server, receive_buffer=65536) as slow, plain(server) as quick:
        slow.sendall(framed(b"big"))
        for number in range(50):
            quick.sendall(framed(b"%d" % number))
            assert read_frame(quick) == b"%d" % number
        assert read_frame(slow) == big


@pytest.mark.parametrize("way", ["sendfile", "no sendfile", "sendfile refuses"])
def test_fifty_megabytes_of_a_file_arrive_exact(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "no sendfile":
        monkeypatch.setattr(network_send, "HAS_SENDFILE", False)
    elif way == "sendfile refuses":

        def refuse(*_: Any) -> int:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr(os, "sendfile", refuse)
    elif not network_send.HAS_SENDFILE:
        pytest.skip("this system has no sendfile")
    pattern = os.urandom(1 << 20)
    file = RealFiles().open(str(tmp_path / "segment"), create=True)
    try:
        for number in range(51):
            file.write_at(number * len(pattern), pattern)
        piece = FileSlice(file, 1000, 50 << 20)
        with plain(serve(Answering(lambda frame: [b"head", piece, b"tail"]))) as sock:
            sock.sendall(framed(b"?"))
            assert struct.unpack(">i", exactly(sock, 4)) == (piece.length + 8,)
            assert exactly(sock, 4) == b"head"
            turned = pattern[1000:] + pattern[:1000]
            for _ in range(50):
                assert exactly(sock, len(turned)) == turned
            assert exactly(sock, 4) == b"tail"
    finally:
        file.close()


def test_a_response_may_come_from_another_thread(serve: Serve) -> None:
    class Elsewhere:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            answers.append((threading.current_thread().name, exchange))
            threading.Thread(target=exchange.respond, args=([b"from afar"],)).start()

    answers: list[tuple[str, Exchange]] = []
    with plain(serve(Elsewhere())) as sock:
        for _ in range(20):
            sock.sendall(framed(b"?"))
            assert read_frame(sock) == b"from afar"
    assert {name for name, _ in answers} == {f"net-processor-{answers_port(answers)}-0"}


def answers_port(answers: list[tuple[str, Exchange]]) -> str:
    return answers[0][0].split("-")[2]


def test_handler_may_answer_another_connection_of_its_thread(serve: Serve) -> None:
    class Releasing(Keeping):
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            if bytes(frame) == b"wait":
                super().on_request(exchange, frame)
                return
            for waiting in self.exchanges:
                waiting.respond([b"released"])
            exchange.respond([b"done"])

    handler = Releasing()
    server = serve(handler)
    with plain(server) as waiting, plain(server) as other:
        waiting.sendall(framed(b"wait", b"again"))
        eventually(lambda: handler.exchanges, "the first request has come")
        run_processors(server)
        other.sendall(framed(b"go"))
        assert read_frame(other) == b"done"
        assert read_frame(waiting) == b"released"


def test_peer_that_sends_ahead_gets_no_larger_share(serve: Serve) -> None:
    class Counting(Keeping):
        """Counts the requests served between two requests of a connection that always has one in flight."""

        def __init__(self) -> None:
            super().__init__()
            self.turns = [0]
            self.left = 5000

        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            if not self.exchanges:
                super().on_request(exchange, frame)
                return
            if bytes(frame) == b"other":
                self.turns.append(0)
                if self.left:
                    other.sendall(framed(b"other"))
            else:
                self.turns[-1] += 1
                self.left -= 1
            exchange.respond([])

    handler = Counting()
    server = serve(handler)
    with plain(server) as hasty, plain(server) as other:
        hasty.sendall(framed(b"first", *[b"?"] * handler.left))
        eventually(lambda: handler.exchanges, "the first request has come")
        other.sendall(framed(b"other"))
        handler.exchanges[0].respond([])
        eventually(lambda: not handler.left, "all have been served")
    assert max(handler.turns) <= 2 * ROUNDS


def test_connections_are_assigned_to_all_processors(serve: Serve) -> None:
    class Naming:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.respond([threading.current_thread().name.encode()])

    server = serve(Naming(), processors=3)
    names = set()
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            sock = stack.enter_context(plain(server))
            sock.sendall(framed(b"?"))
            names.add(read_frame(sock))
    assert names == {f"net-processor-{server.port}-{number}".encode() for number in range(3)}


def test_idle_connection_is_closed_but_not_one_in_flight(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = Keeping()
    server = serve(handler, idle_ms=40)
    with plain(server) as waiting, plain(server) as idle:
        waiting.sendall(framed(b"?"))
        assert is_closed(idle)
        assert "idle for" in caplog.text
        eventually(lambda: handler.exchanges, "the request has come")
        handler.exchanges[0].respond([b"late"])
        assert read_frame(waiting) == b"late"
        assert is_closed(waiting)


def pause(handler: Keeping, sock: socket.socket, pause_ms: int) -> None:
    """Have the server answer the first of two requests, and pause before the second."""
    sock.sendall(framed(b"1", b"2"))
    eventually(lambda: handler.exchanges, "the request has come")
    handler.exchanges[0].respond([b"one"], pause_ms=pause_ms)
    assert read_frame(sock) == b"one"


def test_a_paused_connection_is_not_read_until_its_time_has_come(serve: Serve) -> None:
    clock, handler = ManualClock(), Keeping()
    server = serve(handler, clock=clock)
    with plain(server) as sock:
        pause(handler, sock, 5000)
        run_processors(server)
        clock.advance(4999)
        run_processors(server)
        assert len(handler.exchanges) == 1
        clock.advance(1)
        run_processors(server)
        assert len(handler.exchanges) == 2


def test_an_idle_connection_is_closed_while_it_is_paused_too(serve: Serve) -> None:
    clock, handler = ManualClock(), Keeping()
    server = serve(handler, clock=clock, idle_ms=1000)
    with plain(server) as sock:
        pause(handler, sock, 5000)
        run_processors(server)
        clock.advance(1000)
        run_processors(server)
        assert is_closed(sock)
    assert len(handler.exchanges) == 1


def test_stop_does_not_wait_for_paused_connections(handler: Keeping, serve: Serve) -> None:
    server = serve(handler)
    with plain(server) as sock:
        pause(handler, sock, 600_000)
        stopping = threading.Thread(target=server.stop, args=(600_000,))
        stopping.start()
        assert sock.recv(1) == b""
        sock.close()
        stopping.join(PATIENCE_SECONDS)
        assert not stopping.is_alive()
    assert len(handler.exchanges) == 1


def test_a_peer_that_takes_nothing_of_its_response_is_cut_off(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    big = bytes(8 << 20)
    server = serve(Answering(lambda frame: [big]), write_timeout_ms=60, send_buffer_bytes=65536)
    with plain(server, receive_buffer=65536) as sock:
        sock.sendall(framed(b"?"))
        eventually(lambda: "it read nothing of its response for" in caplog.text, "it is cut off")


def test_stop_sends_responses_despite_unread_requests(handler: Keeping, serve: Serve) -> None:
    server = serve(handler)
    big = bytes(4 << 20)
    with plain(server, receive_buffer=65536) as sock:
        sock.sendall(framed(b"first", b"second, never served"))
        eventually(lambda: handler.exchanges, "the request has come")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        eventually(lambda: not accepts(server.port), "the port is closed")
        processors = server._processors
        eventually(lambda: all(p._drain_until_ms is not None for p in processors), "nothing more is read")
        handler.exchanges[0].respond([big])
        assert read_frame(sock) == big
        assert sock.recv(1) == b""
        sock.close()
        stopping.join(PATIENCE_SECONDS)
        assert not stopping.is_alive()
    assert len(handler.exchanges) == 1


def accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), PATIENCE_SECONDS).close()
    except OSError:
        return False
    return True


def test_a_stop_does_not_wait_for_peers_that_never_close(serve: Serve) -> None:
    server = serve(Answering(), linger_ms=30)
    with plain(server) as sock:
        sock.sendall(framed(b"?"))
        assert read_frame(sock) == b"?"
        stopping = threading.Thread(target=server.stop, args=(600_000,))
        stopping.start()
        stopping.join(PATIENCE_SECONDS)
        assert not stopping.is_alive()


def test_a_stop_leaves_a_handler_that_blocks_behind(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Blocking:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            entered.set()
            go_on.wait(PATIENCE_SECONDS)

    monkeypatch.setattr("minikafka.net.server._STUCK_MS", 20)
    entered, go_on = threading.Event(), threading.Event()
    server = serve(Blocking())
    with plain(server) as sock:
        sock.sendall(framed(b"?"))
        assert entered.wait(PATIENCE_SECONDS)
        server.stop(drain_ms=0)
        assert f"net-processor-{server.port}-0 did not stop" in caplog.text
        go_on.set()
        assert is_closed(sock)
    server._processors[0].join(PATIENCE_SECONDS * 1000)


def test_respond_raises_for_a_frame_that_cannot_be_sent(handler: Keeping, serve: Serve) -> None:
    server = serve(handler)
    with plain(server) as sock:
        sock.sendall(framed(b"?"))
        eventually(lambda: handler.exchanges, "the request has come")
        with pytest.raises(TypeError):
            handler.exchanges[0].respond([memoryview(b"every other byte")[::2]])
        handler.exchanges[0].respond([b"answer"])
        assert read_frame(sock) == b"answer"


def test_small_responses_leave_at_once(handler: Keeping, serve: Serve) -> None:
    server = serve(handler)
    with plain(server) as sock:
        sock.sendall(framed(b"?"))
        eventually(lambda: handler.exchanges, "the request has come")
        (peer,) = server._processors[0]._channels
        assert peer.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_at_least_one_processor_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"num\.network\.threads=0: must be at least 1"):
        SocketServer([Endpoint("PLAINTEXT", HOST, 0)], Answering(), processors=0)


def test_a_host_that_is_not_ours_is_an_error_with_its_name() -> None:
    for host in ("192.0.2.1", "no.such.host.invalid", "\udcff"):
        with pytest.raises(NetworkError, match="cannot listen on"):
            SocketServer([Endpoint("PLAINTEXT", host, 0)], Answering()).start()


def test_all_addresses_are_listened_on_without_a_host() -> None:
    server = SocketServer([Endpoint("PLAINTEXT", "", 0)], Answering(), processors=1)
    server.start()
    try:
        connection = connect(HOST, server.port)
        assert bytes(connection.request([b"?"]).result()) == b"?"
        connection.close()
    finally:
        server.stop()


def test_exchange_names_the_listener_of_its_connection(serve: Serve) -> None:
    class Naming:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.respond([exchange.listener.encode()])

    server = serve(Naming(), listeners=("INSIDE", "OUTSIDE"), processors=2)
    assert list(server.ports) == ["INSIDE", "OUTSIDE"]
    for name, port in server.ports.items():
        for _ in range(3):
            with socket.create_connection((HOST, port), PATIENCE_SECONDS) as sock:
                sock.sendall(framed(b"?"))
                assert read_frame(sock) == name.encode()


def test_stop_closes_all_listeners_after_their_responses(handler: Keeping, serve: Serve) -> None:
    server = serve(handler, listeners=("INSIDE", "OUTSIDE"), processors=2)
    with contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection((HOST, port), PATIENCE_SECONDS))
            for port in server.ports.values()
        ]
        for sock in socks:
            sock.sendall(framed(b"?"))
        eventually(lambda: len(handler.exchanges) == 2, "both requests have come")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        eventually(lambda: not any(map(accepts, server.ports.values())), "the ports are closed")
        for exchange in handler.exchanges:
            exchange.respond([b"answer"])
        for sock in socks:
            assert read_frame(sock) == b"answer"
            assert is_closed(sock)
            sock.close()
        stopping.join(PATIENCE_SECONDS)
        assert not stopping.is_alive()


def test_where_one_address_cannot_be_had_none_is_kept() -> None:
    with socket.socket() as taken, socket.socket() as probe:
        taken.bind((HOST, 0))
        taken.listen()
        probe.bind((HOST, 0))
        free = probe.getsockname()[1]
        probe.close()
        endpoints = [Endpoint("A", HOST, free), Endpoint("B", HOST, taken.getsockname()[1])]
        with pytest.raises(NetworkError, match="cannot listen on"):
            SocketServer(endpoints, Answering()).start()
        assert not accepts(free)


def test_processors_sleep_while_all_connections_idle(serve: Serve) -> None:
    server = serve(Answering(), idle_ms=3_600_000)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(plain(server))
            sock.sendall(framed(b"?"))
            assert read_frame(sock) == b"?"
        run_processors(server)
        patience = server._processors[0]._select_timeout_seconds()
        assert patience is not None
        assert patience > 3000


class SlowlyMade(Made):
    """A lazy part whose pieces are made when the test calls ``make``."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(pieces)
        self.waiting: list[Callable[[], None]] = []

    def prepare(self, done: Callable[[], None]) -> None:
        self.waiting.append(done)

    def make(self) -> None:
        self.is_ready = True
        self.waiting.pop()()


def test_lazy_response_does_not_delay_other_connections(serve: Serve) -> None:
    lazy = SlowlyMade([b"a" * 10, b"b" * 10])
    server = serve(Answering(lambda frame: [lazy] if frame == b"old" else [frame]), processors=1)
    with plain(server) as old, plain(server) as new:
        old.sendall(framed(b"old"))
        for _ in range(2):
            eventually(lambda: lazy.waiting, "the next piece is asked for")
            new.sendall(framed(b"new"))
            assert read_frame(new) == b"new"
            lazy.make()
        assert read_frame(old) == b"a" * 10 + b"b" * 10
        old.sendall(framed(b"again"))
        assert read_frame(old) == b"again"


def test_lazy_part_of_an_ended_connection_is_closed(serve: Serve) -> None:
    lazy = SlowlyMade([b"a" * 10, b"b" * 10])
    server = serve(Answering(lambda frame: [lazy]), processors=1)
    with plain(server) as old:
        old.sendall(framed(b"old"))
        eventually(lambda: lazy.waiting, "the first piece is asked for")
        lazy.make()
        eventually(lambda: lazy.waiting, "the second piece is asked for")
        old.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    lazy.make()
    eventually(lambda: lazy.closed, "it is closed")
