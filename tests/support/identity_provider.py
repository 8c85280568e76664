"""An identity provider on this host: tokens and keys over HTTP, with or without TLS."""

from __future__ import annotations

import threading
from collections.abc import Callable

import trustme

from minikafka.security.sasl.oidc import MAX_RESPONSE_BYTES
from tests.support.http_server import LoopbackServer, QuietHandler

Answer = tuple[int, bytes]
"""Status and body."""


class _Handler(QuietHandler):
    """Answers by the path of a request; some paths misbehave."""

    answers: dict[str, Answer | Callable[[], Answer]]
    received: list[tuple[str, str, dict[str, str], bytes]]
    released: threading.Event

    def respond(self) -> None:
        self.received.append((self.command, self.path, dict(self.headers), self.content()))
        if self.command == "CONNECT":
            self.send_error(407, "no such user")
            return
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
            self.answer(200, b"x" * (MAX_RESPONSE_BYTES + 1))
        elif self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/token")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/refused":
            self.answer(401, b'{"error":"invalid_client"}')
        elif self.path == "/garbage":
            self.wfile.write(b"\x15\x03\x03\x00\x02\x02\x28")
            self.close_connection = True
        else:
            found = self.answers.get(self.path, (200, b'{"access_token":"t"}'))
            self.answer(*(found() if callable(found) else found))


class IdentityProvider(LoopbackServer):
    """An identity provider on this host, with TLS if it has a certificate."""

    def __init__(self, leaf: trustme.LeafCert | None = None) -> None:
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        """Path -> status and body, or what makes them for each request; a token for any other path."""
        self.received: list[tuple[str, str, dict[str, str], bytes]] = []
        """Method, path, headers and body of each request."""
        self.released = threading.Event()
        attributes = {"answers": self.answers, "received": self.received, "released": self.released}
        super().__init__(_Handler, attributes, leaf)

    def close(self) -> None:
        """Stop, whatever is under way."""
        self.released.set()
        super().close()
