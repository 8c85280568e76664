"""Compressed content of a message or of a record batch, as Kafka frames it.

    gzip     one or more gzip members. The standard library's zlib does it: as fast as cramjam's here, and it
             takes a bound on its output
    snappy   xerial's frame: magic ``82 S N A P P Y 00``, version 1 and oldest compatible version 1 (int32
             big-endian), then blocks: int32 length, raw snappy of at most 32 KiB. Some clients send one raw
             block with no frame; both are read, the frame is written
    lz4      an lz4 frame of independent 64 KiB blocks without content checksum. Kafka's first writer computed
             the header checksum over the frame's magic as well; readers of magic 0 insist on that mistake,
             those of magic 1 and 2 on the right one. Both are read; each magic is written with its own.
             As with Kafka, blocks that depend on one another are refused, and what lies behind a frame is
             passed over. Checksums of content and blocks, and the content's size, must be right if given
    zstd     one or more zstd frames, in magic 2 only

Nothing here trusts a length. Content larger than a bound (``MAX_CONTENT_BYTES``, 128 MiB, where the caller
names no other; a request has at most 100 MiB, and producers limit what they compress to 1 MB by default) is
refused before memory of that size was touched, so that a small message cannot exhaust it. Who serves many
connections at a time gives a ``ContentBudget``: it ends the work as soon as the content passes it.

All long steps run without the interpreter's lock. Memory for content is not filled with zeros first: for 128
MiB that takes 60 ms, with the lock.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam
import numpy as np
import xxhash

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.base.memory import allocate

MAX_CONTENT_BYTES = 128 << 20
ENTRY_COST_BYTES = 8 << 10
"""What it costs to open one wrapper or batch, however small, in bytes of a ``ContentBudget``."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = 64 << 10
# Version 1, independent blocks, no checksums, no content size; blocks of 64 KiB.
_LZ4_DESCRIPTOR = b"\x60\x40"
_LZ4_STORED = 0x80000000

_GZIP_PIECE_BYTES = 512 << 10
"""How much content zlib gives at a time: it is copied with the interpreter's lock."""
_GZIP_MOST = 1032
"""The bytes of content that one byte of gzip holds at most."""
_GZIP_PART_BYTES_MOST = 64 << 10
_GZIP_PART_BYTES = 512
"""The first part of a gzip member that is not the first."""

_ZSTD_LEVEL = 1
"""Kafka's is 3, for sets of 16 kB. In one of 900 kB, as the sink writes them, 1 makes rows (CSV, JSON, lines
of a log, hexadecimal digits) as small or smaller, in 0.4 to 0.9 of the time.
"""
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50
"""The magic of frames without content; its last four bits mean nothing."""
_ZSTD_BLOCK_BYTES = 128 << 10
_INT32 = struct.Struct(">i")
_NOTHING = memoryview(b"")
_UINT32_LITTLE = struct.Struct("<I")


class ContentTooLarge(BrokerError):
    """Compressed content holds more than is allowed. The code is CORRUPT_MESSAGE."""


class BudgetExceeded(Exception):
    """The content that was asked for costs more than a ``ContentBudget`` has left."""


class ContentBudget:
    """How many bytes of content may be opened or written anew, for all that is done with it together."""

    __slots__ = ("left_bytes",)

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def take(self, size_bytes: int) -> None:
        """Count ``size_bytes``. BudgetExceeded when there are fewer left."""
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
    def parse(cls, name: str) -> Codec:
        """The member for a name in small letters; ConfigError for anything else."""
        codec = cls.__members__.get(name.strip().upper())
        if codec is None:
            raise ConfigError("compression.type", name, "one of none, gzip, snappy, lz4, zstd")
        return codec


CLASSIC_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
"""Those of magic 0 and 1."""


