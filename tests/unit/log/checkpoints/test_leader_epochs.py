"""The leader epochs of a log: their file, and the end offset of each."""

from __future__ import annotations

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.leader_epochs import LeaderEpochs
from minikafka.log.log import Log
from tests.support.logs import HOME, fill, open_log

PATH = f"{HOME}/leader-epoch-checkpoint"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_dirs(HOME)
    return files


def epochs_of(files: MemoryFiles, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs.load(files, HOME)
    for epoch, offset in entries:
        epochs.assign(epoch, offset)
    return epochs


def test_the_file_has_kafkas_form_and_is_read_again(files: MemoryFiles) -> None:
    epochs_of(files, (0, 0), (3, 4711))
    assert read_file(files, PATH) == b"0\n2\n0 0\n3 4711\n"
    assert LeaderEpochs.load(files, HOME).entries == ((0, 0), (3, 4711))


def test_every_epoch_but_the_first_survives_a_power_cut_at_once(files: MemoryFiles) -> None:
    for directory in ("", "data", HOME):
        files.sync_dir(directory)
    epochs = epochs_of(files, (5, 0))
    files.power_cut()
    assert LeaderEpochs.load(files, HOME).latest == -1
    epochs = epochs_of(files, (5, 0), (6, 10))
    files.power_cut()
    assert LeaderEpochs.load(files, HOME).entries == epochs.entries == ((5, 0), (6, 10))


def test_the_first_epoch_is_as_durable_as_the_first_messages(files: MemoryFiles) -> None:
    for directory in ("", "data"):
        files.sync_dir(directory)
    log = open_log(files)
    log.epochs.assign(5, 0)
    fill(log, 5, flush=True)
    files.power_cut()
    assert open_log(files, recovery_point=5).epochs.entries == ((5, 0),)


def test_an_epoch_that_is_not_newer_changes_nothing(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (5, 10), (5, 20), (4, 30))
    assert epochs.entries == ((5, 10),)


def test_an_epoch_under_which_nothing_was_written_is_replaced(files: MemoryFiles) -> None:
    assert epochs_of(files, (1, 0), (2, 10), (3, 10)).entries == ((1, 0), (3, 10))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (4, (4, 99)), (5, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_one_begins(
    files: MemoryFiles, asked: int, answer: tuple[int, int]
) -> None:
    epochs = epochs_of(files, (1, 5), (3, 10), (4, 20))
    assert epochs.end_offset_for(asked, 99) == answer


def test_without_epochs_no_end_is_known(files: MemoryFiles) -> None:
    assert epochs_of(files).end_offset_for(0, 99) == (-1, -1)


def test_a_log_that_is_cut_forgets_the_epochs_behind_its_end(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0), (2, 10), (3, 20))
    epochs.truncate_from_end(20)
    assert epochs.entries == ((1, 0), (2, 10))
    assert LeaderEpochs.load(files, HOME).entries == ((1, 0), (2, 10))


def test_a_log_that_begins_later_keeps_the_epoch_that_it_begins_with(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0), (2, 10), (3, 20))
    epochs.truncate_from_start(15)
    assert epochs.entries == ((2, 15), (3, 20))


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n2\n0 0\n", b"0\n2\n1 5\n0 6\n", b"0\n1\n0 -1\n", b"\xff", b"0\n1\n0 0 0\n"]
)
def test_a_file_that_makes_no_sense_is_told_and_counts_as_absent(
    files: MemoryFiles, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files.open(PATH, create=True).write_at(0, content)
    assert LeaderEpochs.load(files, HOME).entries == ()
    assert PATH in caplog.text


def test_a_full_disk_is_told_once_and_the_file_written_later(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    epochs = epochs_of(files)
    files.fail_next_write(match="leader-epoch")
    files.fail_next_write(match="leader-epoch")
    epochs.assign(7, 0)
    epochs.save()
    assert len(caplog.messages) == 1
    assert epochs.latest == 7
    epochs.save()
    assert LeaderEpochs.load(files, HOME).latest == 7


def test_nothing_is_written_under_an_epoch_that_the_disk_does_not_have(log: Log, files: MemoryFiles) -> None:
    log.epochs.assign(1, 0)
    fill(log, 5)
    files.fail_next_write(match="leader-epoch")
    log.epochs.assign(2, 5)
    files.fail_next_write(match="leader-epoch")
    with pytest.raises(StorageError, match="before the leader epochs are"):
        fill(log, 5)
    fill(log, 5)
    files.kill_process()
    assert open_log(files).epochs.entries == ((1, 0), (2, 5))


def test_recovery_forgets_epochs_of_messages_that_it_cut(log: Log, files: MemoryFiles) -> None:
    log.epochs.assign(1, 0)
    fill(log, 10)
    log.epochs.assign(2, 10)
    fill(log, 5, flush=True)
    files.kill_process()
    file = files.open(log.segments[0].path)
    file.truncate(file.size() * 10 // 15 - 1)
    assert open_log(files).epochs.entries == ((1, 0),)


def test_epoch_without_messages_is_known_until_the_next_write(log: Log, files: MemoryFiles) -> None:
    log.epochs.assign(5, 0)
    fill(log, 5)
    log.epochs.assign(6, 5)
    for _ in range(2):
        log = open_log(files)
        assert (log.epochs.latest, log.epochs.latest_at_open) == (5, 6)
        log.epochs.save()
    fill(log, 5)
    log = open_log(files)
    assert (log.epochs.entries, log.epochs.latest_at_open) == (((5, 0),), 5)


def test_truncation_and_deletion_take_the_epochs_with_them(log: Log) -> None:
    for epoch in range(4):
        log.epochs.assign(epoch, log.end_offset)
        fill(log, 10)
    log.truncate_to(25)
    assert log.epochs.entries == ((0, 0), (1, 10), (2, 20))
    log.delete_old_segments(lambda segments: 1, 25)
    assert log.epochs.entries == ((1, 15), (2, 20))


@pytest.mark.parametrize(("start", "answer"), [(0, (-1, -1)), (4, (-1, -1)), (5, (0, 5)), (7, (0, 5))])
def test_end_before_the_first_epoch_is_known_only_without_messages(
    files: MemoryFiles, start: int, answer: tuple[int, int]
) -> None:
    assert epochs_of(files, (1, 5), (3, 10)).end_offset_for(0, 99, start) == answer


def test_epochs_that_recovery_removed_stay_removed_after_a_close(log: Log, files: MemoryFiles) -> None:
    log.start_epoch(0)
    fill(log, 1)
    log.epochs.assign(1, 1)
    log.close()
    files.remove(f"{HOME}/00000000000.kafka")
    opened = open_log(files)
    opened.close()
    assert open_log(files, clean=True).epochs.entries == ()
