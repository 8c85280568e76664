from __future__ import annotations

import gzip
import random
import tracemalloc

import cramjam
import pytest
import xxhash

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.records.compression import CLASSIC_CODECS, Codec, compress, decompress
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
def test_what_is_compressed_is_read_back_by_us_and_by_the_oracle(
    codec: Codec, content: bytes, magic: int
) -> None:
    packed = compress(codec, memoryview(content), magic)
    assert decompress(codec, packed) == content
    assert oracle.decompress(int(codec), packed) == content


@every_content
@every_codec
def test_what_the_oracle_writes_is_read(codec: Codec, content: bytes, magic: int) -> None:
    assert decompress(codec, oracle.compress(int(codec), content, magic)) == content


def test_codecs_are_parsed_by_name() -> None:
    assert [Codec.parse(name) for name in ("none", "GZIP", " snappy ", "lz4")] == list(CLASSIC_CODECS)
    with pytest.raises(ConfigError, match=r"zstd.*none, gzip, snappy, lz4"):
        Codec.parse("zstd")


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_for_magic_2_only(magic: int) -> None:
    with pytest.raises(ValueError, match=f"magic {magic} cannot be compressed with zstd"):
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


def test_the_header_checksum_of_lz4_is_wrong_for_magic_0_as_kafkas_and_right_after_it() -> None:
    descriptor = b"\x60\x40"
    right = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    wrong = xxhash.xxh32_intdigest(b"\x04\x22\x4d\x18" + descriptor) >> 8 & 0xFF
    assert right != wrong
    assert compress(Codec.LZ4, TEXT, 1)[4:7] == descriptor + bytes([right])
    assert compress(Codec.LZ4, TEXT, 2)[4:7] == descriptor + bytes([right])
    assert compress(Codec.LZ4, TEXT, 0)[4:7] == descriptor + bytes([wrong])


def test_an_lz4_frame_of_another_writer_is_read() -> None:
    """Linked blocks, a content checksum: not what Kafka writes, but a frame nevertheless."""
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT))) == TEXT


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
def test_what_is_not_of_the_codec_is_a_corrupt_message(codec: Codec, packed: bytes) -> None:
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
def test_content_of_exactly_the_bound_is_read_and_one_byte_more_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000), 2)
    assert decompress(codec, packed, 100_000) == bytes(100_000)
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*at most 99999 are allowed"):
        decompress(codec, packed, 99_999)


@compressing
def test_a_small_message_cannot_take_a_large_memory(codec: Codec) -> None:
    packed = bomb(codec)
    tracemalloc.start()
    with pytest.raises(BrokerError, match="at most 1048576 are allowed"):
        decompress(codec, packed, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_without_a_bound_of_the_callers_there_still_is_one() -> None:
    with pytest.raises(BrokerError, match="at most 134217728 are allowed"):
        decompress(Codec.SNAPPY, bomb(Codec.SNAPPY))
