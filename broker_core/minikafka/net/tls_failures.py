"""Meanings of failures of TLS: one line that says which of the usual causes it is, and what to set.

OpenSSL names the step that failed, not what is wrong with the settings of the two ends. The client's side
also learns of what the broker refuses, by its alert. The names in a certificate that is refused are not known
to the end that refused it; ``presented_certificate`` asks the broker for it once more.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable

from minikafka.base.errors import StoreError
from minikafka.base.printable import printable
from minikafka.security.certificates import Certificate

_BROKER = "the broker"
_KEYSTORE = "ssl.keystore.location or ssl.keystore.key"
_TRUSTSTORE = "ssl.truststore.location or ssl.truststore.certificates"
_NO_HOST_CHECK = "set ssl.endpoint.identification.algorithm= (empty), which turns the check of host names off"

_MAX_CHARACTERS = 300
"""The most of a certificate's names that a message has."""

_PRESENTED_SECONDS = 1.0
_RECEIVE_BYTES = 1 << 14

_EXPIRED, _NOT_YET_VALID = 10, 9
_SELF_SIGNED = 18
_UNKNOWN_CA = frozenset({2, 18, 19, 20, 21, 27})
_OTHER_HOST = frozenset({62, 64})
_WRONG_PURPOSE = 26

_NOT_TLS = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "UNKNOWN_PROTOCOL",
        "RECORD_TOO_SMALL",
        "PACKET_LENGTH_TOO_LONG",
        "BAD_RECORD_TYPE",
    }
)
_NO_COMMON_VERSION = frozenset({"UNSUPPORTED_PROTOCOL", "WRONG_SSL_VERSION", "NO_PROTOCOLS_AVAILABLE"})

_ALERTS_OF_BROKERS = {
    "UNKNOWN_CA": (
        "the broker does not trust the certificate of this client",
        f"set {_KEYSTORE} to a certificate of a CA in the broker's ssl.truststore",
    ),
    "CERTIFICATE_REQUIRED": ("the broker demands a certificate of this client", f"set {_KEYSTORE}"),
    "CERTIFICATE_EXPIRED": ("the certificate of this client has expired", f"renew it in {_KEYSTORE}"),
    "CERTIFICATE_REVOKED": ("the certificate of this client is revoked", f"renew it in {_KEYSTORE}"),
    "PROTOCOL_VERSION": (
        "the broker has none of this client's versions of TLS",
        "set ssl.enabled.protocols to one that both have",
    ),
    "HANDSHAKE_FAILURE": (
        "the broker has no cipher suite in common with this client, or demands a certificate of it",
        f"set {_KEYSTORE}, and check ssl.cipher.suites of both",
    ),
    "UNRECOGNIZED_NAME": ("the broker does not know the host name", "connect by a name that it has"),
}
_REFUSED_BY_BROKER = (
    "the broker refuses the certificate of this client, or demands one",
    f"set {_KEYSTORE} to a certificate of a CA in the broker's ssl.truststore",
)
_ALERTS_OF_CLIENTS = {
    "UNKNOWN_CA": (
        "the client does not trust the certificate of this listener",
        f"set {_TRUSTSTORE} of the client to the CA of the certificate",
    ),
    "CERTIFICATE_EXPIRED": (
        "the certificate of this listener has expired, says the client",
        "renew it, or check the clocks of both hosts",
    ),
    "PROTOCOL_VERSION": (
        "the client has none of this listener's versions of TLS",
        "set ssl.enabled.protocols to one that both have",
    ),
    "HANDSHAKE_FAILURE": (
        "the client has no cipher suite in common with this listener",
        "check ssl.cipher.suites of both",
    ),
}
_REFUSED_BY_CLIENT = (
    "the client refuses the certificate of this listener",
    f"set {_TRUSTSTORE} of the client to its CA, connect by a host name that it has, or renew it",
)
_REFUSALS = frozenset({"BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED"})
"""Alerts of which implementations send now one, now another, for any fault of a certificate."""


def tls_failure(
    error: Exception,
    host: str | None = None,
    presented: Callable[[], bytes | None] | None = None,
    server: str = _BROKER,
) -> str:
    """Return in one line why TLS with a peer failed, and what to set.

    host: of the broker, on the side of the client; None on the side of the broker. presented: asks for the
    certificate of the broker, which is called if its names help to understand the failure. server: the noun
    for the other end, if that is no broker.
    """
    found, advice = (text.replace(_BROKER, server) for text in _cause(error, host, presented))
    # Names in certificates are the peer's to choose.
    return printable(f"TLS handshake failed: {found}; {advice}" if advice else f"TLS failed: {found}")


