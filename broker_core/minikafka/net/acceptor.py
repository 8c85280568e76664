"""The acceptor thread of a listener, which accepts connections and assigns them to processors."""

from __future__ import annotations

import contextlib
import errno
import heapq
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import NetworkError
from minikafka.net.event_loop import SelectorWakeup
from minikafka.net.network_send import error_reason
from minikafka.net.ports import server_ports
from minikafka.net.server_options import ServerOptions

logger = logging.getLogger("minikafka.net")

PAUSE_SECONDS = 0.2
"""The pause when the system has no descriptor or memory for another connection."""

MOST_THROTTLED = 256
"""Connections above the rate of their address that are kept open: with more, the first is closed at once."""

_PEER_GONE = {errno.ECONNABORTED, errno.EPROTO, errno.EINTR, errno.EAGAIN, errno.EWOULDBLOCK, errno.EPERM}
"""Errors of ``accept`` that concern one connection only."""


def listen(host: str, port: int, backlog: int, options: ServerOptions) -> socket.socket:
    """Return a non-blocking listening socket. An empty host means all addresses. Raises NetworkError.

    Port 0 chooses a free port outside the ephemeral range, so that it is still free after a restart; if there
    is none, any free port.
    """
    try:
        # AI_PASSIVE: no host is the wildcard address. The first answer is the system's preference.
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for choice in () if port else server_ports():
            with contextlib.suppress(OSError):
                return _listen(found[0], choice, backlog, options)
        return _listen(found[0], port, backlog, options)
    except (OSError, OverflowError, UnicodeError) as error:
        raise NetworkError(f"cannot listen on {host or '*'}:{port}: {error_reason(error)}") from None


def _listen(found: tuple[Any, ...], port: int, backlog: int, options: ServerOptions) -> socket.socket:
    """Return a listening socket at an address that ``getaddrinfo`` found. Raises OSError."""
    family, kind, protocol, _, (host, _, *more) = found
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit the buffers; the receive buffer must be set before the handshake to count fully.
        if options.receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
        if options.send_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        sock.bind((host, port, *more))
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


@dataclass(frozen=True, slots=True)
class Accepted:
    """The decision about a new connection."""

    pause_ms: int
    """The time in which to accept no other one."""
    throttle_ms: int
    """The time to keep it unread before it is closed; 0: it is assigned, or closed already."""


class Acceptor:
    """Owns the listening socket. Any thread may call ``start`` and ``stop``.

    ``assign`` is called with each connection and its address, on the acceptor's thread.
    """

    def __init__(
        self, sock: socket.socket, assign: Callable[[socket.socket, object], Accepted], name: str
    ) -> None:
        self._sock = sock
        self._assign = assign
        self._wakeup = SelectorWakeup()
        self._stopping = False
        self._out_of_resources = False
        self._throttled: list[tuple[float, int, socket.socket]] = []
        """A heap of connections to close: when (monotonic seconds), the descriptor, the socket."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting, and close the port."""
        self._stopping = True
        self._wakeup.wake()
        self._thread.join()
        self._wakeup.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._sock:
            selector.register(self._wakeup.reader, selectors.EVENT_READ)
            selector.register(self._sock, selectors.EVENT_READ)
            while not self._stopping:
                ready = {key.fileobj for key, _ in selector.select(self._close_throttled())}
                pause_seconds = self._accept() if self._sock in ready else 0.0
                if pause_seconds:
                    # Connections stay in the backlog and the port readable: without this it spins.
                    selector.unregister(self._sock)
                    selector.select(pause_seconds)
                    selector.register(self._sock, selectors.EVENT_READ)
        for _, _, sock in self._throttled:
            sock.close()

    def _close_throttled(self) -> float | None:
        """Close the connections whose time has come; return the seconds until that of the next one."""
        while self._throttled:
            left_seconds = self._throttled[0][0] - time.monotonic()
            if left_seconds > 0 and len(self._throttled) <= MOST_THROTTLED:
                return left_seconds
            heapq.heappop(self._throttled)[2].close()
        return None

    def _accept(self) -> float:
        """Accept one connection. Return the seconds to wait with the next one, or with this one if the system
        cannot accept it at the moment.
        """
        try:
            sock, address = self._sock.accept()
        except OSError as error:
            if error.errno in _PEER_GONE:
                return 0.0
            if not self._out_of_resources:
                logger.error("cannot accept connections, retrying: %s", error_reason(error))
            self._out_of_resources = True
            return PAUSE_SECONDS
        if self._out_of_resources:
            logger.info("accepting connections again")
        self._out_of_resources = False
        accepted = self._assign(sock, address)
        if accepted.throttle_ms:
            until = time.monotonic() + accepted.throttle_ms / 1000
            heapq.heappush(self._throttled, (until, sock.fileno(), sock))
        return accepted.pause_ms / 1000
