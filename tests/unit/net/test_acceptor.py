"""The acceptor when the system has no descriptors or memory left."""

from __future__ import annotations

import errno
import logging
import socket
from typing import Any

import pytest

from minikafka.net import acceptor
from minikafka.net.acceptor import Accepted, Acceptor
from tests.support.network import HOST, eventually
from tests.support.plain_sockets import is_closed


class Listener(socket.socket):
    """A listening socket whose ``accept`` fails a given number of times."""

    failures: int
    code: int
    attempts: int

    @classmethod
    def failing(cls, failures: int, code: int) -> Listener:
        listener = cls()
        listener.bind((HOST, 0))
        listener.listen(5)
        listener.setblocking(False)
        listener.failures, listener.code, listener.attempts = failures, code, 0
        return listener

    def accept(self) -> tuple[socket.socket, Any]:
        self.attempts += 1
        if self.failures:
            self.failures -= 1
            raise OSError(self.code, errno.errorcode[self.code])
        return super().accept()


class Catching:
    """Collects the accepted connections."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.pause_ms = self.throttle_ms = 0

    def deal(self, sock: socket.socket, address: object) -> Accepted:
        self.sockets.append(sock)
        return Accepted(self.pause_ms, self.throttle_ms)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_acceptor_without_descriptors_pauses_and_recovers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(acceptor, "PAUSE_SECONDS", 0.01)
    listener, catching = Listener.failing(3, code), Catching()
    running = Acceptor(listener, catching.deal, "net-acceptor-test")
    running.start()
    try:
        with socket.create_connection(listener.getsockname()):
            eventually(lambda: catching.sockets, "the connection is accepted in the end")
    finally:
        running.stop()
        for sock in catching.sockets:
            sock.close()
    assert listener.attempts == 4
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"cannot accept connections, retrying: {errno.errorcode[code]}",
        "accepting connections again",
    ]


def test_without_descriptors_the_acceptor_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "PAUSE_SECONDS", 600)
    listener = Listener.failing(1_000_000, errno.EMFILE)
    running = Acceptor(listener, Catching().deal, "net-acceptor-test")
    running.start()
    with socket.create_connection(listener.getsockname()):
        eventually(lambda: listener.attempts, "it has tried")
        # The stop ends the pause; a spinning acceptor would have tried again by now.
        running.stop()
    assert listener.attempts == 1


def test_aborted_connection_in_the_backlog_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    listener, catching = Listener.failing(1, errno.ECONNABORTED), Catching()
    running = Acceptor(listener, catching.deal, "net-acceptor-test")
    running.start()
    try:
        with socket.create_connection(listener.getsockname()):
            eventually(lambda: catching.sockets, "the connection is accepted")
    finally:
        running.stop()
        for sock in catching.sockets:
            sock.close()
    assert not caplog.records


def test_acceptor_that_is_told_to_wait_stops_at_once_and_accepts_no_other() -> None:
    listener, catching = Listener.failing(0, 0), Catching()
    catching.pause_ms = 3_600_000
    running = Acceptor(listener, catching.deal, "net-acceptor-test")
    with socket.create_connection(listener.getsockname()), socket.create_connection(listener.getsockname()):
        running.start()
        eventually(lambda: catching.sockets, "the first connection is accepted")
        running.stop()
    assert len(catching.sockets) == listener.attempts == 1
    catching.sockets[0].close()


def test_of_too_many_throttled_connections_the_first_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acceptor, "MOST_THROTTLED", 1)
    listener, catching = Listener.failing(0, 0), Catching()
    catching.throttle_ms = 3_600_000
    running = Acceptor(listener, catching.deal, "net-acceptor-test")
    running.start()
    with socket.create_connection(listener.getsockname()) as first:
        eventually(lambda: catching.sockets, "the first connection is accepted")
        with socket.create_connection(listener.getsockname()) as second:
            assert is_closed(first)
            assert len(catching.sockets) == 2
            running.stop()
            assert is_closed(second)
