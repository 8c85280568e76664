"""Fixtures of the network's tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from minikafka.net.interfaces import Endpoint, RequestHandler
from minikafka.net.server import SocketServer
from minikafka.net.tls import ServerTls, client_context
from tests.support.network import HOST, Keeping, MemoryNetworkHarness, NetworkHarness, SocketNetworkHarness
from tests.support.tls import broker_tls, client_tls


def tls_harness() -> SocketNetworkHarness:
    """Return a network of real sockets with TLS."""
    context = client_context(client_tls())
    return SocketNetworkHarness(ServerTls(broker_tls()), lambda: context)


@pytest.fixture(
    params=[SocketNetworkHarness, tls_harness, MemoryNetworkHarness], ids=["sockets", "tls", "memory"]
)
def harness(request: pytest.FixtureRequest) -> Iterator[NetworkHarness]:
    """All networks, one after the other."""
    harness: NetworkHarness = request.param()
    yield harness
    harness.close()


@pytest.fixture
def handler() -> Keeping:
    """A handler that answers when the test does."""
    return Keeping()


@pytest.fixture
def serve() -> Iterator[Callable[..., SocketServer]]:
    """Start a server over real sockets; after the test it is stopped, and its threads have ended."""
    before = set(threading.enumerate())
    servers: list[SocketServer] = []

    def start(
        handler: RequestHandler,
        listeners: Sequence[str] = ("PLAINTEXT",),
        endpoints: Sequence[Endpoint] = (),
        **limits: Any,
    ) -> SocketServer:
        endpoints = endpoints or [Endpoint(name, HOST, 0) for name in listeners]
        server = SocketServer(endpoints, handler, **{"processors": 1, **limits})
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop(drain_ms=0)
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("net-")]
    assert not left
