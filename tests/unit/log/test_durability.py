"""The guarantees of a flush, and the state after failures of the disk."""

from __future__ import annotations

import dataclasses

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.memory_files import MemoryFiles
from minikafka.records.format.message_set import Codec
from tests.support.logs import HOME, SMALL, Interrupted, fill, numbered, open_log, read_all, valid_set


def test_a_flush_tells_what_is_durable_and_a_power_cut_leaves_it(files: MemoryFiles) -> None:
    files.make_dirs("data")
    log = open_log(files)
    files.sync_dir("")
    files.sync_dir("data")
    fill(log, 40)
    assert (log.recovery_point, log.unflushed_messages) == (0, 40)
    assert log.flush() == 40
    assert (log.recovery_point, log.unflushed_messages) == (40, 0)
    fill(log, 10)
    files.power_cut()
    log = open_log(files, recovery_point=40)
    assert [record.value for record in read_all(log)][:40] == numbered(0, 40)
    assert log.end_offset == 40


def test_a_flush_is_needed_after_m_messages(files: MemoryFiles) -> None:
    log = fill(open_log(files, dataclasses.replace(SMALL, flush_messages=10)), 5)
    assert not log.needs_flush()
    fill(log, 5)
    assert log.needs_flush()
    log.flush()
    assert not log.needs_flush()
    assert not open_log(files, directory="data/other_0").needs_flush()


def test_flush_of_a_growing_segment_is_a_single_fsync(files: MemoryFiles) -> None:
    log = fill(open_log(files), 5, flush=True)
    fill(log, 5)
    del files.operations[:]
    log.flush()
    log.flush()
    assert [(operation.kind, operation.path) for operation in files.operations] == [
        ("sync", f"{HOME}/00000000000.kafka")
    ]


def test_a_flush_up_to_the_newest_segment_leaves_that_alone(files: MemoryFiles) -> None:
    log = fill(open_log(files), 40)
    newest = log.segments[-1]
    del files.operations[:]
    assert log.flush(newest.base_offset) == newest.base_offset
    assert newest.path not in {operation.path for operation in files.operations}


def test_a_failed_flush_stops_appends_but_not_reads(files: MemoryFiles) -> None:
    log = fill(open_log(files), 5)
    files.fail_next_sync()
    with pytest.raises(StorageError, match="cannot flush"):
        log.flush()
    assert log.recovery_point == 0
    assert log.failure is not None
    with pytest.raises(StorageError, match="is offline: flush failed"):
        log.append(valid_set([b"x"]))
    assert len(read_all(log)) == 5
    with pytest.raises(StorageError, match=r"cannot close log .* cleanly"):
        log.close()


def test_no_flush_reports_success_after_a_failed_one(files: MemoryFiles) -> None:
    log = fill(open_log(files), 5)
    files.fail_next_sync()
    with pytest.raises(StorageError, match="cannot flush"):
        log.flush()
    with pytest.raises(StorageError, match="flush failed"):
        log.flush()
    assert log.recovery_point == 0


