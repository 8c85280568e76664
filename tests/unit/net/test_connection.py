"""The client's connection: many threads, and peers that misbehave or answer out of turn."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import NetworkError
from minikafka.net.connection import SocketConnection, SocketConnector, connect
from minikafka.net.server import SocketServer
from tests.support.network import (
    HOST,
    PATIENCE_SECONDS,
    Answering,
    Keeping,
    eventually,
    wait_any_after_reader,
)
from tests.support.raising import raising

Serve = Callable[..., SocketServer]


@contextlib.contextmanager
def against(serve_one: Callable[[socket.socket], object], **options: Any) -> Iterator[SocketConnection]:
    """A connection to a peer that runs ``serve_one`` on a thread and closes when that returns."""

    def play() -> None:
        with listener.accept()[0] as peer:
            peer.settimeout(PATIENCE_SECONDS)
            serve_one(peer)

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=play)
        thread.start()
        connection = SocketConnector(**options).connect(HOST, listener.getsockname()[1])
        try:
            yield connection
        finally:
            connection.close()
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            return data
        data += more
    return data


def until_closed(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(65536):
            pass


def test_each_thread_of_a_connection_gets_its_own_response(serve: Serve) -> None:
    server = serve(Answering(lambda frame: [frame, b"!"]))
    connection = connect(HOST, server.port)

    def work(number: int) -> None:
        for turn in range(40):
            text = b"%d-%d-" % (number, turn) * (1 + 200 * (turn % 7))
            assert bytes(connection.request([text]).result()) == text + b"!"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    connection.close()


def test_early_response_does_not_wait_for_a_late_one(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler)
    connection = connect(HOST, server.port)
    first, second = connection.request([b"1"]), connection.request([b"2"])
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(second.result)
        eventually(lambda: connection._has_reader, "the late one's thread reads")
        early = pool.submit(first.result)
        eventually(lambda: handler.exchanges, "the first request has come")
        handler.exchanges[0].respond([b"one"])
        assert bytes(early.result(PATIENCE_SECONDS)) == b"one"
        assert not late.done()
        eventually(lambda: len(handler.exchanges) == 2, "the second request has come")
        handler.exchanges[1].respond([b"two"])
        assert bytes(late.result(PATIENCE_SECONDS)) == b"two"
    connection.close()


def test_next_waiting_thread_reads_after_the_reader_is_done(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler)
    connection = connect(HOST, server.port)
    first, second = connection.request([b"1"]), connection.request([b"2"])
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(first.result)
        eventually(lambda: connection._has_reader, "the early one's thread reads")
        late = pool.submit(second.result)
        for number in range(2):
            eventually(lambda: len(handler.exchanges) > number, "the request has come")  # noqa: B023
            handler.exchanges[number].respond([b"%d" % number])
        assert bytes(early.result(PATIENCE_SECONDS)) == b"0"
        assert bytes(late.result(PATIENCE_SECONDS)) == b"1"
    connection.close()


def test_wait_for_any_sees_responses_read_by_other_threads(serve: Serve) -> None:
    connection = connect(HOST, serve(Answering()).port)
    assert connection.acquire_reader()
    pending = connection.request([b"?"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(SocketConnector().wait_any, [pending], PATIENCE_SECONDS * 1000)
        eventually(connection._receive_frame, "the answer has come")
        assert waiting.result(PATIENCE_SECONDS)
    connection.release_reader()
    connection.close()


def test_wait_for_any_sees_what_was_read_before_it_reads_itself(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect(HOST, serve(Answering()).port)
    assert connection.acquire_reader()
    wait_any_after_reader(connection, connection.request([b"?"]), monkeypatch)
    connection.close()


def test_waiting_thread_takes_over_the_reader_role(serve: Serve) -> None:
    connection = connect(HOST, serve(Answering()).port)
    assert connection.acquire_reader()
    pending = connection.request([b"?"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pending.result)
        eventually(lambda: connection._state._waiters, "the thread waits for the reader")  # type: ignore[attr-defined]
        connection.release_reader()
        assert bytes(waiting.result(PATIENCE_SECONDS)) == b"?"
    connection.close()


def test_a_writer_reads_when_the_peer_answers_before_it_reads_on(serve: Serve) -> None:
    big = bytes(16 << 20)
    server = serve(Answering(lambda frame: [big]), max_request_bytes=32 << 20)
    connection = connect(HOST, server.port)
    pending = [connection.request([big]) for _ in range(3)]
    assert [bytes(response.result()) == big for response in pending] == [True] * 3
    connection.close()


def test_closing_ends_the_wait_of_another_thread(serve: Serve) -> None:
    connection = connect(HOST, serve(Keeping()).port)
    pending = connection.request([b"?"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pending.result)
        eventually(lambda: connection._has_reader, "the thread waits")
        connection.close()
        with pytest.raises(NetworkError, match="closed by this client"):
            waiting.result(PATIENCE_SECONDS)


def test_a_time_out_in_one_thread_ends_the_wait_of_the_others(serve: Serve) -> None:
    connection = connect(HOST, serve(Keeping()).port)
    first, second = connection.request([b"1"]), connection.request([b"2"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.result)
        eventually(lambda: connection._has_reader, "the thread waits")
        with pytest.raises(NetworkError, match="no response within 20 ms"):
            second.result(timeout_ms=20)
        with pytest.raises(NetworkError, match="no response within 20 ms"):
            waiting.result(PATIENCE_SECONDS)


def test_response_that_has_arrived_is_returned_after_the_time_out(serve: Serve) -> None:
    connection = connect(HOST, serve(Answering()).port)
    pending = connection.request([b"early"])
    assert select.select([connection], [], [], PATIENCE_SECONDS)[0]
    assert bytes(pending.result(timeout_ms=0)) == b"early"
    connection.close()


def test_closed_idle_connection_is_noticed_before_sending() -> None:
    with against(lambda peer: None) as connection:
        eventually(lambda: select.select([connection._sock], [], [], 0)[0], "the close has arrived")
        with pytest.raises(NetworkError, match="the peer closed the connection while idle"):
            connection.request([b"?"])
        assert connection.closed


@pytest.mark.parametrize(("end", "all_arrives"), [("close", True), ("abort", False)])
def test_aborted_connection_sends_no_more(end: str, all_arrives: bool) -> None:
    """A peer that reads nothing gets as much as its kernel has taken, the rest waits in ours."""
    ended = threading.Event()
    received: list[int] = []

    def serve_one(peer: socket.socket) -> None:
        assert ended.wait(PATIENCE_SECONDS)
        received.append(0)
        with contextlib.suppress(ConnectionResetError):
            while count := len(peer.recv(65536)):
                received[0] += count

    size = 180_000
    with against(serve_one) as connection:
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)
        connection.request([bytes(size)])
        getattr(connection, end)()
        ended.set()
    assert (received[0] == 4 + size) is all_arrives


def test_peer_that_closes_early_fails_all_pending_requests() -> None:
    with against(lambda peer: read_exactly(peer, 10)) as connection:
        pending = [connection.request([b"?"]), connection.request([b"!"])]
        for response in pending:
            with pytest.raises(NetworkError, match="the peer closed the connection before it answered"):
                response.result()


def test_a_response_cut_short_is_an_error() -> None:
    def serve_one(peer: socket.socket) -> None:
        read_exactly(peer, 5)
        peer.sendall(struct.pack(">i", 10) + b"half")

    with against(serve_one) as connection, pytest.raises(NetworkError, match="closed the connection before"):
        connection.request([b"?"]).result()


@pytest.mark.parametrize(("size", "limit"), [(-1, 2147483647), (101, 100)])
def test_a_senseless_length_of_a_response_is_an_error(size: int, limit: int) -> None:
    def serve_one(peer: socket.socket) -> None:
        read_exactly(peer, 5)
        peer.sendall(struct.pack(">i", size))
        until_closed(peer)

    with (
        against(serve_one, max_response_bytes=limit) as connection,
        pytest.raises(NetworkError, match=f"cannot receive: invalid frame length {size}"),
    ):
        connection.request([b"?"]).result()


def test_response_is_limited_by_its_own_request() -> None:
    def serve_two(peer: socket.socket) -> None:
        read_exactly(peer, 5)
        peer.sendall(struct.pack(">i", 20) + bytes(20))
        read_exactly(peer, 5)
        peer.sendall(struct.pack(">i", 20))
        until_closed(peer)

    with against(serve_two) as connection:
        assert len(connection.request([b"?"], max_response_bytes=20).result()) == 20
        with pytest.raises(NetworkError, match="invalid frame length 20: expected 0 to 19"):
            connection.request([b"?"], max_response_bytes=19).result()


def test_unexpected_response_ends_the_connection() -> None:
    def serve_one(peer: socket.socket) -> None:
        peer.sendall(struct.pack(">i", 0))
        until_closed(peer)

    with against(serve_one) as connection:
        eventually(lambda: connection.closed, "it is noticed")
        with pytest.raises(NetworkError, match="unexpected response"):
            connection.request([b"?"])


def test_peer_that_reads_nothing_fails_after_the_request_timeout() -> None:
    done = threading.Event()
    with against(lambda peer: done.wait(PATIENCE_SECONDS), request_timeout_ms=50) as connection:
        with pytest.raises(NetworkError, match="read nothing of a request for 50 ms"):
            connection.send([bytes(64 << 20)])
        assert connection.closed
        done.set()


def test_an_interrupted_wait_leaves_the_connection_usable(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Keeping()
    connection = connect(HOST, serve(handler).port)
    pending = connection.request([b"?"])
    with monkeypatch.context() as patch:

        def interrupt(*_: object) -> int:
            raise KeyboardInterrupt

        patch.setattr(connection, "_wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pending.result()
    eventually(lambda: handler.exchanges, "the request has come")
    handler.exchanges[0].respond([b"!"])
    assert bytes(pending.result()) == b"!"
    connection.close()


def test_a_connection_interrupted_while_sending_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect(HOST, serve(Answering()).port)
    monkeypatch.setattr("minikafka.net.network_send.NetworkSend.write", raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        connection.request([b"?"])
    assert connection.closed
    monkeypatch.undo()
    with pytest.raises(NetworkError, match="sending was interrupted"):
        connection.request([b"?"])


def test_closed_connections_keep_no_descriptor(serve: Serve) -> None:
    server = serve(Answering())
    connection = connect(HOST, server.port)
    assert bytes(connection.request([b"?"]).result()) == b"?"
    connection.close()
    assert connection._sock.fileno() == -1


@pytest.mark.parametrize("host", ["no.such.host.invalid", "\udcff", "a" * 300])
def test_a_host_that_cannot_be_found_is_an_error_with_its_name(host: str) -> None:
    with pytest.raises(NetworkError, match=":9092: cannot connect: "):
        connect(host, 9092)


def test_a_port_out_of_range_is_an_error() -> None:
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1:70000: cannot connect: "):
        connect(HOST, 70000)


def test_the_connect_time_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", raising(TimeoutError("timed out")))
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1:9092: cannot connect: no answer within 70 ms"):
        connect(HOST, 9092, connect_timeout_ms=70)


def test_silent_addresses_of_a_host_leave_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, timeouts = ManualClock(), list[float | None]()

    def answer(sock: socket.socket, address: tuple[str, int]) -> None:
        timeouts.append(sock.gettimeout())
        if address == ("10.0.0.1", 9092):
            clock.advance(300)
            raise TimeoutError
        if address == ("10.0.0.2", 9092):
            raise ConnectionRefusedError

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"10.0.0.{number}", 9092)) for number in (1, 2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **kind: found)
    monkeypatch.setattr(socket.socket, "connect", answer)
    monkeypatch.setattr("minikafka.net.connection._now_ms", clock.monotonic_ms)
    connect("example.com", 9092, connect_timeout_ms=900).close()
    assert timeouts == [0.3, 0.3, 0.6]
