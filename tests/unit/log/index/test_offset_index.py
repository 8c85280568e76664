"""The sparse offset index: its bytes, look-ups, and invalid files."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import numpy as np
import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.file_scan import scan_file
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.format.message_set import Codec, Record, build_message_set
from tests.support.logs import open_log

BASE = 1000


def pairs(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def loaded(data: bytes, segment_bytes: int = 10_000) -> OffsetIndex | None:
    files = MemoryFiles()
    files.open("i", create=True).write_at(0, data)
    return OffsetIndex.load(files, "i", BASE, segment_bytes)


def test_entries_are_relative_offsets_and_positions_in_eight_bytes(files: MemoryFiles) -> None:
    index = OffsetIndex("i", BASE)
    index.append(BASE + 7, 4200)
    index.append(BASE + 300, 9000)
    index.write_out(files, sync=True)
    assert read_file(files, "i") == pairs((7, 4200), (300, 9000))


def test_a_look_up_gives_the_last_entry_at_or_before_the_offset() -> None:
    index = loaded(pairs((7, 4200), (300, 9000)))
    assert index is not None
    assert index.lookup(BASE) == (BASE, 0)
    assert index.lookup(BASE + 6) == (BASE, 0)
    assert index.lookup(BASE + 7) == (BASE + 7, 4200)
    assert index.lookup(BASE + 299) == (BASE + 7, 4200)
    assert index.lookup(BASE + (1 << 40)) == (BASE + 300, 9000)
    assert index.last() == (BASE + 300, 9000)


def test_an_empty_index_points_to_the_beginning() -> None:
    index = loaded(b"")
    assert index is not None
    assert len(index) == 0
    assert index.last() == (BASE, 0)


def test_preallocated_zeros_are_ignored_and_written_away(files: MemoryFiles) -> None:
    files.open("i", create=True).write_at(0, pairs((7, 4200)) + bytes(800))
    index = OffsetIndex.load(files, "i", BASE, 10_000)
    assert index is not None
    assert index.last() == (BASE + 7, 4200)
    index.append(BASE + 8, 9000)
    index.write_out(files, sync=False)
    assert read_file(files, "i") == pairs((7, 4200), (8, 9000))


def test_a_torn_last_entry_is_passed_over() -> None:
    index = loaded(pairs((7, 4200)) + b"\0\0\1")
    assert index is not None
    assert len(index) == 1


@pytest.mark.parametrize(
    "data",
    [
        pairs((7, 4200), (7, 9000)),
        pairs((7, 4200), (9, 4200)),
        pairs((9, 4200), (7, 9000)),
        pairs((7, 9000), (9, 4200)),
        pairs((-7, 4200)),
        pairs((7, -4200), (9, 4200)),
        pairs((7, 10_000)),
        pairs((7, 4200), (0, 0), (9, 9000)),
    ],
)
def test_a_file_out_of_order_or_outside_its_segment_is_not_believed(data: bytes) -> None:
    assert loaded(data) is None


def test_an_absent_file_is_no_index() -> None:
    assert OffsetIndex.load(MemoryFiles(), "i", BASE, 10_000) is None


def test_an_entry_that_does_not_rise_or_does_not_fit_is_refused() -> None:
    index = OffsetIndex("i", BASE)
    index.append(BASE + 7, 4200)
    for offset, position in [(BASE + 7, 5000), (BASE + 8, 4200), (BASE + (1 << 31), 5000)]:
        with pytest.raises(StorageError, match="cannot follow"):
            index.append(offset, position)
    index.append(BASE + (1 << 31) - 1, 5000)


def test_a_cut_drops_entries_at_and_behind_a_position_in_the_file_too(files: MemoryFiles) -> None:
    index = OffsetIndex("i", BASE)
    for number in range(1, 6):
        index.append(BASE + number, number * 100)
    index.write_out(files, sync=False)
    index.cut(300)
    assert index.last() == (BASE + 2, 200)
    index.append(BASE + 3, 333)
    index.write_out(files, sync=False)
    assert read_file(files, "i") == pairs((1, 100), (2, 200), (3, 333))


def test_only_new_entries_are_written_again(files: MemoryFiles) -> None:
    index = OffsetIndex("i", BASE)
    index.append(BASE + 1, 100)
    index.write_out(files, sync=False)
    index.append(BASE + 2, 200)
    index.write_out(files, sync=False)
    index.write_out(files, sync=False)
    writes = [operation for operation in files.operations if operation.kind == "write"]
    assert [(write.position, write.length) for write in writes] == [(0, 8), (8, 8)]


def test_scan_entries_are_added_where_they_increase() -> None:
    index = OffsetIndex("i", BASE)
    index.append(BASE + 5, 500)
    index.extend(np.array([[BASE + 4, 400], [BASE + 5, 500], [BASE + 9, 900], [BASE + 12, 1200]]))
    assert len(index) == 3
    assert index.lookup(BASE + 10) == (BASE + 9, 900)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_grown_index_equals_a_rebuilt_one(magic: int, codec: Codec) -> None:
    log = open_log(MemoryFiles(), LogConfig(index_interval_bytes=300))
    for first in range(0, 300, 5):
        records = [Record(None, random.Random(first + n).randbytes(40), first) for n in range(first % 7 + 1)]
        log.append(validate(build_message_set(records, magic=magic, codec=codec), Limits(max_magic=2), 0))
    (segment,) = log.segments
    grown = sorted({segment.index().lookup(offset) for offset in range(log.end_offset)})
    # Every entry, and how far into the segment each may be from the one before.
    found = scan_file(segment.file, 0, segment.size, 0, interval_bytes=1)
    every = {tuple(entry) for part in found.entries for entry in part.tolist()} | {(0, 0)}
    assert every.issuperset(grown)
    gaps = [behind[1] - before[1] for before, behind in pairwise(grown)]
    assert min(gaps) > 300
    assert max(gaps) < 2 * 300 + max(behind[1] - before[1] for before, behind in pairwise(sorted(every)))
    assert len(segment.index()) > 5
