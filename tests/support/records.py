"""What the tests of this floor share: the recorded segments, and columns as plain tuples."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from minikafka.base.files import FileSlice
from minikafka.base.memory_files import MemoryFiles
from minikafka.records.columns import Columns
from minikafka.records.format.message_set import CLASSIC_CODECS, Record, StoredRecord
from minikafka.records.format.record import Headers

SEGMENTS = Path(__file__).resolve().parents[1] / "data" / "segments"

CASES = {
    "magic0-none": "expected-magic0",
    "magic0-gzip": "expected-magic0",
    "magic0-snappy": "expected-magic0",
    "magic0-lz4": "expected-magic0",
    "magic1-none": "expected-magic1",
    "magic1-gzip": "expected-magic1",
    "magic1-snappy": "expected-magic1",
    "magic1-lz4": "expected-magic1",
    "magic1-none-logappendtime": "expected-magic1-none-logappendtime",
    "magic1-gzip-logappendtime": "expected-magic1-gzip-logappendtime",
}

BATCH_CASES = {
    "magic2-none": "expected-magic2",
    "magic2-gzip": "expected-magic2",
    "magic2-snappy": "expected-magic2",
    "magic2-lz4": "expected-magic2",
    "magic2-zstd": "expected-magic2",
    "magic2-idempotent-lz4": "expected-magic2",
    "magic2-none-logappendtime": "expected-magic2-none-logappendtime",
    "magic2-gzip-logappendtime": "expected-magic2-gzip-logappendtime",
    "magic2-transactions": "expected-magic2-transactions",
}

TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

Row = tuple[int, int, int, bytes | None, bytes | None]
"""Offset, timestamp, timestamp type, key, value."""


def segment(name: str) -> bytes:
    return (SEGMENTS / f"{name}.log").read_bytes()


def expected(name: str) -> list[Row]:
    return [_row(line) for line in _lines((CASES | BATCH_CASES)[name])]


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SEGMENTS / f"{name}.jsonl").read_text().splitlines()]


def expected_headers(name: str) -> list[Headers]:
    """For each record of a magic 2 segment."""
    return [
        tuple((key, None if value is None else base64.b64decode(value)) for key, value in line["headers"])
        for line in _lines(BATCH_CASES[name])
    ]


def expected_read_committed() -> list[Row]:
    """The records of "magic2-transactions" without those of aborted transactions."""
    return [_row(line) for line in _lines("expected-magic2-transactions-read-committed")]


def _row(line: dict[str, Any]) -> Row:
    key, value = (None if line[name] is None else base64.b64decode(line[name]) for name in ("key", "value"))
    return line["offset"], line["timestamp"], TYPES[line["timestamp_type"]], key, value


def row_of(record: StoredRecord) -> Row:
    return record.offset, record.timestamp_ms, int(record.timestamp_type), record.key, record.value


def rows_of(columns: Columns) -> list[Row]:
    return list(
        zip(
            columns.offsets.tolist(),
            columns.timestamps.tolist(),
            columns.timestamp_types.tolist(),
            columns.key_array().to_pylist(),
            columns.value_array().to_pylist(),
            strict=True,
        )
    )


def slice_of(data: bytes) -> FileSlice:
    """A file that holds ``data``."""
    file = MemoryFiles().open("segment", create=True)
    file.write_at(0, data)
    return FileSlice(file, 0, len(data))


def some_records(count: int, value_bytes: int = 20) -> list[Record]:
    """``count`` records with rising timestamps from 1000 and different values."""
    return [Record(b"k%d" % i, (b"v%d-" % i) * (value_bytes // 4 + 1), 1000 + i) for i in range(count)]


CODECS = CLASSIC_CODECS
MAGICS = (0, 1)
