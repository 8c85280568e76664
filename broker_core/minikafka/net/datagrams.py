"""Datagrams (UDP): reports that are worth sending, but not waiting for. One that is lost stays lost."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from minikafka.base.errors import NetworkError
from minikafka.base.ids import host_port
from minikafka.net.network_send import error_reason

DATAGRAM_BYTES_MAX = 1 << 16


class _LookUp:
    """The look-up of a name on a thread of its own, which may take as long as it likes."""

    WAIT_S = 1.0
    """The longest wait for the answer, which is there at once for addresses and most names."""
    AGAIN_S = 60.0
    """A name that is not known is looked up again after this time."""

    def __init__(self, host: str, port: int) -> None:
        """Begin. Raises RuntimeError if no thread can be had."""
        self.found: tuple[int, int, int, Any] | None = None
        """Family, kind, protocol and address of a socket."""
        self.done = threading.Event()
        self._name = host, port
        self._began_s = time.monotonic()
        threading.Thread(target=self._run, name="datagrams-name", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """True if the name was not known, and may be now."""
        return self.done.is_set() and self.found is None and time.monotonic() - self._began_s >= self.AGAIN_S

    def _run(self) -> None:
        with contextlib.suppress(OSError, UnicodeError):
            family, kind, protocol, _, address = socket.getaddrinfo(*self._name, type=socket.SOCK_DGRAM)[0]
            self.found = family, kind, protocol, address
        self.done.set()


_look_ups: dict[tuple[str, int], _LookUp] = {}
_look_ups_lock = threading.Lock()
_LOOK_UPS_MAX = 16


def _resolved(host: str, port: int) -> tuple[int, int, int, Any] | None:
    """Return family, kind, protocol and address of a socket; None for a name that is not known, or not yet.

    A process looks a name up once, and only that caller waits for it.
    """
    with _look_ups_lock:
        look_up = _look_ups.get((host, port))
        is_new = look_up is None or look_up.is_over
        if look_up is None or is_new:
            if len(_look_ups) >= _LOOK_UPS_MAX:
                _look_ups.clear()
            look_up = _look_ups[host, port] = _LookUp(host, port)
    if is_new:
        look_up.done.wait(look_up.WAIT_S)
    return look_up.found


def send_datagrams(host: str, port: int, datagrams: Iterable[bytes]) -> None:
    """Send datagrams without waiting for room, and at most a second for the look-up of a name, once. Raise
    nothing: what cannot be sent is dropped.
    """
    try:
        found = _resolved(host, port)
        if found is None:
            return
        family, kind, protocol, address = found
        with socket.socket(family, kind, protocol) as out:
            out.setblocking(False)
            for datagram in datagrams:
                out.sendto(datagram, address)
    except (OSError, UnicodeError, RuntimeError):
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
