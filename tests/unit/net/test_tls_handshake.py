"""Handshakes of peers that are slow, misbehave, disconnect, or speak another protocol."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from minikafka.base.errors import AuthenticationFailed, NetworkError, RemoteWireError, SslAuthenticationFailed
from minikafka.net.channel import HANDSHAKE, Channel
from minikafka.net.connection import SocketConnector
from minikafka.net.handshake import TurnEndQueue
from minikafka.net.interfaces import Endpoint, Exchange
from minikafka.net.server import SocketServer
from minikafka.net.tls import ServerTls, client_context
from tests.support.network import HOST, PATIENCE_SECONDS, Answering, eventually, run_processors
from tests.support.plain_sockets import encrypted, framed, is_closed, plain, read_frame
from tests.support.tls import broker_tls, client_tls

Serve = Callable[..., SocketServer]


@pytest.fixture
def context() -> ssl.SSLContext:
    return client_context(client_tls())


def tls_server(
    serve: Serve, handler: object = None, *, sasl: bool = False, **options: object
) -> SocketServer:
    endpoint = Endpoint("SECURE", HOST, 0, sasl, ServerTls(broker_tls()))
    return serve(handler or Answering(), endpoints=[endpoint], **options)


class HandMadeClient:
    """A client whose encrypted bytes the test sends itself."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=HOST)

    def hello(self) -> bytes:
        """Return the first bytes of the handshake."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def handshake(self, send: Callable[[bytes], None]) -> None:
        """Do the handshake, and send what it takes with ``send``."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                send(self._outgoing.read())
                self._incoming.write(self.sock.recv(65_536))
        send(self._outgoing.read())

    def encrypted(self, data: bytes) -> bytes:
        """Return the record of ``data``."""
        self._tls.write(data)
        return self._outgoing.read()

    def read_frame(self) -> bytes:
        """Return the next frame, of at most some kilobytes."""
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
            try:
                data += self._tls.read(65_536)
            except ssl.SSLWantReadError:
                self._incoming.write(self.sock.recv(65_536))
        return data[4:]


def closings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if message.startswith("connection from ")]


def test_records_may_come_one_byte_at_a_time(serve: Serve, context: ssl.SSLContext) -> None:
    with plain(tls_server(serve)) as sock:
        client = HandMadeClient(sock, context)

        def send_slowly(data: bytes) -> None:
            for byte in data:
                sock.sendall(bytes([byte]))

        client.handshake(send_slowly)
        send_slowly(client.encrypted(framed(b"hello")) + client.encrypted(framed(b"again")))
        assert [client.read_frame(), client.read_frame()] == [b"hello", b"again"]


def test_truncated_record_ends_the_connection_without_a_request(
    serve: Serve, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = Answering()
    server = tls_server(serve, handler)
    with plain(server) as sock:
        client = HandMadeClient(sock, context)
        client.handshake(sock.sendall)
        sock.sendall(client.encrypted(framed(b"hello"))[:-1])
    with plain(server) as sock:
        client = HandMadeClient(sock, context)
        client.handshake(sock.sendall)
        sock.sendall(client.encrypted(framed(b"hello")[:-1]))
        sock.shutdown(socket.SHUT_WR)
        eventually(lambda: "disconnected in the middle of a request" in caplog.text, "the second is noticed")
    assert handler.seen == []


def test_damaged_record_ends_the_connection(
    serve: Serve, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = Answering()
    with plain(tls_server(serve, handler)) as sock:
        client = HandMadeClient(sock, context)
        client.handshake(sock.sendall)
        record = bytearray(client.encrypted(framed(b"hello")))
        record[-1] ^= 1
        sock.sendall(record)
        while sock.recv(65_536):
            pass  # the session tickets, and an alert
    assert handler.seen == []
    assert len(closings(caplog)) == 1


@pytest.mark.parametrize("cut", [0, 1, 5, 100])
@pytest.mark.parametrize("clean", [True, False])
def test_peer_that_leaves_during_the_handshake_disturbs_nobody(
    serve: Serve, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture, cut: int, clean: bool
) -> None:
    server = tls_server(serve)
    with encrypted(server, context) as other:
        with plain(server) as sock:
            sock.sendall(HandMadeClient(sock, context).hello()[:cut])
            run_processors(server)
            if not clean:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: len(server._processors[0]._channels) == 1, "it is closed")
        other.sendall(framed(b"fine"))
        assert read_frame(other) == b"fine"
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_check_of_an_open_port_is_not_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    caplog.set_level(logging.INFO)
    server = tls_server(serve)
    with plain(server) as sock:
        run_processors(server)
        if not clean:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: not server._processors[0]._channels, "it is closed")
    assert closings(caplog) == []


