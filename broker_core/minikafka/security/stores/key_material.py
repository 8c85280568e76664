"""The content of a store for TLS: a private key with its chain of certificates, or the certificates of CAs.

The first bytes of a store tell its format (``formats``). Errors name neither the property nor the file:
whoever read the store knows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from minikafka.base.errors import MissingStorePassword, StoreError, WrongStorePassword
from minikafka.base.secrets import Password
from minikafka.security.certificates import Certificate
from minikafka.security.stores.formats import StoreFormat, format_of
from minikafka.security.stores.jks import JavaKeyStore
from minikafka.security.stores.pem import PemBlock, pem_blocks, pem_text
from minikafka.security.stores.pkcs12 import read_pkcs12_certificates, read_pkcs12_key, several_keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key, and the chain of certificates that proves whose it is."""

    private_key: Password
    """PKCS#8 in PEM, not encrypted."""
    chain: tuple[bytes, ...]
    """Certificates in DER, the key's own first."""

    @classmethod
    def from_store(
        cls, data: bytes, store_password: Password | None, key_password: Password | None
    ) -> KeyMaterial:
        """Read the key of a key store in any format.

        key_password: None: the key has the store's password, as in Java. Raises StoreError, and
        WrongStorePassword.
        """
        kind = format_of(data)
        if kind is StoreFormat.PEM:
            if store_password is not None:
                raise StoreError(NO_PASSWORD_OF_PEM)
            text = pem_of(data)
            return cls.from_pem(text, text, key_password)
        if store_password is None:
            raise MissingStorePassword(f"the file is a {kind.value} store, whose password must be given")
        if kind is StoreFormat.PKCS12:
            if key_password not in (None, store_password):
                raise WrongStorePassword("a key in a PKCS12 store has the password of the store")
            key, chain = read_pkcs12_key(data, store_password)
            return _checked(key, chain)
        keys = JavaKeyStore.parse(data, store_password).private_keys
        if len(keys) != 1:
            aliases = [entry.alias for entry in keys]
            raise StoreError(several_keys(aliases) if aliases else "the store has no private key")
        der = keys[0].private_key(key_password or store_password)
        return _checked(_loaded(PemBlock("PRIVATE KEY", "", der), None), keys[0].chain)

    @classmethod
    def from_pem(cls, key: str, chain: str, key_password: Password | None) -> KeyMaterial:
        """Read a key and its certificates, which may be in the same text. Raises StoreError, and
        WrongStorePassword.
        """
        keys = [block for block in pem_blocks(key) if block.is_private_key]
        if len(keys) != 1:
            found = f"{len(keys)} private keys: leave one" if keys else "no private key"
            raise StoreError(f"the PEM text has {found}")
        return _checked(_loaded(keys[0], key_password), certificates_in(chain))

    def validity_fault(self, now: datetime) -> str | None:
        """Return which certificate of the chain is not valid at ``now``, and why; None if all are."""
        faults = (Certificate.parse(der).validity_fault(now) for der in self.chain)
        return next((fault for fault in faults if fault is not None), None)

    def to_pem(self) -> Password:
        """Return the key and the chain as one text in PEM, as OpenSSL reads it."""
        return Password(self.private_key.value + "".join(pem_text("CERTIFICATE", der) for der in self.chain))


NO_PASSWORD_OF_PEM = "the file is PEM, which has no password of a store: leave it out"


def trusted_certificates(data: bytes, password: Password | None) -> tuple[bytes, ...]:
    """Return the certificates of a trust store in any format, in DER: also those of keys, as in Java.

    password: None: the integrity of a JKS store is not checked. Raises StoreError, and WrongStorePassword.
    """
    kind = format_of(data)
    if kind is StoreFormat.PEM:
        if password is not None:
            raise StoreError(NO_PASSWORD_OF_PEM)
        return certificates_in(pem_of(data))
    if kind is StoreFormat.PKCS12:
        found = read_pkcs12_certificates(data, password)
    else:
        store = JavaKeyStore.parse(data, password)
        keys = (entry.chain[0] for entry in store.private_keys if entry.chain)
        found = (*(entry.certificate for entry in store.trusted_certificates), *keys)
    if not found:
        raise StoreError("the store has no certificate")
    return found


def certificates_in(text: str) -> tuple[bytes, ...]:
    """Return the certificates in a text in PEM, in DER. Raises StoreError if there are none."""
    found = tuple(block.der for block in pem_blocks(text) if block.is_certificate)
    if not found:
        raise StoreError("the PEM text has no certificate")
    for der in found:
        Certificate.parse(der)
    return found


def pem_of(data: bytes) -> str:
    """Return the text of a file in PEM; what is not ASCII stands outside of its blocks."""
    return data.decode("utf-8", "replace")


def _loaded(block: PemBlock, password: Password | None) -> PrivateKeyTypes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if block.is_encrypted and not (password and password.value):
        raise WrongStorePassword("the private key is encrypted, and its password is not given")
    secret = password.value.encode() if password and block.is_encrypted else None
    try:
        return load_pem_private_key(block.to_text().encode(), secret)
    except UnsupportedAlgorithm as error:
        raise StoreError(f"the private key uses an algorithm that is not supported: {error}") from None
    except (ValueError, TypeError):
        if secret is not None:
            raise WrongStorePassword("wrong password of the private key, or the key is damaged") from None
        raise StoreError("the private key is damaged") from None


def _checked(key: PrivateKeyTypes, chain: tuple[bytes, ...]) -> KeyMaterial:
    """Return the material. Raises StoreError if the key is not that of the first certificate."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )
    from cryptography.x509 import load_der_x509_certificate

    def encoded(public: object) -> bytes:
        return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined, no-any-return]

    if not chain:
        raise StoreError("the private key has no certificate")
    own = encoded(key.public_key())
    try:
        fits = [encoded(load_der_x509_certificate(der).public_key()) == own for der in chain]
    except ValueError as error:
        raise StoreError(f"a certificate of the chain is damaged: {error}") from None
    if not fits[0]:
        name = Certificate.parse(chain[0]).name
        where = "; put its own certificate first" if any(fits) else "; give the key that belongs to it"
        raise StoreError(f"the private key does not fit the certificate of {name}{where}")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return KeyMaterial(Password(pem), chain)
