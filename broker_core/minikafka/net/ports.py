"""TCP ports: choose a free one, check whether a server answers, and ask a ZooKeeper server for its mode.

Chosen ports are outside the system's range of ephemeral ports: a restarted server must find its port free,
and any connection of the machine may be using a port of that range by then.
"""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

_ANSWER_BYTES = 64 * 1024
_SRVR_MS = 200
_ASK_EVERY_SECONDS = 0.02
_SILENT_SECONDS = 2.0
"""The time for which a server that accepts connections but does not answer may still be starting."""
_NOT_YET = b"not currently serving"


_PORT_MIN = 20_000
"""Lower ports are the defaults of many programs."""
_PORT_MAX = 65_535
_PORT_TRIES = 50
_LINUX_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_IANA_EPHEMERAL = range(49_152, 65_536)


@cache
def ephemeral_ports() -> range:
    """Return the range from which the system assigns ports to connections."""
    try:
        if sys.platform == "linux":
            first, last = _LINUX_RANGE.read_text(encoding="ascii").split()
        else:
            names = [f"net.inet.ip.portrange.{name}" for name in ("first", "last")]
            asked = subprocess.run(
                ["sysctl", "-n", *names], capture_output=True, text=True, check=True, timeout=5
            )
            first, last = asked.stdout.split()
        return range(int(first), int(last) + 1)
    except (OSError, ValueError, subprocess.SubprocessError):
        return _IANA_EPHEMERAL


def server_ports(ephemeral: range | None = None) -> Iterator[int]:
    """Yield non-ephemeral ports for a server to try, in random order, and finally 0: the system's choice.

    The random order makes conflicts between concurrent processes unlikely.
    """
    taken = ephemeral_ports() if ephemeral is None else ephemeral
    allowed = [
        *range(_PORT_MIN, min(taken.start, _PORT_MAX + 1)),
        *range(max(_PORT_MIN, taken.stop), _PORT_MAX + 1),
    ]
    yield from random.SystemRandom().sample(allowed, min(_PORT_TRIES, len(allowed)))
    yield 0


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port of ``host``. Another process may take it before it is used."""
    for port in server_ports():
        if port and can_bind(host, port):
            return port
    with socket.socket(_family(host), socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def can_bind(host: str, port: int) -> bool:
    """Return whether a server could listen on ``port`` of ``host`` now."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as listener:
        # As servers do, so that closing connections of an earlier server do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
        return True


def can_connect(host: str, port: int, timeout_ms: int = 1000) -> bool:
    """Return whether a server accepts connections there."""
    try:
        socket.create_connection((host, port), timeout_ms / 1000).close()
    except OSError:
        return False
    return True


def addresses_of(host: str) -> list[str]:
    """Return the addresses of ``host``; none if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]


def zookeeper_mode(host: str, port: int, timeout_ms: int = 1000) -> str | None:
    """Return the mode from ``srvr``: ``standalone``, ``leader`` or ``follower``; None when it does not serve.

    ``ruok`` is not enough: ZooKeeper answers it before it serves.
    """
    answer = _srvr(host, port, timeout_ms) or b""
    for line in answer.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "Mode":
            return value.strip()
    return None


def wait_for_zookeeper(servers: Sequence[tuple[str, int]], patience_ms: int) -> None:
    """Wait until one of ``servers`` serves or does not report its state, for at most ``patience_ms``.

    Call it before connecting: a starting ZooKeeper accepts connections a moment before it can serve them and
    drops those, so a client would wait until its session time-out.
    """
    deadline = time.monotonic() + patience_ms / 1000
    silent_until: float | None = None
    while (now := time.monotonic()) < deadline:
        for host, port in servers:
            answer = _srvr(host, port, _SRVR_MS)
            if answer is None or _NOT_YET in answer:
                continue
            if answer or (silent_until is not None and now > silent_until):
                return  # it serves, does not allow srvr, or is no ZooKeeper
            silent_until = silent_until or now + _SILENT_SECONDS
        time.sleep(_ASK_EVERY_SECONDS)


def _srvr(host: str, port: int, timeout_ms: int) -> bytes | None:
    """Return the answer to ``srvr`` within the time-out; None when no server listens."""
    try:
        connection = socket.create_connection((host, port), timeout_ms / 1000)
    except OSError:
        return None
    answer = b""
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"srvr")
        # The limit is for other servers there that never stop sending.
        while len(answer) < _ANSWER_BYTES and (data := connection.recv(4096)):
            answer += data
    return answer


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
