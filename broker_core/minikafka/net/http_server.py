"""A small HTTP server for programs that ask for texts: scrapers of metrics, and health checks.

It serves GET and HEAD, a thread for each connection, of which there are few: connections above the limit are
closed. Python's own library does the protocol; it is imported with the first server, as it takes
milliseconds.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minikafka.base.errors import NetworkError
from minikafka.base.ids import host_port
from minikafka.net.network_send import error_reason

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
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
        try:
            self._server = _server(host, port, respond)
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
        """Stop serving. A second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _server(host: str, port: int, respond: Respond) -> ThreadingHTTPServer:
    from http import HTTPStatus
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    free = threading.BoundedSemaphore(MAX_CONNECTIONS)

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
            try:
                found = respond(self.path.partition("?")[0], self.headers.get("Accept", ""))
            except Exception:  # noqa: BLE001 - the client gets an answer
                _log.exception("unexpected error while serving %s", self.path)
                found = HttpText(500, "text/plain; charset=utf-8", b"unexpected error; see the log\n")
            if found is None:
                found = HttpText(404, "text/plain; charset=utf-8", b"not found\n")
            self.send_response(found.status, HTTPStatus(found.status).phrase)
            self.send_header("Content-Type", found.content_type)
            self.send_header("Content-Length", str(len(found.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if with_body:
                self.wfile.write(found.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            _log.debug(format, *args)

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
            if free.acquire(blocking=False):
                super().process_request(request, client_address)
            else:
                self.shutdown_request(request)

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                free.release()

        def handle_error(self, request: Any, client_address: Any) -> None:
            _log.debug("connection of %s ended with an error", client_address, exc_info=True)

    return Server((host, port), Handler)


def _family(host: str, port: int) -> socket.AddressFamily:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return found[0][0]
