from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib

import cramjam
import pytest
import xxhash

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.records.format import compression
from minikafka.records.format.compression import (
    CLASSIC_CODECS,
    BudgetExceeded,
    Codec,
    ContentBudget,
    ContentTooLarge,
    compress,
    content_bound,
    decompress,
)
from tests.oracles import codecs as oracle

NOISE = random.Random(7).randbytes(200_000)
TEXT = b"".join(b"line %d of a text that compresses well\n" % i for i in range(6_000))
CONTENTS = {"empty": b"", "one byte": b"x", "noise": NOISE, "text": TEXT, "zeros": bytes(300_000)}

every_content = pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
every_codec = pytest.mark.parametrize(
    ("codec", "magic"),
    [(codec, magic) for codec in Codec for magic in (0, 1, 2) if magic == 2 or codec in CLASSIC_CODECS],
)


@every_content
@every_codec
def test_compressed_data_is_read_by_us_and_by_the_oracle(codec: Codec, content: bytes, magic: int) -> None:
    packed = compress(codec, memoryview(content), magic)
    assert decompress(codec, packed) == content
    assert oracle.decompress(int(codec), packed) == content


@every_content
@every_codec
def test_room_for_a_header_is_left_before_it(codec: Codec, content: bytes, magic: int) -> None:
    assert compress(codec, content, magic, 61)[61:] == compress(codec, content, magic)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("around", [1 << 15, 1 << 16, 1 << 17])
def test_noise_around_the_limits_of_blocks_fits(codec: Codec, around: int) -> None:
    for size in (around - 1, around, around + 1):
        assert decompress(codec, compress(codec, NOISE[:size], 2)) == NOISE[:size]


@every_content
@every_codec
def test_compressed_data_of_the_oracle_is_read(codec: Codec, content: bytes, magic: int) -> None:
    assert decompress(codec, oracle.compress(int(codec), content, magic)) == content


def test_codecs_are_parsed_by_name() -> None:
    assert [Codec.parse(name) for name in ("none", "GZIP", " snappy ", "lz4")] == list(CLASSIC_CODECS)
    with pytest.raises(ConfigError, match=r"brotli.*none, gzip, snappy, lz4, zstd"):
        Codec.parse("brotli")


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_for_magic_2_only(magic: int) -> None:
    with pytest.raises(ValueError, match=f"magic {magic} does not support zstd"):
        compress(Codec.ZSTD, TEXT, magic)


def test_snappy_is_written_in_xerials_frame_and_blocks() -> None:
    packed = compress(Codec.SNAPPY, TEXT, 1)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == TEXT[: 32 << 10]


def test_snappy_without_a_frame_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_gzip_in_several_members_is_read() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_zstd_in_several_frames_also_without_content_is_read() -> None:
    frames = [bytes(cramjam.zstd.compress(part)) for part in (b"one ", b"", b"two")]
    skipped = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decompress(Codec.ZSTD, skipped.join(frames) + skipped) == b"one two"


def test_lz4_header_checksum_is_wrong_for_magic_0_only() -> None:
    descriptor = b"\x60\x40"
    right = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    wrong = xxhash.xxh32_intdigest(b"\x04\x22\x4d\x18" + descriptor) >> 8 & 0xFF
    assert right != wrong
    assert compress(Codec.LZ4, TEXT, 1)[4:7] == descriptor + bytes([right])
    assert compress(Codec.LZ4, TEXT, 2)[4:7] == descriptor + bytes([right])
    assert compress(Codec.LZ4, TEXT, 0)[4:7] == descriptor + bytes([wrong])


def lz4_frame(*blocks: bytes, flags: int = 0x60, sizes: int = 0x40, content_size: int = 0) -> bytes:
    """A frame of stored blocks with any flags, and the checksums that these require."""
    descriptor = bytes([flags, sizes]) + (struct.pack("<Q", content_size) if flags & 8 else b"")
    out = b"\x04\x22\x4d\x18" + descriptor + bytes([xxhash.xxh32_intdigest(descriptor) >> 8 & 255])
    for block in blocks:
        out += struct.pack("<I", len(block) | 1 << 31) + block
        out += struct.pack("<I", xxhash.xxh32_intdigest(block)) if flags & 16 else b""
    checksum = struct.pack("<I", xxhash.xxh32_intdigest(b"".join(blocks)))
    return out + bytes(4) + (checksum if flags & 4 else b"")


@pytest.mark.parametrize("flags", [0x60, 0x64, 0x68, 0x70, 0x7C])
@pytest.mark.parametrize("sizes", [0x40, 0x50, 0x60, 0x70])
def test_lz4_frames_with_checksums_and_sizes_are_read(flags: int, sizes: int) -> None:
    assert (
        decompress(Codec.LZ4, lz4_frame(b"one ", b"two", flags=flags, sizes=sizes, content_size=7))
        == b"one two"
    )


