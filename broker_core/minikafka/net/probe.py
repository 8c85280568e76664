"""Small questions to the network: a free port, who answers on one, and in what mode a ZooKeeper is."""

from __future__ import annotations

import socket

_ANSWER_BYTES = 64 * 1024


def free_port(host: str = "127.0.0.1") -> int:
    """A port of ``host`` that nobody listens on now. Somebody else may take it before it is used."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def can_bind(host: str, port: int) -> bool:
    """Whether a server could listen on ``port`` of ``host`` now."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as listener:
        # As servers do, so that connections of an earlier one that are still closing do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
        return True


def can_connect(host: str, port: int, timeout_ms: int = 1000) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((host, port), timeout_ms / 1000).close()
    except OSError:
        return False
    return True


def zookeeper_mode(host: str, port: int, timeout_ms: int = 1000) -> str | None:
    """What ``srvr`` says of the server there: ``standalone``, ``leader``, ``follower``; None when it does not
    serve.

    ``ruok`` would not do: ZooKeeper answers it before it serves.
    """
    answer = b""
    try:
        with socket.create_connection((host, port), timeout_ms / 1000) as connection:
            connection.sendall(b"srvr")
            # The bound is for something else that listens there and never stops to talk.
            while len(answer) < _ANSWER_BYTES and (data := connection.recv(4096)):
                answer += data
    except OSError:
        return None
    for line in answer.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "Mode":
            return value.strip()
    return None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
