"""DER, the encoding of certificates and keys: values one after the other, each with its tag and length.

Only what certificates and keys have is read: tags of one byte, lengths that are given. Whatever else stands
there is damaged, and so are lengths that reach beyond the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from minikafka.base.errors import StoreError

INTEGER, BIT_STRING, OCTET_STRING, OBJECT_IDENTIFIER = 0x02, 0x03, 0x04, 0x06
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
SEQUENCE, SET = 0x30, 0x31


@dataclass(frozen=True, slots=True)
class DerValue:
    """One value: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    encoded: bytes

    @classmethod
    def parse(cls, data: bytes) -> DerValue:
        """Return the value at the beginning of ``data``; more may follow it. Raises StoreError."""
        if len(data) < 2:
            raise StoreError(f"truncated DER: {len(data)} bytes where a value begins")
        tag, length, begin = data[0], data[1], 2
        if tag & 0x1F == 0x1F:
            raise StoreError(f"invalid DER: tag {tag:#x} has several bytes")
        if length >= 0x80:
            begin += length & 0x7F
            if not 3 <= begin <= 6:
                raise StoreError("invalid DER: a length has more than 4 bytes, or none")
            length = int.from_bytes(data[2:begin], "big")
        if len(data) < begin + length:
            raise StoreError(f"truncated DER: {len(data)} of {begin + length} bytes")
        return cls(tag, data[begin : begin + length], data[: begin + length])

    def expect(self, tag: int) -> DerValue:
        """Return this value. Raises StoreError if it has another tag."""
        if self.tag != tag:
            raise StoreError(f"invalid DER: tag {self.tag:#x} where {tag:#x} is expected")
        return self

    def values(self) -> Iterator[DerValue]:
        """Yield the values that this one consists of. Raises StoreError."""
        data = self.content
        while data:
            value = DerValue.parse(data)
            yield value
            data = data[len(value.encoded) :]


def object_identifier(content: bytes) -> str:
    """Return an object identifier as numbers with dots. Raises StoreError."""
    if not content or content[-1] & 0x80:
        raise StoreError("invalid DER: an object identifier is truncated")
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
