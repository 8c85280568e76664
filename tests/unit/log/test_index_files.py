"""Both index files exist for every segment, even without entries, as Kafka and its tools expect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from tests.support.logs import HOME, NOW_MS, SMALL, fill, open_log, read_all

SPARSE = replace(SMALL, index_interval_bytes=100_000)


def without_both_indexes(files: MemoryFiles) -> list[str]:
    """Segments that lack an index file."""
    names = files.list_dir(HOME)
    stems = [name.removesuffix(".kafka") for name in names if name.endswith(".kafka")]
    assert stems
    return [stem for stem in stems if not {f"{stem}.index", f"{stem}.timeindex"} <= set(names)]


def test_a_new_segment_has_empty_index_files(files: MemoryFiles) -> None:
    open_log(files)
    assert without_both_indexes(files) == []
    assert read_file(files, f"{HOME}/00000000000.index") == b""
    assert read_file(files, f"{HOME}/00000000000.timeindex") == b""


@pytest.mark.parametrize("config", [SMALL, SPARSE], ids=["entries", "no entries"])
@pytest.mark.parametrize("end", ["close", "crash"])
def test_all_segments_of_a_log_have_index_files(files: MemoryFiles, config: LogConfig, end: str) -> None:
    log = open_log(files, config)
    for _ in range(3):
        fill(log, 40)
        log.roll()
    fill(log, 5)
    if end == "close":
        log.close()
    assert len(log.segments) >= 4
    assert without_both_indexes(files) == []
    again = open_log(files, config, clean=end == "close")
    assert again.end_offset == log.end_offset
    assert without_both_indexes(files) == []


@pytest.mark.parametrize("end_offset", [0, 3, 20, 40])
def test_a_truncated_log_has_index_files_without_what_was_cut(files: MemoryFiles, end_offset: int) -> None:
    fill(open_log(files, replace(SMALL, segment_bytes=100_000)), 60, in_set=1).close()
    log = open_log(files, replace(SMALL, segment_bytes=100_000), clean=True)
    log.truncate_to(end_offset)
    assert read_file(files, f"{HOME}/00000000000.index") == b""
    # An empty time index would be that of a segment without timestamps.
    assert files.exists(f"{HOME}/00000000000.timeindex") == (end_offset == 0)
    fill(log, 5)
    log.close()
    assert without_both_indexes(files) == []
    again = open_log(files, SMALL, clean=True)
    assert again.segments[0].max_timestamp()[0] == NOW_MS + end_offset + 4


def test_recovery_that_cuts_leaves_no_entries_behind_the_end(files: MemoryFiles) -> None:
    fill(open_log(files, replace(SMALL, segment_bytes=100_000)), 60).close()
    segment = files.open(f"{HOME}/00000000000.kafka")
    segment.truncate(segment.size() // 2 - 1)
    log = open_log(files)
    assert log.recovery is not None
    assert read_file(files, f"{HOME}/00000000000.index") == b""
    log.close()
    assert len(read_file(files, f"{HOME}/00000000000.index")) > 0
    assert without_both_indexes(files) == []


def test_an_old_directory_gets_the_missing_index_at_close(files: MemoryFiles) -> None:
    fill(open_log(files, SPARSE), 5).close()
    files.remove(f"{HOME}/00000000000.index")
    open_log(files, SPARSE, clean=True).close()
    assert without_both_indexes(files) == []


def test_idle_partitions_are_closed_without_flushing_index_files(files: MemoryFiles) -> None:
    open_log(files).close()
    log = open_log(files, clean=True)
    del files.operations[:]
    log.close()
    assert [operation for operation in files.operations if operation.path.endswith("index")] == []


def test_a_log_starts_anew_with_index_files_after_all_was_deleted(files: MemoryFiles) -> None:
    log = fill(open_log(files), 40)
    log.truncate_fully_and_start_at(100)
    assert without_both_indexes(files) == []
    assert read_all(log) == []
