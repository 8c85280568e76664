"""Logs and data directories that are removed while in use."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base.errors import DirectoryLocked, StorageError
from minikafka.base.files import RealFiles
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.meta_properties import MetaProperties, write_meta
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnation
from minikafka.log.manager import LogManager
from tests.support.logs import HOME, ONE, OTHER, TWO, fill, log_of, manager_of, open_log, read_all

Change = Callable[[MemoryFiles], None]


def remove_directory(files: MemoryFiles) -> None:
    files.remove_tree(HOME)


def remove_segment(files: MemoryFiles) -> None:
    files.remove(f"{HOME}/00000000000.kafka")


def move_away(files: MemoryFiles) -> None:
    files.make_dirs("elsewhere")
    files.rename(HOME, "elsewhere/t_0")


ways = pytest.mark.parametrize("remove", [remove_directory, remove_segment, move_away])


@ways
def test_a_log_that_was_removed_takes_no_more_messages(files: MemoryFiles, remove: Change) -> None:
    log = fill(open_log(files), 10)
    assert not log.find_removed()
    remove(files)
    assert log.find_removed()
    with pytest.raises(StorageError, match="was removed"):
        fill(log, 5)
    assert len(read_all(log)) == 10


@ways
def test_removed_log_does_not_count_as_flushed(files: MemoryFiles, remove: Change) -> None:
    log = fill(open_log(files), 10, flush=True)
    fill(log, 5)
    remove(files)
    with pytest.raises(StorageError, match="was removed"):
        log.flush()
    assert (log.recovery_point, log.end_offset) == (10, 15)
    with pytest.raises(StorageError, match="was removed"):
        fill(log, 5)


@ways
def test_no_segment_follows_one_that_was_removed(files: MemoryFiles, remove: Change) -> None:
    log = fill(open_log(files), 10)
    remove(files)
    with pytest.raises(StorageError, match="was removed"):
        log.roll()
    assert len(log.segments) == 1


def test_a_log_that_is_cut_or_deleted_was_not_removed(files: MemoryFiles) -> None:
    manager = manager_of(files)
    log = fill(manager.create(ONE), 50)
    manager.truncate(ONE, 7)
    assert not log.find_removed()
    manager.truncate(ONE, 100, restart=True)
    assert not log.find_removed()
    manager.delete(ONE)
    assert not log.find_removed()


def test_other_logs_go_on_beside_one_that_was_removed(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manager_of(files)
    for partition in (ONE, TWO):
        fill(manager.create(partition), 10)
    files.remove_tree("d1/my_topic_0")
    for _ in range(2):
        assert manager.find_removed() is None
    fill(log_of(manager, TWO), 5)
    with pytest.raises(StorageError, match="was removed"):
        fill(log_of(manager, ONE), 5)
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert logged == ["log of my_topic-0 is offline: d1/my_topic_0/00000000000.kafka was removed or replaced"]


@pytest.fixture
def manager(files: MemoryFiles) -> LogManager:
    """A broker with ONE in d1 and TWO in d2."""
    manager = manager_of(files, "d1", "d2")
    for directory in manager.paths:
        write_meta(files, directory, MetaProperties(0))
    for partition in (ONE, TWO):
        fill(manager.create(partition), 10)
    return manager


def test_logs_of_a_removed_directory_take_no_more_messages(
    manager: LogManager, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.remove_tree("d1")
    for _ in range(2):
        assert manager.find_removed() is None
    with pytest.raises(StorageError, match="d1 was removed or emptied"):
        fill(log_of(manager, ONE), 5)
    fill(log_of(manager, TWO), 5)
    manager.checkpoint_offsets()
    manager.high_watermarks.write({ONE: 10, TWO: 15})
    manager.topic_incarnations.begin(("cluster", 1))
    manager.topic_incarnations.record({ONE: TopicIncarnation(7), TWO: TopicIncarnation(7)})
    manager.epoch_journal.record({ONE: ((1, 10),), TWO: ((1, 15),)})
    manager.flush_names()
    assert not files.exists("d1")
    assert [record.getMessage() for record in caplog.records] == [
        "data directory d1 was removed or emptied while in use; all its logs are offline"
    ]


def test_new_logs_and_deletions_pass_a_removed_directory_by(manager: LogManager, files: MemoryFiles) -> None:
    files.remove_tree("d1")
    manager.find_removed()
    fill(manager.create(OTHER), 5)
    assert files.exists("d2/other_0")
    assert manager.delete(ONE)
    assert manager.partitions_of("my_topic") == (TWO,)
    fill(manager.create(ONE), 5)
    assert files.exists("d2/my_topic_0")
    assert not files.exists("d1")


def test_a_directory_that_was_emptied_counts_as_removed(manager: LogManager, files: MemoryFiles) -> None:
    files.remove_tree("d1")
    files.make_dirs("d1")
    manager.find_removed()
    with pytest.raises(StorageError, match="d1 was removed or emptied"):
        fill(log_of(manager, ONE), 5)
    assert files.list_dir("d1") == []


def test_the_last_directory_that_goes_is_a_reason_to_stop(manager: LogManager, files: MemoryFiles) -> None:
    files.remove_tree("d1")
    assert manager.find_removed() is None
    files.remove_tree("d2")
    assert manager.find_removed() == "data directory d1 was removed or emptied while in use"


def test_a_lock_file_that_was_removed_is_held_again(manager: LogManager, files: MemoryFiles) -> None:
    files.remove("d1/.lock")
    assert manager.find_removed() is None
    with pytest.raises(DirectoryLocked):
        manager_of(files, "d1")
    fill(log_of(manager, ONE), 5)


def test_a_directory_that_another_process_has_taken_is_left_to_it(
    manager: LogManager, files: MemoryFiles
) -> None:
    files.remove("d1/.lock")
    other = files.lock("d1/.lock")
    manager.find_removed()
    with pytest.raises(StorageError, match="lock file of d1 was removed while in use: d1 is in use"):
        fill(log_of(manager, ONE), 5)
    before = len(files.operations)
    manager.checkpoint_offsets()
    manager.delete(ONE)
    assert [operation for operation in files.operations[before:] if operation.path.startswith("d1")] == []
    other.release()


def test_a_lock_file_that_cannot_be_made_again_is_tried_again(
    manager: LogManager, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.remove("d1/.lock")
    files.fail_next_open(match="d1/.lock")
    assert manager.find_removed() is None
    assert manager.find_removed() is None
    assert [record.getMessage() for record in caplog.records] == [
        "lock file of d1 was removed, failed to create it again: cannot open d1/.lock: Input/output error",
        "lock file of d1 was removed; created and locked it again",
    ]


def test_unreadable_directory_does_not_hide_another_loss(manager: LogManager, files: MemoryFiles) -> None:
    files.remove("d1/.lock")
    files.remove_tree("d2/my_topic_1")
    files.fail_next_open(match="d1/meta.properties")
    assert manager.find_removed() is None
    fill(log_of(manager, ONE), 5)
    with pytest.raises(StorageError, match="was removed"):
        fill(log_of(manager, TWO), 5)


def test_a_log_that_was_closed_was_not_removed(files: MemoryFiles) -> None:
    log = fill(open_log(files), 10)
    log.close()
    remove_directory(files)
    assert not log.find_removed()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_look_that_fails_fails_no_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = fill(open_log(RealFiles(), directory=str(tmp_path / "t_0")), 10)
    whole = os.stat

    def stat(path: str | int, **how: bool) -> os.stat_result:
        if str(path).startswith(str(tmp_path)):
            raise OSError(number, os.strerror(number), path)
        return whole(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat)
        assert log.flush() == 10
    fill(log, 5)
    log.close()


def test_a_log_in_whose_place_a_copy_lies_takes_no_more_messages(tmp_path: Path) -> None:
    directory = tmp_path / "d1"
    manager = manager_of(RealFiles(), str(directory))
    write_meta(RealFiles(), str(directory), MetaProperties(0))
    fill(manager.create(ONE), 10)
    directory.rename(tmp_path / "d1.bak")
    shutil.copytree(tmp_path / "d1.bak", directory)
    assert manager.find_removed() is None
    with pytest.raises(StorageError, match="was removed"):
        fill(log_of(manager, ONE), 5)
    with pytest.raises(StorageError):
        manager.close()
