"""The topics of a relay: one for each format and codec, and what is appended to each in each leg."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from minikafka.records.format.message_set import Codec, Record, build_message_set


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is written in one format and codec by all who can."""

    magic: int
    codec: Codec

    def __str__(self) -> str:
        return f"magic{self.magic}-{self.codec.name.lower()}"

    @property
    def config(self) -> dict[str, str]:
        """Return the config with which 0.10.1.1 stores the format; 3.9.1 always stores magic 2."""
        return {"message.format.version": "0.9.0"} if self.magic == 0 else {}


TOPICS = tuple(
    Topic(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec is not Codec.ZSTD
)


def records_of(topic: Topic, leg: int, count: int = 60) -> list[Record]:
    """Null, empty and binary keys and values, times out of order; headers where the format has them."""
    chance = random.Random(f"{topic} {leg}")
    base_ms = 1_600_000_000_000 + leg * 1_000
    records = [
        Record(None, None, base_ms),
        Record(b"", b"", base_ms + 7),
        Record(b"\xff\x00", b"\x80" * 10, base_ms - 100_000),
        Record(b"key", None, base_ms + 7),
        Record(b"large", chance.randbytes(2_000), base_ms + 8),
    ]
    for number in range(len(records), count):
        headers = ((f"h{number}", b"\xfe"), ("h", None), ("", b"")) if number % 3 == 0 else ()
        key = b"k%d" % (number % 7)
        records.append(
            Record(key, chance.randbytes(chance.randrange(200)), base_ms + chance.randrange(900), headers)
        )
    if topic.magic == 2:
        return records
    return [Record(record.key, record.value, record.timestamp_ms) for record in records]


def sets_of(topic: Topic, leg: int) -> Iterator[tuple[bytes, int]]:
    """The same records in message sets of a few, and their number in each."""
    records, chance, at = records_of(topic, leg), random.Random(leg), 0
    while at < len(records):
        taken = records[at : at + chance.randrange(1, 9)]
        yield build_message_set(taken, magic=topic.magic, codec=topic.codec), len(taken)
        at += len(taken)
