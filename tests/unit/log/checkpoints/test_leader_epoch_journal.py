"""The journal of leader epochs, written for many logs at once."""

from __future__ import annotations

import json
import logging

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.files import read_file, replace_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager
from tests.support.logs import ONE, TWO, fill, log_of

PATH = "data/leader-epochs-begun.json"
OWN_FILE = "data/my_topic_0/leader-epoch-checkpoint"


def manager_of(files: MemoryFiles) -> LogManager:
    manager = LogManager(files, ["data"], LogConfig(), Layout.CLASSIC, ManualClock(0))
    manager.open_all()
    return manager


def led_again(files: MemoryFiles) -> LogManager:
    """A log with ten flushed messages of epoch 0, in which epoch 4 has started and is in the journal."""
    manager = manager_of(files)
    log = manager.create(ONE)
    log.start_epoch(0)
    fill(log, 10, flush=True)
    log.start_epoch(4)
    manager.epoch_journal.record({ONE: log.epochs.entries})
    log.epochs.recorded(log.epochs.entries)
    return manager


def test_journaled_epoch_survives_a_power_cut(files: MemoryFiles) -> None:
    led_again(files)
    assert read_file(files, OWN_FILE) == b"0\n1\n0 0\n"
    files.power_cut()
    epochs = log_of(manager_of(files)).epochs
    assert epochs.latest_at_open == 4


def test_journaled_epoch_allows_appends_before_the_log_file_follows(files: MemoryFiles) -> None:
    manager = led_again(files)
    log = log_of(manager)
    log.epochs.require_saved()
    assert read_file(files, OWN_FILE) == b"0\n1\n0 0\n"
    manager.checkpoint_offsets()
    assert read_file(files, OWN_FILE) == b"0\n2\n0 0\n4 10\n"


def test_unsaved_epoch_is_flushed_before_an_append(files: MemoryFiles) -> None:
    log = log_of(led_again(files))
    log.start_epoch(7)
    assert not log.epochs.written
    log.epochs.require_saved()
    files.power_cut()
    assert log_of(manager_of(files)).epochs.latest_at_open == 7


def test_journal_entry_is_removed_once_the_log_file_is_flushed(files: MemoryFiles) -> None:
    manager = led_again(files)
    log_of(manager).epochs.save_durably()
    manager.epoch_journal.record({ONE: ()})
    assert json.loads(read_file(files, PATH)) == {"version": 1, "topics": {}}
    files.power_cut()
    assert log_of(manager_of(files)).epochs.latest_at_open == 4


def test_the_logs_own_file_counts_where_it_reaches_as_far(files: MemoryFiles) -> None:
    manager = led_again(files)
    log_of(manager).epochs.assign(5, 10)
    manager.close()
    assert log_of(manager_of(files)).epochs.latest_at_open == 5


def test_a_log_that_is_deleted_leaves_nothing_to_the_next_of_its_name(files: MemoryFiles) -> None:
    manager = led_again(files)
    manager.delete(ONE)
    assert json.loads(read_file(files, PATH))["topics"] == {}
    assert manager.create(ONE).epochs.latest_at_open == -1


def test_entries_of_a_log_removed_by_hand_do_not_pass_to_the_next(files: MemoryFiles) -> None:
    led_again(files).close()
    files.remove_tree("data/my_topic_0")
    manager = manager_of(files)
    assert manager.epoch_journal.of(ONE) == ()
    manager.create(ONE)
    manager.epoch_journal.record({ONE: ()})
    assert json.loads(read_file(files, PATH))["topics"] == {}


def test_failed_write_is_repeated_with_the_next_one(files: MemoryFiles) -> None:
    manager = led_again(files)
    files.fail_next_sync(match="leader-epochs-begun")
    with pytest.raises(StorageError):
        manager.epoch_journal.record({ONE: ((0, 0), (5, 10))})
    manager.epoch_journal.record({ONE: ((0, 0), (5, 10))})
    assert json.loads(read_file(files, PATH))["topics"] == {"my_topic": {"0": [[0, 0], [5, 10]]}}


def test_a_file_that_makes_no_sense_is_left_out_with_a_warning(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    led_again(files).close()
    replace_file(files, PATH, b"{}")
    with caplog.at_level(logging.WARNING):
        assert manager_of(files).epoch_journal.of(ONE) == ()
    assert f"ignoring {PATH}" in caplog.text


def test_failing_directory_does_not_keep_others_from_being_written(files: MemoryFiles) -> None:
    manager = LogManager(files, ["full", "data"], LogConfig(), Layout.CLASSIC, ManualClock(0))
    manager.open_all()
    for partition in (ONE, TWO):
        manager.create(partition)
    manager.epoch_journal.record({ONE: ((1, 0),), TWO: ((1, 0),)})
    files.fail_next_sync(match="full/leader-epochs-begun")
    with pytest.raises(StorageError):
        manager.epoch_journal.record({ONE: (), TWO: ()})
    assert json.loads(read_file(files, PATH))["topics"] == {}
    assert [manager.epoch_journal.may_contain(partition) for partition in (ONE, TWO)] == [True, False]
    manager.epoch_journal.record({ONE: (), TWO: ()})
    assert not manager.epoch_journal.may_contain(ONE)


def test_journal_may_contain_a_log_until_a_write_without_it(files: MemoryFiles) -> None:
    manager = led_again(files)
    for _ in range(2):
        files.fail_next_sync(match="leader-epochs-begun")
        with pytest.raises(StorageError):
            manager.epoch_journal.record({ONE: ()})
        assert manager.epoch_journal.may_contain(ONE)
    manager.epoch_journal.record({ONE: ()})
    assert not manager.epoch_journal.may_contain(ONE)


def test_entries_of_a_removed_log_may_stay_until_a_rewrite(files: MemoryFiles) -> None:
    led_again(files).close()
    files.remove_tree("data/my_topic_0")
    manager = manager_of(files)
    assert not manager.epoch_journal.may_contain(ONE)
    manager.create(ONE)
    assert manager.epoch_journal.may_contain(ONE)


def test_epoch_in_the_file_that_recovery_removed_is_written_there(files: MemoryFiles) -> None:
    manager = manager_of(files)
    log = manager.create(ONE)
    log.start_epoch(0)
    fill(log, 10, flush=True)
    fill(log, 5)
    log.epochs.assign(4, 15)
    files.power_cut()
    log = log_of(manager_of(files))
    assert (log.end_offset, log.epochs.latest_at_open, log.epochs.entries) == (10, 4, ((0, 0),))
    log.start_epoch(4)
    files.power_cut()
    assert read_file(files, OWN_FILE) == b"0\n2\n0 0\n4 10\n"


def test_recording_no_epochs_does_not_mark_them_as_written(files: MemoryFiles) -> None:
    log = log_of(led_again(files))
    files.fail_next_sync(match="leader-epoch-checkpoint")
    log.epochs.truncate_from_end(0)
    log.epochs.recorded(())
    assert not log.epochs.written
