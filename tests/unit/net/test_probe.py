"""Questions to ports."""

from __future__ import annotations

import socket
import threading

import pytest

from minikafka.net.probe import can_bind, can_connect, free_port, zookeeper_mode
from tests.unit.net.support import HOST, PATIENCE_SECONDS


def test_a_free_port_can_be_bound_and_a_taken_one_cannot() -> None:
    port = free_port()
    assert can_bind(HOST, port)
    with socket.create_server((HOST, port)):
        assert not can_bind(HOST, port)


def test_a_port_answers_only_while_somebody_listens() -> None:
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
def test_the_mode_is_what_srvr_says(answer: bytes, mode: str | None) -> None:
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


def test_nobody_there_has_no_mode() -> None:
    assert zookeeper_mode(HOST, free_port()) is None
