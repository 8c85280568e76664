"""Requests to identity providers, against servers on this host."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from minikafka.base.errors import ConfigError, NetworkError
from minikafka.base.secrets import Password
from minikafka.net.http import fetch
from minikafka.security.sasl.oidc import MAX_RESPONSE_BYTES, HttpRequest
from tests.support.tls import authority, inline_trust


class Handler(BaseHTTPRequestHandler):
    """Answers by the path of a request."""

    protocol_version = "HTTP/1.1"
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
            self._answer(200, b'{"access_token":"t"}')

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


class Provider:
    """An identity provider on this host, with TLS if it has a certificate."""

    def __init__(self, leaf: trustme.LeafCert | None = None) -> None:
        self.received: list[tuple[str, str, dict[str, str], bytes]] = []
        self.released = threading.Event()
        attributes = {"received": self.received, "released": self.released}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), attributes))
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
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def start() -> Iterator[Callable[..., Provider]]:
    providers: list[Provider] = []

    def start(leaf: trustme.LeafCert | None = None) -> Provider:
        providers.append(Provider(leaf))
        return providers[-1]

    yield start
    for provider in providers:
        provider.close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def request(url: str, **fields: object) -> HttpRequest:
    return replace(HttpRequest(url, read_timeout_ms=5_000), **fields)


def trusting(ca: trustme.CA) -> dict[str, Password]:
    return {name: Password(value) for name, value in inline_trust(ca).items()}


def reason_of(asked: HttpRequest) -> str:
    with pytest.raises(NetworkError) as failed:
        fetch(asked)
    text = str(failed.value)
    assert "tiger" not in text
    assert "\n" not in text
    return text


def test_request_is_posted_with_its_headers_and_body(start: Callable[..., Provider]) -> None:
    provider = start()
    response = fetch(
        request(f"{provider.url}/token?a=b", headers={"Authorization": "Basic x"}, body=b"grant")
    )
    assert (response.status, response.body) == (200, b'{"access_token":"t"}')
    ((method, path, headers, body),) = provider.received
    assert (method, path, headers["Authorization"], body) == ("POST", "/token?a=b", "Basic x", b"grant")


def test_request_without_a_body_is_a_get(start: Callable[..., Provider]) -> None:
    provider = start()
    assert fetch(request(provider.url)).status == 200
    assert provider.received[0][:2] == ("GET", "/")


def test_refusal_is_a_response(start: Callable[..., Provider]) -> None:
    response = fetch(request(f"{start().url}/refused"))
    assert (response.status, response.body) == (401, b'{"error":"invalid_client"}')


def test_redirect_is_not_followed(start: Callable[..., Provider]) -> None:
    provider = start()
    assert fetch(request(f"{provider.url}/redirect")).status == 302
    assert len(provider.received) == 1


@pytest.mark.parametrize("path", ["hang", "slow"])
def test_provider_that_does_not_end_is_left_in_time(start: Callable[..., Provider], path: str) -> None:
    asked = request(f"{start().url}/{path}", read_timeout_ms=100)
    assert "no response in time" in reason_of(asked)


def test_response_has_a_limit(start: Callable[..., Provider]) -> None:
    assert "larger than 1048576 bytes" in reason_of(request(f"{start().url}/huge"))


def test_other_protocol_is_a_clear_error(start: Callable[..., Provider]) -> None:
    assert "cannot reach the identity provider" in reason_of(request(f"{start().url}/garbage"))


def test_port_without_a_server_is_named_without_the_query(start: Callable[..., Provider]) -> None:
    provider = start()
    port = provider.port
    provider.close()
    text = reason_of(request(f"http://127.0.0.1:{port}/token?key=tiger"))
    assert f"http://127.0.0.1:{port}/token: cannot reach the identity provider: Connection refused" in text


def test_address_without_tls_is_refused_unless_permitted() -> None:
    with pytest.raises(ConfigError, match="allowHttp"):
        fetch(request("http://example.com/token"))


# TLS.


def test_certificate_of_a_trusted_ca_is_accepted(start: Callable[..., Provider]) -> None:
    provider = start(authority().issue_cert("127.0.0.1"))
    assert fetch(request(provider.url, ssl_options=trusting(authority()))).status == 200


@pytest.mark.parametrize("case", ["other ca", "other host"])
def test_certificate_that_does_not_fit_is_refused(start: Callable[..., Provider], case: str) -> None:
    name = "other.example" if case == "other host" else "127.0.0.1"
    provider = start(authority().issue_cert(name))
    trusted = authority("strangers") if case == "other ca" else authority()
    assert "certificate" in reason_of(request(provider.url, ssl_options=trusting(trusted)))
    assert provider.received == []


def test_system_authorities_are_trusted_without_options(start: Callable[..., Provider]) -> None:
    assert "certificate" in reason_of(request(start(authority().issue_cert("127.0.0.1")).url))


def test_provider_that_never_ends_its_handshake_is_left_in_time(start: Callable[..., Provider]) -> None:
    silent = start().url.replace("http:", "https:")
    assert "identity provider" in reason_of(request(silent, read_timeout_ms=300))


def test_proxy_of_the_environment_is_used_for_tls_alone(
    start: Callable[..., Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, provider = start(), start()
    address = f"http://user:tiger@127.0.0.1:{proxy.port}"
    monkeypatch.setenv("https_proxy", address)
    monkeypatch.setenv("http_proxy", address)
    assert fetch(request(provider.url)).status == 200
    assert "407" in reason_of(request("https://example.com/token"))
    ((method, path, headers, _),) = proxy.received
    assert (method, path) == ("CONNECT", "example.com:443")
    assert headers["Proxy-Authorization"] == "Basic dXNlcjp0aWdlcg=="
