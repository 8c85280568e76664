"""DER as tests write it: values, and names of certificates."""

from __future__ import annotations

UTF8 = 0x0C
_OBJECT_IDENTIFIER, _SEQUENCE, _SET = 0x06, 0x30, 0x31


def der(tag: int, content: bytes) -> bytes:
    """Return a value."""
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def identifier(text: str) -> bytes:
    """Return an object identifier."""
    first, second, *others = map(int, text.split("."))
    content = bytearray()
    for number in (first * 40 + second, *others):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return der(_OBJECT_IDENTIFIER, bytes(content))


def attribute(kind: str, text: str | bytes, tag: int = UTF8) -> bytes:
    """Return an attribute of a name."""
    value = der(tag, text.encode() if isinstance(text, str) else text)
    return der(_SEQUENCE, identifier(kind) + value)


def name(*parts: list[bytes]) -> bytes:
    """Return the name that has these parts, each with its attributes."""
    return der(_SEQUENCE, b"".join(der(_SET, b"".join(attributes)) for attributes in parts))
