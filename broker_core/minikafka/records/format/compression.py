"""Compression and decompression of the content of a message or a record batch, as Kafka frames it.

    gzip     one or more gzip members. The standard library's zlib does it: as fast as cramjam's here, and it
             can limit its output
    snappy   xerial's frame: magic ``82 S N A P P Y 00``, version 1 and oldest compatible version 1 (int32
             big-endian), then blocks: int32 length, raw snappy of at most 32 KiB. Some clients send one raw
             block with no frame; both are read, the frame is written
    lz4      an lz4 frame of independent 64 KiB blocks without content checksum. Kafka's first writer computed
             the header checksum over the frame's magic as well; readers of magic 0 insist on that mistake,
             those of magic 1 and 2 on the right one. Both are read; each magic is written with its own.
             As with Kafka, dependent blocks are refused, and bytes after the frame are ignored. Checksums of
             content and blocks, and the content's size, must be right if given
    zstd     one or more zstd frames, in magic 2 only

Lengths in the input are not trusted. Content larger than a limit (by default ``MAX_CONTENT_BYTES``, 128 MiB;
a request has at most 100 MiB, and producers limit a set to 1 MB by default) is refused before memory of that
size is used, so a small message cannot exhaust the memory. A thread that serves many connections passes a
``ContentBudget``, which ends the work as soon as the content exceeds it.

All long steps run without the interpreter's lock. Memory for content is not zeroed first: for 128 MiB that
takes 60 ms, with the lock.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam
import numpy as np
import xxhash

from minikafka.base.config.types import choice
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.base.memory import allocate

MAX_CONTENT_BYTES = 128 << 20
ENTRY_COST_BYTES = 8 << 10
"""The cost of opening a wrapper or batch of any size, in bytes of a ``ContentBudget``."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = 64 << 10
# Version 1, independent blocks, no checksums, no content size; blocks of 64 KiB.
_LZ4_DESCRIPTOR = b"\x60\x40"
_LZ4_BLOCK_CODES = b"\x40\x50\x60\x70"
_LZ4_STORED = 0x80000000

_GZIP_PIECE_BYTES = 512 << 10
"""The amount of content that zlib returns at a time. It is copied with the interpreter's lock."""
_GZIP_MOST = 1032
"""The maximum content of one byte of gzip."""
_GZIP_PART_BYTES_MOST = 64 << 10
_GZIP_PART_BYTES = 512
"""The first part of a gzip member other than the first member."""

_ZSTD_LEVEL = 1
"""Kafka's level is 3, for sets of 16 kB. For sets of 900 kB, as the sink writes them, level 1 compresses rows
(CSV, JSON, log lines, hexadecimal digits) to the same size or less, in 0.4 to 0.9 of the time.
"""
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50
"""The magic of frames without content; its last four bits are arbitrary."""
_ZSTD_BLOCK_BYTES = 128 << 10
_INT32 = struct.Struct(">i")
_NOTHING = memoryview(b"")
_UINT32_LITTLE = struct.Struct("<I")


class ContentTooLarge(BrokerError):
    """Compressed content exceeds the limit. The code is CORRUPT_MESSAGE."""


class BudgetExceeded(Exception):
    """Decompressing or rewriting content costs more than a ``ContentBudget`` has left."""


class ContentBudget:
    """A budget, in bytes of content, for everything that is decompressed or rewritten with it."""

    __slots__ = ("left_bytes",)

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def take(self, size_bytes: int) -> None:
        """Subtract ``size_bytes``. Raises BudgetExceeded if fewer are left."""
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise BudgetExceeded


class Codec(IntEnum):
    """Bits 0 to 2 of the attributes of a message or a record batch. ZSTD is for magic 2 only."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str, option: str = "compression.type") -> Codec:
        """Return the codec with this name, in any case; for anything else ConfigError under ``option``."""
        codec: Codec = COMPRESSION_TYPE.parse(option, name)
        return codec


COMPRESSION_TYPE = choice({codec.name.lower(): codec for codec in Codec})
"""The type of a producer's ``compression.type``."""


