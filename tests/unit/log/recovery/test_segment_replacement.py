"""The replacement of segments, as compaction does it, and its state after a crash."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout, snapshot_name
from minikafka.log.log import Log
from minikafka.log.recovery import log_loader
from minikafka.log.segment import Segment
from minikafka.records.append.validation import assign
from minikafka.records.format.message_set import iterate
from tests.support.logs import HOME, NOW_MS, SMALL, fill, numbered, open_log, read_all, valid_set

COMPACTED = LogConfig(segment_bytes=1000, index_interval_bytes=100, compacted=True)
LAYOUTS = pytest.mark.parametrize("layout", list(Layout))


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_dirs(HOME)
    for directory in ("", "data", HOME):
        files.sync_dir(directory)
    return files


def of_40(files: MemoryFiles, layout: Layout) -> Log:
    """40 messages in segments of 15: 0, 15, 30, all flushed."""
    return fill(open_log(files, COMPACTED, layout=layout), 40, flush=True)


def cleaned(files: MemoryFiles, log: Log, keep: range) -> Segment:
    """A segment that replaces the first two, with only some of their messages."""
    new = log_loader.create_cleaned(files, log.directory, log.layout, 0)
    for offset in keep:
        one = assign(valid_set(numbered(offset, 1), timestamp_ms=NOW_MS + offset), offset)
        new.append(one.data, (NOW_MS + offset, offset), 100)
    return new


def offsets(log: Log) -> list[int]:
    return [record.offset for record in read_all(log)]


@LAYOUTS
def test_the_new_segment_is_read_in_place_of_the_old_ones(files: MemoryFiles, layout: Layout) -> None:
    log = of_40(files, layout)
    deleted = log.replace_segments(cleaned(files, log, range(0, 30, 7)), log.segments[:2])
    expected = [0, 7, 14, 21, 28, *range(30, 40)]
    assert offsets(log) == expected
    assert log.read(8, 50).first_offset == 14
    assert log.offset_for_timestamp(NOW_MS + 15) == (21, NOW_MS + 21)
    names = {
        name
        for base in (0, 15)
        for name in (layout.segment_name(base), layout.index_name(base), layout.time_index_name(base))
    }
    assert set(deleted) == {f"{HOME}/{name}.deleted" for name in names | {snapshot_name(15)}}
    assert len(deleted) == len(set(deleted))
    files.kill_process()
    assert offsets(open_log(files, COMPACTED, layout=layout)) == expected


def check_what_tools_need(files: MemoryFiles, layout: Layout) -> None:
    """Beside each time index there is the offset index, and beside each of these the segment."""
    names = set(files.list_dir(HOME))
    for base in (0, 15, 30):
        segment, index, times = (
            layout.segment_name(base) in names,
            layout.index_name(base) in names,
            layout.time_index_name(base) in names,
        )
        assert segment >= index >= times, sorted(names)


@LAYOUTS
@pytest.mark.parametrize("method", ["rename", "remove"])
def test_wherever_a_change_is_cut_short_an_index_has_what_it_is_of(
    files: MemoryFiles, layout: Layout, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = of_40(files, layout)
    step = getattr(files, method)
    calls = 0

    def checked(*paths: str) -> None:
        nonlocal calls
        step(*paths)
        calls += 1
        check_what_tools_need(files, layout)

    monkeypatch.setattr(files, method, checked)
    if method == "rename":
        log.delete_old_segments(lambda segments: 2, 40)
    else:
        new = cleaned(files, log, range(0, 30, 7))
        new.move(new.path.removesuffix(".cleaned") + ".swap")
        files.kill_process()
        open_log(files, COMPACTED, layout=layout)
    assert calls >= 6


@LAYOUTS
def test_nothing_may_be_left_of_a_segment(files: MemoryFiles, layout: Layout) -> None:
    log = of_40(files, layout)
    log.replace_segments(cleaned(files, log, range(0)), log.segments[:2])
    assert (log.start_offset, log.end_offset) == (0, 40)
    assert log.read(3, 1000).first_offset == 30
    log.close()
    again = open_log(files, COMPACTED, layout=layout, clean=True)
    assert (again.start_offset, offsets(again)) == (0, list(range(30, 40)))


def test_a_reader_goes_on_with_the_old_segments(files: MemoryFiles) -> None:
    log = of_40(files, Layout.CLASSIC)
    log.close()
    log = open_log(files, COMPACTED, clean=True)
    old = log.segments
    for path in log.replace_segments(cleaned(files, log, range(0, 30, 7)), old[:2]):
        files.remove(path)
    entry = old[0].translate_offset(9)
    assert entry is not None
    assert [record.offset for record in iterate(old[0].slice(entry.position, entry.size).read())] == [9]


def test_the_newest_segment_cannot_be_replaced(files: MemoryFiles) -> None:
    log = of_40(files, Layout.CLASSIC)
    with pytest.raises(StorageError, match="have changed"):
        log.replace_segments(cleaned(files, log, range(3)), log.segments)
    assert offsets(log) == list(range(40))


def test_segments_that_went_meanwhile_are_not_replaced(files: MemoryFiles) -> None:
    log = of_40(files, Layout.CLASSIC)
    new, old = cleaned(files, log, range(3)), log.segments[:2]
    log.delete_old_segments(lambda segments: 1, 40)
    with pytest.raises(StorageError, match="have changed"):
        log.replace_segments(new, old)
    files.kill_process()
    assert offsets(open_log(files, COMPACTED)) == list(range(15, 40))


def swap_that_fails(files: MemoryFiles, log: Log, number: int) -> bool:
    """Replace the first two segments while the operation of this number fails; return whether one did."""

    def fail(kind: str, path: str) -> None:
        if (kind, path) == ("sync", HOME):
            return
        count[0] += 1
        if count[0] == number + 1:
            raise StorageError(f"cannot {kind} {path}: Input/output error")

    count, meet_fault = [0], files.meet_fault
    new = cleaned(files, log, range(0, 30, 7))
    files.meet_fault = fail  # type: ignore[method-assign]
    try:
        log.replace_segments(new, log.segments[:2])
    except StorageError:
        return True
    finally:
        files.meet_fault = meet_fault  # type: ignore[method-assign]
    return count[0] > number


@pytest.mark.parametrize("number", range(11))
def test_swap_interrupted_by_an_error_is_finished_before_the_next(files: MemoryFiles, number: int) -> None:
    log = of_40(files, Layout.CLASSIC)
    assert swap_that_fails(files, log, number)
    kept = offsets(log)
    first = log.segments[0]
    log.replace_segments(cleaned(files, log, range(0, 15, 7)), log.segments[:1])
    expected = [0, 7, 14, *(offset for offset in kept if offset >= log.segments[1].base_offset)]
    assert offsets(log) == expected
    assert first.path.endswith(".deleted")
    files.kill_process()
    assert offsets(open_log(files, COMPACTED, recovery_point=40)) == expected


@pytest.mark.parametrize("number", range(11))
def test_log_start_after_an_interrupted_swap_survives_a_crash(files: MemoryFiles, number: int) -> None:
    log = of_40(files, Layout.CLASSIC)
    assert swap_that_fails(files, log, number)
    log.delete_old_segments(lambda segments: len(segments) - 1, 40)
    assert offsets(log) == list(range(30, 40))
    files.kill_process()
    again = open_log(files, COMPACTED, recovery_point=40)
    assert (again.start_offset, offsets(again)) == (30, list(range(30, 40)))


@pytest.mark.parametrize("number", range(3))
def test_failed_flush_of_names_keeps_old_files_until_the_next_open(files: MemoryFiles, number: int) -> None:
    def sync_dir(path: str) -> None:
        count[0] += 1
        if count[0] == number + 1:
            raise StorageError(f"cannot flush directory {path}: Input/output error")
        real(path)

    count, real = [0], files.sync_dir
    log = of_40(files, Layout.CLASSIC)
    files.sync_dir = sync_dir  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="cannot flush"):
        log.replace_segments(cleaned(files, log, range(0, 30, 7)), log.segments[:2])
    names = files.list_dir(HOME)
    for call in (lambda: fill(log, 5), lambda: log.delete_old_segments(lambda segments: 1, 40)):
        with pytest.raises(StorageError, match="is offline"):
            call()
    assert files.list_dir(HOME) == names
    files.kill_process()
    assert offsets(open_log(files, COMPACTED, recovery_point=40)) == [0, 7, 14, 21, 28, *range(30, 40)]


def test_files_of_a_change_that_failed_are_told_with_the_next_one(files: MemoryFiles) -> None:
    log = of_40(files, Layout.CLASSIC)
    files.fail_next_rename(match="00000000015.kafka")
    with pytest.raises(StorageError):
        log.replace_segments(cleaned(files, log, range(0, 30, 7)), log.segments[:2])
    deleted = log.delete_old_segments(lambda segments: 0, 40)
    assert deleted == sorted(deleted, key=lambda path: int(path.removeprefix(f"{HOME}/").partition(".")[0]))
    assert sorted(deleted) == sorted(
        f"{HOME}/{name}" for name in files.list_dir(HOME) if name.endswith(".deleted")
    )


@LAYOUTS
def test_a_swap_that_a_crash_cut_short_is_whole_or_did_not_happen(layout: Layout) -> None:
    kept, before = [0, 7, 14, 21, 28, *range(30, 40)], list(range(40))
    seen = set()
    for step in range(100):
        for dice in (None, random.Random(step), random.Random(step + 1000)):
            stopped, outcome = outcome_of_a_cut_at(step, dice, layout)
            seen.add(tuple(outcome))
            assert outcome in (kept, before), f"cut at step {step}"
        if not stopped:
            break
    assert seen == {tuple(kept), tuple(before)}
    assert step > 10


def outcome_of_a_cut_at(step: int, dice: random.Random | None, layout: Layout) -> tuple[bool, list[int]]:
    """Cut the power at the operation of this number, counted from the swap's first; return the files left."""
    files = MemoryFiles()
    files.make_dirs(HOME)
    for directory in ("", "data", HOME):
        files.sync_dir(directory)
    log = of_40(files, layout)
    new = cleaned(files, log, range(0, 30, 7))
    stopped = run_until(files, step, lambda: log.replace_segments(new, log.segments[:2]))
    files.power_cut(dice)
    again = open_log(files, COMPACTED, layout=layout, recovery_point=40)
    left = [name for name in files.list_dir(HOME) if name.endswith((".swap", ".cleaned", ".deleted"))]
    assert left == []
    return stopped, offsets(again)


