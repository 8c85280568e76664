"""The other files of a log and of a data directory, for ``minikafka log dump``: their kinds and their rows.

    BASE.log, BASE.kafka      segment (``dump``); so is every name that is not listed here
    BASE.index                offset index: int32 relative offset, int32 position
    BASE.timeindex            time index: int64 timestamp, int32 relative offset
    BASE.txnindex             aborted transactions, of 0.11 and later: int16 version 0, int64 producer id,
                              int64 first offset, int64 last offset, int64 last stable offset
    OFFSET.snapshot           producers at that offset, of 0.11 and later (``producers.snapshots``)
    leader-epoch-checkpoint   text: version 0, number, lines of epoch and first offset
    NAME-offset-checkpoint    text: version 0, number, lines of topic, partition and offset
    meta.properties, partition.metadata   text: lines of a name and a value

All numbers are big-endian. ``.deleted``, ``.cleaned``, ``.swap`` or ``.corrupt`` may follow a name, without
changing the format. Sources: ``TransactionIndex.java`` and ``CheckpointFile.java`` of 3.9.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from enum import Enum

import numpy as np
import numpy.typing as npt

from minikafka.base.config.property_files import parse_properties
from minikafka.base.errors import ConfigError, StorageError
from minikafka.base.files import Files, read_file
from minikafka.log.checkpoints.leader_epochs import read_epochs
from minikafka.log.checkpoints.offset_checkpoint import read_checkpoint
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.log.index.time_index import TimeIndex
from minikafka.log.producers.snapshots import COVERED_AT, VERSION, parse_producers
from minikafka.log.tools.dump import Damage

Row = Mapping[str, object]
"""A line of output: names with text, whole numbers and None."""

PASSING = re.compile(r"(?:(?:\.[0-9]+)?\.(?:deleted|cleaned|swap|corrupt))+$")
"""Suffixes of files that are being written or removed."""
_OFFSET = re.compile(r"[0-9]+(?=\.)")

_TRANSACTION = struct.Struct(">hqqqq")
TRANSACTION_BYTES = _TRANSACTION.size


class FileKind(Enum):
    """The kind of a file, with its title and the endings of its names."""

    SEGMENT = ("segment", (".log", ".kafka"))
    OFFSET_INDEX = ("offset index", (".index",))
    TIME_INDEX = ("time index", (".timeindex",))
    TRANSACTION_INDEX = ("transaction index", (".txnindex",))
    PRODUCERS = ("producer snapshot", (".snapshot",))
    EPOCHS = ("leader epochs", ("leader-epoch-checkpoint",))
    CHECKPOINT = ("checkpoint", ("-offset-checkpoint",))
    PROPERTIES = ("properties", ("meta.properties", "partition.metadata"))

    def __init__(self, title: str, endings: tuple[str, ...]) -> None:
        self.title = title
        self.endings = endings


def kind_of(path: str) -> tuple[FileKind, int | None]:
    """Return the kind of a file by its name, and the offset in the name. Other names count as segments."""
    name = PASSING.sub("", os.path.basename(path))
    number = _OFFSET.match(name)
    offset = int(number[0]) if number is not None and int(number[0]) < 1 << 63 else None
    for kind in FileKind:
        if name.endswith(kind.endings):
            return kind, offset
    return FileKind.SEGMENT, offset


def file_rows(files: Files, path: str) -> Iterator[Row | Damage]:
    """Yield the rows of a file that is not a segment, in order, and ``Damage`` if it ends within an entry.

    Raises FileNotFoundError when there is no such file (a checkpoint has no rows then); StorageError when it
    cannot be read, or is not of that kind.
    """
    kind, base = kind_of(path)
    if kind in {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX}:
        yield from _index_rows(files, path, kind, base)
    elif kind is FileKind.TRANSACTION_INDEX:
        data = read_file(files, path)
        yield from transactions(data)
        yield from _rest(path, len(data), _TRANSACTION.size)
    elif kind is FileKind.PRODUCERS:
        yield from producers(path, read_file(files, path))
    elif kind is FileKind.EPOCHS:
        for epoch, offset in read_epochs(files, path):
            yield {"epoch": epoch, "start_offset": offset}
    elif kind is FileKind.CHECKPOINT:
        for partition, offset in read_checkpoint(files, path).items():
            yield {"topic": partition.topic, "partition": partition.partition, "offset": offset}
    elif kind is FileKind.PROPERTIES:
        yield read_properties(files, path)


def index_entries(files: Files, path: str, kind: FileKind) -> tuple[npt.NDArray[np.int64], list[Damage]]:
    """Read an index file: its numbers as int64[n, 2], in file order, and an incomplete entry at its end.

    Preallocated space, which is zeros after the last entry, is ignored.
    """
    layout = OffsetIndex.LAYOUT if kind is FileKind.OFFSET_INDEX else TimeIndex.LAYOUT
    data = read_file(files, path)
    found = np.frombuffer(data, dtype=layout, count=len(data) // layout.itemsize)
    entries = np.stack([found[name].astype(np.int64) for name in layout.names or ()], axis=1)
    filled = np.flatnonzero(entries.any(axis=1))
    entries = entries[: int(filled[-1]) + 1 if len(filled) else 0]
    rest = data[found.nbytes :]
    return entries, _rest(path, len(data), layout.itemsize) if any(rest) else []


def _index_rows(files: Files, path: str, kind: FileKind, base: int | None) -> Iterator[Row | Damage]:
    entries, rest = index_entries(files, path, kind)
    for first, second in entries.tolist():
        relative = first if kind is FileKind.OFFSET_INDEX else second
        offset = None if base is None else base + relative
        if kind is FileKind.OFFSET_INDEX:
            yield {"offset": offset, "relative_offset": relative, "position": second}
        else:
            yield {"timestamp": first, "offset": offset, "relative_offset": relative}
    yield from rest


def _rest(path: str, size: int, entry_bytes: int) -> list[Damage]:
    rest = size % entry_bytes
    return (
        [Damage(path, size - rest, rest, f"incomplete entry, expected {entry_bytes} bytes")] if rest else []
    )


def transactions(data: bytes) -> Iterator[dict[str, int]]:
    """Yield the entries of a transaction index."""
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    for entry in _TRANSACTION.iter_unpack(data[: len(data) - len(data) % _TRANSACTION.size]):
        yield dict(zip(names, entry, strict=True))


def producers(path: str, data: bytes) -> Iterator[Row | Damage]:
    """Yield the producers of a snapshot, and ``Damage`` when the checksum is wrong.

    Raises StorageError when its size or version is not valid.
    """
    known, wrong = parse_producers(path, data)
    for producer_id, producer in known.items():
        last = producer.batches[-1] if producer.batches else None
        yield {
            "version": VERSION,
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "offset_delta": 0 if last is None else last.last_offset - last.first_offset,
            "timestamp": producer.last_timestamp_ms,
            "coordinator_epoch": producer.coordinator_epoch,
            "current_txn_first_offset": None
            if producer.current_txn_first_offset < 0
            else producer.current_txn_first_offset,
        }
    if wrong is not None:
        yield Damage(path, COVERED_AT, len(data) - COVERED_AT, wrong)


def read_properties(files: Files, path: str) -> dict[str, str]:
    """Read names and values. Raises StorageError for a line without a value."""
    try:
        return parse_properties(read_file(files, path).decode("latin-1"), path)
    except ConfigError as error:
        raise StorageError(f"not a properties file: {error}") from None