@pytest.mark.parametrize("sent", ["nothing", "a byte", "a hello"])
def test_handshake_that_does_not_end_in_time_is_ended(
    serve: Serve, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture, sent: str
) -> None:
    server = tls_server(serve, authentication_timeout_ms=50)
    with plain(server) as sock:
        hello = HandMadeClient(sock, context).hello()
        sock.sendall({"nothing": b"", "a byte": hello[:1], "a hello": hello}[sent])
        while sock.recv(65_536):
            pass
    assert "closed: its client did not authenticate within 50 ms" in caplog.text


def test_established_connection_has_no_deadline(serve: Serve, context: ssl.SSLContext) -> None:
    server = tls_server(serve, authentication_timeout_ms=100)
    with encrypted(server, context) as good, plain(server) as silent:
        assert is_closed(silent)
        good.sendall(framed(b"still here"))
        assert read_frame(good) == b"still here"


def test_sasl_shares_the_deadline_of_the_handshake(serve: Serve, context: ssl.SSLContext) -> None:
    server = tls_server(serve, sasl=True, authentication_timeout_ms=100)
    with encrypted(server, context) as sock:
        sock.sendall(framed(b"not authenticated by this"))
        read_frame(sock)
        assert is_closed(sock)


def test_oldest_of_too_many_unauthenticated_connections_is_closed(
    serve: Serve, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minikafka.net.connection_quotas.PROTECTED_MS", 0)
    server = tls_server(serve, unauthenticated_connections=2)
    with contextlib.ExitStack() as stack:
        good = stack.enter_context(encrypted(server, context))
        good.sendall(framed(b"hello"))
        assert read_frame(good) == b"hello"  # its handshake is complete at the server, too
        first, second = (stack.enter_context(plain(server)) for _ in range(2))
        run_processors(server)
        with encrypted(server, context) as late:
            late.sendall(framed(b"late"))
            assert read_frame(late) == b"late"
            assert is_closed(first)
            good.sendall(framed(b"good"))
            assert read_frame(good) == b"good"
        second.sendall(b"\0")
        assert is_closed(second)
    assert "closed: more than 2 connections of SECURE have not authenticated" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="needs another address of this host")
def test_flood_from_one_host_keeps_no_client_of_another_host_out(
    serve: Serve, context: ssl.SSLContext
) -> None:
    server = tls_server(serve, unauthenticated_connections=4)
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            flood = socket.create_connection((HOST, server.port), PATIENCE_SECONDS, ("127.0.0.2", 0))
            stack.enter_context(flood)
        with encrypted(server, context) as client:
            client.sendall(framed(b"hello"))
            assert read_frame(client) == b"hello"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\x10\0\x12\0\0", "a client without TLS (it sent 00 00 00 10): set its security.protocol={}"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP client (it sent 'GET '): this "),
        (b"\x80\x2e\x01\x03", "a client without TLS (it sent 80 2e 01 03): "),
        (b"\xff", "a client without TLS (it sent ff): "),
    ],
    ids=["kafka", "http", "sslv2", "garbage"],
)
@pytest.mark.parametrize("sasl", [False, True])
def test_client_without_tls_is_named_and_gets_no_answer(
    serve: Serve, caplog: pytest.LogCaptureFixture, data: bytes, reason: str, sasl: bool
) -> None:
    server = tls_server(serve, sasl=sasl)
    with plain(server) as sock:
        host, port = sock.getsockname()
        sock.sendall(data)
        assert is_closed(sock)
    expected = f"connection from {host}:{port} closed: {reason.format('SASL_SSL' if sasl else 'SSL')}"
    eventually(lambda: closings(caplog), "it is logged")
    (line,) = closings(caplog)
    assert line.startswith(expected)