def compress(codec: Codec, data: Buffer, magic: int, head_bytes: int = 0) -> bytearray:
    """``data`` compressed for ``magic``, behind ``head_bytes`` that are free for a header.

    ``Codec.NONE`` gives the bytes themselves. ValueError for zstd with another magic than 2.
    """
    content = memoryview(data)
    if codec is Codec.NONE or codec is Codec.GZIP:
        return bytearray().join((bytes(head_bytes), content if codec is Codec.NONE else _gzip(content)))
    if codec is Codec.ZSTD and magic < 2:
        raise ValueError(f"messages of magic {magic} cannot be compressed with zstd: that is for magic 2")
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
    """What ``size`` bytes take at most where nothing can be saved, or a little more."""
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
    """The content. CORRUPT_MESSAGE when ``data`` is not of that codec, ContentTooLarge when it holds more
    than ``max_bytes``, BudgetExceeded when it holds more than ``budget`` has left.
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
    """The most that ``data`` can hold, as far as its headers tell, or ``max_bytes`` where that is less; also
    for what cannot be opened. What ``decompress`` takes in memory.
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
    return BrokerError(ErrorCode.CORRUPT_MESSAGE, f"the {codec.name.lower()} content cannot be opened: {why}")


def _check_bound(codec: Codec, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ContentTooLarge(
            ErrorCode.CORRUPT_MESSAGE,
            f"the {codec.name.lower()} content cannot be opened: it says that it holds {size} bytes, "
            f"at most {max_bytes} are allowed",
        )


def _room(size_bytes: int) -> memoryview:
    """Memory for content, in which stands anything. Large memory is not there before it is written to."""
    return np.empty(size_bytes, dtype=np.uint8).data


def _decompress_gzip(data: Buffer, max_bytes: int) -> memoryview:
    view = memoryview(data)
    room: memoryview | None = None
    at = size = 0
    while at < len(view) or at == 0:
        # Nearly always there is one member. zlib copies what it has not read, so it is given small parts:
        # else a thousand members, or pieces of content, would copy all of it a thousand times.
        part_bytes = _GZIP_PART_BYTES if at else _GZIP_PART_BYTES_MOST
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            part = view[at : at + part_bytes]
            if not part:
                raise _damaged(Codec.GZIP, "it ends too early" if view else "it is empty")
            for piece in _gzip_pieces(member, part):
                _check_bound(Codec.GZIP, size + len(piece), max_bytes)
                if room is None:
                    if len(part) == len(view) and _is_done(member):
                        return memoryview(piece)  # all of it, as with most small content
                    room = _room(min(max_bytes, _GZIP_MOST * len(view)))
                room[size : size + len(piece)] = piece
                size += len(piece)
            at += len(part) - len(member.unused_data)
            part_bytes = min(4 * part_bytes, _GZIP_PART_BYTES_MOST)
    return _NOTHING if room is None else room[:size]


def _is_done(member: zlib._Decompress) -> bool:
    """Whether the member has ended, and nothing is left of what it was given."""
    return member.eof and not member.unused_data and not member.unconsumed_tail


def _gzip_pieces(member: zlib._Decompress, part: memoryview) -> Iterator[bytes]:
    """The content that ``part`` of a member holds."""
    piece = member.decompress(part, _GZIP_PIECE_BYTES)
    while piece or member.unconsumed_tail:
        yield piece
        if member.eof:  # what lies behind it may stand in ``unconsumed_tail`` still
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
            # cramjam takes no empty output. The whole block is the byte that says so.
            if len(block) != 1:
                raise _damaged(Codec.SNAPPY, "a block without content is not empty")
        else:
            got = cramjam.snappy.decompress_raw_into(block, out[at : at + size])
            if got != size:
                raise _damaged(Codec.SNAPPY, f"a block of {size} bytes holds {got}")
        at += size
    return out


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    at = len(_XERIAL_HEADER)
    if len(data) < at:
        raise _damaged(Codec.SNAPPY, "its header is cut off")
    blocks = []
    while at < len(data):
        (length,) = _INT32.unpack_from(data, at)
        at += 4
        if length < 1 or length > len(data) - at:
            raise _damaged(Codec.SNAPPY, f"a block of {length} bytes does not fit")
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
        raise _damaged(Codec.LZ4, "it does not start as an lz4 frame")
    flags = data[4]
    if flags & 0xC3 != 0x40:
        raise _damaged(Codec.LZ4, f"the flags {flags:#x} ask for another version, or a dictionary")
    if not flags & 0x20:
        raise _damaged(Codec.LZ4, "its blocks depend on one another, which Kafka's consumers cannot read")
    checksum_at = 14 if flags & 0x08 else 6  # behind the size of the content, which is optional
    if len(data) <= checksum_at:
        raise _damaged(Codec.LZ4, "its header is cut off")
    descriptor = data[4:checksum_at]
    bound, end = _lz4_blocks(data, checksum_at + 1)
    data = data[:end]
    right = _lz4_header_checksum(descriptor, 1)
    if data[checksum_at] != right:
        if data[checksum_at] != _lz4_header_checksum(descriptor, 0):
            raise _damaged(Codec.LZ4, "its header checksum is wrong")
        repaired = bytearray(data)
        repaired[checksum_at] = right
        data = memoryview(repaired)
    return _decompress_into(Codec.LZ4, cramjam.lz4.decompress_into, data, bound, max_bytes)


def _decompress_into(
    codec: Codec, decompress: Callable[[Buffer, memoryview], int], data: Buffer, bound: int, max_bytes: int
) -> memoryview:
    """Decompress what holds at most ``bound`` bytes by its blocks; untouched pages cost nothing.

    Blocks are rarely full, so the bound of good content may exceed the limit: the codec finds out.
    """
    out = _room(min(bound, max_bytes))
    try:
        size = decompress(data, out)
    except cramjam.DecompressionError as error:
        _check_bound(codec, bound, max_bytes)
        raise _damaged(codec, str(error)) from None
    return out[:size]


def _lz4_blocks(data: memoryview, at: int) -> tuple[int, int]:
    """The most that a frame can hold by its block headers, the first of which is at ``at``; where it ends."""
    flags, block_bytes = data[4], 1 << (8 + 2 * (data[5] >> 4 & 7))
    bound = 0
    while True:
        (word,) = _UINT32_LITTLE.unpack_from(data, at)
        at += 4
        if word == 0:
            break
        length = word & ~_LZ4_STORED
        if length > len(data) - at:
            raise _damaged(Codec.LZ4, f"a block of {length} bytes does not fit")
        # A byte of lz4 stands for at most 255.
        bound += length if word & _LZ4_STORED else min(block_bytes, 255 * length)
        at += length + (4 if flags & 0x10 else 0)
    end = at + (4 if flags & 0x04 else 0)
    if end > len(data):
        raise _damaged(Codec.LZ4, "it ends too early")
    return bound, end


def _decompress_zstd(data: memoryview, max_bytes: int) -> memoryview:
    bound = _zstd_bound(data, max_bytes)
    return _decompress_into(Codec.ZSTD, cramjam.zstd.decompress_into, data, bound, max_bytes)


def _zstd_bound(data: memoryview, max_bytes: int) -> int:
    """The most that the frames can hold by their blocks' headers; less exact when that is over ``max_bytes``.

    The size of the content that a frame may name is not asked.
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
            raise _damaged(Codec.ZSTD, "it does not start as a zstd frame")
        if at == len(data):
            return bound
        if at > len(data):
            raise _damaged(Codec.ZSTD, "it ends too early")


def _zstd_frame(data: memoryview, at: int, max_bytes: int) -> tuple[int, int]:
    """Where the frame at ``at`` ends, and the most that it holds; less when it is over ``max_bytes``."""
    if len(data) - at < 6:
        raise _damaged(Codec.ZSTD, "its header is cut off")
    flags = data[at + 4]
    single_segment = flags >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[flags >> 6]
    at += 5 + (not single_segment) + (0, 1, 2, 4)[flags & 3] + content_size_bytes
    bound = 0
    while True:
        if len(data) - at < 3:
            raise _damaged(Codec.ZSTD, "it ends too early")
        word = int.from_bytes(data[at : at + 3], "little")
        kind, size = word >> 1 & 3, word >> 3
        # Stored, one byte repeated, compressed.
        bound += _ZSTD_BLOCK_BYTES if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
        if word & 1 or bound > max_bytes:
            return at + (4 if flags & 4 else 0), bound
