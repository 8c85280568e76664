"""Record batches of magic 2 in plain Python, to compare the project's code with.

It shares nothing with that code but crcmod's definition of CRC-32C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import crcmod.predefined

from tests.oracles import codecs
from tests.oracles.messages import DamagedError, Message, wrap64

crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


@dataclass(frozen=True)
class Batch:
    """The fields of a header that a test may choose."""

    codec: int = 0
    append_time: bool = False
    control: bool = False
    transactional: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    leader_epoch: int = -1
    more_offsets: int = 0  # that compaction took from the end
    more_attributes: int = 0


def signed(number: int, width: int) -> bytes:
    return number.to_bytes(width, "big", signed=True)


def zigzag(number: int) -> bytes:
    return codecs.varint(2 * number if number >= 0 else -2 * number - 1)


def field(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    body = b"\0" + zigzag(timestamp_delta) + zigzag(offset_delta) + field(key) + field(value)
    body += zigzag(len(headers))
    for name, content in headers:
        body += field(name.encode()) + field(content)
    return zigzag(len(body)) + body


def batch(messages: list[Message], about: Batch = Batch()) -> bytes:
    """The batch of ``messages``; with append time, the largest timestamp is that of the first."""
    first = messages[0]
    base = first.offset
    content = b"".join(
        record(wrap64(m.timestamp - first.timestamp), m.offset - base, m.key, m.value, m.headers)
        for m in messages
    )
    largest = first.timestamp if about.append_time else max(m.timestamp for m in messages)
    last = messages[-1].offset - base + about.more_offsets
    return raw_batch(base, last, first.timestamp, largest, len(messages), content, about)


def raw_batch(
    base: int,
    last_delta: int,
    base_time: int,
    max_time: int,
    count: int,
    content: bytes,
    about: Batch = Batch(),
) -> bytes:
    """Any header with any content, the size and the checksum right."""
    bits = about.codec | about.append_time << 3 | about.transactional << 4 | about.control << 5
    covered = signed(bits | about.more_attributes, 2) + signed(last_delta, 4)
    covered += signed(base_time, 8) + signed(max_time, 8)
    covered += signed(about.producer_id, 8) + signed(about.producer_epoch, 2) + signed(about.base_sequence, 4)
    covered += signed(count, 4) + codecs.compress(about.codec, content, 2)
    behind = signed(about.leader_epoch, 4) + b"\x02" + crc32c(covered).to_bytes(4, "big") + covered
    return signed(base, 8) + signed(len(behind), 4) + behind


def decode_batch(raw: bytes) -> list[Message]:
    """The records of one whole batch. DamagedError for anything wrong."""
    if len(raw) < 61:
        raise DamagedError("size")
    if int.from_bytes(raw[17:21], "big") != crc32c(raw[21:]):
        raise DamagedError("crc")
    base, bits = number(raw[:8]), number(raw[21:23])
    last_delta, base_time, max_time, count = map(number, (raw[23:27], raw[27:35], raw[35:43], raw[57:61]))
    if bits & 7 > 4:
        raise DamagedError("codec")
    if last_delta < 0 or base + last_delta > 2**63 - 1 or count < 0:
        raise DamagedError("deltas or count")
    try:
        content = codecs.decompress(bits & 7, raw[61:])
    except Exception as error:
        raise DamagedError("content") from error
    found = []
    before = -1
    for _ in range(count):
        length, content = take_number(content, 32)
        if not 1 <= length <= len(content):
            raise DamagedError("record length")
        body, content = content[1:length], content[length:]
        timestamp_delta, body = take_number(body, 64)
        delta, body = take_number(body, 32)
        if not before < delta <= last_delta:
            raise DamagedError("offset delta")
        before = delta
        key, body = take(body)
        value, body = take(body)
        headers, body = take_headers(body)
        if body:
            raise DamagedError("bytes behind the headers")
        time = max_time if bits & 8 else wrap64(base_time + timestamp_delta)
        found.append(Message(base + delta, time, bits >> 3 & 1, key, value, headers, bool(bits & 32)))
    if content:
        raise DamagedError("bytes behind the records")
    return found


def number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def take_number(data: bytes, bits: int) -> tuple[int, bytes]:
    """Return a zig-zag varint of at most ``bits`` bits, and the position after it."""
    raw = 0
    for place, byte in enumerate(data[: (bits + 6) // 7]):
        raw |= (byte & 127) << 7 * place
        if byte < 128:
            if raw >= 1 << bits:
                break
            return raw // 2 if raw % 2 == 0 else -(raw // 2) - 1, data[place + 1 :]
    raise DamagedError("varint")


def take(data: bytes) -> tuple[bytes | None, bytes]:
    length, data = take_number(data, 32)
    if length == -1:
        return None, data
    if not 0 <= length <= len(data):
        raise DamagedError("length")
    return data[:length], data[length:]


def take_headers(data: bytes) -> tuple[tuple[tuple[str, bytes | None], ...], bytes]:
    count, data = take_number(data, 32)
    if not 0 <= count <= len(data):
        raise DamagedError("headers")
    headers = []
    for _ in range(count):
        name, data = take(data)
        if name is None:
            raise DamagedError("a header without name")
        value, data = take(data)
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), data


def repaired(raw: bytes) -> bytes:
    """Return a whole batch with a corrected checksum."""
    return raw[:17] + crc32c(raw[21:]).to_bytes(4, "big") + raw[21:]
