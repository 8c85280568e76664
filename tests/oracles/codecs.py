"""The codecs in plain Python, written for being obviously right; the writers hardly compress.

Only zstd is read by pyarrow: its format is too large to be written down here.
"""

from __future__ import annotations

import gzip
import struct

import pyarrow as pa
import xxhash

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LZ4_MAGIC = 0x184D2204


def compress(codec: int, data: bytes, magic: int) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        block = snappy_block(data)
        return XERIAL_HEADER + struct.pack(">i", len(block)) + block
    if codec == LZ4:
        return lz4_frame(data, right_checksum=magic > 0)
    if codec == ZSTD:
        return zstd_frame(data)
    return data


def decompress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        assert data[3] & 0xE0 == 0  # flags that must not be set: the standard library passes over them
        return gzip.decompress(data)
    if codec == SNAPPY:
        return unsnappy(data)
    if codec == LZ4:
        return unlz4(data)
    if codec == ZSTD:
        return unzstd(data)
    return data


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def snappy_block(data: bytes) -> bytes:
    """A raw snappy block that holds only literals of at most 60 bytes."""
    out = varint(len(data))
    for at in range(0, len(data), 60):
        piece = data[at : at + 60]
        out += bytes([len(piece) - 1 << 2]) + piece
    return out


def unsnappy_block(block: bytes) -> bytes:
    size, shift, at = 0, 0, 0
    while True:
        byte = block[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(block):
        tag = block[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                width = length - 60
                length = int.from_bytes(block[at : at + width], "little") + 1
                at += width
            assert length <= len(block) - at
            out += block[at : at + length]
            at += length
            continue
        if kind == 1:
            length = (tag >> 2 & 7) + 4
            distance = (tag >> 5) << 8 | block[at]
            at += 1
        else:
            length = (tag >> 2) + 1
            width = 2 if kind == 2 else 4
            distance = int.from_bytes(block[at : at + width], "little")
            at += width
        copy_back(out, distance, length)
    assert len(out) == size
    return bytes(out)


def unsnappy(data: bytes) -> bytes:
    """Xerial's frame, or one raw block."""
    if not data.startswith(XERIAL_HEADER[:8]):
        return unsnappy_block(data)
    out = b""
    at = 16
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        assert 0 < length <= len(data) - at - 4
        out += unsnappy_block(data[at + 4 : at + 4 + length])
        at += 4 + length
    return out


def lz4_frame(data: bytes, *, right_checksum: bool) -> bytes:
    """A frame of stored blocks of at most 64 KiB."""
    descriptor = b"\x60\x40"
    out = struct.pack("<I", LZ4_MAGIC) + descriptor
    covered = descriptor if right_checksum else out
    out += bytes([xxhash.xxh32_intdigest(covered) >> 8 & 0xFF])
    for at in range(0, len(data), 1 << 16):
        piece = data[at : at + (1 << 16)]
        out += struct.pack("<I", len(piece) | 1 << 31) + piece
    return out + struct.pack("<I", 0)


def unlz4(data: bytes) -> bytes:
    """A frame as Kafka writes it: independent blocks, no content size, no dictionary, no checksums."""
    assert struct.unpack_from("<I", data)[0] == LZ4_MAGIC
    assert data[4] == 0x60
    assert data[6] in {xxhash.xxh32_intdigest(covered) >> 8 & 0xFF for covered in (data[4:6], data[:6])}
    at = 7
    out = bytearray()
    while True:
        (word,) = struct.unpack_from("<I", data, at)
        at += 4
        if word == 0:
            return bytes(out)
        length = word & 0x7FFFFFFF
        assert length <= len(data) - at
        block = data[at : at + length]
        at += length
        out += block if word >> 31 else unlz4_block(block)


def unlz4_block(block: bytes) -> bytes:
    out = bytearray()
    at = 0
    while at < len(block):
        token = block[at]
        at += 1
        length, at = lz4_length(block, at, token >> 4)
        assert length <= len(block) - at
        out += block[at : at + length]
        at += length
        if at >= len(block):
            break
        distance = block[at] | block[at + 1] << 8
        length, at = lz4_length(block, at + 2, token & 15)
        copy_back(out, distance, length + 4)
    return bytes(out)


def lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    return length, at


def zstd_frame(data: bytes) -> bytes:
    """A frame of stored blocks of at most 100,000 bytes, with a window of 8 MiB."""
    out = struct.pack("<I", 0xFD2FB528) + b"\x00\x68"
    pieces = [data[at : at + 100_000] for at in range(0, len(data), 100_000)] or [b""]
    for number, piece in enumerate(pieces, 1):
        last = number == len(pieces)
        out += (last | len(piece) << 3).to_bytes(3, "little") + piece
    return out


def unzstd(data: bytes) -> bytes:
    assert data
    with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
        return bytes(stream.read())


def copy_back(out: bytearray, distance: int, length: int) -> None:
    assert 0 < distance <= len(out)
    piece = out[-distance:]
    whole, rest = divmod(length, distance)  # what is copied may itself be copied again
    out += piece * whole + piece[:rest]