def lz4_blocks(*contents: bytes, sizes: int = 0x40) -> bytes:
    """A frame of compressed blocks, of any size, as Kafka's producers write it."""
    descriptor = bytes([0x60, sizes])
    out = b"\x04\x22\x4d\x18" + descriptor + bytes([xxhash.xxh32_intdigest(descriptor) >> 8 & 255])
    for content in contents:
        block = bytes(cramjam.lz4.compress_block(content, store_size=False))
        out += struct.pack("<I", len(block)) + block
    return out + bytes(4)


@pytest.mark.parametrize(("sizes", "block_bytes"), [(0x40, 1 << 16), (0x50, 1 << 18), (0x60, 1 << 20)])
def test_lz4_blocks_of_every_size_are_read(sizes: int, block_bytes: int) -> None:
    contents = bytes(block_bytes), TEXT[:60_000], b"", bytes(block_bytes - 1), b"x"
    packed = lz4_blocks(*contents, sizes=sizes)
    assert decompress(Codec.LZ4, packed) == b"".join(contents)
    assert decompress(Codec.LZ4, packed) == bytes(cramjam.lz4.decompress(packed))


def test_lz4_blocks_larger_than_the_frame_says_are_refused() -> None:
    large, small = bytes(65_537), TEXT[:9_000]
    for packed in (lz4_blocks(large), lz4_blocks(large, small), lz4_blocks(small, large)):
        with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*lz4") as raised:
            decompress(Codec.LZ4, packed)
        with pytest.raises(cramjam.DecompressionError) as expected:
            cramjam.lz4.decompress(packed)
        assert str(expected.value) in raised.value.detail


@pytest.mark.parametrize("seed", range(20))
def test_damaged_lz4_blocks_are_read_or_refused_as_by_the_library(seed: int) -> None:
    source = random.Random(seed)
    packed = bytearray(lz4_blocks(TEXT[:60_000], bytes(9_000), source.randbytes(300)))
    for _ in range(3):
        packed[source.randrange(7, len(packed))] = source.randrange(256)
    try:
        expected = bytes(cramjam.lz4.decompress(bytes(packed)))
    except cramjam.DecompressionError:
        with pytest.raises(BrokerError, match="CORRUPT_MESSAGE"):
            decompress(Codec.LZ4, packed)
    else:
        assert decompress(Codec.LZ4, packed) == expected


def test_bytes_after_an_lz4_frame_are_ignored() -> None:
    compressed = compress(Codec.LZ4, TEXT, 1)
    for behind in (compressed, b"\x50\x2a\x4d\x18\x02\0\0\0ab", b"x"):
        assert decompress(Codec.LZ4, compressed + behind) == TEXT


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (lz4_frame(b"one ", b"two", flags=0x40), "dependent blocks"),
        (bytes(cramjam.lz4.compress(TEXT)), "dependent blocks"),
        (lz4_frame(b"x", flags=0x61), "version, or a dictionary"),
        (lz4_frame(b"x", flags=0x62), "version, or a dictionary"),
        (lz4_frame(b"x", flags=0xA0), "version, or a dictionary"),
        (lz4_frame(b"x", flags=0x20), "version, or a dictionary"),
        (lz4_frame(b"x", sizes=0x30), "BlockSize"),
        (lz4_frame(b"x", sizes=0x41), "reserved"),
        (lz4_frame(b"x", sizes=0xC0), "reserved"),
        (lz4_frame(bytes(65_537)), "BlockSize"),
        (lz4_frame(b"x", flags=0x68, content_size=2), "frameSize"),
        (lz4_frame(b"x", flags=0x68, content_size=1 << 60), "frameSize"),
        (lz4_frame(b"x", flags=0x64)[:-1] + b"?", "contentChecksum"),
        (lz4_frame(b"x", flags=0x70)[:-5] + b"?" + bytes(4), "blockChecksum"),
        (lz4_frame(b"x", flags=0x64)[:-4], "unexpected end of data"),
        (b"\x50\x2a\x4d\x18\x02\0\0\0ab" + lz4_frame(b"x"), "not an lz4 frame"),
    ],
)
def test_unsupported_or_inconsistent_lz4_is_refused(packed: bytes, text: str) -> None:
    with pytest.raises(BrokerError, match=f"CORRUPT_MESSAGE.*{text}"):
        decompress(Codec.LZ4, packed)


class CountingZlib:
    """zlib, with the number of bytes that were given to it."""

    def __init__(self) -> None:
        self.given_bytes = 0
        self.error = zlib.error

    def decompressobj(self, wbits: int) -> CountingZlib:
        self._member = zlib.decompressobj(wbits)
        return self

    def decompress(self, data: memoryview, max_bytes: int) -> bytes:
        self.given_bytes += len(data)
        return self._member.decompress(data, max_bytes)

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    @property
    def unconsumed_tail(self) -> bytes:
        return self._member.unconsumed_tail


def test_many_small_gzip_members_do_not_copy_the_rest_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    members = gzip.compress(b"", mtime=0) * 2_000 + gzip.compress(b"end")
    counting = CountingZlib()
    monkeypatch.setattr(compression, "zlib", counting)
    assert decompress(Codec.GZIP, members) == b"end"
    assert counting.given_bytes < 50 * len(members)