def test_client_without_tls_is_told_that_the_listener_has_it(serve: Serve) -> None:
    server = tls_server(serve)
    connection = SocketConnector().connect(HOST, server.port)
    text = (
        f"{HOST}:{server.port}: the broker speaks TLS on this port; set security.protocol to SSL or SASL_SSL"
    )
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match=text):
            connection.request([b"hello"]).result()


def test_client_with_tls_is_told_that_the_listener_has_none(serve: Serve, context: ssl.SSLContext) -> None:
    server = serve(Answering(lambda frame: [frame[4:8], b"the versions"]))
    text = f"{HOST}:{server.port}: the broker does not speak TLS on this port; "
    with pytest.raises(AuthenticationFailed, match=text):
        SocketConnector(tls=lambda: context).connect(HOST, server.port)


def test_peer_that_closes_all_connections_is_asked_for_its_protocol_once(context: ssl.SSLContext) -> None:
    accepted = 0
    with socket.create_server((HOST, 0)) as listening:

        def close_all() -> None:
            nonlocal accepted
            with contextlib.suppress(OSError):
                while True:
                    listening.accept()[0].close()
                    accepted += 1

        thread = threading.Thread(target=close_all)
        thread.start()
        connector = SocketConnector(tls=lambda: context)
        for _ in range(5):
            with pytest.raises(NetworkError, match="cannot connect: "):
                connector.connect(HOST, listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert accepted == 6


@pytest.mark.parametrize("record", [b"\x16\x03\x01\xff\xff" + bytes(100), b"\x16\x03\x01\0\x05hello"])
def test_garbage_in_records_is_refused_with_an_alert(
    serve: Serve, caplog: pytest.LogCaptureFixture, record: bytes
) -> None:
    server = tls_server(serve)
    with plain(server) as sock:
        sock.sendall(record)
        assert sock.recv(1) == b"\x15"
        while sock.recv(1_000):
            pass
    eventually(lambda: closings(caplog), "it is logged")
    assert "closed: TLS " in closings(caplog)[0]


@pytest.mark.parametrize("encrypted", [True, False])
def test_refused_clients_fill_no_log(serve: Serve, caplog: pytest.LogCaptureFixture, encrypted: bool) -> None:
    server = tls_server(serve) if encrypted else serve(Answering())
    for number in range(200):
        with plain(server) as sock:
            sock.sendall(bytes([0, 0, 0, number]) if encrypted else bytes([0x16, 0x03, 0x01, number]))
            assert is_closed(sock)
    eventually(lambda: not server._processors[0]._channels, "all are closed")
    assert 1 <= len(closings(caplog)) <= 5


class Refusing:
    """A handler that refuses each request, in the way that it asks for."""

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        if frame == b"close":
            exchange.close("refused")
        else:
            raise RemoteWireError("not a request")


@pytest.mark.parametrize("request_sent", [framed(b"close"), framed(b"raise"), b"\0\0"])
@pytest.mark.parametrize("encrypted", [True, False])
def test_clients_that_need_no_login_fill_no_log(
    serve: Serve,
    context: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
    encrypted: bool,
    request_sent: bytes,
) -> None:
    caplog.set_level(logging.INFO)
    server = tls_server(serve, Refusing()) if encrypted else serve(Refusing())
    for _ in range(50):
        with (
            plain(server) as raw,
            context.wrap_socket(raw, server_hostname=HOST) if encrypted else raw as sock,
        ):
            sock.sendall(request_sent)
            if len(request_sent) > 4:
                assert is_closed(sock)
    eventually(lambda: closings(caplog) and not server._processors[0]._channels, "all are closed")
    assert 1 <= len(closings(caplog)) <= 5


def test_server_stops_during_handshakes(serve: Serve, context: ssl.SSLContext) -> None:
    server = tls_server(serve)
    with plain(server) as silent, plain(server) as begun:
        begun.sendall(HandMadeClient(begun, context).hello())
        assert begun.recv(1)
        server.stop()
        assert is_closed(silent)
        while not is_closed(begun):
            pass


# The client's side.


@contextlib.contextmanager
def peer(serve_one: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server with one connection, on a thread; gives its port."""
    with socket.create_server((HOST, 0)) as listening:

        def accept() -> None:
            sock, _ = listening.accept()
            with sock:
                serve_one(sock)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join(PATIENCE_SECONDS)


def answer_plainly(sock: socket.socket) -> None:
    sock.recv(1_000)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_client_refuses_a_peer_that_does_not_speak_tls(context: ssl.SSLContext) -> None:
    with peer(answer_plainly) as port, pytest.raises(AuthenticationFailed, match=f"{HOST}:{port}: "):
        SocketConnector(tls=lambda: context).connect(HOST, port)


def test_peer_that_closes_during_the_handshake_may_be_tried_again(context: ssl.SSLContext) -> None:
    with (
        peer(lambda sock: None) as port,
        pytest.raises(NetworkError, match=f"^{HOST}:{port}: cannot connect: "),
    ):
        SocketConnector(tls=lambda: context).connect(HOST, port)


def test_plain_listener_names_a_client_with_tls(
    serve: Serve, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(Answering())
    with pytest.raises(NetworkError, match=f"^{HOST}:{server.port}: cannot connect: "):
        SocketConnector(tls=lambda: context).connect(HOST, server.port)
    eventually(
        lambda: "these bytes are TLS: give both sides the same security.protocol" in caplog.text, "log"
    )


def test_client_waits_no_longer_for_a_handshake_than_to_connect(context: ssl.SSLContext) -> None:
    ended = threading.Event()
    with peer(lambda sock: ended.wait(PATIENCE_SECONDS) and None) as port:
        text = f"^{HOST}:{port}: cannot connect: the TLS handshake was not complete within 50 ms$"
        with pytest.raises(NetworkError, match=text):
            SocketConnector(tls=lambda: context, connect_timeout_ms=50).connect(HOST, port)
        ended.set()


def test_client_without_tls_names_a_peer_with_tls() -> None:
    def alert(sock: socket.socket) -> None:
        sock.recv(1_000)
        sock.sendall(b"\x15\x03\x01\0\x02\x02\x46")

    with peer(alert) as port:
        connection = SocketConnector().connect(HOST, port)
        with pytest.raises(
            SslAuthenticationFailed, match=r"speaks TLS on this port; set security\.protocol to SSL"
        ):
            connection.request([b"hello"]).result()


# The share of handshakes in a processor's time.


class Work:
    """Steps of handshakes that take time by a clock of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step_seconds: float) -> None:
        self.now = 100.0
        self.done = 0
        self._step_seconds = step_seconds
        monkeypatch.setattr("time.perf_counter", lambda: self.now)
        self.queue = TurnEndQueue(HANDSHAKE, self._step)

    def _step(self, channel: object) -> None:
        self.done += 1
        self.now += self._step_seconds


@pytest.mark.parametrize(("other_seconds", "expected"), [(0.0, 1), (0.001, 1), (0.01, 10), (1.0, 50)])
def test_handshakes_take_as_long_as_the_other_work_of_a_turn(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, other_seconds: float, expected: int
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        work = Work(monkeypatch, 0.001)
        endpoint = Endpoint("SECURE", HOST, 0, tls=ServerTls(broker_tls()))
        for _ in range(50):
            work.queue.add(Channel(ours, (HOST, 1), endpoint, 1_000, 0))
        work.queue.begin_turn()
        work.now += other_seconds
        work.queue.end_turn()
        assert work.done == expected


def test_requests_are_served_between_handshakes(serve: Serve, context: ssl.SSLContext) -> None:
    server = tls_server(serve)
    with encrypted(server, context) as good, contextlib.ExitStack() as others:
        for _ in range(50):
            sock = others.enter_context(plain(server))
            sock.sendall(HandMadeClient(sock, context).hello())
        for _ in range(20):
            good.sendall(framed(b"served"))
            assert read_frame(good) == b"served"