def run_until(files: MemoryFiles, step: int, action: Callable[[], object]) -> bool:
    """Return whether the machine stopped before ``action`` ended."""

    class Stop(Exception):
        pass

    note, count = files.note, [0]

    def counted(kind: str, path: str = "", position: int = 0, length: int = 0) -> None:
        note(kind, path, position, length)
        if count[0] == step:
            raise Stop
        count[0] += 1

    files.note = counted  # type: ignore[method-assign]
    try:
        action()
    except Stop:
        return True
    finally:
        files.note = note  # type: ignore[method-assign]
    return False


def test_a_damaged_swap_replaces_nothing_and_is_kept(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log = of_40(files, Layout.CLASSIC)
    log.close()
    files.open(f"{HOME}/00000000000.kafka.swap", create=True).write_at(0, b"nonsense that is no message")
    again = open_log(files, COMPACTED, clean=True)
    assert offsets(again) == list(range(40))
    assert f"ignoring damaged swap file {HOME}/00000000000.kafka.swap: " in caplog.text
    assert files.exists(f"{HOME}/00000000000.kafka.swap.corrupt")


@LAYOUTS
def test_unfinished_and_deleted_files_are_removed_at_open(files: MemoryFiles, layout: Layout) -> None:
    of_40(files, layout).close()
    names = [layout.segment_name(15), layout.index_name(15), layout.time_index_name(15)]
    for name in names:
        for suffix in (".cleaned", ".deleted"):
            files.open(f"{HOME}/{name}{suffix}", create=True).write_at(0, b"x")
    for name in names[1:]:
        files.open(f"{HOME}/{name}.swap", create=True).write_at(0, b"x")
    again = open_log(files, SMALL, layout=layout, clean=True)
    assert offsets(again) == list(range(40))
    assert not [name for name in files.list_dir(HOME) if name.endswith((".swap", ".cleaned", ".deleted"))]


def test_the_time_of_a_segment_can_be_asked_for_while_it_is_renamed(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = of_40(files, Layout.CLASSIC)
    rename = files.rename
    found: list[list[int]] = []

    def asked(old: str, new: str) -> None:
        rename(old, new)
        found.append(log.offsets_before(-5, 3))

    monkeypatch.setattr(files, "rename", asked)
    log.replace_segments(cleaned(files, log, range(3)), log.segments[:2])
    assert len(found) > 5
    assert not any(found)
