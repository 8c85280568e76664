"""The format PKCS12: that of ``.p12`` and ``.pfx`` files, and of all that keytool writes since Java 9.

``cryptography`` decrypts it. It returns one key without a word on others, so keys are counted before: in
the stores of keytool and OpenSSL only the keys themselves are encrypted, not that they are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.errors import MissingStorePassword, StoreError, WrongStorePassword
from minikafka.base.secrets import Password
from minikafka.security.certificates import Certificate
from minikafka.security.der import OCTET_STRING, SEQUENCE, DerValue, object_identifier

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        PKCS12Certificate,
        PKCS12KeyAndCertificates,
    )

_DATA = "1.2.840.113549.1.7.1"
_KEY_BAGS = {"1.2.840.113549.1.12.10.1.1", "1.2.840.113549.1.12.10.1.2"}
_CONTENT = 0xA0
_FRIENDLY_NAME = "1.2.840.113549.1.9.20"


def read_pkcs12_key(data: bytes, password: Password) -> tuple[PrivateKeyTypes, tuple[bytes, ...]]:
    """Return the one private key of a store, and its certificates in DER, its own first.

    Raises WrongStorePassword, and StoreError if there is no key, or more than one.
    """
    store, aliases = _opened(data, password), key_aliases(data)
    if len(aliases) > 1:
        raise StoreError(several_keys(aliases))
    if store.key is None:
        raise StoreError("the store has no private key")
    if store.cert is None:
        raise StoreError("the private key has no certificate")
    leaf, *others = (_der(found) for found in (store.cert, *store.additional_certs))
    return store.key, _chain(leaf, others)


def read_pkcs12_certificates(data: bytes, password: Password | None) -> tuple[bytes, ...]:
    """Return the certificates of a trust store, in DER. Raises StoreError.

    Beside a key, these are the key's own and those with a name of their own, as in Java: the rest of its
    chain, which keytool names by the subject and OpenSSL not at all, proves who the owner is, and nothing
    else.
    """
    store = _opened(data, password)
    others = store.additional_certs
    if store.cert is None:
        return tuple(map(_der, others))
    return (_der(store.cert), *(_der(found) for found in others if _has_own_name(found)))


def _has_own_name(found: PKCS12Certificate) -> bool:
    name = (found.friendly_name or b"").decode("utf-8", "replace")
    return name not in ("", Certificate.parse(_der(found)).name)


def several_keys(aliases: list[str]) -> str:
    """Return the message about a store with several keys."""
    names = ", ".join(map(repr, aliases))
    return (
        f"the store has {len(aliases)} private keys ({names}), and which one to use is not known: leave one"
    )


def key_aliases(data: bytes) -> list[str]:
    """Return the names of the private keys that stand in the clear in a store."""
    try:
        _, safes, *_ = DerValue.parse(data).expect(SEQUENCE).values()
        return [
            _alias(bag)
            for safe in _content(safes).values()
            if _type_of(safe) == _DATA
            for bag in _content(safe).values()
            if _type_of(bag) in _KEY_BAGS
        ]
    except (StoreError, ValueError, StopIteration):  # for example lengths that are not given: BER
        return []


def _opened(data: bytes, password: Password | None) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, None if password is None else password.value.encode())
    except UnsupportedAlgorithm as error:
        raise StoreError(f"the PKCS12 store uses an algorithm that is not supported: {error}") from None
    except (ValueError, TypeError):
        if password is None:
            raise MissingStorePassword("the PKCS12 store needs a password") from None
        raise WrongStorePassword("wrong password of the PKCS12 store, or the store is damaged") from None


def _chain(leaf: bytes, others: list[bytes]) -> tuple[bytes, ...]:
    """Return the certificates from ``leaf`` to the CA, in the order of a chain."""
    by_subject = {Certificate.parse(der).subject.encoded: der for der in others}
    chain, last = [leaf], Certificate.parse(leaf)
    while not last.is_self_issued and (issuer := by_subject.pop(last.issuer.encoded, None)) is not None:
        chain.append(issuer)
        last = Certificate.parse(issuer)
    return tuple(chain)


def _der(found: PKCS12Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return found.certificate.public_bytes(Encoding.DER)


def _type_of(value: DerValue) -> str:
    return object_identifier(next(value.expect(SEQUENCE).values()).content)


def _content(value: DerValue) -> DerValue:
    """Return the sequence in the octets of a ContentInfo."""
    _, content, *_ = value.expect(SEQUENCE).values()
    octets = next(content.expect(_CONTENT).values()).expect(OCTET_STRING)
    return DerValue.parse(octets.content).expect(SEQUENCE)


def _alias(bag: DerValue) -> str:
    """Return the name of a key; empty if it has none."""
    for attributes in list(bag.values())[2:]:
        for attribute in attributes.values():
            kind, values = attribute.values()
            if object_identifier(kind.content) == _FRIENDLY_NAME:
                return next(values.values()).content.decode("utf-16-be", "replace")
    return ""
