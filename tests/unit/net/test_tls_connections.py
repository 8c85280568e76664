"""Connections with TLS: which peers are accepted, and what both sides are told of the others.

The cases of Kafka's SslTransportLayerTest, as far as they are not about the reading of stores.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import selectors
import shutil
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from minikafka.base.errors import AuthenticationFailed, NetworkError
from minikafka.base.files import FileSlice, RealFiles
from minikafka.net.connection import SocketConnection, SocketConnector
from minikafka.net.interfaces import Endpoint, Exchange
from minikafka.net.server import SocketServer
from minikafka.net.tls import ServerTls, client_context
from minikafka.security.ssl_config import SslConfig
from tests.support.network import (
    HOST,
    PATIENCE_SECONDS,
    Answering,
    Keeping,
    eventually,
    run_processors,
    wait_any_after_reader,
)
from tests.support.plain_sockets import encrypted, framed, plain, read_frame
from tests.support.tls import (
    HOSTS,
    authority,
    broker_tls,
    client_tls,
    der_of,
    inline_keys,
    inline_trust,
    key_and_chain,
)
from tests.support.tls_records import ClientRecords

Serve = Callable[..., SocketServer]
Connect = Callable[..., SocketConnection]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect to a server with the settings of a client; connections are closed after the test."""
    connections: list[SocketConnection] = []

    def connected(
        server: SocketServer, config: SslConfig | None = None, host: str = HOST, **options: Any
    ) -> SocketConnection:
        tls = client_context(client_tls() if config is None else config)
        connector = SocketConnector(tls=lambda: tls, connect_timeout_ms=PATIENCE_SECONDS * 1000, **options)
        connections.append(connector.connect(host, server.port))
        return connections[-1]

    yield connected
    for connection in connections:
        connection.close()


def tls_server(
    serve: Serve, config: SslConfig | None = None, handler: Any = None, **options: Any
) -> SocketServer:
    endpoint = Endpoint("SSL", HOST, 0, tls=ServerTls(broker_tls() if config is None else config))
    return serve(handler or Answering(), endpoints=[endpoint], **options)


def ask(connection: SocketConnection, text: bytes = b"hello") -> bytes:
    return bytes(connection.request([text]).result())


def refusal(caplog: pytest.LogCaptureFixture) -> str:
    """Return the line of the server's log about the only connection that it has refused."""

    def lines() -> list[str]:
        records = [record for record in caplog.records if record.levelno >= logging.WARNING]
        return [record.getMessage() for record in records if "closed: " in record.getMessage()]

    eventually(lines, "the refusal is logged")
    (line,) = lines()
    return line


class Certificates:
    """A handler that answers with the certificate of the client."""

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([exchange.peer_certificate or b"none"])


@pytest.mark.parametrize("host", ["localhost", HOST])
def test_broker_is_known_by_name_or_by_address(serve: Serve, connect: Connect, host: str) -> None:
    server = tls_server(serve, broker_tls(host))
    assert ask(connect(server, host=host)) == b"hello"


@pytest.mark.parametrize(
    ("hosts", "host"), [(("localhost",), HOST), ((HOST,), "localhost"), (("other.example.com",), "localhost")]
)
def test_certificate_of_another_host_is_refused(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture, hosts: tuple[str, ...], host: str
) -> None:
    server = tls_server(serve, broker_tls(*hosts))
    with pytest.raises(AuthenticationFailed, match=f"^{host}:{server.port}: ") as error:
        connect(server, host=host)
    assert f"is not for the host {host}: it is for {hosts[0]}; " in error.value.reason
    assert "closed: TLS handshake failed: " in refusal(caplog)
    unchecked = client_tls(endpoint_identification_algorithm="")
    assert ask(connect(server, unchecked, host=host)) == b"hello"


def test_common_name_counts_without_another_name_of_a_host(serve: Serve, connect: Connect) -> None:
    leaf = authority().issue_cert("somebody@example.com", common_name="localhost")
    server = tls_server(serve, SslConfig.from_properties({**inline_keys(leaf), **inline_trust(authority())}))
    assert ask(connect(server, host="localhost")) == b"hello"
    leaf = authority().issue_cert("other.example.com", common_name="localhost")
    server = tls_server(serve, SslConfig.from_properties({**inline_keys(leaf), **inline_trust(authority())}))
    with pytest.raises(AuthenticationFailed):
        connect(server, host="localhost")


