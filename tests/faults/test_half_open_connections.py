"""Clients of a listener with TLS beside 2,000 connections whose handshakes never end."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import statistics
import time
from collections.abc import Iterator

import pytest

from minikafka.base.errors import NetworkError
from minikafka.net.connection import SocketConnection, SocketConnector
from minikafka.net.interfaces import Endpoint
from minikafka.net.server import SocketServer
from minikafka.net.tls import ServerTls, client_context
from tests.support.network import HOST, Answering, eventually
from tests.support.tls import broker_tls, client_tls

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HALF_OPEN = 2_000
REQUESTS = 500
SLACK_SECONDS = 0.0003
"""The least that makes a difference to a client: the medians are of tenths of a millisecond."""


@pytest.fixture
def server() -> Iterator[SocketServer]:
    endpoint = Endpoint("SSL", HOST, 0, tls=ServerTls(broker_tls()))
    server = SocketServer([endpoint], Answering(), processors=1)
    server.start()
    yield server
    server.stop(drain_ms=0)


@pytest.fixture
def half_open(server: SocketServer) -> Iterator[list[socket.socket]]:
    """A list for open sockets, which are closed after the test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    sockets: list[socket.socket] = []
    yield sockets
    for sock in sockets:
        sock.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def median_work_seconds(connection: SocketConnection) -> float:
    """Return the median of the processor time, of client and server, for a request.

    Its latency is little more than this, and this does not depend on what else the machine does.
    """
    found = []
    for _ in range(REQUESTS):
        began = time.process_time()
        connection.request([b"fine"]).result()
        found.append(time.process_time() - began)
    return statistics.median(found)


@pytest.mark.parametrize("sent", ["nothing", "half a hello", "a hello"])
def test_half_open_connections_do_not_slow_down_others(
    server: SocketServer, half_open: list[socket.socket], sent: str
) -> None:
    context, hello = client_context(client_tls()), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=HOST).do_handshake()
    whole = hello.read()
    data = {"nothing": b"", "half a hello": whole[: len(whole) // 2], "a hello": whole}[sent]
    connector = SocketConnector(tls=lambda: context)
    with contextlib.closing(connector.connect(HOST, server.port)) as good:
        alone = median_work_seconds(good)
        for _ in range(HALF_OPEN):
            sock = socket.create_connection((HOST, server.port))
            half_open.append(sock)
            with contextlib.suppress(OSError):  # it may be the one too many
                sock.sendall(data)
        # Hellos that were sent at once are answered meanwhile, beside the requests.
        eventually(
            lambda: median_work_seconds(good) <= 2 * alone + SLACK_SECONDS, "requests cost what they did"
        )

        def serves_another() -> bool:
            with (
                contextlib.suppress(NetworkError),
                contextlib.closing(connector.connect(HOST, server.port)) as new,
            ):
                return bytes(new.request([b"new"]).result()) == b"new"
            return False

        # The oldest make room, once they are a second old.
        eventually(serves_another, "a new client is served")