def test_flush_does_not_rely_on_an_unfinished_sync_of_another_thread(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(files, dataclasses.replace(SMALL, segment_bytes=400))
    log.flush()
    fill(log, 20)
    assert len(log.segments) > 1
    sync_dir, synced_when_done = files.sync_dir, []

    def slow_sync_dir(path: str) -> None:
        # While this thread's sync is under way, another thread flushes the same log to its end.
        monkeypatch.setattr(files, "sync_dir", sync_dir)
        files.operations.clear()
        log.flush()
        synced_when_done.append([operation.kind for operation in files.operations])
        sync_dir(path)

    monkeypatch.setattr(files, "sync_dir", slow_sync_dir)
    log.flush()
    assert "sync_dir" in synced_when_done[0]


BEFORE_MUTEX = range(1, 9)
"""Comparisons of the target before ``flush`` takes the mutex, which no other thread can interrupt."""


@pytest.mark.parametrize("turn", BEFORE_MUTEX)
def test_a_flush_takes_nothing_back_of_one_that_came_in_between(files: MemoryFiles, turn: int) -> None:
    log = fill(open_log(files), 40)
    target = Interrupted(10, turn, log.flush)
    assert log.flush(target) >= 10
    assert log.recovery_point == (40 if target.interrupted else 10)


@pytest.mark.parametrize("turn", BEFORE_MUTEX)
def test_a_flush_that_a_truncation_overtakes_raises_no_recovery_point(files: MemoryFiles, turn: int) -> None:
    log = fill(open_log(files), 40)
    target = Interrupted(30, turn, lambda: log.truncate_to(7))
    log.flush(target)
    assert (log.recovery_point, log.end_offset) <= ((7, 7) if target.interrupted else (30, 40))


@pytest.mark.parametrize("after_bytes", [0, 1, 11, 12, 30, 100])
def test_a_failed_append_leaves_nothing_and_the_log_goes_on(files: MemoryFiles, after_bytes: int) -> None:
    log = fill(open_log(files), 5)
    size = log.size_bytes
    files.fail_next_write(after_bytes=after_bytes, match=".kafka")
    with pytest.raises(StorageError, match="No space left"):
        fill(log, 5)
    assert (log.end_offset, log.size_bytes, log.segments[0].file.size()) == (5, size, size)
    fill(log, 5)
    assert [record.value for record in read_all(log)] == numbered(0, 10)


def test_a_set_can_be_appended_again_after_a_failure(files: MemoryFiles) -> None:
    log = open_log(files)
    valid = valid_set(numbered(0, 5), codec=Codec.GZIP)
    files.fail_next_write(after_bytes=30, match=".kafka")
    with pytest.raises(StorageError):
        log.append(valid)
    log.append(valid)
    assert [record.value for record in read_all(log)] == numbered(0, 5)


def test_when_the_end_cannot_be_cut_back_appends_stop_and_reads_go_on(files: MemoryFiles) -> None:
    log = fill(open_log(files), 5)
    files.fail_next_write(after_bytes=30, match=".kafka")
    files.fail_next_truncate()
    with pytest.raises(StorageError, match="the failed append cannot be removed"):
        fill(log, 5)
    with pytest.raises(StorageError, match="is offline"):
        fill(log, 5)
    assert [record.value for record in read_all(log)] == numbered(0, 5)
    files.kill_process()
    log = open_log(files)
    assert [record.value for record in read_all(log)] == numbered(0, 5)
    assert log.recovery is not None
    assert log.recovery.bytes_cut == 30


def test_a_full_disk_refuses_appends_until_there_is_room() -> None:
    files = MemoryFiles(capacity_bytes=700)
    log = open_log(files)
    with pytest.raises(StorageError, match="No space left"):
        fill(log, 100)
    held = log.end_offset
    assert [record.value for record in read_all(log)] == numbered(0, held)
    files.capacity_bytes = None
    fill(log, 10)
    assert [record.value for record in read_all(log)] == numbered(0, held + 10)


def test_a_segment_that_cannot_be_made_fails_one_append_only(files: MemoryFiles) -> None:
    log = open_log(files)
    while log.segments[-1].size + 300 < SMALL.segment_bytes:
        fill(log, 5)
    files.fail_next_open(match=".kafka")
    with pytest.raises(StorageError, match="cannot open"):
        fill(log, 5)
    assert len(log.segments) == 1
    fill(log, 5)
    assert len(log.segments) == 2
    assert [record.value for record in read_all(log)] == numbered(0, log.end_offset)


@pytest.mark.parametrize("fault", ["open", "write", "sync"])
@pytest.mark.parametrize("doing", ["roll", "flush", "close"])
def test_failed_index_write_loses_no_message_and_is_rebuilt(
    files: MemoryFiles, doing: str, fault: str
) -> None:
    files.make_dirs("data")
    log = open_log(files)
    files.sync_dir("")
    files.sync_dir("data")
    fill(log, 60)
    getattr(files, f"fail_next_{fault}")(match=".index")
    if doing == "roll":
        log.roll()
    elif doing == "flush":
        assert log.flush() == 60
        assert log.failure is None
        files.power_cut()
    if doing != "flush":
        log.close()
    again = open_log(files, clean=doing != "flush", recovery_point=60)
    assert all(len(segment.index(SMALL.index_interval_bytes)) for segment in again.segments[:-1])
    assert [record.value for record in read_all(again)] == numbered(0, 60)


def test_stale_index_is_removed_when_it_cannot_be_replaced(files: MemoryFiles) -> None:
    fill(open_log(files), 15).close()
    log = open_log(files, clean=True)
    log.truncate_to(2)
    fill(log, 12, in_set=1, size=30)
    files.fail_next_write(match=".index", after_bytes=8)
    log.close()
    assert files.list_dir(HOME) == ["00000000000.kafka"]
    again = open_log(files, clean=True)
    assert len(read_all(again)) == again.end_offset == 14


def test_an_index_that_cannot_be_read_is_built_again(files: MemoryFiles) -> None:
    fill(open_log(files), 15).close()
    files.fail_next_read(match=".index")
    again = open_log(files, clean=True)
    assert [record.value for record in read_all(again)] == numbered(0, 15)


def test_a_directory_that_is_gone_is_a_storage_error_for_who_writes(files: MemoryFiles) -> None:
    log = fill(open_log(files), 15)
    files.rename(HOME, "data/elsewhere")
    for call in (log.roll, log.flush):
        with pytest.raises(StorageError):
            call()
    assert len(read_all(log)) == 15


def test_a_flush_of_a_log_that_is_being_deleted_gives_up_quietly(files: MemoryFiles) -> None:
    log = fill(open_log(files), 15)
    log.abandon()
    files.rename(HOME, "data/elsewhere")
    assert log.flush() == 0
