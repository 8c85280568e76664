"""PEM: private keys and certificates as text.

Texts of properties may be in one line, with blanks in place of the line ends: Kafka reads those too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from minikafka.base.errors import StoreError

_BLOCK = re.compile(
    r"-----BEGIN\s(?P<label>[A-Z0-9\s]{1,40}?)-----(?:(?P<body>.*?)-----END\s(?P=label)-----)?", re.DOTALL
)
_HEADERS = re.compile(r"\A\s*(?:[\w-]+:[^\n]*\n)+\s*")
"""``Proc-Type: 4,ENCRYPTED`` and the like, of keys that are encrypted in OpenSSL's older way."""
_LINE_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class PemBlock:
    """A private key or a certificate."""

    label: str
    headers: str
    der: bytes = field(repr=False)

    @property
    def is_certificate(self) -> bool:
        """True for a certificate, however it is labelled."""
        return self.label.endswith("CERTIFICATE")

    @property
    def is_private_key(self) -> bool:
        """True for a private key, encrypted or not."""
        return self.label.endswith("PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        """True for a private key that is encrypted."""
        return self.label.startswith("ENCRYPTED") or "ENCRYPTED" in self.headers

    def to_text(self) -> str:
        """Return the block with the line ends that every reader expects."""
        return pem_text(self.label, self.der, self.headers)


def pem_text(label: str, der: bytes, headers: str = "") -> str:
    """Return DER as PEM."""
    encoded = base64.b64encode(der).decode()
    lines = [encoded[at : at + _LINE_CHARACTERS] for at in range(0, len(encoded), _LINE_CHARACTERS)]
    return "\n".join(
        (f"-----BEGIN {label}-----", *([headers] if headers else []), *lines, f"-----END {label}-----\n")
    )


def pem_blocks(text: str) -> Iterator[PemBlock]:
    """Yield the blocks of a text; other lines around them are passed over. Raises StoreError."""
    for found in _BLOCK.finditer(text):
        label, body = " ".join(found["label"].split()), found["body"]
        if body is None:
            raise StoreError(f"the {label} is truncated: it has no END line")
        headers = _HEADERS.match(body)
        if headers is not None:
            body = body[headers.end() :]
        try:
            der = base64.b64decode("".join(body.split()), validate=True)
        except (binascii.Error, ValueError):
            raise StoreError(
                f"the {label} is damaged: what it has between BEGIN and END is not base64"
            ) from None
        yield PemBlock(label, headers[0].strip() + "\n" if headers else "", der)
