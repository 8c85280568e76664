from __future__ import annotations

import gzip
import random

import cramjam
import pytest
import xxhash

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.records.compression import Codec, compress, decompress
from tests.oracles import codecs as oracle

NOISE = random.Random(7).randbytes(200_000)
TEXT = b"".join(b"line %d of a text that compresses well\n" % i for i in range(6_000))
CONTENTS = {"empty": b"", "one byte": b"x", "noise": NOISE, "text": TEXT, "zeros": bytes(300_000)}

every_content = pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
every_codec = pytest.mark.parametrize("codec", list(Codec))


@every_content
@every_codec
@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_compressed_is_read_back_by_us_and_by_the_oracle(
    codec: Codec, content: bytes, magic: int
) -> None:
    packed = compress(codec, memoryview(content), magic)
    assert decompress(codec, packed) == content
    assert oracle.decompress(int(codec), packed) == content


@every_content
@every_codec
@pytest.mark.parametrize("magic", [0, 1])
def test_what_the_oracle_writes_is_read(codec: Codec, content: bytes, magic: int) -> None:
    assert decompress(codec, oracle.compress(int(codec), content, magic)) == content


def test_codecs_are_parsed_by_name() -> None:
    assert [Codec.parse(name) for name in ("none", "GZIP", " snappy ", "lz4")] == list(Codec)
    with pytest.raises(ConfigError, match=r"zstd.*none, gzip, snappy, lz4"):
        Codec.parse("zstd")


def test_snappy_is_written_in_xerials_frame_and_blocks() -> None:
    packed = compress(Codec.SNAPPY, TEXT, 1)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == TEXT[: 32 << 10]


def test_snappy_without_a_frame_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_gzip_in_several_members_is_read() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_the_header_checksum_of_lz4_is_wrong_for_magic_0_as_kafkas_and_right_for_magic_1() -> None:
    descriptor = b"\x60\x40"
    right = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    wrong = xxhash.xxh32_intdigest(b"\x04\x22\x4d\x18" + descriptor) >> 8 & 0xFF
    assert right != wrong
    assert compress(Codec.LZ4, TEXT, 1)[4:7] == descriptor + bytes([right])
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
    ],
)
def test_what_is_not_of_the_codec_is_a_corrupt_message(codec: Codec, packed: bytes) -> None:
    with pytest.raises(BrokerError, match=f"{codec.name.lower()} content") as raised:
        decompress(codec, packed)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_content_of_exactly_the_bound_is_read_and_one_byte_more_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000), 1)
    assert decompress(codec, packed, 100_000) == bytes(100_000)
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE.*at most 99999 are allowed"):
        decompress(codec, packed, 99_999)


def test_a_small_message_cannot_claim_a_large_memory() -> None:
    """A snappy block says its size itself: 4 GiB here, in six bytes."""
    with pytest.raises(BrokerError, match="at most 134217728 are allowed"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00")
