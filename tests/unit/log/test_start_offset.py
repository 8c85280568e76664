"""A start offset inside a segment: messages below are deleted, also after a restart."""

from __future__ import annotations

import pytest

from minikafka.base.errors import OffsetOutOfRange
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.manager import LogManager
from tests.support.logs import HOME, NOW_MS, ONE, fill, log_of, manager_of, open_log

STARTS = "d1/log-start-offset-checkpoint"


@pytest.fixture
def manager(files: MemoryFiles) -> LogManager:
    """A broker with 40 messages of ONE."""
    manager = manager_of(files)
    fill(manager.create(ONE), 40)
    return manager


def test_below_the_start_nothing_can_be_read(manager: LogManager) -> None:
    log = log_of(manager, ONE)
    log.increment_start_offset(17)
    with pytest.raises(OffsetOutOfRange) as caught:
        log.read(16, 100)
    assert (caught.value.start_offset, caught.value.end_offset) == (17, 40)
    assert log.read(17, 100).first_offset == 17
    assert log.offsets_before(-2, 1) == [17]
    assert log.offsets_before(-1, 9) == [40, 30, 17, 17]
    assert log.offset_for_timestamp(NOW_MS) == (17, NOW_MS + 17)


def test_the_start_does_not_go_back_nor_behind_the_end(manager: LogManager) -> None:
    log = log_of(manager, ONE)
    log.increment_start_offset(17)
    log.increment_start_offset(3)
    assert log.start_offset == 17
    with pytest.raises(OffsetOutOfRange):
        log.increment_start_offset(41)
    log.increment_start_offset(40)
    assert log.start_offset == 40


def test_segments_below_the_start_go_without_a_policy(manager: LogManager) -> None:
    log = log_of(manager, ONE)
    log.increment_start_offset(31)
    log.delete_old_segments(lambda segments: 0, 40)
    assert [segment.base_offset for segment in log.segments] == [30]
    assert log.start_offset == 31


@pytest.mark.parametrize("clean", [False, True])
def test_it_is_kept_over_restarts(manager: LogManager, files: MemoryFiles, clean: bool) -> None:
    log_of(manager, ONE).flush()
    manager.increment_start_offset(ONE, 17)
    assert read_file(files, STARTS) == b"0\n1\nmy_topic 0 17\n"
    if clean:
        manager.close()
    else:
        files.power_cut()
    assert log_of(manager_of(files), ONE).start_offset == 17


def test_only_starts_that_no_segments_name_tells_are_written_down(
    manager: LogManager, files: MemoryFiles
) -> None:
    manager.checkpoint_offsets()
    assert not files.exists(STARTS)
    manager.increment_start_offset(ONE, 17)
    manager.increment_start_offset(ONE, 30)
    manager.delete_old_segments(lambda partition, log: log.end_offset, NOW_MS)
    manager.checkpoint_offsets()
    assert read_file(files, STARTS) == b"0\n0\n"


def test_recreated_partition_does_not_start_at_the_old_offset(
    manager: LogManager, files: MemoryFiles
) -> None:
    manager.increment_start_offset(ONE, 17)
    manager.delete(ONE)
    manager.create(ONE)
    files.kill_process()
    assert log_of(manager_of(files), ONE).start_offset == 0


def test_recreated_partition_starts_at_0_after_a_failed_write(
    manager: LogManager, files: MemoryFiles
) -> None:
    manager.increment_start_offset(ONE, 17)
    files.fail_next_write(match="log-start")
    manager.delete(ONE)
    manager.create(ONE)
    manager.close()
    assert log_of(manager_of(files), ONE).start_offset == 0


def test_truncation_takes_the_start_along(manager: LogManager, files: MemoryFiles) -> None:
    manager.increment_start_offset(ONE, 35)
    manager.truncate(ONE, 32)
    assert (log_of(manager, ONE).start_offset, log_of(manager, ONE).end_offset) == (32, 32)
    files.kill_process()
    assert log_of(manager_of(files), ONE).start_offset <= 32


def test_a_log_that_lost_all_behind_its_start_begins_anew_there(files: MemoryFiles) -> None:
    fill(open_log(files), 10).close()
    again = open_log(files, start_offset=25)
    assert (again.start_offset, again.end_offset) == (25, 25)
    fill(again, 5)
    again.close()
    assert open_log(files, start_offset=25, clean=True).end_offset == 30
    assert files.exists(f"{HOME}/00000000025.kafka")


def test_a_lost_directory_begins_at_the_known_start(files: MemoryFiles) -> None:
    assert open_log(files, start_offset=25).end_offset == 25