def test_gzip_members_end_anywhere() -> None:
    source = random.Random(3)
    for _ in range(30):
        parts = [source.randbytes(source.randrange(9_000)) for _ in range(source.randrange(1, 9))]
        assert decompress(Codec.GZIP, b"".join(map(gzip.compress, parts))) == b"".join(parts)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.GZIP, b""),
        (Codec.GZIP, b"not gzip at all"),
        (Codec.GZIP, gzip.compress(TEXT)[:-1]),
        (Codec.GZIP, gzip.compress(TEXT) + b"behind"),
        (Codec.SNAPPY, b""),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\xff\xff"),
        (Codec.SNAPPY, compress(Codec.SNAPPY, TEXT, 1)[:-1]),
        (Codec.SNAPPY, compress(Codec.SNAPPY, TEXT, 1)[:18]),
        (Codec.SNAPPY, compress(Codec.SNAPPY, TEXT, 1)[:12]),
        (Codec.SNAPPY, oracle.XERIAL_HEADER + b"\x7f\xff\xff\xff"),
        (Codec.SNAPPY, oracle.XERIAL_HEADER + b"\xff\xff\xff\xff"),
        (Codec.LZ4, b""),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x60\x40"),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x60\x40\x00\x00\x00\x00\x00"),
        (Codec.LZ4, compress(Codec.LZ4, TEXT, 1)[:-4]),
        (Codec.LZ4, compress(Codec.LZ4, TEXT, 1)[:-3]),
        (Codec.LZ4, compress(Codec.LZ4, TEXT, 1)[:300]),
        (Codec.LZ4, compress(Codec.LZ4, TEXT, 1)[:7] + b"\xff\xff\xff\x7f"),
        (Codec.ZSTD, b""),
        (Codec.ZSTD, b"not zstd at all"),
        (Codec.ZSTD, compress(Codec.ZSTD, TEXT, 2)[:-1]),
        (Codec.ZSTD, compress(Codec.ZSTD, TEXT, 2)[:5]),
        (Codec.ZSTD, compress(Codec.ZSTD, TEXT, 2) + b"behind"),
        (Codec.ZSTD, b"\x50\x2a\x4d\x18\xff\xff\xff\xff"),
        (Codec.ZSTD, oracle.zstd_frame(b"")[:6] + b"\xff\xff\xff"),
    ],
)
def test_data_of_another_codec_is_a_corrupt_message(codec: Codec, packed: bytes) -> None:
    with pytest.raises(BrokerError, match=f"{codec.name.lower()} content") as raised:
        decompress(codec, packed)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def bomb(codec: Codec) -> bytes:
    """64 MiB of zeros in few bytes; a snappy block says its size itself: 4 GiB in six."""
    if codec is Codec.SNAPPY:
        return b"\xff\xff\xff\xff\x0f\x00"
    return compress(codec, bytes(64 << 20), 2)


compressing = pytest.mark.parametrize("codec", list(Codec)[1:])


@compressing
def test_content_one_byte_above_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000), 2)
    assert decompress(codec, packed, 100_000) == bytes(100_000)
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*exceed the limit of 99999"):
        decompress(codec, packed, 99_999)


@compressing
def test_a_small_message_cannot_take_a_large_memory(codec: Codec) -> None:
    packed = bomb(codec)
    tracemalloc.start()
    with pytest.raises(BrokerError, match="exceed the limit of 1048576"):
        decompress(codec, packed, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_without_a_bound_of_the_callers_there_still_is_one() -> None:
    with pytest.raises(BrokerError, match="exceed the limit of 134217728"):
        decompress(Codec.SNAPPY, bomb(Codec.SNAPPY))


@compressing
def test_the_bound_of_content_is_known_before_it_is_opened(codec: Codec) -> None:
    for content in (b"", b"x", TEXT, bytes(300_000), random.Random(1).randbytes(70_000)):
        packed = compress(codec, content, 2)
        assert content_bound(codec, packed) >= len(decompress(codec, packed))
        assert content_bound(codec, packed, 10) <= 10


@compressing
def test_bound_of_damaged_content_is_the_limit(codec: Codec) -> None:
    for packed in (b"", b"\x82", b"not of that codec at all"):
        assert content_bound(codec, packed, 1 << 20) <= 1 << 20


@compressing
def test_decompression_consumes_and_respects_the_budget(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000), 2)
    budget = ContentBudget(150_000)
    assert len(decompress(codec, packed, budget=budget)) == 100_000
    assert budget.left_bytes < 50_000
    with pytest.raises(BudgetExceeded):
        decompress(codec, packed, budget=budget)


@compressing
def test_a_bound_below_the_budget_is_an_error_of_the_content(codec: Codec) -> None:
    with pytest.raises(ContentTooLarge):
        decompress(codec, compress(codec, bytes(100_000), 2), 50_000, ContentBudget(1 << 20))


def test_gzip_content_of_several_pieces_is_put_together() -> None:
    content = random.Random(2).randbytes(3 << 20)
    assert decompress(Codec.GZIP, gzip.compress(content, 1)) == content
    assert decompress(Codec.GZIP, gzip.compress(bytes(3 << 20)) * 2) == bytes(6 << 20)
