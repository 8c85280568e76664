"""The recovery of a log: the damage that it finds, removes, saves and reports."""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
import zlib
from pathlib import Path

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, RealFiles, read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log import file_scan
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.records.format.message_set import Codec
from tests.support.damage import damaged, entries_of
from tests.support.disks import WatchedReads
from tests.support.logs import DATA, HOME, SMALL, fill, numbered, open_log, read_all

GOOD = (DATA / "segments" / "magic1-none.log").read_bytes()
GOOD_INDEX = (DATA / "log-index" / "magic1-none.index").read_bytes()
RECORDED = json.loads((DATA / "log-corrupt" / "expected-0.10.1.1.json").read_text())
KINDS = dict(damaged(GOOD))
LATER = json.loads((DATA / "log-corrupt" / "expected-3.9.1.json").read_text())
LATER_KINDS = dict(damaged((DATA / "segments" / "magic2-none.log").read_bytes()))
LIKE_RECORDED = LogConfig(index_interval_bytes=1024)

OURS = {
    # 0.10.1.1 keeps the repeated offset and throws the whole segment away for offsets that begin anew.
    "bitflip-offset-middle": {"valid_bytes": 26015, "next_offset": 101, "records_readable": 101},
    "first-entries-again-at-end": {"valid_bytes": 32316, "next_offset": 200, "records_readable": 200},
    # 0.10.1.1 keeps what no client can read.
    "magic-9-middle": {"valid_bytes": 26015, "next_offset": 101, "records_readable": 101},
}
"""Deliberate differences: truncate at the first offset that does not increase, and at an unknown format."""

OURS_LATER = {
    # 3.9.1 serves an offset twice, ends the log at offset 3, and keeps what no client can read.
    "bitflip-offset-middle": {"valid_bytes": 2475, "next_offset": 54, "records_readable": 53},
    "first-entries-again-at-end": {"valid_bytes": 29499, "next_offset": 200, "records_readable": 200},
    "magic-9-middle": {"valid_bytes": 1633, "next_offset": 32, "records_readable": 32},
}
"""The same for format 2 and 3.9.1."""


def place(files: Files, segment: bytes, index: bytes | None = GOOD_INDEX, directory: str = HOME) -> str:
    """Create a segment in the apache layout; return its path."""
    files.make_dirs(directory)
    path = f"{directory}/00000000000000000000.log"
    files.open(path, create=True).write_at(0, segment)
    if index is not None:
        files.open(f"{directory}/00000000000000000000.index", create=True).write_at(0, index)
    return path


def open_recorded(files: Files, *, clean: bool = False, directory: str = HOME) -> Log:
    return open_log(files, LIKE_RECORDED, layout=Layout.APACHE, clean=clean, directory=directory)


def test_the_damage_is_the_recorded_one() -> None:
    assert {kind: hashlib.sha256(data).hexdigest() for kind, data in KINDS.items()} == {
        kind: entry["sha256"] for kind, entry in RECORDED.items()
    }


