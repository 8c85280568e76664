"""All logs of a broker on a disk that fails or is full."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, TypeVar

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.offset_checkpoint import read_checkpoint
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager
from tests.support.logs import CHECKPOINT, MARKER, ONE, SMALL, TWO, fill, log_of, manager_of, read_all


def fail_once(monkeypatch: pytest.MonkeyPatch, files: MemoryFiles, method: str) -> None:
    whole = getattr(files, method)

    def fail(*args: str) -> None:
        monkeypatch.setattr(files, method, whole)
        raise StorageError(f"cannot {method} {args[0]}")

    monkeypatch.setattr(files, method, fail)


DELETION_FAULTS = ["rename", "sync_dir", "remove_tree"]


def cut_short(monkeypatch: pytest.MonkeyPatch, files: MemoryFiles, fault: str) -> LogManager:
    """A broker in which a deletion of ONE failed in the middle; it has TWO as well."""
    manager = manager_of(files)
    for partition in (ONE, TWO):
        fill(manager.create(partition), 40, flush=True)
    manager.checkpoint_offsets()
    fail_once(monkeypatch, files, fault)
    with pytest.raises(StorageError):
        manager.delete(ONE)
    return manager


@pytest.mark.parametrize("fault", DELETION_FAULTS)
def test_a_deletion_that_failed_is_finished_by_the_next_call(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    manager = cut_short(monkeypatch, files, fault)
    assert manager.delete(ONE)
    assert not manager.delete(ONE)
    assert set(manager.logs()) == {TWO}
    assert [name for name in files.list_dir("d1") if "topic" in name] == ["my_topic_1"]
    assert read_file(files, f"d1/{CHECKPOINT}") == b"0\n1\nmy_topic 1 40\n"


@pytest.mark.parametrize("fault", DELETION_FAULTS)
def test_a_partition_made_again_after_a_failed_deletion_begins_anew(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    manager = cut_short(monkeypatch, files, fault)
    manager.flush_dirty_logs(10**9)
    log = manager.create(ONE)
    assert log.end_offset == 0
    assert read_file(files, f"d1/{CHECKPOINT}") == b"0\n1\nmy_topic 1 40\n"
    fill(log, 5)
    manager.close()
    again = manager_of(files)
    assert {partition: log.end_offset for partition, log in again.logs().items()} == {ONE: 5, TWO: 40}


@pytest.mark.parametrize("fault", DELETION_FAULTS)
def test_a_broker_can_stop_cleanly_after_a_failed_deletion(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    cut_short(monkeypatch, files, fault).close()
    assert log_of(manager_of(files), TWO).end_offset == 40


CHECKPOINT_FAULTS = ["write", "sync", "rename", "sync_dir"]


def fail_checkpoint(monkeypatch: pytest.MonkeyPatch, files: MemoryFiles, fault: str) -> None:
    """Let the next writing of a checkpoint fail at one of its steps."""
    whole = files.rename

    def rename(old: str, new: str) -> None:
        whole(old, new)
        if new.endswith(CHECKPOINT):
            monkeypatch.setattr(files, "rename", whole)
            files.fail_next_sync(match="d1")

    if fault == "sync_dir":
        monkeypatch.setattr(files, "rename", rename)
    else:
        getattr(files, f"fail_next_{fault}")(match=CHECKPOINT)


@pytest.mark.parametrize("fault", CHECKPOINT_FAULTS)
@pytest.mark.parametrize("doing", ["delete", "truncate"])
def test_failed_checkpoint_leaves_no_point_past_a_log_end(
    manager: LogManager, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, fault: str, doing: str
) -> None:
    log = fill(manager.create(ONE), 40, flush=True)
    manager.checkpoint_offsets()
    fail_checkpoint(monkeypatch, files, fault)
    if doing == "delete":
        assert manager.delete(ONE)
        log = manager.create(ONE)
    else:
        manager.truncate(ONE, 5)
    fill(log, 60)
    files.power_cut()
    again = manager_of(files)
    assert len(read_all(log_of(again, ONE))) == log_of(again, ONE).end_offset <= 5


@pytest.mark.parametrize("fault", CHECKPOINT_FAULTS)
def test_a_point_that_failed_to_be_written_counts_as_written(
    manager: LogManager, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    fill(manager.create(ONE), 40, flush=True)
    fail_checkpoint(monkeypatch, files, fault)
    manager.checkpoint_offsets()
    files.fail_next_write(match=CHECKPOINT)
    manager.truncate(ONE, 5)
    points = read_checkpoint(files, f"d1/{CHECKPOINT}")
    assert points.get(ONE, 0) <= 5


def test_points_neither_written_nor_removed_count_as_written(
    manager: LogManager, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in (ONE, TWO):
        fill(manager.create(partition), 40, flush=True)
    manager.checkpoint_offsets()
    fill(log_of(manager, TWO), 40)
    log_of(manager, TWO).flush()
    whole = files.remove

    def remove(path: str) -> None:
        if path.endswith(CHECKPOINT):
            raise StorageError(f"cannot remove {path}")
        whole(path)

    monkeypatch.setattr(files, "remove", remove)
    fail_checkpoint(monkeypatch, files, "sync_dir")
    with pytest.raises(StorageError, match="cannot remove"):
        manager.truncate(ONE, 35)
    assert read_checkpoint(files, f"d1/{CHECKPOINT}")[TWO] == 80
    manager.truncate(TWO, 50)
    assert read_checkpoint(files, f"d1/{CHECKPOINT}")[TWO] == 50


def test_failed_checkpoint_is_logged_once_and_others_are_written(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manager_of(files, "d1", "d2")
    for partition in (ONE, TWO):
        fill(manager.create(partition), 5, flush=True)
    for _ in range(2):
        files.fail_next_write(match=f"d1/{CHECKPOINT}")
        manager.checkpoint_offsets()
    assert read_checkpoint(files, f"d2/{CHECKPOINT}") == {TWO: 5}
    (record,) = caplog.records
    assert f"cannot write d1/{CHECKPOINT}.tmp" in record.message
    manager.checkpoint_offsets()
    assert read_checkpoint(files, f"d1/{CHECKPOINT}") == {ONE: 5}


def test_without_its_checkpoint_a_directory_does_not_count_as_clean(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    for partition in (ONE, TWO):
        fill(manager.create(partition), 5)
    files.fail_next_rename(match=f"d1/{CHECKPOINT}")
    manager.close()
    assert not files.exists(f"d1/{MARKER}")
    assert files.exists(f"d2/{MARKER}")
    files.power_cut()
    assert [log.end_offset for log in manager_of(files, "d1", "d2").logs().values()] == [5, 5]


def test_a_marker_that_cannot_be_made_costs_the_next_start_a_check(
    manager: LogManager, files: MemoryFiles
) -> None:
    fill(manager.create(ONE), 5)
    files.fail_next_open(match=MARKER)
    manager.close()
    assert log_of(manager_of(files), ONE).end_offset == 5


def test_log_that_fails_to_open_is_opened_later_in_its_place(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manager_of(files, "d1", "d2")
    for partition in (ONE, TWO):
        fill(manager.create(partition), 40, flush=True)
    manager.checkpoint_offsets()
    files.kill_process()
    files.fail_next_read(match="d1/my_topic_0")
    manager = manager_of(files, "d1", "d2")
    assert set(manager.logs()) == {TWO}
    assert "failed to open log d1/my_topic_0, will retry: cannot read" in caplog.text
    manager.delete(TWO)  # d2 has the fewest now
    manager.checkpoint_offsets()
    assert read_checkpoint(files, f"d1/{CHECKPOINT}") == {ONE: 40}
    files.fail_next_read(match="d1/my_topic_0")
    with pytest.raises(StorageError, match="cannot read"):
        manager.create(ONE)
    assert manager.create(ONE).directory == "d1/my_topic_0"
    assert len(read_all(log_of(manager, ONE))) == 40
    manager.close()
    assert files.exists(f"d1/{MARKER}")


def test_log_opened_later_that_lost_its_end_leaves_no_point_past_it(
    manager: LogManager, files: MemoryFiles
) -> None:
    fill(manager.create(ONE), 40, flush=True)
    manager.checkpoint_offsets()
    files.kill_process()
    (*_, newest) = (name for name in files.list_dir("d1/my_topic_0") if name.endswith(".kafka"))
    files.open(f"d1/my_topic_0/{newest}").truncate(100)
    files.fail_next_read(match="d1/my_topic_0")
    manager = manager_of(files)
    assert manager.get(ONE) is None
    end = manager.create(ONE).end_offset
    assert end < 40
    assert read_checkpoint(files, f"d1/{CHECKPOINT}")[ONE] <= end


def test_directory_with_an_unopened_log_does_not_count_as_clean(
    manager: LogManager, files: MemoryFiles
) -> None:
    for partition in (ONE, TWO):
        fill(manager.create(partition), 40)
    manager.close()
    files.fail_next_open(match="d1/my_topic_0")
    manager_of(files).close()
    assert not files.exists(f"d1/{MARKER}")
    assert [len(read_all(log)) for log in manager_of(files).logs().values()] == [40, 40]


def test_a_log_that_cannot_be_opened_can_be_deleted(manager: LogManager, files: MemoryFiles) -> None:
    fill(manager.create(ONE), 40)
    files.kill_process()
    files.fail_next_read(match="d1/my_topic_0")
    manager = manager_of(files)
    assert manager.partitions_of("my_topic") == (ONE,)
    assert manager.delete(ONE)
    assert [name for name in files.list_dir("d1") if "topic" in name] == []
    assert manager.create(ONE).end_offset == 0


def test_partition_that_one_directory_refuses_is_created_in_the_next(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    files.fail_next_open(match="d1/my_topic_0")
    assert manager.create(ONE).directory == "d2/my_topic_0"
    assert manager.create(TWO).directory == "d1/my_topic_1"
    manager.close()
    assert set(manager_of(files, "d1", "d2").logs()) == {ONE, TWO}


def test_partition_neither_created_nor_removed_stays_in_its_directory(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    files.fail_next_open(match="d1/my_topic_0")
    files.fail_next_rename(match="d1/my_topic_0")
    with pytest.raises(StorageError):
        manager.create(ONE)
    assert manager.get(ONE) is None
    assert manager.create(TWO).directory == "d2/my_topic_1"
    assert manager.create(ONE).directory == "d1/my_topic_0"
    manager.close()
    assert set(manager_of(files, "d1", "d2").logs()) == {ONE, TWO}


def test_a_log_that_is_given_up_is_recovered_anew(manager: LogManager, files: MemoryFiles) -> None:
    fill(manager.create(ONE), 40)
    files.fail_next_sync(match=".kafka")
    with pytest.raises(StorageError):
        log_of(manager, ONE).flush()
    manager.give_up(ONE)
    assert manager.get(ONE) is None
    assert manager.create(ONE).recovery_point == 40
    files.power_cut()
    assert len(read_all(log_of(manager_of(files), ONE))) == 40


D = TypeVar("D", bound=AbstractContextManager[Any])


class Door:
    """A lock that reports when a thread has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited_for = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waited_for.set()
            self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def manager_behind(files: MemoryFiles, lock: Callable[[], D]) -> tuple[LogManager, list[D]]:
    """A broker's logs, and the locks that are made when they are opened."""
    locks: list[D] = []

    def new_lock() -> D:
        locks.append(lock())
        return locks[-1]

    manager = LogManager(files, ["d1"], SMALL, Layout.CLASSIC, ManualClock(), new_mutex=new_lock)
    locks.clear()
    manager.open_all()
    return manager, locks


