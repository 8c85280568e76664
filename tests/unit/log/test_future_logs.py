"""Future logs: the copy of a log in another data directory, and the replacement of the log by it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.files import read_file
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnation
from minikafka.log.future_logs import SLICE_BYTES
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.log.producers.producer_state import ProducerStateEntry
from tests.support.logs import ONE, SMALL, TWO, fill, log_of, manager_of, numbered, read_all
from tests.support.transactions import abort, end_transaction, entries, write_in_transaction


@pytest.fixture(params=Layout)
def manager(request: pytest.FixtureRequest, files: MemoryFiles) -> LogManager:
    """The logs of a broker with two directories; ``ONE`` is in d1 and has 40 messages."""
    manager = manager_of(files, "d1", "d2", layout=request.param)
    fill(manager.create(ONE), 40)
    return manager


def serve(complete: Callable[[], Log | None]) -> bool:
    return complete() is not None


def copy_all(manager: LogManager, partition: TopicPartition = ONE) -> None:
    while manager.futures.copy(partition):
        pass


def stop_with_copy(manager: LogManager, high_watermark: int, more: int = 0) -> None:
    """Stop while ``ONE`` has a copy in d2 of all but the last ``more`` messages."""
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    manager.high_watermarks.write({ONE: high_watermark})
    fill(log_of(manager), more)
    manager.close()


def values(manager: LogManager, partition: TopicPartition = ONE) -> list[bytes | None]:
    return [record.value for record in read_all(log_of(manager, partition))]


def folders(files: MemoryFiles, path: str) -> list[str]:
    return [name for name in files.list_dir(path) if files.is_dir(f"{path}/{name}")]


def move(manager: LogManager, path: str, partition: TopicPartition = ONE) -> None:
    manager.futures.begin(partition, path)
    copy_all(manager, partition)
    assert manager.futures.replace_current(partition, serve)


def test_a_log_moves_with_all_its_messages(manager: LogManager, files: MemoryFiles) -> None:
    move(manager, "d2")
    home = manager.home_of(ONE)
    assert home is not None
    assert home.path == "d2"
    assert log_of(manager).directory == home.partition_path(ONE)
    assert values(manager) == numbered(0, 40)
    assert (folders(files, "d1"), len(folders(files, "d2"))) == ([], 1)
    assert "log-replacement" not in files.list_dir(log_of(manager).directory)
    fill(log_of(manager), 20)
    manager.close()
    again = manager_of(files, "d1", "d2")
    assert values(again) == numbered(0, 60)


def test_a_log_moves_with_its_transactions(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    log = manager.create(ONE)
    log.producers.high_watermark = 0
    write_in_transaction(log, 1)
    abort(log, 2)
    end_transaction(log, 1, commit=False)
    write_in_transaction(log, 3)
    before = entries(log)
    move(manager, "d2")
    moved = log_of(manager)
    assert moved is not log
    assert entries(moved) == before
    found = [moved.producers.first_unstable_offset(high_watermark) for high_watermark in (3, 4, 5)]
    assert found == [0, 4, 4]
    end_transaction(moved, 3, commit=False)
    assert len(entries(moved)) == 3


def test_the_log_serves_while_it_is_copied(manager: LogManager) -> None:
    manager.futures.begin(ONE, "d2")
    assert manager.futures.copy(ONE) > 0
    fill(log_of(manager), 10)
    copy_all(manager)
    fill(log_of(manager), 10)
    assert manager.futures.replace_current(ONE, serve)
    assert values(manager) == numbered(0, 60)


def test_a_log_that_was_not_switched_stays_a_future_log(manager: LogManager, files: MemoryFiles) -> None:
    manager.futures.begin(ONE, "d2")
    assert not manager.futures.replace_current(ONE, lambda complete: False)
    assert folders(files, "d2")[0].endswith(".0-future")
    copy_all(manager)
    assert manager.futures.replace_current(ONE, serve)
    assert values(manager) == numbered(0, 40)


def test_the_copy_goes_on_after_a_restart(manager: LogManager, files: MemoryFiles) -> None:
    stop_with_copy(manager, high_watermark=40, more=5)
    again = manager_of(files, "d1", "d2")
    assert ONE in again.futures
    copied = again.futures.copy(ONE)
    assert 0 < copied < 400  # the new messages only
    assert again.futures.replace_current(ONE, serve)
    assert values(again) == numbered(0, 45)


def test_what_may_have_been_written_anew_is_copied_again(manager: LogManager, files: MemoryFiles) -> None:
    stop_with_copy(manager, high_watermark=20)
    again = manager_of(files, "d1", "d2")
    log = log_of(again)
    log.truncate_to(20)  # by a broker to which the other disk was missing
    log.start_epoch(3)
    fill(log, 10)
    copy_all(again)
    assert again.futures.replace_current(ONE, serve)
    assert values(again) == numbered(0, 30)
    assert log_of(again).epochs.latest == 3


def test_a_copy_with_other_messages_begins_anew(
    manager: LogManager, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    stop_with_copy(manager, high_watermark=40)
    name = folders(files, "d2")[0]
    files.rename(f"d2/{name}", "kept")
    again = manager_of(files, "d1", "d2")
    again.delete(ONE)
    log = again.create(ONE)
    fill(log, 40, size=30)
    again.high_watermarks.write({ONE: 40})
    again.close()
    files.rename("kept", f"d{2 if log.directory.startswith('d1') else 1}/{name}")
    last = manager_of(files, "d1", "d2")
    copy_all(last)
    assert "has other messages" in caplog.text
    assert last.futures.replace_current(ONE, serve)
    assert values(last) == numbered(0, 40, 30)


def test_a_truncation_shortens_the_copy_too(manager: LogManager) -> None:
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    manager.truncate(ONE, 12)
    assert manager.futures.all()[ONE].log.end_offset == 12
    manager.truncate(ONE, 100, restart=True)
    fill(log_of(manager), 5)
    copy_all(manager)
    assert manager.futures.replace_current(ONE, serve)
    assert (log_of(manager).start_offset, log_of(manager).end_offset) == (100, 105)


def test_the_start_offset_moves_along(manager: LogManager, files: MemoryFiles) -> None:
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    manager.increment_start_offset(ONE, 33)
    assert manager.futures.replace_current(ONE, serve)
    assert values(manager) == numbered(33, 7)
    manager.close()
    assert log_of(manager_of(files, "d1", "d2")).start_offset == 33


def test_a_copy_behind_the_start_begins_there(manager: LogManager) -> None:
    manager.futures.begin(ONE, "d2")
    manager.increment_start_offset(ONE, 33)
    copy_all(manager)
    assert manager.futures.replace_current(ONE, serve)
    assert values(manager) == numbered(33, 7)


def test_a_log_that_retention_has_emptied_moves(manager: LogManager) -> None:
    log = log_of(manager)
    log.config = replace(log.config, retention_bytes=0)
    manager.delete_old_segments(lambda partition, log: log.end_offset)
    move(manager, "d2")
    assert (log_of(manager).start_offset, log_of(manager).end_offset) == (log.start_offset, 40)


def test_epochs_and_their_journal_move_along(manager: LogManager, files: MemoryFiles) -> None:
    log = log_of(manager)
    log.start_epoch(4)
    fill(log, 5)
    log.start_epoch(7)  # nothing was written under it
    manager.epoch_journal.record({ONE: log.epochs.entries})
    log.epochs.recorded(log.epochs.entries)
    entries = log.epochs.entries
    move(manager, "d2")
    assert log_of(manager).epochs.entries == entries
    assert manager.epoch_journal.of(ONE) == ()
    assert not manager.epoch_journal.may_contain(ONE)
    files.power_cut()
    assert log_of(manager_of(files, "d1", "d2")).epochs.latest_at_open == 7


def test_checkpoints_move_along(manager: LogManager, files: MemoryFiles) -> None:
    manager.high_watermarks.write({ONE: 38})
    move(manager, "d2")
    manager.checkpoint_offsets()
    files.kill_process()
    again = manager_of(files, "d1", "d2")
    assert again.high_watermarks.of(ONE) == 38
    homes = {home.path: home for home in map(again.home_at, ("d1", "d2"))}
    assert homes["d1"].recovery_points.held == {}
    assert homes["d2"].recovery_points.held == {ONE: 40}


def test_another_directory_drops_the_first_copy(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2", "d3")
    fill(manager.create(ONE), 10)
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    manager.futures.begin(ONE, "d3")
    assert (folders(files, "d2"), len(folders(files, "d3"))) == ([], 1)
    manager.futures.begin(ONE, "d1")  # its own
    assert (folders(files, "d3"), ONE in manager.futures) == ([], False)
    assert values(manager) == numbered(0, 10)


def test_a_deletion_removes_the_copy_first(manager: LogManager, files: MemoryFiles) -> None:
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    files.fail_next_rename(match="future")
    with pytest.raises(StorageError):
        manager.delete(ONE)
    assert manager.get(ONE) is not None
    manager.delete(ONE)
    assert (folders(files, "d1"), folders(files, "d2")) == ([], [])
    assert manager.futures.all() == {}


def test_a_log_that_is_set_aside_leaves_no_copy(manager: LogManager, files: MemoryFiles) -> None:
    manager.futures.begin(ONE, "d2")
    manager.mark_stray(ONE)
    assert folders(files, "d2") == []


def test_a_copy_without_a_log_is_set_aside(manager: LogManager, files: MemoryFiles) -> None:
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    manager.close()
    files.remove_tree(f"d1/{folders(files, 'd1')[0]}")
    again = manager_of(files, "d1", "d2")
    assert again.partitions() == ()
    assert folders(files, "d2")[0].endswith("-stray")


def test_a_copy_that_cannot_be_opened_is_removed(
    manager: LogManager, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    manager.close()
    files.fail_next_open(match="future")
    with caplog.at_level(logging.WARNING):
        again = manager_of(files, "d1", "d2")
    assert "removing the copy" in caplog.text
    assert (again.futures.all(), folders(files, "d2")) == ({}, [])
    assert values(again) == numbered(0, 40)


def test_a_name_that_leaves_no_room_is_refused(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    long = TopicPartition("t" * 245, 0)
    manager.create(long)
    with pytest.raises(BrokerError) as caught:
        manager.futures.begin(long, "d2")
    assert caught.value.code is ErrorCode.INVALID_TOPIC
    assert manager.futures.all() == {}


def test_a_preferred_directory_gets_the_new_log(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    manager.futures.preferred[TWO] = "d2"
    manager.create(TWO)
    home = manager.home_of(TWO)
    assert home is not None
    assert home.path == "d2"
    assert manager.futures.preferred == {}


def test_a_compacted_log_without_its_last_messages_moves(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2", config=replace(SMALL, compacted=True))
    log = manager.create(ONE)
    fill(log, 10)
    log.truncate_fully_and_start_at(50)  # a log that ends behind its last message
    move(manager, "d2")
    assert log_of(manager).end_offset == 50
    fill(log_of(manager), 5)
    manager.close()
    assert values(manager_of(files, "d1", "d2", config=replace(SMALL, compacted=True))) == numbered(50, 5)


def test_a_failed_copy_does_not_stop_a_truncation(manager: LogManager, files: MemoryFiles) -> None:
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    files.fail_next_truncate(match="future")
    manager.truncate(ONE, 13)
    assert log_of(manager).end_offset == 13
    assert manager.futures.all()[ONE].log.failure is not None
    manager.futures.begin(ONE, "d2")  # asked for again
    copy_all(manager)
    assert manager.futures.replace_current(ONE, serve)


def test_a_reader_of_the_old_log_finishes(manager: LogManager) -> None:
    old = log_of(manager)
    move(manager, "d2")
    assert [record.value for record in read_all(old)] == numbered(0, 40)


def test_copying_goes_in_slices(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2", config=replace(SMALL, segment_bytes=8 << 20))
    fill(manager.create(ONE), 10, in_set=1, size=300_000)
    manager.futures.begin(ONE, "d2")
    assert 0 < manager.futures.copy(ONE) <= SLICE_BYTES


def test_messages_that_were_flushed_stay_flushed(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    old = fill(manager.create(ONE), 40)
    manager.futures.begin(ONE, "d2")
    copy_all(manager)

    def switch(complete: Callable[[], Log | None]) -> bool:
        fill(old, 5, flush=True)
        return complete() is not None

    assert manager.futures.replace_current(ONE, switch)
    files.power_cut()
    assert values(manager_of(files, "d1", "d2")) == numbered(0, 45)


def test_the_new_log_serves_although_the_old_one_is_left(
    manager: LogManager, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    files.fail_next_rename(match="d1/")
    assert manager.futures.replace_current(ONE, serve)
    assert "not removed before the next start" in caplog.text
    manager.truncate(ONE, 20)  # now the old log is the longer one
    files.kill_process()
    again = manager_of(files, "d1", "d2")
    assert values(again) == numbered(0, 20)
    assert folders(files, "d1") == []


def test_two_logs_without_a_mark_are_refused(manager: LogManager, files: MemoryFiles) -> None:
    move(manager, "d2")
    manager.close()
    name = folders(files, "d2")[0]
    files.make_dirs(f"d1/{name}")
    with pytest.raises(StorageError, match="duplicate logs of my_topic-0"):
        manager_of(files, "d1", "d2")


class RecordedCleaner:
    """Notes which partitions may be cleaned."""

    def __init__(self) -> None:
        self.paused: set[TopicPartition] = set()
        self.moved: list[TopicPartition] = []

    def pause(self, partition: TopicPartition) -> None:
        self.paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        self.paused.discard(partition)

    def forget(self, partition: TopicPartition) -> None:
        self.paused.discard(partition)

    def move(self, partition: TopicPartition, old: Log) -> None:
        self.moved.append(partition)


def test_a_log_is_not_cleaned_while_it_moves(manager: LogManager) -> None:
    manager.cleaner_control = cleaner = RecordedCleaner()
    manager.futures.begin(ONE, "d2")
    manager.truncate(ONE, 30)
    assert cleaner.paused == {ONE}
    copy_all(manager)
    assert manager.futures.replace_current(ONE, serve)
    assert (cleaner.paused, cleaner.moved) == (set(), [ONE])
    manager.futures.begin(ONE, "d1")
    manager.futures.begin(ONE, "d2")
    assert cleaner.paused == set()
    manager.futures.begin(ONE, "d1")
    manager.delete(ONE)
    assert cleaner.paused == set()


def test_the_topic_of_a_log_is_known_in_its_new_directory(manager: LogManager, files: MemoryFiles) -> None:
    manager.topic_incarnations.begin(("cluster", 1))
    topic = TopicIncarnation(77, bytes(range(16)))
    manager.topic_incarnations.record({ONE: topic})
    move(manager, "d2")
    manager.close()
    again = manager_of(files, "d1", "d2")
    assert again.topic_incarnations.of(ONE) == topic
    assert '"my_topic"' not in read_file(files, "d1/topic-creations.json").decode()


def test_records_deleted_during_the_switch_stay_deleted(manager: LogManager) -> None:
    manager.futures.begin(ONE, "d2")
    copy_all(manager)
    old = log_of(manager)

    def switch(complete: Callable[[], Log | None]) -> bool:
        served = complete() is not None
        old.increment_start_offset(17)  # a request that had looked the log up before
        return served

    assert manager.futures.replace_current(ONE, switch)
    assert log_of(manager).start_offset == 17


def test_producers_whose_records_are_deleted_move_along(manager: LogManager) -> None:
    log = log_of(manager)
    log.producers.update({9: ProducerStateEntry()})
    move(manager, "d2")
    assert 9 in log_of(manager).producers.known
