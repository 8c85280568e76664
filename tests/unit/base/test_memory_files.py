"""Power cuts, faults and the record of operations of the filesystem in memory."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.files import read_file, replace_file
from minikafka.base.memory_files import PAGE_BYTES, FileOperation, MemoryFiles


def files_with_a_synced_file(content: bytes = b"safe") -> MemoryFiles:
    files = MemoryFiles()
    files.make_dirs("d")
    files.sync_dir("")
    file = files.open("d/a", create=True)
    file.write_at(0, content)
    file.sync()
    files.sync_dir("d")
    return files


@pytest.fixture
def files() -> MemoryFiles:
    return files_with_a_synced_file()


def test_a_power_cut_leaves_what_was_synced_and_nothing_else(files: MemoryFiles) -> None:
    file = files.open("d/a")
    file.write_at(4, b" unsafe")
    files.power_cut()
    assert read_file(files, "d/a") == b"safe"


def test_a_power_cut_brings_overwritten_and_truncated_bytes_back() -> None:
    files = files_with_a_synced_file(b"0123456789")
    file = files.open("d/a")
    file.write_at(2, b"xx")
    file.truncate(5)
    files.power_cut()
    assert read_file(files, "d/a") == b"0123456789"


def test_a_synced_truncation_is_kept() -> None:
    files = files_with_a_synced_file(bytes(3 * PAGE_BYTES))
    file = files.open("d/a")
    file.truncate(5)
    file.write_at(5, b"more")
    file.sync()
    files.power_cut()
    assert read_file(files, "d/a") == b"\0\0\0\0\0more"


def test_synced_file_with_unsynced_name_is_lost(files: MemoryFiles) -> None:
    file = files.open("d/b", create=True)
    file.write_at(0, b"abc")
    file.sync()
    files.power_cut()
    assert files.list_dir("d") == ["a"]


def test_an_unsynced_removal_and_an_unsynced_rename_are_undone(files: MemoryFiles) -> None:
    files.rename("d/a", "d/b")
    files.power_cut()
    assert files.list_dir("d") == ["a"]
    files.remove("d/a")
    files.power_cut()
    assert read_file(files, "d/a") == b"safe"


def test_power_cut_in_replace_file_leaves_old_or_new_bytes() -> None:
    seen = set()
    for seed in range(40):
        files = files_with_a_synced_file(b"old")
        if seed % 2:
            files.fail_next_sync(match="d")
        with contextlib.suppress(StorageError):
            replace_file(files, "d/a", b"new")
        files.power_cut(random.Random(seed))
        seen.add(read_file(files, "d/a"))
    assert seen == {b"old", b"new"}


def test_a_read_and_a_rename_fail_once_and_change_nothing(files: MemoryFiles) -> None:
    files.fail_next_read(match="d/a")
    with pytest.raises(StorageError, match="cannot read d/a: Input/output error"):
        read_file(files, "d/a")
    files.fail_next_rename(errno.ENOSPC, match="d/a")
    with pytest.raises(StorageError, match="cannot rename d/a: No space left on device"):
        files.rename("d/a", "d/b")
    assert files.list_dir("d") == ["a"]
    assert read_file(files, "d/a") == b"safe"


def test_killed_process_loses_files_and_locks(files: MemoryFiles) -> None:
    file = files.open("d/a")
    file.write_at(4, b" in the cache")
    files.lock("d/.lock")
    files.kill_process()
    with pytest.raises(StorageError, match="process that opened it has ended"):
        file.write_at(0, b"x")
    files.lock("d/.lock")
    assert read_file(files, "d/a") == b"safe in the cache"


def test_lock_of_earlier_life_cannot_release_a_later_one() -> None:
    files = MemoryFiles()
    old = files.lock("lock")
    files.kill_process()
    files.lock("lock")
    old.release()
    with pytest.raises(StorageError):
        files.lock("lock")


def test_partial_loss_spares_synced_pages_and_shows_all_damage() -> None:
    old, new = b"o" * 3 * PAGE_BYTES, b"n" * 3 * PAGE_BYTES
    whole = lost = torn = nonsense = shorter = 0
    for seed in range(300):
        files = files_with_a_synced_file(old)
        file = files.open("d/a")
        file.write_at(PAGE_BYTES, new)
        files.power_cut(random.Random(seed))
        data = read_file(files, "d/a")
        assert data[:PAGE_BYTES] == old[:PAGE_BYTES]
        assert len(old) <= len(data) <= len(old) + PAGE_BYTES
        second, grown = data[PAGE_BYTES : 2 * PAGE_BYTES], data[3 * PAGE_BYTES :]
        whole += second == new[:PAGE_BYTES]
        lost += second == old[:PAGE_BYTES]
        torn += second.startswith(b"n") and second.endswith(b"o")
        nonsense += bool(grown.strip(b"n\0"))
        shorter += len(data) < len(old) + PAGE_BYTES
    assert min(whole, lost, torn, nonsense, shorter) > 5


def test_the_same_seed_loses_the_same_bytes() -> None:
    results = set()
    for _ in range(2):
        files = files_with_a_synced_file()
        files.open("d/a").write_at(0, b"x" * 9 * PAGE_BYTES)
        files.power_cut(random.Random(7))
        results.add(read_file(files, "d/a"))
    assert len(results) == 1


def test_a_write_can_be_made_to_fail_half_way(files: MemoryFiles) -> None:
    file = files.open("d/a")
    files.fail_next_write(errno.ENOSPC, 3, match="d/a")
    with pytest.raises(StorageError, match=r"cannot write d/a: No space left on device"):
        file.write_at(4, b"abcdef")
    assert read_file(files, "d/a") == b"safeabc"
    file.write_at(4, b"abcdef")
    assert read_file(files, "d/a") == b"safeabcdef"


def test_a_fault_waits_for_the_path_that_it_names(files: MemoryFiles) -> None:
    files.fail_next_write(errno.EIO, match=".index")
    files.open("d/a").write_at(0, b"x")
    with pytest.raises(StorageError):
        files.open("d/a.index", create=True).write_at(0, b"x")


def test_a_full_disk_takes_what_fits() -> None:
    files = MemoryFiles(capacity_bytes=10)
    file = files.open("a", create=True)
    file.write_at(0, b"1234567")
    with pytest.raises(StorageError, match="No space left"):
        file.write_at(7, b"89abcdef")
    assert file.size() == 10
    file.write_at(0, b"0000")
    file.truncate(2)
    assert files.used_bytes() == 2
    file.write_at(2, b"12345678")


def test_pages_of_a_failed_sync_are_not_written_by_the_next_one(files: MemoryFiles) -> None:
    file = files.open("d/a")
    file.write_at(0, b"SAFE")
    files.fail_next_sync()
    with pytest.raises(StorageError, match="cannot flush d/a"):
        file.sync()
    file.sync()
    assert read_file(files, "d/a") == b"SAFE"
    files.power_cut()
    assert read_file(files, "d/a") == b"safe"


def test_truncate_and_open_can_be_made_to_fail(files: MemoryFiles) -> None:
    file = files.open("d/a")
    files.fail_next_truncate()
    with pytest.raises(StorageError, match="cannot truncate"):
        file.truncate(0)
    files.fail_next_open(match="d/a")
    with pytest.raises(StorageError, match="cannot open"):
        files.open("d/a")
    files.open("d/a").truncate(0)


def test_a_failed_sync_of_a_directory_leaves_its_names_unsafe(files: MemoryFiles) -> None:
    files.open("d/b", create=True).sync()
    files.fail_next_sync(match="d")
    with pytest.raises(StorageError, match="cannot flush d"):
        files.sync_dir("d")
    files.power_cut()
    assert files.list_dir("d") == ["a"]


def test_operations_are_recorded_in_order_with_the_notes_between() -> None:
    files = MemoryFiles()
    file = files.open("a", create=True)
    file.write_at(3, b"abc")
    files.note("response")
    file.sync()
    files.sync_dir("")
    assert files.operations == [
        FileOperation("create", "a"),
        FileOperation("write", "a", 3, 3),
        FileOperation("response", ""),
        FileOperation("sync", "a"),
        FileOperation("sync_dir", ""),
    ]


def test_times_come_from_the_clock() -> None:
    clock = ManualClock(5000)
    files = MemoryFiles(clock=clock)
    file = files.open("a", create=True)
    clock.advance(10)
    file.write_at(0, b"x")
    clock.advance(10)
    file.read_at(0, 1)
    assert file.modified_ms() == 5010
