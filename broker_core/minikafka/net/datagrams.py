"""Datagrams (UDP): reports that are worth sending, but not waiting for. One that is lost stays lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from minikafka.base.errors import NetworkError
from minikafka.base.ids import host_port
from minikafka.net.network_send import error_reason

DATAGRAM_BYTES_MAX = 1 << 16


@lru_cache(maxsize=16)
def _resolved(host: str, port: int) -> tuple[int, int, int, Any]:
    """Return family, kind, protocol and address of a socket. A process looks each name up once."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    return family, kind, protocol, address


def send_datagrams(host: str, port: int, datagrams: Iterable[bytes]) -> None:
    """Send datagrams without waiting for room. Raise nothing: what cannot be sent is dropped."""
    try:
        family, kind, protocol, address = _resolved(host, port)
        with socket.socket(family, kind, protocol) as out:
            out.setblocking(False)
            for datagram in datagrams:
                out.sendto(datagram, address)
    except (OSError, UnicodeError):
        return


class DatagramReceiver:
    """Receives datagrams on a thread of its own, from its construction until ``close``."""

    def __init__(self, host: str, port: int, take: Callable[[bytes], None]) -> None:
        """``take`` is called with each datagram; it must not raise. port: 0 for a free one. Raises
        NetworkError for an address that cannot be used.
        """
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            self._socket = socket.socket(family, kind, protocol)
        except (OSError, UnicodeError) as error:
            raise _unusable(host, port, error) from None
        try:
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise _unusable(host, port, error) from None
        self.port: int = self._socket.getsockname()[1]
        self._take = take
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"datagrams-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop receiving. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        # A datagram wakes the thread: closing a socket does not end a wait for it everywhere.
        with socket.socket(self._socket.family, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._closed:
            datagram = self._socket.recv(DATAGRAM_BYTES_MAX)
            if not self._closed:
                self._take(datagram)


def _unusable(host: str, port: int, error: Exception) -> NetworkError:
    return NetworkError(f"cannot receive datagrams at {host_port(host, port)}: {error_reason(error)}")
