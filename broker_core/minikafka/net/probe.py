"""Small questions to the network: a free port, who answers on one, and in what mode a ZooKeeper is."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence

_ANSWER_BYTES = 64 * 1024
_SRVR_MS = 200
_ASK_EVERY_SECONDS = 0.02
_SILENT_SECONDS = 2.0
"""How long a server that accepts connections and says nothing may still be about to start."""
_NOT_YET = b"not currently serving"


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


def addresses_of(host: str) -> list[str]:
    """The addresses that ``host`` stands for here; none for a name that cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]


def zookeeper_mode(host: str, port: int, timeout_ms: int = 1000) -> str | None:
    """What ``srvr`` says of the server there: ``standalone``, ``leader``, ``follower``; None when it does not
    serve.

    ``ruok`` would not do: ZooKeeper answers it before it serves.
    """
    answer = _srvr(host, port, timeout_ms) or b""
    for line in answer.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "Mode":
            return value.strip()
    return None


def wait_for_zookeeper(servers: Sequence[tuple[str, int]], patience_ms: int) -> None:
    """Return when one of ``servers`` serves, when they do not tell, or when the patience is over.

    For who is about to connect: a ZooKeeper that starts accepts connections a moment before it can serve
    them, forgets those, and a client would wait for its answer until the session's time-out.
    """
    deadline = time.monotonic() + patience_ms / 1000
    silent_until: float | None = None
    while (now := time.monotonic()) < deadline:
        for host, port in servers:
            answer = _srvr(host, port, _SRVR_MS)
            if answer is None or _NOT_YET in answer:
                continue
            if answer or (silent_until is not None and now > silent_until):
                return  # it serves, or forbids the question, or is something else
            silent_until = silent_until or now + _SILENT_SECONDS
        time.sleep(_ASK_EVERY_SECONDS)


def _srvr(host: str, port: int, timeout_ms: int) -> bytes | None:
    """What is answered to ``srvr``, in time; None when nobody listens."""
    try:
        connection = socket.create_connection((host, port), timeout_ms / 1000)
    except OSError:
        return None
    answer = b""
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"srvr")
        # The bound is for something else that listens there and never stops to talk.
        while len(answer) < _ANSWER_BYTES and (data := connection.recv(4096)):
            answer += data
    return answer


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
