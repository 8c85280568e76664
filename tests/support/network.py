"""Handlers and harnesses for the tests of the network."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from minikafka.base.clock import Clock, SystemClock
from minikafka.net import connection as connection_module
from minikafka.net.connection import SocketConnection, SocketConnector
from minikafka.net.interfaces import (
    Connection,
    Connector,
    Endpoint,
    Exchange,
    PendingResponse,
    RequestHandler,
    Server,
    ServerTlsContext,
)
from minikafka.net.memory import MemoryNetwork
from minikafka.net.server import SocketServer
from minikafka.wire.frame_parts import Part

HOST = "127.0.0.1"
PATIENCE_SECONDS = 20
"""The time-out of waits. Only a failing test reaches it."""


def eventually(condition: Callable[[], Any], what: str) -> None:
    """Poll until ``condition()`` holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {PATIENCE_SECONDS} s: waited until {what}")
        time.sleep(0.002)


@dataclass
class Answering:
    """A handler that answers each request at once with the result of ``answer``."""

    answer: Callable[[bytes], Sequence[Part]] = lambda frame: [frame]
    seen: list[bytes] = field(default_factory=list)

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        self.seen.append(bytes(frame))
        exchange.respond(self.answer(bytes(frame)))


@dataclass
class Keeping:
    """A handler that keeps each exchange for the test to answer."""

    exchanges: list[Exchange] = field(default_factory=list)
    frames: list[memoryview] = field(default_factory=list)

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        self.frames.append(frame)
        self.exchanges.append(exchange)


def run_processors(server: SocketServer) -> None:
    """Wait until each processor has asked its selector twice more, and served the ready connections."""
    for _ in range(3):
        for processor in server._processors:
            reached = threading.Event()
            processor.execute(reached.set)
            assert reached.wait(PATIENCE_SECONDS) or not processor._thread.is_alive()


def wait_any_after_reader(
    connection: SocketConnection, pending: PendingResponse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that ``wait_any`` sees at once what the reader of a connection received before it reads itself.

    The reader role is held. It is released after a frame, while ``wait_any`` is about to wait.
    """
    wait = connection_module._wait_readable

    def wait_late(*arguments: Any) -> None:
        if connection._has_reader:
            eventually(connection._receive_frame, "the answer has come")
            connection.release_reader()
        wait(*arguments)

    monkeypatch.setattr(connection_module, "_wait_readable", wait_late)
    before = time.monotonic()
    assert SocketConnector().wait_any([pending], PATIENCE_SECONDS * 1000)
    assert time.monotonic() - before < PATIENCE_SECONDS / 2


class NetworkHarness(Protocol):
    """A network with a server and clients, and ways to wait for them."""

    def listen(
        self,
        handler: RequestHandler,
        *,
        max_request_bytes: int = 1 << 20,
        port: int = 0,
        demands_authentication: bool = False,
    ) -> Server: ...

    def connect(self, server: Server) -> Connection: ...

    @property
    def connector(self) -> Connector:
        """The connector of the clients."""

    @property
    def clock(self) -> Clock:
        """The server's clock."""

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Run until ``condition()`` holds."""

    def until_later(self, condition: Callable[[], Any], what: str) -> None:
        """Run, and let time pass, until ``condition()`` holds."""

    def settle(self) -> None:
        """Run everything that is due now."""

    def close(self) -> None: ...


class SocketNetworkHarness:
    """Real sockets on the loopback interface, one processor thread."""

    clock = SystemClock()

    def __init__(
        self,
        server_tls: ServerTlsContext | None = None,
        client_tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._tls = server_tls
        self.connector = SocketConnector(request_timeout_ms=PATIENCE_SECONDS * 1000, tls=client_tls)
        self._servers: list[SocketServer] = []
        self._connections: list[Connection] = []

    def listen(
        self,
        handler: RequestHandler,
        *,
        max_request_bytes: int = 1 << 20,
        port: int = 0,
        demands_authentication: bool = False,
    ) -> SocketServer:
        endpoint = Endpoint("LISTENER", HOST, port, demands_authentication, self._tls)
        server = SocketServer([endpoint], handler, processors=1, max_request_bytes=max_request_bytes)
        server.start()
        self._servers.append(server)
        return server

    def connect(self, server: Server) -> Connection:
        connection = self.connector.connect(HOST, server.port)
        self._connections.append(connection)
        return connection

    def until(self, condition: Callable[[], Any], what: str) -> None:
        eventually(condition, what)

    until_later = until

    def settle(self) -> None:
        for server in self._servers:
            run_processors(server)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for server in self._servers:
            server.stop(drain_ms=0)


class MemoryNetworkHarness:
    """The network in memory."""

    def __init__(self) -> None:
        self.network = self.connector = MemoryNetwork()
        self.clock = self.network.clock

    def listen(
        self,
        handler: RequestHandler,
        *,
        max_request_bytes: int = 1 << 20,
        port: int = 0,
        demands_authentication: bool = False,
    ) -> Server:
        endpoint = Endpoint("PLAINTEXT", HOST, port, demands_authentication)
        return self.network.listen_all([endpoint], handler, max_request_bytes=max_request_bytes)

    def connect(self, server: Server) -> Connection:
        return self.network.connect(HOST, server.port)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        self.network.run()
        assert condition(), what

    def until_later(self, condition: Callable[[], Any], what: str) -> None:
        assert self.network.wait(condition, self.clock.monotonic_ms() + PATIENCE_SECONDS * 1000), what

    def settle(self) -> None:
        self.network.run()

    def close(self) -> None:
        pass


@contextmanager
def notifications(path: Path) -> Iterator[Callable[[], list[str]]]:
    """Receive the messages to systemd at a socket; yield what returns those that have come."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.setblocking(False)

        def received() -> list[str]:
            found: list[str] = []
            with suppress(BlockingIOError):
                while True:
                    found.append(receiver.recv(4096).decode())
            return found

        yield received