def _cause(
    error: Exception, host: str | None, presented: Callable[[], bytes | None] | None
) -> tuple[str, str]:
    is_client, peer = host is not None, "the client" if host is None else "the broker"
    if isinstance(error, ssl.SSLCertVerificationError):
        certificate = _parsed(presented() if is_client and presented is not None else None)
        return _refused_by_us(error, host, certificate)
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) or not isinstance(error, ssl.SSLError):
        return _closed(error, is_client)
    reason = error.reason or ""
    alert = reason.partition("_ALERT_")[2]
    if alert:
        alerts = _ALERTS_OF_BROKERS if is_client else _ALERTS_OF_CLIENTS
        refused = _REFUSED_BY_BROKER if is_client else _REFUSED_BY_CLIENT
        if alert in _REFUSALS:
            return refused
        return alerts.get(alert, (f"{peer} ends the handshake: {_words(alert)}", ""))
    if reason in _NOT_TLS:
        return _not_tls(reason, is_client)
    if reason in _NO_COMMON_VERSION:
        return (
            f"{peer} has none of the enabled versions of TLS",
            "set ssl.enabled.protocols to one that both have",
        )
    if reason == "NO_SHARED_CIPHER":
        return f"{peer} has no cipher suite in common with this listener", "check ssl.cipher.suites of both"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        demand = "the client has no certificate, which this listener demands"
        return demand, f"set {_KEYSTORE} of the client, or ssl.client.auth of the listener"
    return _words(reason) or str(error), ""


def _refused_by_us(
    error: ssl.SSLCertVerificationError, host: str | None, certificate: Certificate | None
) -> tuple[str, str]:
    """Return the cause of a certificate that this end does not accept."""
    code, is_client = error.verify_code, host is not None
    subject = f"the certificate of the {'broker' if is_client else 'client'}"
    if certificate is not None:
        subject += f" ({_short(certificate.name)})"
    if code in _OTHER_HOST:
        names = _short(", ".join(certificate.hosts)) if certificate is not None else ""
        is_for = f": it is for {names}" if names else ""
        return (
            f"{subject} is not for the host {host}{is_for}",
            f"connect by a name that it has, or {_NO_HOST_CHECK}",
        )
    if code in _UNKNOWN_CA:
        trust = f"set {_TRUSTSTORE} to the certificate of " + (
            "its CA" if is_client else "the CA of the clients"
        )
        if code == _SELF_SIGNED:
            return f"{subject} is self-signed and not trusted", trust
        issuer = f", {_short(certificate.issuer_name)}," if certificate is not None else ""
        return f"{subject} is signed by a CA{issuer} that is not trusted", trust
    if code == _EXPIRED:
        when = f" at {certificate.not_after:%Y-%m-%d %H:%M:%S} UTC" if certificate is not None else ""
        return f"{subject}, or of its CA, has expired{when}", "renew it"
    if code == _NOT_YET_VALID:
        when = f" before {certificate.not_before:%Y-%m-%d %H:%M:%S} UTC" if certificate is not None else ""
        return f"{subject}, or of its CA, is not valid yet{when}", "check the clocks of both hosts"
    if code == _WRONG_PURPOSE:
        side = "servers" if is_client else "clients"
        return f"{subject} is not for {side}", "issue one with that extended key usage, or with none"
    return f"{subject} is refused: {error.verify_message.rstrip('.')}", ""


def _not_tls(reason: str, is_client: bool) -> tuple[str, str]:
    if is_client:
        return (
            "the broker does not speak TLS on this port",
            "use the port of a listener with TLS, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT",
        )
    spoken = "speaks HTTP, not TLS" if reason.startswith("HTTP") else "does not speak TLS"
    return f"the client {spoken}", "set security.protocol of the client to SSL or SASL_SSL"


def _closed(error: Exception, is_client: bool) -> tuple[str, str]:
    closed = isinstance(error, (ssl.SSLError, ConnectionError))
    text = "closed the connection in the handshake" if closed else str(error)
    if is_client:
        return (
            f"the broker {text}" if closed else text,
            "check that its port is of a listener with TLS (security.protocol), and see the broker's log",
        )
    return f"the client {text}" if closed else text, "see the client's log"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()


def _parsed(der: bytes | None) -> Certificate | None:
    if der is not None:
        with contextlib.suppress(StoreError):
            return Certificate.parse(der)
    return None


def unverified_context() -> ssl.SSLContext:
    """Return a context that accepts any server: for a question to it, never for anything secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def presented_certificate(connected: socket.socket, host: str) -> bytes | None:
    """Return the certificate of the server that a socket is connected to, in DER: unverified, for messages
    alone. None if the server shows none in time.

    A second connection asks for it, and with TLS 1.3 ends before the server knows that its handshake is over.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = unverified_context().wrap_bio(incoming, outgoing, server_hostname=host)
    try:
        with socket.create_connection(connected.getpeername()[:2], _PRESENTED_SECONDS) as sock:
            deadline = time.monotonic() + _PRESENTED_SECONDS
            while time.monotonic() < deadline:
                try:
                    end.do_handshake()
                    return end.getpeercert(binary_form=True)
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(_RECEIVE_BYTES) or _end_of(incoming))
    except (OSError, ValueError):
        pass
    return None


def _end_of(incoming: ssl.MemoryBIO) -> bytes:
    incoming.write_eof()
    return b""
