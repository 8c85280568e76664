"""Message sets in plain Python (magic 2: ``batches``), to compare the project's code with.

It shares nothing with that code, takes one byte field after the other, and is as slow as it looks.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from tests.oracles import codecs


class DamagedError(Exception):
    """The bytes are not a message set."""


@dataclass(frozen=True)
class Message:
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    control: bool = False


def entry(
    offset: int,
    *,
    magic: int,
    attributes: int = 0,
    timestamp: int = -1,
    key: bytes | None = None,
    value: bytes | None = None,
) -> bytes:
    """Build an entry with the right size and checksum."""
    body = magic.to_bytes(1, "big") + attributes.to_bytes(1, "big")
    if magic == 1:
        body += timestamp.to_bytes(8, "big", signed=True)
    body += field(key) + field(value)
    crc = zlib.crc32(body).to_bytes(4, "big")
    return offset.to_bytes(8, "big", signed=True) + (len(body) + 4).to_bytes(4, "big") + crc + body


def field(data: bytes | None) -> bytes:
    if data is None:
        return (-1).to_bytes(4, "big", signed=True)
    return len(data).to_bytes(4, "big") + data


def message_set(messages: list[Message], *, magic: int, codec: int) -> bytes:
    """A set with the offsets of ``messages``; one wrapper when ``codec`` is not 0."""
    if codec == 0 or not messages:
        return b"".join(
            entry(
                m.offset,
                magic=magic,
                attributes=attributes(m),
                timestamp=m.timestamp,
                key=m.key,
                value=m.value,
            )
            for m in messages
        )
    first = messages[0].offset if magic else 0
    content = b"".join(
        entry(m.offset - first, magic=magic, timestamp=m.timestamp, key=m.key, value=m.value)
        for m in messages
    )
    return entry(
        messages[-1].offset,
        magic=magic,
        attributes=codec | attributes(messages[-1]),
        timestamp=max(m.timestamp for m in messages),
        value=codecs.compress(codec, content, magic),
    )


def attributes(message: Message) -> int:
    return 8 if message.timestamp_type == 1 else 0


def decode(data: bytes) -> list[Message]:
    """All messages, wrappers opened, without a cut-off last one. DamagedError for anything wrong."""
    found, _ = decode_until_damage(data)
    if isinstance(found[-1] if found else None, DamagedError):
        raise found[-1]  # type: ignore[misc]
    return found  # type: ignore[return-value]


def decode_until_damage(data: bytes) -> tuple[list[Message | DamagedError], int]:
    """The messages, with the DamagedError that ended them as the last item; and how many bytes were good."""
    found: list[Message | DamagedError] = []
    at = 0
    try:
        while True:
            if len(data) - at < 12:
                return found, at
            size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
            if size < 14:
                raise DamagedError("size")
            if len(data) - at - 12 < size:
                return found, at
            found += decode_entry(data[at : at + 12 + size])
            at += 12 + size
    except DamagedError as damage:
        found.append(damage)
        return found, at


def decode_entry(raw: bytes) -> list[Message]:
    """Return the message of an entry, or the messages of a wrapper or batch."""
    from tests.oracles import batches

    magic, bits = raw[16], raw[17]
    if magic == 2:
        return batches.decode_batch(raw)
    offset, timestamp, kind, key, value = parse(raw)
    if bits & 7 == 0:
        return [Message(offset, timestamp, kind, key, value)]
    if value is None:
        raise DamagedError("a wrapper without content")
    try:
        content = codecs.decompress(bits & 7, value)
    except Exception as error:
        raise DamagedError("content") from error
    inner = []
    at = 0
    while at < len(content):
        size = int.from_bytes(content[at + 8 : at + 12], "big", signed=True)
        piece = content[at : at + 12 + size]
        if len(content) - at < 12 or size < 14 or len(piece) < 12 + size:
            raise DamagedError("inner size")
        if piece[16] != magic:
            raise DamagedError("inner magic")
        if piece[17] & 7:
            raise DamagedError("nested")
        inner.append(parse(piece))
        at += 12 + size
    if not inner:
        raise DamagedError("empty wrapper")
    shift = offset - inner[-1][0] if magic else 0
    return [Message(wrap64(o + shift), timestamp if kind == 1 else t, kind, k, v) for o, t, _, k, v in inner]


def wrap64(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def parse(raw: bytes) -> tuple[int, int, int, bytes | None, bytes | None]:
    """Offset, timestamp, timestamp type, key and value of a whole entry."""
    magic, bits = raw[16], raw[17]
    if magic not in {0, 1}:
        raise DamagedError("magic")
    if int.from_bytes(raw[12:16], "big") != zlib.crc32(raw[16:]):
        raise DamagedError("crc")
    if bits & 7 > 3:
        raise DamagedError("codec")
    at = 26 if magic else 18
    key, at = take(raw, at)
    value, at = take(raw, at)
    if at != len(raw):
        raise DamagedError("bytes behind the value")
    offset = int.from_bytes(raw[:8], "big", signed=True)
    if magic == 0:
        return offset, -1, -1, key, value
    return offset, int.from_bytes(raw[18:26], "big", signed=True), bits >> 3 & 1, key, value


def take(raw: bytes, at: int) -> tuple[bytes | None, int]:
    if len(raw) - at < 4:
        raise DamagedError("no room for a length")
    length = int.from_bytes(raw[at : at + 4], "big", signed=True)
    at += 4
    if length == -1:
        return None, at
    if length < 0 or length > len(raw) - at:
        raise DamagedError("length")
    return raw[at : at + length], at + length


def repaired(data: bytes) -> bytes:
    """``data`` with every checksum made right, as far as sizes lead: damage that a checksum does not show."""
    from tests.oracles import batches

    out = bytearray(data)
    at = 0
    while len(out) - at >= 26:
        size = int.from_bytes(out[at + 8 : at + 12], "big", signed=True)
        if size < 14 or len(out) - at - 12 < size:
            break
        if out[at + 16] == 2 and size >= 49:
            out[at : at + 12 + size] = batches.repaired(bytes(out[at : at + 12 + size]))
            at += 12 + size
            continue
        out[at + 12 : at + 16] = zlib.crc32(out[at + 16 : at + 12 + size]).to_bytes(4, "big")
        at += 12 + size
    return bytes(out)
