"""Rolling a new segment by time, and preallocated segments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.log import Log
from tests.support.logs import HOME, NOW_MS, SMALL, fill, numbered, open_log, read_all, valid_set

BY_TIME = replace(SMALL, segment_bytes=100_000, segment_ms=1_000)
AHEAD = replace(SMALL, preallocate=True)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files(clock: ManualClock) -> MemoryFiles:
    return MemoryFiles(clock=clock)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def add(log: Log, timestamp_ms: int, *, now_ms: int = 0, magic: int = 1) -> None:
    log.append(valid_set([b"x"], timestamp_ms=timestamp_ms, magic=magic), now_ms=now_ms)


# segment.ms


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    return open_log(files, BY_TIME)


def test_a_message_much_newer_than_the_segments_first_begins_another(log: Log) -> None:
    for timestamp_ms in (5_000, 6_000, 6_001, 7_000, 7_002):
        add(log, timestamp_ms)
    assert bases(log) == [0, 2, 4]


def test_older_messages_never_begin_another(log: Log) -> None:
    for timestamp_ms in (5_000, 10, 0):
        add(log, timestamp_ms)
    assert bases(log) == [0]


def test_the_newest_message_of_a_set_counts(log: Log) -> None:
    add(log, 5_000)
    log.append(valid_set(numbered(1, 1002), timestamp_ms=5_000))
    assert bases(log) == [0, 1]


def test_the_first_timestamp_is_known_again_after_a_restart(log: Log, files: MemoryFiles) -> None:
    add(log, 5_000)
    log.close()
    log = open_log(files, BY_TIME, clean=True)
    add(log, 6_000)
    add(log, 6_001)
    assert bases(log) == [0, 2]


def test_without_timestamps_the_time_since_the_segment_was_made_counts(log: Log, clock: ManualClock) -> None:
    log.append(valid_set([b"x"], magic=0), now_ms=clock.now_ms())
    clock.advance(1_000)
    add(log, -1, now_ms=clock.now_ms(), magic=0)
    assert bases(log) == [0]
    log.roll(clock.now_ms())
    add(log, -1, now_ms=clock.now_ms(), magic=0)
    clock.advance(1_001)
    add(log, -1, now_ms=clock.now_ms(), magic=0)
    assert bases(log) == [0, 2, 3]


def test_segment_without_timestamps_is_as_old_as_its_last_write(
    log: Log, files: MemoryFiles, clock: ManualClock
) -> None:
    add(log, -1, now_ms=clock.now_ms(), magic=0)
    log.close()
    clock.advance(1_001)
    log = open_log(files, BY_TIME, clean=True)
    add(log, -1, now_ms=clock.now_ms(), magic=0)
    assert bases(log) == [0, 1]


def test_jitter_takes_from_each_segments_time_its_own_share(files: MemoryFiles) -> None:
    config = replace(BY_TIME, segment_ms=100, segment_jitter_ms=90)
    rolled_at = set()
    for number in range(20):
        log = open_log(files, config, directory=f"data/t_{number}")
        add(log, 0)
        newest = 0
        while len(log.segments) == 1:
            newest += 1
            add(log, newest)
        rolled_at.add(newest)
    assert len(rolled_at) > 10
    assert 10 <= min(rolled_at) <= max(rolled_at) <= 101


def test_compacted_log_rolls_at_the_largest_compaction_lag(files: MemoryFiles) -> None:
    config = replace(BY_TIME, segment_ms=100, max_compaction_lag_ms=10, compacted=True)
    log = open_log(files, config)
    for newest_ms in (0, 10, 11):
        add(log, newest_ms)
    assert bases(log) == [0, 2]


def test_largest_compaction_lag_does_not_roll_other_logs(files: MemoryFiles) -> None:
    log = open_log(files, replace(BY_TIME, segment_ms=100, max_compaction_lag_ms=10))
    for newest_ms in (0, 11):
        add(log, newest_ms)
    assert bases(log) == [0]


# preallocate


def test_a_new_segment_has_its_room_and_gives_it_back_when_it_is_full(files: MemoryFiles) -> None:
    log = open_log(files, AHEAD)
    log.append(valid_set(numbered(0, 5)))
    log.roll()
    log.append(valid_set(numbered(5, 5)))
    sizes = [log.segments[0].file.size(), log.segments[1].file.size()]
    assert sizes == [log.segments[0].size, AHEAD.segment_bytes]
    assert log.segments[0].size < AHEAD.segment_bytes


def test_a_closed_log_has_no_room_left_over(files: MemoryFiles) -> None:
    fill(open_log(files, AHEAD), 25).close()
    again = open_log(files, AHEAD, clean=True)
    assert again.end_offset == 25
    assert again.size_bytes == sum(files.open(segment.path).size() for segment in again.segments)


def test_room_that_a_crash_left_is_no_damage(files: MemoryFiles) -> None:
    fill(open_log(files, AHEAD), 25, flush=True)
    files.kill_process()
    again = open_log(files, AHEAD)
    assert (again.end_offset, again.recovery) == (25, None)
    assert [record.value for record in read_all(again)] == numbered(0, 25)
    assert not [name for name in files.list_dir(HOME) if name.endswith(".corrupt")]
    fill(again, 5)
    assert len(read_all(again)) == 30


def test_nonzero_bytes_in_preallocated_space_are_damage(files: MemoryFiles) -> None:
    log = fill(open_log(files, AHEAD), 20, flush=True)
    newest = log.segments[-1]
    files.kill_process()
    files.open(newest.path).write_at(newest.size + 50, b"x")
    again = open_log(files, AHEAD)
    assert again.end_offset == 20
    assert again.recovery is not None


def test_a_recovered_log_answers_by_time(files: MemoryFiles) -> None:
    fill(open_log(files, AHEAD), 20, flush=True)
    files.kill_process()
    assert open_log(files, AHEAD).offset_for_timestamp(NOW_MS + 17) == (17, NOW_MS + 17)