def test_broker_of_an_unknown_authority_is_refused(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server = tls_server(serve)
    with pytest.raises(AuthenticationFailed):
        connect(server, client_tls(ca=authority("strangers")))
    assert refusal(caplog).startswith(f"connection from {HOST}:")
    assert ask(connect(server)) == b"hello"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
@pytest.mark.parametrize("shown", ["trusted", "untrusted", "none"])
def test_certificates_of_clients_are_demanded_as_configured(
    serve: Serve,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    version: str,
    client_auth: str,
    shown: str,
) -> None:
    leaf = (authority("strangers") if shown == "untrusted" else authority()).issue_cert(common_name="alice")
    keys = {} if shown == "none" else inline_keys(leaf)
    config = SslConfig.from_properties(
        {**keys, **inline_trust(authority()), "ssl.enabled.protocols": version}
    )
    server = tls_server(serve, broker_tls(client_auth=client_auth), Certificates())
    accepted = {"none": True, "requested": shown != "untrusted", "required": shown == "trusted"}[client_auth]
    if accepted:
        known = client_auth != "none" and shown == "trusted"
        assert ask(connect(server, config)) == (der_of(leaf) if known else b"none")
    else:
        # With TLS 1.3 the client learns it with the first response.
        with pytest.raises(AuthenticationFailed, match=f"{HOST}:{server.port}: "):
            ask(connect(server, config))
        assert "TLS handshake failed: " in refusal(caplog)


def test_versions_that_do_not_meet_are_refused(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server = tls_server(serve, broker_tls(enabled_protocols="TLSv1.3"))
    with pytest.raises(AuthenticationFailed):
        connect(server, client_tls(enabled_protocols="TLSv1.2"))
    assert "TLS handshake failed: " in refusal(caplog)


def test_cipher_suites_that_do_not_meet_are_refused(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    server = tls_server(serve, broker_tls(cipher_suites=suites))
    with pytest.raises(AuthenticationFailed):
        connect(server, client_tls(cipher_suites=suites.replace("AES_128_GCM_SHA256", "AES_256_GCM_SHA384")))
    assert "TLS handshake failed: " in refusal(caplog)


@pytest.mark.parametrize("key_type", list(trustme.KeyType))
def test_certificates_may_have_any_kind_of_key(
    serve: Serve, connect: Connect, key_type: trustme.KeyType
) -> None:
    leaf = authority().issue_cert(*HOSTS, key_type=key_type)
    server = tls_server(serve, SslConfig.from_properties({**inline_keys(leaf), **inline_trust(authority())}))
    assert ask(connect(server)) == b"hello"


def test_new_connections_use_the_new_certificate(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    store = tmp_path / "broker.pem"
    store.write_text(key_and_chain(authority("strangers").issue_cert(*HOSTS)))
    properties = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    tls = ServerTls(SslConfig.from_properties(properties), "SSL")
    server = serve(Answering(), endpoints=[Endpoint("SSL", HOST, 0, tls=tls)])
    earlier = connect(server, client_tls(ca=authority("strangers")))
    with pytest.raises(AuthenticationFailed):
        connect(server)
    store.write_text(key_and_chain(authority().issue_cert(*HOSTS)))
    assert tls.reload()
    assert ask(connect(server)) == b"hello"
    assert ask(earlier) == b"hello"


def test_each_listener_has_its_own_certificate(serve: Serve) -> None:
    endpoints = [
        Endpoint("PLAINTEXT", HOST, 0),
        Endpoint("SSL", HOST, 0, tls=ServerTls(broker_tls())),
        Endpoint("OTHER", HOST, 0, tls=ServerTls(broker_tls(ca=authority("others")))),
    ]
    server = serve(Answering(), endpoints=endpoints)
    contexts = {
        "PLAINTEXT": None,
        "SSL": partial(client_context, client_tls()),
        "OTHER": partial(client_context, client_tls(ca=authority("others"))),
    }
    for listener, tls in contexts.items():
        connection = SocketConnector(tls=tls).connect(HOST, server.ports[listener])
        assert ask(connection) == b"hello"
        connection.close()
    with pytest.raises(AuthenticationFailed):
        SocketConnector(tls=contexts["SSL"]).connect(HOST, server.ports["OTHER"])


@pytest.mark.parametrize("buffer_bytes", [None, 65_536])
def test_large_frames_arrive_exact_both_ways(
    serve: Serve, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int | None
) -> None:
    def forbidden(*arguments: Any) -> int:
        raise AssertionError("sendfile on an encrypted connection")

    monkeypatch.setattr(os, "sendfile", forbidden, raising=False)
    content = os.urandom(1_500_000)
    file = RealFiles().open(str(tmp_path / "segment"), create=True)
    file.write_at(0, content)
    pieces = [b"head", FileSlice(file, 7, 700_001), b"middle", FileSlice(file, 100, 1_300_000), b"tail"]
    handler = Answering(lambda frame: pieces)
    options = {"send_buffer_bytes": buffer_bytes, "receive_buffer_bytes": buffer_bytes}
    connection = connect(tls_server(serve, handler=handler, **options), **options)
    expected = b"head" + content[7:700_008] + b"middle" + content[100:1_300_100] + b"tail"
    assert ask(connection, content) == expected
    assert handler.seen == [content]
    file.close()


def test_one_connection_serves_many_threads(serve: Serve, connect: Connect) -> None:
    connection = connect(tls_server(serve))
    failures: list[object] = []

    def ask_often(number: int) -> None:
        for size in range(0, 60_000, 3_001):
            text = bytes([number]) * size
            if ask(connection, text) != text:
                failures.append((number, size))

    threads = [threading.Thread(target=ask_often, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_responses_of_one_record_all_arrive(serve: Serve, connect: Connect) -> None:
    """Frames that were decrypted together do not make the socket readable."""
    connection = connect(tls_server(serve))
    pending = [connection.request([b"%d" % number]) for number in range(50)]
    assert [bytes(response.result()) for response in pending] == [b"%d" % number for number in range(50)]


def test_wait_for_any_sees_what_another_thread_has_decrypted(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tls_server(serve, handler=(handler := Answering()))
    connection = connect(server)
    _, second = [connection.request([text]) for text in (b"1", b"2")]
    eventually(lambda: len(handler.seen) == 2, "both requests have come")
    run_processors(server)  # both answers have been sent
    assert connection.acquire_reader()
    wait_any_after_reader(connection, second, monkeypatch)


def test_requests_of_one_record_are_all_served(serve: Serve) -> None:
    server = tls_server(serve)
    frames = [b"x" * number for number in range(0, 4_000, 100)]
    with encrypted(server, client_context(client_tls())) as sock:
        whole = framed(*frames)
        for start in range(0, len(whole), 16_384):
            sock.sendall(whole[start : start + 16_384])
        assert [read_frame(sock) for _ in frames] == frames


def test_close_tells_the_peer_and_does_not_wait(serve: Serve, connect: Connect) -> None:
    server = tls_server(serve)
    context = client_context(client_tls())
    with (
        plain(server) as raw,
        context.wrap_socket(raw, server_hostname=HOST, suppress_ragged_eofs=False) as sock,
    ):
        sock.sendall(framed(b"hello"))
        assert read_frame(sock) == b"hello"
        server.stop(drain_ms=0)
        assert sock.recv(1) == b""  # close_notify: a cut would be an SSLEOFError
    connection = connect(tls_server(serve))
    connection.close()
    with pytest.raises(NetworkError, match="closed by this client"):
        ask(connection)


def test_peer_that_closes_in_a_large_request_is_said_to_close(serve: Serve, connect: Connect) -> None:
    server = tls_server(serve, max_request_bytes=1_000)
    connection = connect(server)
    ask(connection)
    with pytest.raises(NetworkError, match=r"the peer closed|reset by peer") as broken:
        ask(connection, bytes(8 << 20))
    assert "_ssl.c" not in str(broken.value)


def test_key_updates_without_end_close_their_connection_alone(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    server = tls_server(serve)
    good = connect(server)
    context = client_context(client_tls())
    context.keylog_filename = str(tmp_path / "keys")
    with encrypted(server, context) as sock:
        records = ClientRecords(tmp_path / "keys")
        with socket.socket(fileno=os.dup(sock.fileno())) as raw, contextlib.suppress(ConnectionError):
            raw.sendall(records.data(framed(b"fine")))
            assert read_frame(sock) == b"fine"
            while True:
                raw.sendall(records.key_updates(1_000))
                assert ask(good) == b"hello"
    assert "bytes of TLS without data, such as key updates" in refusal(caplog)
    assert ask(good) == b"hello"


def test_response_waits_for_the_rest_of_a_split_key_update(serve: Serve, tmp_path: Path) -> None:
    server = tls_server(serve, handler=(handler := Keeping()))
    context = client_context(client_tls())
    context.keylog_filename = str(tmp_path / "keys")
    with encrypted(server, context) as sock:
        records = ClientRecords(tmp_path / "keys")
        with socket.socket(fileno=os.dup(sock.fileno())) as raw:
            request, (first, rest) = records.data(framed(b"?")), records.split_key_update()
            raw.sendall(request + first)
            eventually(lambda: handler.exchanges, "the request has come")
            handler.exchanges[0].respond([b"answer"])
            run_processors(server)
            (channel,) = server._processors[0]._channels
            assert channel.interest == selectors.EVENT_READ
            raw.sendall(rest)
            assert read_frame(sock) == b"answer"


def test_requests_are_served_before_those_that_sent_many_key_updates(
    serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    def unread() -> list[int]:
        found = [fcntl.ioctl(channel.sock.fileno(), termios.FIONREAD, bytes(4)) for channel in channels]
        return sorted(struct.unpack("i", size)[0] for size in found)

    seen, go_on = list[list[int]](), threading.Event()

    def answer(frame: bytes) -> list[bytes]:
        seen.append(unread())
        return [frame]

    def hold() -> None:
        go_on.wait(PATIENCE_SECONDS)

    server = tls_server(serve, handler=Answering(answer))
    good, (processor,) = connect(server), server._processors
    channels = processor._channels
    with contextlib.ExitStack() as stack:
        floods = []
        for number in range(5):
            context = client_context(client_tls())
            context.keylog_filename = str(tmp_path / f"keys {number}")
            sock = stack.enter_context(encrypted(server, context))
            records = ClientRecords(tmp_path / f"keys {number}")
            floods.append((stack.enter_context(socket.socket(fileno=os.dup(sock.fileno()))), records))
        for raw, records in floods:
            raw.sendall(b"".join(records.key_updates(140) + records.data(b"\0\0\1\0") for _ in range(5)))
        eventually(lambda: sum(c.tls is not None and c.tls.gives_way for c in channels) == 5, "all are read")
        processor.execute(hold)
        for raw, records in floods:
            raw.sendall(b"".join(records.key_updates(140) + records.data(b"x") for _ in range(5)))
        pending = good.request([b"hello"])
        go_on.set()
        assert pending.result() == b"hello"
    assert [size > 15_000 for size in seen[0]].count(True) == 5, "none has been read before"


@pytest.mark.process
@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs the program openssl: ssl cannot renegotiate"
)
def test_renegotiation_is_refused_and_disturbs_nobody(serve: Serve, connect: Connect) -> None:
    server = tls_server(serve)
    good = connect(server)
    command = ["openssl", "s_client", "-tls1_2", "-connect", f"{HOST}:{server.port}"]
    asked = subprocess.run(command, input=b"R\n", capture_output=True, timeout=PATIENCE_SECONDS)
    assert b"RENEGOTIATING" in asked.stderr + asked.stdout
    assert b"no renegotiation" in asked.stderr
    assert ask(good) == b"hello"


def test_name_that_cannot_be_sent_is_an_error() -> None:
    with socket.create_server((HOST, 0)) as listening:
        connector = SocketConnector(tls=partial(client_context, client_tls()))
        with pytest.raises(NetworkError, match="cannot connect"):
            connector.connect("." + HOST, listening.getsockname()[1])
