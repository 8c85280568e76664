"""The format of a key store or trust store by its first bytes.

A file's name says nothing: keytool writes PKCS12 into ``.jks`` files since Java 9, and Java reads either.
"""

from __future__ import annotations

from enum import Enum

from minikafka.base.errors import StoreError

JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_PEM_MARK = b"-----BEGIN "
_SEQUENCE, _INTEGER, _VERSION_3 = 0x30, 0x02, 3


class StoreFormat(Enum):
    """The format of a store, by Kafka's names (``ssl.keystore.type``)."""

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


def format_of(data: bytes) -> StoreFormat:
    """Return the format of a store. Raises StoreError for bytes that are no store.

    The error shows none of them: whoever names a file must not learn what is in it.
    """
    if data.startswith(JKS_MAGIC):
        return StoreFormat.JKS
    if data.startswith(_JCEKS_MAGIC):
        raise StoreError(_not_a_store("it is JCEKS"))
    if data[:1] == bytes([_SEQUENCE]):
        # PKCS12 begins with its version; a certificate has a sequence there, a key another version.
        length_bytes = data[1] & 0x7F if len(data) > 1 and data[1] & 0x80 else 0
        if data[2 + length_bytes : 5 + length_bytes] == bytes([_INTEGER, 1, _VERSION_3]):
            return StoreFormat.PKCS12
        raise StoreError(_not_a_store("it is a certificate or a key in DER"))
    if _PEM_MARK in data:  # text may stand before it
        return StoreFormat.PEM
    raise StoreError(_not_a_store("it is none of them" if data else "it is empty"))


def _not_a_store(found: str) -> str:
    return f"not a store in the format PEM, PKCS12 or JKS: {found}; convert it with keytool or openssl"
