"""Bytes that somebody might send: recorded segments, damaged, and sets that obey the grammar and lie.

Every input follows from its seed and number alone. What is compressed or summed is mostly right at the
outside, so that the lie inside of it is reached.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import xxhash

from tests.oracles import batches, codecs
from tests.oracles import messages as oracle

SEGMENTS = Path(__file__).resolve().parents[1] / "data" / "segments"
INDEXES = SEGMENTS.parent / "log-index"

ODD = (
    *(0, 1, -1, -2, 7, 12, 13, 14, 22, 26, 34, 48, 49, 61, 127, 128, 255, 256, 65_535, 65_536),
    *((1 << 31) - 1, (1 << 31) - 13, (1 << 31) - 12, 1 << 31, (1 << 32) - 1, -(1 << 31), -(1 << 31) - 1),
    *((1 << 63) - 1, (1 << 63) - 2, -(1 << 63), -(1 << 63) + 1, (1 << 62), 1 << 32),
)
"""Numbers at the edges of the fields and of what lengths may be."""
EDGES = ((1 << 63) - 1, (1 << 63) - 2, (1 << 63) - 4, -(1 << 63), -1, 0, (1 << 31) - 1, 1 << 31)
"""Offsets and times."""


def _entries(path: Path) -> list[bytes]:
    data = path.read_bytes()
    found, at = [], 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append(data[at : at + size])
        at += size
    return found


GOLDEN = [_entries(path) for path in sorted(SEGMENTS.glob("*.log"))]
GOLDEN_INDEXES = [path.read_bytes() for path in sorted(INDEXES.glob("*.index"))]


def some_golden(source: random.Random) -> bytes:
    """A few entries in a row of one or two recorded segments."""
    parts = []
    for _ in range(source.choice((1, 1, 2))):
        entries = source.choice(GOLDEN)
        at = source.randrange(len(entries))
        chosen = entries[at : at + source.randrange(1, 5)]
        parts += [entry for entry in chosen if len(entry) < 4_000]
    return b"".join(parts) or GOLDEN[0][0]


def damaged(source: random.Random, data: bytes, most: int = 4) -> bytes:
    """``data`` with one change or a few."""
    out = bytearray(data)
    for _ in range(source.randrange(1, most + 1)):
        at = source.randrange(len(out) + 1)
        kind = source.randrange(9)
        if kind < 2 and at < len(out):
            out[at] ^= 1 << source.randrange(8)
        elif kind == 2 and at < len(out):
            out[at] = source.choice((0, 1, 2, 3, 4, 7, 8, 127, 128, 255))
        elif kind == 3:
            width = source.choice((2, 4, 8))
            number = source.choice(ODD) % (1 << 8 * width)
            out[at : at + width] = number.to_bytes(width, source.choice(("big", "little")))
        elif kind == 4:
            del out[at : at + source.randrange(1, 40)]
        elif kind == 5:
            out[at:at] = source.randbytes(source.randrange(1, 40))
        elif kind == 6:
            end = at + source.randrange(1, 80)
            out[at:at] = out[at:end] * source.randrange(1, 4)
        elif kind == 7:
            out[at:at] = b"\xff" * source.randrange(1, 12)
        else:
            del out[at:]
    return bytes(out)


def golden_damaged(source: random.Random) -> bytes:
    """Recorded entries with wrong checksums, mostly."""
    return damaged(source, some_golden(source))


def golden_repaired(source: random.Random) -> bytes:
    """Recorded entries whose outer checksums were made right again."""
    return oracle.repaired(damaged(source, some_golden(source)))


def message(source: random.Random, offset: int) -> oracle.Message:
    """Any message, often an ordinary one."""
    return oracle.Message(
        source.choice(EDGES) if source.random() < 0.1 else offset,
        source.choice((-1, 0, 1_000, 1_480_000_000_000, *EDGES)),
        int(source.random() < 0.1),
        source.choice((None, b"", b"k", b"key" * 30)),
        source.choice((None, b"", b"value", source.randbytes(source.randrange(200)))),
        source.choice(((), (), (("a", b"1"),), (("", None), ("ä" * 9, b"")))),
    )


def wrapper(source: random.Random) -> bytes:
    """A wrapper of magic 0 or 1 that is right at the outside."""
    magic, codec = source.randrange(2), source.randrange(1, 4)
    first = source.choice((0, 0, 0, 5, *EDGES))
    step = source.choice((1, 1, 1, 0, 2, -1))
    inner = b"".join(
        oracle.entry(
            (first + step * i + 2**63) % 2**64 - 2**63,
            magic=magic if source.random() < 0.97 else source.randrange(3),
            attributes=0 if source.random() < 0.95 else source.randrange(256),
            timestamp=item.timestamp,
            key=item.key,
            value=item.value,
        )
        for i, item in enumerate(message(source, i) for i in range(source.randrange(6)))
    )
    if source.random() < 0.6:
        inner = damaged(source, inner, 2)
        if source.random() < 0.7:
            inner = oracle.repaired(inner)
    content = codecs.compress(codec, inner, source.choice((magic, magic, 1 - magic)))
    value = None if source.random() < 0.01 else content
    bits = codec | source.choice((0, 0, 8, 16))
    whole = oracle.entry(
        source.choice((0, 9, *EDGES)), magic=magic, attributes=bits, timestamp=7, value=value
    )
    return whole * source.choice((1, 1, 1, 1, 3))


def plain(source: random.Random) -> bytes:
    """Messages of magic 0 and 1 at the edges of their fields."""
    magic = source.randrange(2)
    messages = [message(source, i) for i in range(source.randrange(8))]
    data = oracle.message_set(messages, magic=magic, codec=0)
    return oracle.repaired(damaged(source, data, 2)) if source.random() < 0.5 else data


def odd_varint(source: random.Random) -> bytes:
    """A varint, often one with more bytes or bits than it may have."""
    kind = source.randrange(4)
    if kind == 0:
        return batches.zigzag(source.choice(ODD) % (1 << 64) - (1 << 63))
    if kind == 1:
        return b"\x80" * source.randrange(1, 12) + source.choice((b"\x00", b"\x01", b"\x7f", b""))
    if kind == 2:
        return b"\xff" * source.choice((4, 5, 9, 10, 30)) + bytes([source.randrange(128)])
    return batches.zigzag(source.choice((-1, 0, 1, 2, 63, 64)))


def records(source: random.Random, count: int) -> bytes:
    """The records of a batch, each field of which may be a lie."""
    out = b""
    for i in range(count):
        item = message(source, i)
        if source.random() < 0.6:
            out += batches.record(item.timestamp >> 2, i, item.key, item.value, item.headers)
            continue
        parts = [
            b"\0",
            batches.zigzag(i),
            batches.zigzag(i),
            batches.field(item.key),
            batches.field(item.value),
            batches.zigzag(len(item.headers)),
            *(batches.field(name.encode()) + batches.field(value) for name, value in item.headers),
        ]
        parts[source.randrange(len(parts))] = odd_varint(source)
        body = b"".join(parts)
        length = batches.zigzag(len(body)) if source.random() < 0.8 else odd_varint(source)
        out += length + body
    return out


def batch(source: random.Random) -> bytes:
    """A batch of magic 2 with the right checksum, and any header."""
    count = source.randrange(6)
    content = records(source, count)
    if source.random() < 0.3:
        content = damaged(source, content, 2)
    about = batches.Batch(
        codec=source.randrange(5) if source.random() < 0.97 else source.randrange(8),
        append_time=source.random() < 0.1,
        control=source.random() < 0.05,
        transactional=source.random() < 0.1,
        producer_id=source.choice((-1, -1, 0, 5, (1 << 63) - 1)),
        producer_epoch=source.choice((-1, 0, 32767)),
        base_sequence=source.choice((-1, 0, (1 << 31) - 1)),
        more_attributes=source.choice((0, 0, 0, 64, 128, 0x4000)),
    )
    lie = source.random() < 0.3
    last = source.choice(ODD[:27]) % (1 << 31) if lie and source.random() < 0.5 else max(0, count - 1)
    wrong = source.choice((count, count + 1, count - 1, (1 << 31) - 1, -1, 0)) if lie else count
    times = [source.choice((0, 1_480_000_000_000, *EDGES)) for _ in range(2)]
    base = source.choice((0, 7, *EDGES)) if source.random() < 0.3 else 7
    return batches.raw_batch(base, last, times[0], times[1], wrong, content, about) * source.choice(
        (1, 1, 1, 2)
    )


def packed(source: random.Random, codec: int, content: bytes, magic: int) -> bytes:
    """Compressed by this or that writer, with the options that its format has."""
    if codec == codecs.LZ4 and source.random() < 0.5:
        return lz4(source, content)
    if codec == codecs.SNAPPY and source.random() < 0.5:
        return bytes(cramjam.snappy.compress_raw(content))
    if codec == codecs.ZSTD and source.random() < 0.5:
        return bytes(cramjam.zstd.compress(content))
    if codec == codecs.GZIP and source.random() < 0.3:
        return gzip.compress(content[:9], mtime=0) + gzip.compress(content[9:], mtime=0)
    return codecs.compress(codec, content, magic)


def lz4(source: random.Random, content: bytes) -> bytes:
    """A frame with any flags, its checksums right, wrong or as magic 0 has them, and often a wrong size."""
    flags = source.randrange(256) if source.random() < 0.3 else 0x40 | source.randrange(16) << 2
    descriptor = bytes([flags, source.choice((0x40, 0x50, 0x60, 0x70, source.randrange(256)))])
    if flags & 8:
        descriptor += struct.pack("<Q", source.choice((len(content), *ODD)) % (1 << 64))
    if flags & 1:
        descriptor += source.randbytes(4)
    covered = source.choice((b"", b"\x04\x22\x4d\x18")) + descriptor
    out = b"\x04\x22\x4d\x18" + descriptor + bytes([xxhash.xxh32_intdigest(covered) >> 8 & 255])
    for at in range(0, len(content), 50):
        piece = content[at : at + 50]
        if source.random() < 0.5:
            block = bytes(cramjam.lz4.compress_block(piece, store_size=False))
            out += struct.pack("<I", len(block)) + block
        else:
            block = piece
            out += struct.pack("<I", len(piece) | 1 << 31) + piece
        if flags & 16:
            out += struct.pack("<I", xxhash.xxh32_intdigest(block))
    out += bytes(4)
    if flags & 4:
        out += struct.pack("<I", xxhash.xxh32_intdigest(content))
    return out + source.choice((b"", b"", b"\x50\x2a\x4d\x18\x02\0\0\0ab", out))


def codec(source: random.Random) -> bytes:
    """Compressed bytes that were damaged, in a wrapper or batch whose checksum is right."""
    magic = source.randrange(3)
    kind = source.randrange(1, 5 if magic == 2 else 4)
    items = [message(source, i) for i in range(source.randrange(1, 5))]
    if magic == 2:
        content = b"".join(batches.record(0, i, m.key, m.value, m.headers) for i, m in enumerate(items))
    else:
        content = b"".join(
            oracle.entry(i, magic=magic, timestamp=5, key=m.key, value=m.value) for i, m in enumerate(items)
        )
    value = packed(source, kind, content, magic)
    if source.random() < 0.7:
        value = damaged(source, value, 2)
    if magic < 2:
        return oracle.entry(len(items) - 1, magic=magic, attributes=kind, timestamp=5, value=value)
    whole = batches.raw_batch(0, len(items) - 1, 0, 0, len(items), b"", batches.Batch(0))
    whole = whole[:22] + bytes([kind]) + whole[23:61] + value
    return batches.repaired(whole[:8] + (len(whole) - 12).to_bytes(4, "big") + whole[12:])


def noise(source: random.Random) -> bytes:
    """No set at all, but for some fields."""
    out = bytearray(source.randbytes(source.randrange(300)))
    if len(out) > 17 and source.random() < 0.8:
        out[8:12] = max(0, len(out) - 12 + source.choice((0, 0, 1, -1, -20))).to_bytes(4, "big")
        out[16] = source.randrange(4)
    return oracle.repaired(bytes(out)) if source.random() < 0.5 else bytes(out)


def index(source: random.Random) -> bytes:
    """An index file of a segment, or nearly."""
    data = source.choice(GOLDEN_INDEXES)
    if source.random() < 0.3:
        layout = source.choice((">ii", ">qi"))
        steps = [source.choice(ODD) if source.random() < 0.1 else 40 * i for i in range(1, 9)]
        data = b"".join(struct.pack(layout, *_fit(layout, step)) for step in steps)
    return damaged(source, data, 3) + bytes(source.choice((0, 0, 4, 96)))


def _fit(layout: str, number: int) -> tuple[int, int]:
    first = number if layout == ">qi" else (number + 2**31) % 2**32 - 2**31
    return (first + 2**63) % 2**64 - 2**63, (number + 2**31) % 2**32 - 2**31


CLASSES: dict[str, Callable[[random.Random], bytes]] = {
    "golden, damaged": golden_damaged,
    "golden, checksums right": golden_repaired,
    "plain messages": plain,
    "wrappers": wrapper,
    "batches": batch,
    "codecs": codec,
    "noise": noise,
    "indexes": index,
}
"""Name -> what makes one input."""


def made(seed: int, number: int) -> tuple[str, bytes]:
    """The class and the bytes of one input."""
    source = random.Random(f"{seed}/{number}")
    name = list(CLASSES)[number % len(CLASSES)]
    return name, CLASSES[name](source)


def bombs(size: int) -> dict[str, bytes]:
    """Sets of at most some hundred kB that say, or hold, that they are ``size`` bytes and more."""
    inner = oracle.entry(0, magic=1, value=b"", timestamp=0)
    zeros = bytes(size)
    lie = codecs.varint(min(size * 8, (1 << 32) - 1))
    gzipped = zlib.compressobj(9, wbits=31)
    contents = {
        "gzip of zeros": (1, gzipped.compress(zeros) + gzipped.flush()),
        "gzip of many members": (1, gzip.compress(zeros[: 1 << 20]) * 64),
        "snappy with a length": (2, lie + b"\x00"),
        "snappy of many blocks with a length": (
            2,
            codecs.XERIAL_HEADER + (b"\0\0\0\x06" + lie + b"\0") * 999,
        ),
        "lz4 of zeros": (3, bytes(cramjam.lz4.compress(zeros))),
        "zstd of zeros": (4, bytes(cramjam.zstd.compress(zeros))),
        "zstd with a window": (4, b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\x00\x00"),
        "zstd of one byte, often": (
            4,
            b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x10a" * (size >> 17) + b"\x03\x00\x10a",
        ),
    }
    found = {}
    for name, (kind, value) in contents.items():
        if kind < 4:
            found[name] = oracle.entry(0, magic=1, attributes=kind, timestamp=0, value=value)
        head = batches.raw_batch(0, 0, 0, 0, 1, b"", batches.Batch(0))
        whole = head[:22] + bytes([kind]) + head[23:] + value
        whole = whole[:8] + (len(whole) - 12).to_bytes(4, "big") + whole[12:]
        found[f"{name}, in a batch"] = batches.repaired(whole)
    twice = oracle.entry(0, magic=1, attributes=1, timestamp=0, value=gzip.compress(inner))
    found["wrappers in one another"] = oracle.entry(
        0, magic=1, attributes=1, timestamp=0, value=gzip.compress(twice)
    )
    return found
