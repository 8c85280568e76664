"""Small questions to the network: a free port, who answers on one, and in what mode a ZooKeeper is.

A port that is chosen here lies outside the range from which the system gives connections theirs (ephemeral
ports): a server that starts again must find its port free, and in that range any connection of the machine
may have it by then.
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
"""How long a server that accepts connections and says nothing may still be about to start."""
_NOT_YET = b"not currently serving"


_PORT_MIN = 20_000
"""Below lie the ports that are the defaults of many programs."""
_PORT_MAX = 65_535
_PORT_TRIES = 50
_LINUX_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_IANA_EPHEMERAL = range(49_152, 65_536)


@cache
def ephemeral_ports() -> range:
    """The ports that the system gives to connections that ask for none."""
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
    """Ports for a server to try, in random order, none of them ephemeral; at the end 0: the system's choice.

    Two processes that look at the same time hardly meet.
    """
    taken = ephemeral_ports() if ephemeral is None else ephemeral
    allowed = [port for port in range(_PORT_MIN, _PORT_MAX + 1) if port not in taken]
    yield from random.SystemRandom().sample(allowed, min(_PORT_TRIES, len(allowed)))
    yield 0


def free_port(host: str = "127.0.0.1") -> int:
    """A port of ``host`` that nobody listens on now. Somebody else may take it before it is used."""
    for port in server_ports():
        if port and can_bind(host, port):
            return port
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
