"""Records made by hand: Python's ``ssl`` neither updates keys nor renegotiates."""

from __future__ import annotations

import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_UPDATE_BYTES = 27
_DATA, _HANDSHAKE = 23, 22
_KEY_BYTES, _NONCE_BYTES, _SECRET_BYTES, _SALT_BYTES = 32, 12, 48, 4
_SALTS_AT = 2 * _KEY_BYTES


class ClientRecords:
    """The records after a handshake with TLS_AES_256_GCM_SHA384, in their order."""

    def __init__(self, key_log: Path) -> None:
        """key_log: the ``keylog_filename`` of the client's context, which has made one connection."""
        _, secret = _logged(key_log, "CLIENT_TRAFFIC_SECRET_0")
        self._use(secret)

    def data(self, content: bytes) -> bytes:
        """Return a record with data."""
        return self._record(content, _DATA)

    def key_update(self, *, is_asked_back: bool = False) -> bytes:
        """Return a record with a key update, perhaps one that the peer has to answer with its own."""
        return b"".join(self._key_update(b"\x18\0\0\x01" + bytes([is_asked_back])))

    def split_key_update(self) -> list[bytes]:
        """Return the two records of one key update."""
        return self._key_update(b"\x18\0\0\x01", b"\0")

    def _key_update(self, *parts: bytes) -> list[bytes]:
        records = [self._record(part, _HANDSHAKE) for part in parts]
        self._use(_expanded(self._secret, b"traffic upd", _SECRET_BYTES))
        return records

    def key_updates(self, count: int, *, is_asked_back: bool = False) -> bytes:
        """Return ``count`` key updates."""
        return b"".join(self.key_update(is_asked_back=is_asked_back) for _ in range(count))

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._cipher = AESGCM(_expanded(secret, b"key", _KEY_BYTES))
        self._nonce = int.from_bytes(_expanded(secret, b"iv", _NONCE_BYTES), "big")
        self._sequence = 0

    def _record(self, content: bytes, kind: int) -> bytes:
        inner = content + bytes([kind])
        header = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        nonce = (self._nonce ^ self._sequence).to_bytes(_NONCE_BYTES, "big")
        self._sequence += 1
        return header + self._cipher.encrypt(nonce, inner, header)


def renegotiations(key_log: Path, server_hello: bytes, count: int) -> bytes:
    """Return the beginnings of ``count`` handshakes, the first records of a client after one with TLS 1.2 and
    AES256-GCM.

    server_hello: the first bytes that the server sent.
    """
    keys = _keys_of_1_2(key_log, server_hello)
    return _handshake_records(keys[:_KEY_BYTES], keys[_SALTS_AT:], b"\x01\0\0\0", count)


def hello_requests(key_log: Path, server_hello: bytes, count: int) -> bytes:
    """Return ``count`` requests of a server to renegotiate, its first records. See ``renegotiations``."""
    keys = _keys_of_1_2(key_log, server_hello)
    return _handshake_records(keys[_KEY_BYTES:], keys[_SALTS_AT + _SALT_BYTES :], b"\0\0\0\0", count)


def _handshake_records(key: bytes, salt: bytes, content: bytes, count: int) -> bytes:
    cipher, salt, records = AESGCM(key[:_KEY_BYTES]), salt[:_SALT_BYTES], []
    for sequence in range(1, count + 1):
        number = sequence.to_bytes(8, "big")
        header = bytes([_HANDSHAKE]) + b"\x03\x03"
        signed = number + header + struct.pack(">H", len(content))
        body = number + cipher.encrypt(salt + number, content, signed)
        records.append(header + struct.pack(">H", len(body)) + body)
    return b"".join(records)


def _keys_of_1_2(key_log: Path, server_hello: bytes) -> bytes:
    """Return the keys of the client and of the server, and their salts."""
    client_random, secret = _logged(key_log, "CLIENT_RANDOM")
    seed = b"key expansion" + server_hello[11:43] + client_random
    chained, keys = seed, b""
    while len(keys) < _SALTS_AT + 2 * _SALT_BYTES:
        chained = hmac.digest(secret, chained, "sha384")
        keys += hmac.digest(secret, chained + seed, "sha384")
    return keys


def _logged(key_log: Path, label: str) -> tuple[bytes, bytes]:
    """Return the client's random and the secret of a line of a key log."""
    (line,) = [line for line in key_log.read_text().splitlines() if line.startswith(label + " ")]
    client_random, secret = line.split()[1:]
    return bytes.fromhex(client_random), bytes.fromhex(secret)


def _expanded(secret: bytes, label: bytes, size: int) -> bytes:
    """Return HKDF-Expand-Label (RFC 8446, 7.1) of at most 48 bytes."""
    label = b"tls13 " + label
    info = struct.pack(">H", size) + bytes([len(label)]) + label + b"\0"
    return hmac.digest(secret, info + b"\x01", "sha384")[:size]
