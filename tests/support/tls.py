"""Certificates of a CA of the tests, and settings of TLS with them."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import trustme
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from minikafka.security.ssl_config import SslConfig

HOSTS = ("localhost", "127.0.0.1", "::1")


@cache
def authority(name: str = "tests") -> trustme.CA:
    """Return the CA of this name; another name is a CA that nobody trusts."""
    return trustme.CA(organization_name=name)


def key_and_chain(leaf: trustme.LeafCert) -> str:
    """Return a private key and its certificates in PEM, as in one file."""
    return key_text(leaf) + "".join(part.bytes().decode() for part in leaf.cert_chain_pems)


def key_text(leaf: trustme.LeafCert) -> str:
    """Return a private key in PKCS#8, which is the form that Kafka takes."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def pkcs12_store(
    leaf: trustme.LeafCert, password: bytes | None, *, with_key: bool = True, with_certificate: bool = True
) -> bytes:
    """Return a store in PKCS12 with a key, its certificate, and that of the CA."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None) if with_key else None
    assert key is None or isinstance(key, EllipticCurvePrivateKey)
    own = load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()) if with_certificate else None
    ca = load_pem_x509_certificate(ca_text(authority()).encode())
    protection = NoEncryption() if password is None else BestAvailableEncryption(password)
    return serialize_key_and_certificates(b"key", key, own, [ca], protection)


def ca_text(ca: trustme.CA) -> str:
    """Return the certificate of a CA in PEM."""
    return ca.cert_pem.bytes().decode()


def inline_keys(leaf: trustme.LeafCert) -> dict[str, str]:
    """Return the settings of a key store in the properties themselves."""
    text = key_and_chain(leaf)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.key": text, "ssl.keystore.certificate.chain": text}


def inline_trust(ca: trustme.CA) -> dict[str, str]:
    """Return the settings of a trust store in the properties themselves."""
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca_text(ca)}


def broker_properties(*hosts: str, ca: trustme.CA | None = None, **properties: str) -> dict[str, str]:
    """Return the settings of a listener whose certificate has ``hosts`` (default: this machine's)."""
    ca = ca or authority()
    leaf = ca.issue_cert(*(hosts or HOSTS), common_name="broker")
    return {**inline_keys(leaf), **inline_trust(ca), **_dotted(properties)}


def client_properties(
    common_name: str | None = None, *, ca: trustme.CA | None = None, **properties: str
) -> dict[str, str]:
    """Return the settings of a client, with a certificate of this name or without one."""
    ca = ca or authority()
    # With a host, as Java takes no certificate whose list of hosts is empty.
    keys = {} if common_name is None else inline_keys(ca.issue_cert(*HOSTS, common_name=common_name))
    return {**keys, **inline_trust(ca), **_dotted(properties)}


def broker_tls(*hosts: str, **properties: Any) -> SslConfig:
    """Return the settings of ``broker_properties``."""
    return SslConfig.from_properties(broker_properties(*hosts, **properties))


def client_tls(common_name: str | None = None, **properties: Any) -> SslConfig:
    """Return the settings of ``client_properties``."""
    return SslConfig.from_properties(client_properties(common_name, **properties))


def der_of(leaf: trustme.LeafCert) -> bytes:
    """Return a certificate in DER."""
    return ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())


def _dotted(properties: dict[str, str]) -> dict[str, str]:
    return {f"ssl.{name.replace('_', '.')}": value for name, value in properties.items()}


class TlsHandshake:
    """Both ends of a connection in memory. ``run`` raises the first error; ``fail`` returns both ends'."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        host: str = "localhost",
        session: ssl.SSLSession | None = None,
    ) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        self.client = client.wrap_bio(to_client, to_server, server_hostname=host, session=session)
        self._errors: dict[ssl.SSLObject, ssl.SSLError] = {}

    def _go_on(self) -> None:
        """Do the handshake, and read what comes after it."""
        complete = set()
        for _ in range(4):
            for end in (self.client, self.server):
                try:
                    if end not in self._errors and end not in complete:
                        end.do_handshake()
                        complete.add(end)
                    if end not in self._errors:
                        end.read(1)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError as error:
                    self._errors[end] = error

    def run(self) -> None:
        """Complete the handshake. Raises SSLError."""
        self._go_on()
        for error in self._errors.values():
            raise error
        assert self.client.version()

    def fail(self) -> tuple[ssl.SSLError, ssl.SSLError]:
        """Return the errors of client and server."""
        self._go_on()
        return self._errors[self.client], self._errors[self.server]
