"""Kafka's DumpLogSegments of the recorded segments, entry by entry, compared with our readers."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import pytest

from minikafka.records.format.batch import read_header
from minikafka.records.format.message_set import TimestampType
from minikafka.records.kernels.layout import MAGIC_AT, MESSAGE_CRC_AT
from minikafka.records.scan.scan import scan
from minikafka.records.scan.stream import MessageSet
from tests.support.records import BATCH_CASES, SEGMENTS, segment

INDEXES = SEGMENTS.parent / "log-index"
DUMPS = sorted(path.name.removesuffix(".dump.txt") for path in SEGMENTS.glob("*.dump.txt"))
TYPES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
CLASSIC_NAMES = {
    "NONE": "NoCompressionCodec",
    "GZIP": "GZIPCompressionCodec",
    "SNAPPY": "SnappyCompressionCodec",
    "LZ4": "LZ4CompressionCodec",
}

Facts = dict[str, str]


def dumped(name: str) -> list[Facts]:
    lines = (SEGMENTS / f"{name}.dump.txt").read_text().splitlines()
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines[2:]]


def classic(data: bytes) -> Iterator[Facts]:
    """Yield the facts of messages of magic 0 and 1."""
    position = 0
    for record in MessageSet(data).records(deep=False):
        crc = int.from_bytes(data[position + MESSAGE_CRC_AT : position + MESSAGE_CRC_AT + 4], "big")
        facts = {
            "offset": record.offset,
            "position": position,
            TYPES[record.timestamp_type]: record.timestamp_ms,
            "isvalid": "true",
            "payloadsize": -1 if record.value is None else len(record.value),
            "magic": record.magic,
            "compresscodec": CLASSIC_NAMES[record.codec.name],
            "crc": crc,
        }
        if record.key is not None:
            facts["keysize"] = len(record.key)
        yield {name: str(value) for name, value in facts.items()}
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")


def batches(data: bytes) -> Iterator[Facts]:
    """Yield the facts of batches of magic 2."""
    position = 0
    for piece in MessageSet(data).bulk(1):
        header = read_header(piece, 0)
        idempotent = header.base_sequence >= 0
        facts = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.base_sequence + header.last_offset_delta if idempotent else -1,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.leader_epoch,
            "isTransactional": str(header.transactional).lower(),
            "isControl": str(header.control).lower(),
            "deleteHorizonMs": "OptionalLong.empty",
            "position": position,
            TYPES[header.timestamp_type]: header.max_timestamp_ms,
            "size": header.size_bytes,
            "magic": piece[MAGIC_AT],
            "compresscodec": header.codec.name.lower(),
            "crc": int.from_bytes(piece[17:21], "big"),
            "isvalid": "true",
        }
        assert not header.has_delete_horizon
        yield {name: str(value) for name, value in facts.items()}
        position += len(piece)


@pytest.mark.parametrize("name", DUMPS)
def test_every_entry_equals_kafkas_dump(name: str) -> None:
    facts = batches if name.startswith("magic2") else classic
    assert list(facts(segment(name))) == dumped(name)


@pytest.mark.parametrize("name", BATCH_CASES)
def test_a_scan_of_magic_2_makes_kafkas_own_indexes(name: str) -> None:
    result = scan(segment(name), base_offset=0, index_interval_bytes=1024)
    offsets = b"".join(struct.pack(">ii", *entry) for entry in result.index_entries.tolist())
    assert offsets == (INDEXES / f"{name}.index").read_bytes()
    times: list[tuple[int, int]] = []
    for time, offset in [*result.time_entries.tolist(), (result.max_timestamp_ms, result.max_timestamp_at)]:
        if not times or time > times[-1][0]:
            times.append((time, offset))
    assert (
        b"".join(struct.pack(">qi", *entry) for entry in times)
        == (INDEXES / f"{name}.timeindex").read_bytes()
    )


def test_all_formats_and_codecs_have_a_dump() -> None:
    assert len(DUMPS) == 17
    assert {name[:6] for name in DUMPS} == {"magic0", "magic1", "magic2"}