CLASSIC_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
"""The codecs of magic 0 and 1."""


def compress(codec: Codec, data: Buffer, magic: int, head_bytes: int = 0) -> bytearray:
    """Compress ``data`` for ``magic``, after ``head_bytes`` that are free for a header.

    ``Codec.NONE`` returns the bytes themselves. Raises ValueError for zstd with a magic other than 2.
    """
    content = memoryview(data)
    if codec is Codec.NONE or codec is Codec.GZIP:
        return bytearray().join((bytes(head_bytes), content if codec is Codec.NONE else _gzip(content)))
    if codec is Codec.ZSTD and magic < 2:
        raise ValueError(f"magic {magic} does not support zstd: expected magic 2")
    room = memoryview(allocate(head_bytes + _most_bytes(codec, len(content))))
    out = room[head_bytes:]
    if codec is Codec.SNAPPY:
        used = _compress_snappy(content, out)
    elif codec is Codec.LZ4:
        used = _compress_lz4(content, out, magic)
    else:
        used = cramjam.zstd.compress_into(content, out, level=_ZSTD_LEVEL)
    return bytearray(room[: head_bytes + used])


def _most_bytes(codec: Codec, size: int) -> int:
    """Return an upper bound for the compressed size of ``size`` bytes that do not compress."""
    if codec is Codec.SNAPPY:
        return len(_XERIAL_HEADER) + size + size // 6 + 36 * -(-size // _XERIAL_BLOCK_BYTES)
    if codec is Codec.LZ4:
        return 11 + size + size // 255 + 20 * -(-size // _LZ4_BLOCK_BYTES)
    return 64 + size + size // 256


def _gzip(data: memoryview) -> bytes:
    member = zlib.compressobj(wbits=31)
    return member.compress(data) + member.flush()


def decompress(
    codec: Codec, data: Buffer, max_bytes: int = MAX_CONTENT_BYTES, budget: ContentBudget | None = None
) -> memoryview:
    """Return the content of ``data``.

    Raises CORRUPT_MESSAGE if ``data`` is not of that codec, ContentTooLarge if it holds more than
    ``max_bytes``, BudgetExceeded if it holds more than ``budget`` has left.
    """
    if budget is None or codec is Codec.NONE:
        return _decompress(codec, data, max_bytes)
    budget.take(ENTRY_COST_BYTES)
    try:
        content = _decompress(codec, data, min(max_bytes, budget.left_bytes))
    except ContentTooLarge:
        if budget.left_bytes < max_bytes:
            raise BudgetExceeded from None
        raise
    budget.take(len(content))
    return content


def content_bound(codec: Codec, data: Buffer, max_bytes: int = MAX_CONTENT_BYTES) -> int:
    """Return an upper bound for the content of ``data``, from its headers, and at most ``max_bytes``; also
    for invalid data. It is the memory that ``decompress`` uses.
    """
    view = memoryview(data)
    try:
        if codec is Codec.NONE:
            return 0
        if codec is Codec.GZIP:
            return min(_GZIP_MOST * len(view), max_bytes)
        if codec is Codec.SNAPPY:
            blocks = _xerial_blocks(view) if bytes(view[:8]) == _XERIAL_MAGIC else [view]
            return min(sum(map(cramjam.snappy.decompress_raw_len, blocks)), max_bytes)
        if codec is Codec.LZ4:
            return min(_lz4_blocks(view, 15 if view[4] & 0x08 else 7)[0], max_bytes)
        return min(_zstd_bound(view, max_bytes), max_bytes)
    except (BrokerError, cramjam.DecompressionError, struct.error, ValueError, IndexError):
        return max_bytes


