"""The search, in steps, for aborted transactions in a consumer's read."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress

import pytest

from minikafka.base.errors import BrokerError, StorageError
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.log import Log
from minikafka.log.transactions import LOOK_BYTES, aborted_steps
from minikafka.records.append.replicated import replicated
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Record
from tests.support.logs import open_log
from tests.support.transactions import without_indexes

ROOM = LogConfig(segment_bytes=64 << 20)


def add(log: Log, data: bytes) -> None:
    copied = replicated(data, log.end_offset)
    assert copied is not None
    log.append_as_follower(copied)


def add_records(log: Log, size: int, producer: int = -1) -> None:
    """A batch of one record; with a producer it belongs to a transaction."""
    batch = build_batch(
        [Record(None, bytes(size), 1)],
        base_offset=log.end_offset,
        producer_id=producer,
        producer_epoch=min(producer, 0),
        base_sequence=min(producer, 0),
        transactional=producer >= 0,
    )
    add(log, batch)


def add_mark(log: Log, producer: int, kind: ControlType) -> None:
    mark = build_control_batch(
        kind,
        coordinator_epoch=0,
        producer_id=producer,
        producer_epoch=0,
        timestamp_ms=1,
        base_offset=log.end_offset,
    )
    add(log, mark)


def opened_again_with(batches: int) -> Log:
    """A newly opened log of large batches without transactions, whose content is not known yet."""
    files = MemoryFiles()
    log = open_log(files, ROOM)
    for _ in range(batches):
        add_records(log, LOOK_BYTES - 1000)
    log.close()
    return open_log(files, ROOM, clean=True)


def steps_of(search: Generator[int, None, list[tuple[int, int]]]) -> tuple[list[int], list[tuple[int, int]]]:
    needs = []
    while True:
        try:
            needs.append(next(search))
        except StopIteration as end:
            return needs, end.value


def test_ends_that_lie_far_behind_are_searched_for_in_steps() -> None:
    files = MemoryFiles()
    log = open_log(files, ROOM)
    for producer in range(5):
        add_records(log, 10, producer)
    for _ in range(8):
        add_records(log, LOOK_BYTES - 1000)
    for producer in range(5):
        add_mark(log, producer, ControlType.ABORT if producer % 2 else ControlType.COMMIT)
    log = without_indexes(files, log)
    read = log.read(0, 1000, partial=False)
    needs, found = steps_of(aborted_steps(log, read))
    assert found == [(1, 1), (3, 3)]
    assert len(needs) >= 8
    assert set(needs) == {0}


def test_large_response_without_transactions_is_scanned_once() -> None:
    log = opened_again_with(8)
    read = log.read(0, 16 << 20, partial=False)
    needs, found = steps_of(aborted_steps(log, read))
    assert len(needs) >= 8
    assert found == []
    assert steps_of(aborted_steps(log, read)) == ([], [])


def test_entries_written_after_a_cut_are_examined_again() -> None:
    log = opened_again_with(4)
    read = log.read(0, 16 << 20, partial=False)
    look = aborted_steps(log, read)
    for _ in range(3):
        next(look)
    log.truncate_to(1)
    add_records(log, LOOK_BYTES - 1000, producer=7)
    add_mark(log, 7, ControlType.ABORT)
    with suppress(StopIteration, BrokerError, StorageError):
        while True:
            next(look)
    again = log.read(0, 16 << 20, partial=False)
    assert steps_of(aborted_steps(log, again))[1] == [(7, 1)]


def test_reader_of_a_part_being_cut_settles_nothing_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(MemoryFiles(), ROOM)
    for _ in range(4):
        add_records(log, LOOK_BYTES - 1000)
    read, file = log.read(0, 16 << 20, partial=False), log.segments[0].file
    whole = file.truncate

    def truncate(size: int) -> None:
        steps_of(aborted_steps(log, read))
        whole(size)

    monkeypatch.setattr(file, "truncate", truncate)
    log.truncate_to(1)
    add_records(log, LOOK_BYTES - 1000, producer=7)
    add_mark(log, 7, ControlType.ABORT)
    again = log.read(0, 16 << 20, partial=False)
    assert steps_of(aborted_steps(log, again))[1] == [(7, 1)]
