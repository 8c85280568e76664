"""Free ports, reachability checks, and the mode of a ZooKeeper server."""

from __future__ import annotations

import socket
import threading

import pytest

from minikafka.net import ports
from minikafka.net.ports import (
    can_bind,
    can_connect,
    ephemeral_ports,
    free_port,
    server_ports,
    wait_for_zookeeper,
    zookeeper_mode,
)
from tests.support.network import HOST, PATIENCE_SECONDS


def test_a_free_port_can_be_bound_and_a_taken_one_cannot() -> None:
    port = free_port()
    assert can_bind(HOST, port)
    with socket.create_server((HOST, port)):
        assert not can_bind(HOST, port)


def test_server_ports_are_outside_the_ephemeral_range() -> None:
    assert free_port() not in ephemeral_ports()
    tried = list(server_ports(range(32768, 61000)))
    assert tried[-1] == 0
    assert len(set(tried)) == len(tried) > 20
    assert all(20_000 <= port < 32768 or port >= 61000 for port in tried[:-1])


def test_where_every_port_is_for_connections_the_system_chooses() -> None:
    assert list(server_ports(range(1024, 65536))) == [0]


def test_port_is_reachable_only_with_a_listener() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        assert can_connect(HOST, port)
    assert not can_connect(HOST, port)


@pytest.mark.parametrize(
    ("answer", "mode"),
    [
        (
            b"Zookeeper version: 3.9\nLatency min/avg/max: 0/0.0/0\nMode: standalone\nNode count: 5\n",
            "standalone",
        ),
        (b"Mode: leader\n", "leader"),
        (b"This ZooKeeper instance is not currently serving requests\n", None),
        (b"", None),
        (b"\xff\xfe" * 100_000, None),
    ],
)
def test_mode_is_read_from_srvr(answer: bytes, mode: str | None) -> None:
    def serve_one() -> None:
        with listener.accept()[0] as peer:
            asked.append(peer.recv(4))
            try:
                peer.sendall(answer)
            except OSError:
                return

    asked: list[bytes] = []
    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=serve_one)
        thread.start()
        assert zookeeper_mode(HOST, listener.getsockname()[1]) == mode
        thread.join(PATIENCE_SECONDS)
    assert asked == [b"srvr"]


def test_port_without_a_server_has_no_mode() -> None:
    assert zookeeper_mode(HOST, free_port()) is None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_SRVR_MS", 20)
    monkeypatch.setattr(ports, "_SILENT_SECONDS", 0.1)
    monkeypatch.setattr(ports, "_ASK_EVERY_SECONDS", 0.0)


def answering(listener: socket.socket, answers: list[bytes]) -> threading.Thread:
    """Answer one connection after the other; those of b"" get nothing, as from a starting ZooKeeper."""

    def serve() -> None:
        forgotten = []
        for answer in answers:
            peer = listener.accept()[0]
            forgotten.append(peer)
            if answer:
                with peer:
                    peer.recv(4)
                    peer.sendall(answer)
        for peer in forgotten:
            peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "answers",
    [
        [b"Mode: standalone\n"],
        [b"", b"", b"Mode: standalone\n"],
        [b"This ZooKeeper instance is not currently serving requests\n", b"", b"Mode: follower\n"],
        [b"srvr is not executed because it is not in the whitelist.\n"],
    ],
)
@pytest.mark.usefixtures("impatient")
def test_wait_for_zookeeper_ends_when_it_serves_or_is_unknown(answers: list[bytes]) -> None:
    with socket.create_server((HOST, 0)) as listener:
        thread = answering(listener, answers)
        wait_for_zookeeper([(HOST, free_port()), (HOST, listener.getsockname()[1])], 10_000)
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@pytest.mark.usefixtures("impatient")
def test_silent_server_ends_the_wait_early() -> None:
    with socket.create_server((HOST, 0)) as listener:
        wait_for_zookeeper([(HOST, listener.getsockname()[1])], 3_600_000)


def test_the_wait_for_a_server_that_is_not_there_has_an_end() -> None:
    wait_for_zookeeper([(HOST, free_port())], 30)