def _decompress(codec: Codec, data: Buffer, max_bytes: int) -> memoryview:
    try:
        if codec is Codec.NONE:
            return memoryview(data)
        if codec is Codec.GZIP:
            return _decompress_gzip(data, max_bytes)
        if codec is Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        if codec is Codec.LZ4:
            return _decompress_lz4(memoryview(data), max_bytes)
        return _decompress_zstd(memoryview(data), max_bytes)
    except (cramjam.DecompressionError, struct.error, ValueError, zlib.error) as error:
        raise _damaged(codec, str(error) or type(error).__name__) from None


def _damaged(codec: Codec, why: str) -> BrokerError:
    return BrokerError(ErrorCode.CORRUPT_MESSAGE, f"failed to decompress {codec.name.lower()} content: {why}")


def _check_bound(codec: Codec, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ContentTooLarge(
            ErrorCode.CORRUPT_MESSAGE,
            f"failed to decompress {codec.name.lower()} content: "
            f"{size} bytes exceed the limit of {max_bytes}",
        )


def _room(size_bytes: int) -> memoryview:
    """Return uninitialized memory for content. The system provides pages when they are written."""
    return np.empty(size_bytes, dtype=np.uint8).data


def _decompress_gzip(data: Buffer, max_bytes: int) -> memoryview:
    view = memoryview(data)
    room: memoryview | None = None
    at = size = 0
    while at < len(view) or at == 0:
        # Nearly always there is one member. zlib copies its unread input, so it gets small parts: otherwise a
        # thousand members, or pieces of content, would copy all of it a thousand times.
        part_bytes = _GZIP_PART_BYTES if at else _GZIP_PART_BYTES_MOST
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            part = view[at : at + part_bytes]
            if not part:
                raise _damaged(Codec.GZIP, "unexpected end of data" if view else "no data")
            for piece in _gzip_pieces(member, part):
                _check_bound(Codec.GZIP, size + len(piece), max_bytes)
                if room is None:
                    if len(part) == len(view) and _is_done(member):
                        return memoryview(piece)  # the whole content, as usual for small content
                    room = _room(min(max_bytes, _GZIP_MOST * len(view)))
                room[size : size + len(piece)] = piece
                size += len(piece)
            at += len(part) - len(member.unused_data)
            part_bytes = min(4 * part_bytes, _GZIP_PART_BYTES_MOST)
    return _NOTHING if room is None else room[:size]


def _is_done(member: zlib._Decompress) -> bool:
    """Return True if the member has ended, and has consumed all its input."""
    return member.eof and not member.unused_data and not member.unconsumed_tail


def _gzip_pieces(member: zlib._Decompress, part: memoryview) -> Iterator[bytes]:
    """Yield the content of ``part`` of a member."""
    piece = member.decompress(part, _GZIP_PIECE_BYTES)
    while piece or member.unconsumed_tail:
        yield piece
        if member.eof:  # ``unconsumed_tail`` may still contain the bytes after the member
            return
        piece = member.decompress(member.unconsumed_tail, _GZIP_PIECE_BYTES)


def _compress_snappy(data: memoryview, out: memoryview) -> int:
    used = len(_XERIAL_HEADER)
    out[:used] = _XERIAL_HEADER
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        length = cramjam.snappy.compress_raw_into(data[at : at + _XERIAL_BLOCK_BYTES], out[used + 4 :])
        _INT32.pack_into(out, used, length)
        used += 4 + length
    return used


def _decompress_snappy(data: memoryview, max_bytes: int) -> memoryview:
    blocks = _xerial_blocks(data) if bytes(data[:8]) == _XERIAL_MAGIC else [data]
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    _check_bound(Codec.SNAPPY, sum(sizes), max_bytes)
    out = _room(sum(sizes))
    at = 0
    for block, size in zip(blocks, sizes, strict=True):
        if size == 0:
            # cramjam accepts no empty output. An empty block is one byte, its length.
            if len(block) != 1:
                raise _damaged(Codec.SNAPPY, "unexpected bytes in a block without content")
        else:
            got = cramjam.snappy.decompress_raw_into(block, out[at : at + size])
            if got != size:
                raise _damaged(Codec.SNAPPY, f"a block has {got} bytes: expected {size}")
        at += size
    return out


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    at = len(_XERIAL_HEADER)
    if len(data) < at:
        raise _damaged(Codec.SNAPPY, "incomplete header")
    blocks = []
    while at < len(data):
        (length,) = _INT32.unpack_from(data, at)
        at += 4
        if length < 1 or length > len(data) - at:
            raise _damaged(Codec.SNAPPY, f"invalid block length {length}: {len(data) - at} bytes are left")
        blocks.append(data[at : at + length])
        at += length
    return blocks


def _lz4_header_checksum(descriptor: Buffer, magic: int) -> int:
    covered = bytes(descriptor) if magic > 0 else _LZ4_MAGIC + bytes(descriptor)
    return xxhash.xxh32_intdigest(covered) >> 8 & 0xFF


def _compress_lz4(data: memoryview, out: memoryview, magic: int) -> int:
    head = _LZ4_MAGIC + _LZ4_DESCRIPTOR + bytes([_lz4_header_checksum(_LZ4_DESCRIPTOR, magic)])
    used = len(head)
    out[:used] = head
    for at in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[at : at + _LZ4_BLOCK_BYTES]
        length = word = cramjam.lz4.compress_block_into(plain, out[used + 4 :], store_size=False)
        if length >= len(plain):
            length, word = len(plain), len(plain) | _LZ4_STORED
            out[used + 4 : used + 4 + length] = plain
        _UINT32_LITTLE.pack_into(out, used, word)
        used += 4 + length
    out[used : used + 4] = bytes(4)
    return used + 4


def _decompress_lz4(data: memoryview, max_bytes: int) -> memoryview:
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise _damaged(Codec.LZ4, "not an lz4 frame")
    flags = data[4]
    if flags & 0xC3 != 0x40:
        raise _damaged(Codec.LZ4, f"unsupported flags {flags:#x}: another version, or a dictionary")
    if not flags & 0x20:
        raise _damaged(Codec.LZ4, "dependent blocks, which Kafka's consumers cannot read")
    checksum_at = 14 if flags & 0x08 else 6  # after the size of the content, which is optional
    if len(data) <= checksum_at:
        raise _damaged(Codec.LZ4, "incomplete header")
    descriptor = data[4:checksum_at]
    bound, end = _lz4_blocks(data, checksum_at + 1)
    data = data[:end]
    right = _lz4_header_checksum(descriptor, 1)
    if data[checksum_at] != right:
        if data[checksum_at] != _lz4_header_checksum(descriptor, 0):
            raise _damaged(Codec.LZ4, "wrong header checksum")
        repaired = bytearray(data)
        repaired[checksum_at] = right
        data = memoryview(repaired)
    return _decompress_into(Codec.LZ4, _decompress_lz4_frame, data, bound, max_bytes)


def _decompress_lz4_frame(data: Buffer, out: memoryview) -> int:
    """Decompress a frame, which ends with ``data``, into ``out``. Return the size of its content.

    cramjam's function for frames takes twice as long for a batch of 16 kB, because it zeroes a buffer first.
    It is left to check optional checksums and sizes, and to say what is wrong with a damaged frame. Frames as
    Kafka's producers write them are decompressed by blocks.
    """
    view = memoryview(data)
    if view[4] == _LZ4_DESCRIPTOR[0] and view[5] in _LZ4_BLOCK_CODES:
        try:
            return _decompress_lz4_blocks(view, out)
        except (cramjam.DecompressionError, ValueError):
            pass
    size: int = cramjam.lz4.decompress_into(data, out)
    return size


def _decompress_lz4_blocks(data: memoryview, out: memoryview) -> int:
    """Decompress blocks that are full but for the last one. Raise ValueError if another one is not."""
    block_bytes = 1 << (8 + 2 * (data[5] >> 4))
    at, size, full = 7, 0, 0
    while True:
        (word,) = _UINT32_LITTLE.unpack_from(data, at)
        if word == 0:
            return size
        length = word & ~_LZ4_STORED
        if length > block_bytes or size != full:
            raise ValueError(length)
        full += block_bytes
        at += 4
        block = data[at : at + length]
        if word & _LZ4_STORED:
            out[size : size + length] = block
            size += length
        else:
            room = out[size : size + block_bytes]
            size += cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
        at += length


def _decompress_into(
    codec: Codec, decompress: Callable[[Buffer, memoryview], int], data: Buffer, bound: int, max_bytes: int
) -> memoryview:
    """Decompress data whose block headers allow at most ``bound`` bytes; untouched pages cost nothing.

    Blocks are rarely full, so the bound of valid content may exceed the limit: then the codec detects an
    overflow.
    """
    out = _room(min(bound, max_bytes))
    try:
        size = decompress(data, out)
    except cramjam.DecompressionError as error:
        _check_bound(codec, bound, max_bytes)
        raise _damaged(codec, str(error)) from None
    return out[:size]


def _lz4_blocks(data: memoryview, at: int) -> tuple[int, int]:
    """Return the maximum content of a frame by its block headers, the first of which is at ``at``, and its
    end.
    """
    flags, block_bytes = data[4], 1 << (8 + 2 * (data[5] >> 4 & 7))
    bound = 0
    while True:
        (word,) = _UINT32_LITTLE.unpack_from(data, at)
        at += 4
        if word == 0:
            break
        length = word & ~_LZ4_STORED
        if length > len(data) - at:
            raise _damaged(Codec.LZ4, f"invalid block length {length}: {len(data) - at} bytes are left")
        # A byte of lz4 expands to at most 255.
        bound += length if word & _LZ4_STORED else min(block_bytes, 255 * length)
        at += length + (4 if flags & 0x10 else 0)
    end = at + (4 if flags & 0x04 else 0)
    if end > len(data):
        raise _damaged(Codec.LZ4, "unexpected end of data")
    return bound, end


def _decompress_zstd(data: memoryview, max_bytes: int) -> memoryview:
    bound = _zstd_bound(data, max_bytes)
    return _decompress_into(Codec.ZSTD, cramjam.zstd.decompress_into, data, bound, max_bytes)


def _zstd_bound(data: memoryview, max_bytes: int) -> int:
    """Return the maximum content of the frames by their block headers; inexact above ``max_bytes``.

    The content size that a frame may state is ignored.
    """
    at = bound = 0
    while True:
        (magic,) = _UINT32_LITTLE.unpack_from(data, at)
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            at += 8 + _UINT32_LITTLE.unpack_from(data, at + 4)[0]
        elif magic == _ZSTD_MAGIC:
            at, size = _zstd_frame(data, at, max_bytes - bound)
            bound += size
            if bound > max_bytes:
                return bound
        else:
            raise _damaged(Codec.ZSTD, "not a zstd frame")
        if at == len(data):
            return bound
        if at > len(data):
            raise _damaged(Codec.ZSTD, "unexpected end of data")


def _zstd_frame(data: memoryview, at: int, max_bytes: int) -> tuple[int, int]:
    """Return the end of the frame at ``at``, and its maximum content; inexact above ``max_bytes``."""
    if len(data) - at < 6:
        raise _damaged(Codec.ZSTD, "incomplete header")
    flags = data[at + 4]
    single_segment = flags >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[flags >> 6]
    at += 5 + (not single_segment) + (0, 1, 2, 4)[flags & 3] + content_size_bytes
    bound = 0
    while True:
        if len(data) - at < 3:
            raise _damaged(Codec.ZSTD, "unexpected end of data")
        word = int.from_bytes(data[at : at + 3], "little")
        kind, size = word >> 1 & 3, word >> 3
        # Kinds: 0 stored, 1 one byte repeated, 2 compressed.
        bound += _ZSTD_BLOCK_BYTES if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
        if word & 1 or bound > max_bytes:
            return at + (4 if flags & 4 else 0), bound
