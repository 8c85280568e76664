"""The two indexes of a segment against sorted lists: look-ups, cuts, and what comes back from the disk."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import StorageError
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.index import index_file
from minikafka.log.index.index_file import RELATIVE_OFFSET_MAX
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.log.index.time_index import TimeIndex

PATH = "00.index"
BASES = st.sampled_from([0, 1, 4711, 1 << 40])
STEPS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=40)

Pairs = list[tuple[int, int]]


def rising(base: int, steps: Pairs) -> Pairs:
    """Entries (offset, position), both rising."""
    return list(
        zip(accumulate((s for s, _ in steps), initial=base), accumulate(p for _, p in steps), strict=False)
    )


@pytest.fixture(params=[False, True], ids=["read", "mapped"])
def mapped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(index_file, "MAPPED_FROM_BYTES", 1)
    return bool(request.param)


def loaded(files: MemoryFiles, base: int, size: int = 1 << 30) -> OffsetIndex:
    index = OffsetIndex.load(files, PATH, base, size)
    assert index is not None
    return index


def check(index: OffsetIndex, base: int, entries: Pairs) -> None:
    offsets, positions = [offset for offset, _ in entries], [position for _, position in entries]
    assert len(index) == len(entries)
    assert index.last() == (entries[-1] if entries else (base, 0))
    for offset in {base, *offsets, *(offset + 1 for offset in offsets), *(offset - 1 for offset in offsets)}:
        number = bisect_right(offsets, offset)
        if offset >= base:
            assert index.lookup(offset) == (entries[number - 1] if number else (base, 0))
    for end in {0, *positions, *(position + 1 for position in positions)}:
        number = bisect_right(positions, end)
        assert index.position_within(end) == (positions[number - 1] if number else 0)


@pytest.mark.usefixtures("mapped")
class TestOffsetIndex:
    @given(BASES, STEPS, st.data())
    def test_it_is_a_sorted_list_through_cuts_and_files(
        self, base: int, steps: Pairs, data: st.DataObject
    ) -> None:
        files, entries = MemoryFiles(), []
        index = OffsetIndex(PATH, base)
        for number, entry in enumerate(rising(base, steps)):
            todo = data.draw(st.sampled_from(["append", "append", "extend", "write", "cut", "load"]))
            if todo == "extend":
                # What does not follow is passed over.
                index.extend(np.array([*entries[-1:], entry], dtype=np.int64).reshape(-1, 2))
            else:
                index.append(*entry)
            entries.append(entry)
            if todo == "cut":
                position = data.draw(st.integers(1, entry[1] + 1))
                index.cut(position)
                entries = [entry for entry in entries if entry[1] < position]
            if todo in {"write", "load"} or number == len(steps) - 1:
                index.write_out(files, sync=True)
            if todo == "load" and entries:
                index = loaded(files, base)
            check(index, base, entries)
        files.power_cut()
        if files.exists(PATH) and index._written is not None:
            check(loaded(files, base), base, entries)

    @given(BASES, STEPS.filter(bool), st.integers(0, 200))
    def test_preallocated_zeros_of_kafka_are_ignored(self, base: int, steps: Pairs, zeros: int) -> None:
        files, entries = MemoryFiles(), rising(base, steps)
        index = OffsetIndex(PATH, base)
        for entry in entries:
            index.append(*entry)
        index.write_out(files, sync=False)
        file = files.open(PATH)
        file.truncate(file.size() + zeros)
        index = loaded(files, base)
        check(index, base, entries)
        index.append(entries[-1][0] + 5, entries[-1][1] + 5)
        index.write_out(files, sync=False)
        assert len(read_file(files, PATH)) == 8 * len(index)

    @given(BASES, STEPS.filter(lambda steps: len(steps) > 1), st.data())
    def test_entries_that_do_not_rise_are_ignored(self, base: int, steps: Pairs, data: st.DataObject) -> None:
        files, entries = MemoryFiles(), rising(base, steps)
        index = OffsetIndex(PATH, base)
        for entry in entries:
            index.append(*entry)
        index.write_out(files, sync=False)
        assert OffsetIndex.load(files, PATH, base, entries[-1][1]) is None
        one = data.draw(st.integers(0, len(entries) - 2))
        raw = read_file(files, PATH)
        file = files.open(PATH)
        file.write_at(8 * one, raw[8 * one + 8 : 8 * one + 16])
        file.write_at(8 * one + 8, raw[8 * one : 8 * one + 8])
        assert OffsetIndex.load(files, PATH, base, 1 << 30) is None


@given(BASES, st.integers(1, 100))
def test_an_offset_entry_that_does_not_follow_is_refused(base: int, back: int) -> None:
    index = OffsetIndex(PATH, base)
    index.append(base + 100, 100)
    for wrong in (
        (base + 100 - back + 1, 200),
        (base + 200, 101 - back),
        (base + RELATIVE_OFFSET_MAX + back, 200),
    ):
        with pytest.raises(StorageError, match="cannot follow"):
            index.append(*wrong)
    assert index.last() == (base + 100, 100)


@pytest.mark.usefixtures("mapped")
@given(BASES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=40), st.data())
def test_a_time_index_never_points_behind_a_message_of_that_time(
    base: int, noted: Pairs, data: st.DataObject
) -> None:
    """Messages in order, each with a time; the largest so far is added to the index now and then."""
    files, index, messages = MemoryFiles(), TimeIndex(PATH, base), []
    newest = (-1, base)
    for number, (time_ms, gap) in enumerate(noted):
        offset = base + number * 3 + gap % 3
        messages.append((offset, time_ms))
        newest = max(newest, (time_ms, offset), key=lambda one: one[0])
        if gap % 2:
            index.append(*newest)
        if data.draw(st.integers(0, 5)) == 0:
            index.append(*newest)
            index.write_out(files, sync=True)
            again = TimeIndex.load(files, PATH, base)
            if newest == (0, base):
                continue  # twelve zeros: the same as room that was taken beforehand
            assert again is not None
            index = again
            assert index.last() == newest
    times = sorted({time_ms for _, time_ms in messages})
    for asked in {0, *times, *(time_ms + 1 for time_ms in times)}:
        bound = index.lookup(asked)
        later = [offset for offset, time_ms in messages if time_ms >= asked]
        assert not later or bound <= later[0]
    entries = [index.lookup(time_ms) for time_ms in times]
    assert all(first <= second for first, second in pairwise(entries))
