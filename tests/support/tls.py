"""Certificates of a CA of the tests, and settings of TLS with them."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import trustme

from minikafka.security.ssl_config import SslConfig

HOSTS = ("localhost", "127.0.0.1", "::1")


@cache
def authority(name: str = "tests") -> trustme.CA:
    """Return the CA of this name; another name is a CA that nobody trusts."""
    return trustme.CA(organization_name=name)


def key_and_chain(leaf: trustme.LeafCert) -> str:
    """Return a private key and its certificates in PEM, as in one file."""
    return leaf.private_key_and_cert_chain_pem.bytes().decode()


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
    keys = {} if common_name is None else inline_keys((ca or authority()).issue_cert(common_name=common_name))
    return {**keys, **inline_trust(ca or authority()), **_dotted(properties)}


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
