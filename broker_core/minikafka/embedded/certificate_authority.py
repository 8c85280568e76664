"""A certificate authority of one cluster, and the certificates that it issues to brokers.

Keys are ECDSA on P-256: a handshake with one costs the broker a fraction of one with RSA, and every client of
Kafka has it. Certificates hold what strict clients demand: key usage, the identifiers of keys, host names as
alternative names. Brokers are clients of each other, so a certificate is for both sides.

``cryptography`` is imported when a certificate is made or compared.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.security.certificates import Certificate
from minikafka.security.stores.key_material import KeyMaterial, certificates_in

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

CA_LIFETIME = timedelta(days=3650)
LIFETIME = timedelta(days=397)
"""That of a broker's certificate: browsers and some libraries refuse longer ones."""
_CLOCK_SKEW = timedelta(hours=1)
"""The time by which a certificate is valid earlier: the clock of a client may be slow."""
_ORGANIZATION = "minikafka"
_MAX_COMMON_NAME = 64


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """A key that signs, and its certificate, which clients trust."""

    key: Password
    """PKCS#8 in PEM."""
    certificate: str
    """In PEM."""

    @classmethod
    def create(cls, now: datetime) -> CertificateAuthority:
        """Make a new one."""
        from cryptography import x509

        key = _new_key()
        serial = x509.random_serial_number()
        # A name of its own: clients choose the CA of a chain by its name, and may trust several of ours.
        name = _name(f"minikafka CA {serial & 0xFFFFFFFF:08x}")
        usage = _key_usage(signs_certificates=True)
        builder = _builder(name, name, key.public_key(), serial, now, now + CA_LIFETIME)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        return cls(_key_text(key), _signed(builder, key))

    @classmethod
    def read(cls, key: str, certificate: str) -> CertificateAuthority:
        """Return one that was made before. Raises StoreError if the key is not that of the certificate."""
        return cls(KeyMaterial.from_pem(key, certificate, None).private_key, certificate)

    def issue(self, hosts: Sequence[str], now: datetime) -> KeyMaterial:
        """Make a key and a certificate for a broker that has these names and addresses.

        Raises ConfigError for a name that no certificate can hold.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from cryptography.x509.oid import ExtendedKeyUsageOID

        ca = x509.load_pem_x509_certificate(self.certificate.encode())
        ca_key = load_pem_private_key(self.key.value.encode(), None)
        key = _new_key()
        end = min(now + LIFETIME, ca.not_valid_after_utc)
        name = _name(hosts[0][:_MAX_COMMON_NAME])
        builder = _builder(name, ca.subject, key.public_key(), x509.random_serial_number(), now, end)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        ca_public = ca.public_key()
        for extension, critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage(purposes), False),
            (x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_public), False),  # type: ignore[arg-type]
        ):
            builder = builder.add_extension(extension, critical=critical)
        return KeyMaterial(_key_text(key), certificates_in(_signed(builder, ca_key)))  # type: ignore[arg-type]


def is_issued_by(certificate: bytes, ca: str) -> bool:
    """Return True if a certificate in DER has the signature of a CA, whose certificate is in PEM."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    issuer = x509.load_pem_x509_certificate(ca.encode())
    try:
        x509.load_der_x509_certificate(certificate).verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def covers(certificate: Certificate, hosts: Sequence[str]) -> bool:
    """Return True if a certificate has all of these names and addresses."""
    names = {name.lower() for name in (*certificate.dns_names, *certificate.ip_addresses)}
    return all(_as_written(host).lower() in names for host in hosts)


def _as_written(host: str) -> str:
    """Return a host as a certificate has it."""
    name = _general_name(host)
    return str(name.value)


def _general_name(host: str) -> x509.DNSName | x509.IPAddress:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        name = host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not name:
        raise ConfigError("host", host, "must be a name or an address that a certificate can hold")
    return x509.DNSName(name)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePublicKey,
    serial: int,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    from cryptography import x509

    builder = x509.CertificateBuilder(issuer, subject, key, serial, now - _CLOCK_SKEW, end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


def _key_text(key: EllipticCurvePrivateKey) -> Password:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Password(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
