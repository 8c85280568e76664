"""An identity provider on this host: tokens and keys over HTTP, with or without TLS."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import trustme

from minikafka.security.sasl.oidc import MAX_RESPONSE_BYTES

Answer = tuple[int, bytes]
"""Status and body."""


class _Handler(BaseHTTPRequestHandler):
    """Answers by the path of a request; some paths misbehave."""

    protocol_version = "HTTP/1.1"
    answers: dict[str, Answer | Callable[[], Answer]]
    received: list[tuple[str, str, dict[str, str], bytes]]
    released: threading.Event

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.received.append((self.command, self.path, dict(self.headers), body))
        if self.path == "/hang":
            self.released.wait(30)
        if self.path == "/slow":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            while not self.released.wait(0.01):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    break
            return
        if self.path == "/huge":
            self._answer(200, b"x" * (MAX_RESPONSE_BYTES + 1))
        elif self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/token")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/refused":
            self._answer(401, b'{"error":"invalid_client"}')
        elif self.path == "/garbage":
            self.wfile.write(b"\x15\x03\x03\x00\x02\x02\x28")
            self.close_connection = True
        else:
            found = self.answers.get(self.path, (200, b'{"access_token":"t"}'))
            self._answer(*(found() if callable(found) else found))

    def do_POST(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        self.received.append((self.command, self.path, dict(self.headers), b""))
        self.send_error(407, "no such user")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


class IdentityProvider:
    """An identity provider on this host, with TLS if it has a certificate."""

    def __init__(self, leaf: trustme.LeafCert | None = None) -> None:
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        """Path -> status and body, or what makes them for each request; a token for any other path."""
        self.received: list[tuple[str, str, dict[str, str], bytes]] = []
        """Method, path, headers and body of each request."""
        self.released = threading.Event()
        attributes = {"answers": self.answers, "received": self.received, "released": self.released}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), attributes))
        self._server.handle_error = lambda *arguments: None  # type: ignore[method-assign]
        scheme = "http"
        if leaf is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            leaf.configure_cert(context)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        self.port = self._server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Stop, whatever is under way."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
