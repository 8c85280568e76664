"""Crashes that once took what they must not, each as the short story that a simulation had found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.leader_epochs import LeaderEpochs
from minikafka.log.config import LogConfig
from minikafka.log.layout import LEADER_EPOCH_FILE
from minikafka.log.recovery import log_loader
from tests.support.disks import Killed, KillingFiles
from tests.support.logs import (
    HOME,
    NOW_MS,
    ONE,
    SMALL,
    fill,
    log_of,
    manager_of,
    numbered,
    open_log,
    read_all,
    valid_set,
)


@pytest.fixture
def files() -> KillingFiles:
    files = KillingFiles(clock=ManualClock(NOW_MS))
    files.make_dirs(HOME)
    for directory in ("", "data", HOME):
        files.sync_dir(directory)
    return files


def test_flushed_full_segment_keeps_its_end_after_a_power_cut(files: MemoryFiles) -> None:
    config = replace(SMALL, preallocate=True)
    log = fill(open_log(files, config), 10, flush=True)
    log.roll()
    log.flush()
    files.power_cut()
    log = open_log(files, config, recovery_point=10)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert [record.value for record in read_all(log, max_bytes=2000)] == numbered(0, 10)


def test_its_time_index_is_whole_too(files: MemoryFiles) -> None:
    log = fill(open_log(files), 10, flush=True)
    log.roll()
    fill(log, 1, in_set=1, flush=True)
    files.power_cut()
    assert files.exists(f"{HOME}/00000000000.timeindex")
    assert open_log(files, recovery_point=11).offset_for_timestamp(NOW_MS + 9) == (9, NOW_MS + 9)


def test_new_segment_after_a_flush_needs_no_recovery(files: MemoryFiles) -> None:
    log = fill(open_log(files), 10, flush=True)
    log.roll()
    log.flush()
    del files.operations[:]
    log.flush()
    assert files.operations == []


def test_stored_start_offset_holds_if_the_deletion_is_lost(files: MemoryFiles) -> None:
    manager = manager_of(files)
    fill(manager.create(ONE), 40, flush=True)
    manager.increment_start_offset(ONE, 17)
    manager.increment_start_offset(ONE, 30)
    manager.delete_old_segments(lambda partition, log: log.end_offset, NOW_MS)
    manager.checkpoint_offsets()
    files.power_cut()
    assert log_of(manager_of(files), ONE).start_offset == 30


def test_start_offset_holds_after_a_kill_in_a_deletion_and_a_power_cut(files: KillingFiles) -> None:
    manager = manager_of(files)
    fill(manager.create(ONE), 40, flush=True)
    manager.increment_start_offset(ONE, 30)
    files.deadly = ("rename", "15.timeindex.deleted")
    with pytest.raises(Killed):
        manager.delete_old_segments(lambda partition, log: log.end_offset, NOW_MS)
    files.kill_process()
    assert log_of(manager_of(files), ONE).start_offset == 30
    files.power_cut()
    assert log_of(manager_of(files), ONE).start_offset == 30


def test_epochs_are_known_after_a_power_cut_undoes_a_deletion(files: KillingFiles) -> None:
    manager = manager_of(files)
    log = manager.create(ONE)
    log.epochs.assign(1, 0)
    fill(log, 20)
    log.epochs.assign(2, 20)
    fill(log, 20, flush=True)
    manager.checkpoint_offsets()
    log.increment_start_offset(30)
    files.deadly = ("rename", "15.timeindex.deleted")
    with pytest.raises(Killed):
        manager.delete_old_segments(lambda partition, log: log.end_offset, NOW_MS)
    files.power_cut()
    log = log_of(manager_of(files), ONE)
    assert (log.start_offset, log.epochs.end_offset_for(1, 40)) == (0, (1, 20))


def test_a_partition_that_a_killed_process_made_keeps_its_name(files: KillingFiles) -> None:
    files.deadly = ("create", "00000000000.kafka")
    with pytest.raises(Killed):
        manager_of(files).create(ONE)
    files.kill_process()
    log = log_of(manager_of(files), ONE)
    fill(log, 5, flush=True)
    files.power_cut()
    assert log_of(manager_of(files), ONE).end_offset == 5


def test_flush_ms_counts_over_a_restart() -> None:
    clock = ManualClock()
    files = MemoryFiles(clock=clock)
    config = LogConfig(flush_ms=1_000)
    fill(manager_of(files, config=config, clock=clock).create(ONE), 5)
    clock.advance(900)
    files.kill_process()
    manager = manager_of(files, config=config, clock=clock)
    clock.advance(200)
    assert manager.flush_dirty_logs() == [ONE]
    files.power_cut()
    assert log_of(manager_of(files, config=config, clock=clock), ONE).end_offset == 5


def test_a_truncation_that_was_killed_is_not_undone_by_a_power_cut(files: KillingFiles) -> None:
    log = fill(open_log(files), 10, in_set=1, flush=True)
    files.deadly = ("truncate", "00000000000.kafka")
    with pytest.raises(Killed):
        log.truncate_to(5)
    files.kill_process()
    assert open_log(files).end_offset == 5
    files.power_cut()
    assert open_log(files).end_offset == 5


def test_a_replacing_segment_without_its_time_index_is_found_by_time(files: KillingFiles) -> None:
    config = replace(SMALL, compacted=True)
    log = fill(open_log(files, config), 20, in_set=1, flush=True)
    new = log_loader.create_cleaned(files, HOME, log.layout, 0)
    one = valid_set(numbered(0, 1))
    new.append(one.data, (NOW_MS, 0), 100)
    files.deadly = ("create", "00000000000.timeindex")
    with pytest.raises(Killed):
        log.replace_segments(new, log.segments[:1])
    files.kill_process()
    assert open_log(files, config, recovery_point=20).offset_for_timestamp(NOW_MS) == (0, NOW_MS)


def test_a_log_that_begins_anew_is_there_after_each_step(files: KillingFiles) -> None:
    manager = manager_of(files)
    log = manager.create(ONE)
    log.epochs.assign(0, 0)
    fill(log, 15, flush=True)
    fill(log, 5)
    manager.increment_start_offset(ONE, 18)
    for deadly in (("create", "18.kafka"), ("remove", ".kafka"), ("sync_dir", "")):
        files.power_cut()
        files.deadly = deadly
        with pytest.raises(Killed):
            manager_of(files)
    files.power_cut()
    log = log_of(manager_of(files), ONE)
    assert (log.start_offset, log.end_offset) == (18, 18)


@pytest.mark.parametrize("cut", range(1, 4))
def test_half_an_offset_is_no_epoch(files: MemoryFiles, cut: int) -> None:
    epochs = LeaderEpochs(files, HOME)
    epochs.assign(3, 4711)
    whole = read_file(files, f"{HOME}/{LEADER_EPOCH_FILE}")
    files.open(f"{HOME}/{LEADER_EPOCH_FILE}").truncate(len(whole) - cut)
    assert LeaderEpochs.load(files, HOME).entries == ()


def test_a_clean_stop_leaves_the_first_epoch(files: MemoryFiles) -> None:
    manager = manager_of(files)
    log = fill(manager.create(ONE), 5, flush=True)
    log.epochs.assign(1, 5)
    manager.close()
    files.power_cut()
    assert log_of(manager_of(files), ONE).epochs.latest_at_open == 1
