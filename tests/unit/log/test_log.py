"""One partition's log while it runs: appends, rolls, reads, searches, flushes, truncation."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, ErrorCode, OffsetOutOfRange, StorageError, TooManyFiles
from minikafka.base.files import FileSlice
from minikafka.base.memory_files import MemoryFiles
from minikafka.log import segment as segments
from minikafka.log.config import LogConfig
from minikafka.log.file_scan import FileScan
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.search import EARLIEST, LATEST
from minikafka.records.format.message_set import CLASSIC_CODECS, Codec, iterate
from tests.support.logs import HOME, NOW_MS, SMALL, fill, names_of, numbered, open_log, read_all, valid_set


def offsets_of(piece: FileSlice | None) -> list[int]:
    assert piece is not None
    return [record.offset for record in iterate(piece.read())]


# Appending and rolling.


def test_a_new_log_begins_with_an_empty_segment_at_offset_0(log: Log, files: MemoryFiles) -> None:
    assert (log.start_offset, log.end_offset, log.recovery_point, log.size_bytes) == (0, 0, 0, 0)
    assert files.list_dir(HOME) == names_of(0)
    assert log.recovery is None


def test_an_append_gives_the_next_offsets(log: Log) -> None:
    first = log.append(valid_set(numbered(0, 3)))
    second = log.append(valid_set(numbered(3, 2)))
    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset) == (3, 4)
    assert log.end_offset == 5
    assert [record.value for record in read_all(log)] == numbered(0, 5)


@pytest.mark.parametrize("codec", CLASSIC_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_sets_of_every_codec_and_magic_are_kept(log: Log, codec: Codec, magic: int) -> None:
    for first in range(0, 60, 6):
        log.append(valid_set(numbered(first, 6), codec=codec, magic=magic))
    records = read_all(log)
    assert [record.value for record in records] == numbered(0, 60)
    assert [record.offset for record in records] == list(range(60))


def test_an_empty_set_changes_nothing(log: Log) -> None:
    assert log.append(valid_set([])).count == 0
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_a_full_segment_is_followed_by_one_named_with_the_end_offset(files: MemoryFiles) -> None:
    log = fill(open_log(files), 40)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert [name for name in files.list_dir(HOME) if name.endswith(".kafka")] == [
        f"{base:011d}.kafka" for base in bases
    ]
    assert [record.value for record in read_all(log)] == numbered(0, 40)


def test_the_apache_layout_has_the_releases_names(files: MemoryFiles) -> None:
    fill(open_log(files, layout=Layout.APACHE), 40)
    assert files.list_dir(HOME)[:2] == ["00000000000000000000.index", "00000000000000000000.log"]


def test_a_full_index_makes_the_log_roll(files: MemoryFiles) -> None:
    config = LogConfig(index_interval_bytes=50, index_max_bytes=24)
    log = open_log(files, config)
    for number in range(10):
        log.append(valid_set(numbered(number, 1)))
    assert len(log.segments) > 1
    assert all(len(segment.index()) <= 3 for segment in log.segments)
    assert [record.value for record in read_all(log)] == numbered(0, 10)


def test_an_offset_beyond_int32_of_the_base_makes_the_log_roll(log: Log, files: MemoryFiles) -> None:
    log.append(valid_set(numbered(0, 1)))
    # A compacted log can hold offsets far apart: the second message gets one near the limit.
    log.append(valid_set(numbered(1, 1)))
    log.close()
    file = files.open(f"{HOME}/00000000000.kafka")
    file.write_at(file.size() // 2, struct.pack(">q", (1 << 31) - 2))
    log = open_log(files, clean=True)
    assert log.end_offset == (1 << 31) - 1
    log.append(valid_set([b"fits"]))
    assert len(log.segments) == 1
    log.append(valid_set([b"does not"]))
    assert [segment.base_offset for segment in log.segments] == [0, 1 << 31]
    assert [record.value for record in read_all(log)][2:] == [b"fits", b"does not"]


def test_a_set_larger_than_a_segment_is_refused_and_nothing_is_written(log: Log) -> None:
    with pytest.raises(BrokerError, match=r"segment\.bytes=1000") as caught:
        log.append(valid_set([bytes(2000)]))
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_roll_does_nothing_on_an_empty_newest_segment(log: Log) -> None:
    log.roll()
    assert len(log.segments) == 1
    fill(log, 5)
    log.roll()
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 5]


def test_a_segment_list_taken_before_a_roll_does_not_change(log: Log) -> None:
    before = log.segments
    fill(log, 40)
    assert len(before) == 1


def test_settings_can_be_changed_while_the_log_runs(files: MemoryFiles) -> None:
    log = fill(open_log(files), 10)
    log.config = dataclasses.replace(SMALL, segment_bytes=100_000)
    segments = len(log.segments)
    fill(log, 100)
    assert len(log.segments) == segments


# Reading.


def test_a_read_gives_a_slice_of_the_file_and_reads_no_payload(files: MemoryFiles) -> None:
    log = fill(open_log(files, LogConfig()), 100)
    found = log.read(50, 200)
    assert isinstance(found.slice, FileSlice)
    assert found.slice.file is log.segments[0].file
    assert found.first_offset == 50
    assert found.size_bytes == 200
    assert offsets_of(found.slice)[0] == 50


@pytest.mark.parametrize("offset", range(0, 60, 7))
def test_a_read_begins_with_the_message_that_was_asked_for(files: MemoryFiles, offset: int) -> None:
    log = fill(open_log(files), 60)
    assert offsets_of(log.read(offset, 500).slice)[0] == offset


def test_a_read_inside_a_compressed_set_gives_the_whole_set(files: MemoryFiles) -> None:
    log = fill(open_log(files), 60, in_set=10, codec=Codec.GZIP)
    found = log.read(34, 10_000)
    assert offsets_of(found.slice)[0] == 30
    assert found.first_offset == 39


def test_a_read_at_the_end_gives_nothing(log: Log) -> None:
    assert log.read(0, 100).slice is None
    fill(log, 10)
    found = log.read(10, 100)
    assert (found.slice, found.first_offset, found.size_bytes) == (None, 10, 0)


@pytest.mark.parametrize("offset", [-1, 11, 1 << 62])
def test_an_offset_outside_the_log_is_refused_with_its_range(files: MemoryFiles, offset: int) -> None:
    log = fill(open_log(files), 10)
    with pytest.raises(OffsetOutOfRange) as caught:
        log.read(offset, 100)
    assert (caught.value.start_offset, caught.value.end_offset) == (0, 10)


def test_a_message_larger_than_the_limit_is_given_whole(files: MemoryFiles) -> None:
    log = open_log(files, LogConfig())
    log.append(valid_set([b"x" * 5000]))
    fill(log, 5)
    found = log.read(0, 100)
    assert offsets_of(found.slice) == [0]
    assert found.size_bytes > 5000


def test_without_at_least_one_the_limit_is_kept_and_cuts_a_message(files: MemoryFiles) -> None:
    log = open_log(files, LogConfig())
    log.append(valid_set([b"x" * 5000]))
    found = log.read(0, 100, at_least_one=False)
    assert found.size_bytes == 100
    assert offsets_of(found.slice) == []
    assert log.read(0, 0, at_least_one=False).slice is None


@pytest.mark.parametrize("max_bytes", [0, 53, 54, 55, 107, 108, 500, 809, 810, 5000])
@pytest.mark.parametrize("offset", [0, 7, 14, 15])
def test_a_read_can_be_had_without_a_cut_off_message(files: MemoryFiles, offset: int, max_bytes: int) -> None:
    log = fill(open_log(files), 40)
    cut = log.read(offset, max_bytes, at_least_one=False)
    whole = log.read(offset, max_bytes, at_least_one=False, partial=False)
    assert whole.size_bytes == cut.size_bytes // 54 * 54
    assert len(offsets_of(whole.slice) if whole.slice else []) == whole.size_bytes // 54


def test_the_first_message_is_whole_all_the_same(files: MemoryFiles) -> None:
    log = fill(open_log(files), 40)
    assert offsets_of(log.read(3, 1, partial=False).slice) == [3]


def test_the_high_watermark_bounds_what_is_read(files: MemoryFiles) -> None:
    log = fill(open_log(files, LogConfig()), 20)
    assert offsets_of(log.read(5, 10_000, up_to=12).slice) == list(range(5, 12))
    assert log.read(12, 10_000, up_to=12).slice is None
    assert log.read(15, 10_000, up_to=12).slice is None
    assert offsets_of(log.read(5, 1, up_to=12).slice) == [5]
    assert [record.offset for record in read_all(log, up_to=12)] == list(range(12))


def test_the_high_watermark_also_bounds_reads_of_older_segments(files: MemoryFiles) -> None:
    log = fill(open_log(files), 60)
    middle = log.segments[1].base_offset
    for bound in range(middle - 3, middle + 4):
        assert [record.offset for record in read_all(log, up_to=bound)] == list(range(bound))


def test_a_read_tells_whether_there_is_more_than_it_gives(files: MemoryFiles) -> None:
    log = fill(open_log(files, LogConfig()), 20)
    assert log.read(0, 500).more
    assert not log.read(0, 10_000).more
    assert not log.read(20, 10_000).more
    assert not log.read(5, 10_000, up_to=12).more
    assert log.read(5, 100, up_to=12).more


def test_older_segment_has_more_if_the_next_begins_below_the_hw(files: MemoryFiles) -> None:
    log = fill(open_log(files), 60)
    second = log.segments[1].base_offset
    assert log.read(0, 10_000).more
    assert log.read(0, 10_000, up_to=second + 1).more
    assert not log.read(0, 10_000, up_to=second).more


def test_a_compressed_set_across_the_high_watermark_is_left_out(files: MemoryFiles) -> None:
    log = fill(open_log(files, LogConfig()), 20, in_set=10, codec=Codec.LZ4)
    assert offsets_of(log.read(0, 10_000, up_to=15).slice) == list(range(10))
    for bound in (11, 15, 19):
        assert log.read(10, 10_000, up_to=bound).slice is None


def test_a_large_set_can_be_searched_quickly_as_it_is_indexed_inside(files: MemoryFiles) -> None:
    log = open_log(files, LogConfig())
    log.append(valid_set(numbered(0, 2000, 100)))
    index = log.segments[0].index()
    assert len(index) > 50
    assert index.lookup(1500)[0] > 1450
    assert offsets_of(log.read(1500, 1000).slice)[0] == 1500


# Searching by time.


def test_offsets_before_a_time_are_those_of_segments_newest_first() -> None:
    clock = ManualClock(NOW_MS)
    files = MemoryFiles(clock=clock)
    log = open_log(files)
    for _ in range(3):
        clock.advance(1000)
        fill(log, 5)
        log.roll()
    fill(log, 5)
    assert log.offsets_before(LATEST, 10) == [20, 15, 10, 5, 0]
    assert log.offsets_before(LATEST, 1) == [20]
    assert log.offsets_before(EARLIEST, 10) == [0]
    assert log.offsets_before(NOW_MS + 999, 10) == []
    assert log.offsets_before(NOW_MS + 1000, 10) == [0]
    assert log.offsets_before(NOW_MS + 2500, 10) == [5, 0]
    assert log.offsets_before(NOW_MS + 2500, 1) == [5]
    assert log.offsets_before(NOW_MS + 9000, 2, now_ms=NOW_MS + 9000) == [20, 15]
    assert log.offsets_before(NOW_MS + 8999, 2, now_ms=NOW_MS + 9000) == [15, 10]


def test_an_empty_log_has_one_offset_at_any_time(log: Log) -> None:
    assert log.offsets_before(LATEST, 10) == [0]
    assert log.offsets_before(EARLIEST, 10) == [0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("reopened", [False, True])
def test_the_offset_for_a_timestamp_is_exact(files: MemoryFiles, codec: Codec, reopened: bool) -> None:
    log = fill(open_log(files), 60, codec=codec)
    if reopened:
        log.close()
        log = open_log(files, clean=True)
    assert log.offset_for_timestamp(NOW_MS + 37) == (37, NOW_MS + 37)
    assert log.offset_for_timestamp(0) == (0, NOW_MS)
    assert log.offset_for_timestamp(NOW_MS + 59) == (59, NOW_MS + 59)
    assert log.offset_for_timestamp(NOW_MS + 60) is None


def test_message_appended_during_an_index_rebuild_is_found_by_time(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(SMALL, segment_bytes=100_000)
    log = fill(open_log(files, config), 20)
    look = segments.scan_file

    def look_while_a_message_comes(*args: Any, **options: Any) -> FileScan:
        found = look(*args, **options)
        monkeypatch.setattr(segments, "scan_file", look)
        fill(log, 5)
        return found

    monkeypatch.setattr(segments, "scan_file", look_while_a_message_comes)
    log.segments[-1].rebuild_indexes()
    assert log.end_offset == 25
    assert log.offset_for_timestamp(NOW_MS + 22) == (22, NOW_MS + 22)


def test_messages_without_timestamps_are_passed_over(log: Log) -> None:
    log.append(valid_set(numbered(0, 5), magic=0))
    assert log.offset_for_timestamp(1) is None
    log.append(valid_set(numbered(5, 1), timestamp_ms=7))
    assert log.offset_for_timestamp(1) == (5, 7)


# Truncating and closing.


@pytest.mark.parametrize("offset", [0, 1, 17, 26, 39])
def test_truncation_drops_all_from_an_offset_on_and_the_log_goes_on(files: MemoryFiles, offset: int) -> None:
    log = fill(open_log(files), 40, flush=True)
    log.truncate_to(offset)
    assert (log.end_offset, log.recovery_point) == (offset, offset)
    assert [record.value for record in read_all(log)] == numbered(0, offset)
    log.append(valid_set([b"new"]))
    assert read_all(log)[-1].value == b"new"
    log.close()
    log = open_log(files, clean=True)
    assert log.end_offset == offset + 1
    assert [record.value for record in read_all(log)][:-1] == numbered(0, offset)


def test_truncation_at_or_past_the_end_does_nothing(files: MemoryFiles) -> None:
    log = fill(open_log(files), 10)
    log.truncate_to(10)
    log.truncate_to(99)
    assert log.end_offset == 10


def test_truncation_takes_a_compressed_set_as_a_whole(files: MemoryFiles) -> None:
    log = fill(open_log(files), 20, in_set=10, codec=Codec.GZIP)
    log.truncate_to(15)
    assert log.end_offset == 10
    assert [record.value for record in read_all(log)] == numbered(0, 10)


def test_truncation_below_the_start_begins_anew(files: MemoryFiles) -> None:
    log = fill(open_log(files), 10)
    log.roll()
    fill(log, 10)
    log.close()
    files.remove(f"{HOME}/00000000000.kafka")
    log = open_log(files, clean=True)
    assert log.start_offset == 10
    log.truncate_to(4)
    assert (log.start_offset, log.end_offset) == (4, 4)
    assert files.list_dir(HOME) == names_of(4)
    fill(log, 5)
    assert [record.offset for record in read_all(log)] == [4, 5, 6, 7, 8]


def test_a_truncation_is_not_undone_by_a_power_cut(log: Log, files: MemoryFiles) -> None:
    for path in ("", "data"):
        files.sync_dir(path)
    fill(log, 40, flush=True)
    log.truncate_to(7)
    files.power_cut()
    log = open_log(files, recovery_point=7)
    assert log.end_offset == 7
    assert log.recovery is None


def test_a_failed_truncation_stops_appends(files: MemoryFiles) -> None:
    log = fill(open_log(files), 10, flush=True)
    files.fail_next_truncate()
    with pytest.raises(StorageError):
        log.truncate_to(3)
    assert log.recovery_point == 3
    with pytest.raises(StorageError, match="truncation to offset 3 failed"):
        fill(log, 5)


def test_a_reader_keeps_the_bytes_of_a_segment_that_is_removed(files: MemoryFiles) -> None:
    log = fill(open_log(files), 40)
    newest = log.segments[-1].base_offset
    found = log.read(newest, 100)
    log.truncate_to(1)
    assert offsets_of(found.slice)[0] == newest


def test_a_closed_log_is_all_on_the_disk_and_opens_clean(log: Log, files: MemoryFiles) -> None:
    for path in ("", "data"):
        files.sync_dir(path)
    fill(log, 40)
    log.close()
    log.close()
    files.power_cut()
    log = open_log(files, clean=True)
    assert (log.end_offset, log.recovery_point, log.recovery) == (40, 40, None)
    assert [record.value for record in read_all(log)] == numbered(0, 40)


def test_a_closed_log_takes_no_appends_and_flushes_nothing(files: MemoryFiles) -> None:
    log: Log = open_log(files)
    fill(log, 5)
    log.close()
    with pytest.raises(StorageError, match="is closed"):
        fill(log, 5)
    assert log.flush() == 5


def test_the_index_is_rebuilt_when_it_points_between_messages(files: MemoryFiles) -> None:
    log = fill(open_log(files, LogConfig(index_interval_bytes=100)), 40)
    log.roll()
    log.close()
    index = files.open(f"{HOME}/00000000000.index")
    good = index.read_at(0, index.size())
    index.write_at(4, struct.pack(">i", struct.unpack_from(">i", good, 4)[0] + 1))
    log = open_log(files, clean=True)
    assert [record.value for record in read_all(log, max_bytes=60)] == numbered(0, 40)


def test_offsets_that_decrease_in_the_middle_are_reported_by_a_read(files: MemoryFiles) -> None:
    log = fill(open_log(files, LogConfig()), 10)
    third = 2 * (log.size_bytes // 10)
    log.segments[0].file.write_at(third, struct.pack(">q", 0))
    with pytest.raises(StorageError, match=f"damaged at position {third}"):
        log.read(5, 100)


def test_a_segment_damaged_where_nobody_looked_is_reported_by_the_read(files: MemoryFiles) -> None:
    log = fill(open_log(files, LogConfig()), 10)
    log.segments[0].file.write_at(8, b"\0\0\0\0")
    with pytest.raises(StorageError, match="damaged at position 0"):
        log.read(5, 100)


class Growing(Log):
    """A log to which much is appended as soon as its end offset is read."""

    armed = False
    end = 0

    @property
    def _end_offset(self) -> int:
        if self.armed:
            self.armed = False
            fill(self, 100)
        return self.end

    @_end_offset.setter
    def _end_offset(self, offset: int) -> None:
        self.end = offset


def test_a_read_beside_a_roll_finds_all_below_the_end_that_it_saw(files: MemoryFiles) -> None:
    log = Growing.open(files, HOME, SMALL, Layout.CLASSIC)
    assert isinstance(log, Growing)
    log.armed = True
    assert offsets_of(log.read(99, 100).slice) == [99]
    assert len(log.segments) > 1


def test_a_flush_that_lacked_a_descriptor_is_done_by_the_next_one(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(path: str) -> None:
        raise TooManyFiles(f"cannot flush directory {path}: Too many open files")

    log = open_log(files)
    files.sync_dir("data")
    files.sync_dir("")
    fill(log, 40)
    monkeypatch.setattr(files, "sync_dir", lack)
    with pytest.raises(TooManyFiles):
        log.flush()
    monkeypatch.undo()
    fill(log, 5)
    assert (log.flush(), log.failure) == (45, None)
    files.power_cut()
    assert open_log(files).end_offset == 45