@pytest.mark.parametrize("window_bytes", [8 << 20, 700])
@pytest.mark.parametrize("kind", KINDS)
def test_recovery_keeps_what_the_release_keeps(
    kind: str, window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", window_bytes)
    expected = RECORDED[kind] | OURS.get(kind, {})
    files = MemoryFiles()
    path = place(files, KINDS[kind])
    log = open_recorded(files)
    assert log.size_bytes == len(read_file(files, path)) == expected["valid_bytes"]
    assert log.end_offset == expected["next_offset"]
    assert len(read_all(log)) == expected["records_readable"]
    if kind not in OURS:
        log.close()
        assert read_file(files, path.replace(".log", ".index")).hex() == expected["index_hex"]


def test_the_damage_of_format_2_is_the_recorded_one() -> None:
    assert {kind: hashlib.sha256(data).hexdigest() for kind, data in LATER_KINDS.items()} == {
        kind: entry["sha256"] for kind, entry in LATER.items()
    }


@pytest.mark.parametrize("kind", LATER_KINDS)
def test_recovery_of_format_2_keeps_what_the_later_release_keeps(kind: str) -> None:
    expected = LATER[kind] | OURS_LATER.get(kind, {})
    files = MemoryFiles()
    path = place(files, LATER_KINDS[kind], (DATA / "log-index" / "magic2-none.index").read_bytes())
    log = open_recorded(files)
    assert log.size_bytes == len(read_file(files, path)) == expected["valid_bytes"]
    assert log.end_offset == expected["next_offset"]
    assert len(read_all(log, max_bytes=100_000)) == expected["records_readable"]
    if kind not in OURS_LATER:
        log.close()
        assert read_file(files, path.replace(".log", ".index")).hex() == expected["index_hex"]
        times = path.replace(".log", ".timeindex")
        assert (read_file(files, times).hex() if files.exists(times) else "") == expected["timeindex_hex"]


@pytest.mark.parametrize("kind", KINDS)
def test_removed_bytes_are_saved_and_reported(kind: str) -> None:
    expected = RECORDED[kind] | OURS.get(kind, {})
    files = MemoryFiles()
    path = place(files, KINDS[kind])
    log = open_recorded(files)
    cut = KINDS[kind][expected["valid_bytes"] :]
    if not cut:
        assert log.recovery is None
        assert not files.exists(path + ".corrupt")
        return
    assert log.recovery is not None
    assert (log.recovery.bytes_cut, log.recovery.end_offset) == (len(cut), log.end_offset)
    (found,) = log.recovery.cuts
    assert (found.path, found.position, found.saved_to) == (
        path,
        len(KINDS[kind]) - len(cut),
        path + ".corrupt",
    )
    assert f"position {found.position}" in found.reason
    assert str(found) in str(log.recovery)
    assert read_file(files, path + ".corrupt") == cut


@pytest.mark.parametrize("kind", KINDS)
def test_a_recovered_log_has_nothing_left_to_recover(files: MemoryFiles, kind: str) -> None:
    place(files, KINDS[kind])
    first = open_recorded(files)
    end_offset = first.end_offset
    fill(first, 10)
    files.kill_process()
    again = open_recorded(files)
    assert again.recovery is None
    assert again.end_offset == end_offset + 10
    assert len(read_all(again)) == (RECORDED[kind] | OURS.get(kind, {}))["records_readable"] + 10


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_clean_marker_a_damaged_end_is_found_all_the_same(files: MemoryFiles, kind: str) -> None:
    place(files, KINDS[kind])
    log = open_recorded(files, clean=True)
    before_the_last_index_entry = struct.unpack(">ii", GOOD_INDEX[-8:])[1]
    expected = RECORDED[kind] | OURS.get(kind, {})
    shifted = kind == "nonsense-inserted-middle"
    if (
        expected["valid_bytes"] >= before_the_last_index_entry
        or shifted
        or kind in {"empty", "nonsense-only"}
    ):
        assert log.size_bytes == expected["valid_bytes"]
        assert log.end_offset == expected["next_offset"]
    elif kind == "zeros-4k-over-tail":
        assert log.end_offset == 137
    else:
        assert log.end_offset == 200


def test_with_the_clean_marker_only_the_end_is_read() -> None:
    files = WatchedReads()
    place(files, GOOD)
    log = open_recorded(files, clean=True)
    assert log.end_offset == 200
    assert sum(size for path, size in files.reads if path.endswith(".log")) < 4096


@pytest.mark.parametrize(
    "index",
    [
        None,
        b"",
        bytes(80),
        GOOD_INDEX[:-8] + GOOD_INDEX[:8],
        GOOD_INDEX + bytes(800),
        b"\0\0\0\5\0\0\0\x7f",
        b"x",
    ],
)
def test_a_wrong_or_absent_index_costs_nothing(files: MemoryFiles, index: bytes | None) -> None:
    place(files, GOOD, index)
    log = open_recorded(files, clean=True)
    assert log.end_offset == 200
    assert len(read_all(log, max_bytes=900)) == 200


def test_the_same_recovery_on_the_machines_files(tmp_path: Path) -> None:
    directory = str(tmp_path / "t-0")
    place(RealFiles(), KINDS["truncated-mid-payload"], directory=directory)
    log = open_recorded(RealFiles(), directory=directory)
    assert (log.end_offset, log.size_bytes) == (199, 32260)
    assert (tmp_path / "t-0" / "00000000000000000000.log.corrupt").read_bytes() == KINDS[
        "truncated-mid-payload"
    ][32260:]
    log.close()


def test_later_damage_gets_a_file_of_its_own(files: MemoryFiles) -> None:
    log = open_log(files)
    for _ in range(3):
        fill(log, 5)
        log.segments[0].file.write_at(log.size_bytes, b"torn")
        files.kill_process()
        log = open_log(files)
        assert log.recovery is not None
    assert [name for name in files.list_dir(HOME) if name.endswith(".corrupt")] == [
        "00000000000.kafka.2.corrupt",
        "00000000000.kafka.3.corrupt",
        "00000000000.kafka.corrupt",
    ]
    assert len(read_all(log)) == 15


def test_a_zeroed_gigabyte_is_kept_as_a_hole(files: MemoryFiles) -> None:
    path = place(files, GOOD + bytes(1 << 20))
    open_recorded(files)
    assert read_file(files, path + ".corrupt") == bytes(1 << 20)
    assert not [
        operation
        for operation in files.operations
        if operation.kind == "write" and operation.path.endswith(".corrupt")
    ]


def test_damage_that_cannot_be_kept_is_not_cut(files: MemoryFiles) -> None:
    path = place(files, KINDS["nonsense-appended"])
    files.fail_next_write(match=".corrupt")
    with pytest.raises(StorageError, match=r"cannot save 700 damaged bytes .* before truncating"):
        open_recorded(files)
    assert len(read_file(files, path)) == 33016
    assert not files.exists(path + ".corrupt")


def test_removed_bytes_are_durable_before_the_truncation(files: MemoryFiles) -> None:
    place(files, KINDS["nonsense-appended"])
    del files.operations[:]
    open_recorded(files)
    steps = [(operation.kind, operation.path.rpartition("/")[2]) for operation in files.operations]
    cut = steps.index(("truncate", "00000000000000000000.log"))
    assert steps.index(("sync", "00000000000000000000.log.corrupt")) < cut
    assert steps.index(("sync_dir", "t_0")) < cut
    assert ("sync", "00000000000000000000.log") in steps[cut:]


# A log of several segments.


def several(files: MemoryFiles, config: LogConfig = SMALL) -> Log:
    log = fill(open_log(files, config), 60, flush=True)
    files.kill_process()
    assert len(log.segments) == 4
    return log


def damage(files: MemoryFiles, log: Log, number: int) -> int:
    """Flip a bit in the second message of a segment; return the offset at which the log must end."""
    segment = log.segments[number]
    file = files.open(segment.path)
    second = entries_of(file.read_at(0, file.size()))[1][0]
    file.write_at(second + 20, bytes([file.read_at(second + 20, 1)[0] ^ 4]))
    return segment.base_offset + 1


def test_damage_ends_the_log_and_later_segments_are_set_aside(files: MemoryFiles) -> None:
    log = several(files)
    end = damage(files, log, 1)
    whole = [read_file(files, segment.path) for segment in log.segments]
    again = open_log(files)
    assert again.end_offset == end
    assert [record.value for record in read_all(again)] == numbered(0, end)
    assert again.recovery is not None
    assert len(again.recovery.cuts) == 3
    for number in (2, 3):
        assert not files.exists(log.segments[number].path)
        assert not files.exists(log.segments[number].path.replace(".kafka", ".index"))
        assert read_file(files, log.segments[number].path + ".corrupt") == whole[number]
    fill(again, 60)
    assert len(read_all(again)) == end + 60


def test_segments_below_the_recovery_point_are_not_scanned(files: MemoryFiles) -> None:
    log = several(files)
    damage(files, log, 1)
    again = open_log(files, recovery_point=log.segments[2].base_offset)
    assert again.recovery is None
    assert again.end_offset == 60
    damage(files, log, 2)
    assert (
        open_log(files, recovery_point=log.segments[2].base_offset).end_offset
        == log.segments[2].base_offset + 1
    )


def test_newest_segment_is_scanned_with_any_recovery_point(files: MemoryFiles) -> None:
    log = several(files)
    end = damage(files, log, 3)
    again = open_log(files, recovery_point=1 << 50)
    assert again.end_offset == end
    assert again.recovery_point == end


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("window_bytes", [300, file_scan.WINDOW_BYTES])
def test_bytes_beyond_the_recovery_point_are_written_back(
    codec: Codec, window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", window_bytes)
    files = MemoryFiles()
    log = fill(open_log(files), 100, codec=codec)
    second = log.segments[1]
    point = second.base_offset + 7  # within a compressed set
    entry = second.translate_offset(point)
    assert entry is not None
    before = [read_file(files, segment.path) for segment in log.segments]
    del files.operations[:]
    again = open_log(files, recovery_point=point)
    assert [read_file(files, segment.path) for segment in again.segments] == before
    written: dict[str, set[int]] = {}
    for one in files.operations:
        if one.kind == "write":
            written.setdefault(one.path, set()).update(range(one.position, one.position + one.length))
    first = min(written.pop(second.path))
    assert entry.position - SMALL.index_interval_bytes - entry.size <= first <= entry.position
    assert written == {segment.path: set(range(segment.size)) for segment in log.segments[2:]}


def test_nothing_is_written_back_where_all_was_flushed(files: MemoryFiles) -> None:
    log = several(files)
    del files.operations[:]
    open_log(files, recovery_point=log.end_offset)
    assert not [operation for operation in files.operations if operation.kind == "write"]


def test_a_hole_between_segments_ends_the_log(files: MemoryFiles) -> None:
    log = several(files)
    middle = log.segments[1]
    file = files.open(middle.path)
    file.truncate(entries_of(file.read_at(0, file.size()))[-1][0])
    again = open_log(files)
    assert again.end_offset == log.segments[2].base_offset - 1
    assert again.recovery is not None
    assert "offsets between are missing" in str(again.recovery)


def test_a_compacted_log_may_have_holes(files: MemoryFiles) -> None:
    log = several(files)
    middle = log.segments[1]
    file = files.open(middle.path)
    file.truncate(entries_of(file.read_at(0, file.size()))[-1][0])
    again = open_log(files, LogConfig(segment_bytes=1000, index_interval_bytes=100, compacted=True))
    assert again.end_offset == 60
    assert again.recovery is None
    assert len(read_all(again)) == 59


def test_a_segment_that_repeats_offsets_of_the_one_before_is_set_aside(files: MemoryFiles) -> None:
    log = several(files)
    files.rename(log.segments[2].path, f"{HOME}/{log.segments[2].base_offset - 3:011d}.kafka")
    again = open_log(files)
    assert again.end_offset == log.segments[2].base_offset
    assert [record.value for record in read_all(again)] == numbered(0, again.end_offset)


def test_an_index_without_its_segment_is_removed(files: MemoryFiles) -> None:
    several(files)
    files.open(f"{HOME}/00000099999.index", create=True)
    open_log(files)
    assert not files.exists(f"{HOME}/00000099999.index")


def test_files_that_are_none_of_ours_are_left_alone(files: MemoryFiles) -> None:
    several(files)
    for name in ("notes.txt", "00000000000.timeindex", "000.kafka"):
        files.open(f"{HOME}/{name}", create=True).write_at(0, b"x")
    log = open_log(files)
    assert log.end_offset == 60
    assert files.exists(f"{HOME}/notes.txt")


def test_a_crash_during_recovery_loses_nothing_more(files: MemoryFiles) -> None:
    log = several(files)
    end = damage(files, log, 1)
    for path in ("", "data", HOME):
        files.sync_dir(path)
    for segment in log.segments:
        files.open(segment.path).sync()
    for fault in range(8):
        for _ in range(fault):
            files.fail_next_sync(match="nothing")
        files.fail_next_truncate() if fault % 2 else files.fail_next_sync(match=HOME)
        with pytest.raises(StorageError):
            open_log(files)
        files.power_cut()
    again = open_log(files)
    assert again.end_offset == end
    assert [record.value for record in read_all(again)] == numbered(0, end)


# Large messages.


def test_message_larger_than_a_window_is_read_after_its_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", 1000)
    files = MemoryFiles()
    path = place(files, GOOD)
    assert max(size for _, size in entries_of(GOOD)) > 20_000
    assert open_recorded(files).recovery is None
    at, size = next(entry for entry in entries_of(GOOD) if entry[1] > 20_000)
    files.open(path).write_at(at + size - 1, b"\xff")
    files.kill_process()
    watched = WatchedReads()
    place(watched, read_file(files, path))
    log = open_recorded(watched)
    assert log.size_bytes == at
    # The copy of what is cut is made in pieces of its own.
    before_cut = itertools.takewhile(lambda read: not read[0].endswith(".corrupt"), watched.reads)
    assert max(size for path, size in before_cut if path.endswith(".log")) <= 1000


def test_compressed_segments_are_recovered_without_being_opened(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(open_log(files, LogConfig()), 100, in_set=10, codec=Codec.SNAPPY)
    size = log.size_bytes
    log.segments[0].file.truncate(size - 1)
    files.kill_process()
    again = open_log(files, LogConfig())
    assert again.end_offset == 90
    assert [record.value for record in read_all(again)] == numbered(0, 90)


def test_unknown_magic_with_a_right_checksum_ends_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", 500)
    files = MemoryFiles()
    log = fill(open_log(files, LogConfig()), 60)
    raw = bytearray(read_file(files, log.segments[0].path))
    at, size = entries_of(bytes(raw))[40]
    raw[at + 16] = 3
    raw[at + 12 : at + 16] = struct.pack(">I", zlib.crc32(raw[at + 16 : at + size]))
    log.segments[0].file.write_at(0, raw)
    files.kill_process()
    again = open_log(files, LogConfig())
    assert again.end_offset == 40
    assert "magic byte" in str(again.recovery)
