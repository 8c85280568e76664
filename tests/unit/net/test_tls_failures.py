"""Messages about failures of TLS, from real handshakes in memory."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
import trustme

from minikafka.net.tls import ServerTls, client_context
from minikafka.net.tls_failures import presented_certificate, tls_failure
from minikafka.security.ssl_config import SslConfig
from tests.support.tls import (
    HOSTS,
    TlsHandshake,
    authority,
    broker_tls,
    client_tls,
    der_of,
    inline_keys,
    inline_trust,
)

PAST, FUTURE = datetime(2020, 1, 1, tzinfo=timezone.utc), datetime(2990, 1, 1, tzinfo=timezone.utc)
BOTH_VERSIONS = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])


def leaf(*hosts: str, ca: trustme.CA | None = None, **validity: datetime) -> trustme.LeafCert:
    return (ca or authority()).issue_cert(*(hosts or HOSTS), common_name="peer", **validity)


def with_keys(certificate: trustme.LeafCert, **properties: str) -> SslConfig:
    """Return the settings of an end with this certificate, which trusts the CA of the tests."""
    dotted = {f"ssl.{name.replace('_', '.')}": value for name, value in properties.items()}
    return SslConfig.from_properties({**inline_keys(certificate), **inline_trust(authority()), **dotted})


def messages(
    server: SslConfig, client: SslConfig, host: str = "localhost", shown: trustme.LeafCert | None = None
) -> tuple[str, str]:
    """Return the messages of client and server."""
    handshake = TlsHandshake(ServerTls(server).context, client_context(client), host)
    of_client, of_server = handshake.fail()
    return tls_failure(of_client, host, None if shown is None else lambda: der_of(shown)), tls_failure(
        of_server
    )


def says(message: str, *parts: str) -> None:
    assert message.startswith(("TLS handshake failed: ", "TLS failed: "))
    assert "\n" not in message
    for part in parts:
        assert part in message


@BOTH_VERSIONS
def test_unknown_ca_is_named(version: str) -> None:
    other = authority("other")
    shown = leaf(ca=other)
    client, server = messages(with_keys(shown, enabled_protocols=version), client_tls(), shown=shown)
    says(
        client,
        "the broker (CN=peer,",
        "signed by a CA, ",
        "O=other,",
        "not trusted",
        "ssl.truststore.location",
    )
    says(server, "the client does not trust the certificate of this listener", "ssl.truststore")


def test_self_signed_certificate_is_named() -> None:
    own = trustme.CA(organization_name="own")
    _, pem = own.private_key_pem.bytes(), own.cert_pem.bytes()
    keys = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": pem.decode(),
    }
    client, _ = messages(SslConfig.from_properties(keys), client_tls())
    says(client, "is self-signed and not trusted", "ssl.truststore.location")


@BOTH_VERSIONS
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_names_of_the_certificate_are_given_beside_another_host(version: str, host: str) -> None:
    shown = leaf("a.example", "10.0.0.1")
    server_config = with_keys(shown, enabled_protocols=version)
    client, server = messages(server_config, client_tls(), host, shown)
    says(
        client,
        f"is not for the host {host}: it is for a.example, 10.0.0.1",
        "ssl.endpoint.identification.algorithm= (empty), which turns the check of host names off",
    )
    says(server, "the client refuses the certificate of this listener", "host name", "renew it")
    without_names, _ = messages(server_config, client_tls(), host)
    says(without_names, f"the certificate of the broker is not for the host {host};")


@BOTH_VERSIONS
def test_expired_certificate_of_a_broker_is_named(version: str) -> None:
    shown = leaf(not_after=PAST)
    client, server = messages(with_keys(shown, enabled_protocols=version), client_tls(), shown=shown)
    says(client, "has expired at 2020-01-01 00:00:00 UTC", "renew it")
    says(server, "the certificate of this listener has expired")


def test_certificate_that_is_not_valid_yet_is_named() -> None:
    shown = leaf(not_before=FUTURE)
    client, server = messages(with_keys(shown), client_tls(), shown=shown)
    says(client, "is not valid yet before 2990-01-01 00:00:00 UTC", "clocks")
    says(server, "the client refuses the certificate", "renew it")


def test_demand_for_a_certificate_is_named() -> None:
    for version, cause in (
        ("TLSv1.2", "or demands a certificate of it"),
        ("TLSv1.3", "the broker demands a cert"),
    ):
        client, server = messages(broker_tls(client_auth="required", enabled_protocols=version), client_tls())
        says(client, cause, "ssl.keystore.location")
        says(server, "the client has no certificate, which this listener demands", "ssl.client.auth")


@BOTH_VERSIONS
def test_certificate_of_a_client_that_is_not_trusted_is_named(version: str) -> None:
    server_config = broker_tls(client_auth="required", enabled_protocols=version)
    client, server = messages(server_config, with_keys(leaf(ca=authority("other"))))
    says(client, "the broker does not trust the certificate of this client", "ssl.keystore.location")
    says(
        server, "the certificate of the client is signed by a CA that is not trusted", "the CA of the clients"
    )


@BOTH_VERSIONS
def test_expired_certificate_of_a_client_is_named(version: str) -> None:
    server_config = broker_tls(client_auth="required", enabled_protocols=version)
    client, server = messages(server_config, with_keys(leaf(not_after=PAST)))
    says(client, "the certificate of this client has expired", "renew it")
    says(server, "the certificate of the client, or of its CA, has expired")


@pytest.mark.parametrize(("of_server", "of_client"), [("TLSv1.2", "TLSv1.3"), ("TLSv1.3", "TLSv1.2")])
def test_versions_without_a_common_one_are_named(of_server: str, of_client: str) -> None:
    client, server = messages(
        broker_tls(enabled_protocols=of_server), client_tls(enabled_protocols=of_client)
    )
    says(client, "the broker has none of this client's versions of TLS", "ssl.enabled.protocols")
    says(server, "the client has none of the enabled versions of TLS", "ssl.enabled.protocols")


def test_cipher_suites_without_a_common_one_are_named() -> None:
    suites = [f"TLS_ECDHE_ECDSA_WITH_AES_{suffix}" for suffix in ("128_GCM_SHA256", "256_GCM_SHA384")]
    client, server = messages(broker_tls(cipher_suites=suites[0]), client_tls(cipher_suites=suites[1]))
    says(client, "no cipher suite in common", "ssl.cipher.suites")
    says(server, "the client has no cipher suite in common with this listener", "ssl.cipher.suites")


def failure_after(data: bytes, context: ssl.SSLContext, host: str | None) -> str:
    """Return the message of an end that receives ``data`` in place of TLS."""
    incoming = ssl.MemoryBIO()
    incoming.write(data)
    end = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=host is None, server_hostname=host)
    with pytest.raises(ssl.SSLError) as failed:
        end.do_handshake()
    return tls_failure(failed.value, host)


API_VERSIONS = bytes.fromhex("00000017 0012 0000 00000001 000d") + b"a-client-name"


@pytest.mark.parametrize(
    ("data", "cause"),
    [(API_VERSIONS, "does not speak TLS"), (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP, not TLS")],
)
def test_client_without_tls_is_told_what_to_set(data: bytes, cause: str) -> None:
    message = failure_after(data, ServerTls(broker_tls()).context, None)
    says(message, f"the client {cause}", "security.protocol", "SASL_SSL")


@pytest.mark.parametrize("data", [API_VERSIONS, b"SSH-2.0-x\r\n", b"\0" * 20])
def test_port_without_tls_is_named(data: bytes) -> None:
    message = failure_after(data, client_context(client_tls()), "localhost")
    says(message, "the broker does not speak TLS on this port", "security.protocol", "SASL_PLAINTEXT")


@pytest.mark.parametrize(
    "error", [ssl.SSLEOFError(8, "EOF"), ssl.SSLZeroReturnError(6, "x"), ConnectionResetError()]
)
def test_end_of_the_connection_is_named(error: Exception) -> None:
    says(
        tls_failure(error, "localhost"),
        "the broker closed the connection in the handshake",
        "security.protocol",
    )
    says(tls_failure(error), "the client closed the connection in the handshake")


def test_other_reasons_are_openssls() -> None:
    error = ssl.SSLError(1, "[SSL] unclear")
    error.reason = "TLSV1_ALERT_INTERNAL_ERROR"
    says(tls_failure(error, "a"), "the broker ends the handshake: internal error")
    error.reason = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    says(tls_failure(error), "decryption failed or bad record mac")
    error.reason = None  # type: ignore[assignment]
    says(tls_failure(error), "unclear")


def test_names_of_a_peer_forge_no_line() -> None:
    shown = leaf("a.example", ca=trustme.CA(organization_name="x\nbroker stopped\x1b[2J" + "y" * 900))
    client, _ = messages(with_keys(shown), client_tls(), shown=shown)
    says(client, "x\\nbroker stopped\\x1b")
    assert len(client) < 1000


@pytest.fixture
def serve_tls() -> Iterator[Callable[[SslConfig], tuple[str, int]]]:
    """Serve on a thread: a connection that does nothing, and one that does a handshake, or nothing either."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def start(config: SslConfig | None) -> tuple[str, int]:
            def accept() -> None:
                first, second = listener.accept()[0], listener.accept()[0]
                with first, second, contextlib.suppress(OSError):
                    if config is not None:
                        ServerTls(config).context.wrap_socket(second, server_side=True).close()

            thread = threading.Thread(target=accept)
            thread.start()
            stack.callback(thread.join, 10)
            host, port = listener.getsockname()
            return host, port

        yield start


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_certificate_of_a_server_is_shown(serve_tls: Callable[..., Any], version: str) -> None:
    shown = leaf("a.example")
    with socket.create_connection(serve_tls(with_keys(shown, enabled_protocols=version))) as connected:
        assert presented_certificate(connected, "localhost") == der_of(shown)


def test_server_without_tls_shows_no_certificate(serve_tls: Callable[..., Any]) -> None:
    with socket.create_connection(serve_tls(None)) as connected:
        assert presented_certificate(connected, "localhost") is None
