"""The kinds of damage whose recovery by Apache Kafka is recorded in ``tests/data/log-corrupt``.

Every kind is made of one good, uncompressed segment with magic 1 (0.10.1.1) or magic 2 (3.9.1); ``sha256`` in
the recorded file tells whether the bytes are the ones that the release was given.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

HEADER_BYTES = 12
NOISE_SEED = 1012
"""The recorded noise came from this seed, one generator over all kinds, in their order."""


def entries_of(segment: bytes) -> list[tuple[int, int]]:
    """(position, size with header) of every entry."""
    found, position = [], 0
    while position < len(segment):
        size = HEADER_BYTES + struct.unpack_from(">i", segment, position + 8)[0]
        found.append((position, size))
        position += size
    return found


def damaged(good: bytes) -> Iterator[tuple[str, bytes]]:
    """(kind, bytes), in the recorded order."""
    entries = entries_of(good)
    classic = good[16] < 2
    noise = random.Random(NOISE_SEED).randbytes
    half = entries[len(entries) // 2 :]
    middle, middle_size = next((entry for entry in half if entry[1] > (60 if classic else 300)), half[0])
    last, last_size = entries[-1]
    first_again = good[: entries[2][0]]

    def overwrite(position: int, data: bytes) -> bytes:
        return good[:position] + data + good[position + len(data) :]

    def flip(position: int, bit: int = 3) -> bytes:
        return overwrite(position, bytes([good[position] ^ 1 << bit]))

    def resize(position: int, size: int) -> bytes:
        return overwrite(position + 8, struct.pack(">i", size))

    yield "good", good
    yield "empty", b""
    yield from (
        (f"truncated-{where}", good[:end])
        for where, end in {
            "in-offset-field": last + 5,
            "in-size-field": last + 10,
            "after-size-field": last + 12,
            "mid-header": last + 20,
            "mid-payload": last + last_size - last_size // 3,
            "one-byte": -1,
        }.items()
    )
    yield "zeros-4k-appended", good + bytes(4096)
    yield "zeros-4k-over-tail", good[:-4096] + bytes(4096)
    yield "zeros-11-bytes-appended", good + bytes(11)
    yield "nonsense-middle", overwrite(middle + 7, noise(512))
    yield "nonsense-inserted-middle", good[:middle] + noise(512) + good[middle:]
    yield "nonsense-appended", good + noise(700)
    yield "nonsense-only", noise(700)
    yield "bitflip-payload-middle", flip(middle + middle_size - 3)
    yield "bitflip-payload-last", flip(last + last_size - 2)
    yield "bitflip-payload-first", flip(sum(entries[1]) - 1)
    yield "bitflip-crc-middle", flip(middle + (HEADER_BYTES if classic else 17))
    yield "bitflip-offset-middle", flip(middle + 7, bit=0)
    yield "size-negative-middle", resize(middle, -1)
    yield "size-zero-middle", resize(middle, 0)
    yield "size-13-middle", resize(middle, 13)
    yield "size-max-int-middle", resize(middle, 0x7FFFFFFF)
    yield "size-plus-1-middle", resize(middle, middle_size - HEADER_BYTES + 1)
    yield "size-beyond-end-last", resize(last, last_size - HEADER_BYTES + 100)
    strange = bytearray(good)
    strange[middle + 16] = 9
    if classic:  # where the checksum covers the magic byte
        body = bytes(strange[middle + 16 : middle + middle_size])
        struct.pack_into(">I", strange, middle + 12, zlib.crc32(body))
    yield "magic-9-middle", bytes(strange)
    yield "first-entries-again-at-end", good + first_again
