"""A small HTTP server for programs that ask for texts: scrapers of metrics, and health checks.

It serves GET and HEAD, a thread for each connection, of which there are few: above the limit the one that has
been idle for longest is closed, so that nobody who only connects keeps a health check out. Python's own
library does the protocol; it is imported with the first server, as it takes milliseconds.

A server on a loopback address answers only to names of this host (the header ``Host``): a page of another
site could read it through a name that it points there (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import logging
import platform
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from minikafka.base.errors import NetworkError
from minikafka.base.ids import host_port
from minikafka.net.network_send import error_reason

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
_PLAIN = "text/plain; charset=utf-8"
IDLE_S = 60
"""The time after which an idle connection is closed."""


@dataclass(frozen=True, slots=True)
class HttpText:
    """A response."""

    status: int
    content_type: str
    body: bytes


Respond = Callable[[str, str], HttpText | None]
"""Takes the path, without its query, and the header ``Accept``; returns None if there is no such path."""


class HttpServer:
    """Serves what ``respond`` returns, from its construction until ``stop``. Raises NetworkError."""

    def __init__(self, host: str, port: int, respond: Respond) -> None:
        """host: "" for all addresses. port: 0 for a free one."""
        self._connections = _Connections()
        try:
            self._server = _server(host, port, respond, self._connections)
        except (OSError, OverflowError, UnicodeError) as error:
            address = host_port(host or "*", port)
            raise NetworkError(f"cannot listen on http://{address}: {error_reason(error)}") from None
        self.port: int = self._server.server_address[1]
        self.url = f"http://{host_port(host or '127.0.0.1', self.port)}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name=f"http-{self.port}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, and close all connections. A second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._connections.close()


class _Connections:
    """The open connections, the one that has been idle for longest first; those being served are not idle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[socket.socket, None] = {}
        self._served: set[socket.socket] = set()

    def add(self, sock: socket.socket) -> None:
        """Add a new connection. Above the limit, close the one that has been idle for longest."""
        with self._lock:
            self._idle[sock] = None
            if len(self._idle) + len(self._served) > MAX_CONNECTIONS:
                oldest = next(iter(self._idle))
                del self._idle[oldest]
                _shut_down(oldest)

    def serving(self, sock: socket.socket) -> bool:
        """Record that a request of a connection is being served. Return False if it was closed meanwhile."""
        with self._lock:
            if sock not in self._idle:
                return False
            del self._idle[sock]
            self._served.add(sock)
            return True

    def served(self, sock: socket.socket) -> None:
        """Record that a connection waits for its next request."""
        with self._lock:
            self._served.discard(sock)
            self._idle[sock] = None

    def remove(self, sock: socket.socket) -> None:
        """Remove a connection that has ended."""
        with self._lock:
            self._idle.pop(sock, None)
            self._served.discard(sock)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for sock in (*self._idle, *self._served):
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may have ended
        sock.shutdown(socket.SHUT_RDWR)


def is_name_of_this_host(host: str) -> bool:
    """Return True if a header ``Host`` has an address, or a name of this host, with or without a port."""
    name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    try:
        ip_address(name)
    except ValueError:
        return name in {"localhost", platform.node().lower()}
    return True


def _is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def _handler(respond: Respond, connections: _Connections) -> type[BaseHTTPRequestHandler]:
    from http import HTTPStatus
    from http.server import BaseHTTPRequestHandler

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "minikafka", ""
        timeout = IDLE_S
        disable_nagle_algorithm = True
        wbufsize = 1 << 16  # the head and a small body in one packet

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            if not connections.serving(self.connection):
                self.close_connection = True
                return
            try:
                found = self._response()
                self.send_response(found.status, HTTPStatus(found.status).phrase)
                self.send_header("Content-Type", found.content_type)
                self.send_header("Content-Length", str(len(found.body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                if with_body:
                    self.wfile.write(found.body)
                self.wfile.flush()
            finally:
                connections.served(self.connection)

        def _response(self) -> HttpText:
            if _is_loopback(self.connection.getsockname()[0]) and not is_name_of_this_host(
                self.headers.get("Host", "")
            ):
                return HttpText(421, _PLAIN, b"this is not a name of this host; use its address\n")
            try:
                found = respond(self.path.partition("?")[0], self.headers.get("Accept", ""))
            except Exception:  # noqa: BLE001 - the client gets an answer
                _log.exception("unexpected error while serving %s", self.path)
                return HttpText(500, _PLAIN, b"unexpected error; see the log\n")
            return found or HttpText(404, _PLAIN, b"not found\n")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            _log.debug(format, *args)

    return Handler


def _server(host: str, port: int, respond: Respond, connections: _Connections) -> ThreadingHTTPServer:
    from http.server import ThreadingHTTPServer

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 32
        address_family = _family(host, port)

        def server_bind(self) -> None:
            # Without the library's look-up of this host's name, which may take seconds.
            socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_address = self.socket.getsockname()
            self.server_name, self.server_port = host, self.server_address[1]

        def process_request(self, request: Any, client_address: Any) -> None:
            connections.add(request)
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            connections.remove(request)
            super().shutdown_request(request)

        def handle_error(self, request: Any, client_address: Any) -> None:
            _log.debug("connection of %s ended with an error", client_address, exc_info=True)

    return Server((host, port), _handler(respond, connections))


def _family(host: str, port: int) -> socket.AddressFamily:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return found[0][0]