def test_two_flushes_at_once_do_not_hide_a_lost_page(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, doors = manager_behind(files, Door)
    log = fill(manager.create(ONE), 5)
    file, under_way, errors = log.segments[-1].file, threading.Event(), []

    def lose() -> None:
        monkeypatch.setattr(file, "sync", lambda: None)  # it is reported once: the next fsync succeeds
        under_way.set()
        assert doors[-1].waited_for.wait(30)
        raise StorageError("cannot flush: pages are lost")

    def flush() -> None:
        try:
            log.flush()
        except StorageError as error:
            errors.append(str(error))

    monkeypatch.setattr(file, "sync", lose)
    first = threading.Thread(target=flush)
    first.start()
    assert under_way.wait(30)
    flush()
    first.join()
    assert len(errors) == 2
    assert log.recovery_point == 0


@pytest.mark.parametrize("doing", ["delete", "truncate"])
def test_a_log_that_is_cut_beside_a_checkpoint_waits_for_it(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    manager, doors = manager_behind(files, Door)
    fill(manager.create(ONE), 60, flush=True)
    whole, writing = files.rename, doors[0]

    def cut() -> None:
        manager.delete(ONE) if doing == "delete" else manager.truncate(ONE, 50)
        writing.waited_for.set()

    other = threading.Thread(target=cut)

    def rename(old: str, new: str) -> None:
        if new.endswith(CHECKPOINT):
            monkeypatch.setattr(files, "rename", whole)
            other.start()
            assert writing.waited_for.wait(30)
        whole(old, new)

    monkeypatch.setattr(files, "rename", rename)
    manager.checkpoint_offsets()
    other.join()
    assert read_checkpoint(files, f"d1/{CHECKPOINT}") == ({} if doing == "delete" else {ONE: 50})


def test_older_of_two_concurrent_start_checkpoints_is_not_last(files: MemoryFiles) -> None:
    class Overtaken(nullcontext[None]):
        """Let another thread acquire the lock first."""

        by: Callable[[], object] | None = None

        def __enter__(self) -> None:
            first, self.by = self.by, None
            if first is not None:
                first()

    manager, doors = manager_behind(files, Overtaken)
    for partition in (ONE, TWO):
        fill(manager.create(partition), 5)
    doors[0].by = lambda: manager.increment_start_offset(TWO, 3)
    manager.increment_start_offset(ONE, 2)
    assert read_checkpoint(files, "d1/log-start-offset-checkpoint") == {ONE: 2, TWO: 3}
