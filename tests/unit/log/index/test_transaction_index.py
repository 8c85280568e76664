"""The index of aborted transactions: Kafka's bytes, look-ups, and files that are not valid."""

from __future__ import annotations

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.index.transaction_index import AbortedTransaction, TransactionIndex, encoded
from tests.support.logs import DATA

PATH = "5.txnindex"
KAFKAS = (DATA / "segments" / "magic2-transactions.txnindex").read_bytes()
ENTRIES = [
    AbortedTransaction(1, 5, 20, 8),
    AbortedTransaction(2, 8, 30, 25),
    AbortedTransaction(3, 25, 31, 32),
]


def index_of(files: MemoryFiles, entries: list[AbortedTransaction]) -> TransactionIndex:
    index = TransactionIndex(PATH)
    index.create(files)
    for entry in entries:
        index.add(entry)
    index.write_out(files, sync=False)
    return index


def loaded(files: MemoryFiles, data: bytes, base_offset: int = 0) -> TransactionIndex:
    files.open(PATH, create=True).write_at(0, data)
    index = TransactionIndex.load(files, PATH, base_offset)
    assert index is not None
    return index


def test_a_file_of_kafka_is_read_and_written_the_same(files: MemoryFiles) -> None:
    index = loaded(files, KAFKAS)
    assert index.entries() == [AbortedTransaction(1, 31, 61, 62), AbortedTransaction(3, 67, 83, 84)]
    assert encoded(index.entries()) == KAFKAS


def test_an_absent_file_is_no_index(files: MemoryFiles) -> None:
    assert TransactionIndex.load(files, PATH, 0) is None


@pytest.mark.parametrize(
    ("start", "end", "producers", "complete"),
    [
        (0, 5, [], True),
        (0, 6, [1], True),
        (0, 8, [1], True),
        (0, 9, [1, 2], True),
        (0, 26, [1, 2, 3], True),
        (20, 26, [1, 2, 3], True),
        (21, 26, [2, 3], True),
        (31, 32, [3], True),
        (31, 33, [3], False),
        (32, 40, [], False),
    ],
)
def test_look_up_gives_those_that_overlap(
    files: MemoryFiles, start: int, end: int, producers: list[int], complete: bool
) -> None:
    found, enough = index_of(files, ENTRIES).overlapping(start, end)
    assert ([entry.producer_id for entry in found], enough) == (producers, complete)


def test_an_entry_must_end_behind_the_last_one(files: MemoryFiles) -> None:
    with pytest.raises(StorageError, match="cannot follow offset 31"):
        index_of(files, ENTRIES).add(AbortedTransaction(4, 3, 31, 32))


@pytest.mark.parametrize(
    "data",
    [
        encoded(ENTRIES[::-1]),
        b"\0\1" + encoded(ENTRIES)[2:],
        encoded([AbortedTransaction(1, 21, 20, 22)]),
        encoded([AbortedTransaction(1, -1, 20, 22)]),
        encoded([AbortedTransaction(1, 2, 4, 5)]),
    ],
    ids=["falling", "version", "first behind last", "negative", "ends before the segment"],
)
def test_a_file_that_is_not_valid_gives_no_entries(files: MemoryFiles, data: bytes) -> None:
    index = loaded(files, data, 5)
    assert index.damaged
    assert index.entries() == []


def test_a_file_that_cannot_be_read_gives_no_entries(files: MemoryFiles) -> None:
    index_of(files, ENTRIES)
    files.fail_next_read()
    index = TransactionIndex.load(files, PATH, 0)
    assert index is not None
    assert index.damaged


def test_a_torn_entry_is_overwritten(files: MemoryFiles) -> None:
    index = loaded(files, encoded(ENTRIES)[:-5])
    assert index.entries() == ENTRIES[:2]
    index.add(ENTRIES[2])
    index.write_out(files, sync=True)
    assert read_file(files, PATH) == encoded(ENTRIES)


@pytest.mark.parametrize("number", range(4))
def test_entries_from_an_offset_are_replaced(files: MemoryFiles, number: int) -> None:
    index = index_of(files, ENTRIES)
    offset = [0, 21, 31, 32][number]
    new = [AbortedTransaction(9, 1, 40, 41)]
    index.replace_from(offset, new)
    index.write_out(files, sync=False)
    assert index.entries() == ENTRIES[:number] + new
    assert read_file(files, PATH) == encoded(ENTRIES[:number] + new)


def test_the_same_entries_again_write_nothing(files: MemoryFiles) -> None:
    index = index_of(files, ENTRIES)
    before = len(files.operations)
    index.replace_from(21, ENTRIES[1:])
    index.write_out(files, sync=False)
    assert len(files.operations) == before


def test_a_shorter_list_cuts_the_file(files: MemoryFiles) -> None:
    index = index_of(files, ENTRIES)
    index.replace_from(21, [])
    index.write_out(files, sync=False)
    assert read_file(files, PATH) == encoded(ENTRIES[:1])


def test_entries_survive_a_power_cut_once_flushed(files: MemoryFiles) -> None:
    index = index_of(files, ENTRIES[:2])
    index.write_out(files, sync=True)
    files.sync_dir("")
    index.add(ENTRIES[2])
    index.write_out(files, sync=False)
    files.power_cut()
    again = TransactionIndex.load(files, PATH, 0)
    assert again is not None
    assert again.entries() == ENTRIES[:2]
