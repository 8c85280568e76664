"""Requests to identity providers, against servers on this host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import trustme

from minikafka.base.errors import ConfigError, NetworkError
from minikafka.base.secrets import Password
from minikafka.net.http import fetch
from minikafka.security.sasl.oidc import HttpRequest
from tests.support.identity_provider import IdentityProvider
from tests.support.tls import authority, inline_trust


@pytest.fixture
def start() -> Iterator[Callable[..., IdentityProvider]]:
    providers: list[IdentityProvider] = []

    def start(leaf: trustme.LeafCert | None = None) -> IdentityProvider:
        providers.append(IdentityProvider(leaf))
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


def test_request_is_posted_with_its_headers_and_body(start: Callable[..., IdentityProvider]) -> None:
    provider = start()
    response = fetch(
        request(f"{provider.url}/token?a=b", headers={"Authorization": "Basic x"}, body=b"grant")
    )
    assert (response.status, response.body) == (200, b'{"access_token":"t"}')
    ((method, path, headers, body),) = provider.received
    assert (method, path, headers["Authorization"], body) == ("POST", "/token?a=b", "Basic x", b"grant")


def test_request_without_a_body_is_a_get(start: Callable[..., IdentityProvider]) -> None:
    provider = start()
    assert fetch(request(provider.url)).status == 200
    assert provider.received[0][:2] == ("GET", "/")


def test_refusal_is_a_response(start: Callable[..., IdentityProvider]) -> None:
    response = fetch(request(f"{start().url}/refused"))
    assert (response.status, response.body) == (401, b'{"error":"invalid_client"}')


def test_redirect_is_not_followed(start: Callable[..., IdentityProvider]) -> None:
    provider = start()
    assert fetch(request(f"{provider.url}/redirect")).status == 302
    assert len(provider.received) == 1


@pytest.mark.parametrize("path", ["hang", "slow"])
def test_provider_that_does_not_end_is_left_in_time(
    start: Callable[..., IdentityProvider], path: str
) -> None:
    asked = request(f"{start().url}/{path}", read_timeout_ms=100)
    assert "no response in time" in reason_of(asked)


def test_response_has_a_limit(start: Callable[..., IdentityProvider]) -> None:
    assert "larger than 1048576 bytes" in reason_of(request(f"{start().url}/huge"))


def test_other_protocol_is_a_clear_error(start: Callable[..., IdentityProvider]) -> None:
    assert "cannot reach the identity provider" in reason_of(request(f"{start().url}/garbage"))


def test_port_without_a_server_is_named_without_the_query(start: Callable[..., IdentityProvider]) -> None:
    provider = start()
    port = provider.port
    provider.close()
    text = reason_of(request(f"http://127.0.0.1:{port}/token?key=tiger"))
    assert f"http://127.0.0.1:{port}/token: cannot reach the identity provider: Connection refused" in text


def test_address_without_tls_is_refused_unless_permitted() -> None:
    with pytest.raises(ConfigError, match="allowHttp"):
        fetch(request("http://example.com/token"))


# TLS.


def test_certificate_of_a_trusted_ca_is_accepted(start: Callable[..., IdentityProvider]) -> None:
    provider = start(authority().issue_cert("127.0.0.1"))
    assert fetch(request(provider.url, ssl_options=trusting(authority()))).status == 200


@pytest.mark.parametrize("case", ["other ca", "other host"])
def test_certificate_that_does_not_fit_is_refused(start: Callable[..., IdentityProvider], case: str) -> None:
    name = "other.example" if case == "other host" else "127.0.0.1"
    provider = start(authority().issue_cert(name))
    trusted = authority("strangers") if case == "other ca" else authority()
    text = reason_of(request(provider.url, ssl_options=trusting(trusted)))
    assert "the certificate of the identity provider is " in text
    assert "broker" not in text
    assert text.endswith("; its ssl.… settings are options of sasl.jaas.config")
    assert provider.received == []


def test_system_authorities_are_trusted_without_options(start: Callable[..., IdentityProvider]) -> None:
    assert "certificate" in reason_of(request(start(authority().issue_cert("127.0.0.1")).url))


def test_provider_that_never_ends_its_handshake_is_left_in_time(
    start: Callable[..., IdentityProvider],
) -> None:
    silent = start().url.replace("http:", "https:")
    assert "identity provider" in reason_of(request(silent, read_timeout_ms=300))


def test_proxy_of_the_environment_is_used_for_tls_alone(
    start: Callable[..., IdentityProvider], monkeypatch: pytest.MonkeyPatch
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


def test_broker_does_not_import_the_http_library_before_it_needs_it() -> None:
    check = "import sys, minikafka.server.__main__; sys.exit('urllib.request' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
