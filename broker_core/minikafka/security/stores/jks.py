"""JKS, the format of Java's key stores and trust stores before PKCS12, read with ``hashlib`` alone.

    magic FEEDFEED i32 · version i32 (1 or 2) · entries i32
    entry:  1 i32 · alias · created i64 · protected key (i32 length) · certificates i32, each a certificate
         or 2 i32 · alias · created i64 · certificate
    certificate:  type ("X.509"; from version 2 on) · DER (i32 length)
    SHA-1 of the password (UTF-16), "Mighty Aphrodite", and all of the above

Texts are Java's modified UTF-8 behind a u16 length; integers are big-endian. A protected key is an
EncryptedPrivateKeyInfo (PKCS#8) whose content is a salt of 20 bytes, the key, and a SHA-1 of password and
key. The key is masked by a key stream: SHA-1 of password and salt, then of password and the hash before.

That is no protection by today's measure: who has the file can try passwords at the speed of SHA-1.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from minikafka.base.binary import INT32, INT64, read_integer
from minikafka.base.errors import RemoteWireError, StoreError, WrongStorePassword
from minikafka.base.secrets import Password
from minikafka.security.der import OCTET_STRING, SEQUENCE, DerValue
from minikafka.security.stores.formats import JKS_MAGIC

_DIGEST_BYTES = hashlib.sha1().digest_size
_SALT_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_KEY_PROTECTOR = bytes.fromhex("06 0a 2b 06 01 04 01 2a 02 11 01 01")
"""The object identifier 1.3.6.1.4.1.42.2.17.1.1 in DER: Sun's algorithm for keys in JKS."""
_PRIVATE_KEY, _CERTIFICATE = 1, 2


@dataclass(frozen=True, slots=True)
class PrivateKeyEntry:
    """A private key, masked by its password, and the chain of its certificate."""

    alias: str
    created_ms: int
    protected_key: bytes = field(repr=False)
    """The EncryptedPrivateKeyInfo."""
    chain: tuple[bytes, ...]
    """Certificates in DER, the key's own first."""

    def private_key(self, password: Password) -> bytes:
        """Return the key, a PrivateKeyInfo (PKCS#8) in DER. Raises WrongStorePassword or StoreError."""
        try:
            algorithm, protected = _encrypted_key(self.protected_key)
        except StoreError as error:
            raise StoreError(f"the key {self.alias!r} is damaged: {error}") from None
        if not algorithm.startswith(_KEY_PROTECTOR):
            raise StoreError(f"the key {self.alias!r} is protected by an algorithm that JKS does not have")
        if len(protected) < _SALT_BYTES + _DIGEST_BYTES:
            raise StoreError(f"the key {self.alias!r} is truncated")
        salt, masked = protected[:_SALT_BYTES], protected[_SALT_BYTES:-_DIGEST_BYTES]
        secret = _utf16(password)
        key = _unmasked(masked, secret, salt)
        if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), protected[-_DIGEST_BYTES:]):
            raise WrongStorePassword(f"wrong password of the key {self.alias!r}")
        return key


@dataclass(frozen=True, slots=True)
class TrustedCertificateEntry:
    """A certificate that the owner of the store trusts."""

    alias: str
    created_ms: int
    certificate: bytes
    """In DER."""


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """The content of a JKS store."""

    private_keys: tuple[PrivateKeyEntry, ...]
    trusted_certificates: tuple[TrustedCertificateEntry, ...]

    @classmethod
    def parse(cls, data: bytes, password: Password | None) -> JavaKeyStore:
        """Read a store.

        password: of the store; None: do not check its integrity, as Java does without one. Raises
        WrongStorePassword, or StoreError if the store is damaged.
        """
        try:
            store, size = _Reader(data).store()
        except RemoteWireError as error:
            raise StoreError(f"the JKS store is damaged: {error}") from None
        if len(data) != size + _DIGEST_BYTES:
            raise StoreError(
                f"the JKS store is damaged: it has {len(data)} bytes, not {size + _DIGEST_BYTES}"
            )
        if password is not None:
            digest = hashlib.sha1(_utf16(password) + _WHITENER + data[:size]).digest()
            if not hmac.compare_digest(digest, data[size:]):
                raise WrongStorePassword("wrong password of the JKS store, or the store is damaged")
        return store


class _Reader:
    """Reads the parts of a store one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._version = 0

    def store(self) -> tuple[JavaKeyStore, int]:
        """Return the store, and its size without the digest. Raises RemoteWireError or StoreError."""
        if self._take(len(JKS_MAGIC)) != JKS_MAGIC:
            raise StoreError("not a JKS store")
        self._version = self._int32()
        if self._version not in (1, 2):
            raise StoreError(f"the JKS store has version {self._version}: expected 1 or 2")
        keys: list[PrivateKeyEntry] = []
        certificates: list[TrustedCertificateEntry] = []
        for _ in range(self._int32()):
            kind = self._int32()
            alias = self._text()
            created_ms, self._position = read_integer(INT64, self._data, self._position)
            if kind == _PRIVATE_KEY:
                protected_key = self._take(self._int32())
                chain = tuple(self._certificate() for _ in range(self._int32()))
                keys.append(PrivateKeyEntry(alias, created_ms, protected_key, chain))
            elif kind == _CERTIFICATE:
                certificates.append(TrustedCertificateEntry(alias, created_ms, self._certificate()))
            else:
                raise StoreError(f"the JKS store is damaged: entry {alias!r} has the unknown kind {kind}")
        return JavaKeyStore(tuple(keys), tuple(certificates)), self._position

    def _certificate(self) -> bytes:
        if self._version == 2 and (kind := self._text()) != "X.509":
            raise StoreError(f"the JKS store has a certificate of the type {kind!r}: expected X.509")
        return self._take(self._int32())

    def _int32(self) -> int:
        value, self._position = read_integer(INT32, self._data, self._position)
        return int(value)

    def _text(self) -> str:
        """Read modified UTF-8: NUL has two bytes, and above U+FFFF there are surrogates of three each."""
        raw = self._take(int.from_bytes(self._take(2), "big")).replace(b"\xc0\x80", b"\0")
        try:
            halves = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise StoreError("the JKS store is damaged: a name is not UTF-8") from None
        return halves.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _take(self, length: int) -> bytes:
        begin, end = self._position, self._position + length
        if not begin <= end <= len(self._data):
            raise StoreError(
                f"the JKS store is damaged: {length} bytes at position {begin} of {len(self._data)}"
            )
        self._position = end
        return self._data[begin:end]


def _utf16(password: Password) -> bytes:
    return password.value.encode("utf-16-be", "surrogatepass")


def _unmasked(masked: bytes, secret: bytes, salt: bytes) -> bytes:
    stream, block = bytearray(), salt
    while len(stream) < len(masked):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    return bytes(left ^ right for left, right in zip(masked, stream, strict=False))


def _encrypted_key(data: bytes) -> tuple[bytes, bytes]:
    """Return the algorithm and the masked key of an EncryptedPrivateKeyInfo. Raises StoreError."""
    parts = list(DerValue.parse(data).expect(SEQUENCE).values())
    if len(parts) != 2:
        raise StoreError(f"it has {len(parts)} parts: expected an algorithm and a key")
    return parts[0].expect(SEQUENCE).content, parts[1].expect(OCTET_STRING).content
