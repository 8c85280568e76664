"""Limits of connections whose clients have not authenticated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikafka.net.interfaces import Endpoint, Exchange
from minikafka.net.server import SocketServer
from tests.support.network import HOST, Keeping
from tests.support.plain_sockets import framed, is_closed, plain, read_frame

Serve = Callable[..., SocketServer]


def test_client_that_does_not_authenticate_in_time_is_disconnected(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    class Authenticating:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            if frame == b"secret":
                exchange.authenticated()
            exchange.respond([frame])

    endpoint = Endpoint("SASL", HOST, 0, demands_authentication=True)
    server = serve(Authenticating(), endpoints=[endpoint], authentication_timeout_ms=100)
    with plain(server) as good, plain(server) as silent, plain(server) as busy:
        good.sendall(framed(b"secret"))
        assert read_frame(good) == b"secret"
        busy.sendall(framed(b"not it"))
        assert read_frame(busy) == b"not it"
        assert is_closed(silent)
        assert is_closed(busy)
        good.sendall(framed(b"still here"))
        assert read_frame(good) == b"still here"
    assert caplog.text.count("closed: its client did not authenticate within 100 ms") == 1  # of one host


def test_authentication_deadline_waits_for_the_handler(serve: Serve, handler: Keeping) -> None:
    endpoint = Endpoint("SASL", HOST, 0, demands_authentication=True)
    server = serve(handler, endpoints=[endpoint], authentication_timeout_ms=20)
    with plain(server) as late, plain(server) as silent:
        late.sendall(framed(b"secret"))
        assert is_closed(silent)
        handler.exchanges[0].authenticated()
        handler.exchanges[0].respond([b"welcome"])
        assert read_frame(late) == b"welcome"
