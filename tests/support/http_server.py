"""A server of HTTP on this host, with or without TLS, for what the tests let it answer."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme


class QuietHandler(BaseHTTPRequestHandler):
    """Answers every request by ``respond``, and prints nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_CONNECT(self) -> None:
        self.respond()

    def respond(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def content(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: bytes) -> None:
        """Send a response; a client that is gone is no error."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


class LoopbackServer:
    """A server on a free port, or on ``port``, with TLS if it has a certificate."""

    def __init__(
        self,
        handler: type[QuietHandler],
        attributes: dict[str, Any],
        leaf: trustme.LeafCert | None = None,
        port: int = 0,
    ) -> None:
        """attributes: of the handlers, which ``handler`` declares."""
        self._server = ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (handler,), attributes))
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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
