"""The sparse time index: its bytes, look-ups, invalid files, and its use by a log."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log import search
from minikafka.log.config import LogConfig
from minikafka.log.index.time_index import TimeIndex
from minikafka.log.log import Log
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.format.message_set import Codec, Record, build_message_set
from tests.support.logs import HOME, NOW_MS, SMALL, fill, numbered, open_log, valid_set

BASE = 1000
FIRST = f"{HOME}/00000000000.timeindex"


def pairs(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def loaded(data: bytes) -> TimeIndex | None:
    files = MemoryFiles()
    files.open("i", create=True).write_at(0, data)
    return TimeIndex.load(files, "i", BASE)


def test_entries_are_timestamps_and_relative_offsets_in_twelve_bytes(files: MemoryFiles) -> None:
    index = TimeIndex("i", BASE)
    index.append(NOW_MS, BASE + 7)
    index.append(NOW_MS + 5, BASE + 300)
    index.write_out(files, sync=True)
    assert read_file(files, "i") == pairs((NOW_MS, 7), (NOW_MS + 5, 300))


def test_an_entry_that_is_not_newer_is_not_taken() -> None:
    index = TimeIndex("i", BASE)
    index.append(50, BASE + 1)
    index.append(50, BASE + 2)
    index.append(49, BASE + 3)
    index.append(-1, BASE + 4)
    assert (len(index), index.last()) == (1, (50, BASE + 1))


def test_a_look_up_gives_where_messages_of_that_time_can_begin() -> None:
    index = loaded(pairs((50, 7), (60, 300)))
    assert index is not None
    assert [index.lookup(at) for at in (0, 49, 50, 59, 60, 10**15)] == [
        BASE,
        BASE,
        BASE + 7,
        BASE + 7,
        BASE + 300,
        BASE + 300,
    ]


def test_entries_of_a_scan_are_taken_where_they_are_newer() -> None:
    index = TimeIndex("i", BASE)
    index.append(50, BASE + 1)
    rows = [(40, 2), (50, 3), (60, 4), (60, 4), (70, 9)]
    index.extend(np.array([(at, BASE + offset) for at, offset in rows], np.int64))
    assert index.last() == (70, BASE + 9)
    assert len(index) == 3


def test_empty_index_has_a_file_so_that_it_is_not_rebuilt(files: MemoryFiles) -> None:
    assert TimeIndex("i", BASE).write_out(files, sync=True)
    assert read_file(files, "i") == b""
    again = TimeIndex.load(files, "i", BASE)
    assert again is not None
    assert again.last() == (-1, BASE)


def test_room_that_kafka_took_beforehand_is_passed_over() -> None:
    index = loaded(pairs((50, 7)) + bytes(12 * 50))
    assert index is not None
    assert index.last() == (50, BASE + 7)


@pytest.mark.parametrize(
    "data",
    [
        pairs((50, 7), (50, 8)),
        pairs((50, 7), (40, 8)),
        pairs((50, 7), (60, 6)),
        pairs((-5, 7)),
        pairs((50, -7)),
        bytes(12),
        bytes(1200),
    ],
)
def test_a_file_that_cannot_be_right_is_not_believed(data: bytes) -> None:
    assert loaded(data) is None


def timed(log: Log, *timestamps: int) -> None:
    for timestamp_ms in timestamps:
        log.append(valid_set(numbered(log.end_offset, 1, 100), timestamp_ms=timestamp_ms))


def test_a_closed_log_has_its_largest_timestamps_in_its_time_indexes(files: MemoryFiles) -> None:
    log = fill(open_log(files), 60)
    ends = [segment.max_timestamp() for segment in log.segments]
    log.close()
    for segment, (newest, _) in zip(log.segments, ends, strict=True):
        data = read_file(files, segment.path.replace(".kafka", ".timeindex"))
        times = [at for at, _ in struct.iter_unpack(">qi", data)]
        assert times == sorted(set(times))
        assert times[-1] == newest


def test_closed_log_knows_its_times_without_reading_messages(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(open_log(files), 60)
    before = [segment.max_timestamp()[0] for segment in log.segments]
    log.close()
    again = open_log(files, clean=True)
    monkeypatch.setattr(search, "windows", lambda *_, **__: pytest.fail("messages were read"))
    assert [segment.max_timestamp()[0] for segment in again.segments] == before
    assert again.offset_for_timestamp(NOW_MS + 1000) is None


def test_a_search_by_time_begins_where_the_index_says(monkeypatch: pytest.MonkeyPatch) -> None:
    log = fill(open_log(MemoryFiles(), LogConfig(index_interval_bytes=500)), 1000)
    begins: list[int] = []
    as_ever = search.windows

    def noting(file: object, begin: int, *rest: object, **options: object) -> object:
        begins.append(begin)
        return as_ever(file, begin, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "windows", noting)
    assert log.offset_for_timestamp(NOW_MS + 700) == (700, NOW_MS + 700)
    (begin,) = begins
    (only,) = log.segments
    assert only.size * 0.65 < begin < only.size * 0.7


@pytest.mark.parametrize("state", ["open", "clean", "unclean", "without indexes", "truncated"])
@pytest.mark.parametrize("seed", range(5))
def test_first_message_of_a_time_is_found_in_any_order_of_times(state: str, seed: int) -> None:
    chance = random.Random(seed)
    files = MemoryFiles()
    log = open_log(files, SMALL)
    times = [chance.randrange(300) for _ in range(120)]
    timed(log, *times)
    if state == "truncated":
        log.truncate_to(70)
        times = times[:70]
    elif state != "open":
        if state != "unclean":
            log.close()
        if state == "without indexes":
            for name in files.list_dir(HOME):
                if name.endswith("index"):
                    files.remove(f"{HOME}/{name}")
        log = open_log(files, SMALL, clean=state != "unclean")
    for wanted in range(301):
        first = next((number for number, at in enumerate(times) if at >= wanted), None)
        assert log.offset_for_timestamp(wanted) == (None if first is None else (first, times[first]))


def test_a_truncation_takes_the_time_index_with_it(files: MemoryFiles) -> None:
    """Its entries would belong to removed messages."""
    log = open_log(files, LogConfig(index_interval_bytes=100))
    timed(log, *range(10), 5_000, *range(10, 20))
    log.close()
    again = open_log(files, LogConfig(index_interval_bytes=100), clean=True)
    again.truncate_to(10)
    assert not files.exists(FIRST)
    assert again.segments[-1].max_timestamp()[0] == 9
    timed(again, 20)
    assert again.segments[-1].max_timestamp()[0] == 20


def test_a_full_time_index_makes_the_log_roll() -> None:
    log = open_log(MemoryFiles(), LogConfig(index_interval_bytes=100, index_max_bytes=96))
    timed(log, *range(100))
    assert {len(segment.times()) for segment in log.segments[:-1]} == {8}


def test_messages_of_magic_0_leave_an_empty_time_index(files: MemoryFiles) -> None:
    log = open_log(files)
    log.append(valid_set(numbered(0, 5), magic=0))
    log.close()
    assert read_file(files, FIRST) == b""
    assert open_log(files, clean=True).segments[-1].max_timestamp()[0] == -1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_entry_names_the_newest_message_not_its_set(files: MemoryFiles, codec: Codec) -> None:
    """Kafka's own tool compares the two. Of a compressed set it is the last, as the set is one entry."""
    log = open_log(files)
    records = [Record(None, b"v", at) for at in (5, 9, 7)]
    log.append(validate(bytearray(build_message_set(records, magic=1, codec=codec)), Limits(), NOW_MS))
    log.close()
    assert read_file(files, FIRST) == pairs((9, 1 if codec is Codec.NONE else 2))
    rebuilt = open_log(files)
    assert rebuilt.segments[-1].max_timestamp() == (9, 1 if codec is Codec.NONE else 2)
