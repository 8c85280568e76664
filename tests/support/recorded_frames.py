"""The messages that Apache Kafka 3.9.1 encoded: every version of every API, and of the structures in records.

``tests/data/wire/README.md`` says what a line of the file is.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[1] / "data" / "wire" / "frames-3.9.1.jsonl.gz"


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """A message with its fields as JSON. A structure of records has no key (-1) and no header."""

    key: int
    name: str
    version: int
    kind: str
    """request, response or structure."""
    variant: str
    """default, filled, nulls or unknown-tags."""
    header_version: int
    header: bytes
    message: dict[str, Any]
    body: bytes

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}-{self.kind}-{self.variant}"

    @property
    def frame(self) -> bytes:
        """The whole frame without its length."""
        return self.header + self.body


@cache
def recorded_frames() -> tuple[RecordedFrame, ...]:
    """Return all of them, in the order of the file: by API, version, kind and variant."""
    return tuple(map(_frame, lines()))


def lines() -> list[str]:
    """Return the lines of the file."""
    return gzip.decompress(PATH.read_bytes()).decode().splitlines()


def _frame(line: str) -> RecordedFrame:
    row = json.loads(line)
    return RecordedFrame(
        key=row.get("key", -1),
        name=row["name"],
        version=row["version"],
        kind=row["kind"],
        variant=row["variant"],
        header_version=row.get("header_version", -1),
        header=bytes.fromhex(row.get("header", "")),
        message=row["message"],
        body=bytes.fromhex(row["bytes"]),
    )
