"""One pass of the cleaner over a log: the result of Kafka's own cleaner, segments, time, stops, damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.memory_files import MemoryFiles
from minikafka.log import file_scan
from minikafka.log.cleanup.cleaner import Cleaner, CleaningStopped, CleanReport, Uncleanable, groups
from minikafka.log.cleanup.cleaner_manager import log_to_clean
from minikafka.log.config import LogConfig
from minikafka.log.index.transaction_index import AbortedTransaction
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.compaction import SLOT_BYTES, OffsetMap
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Codec, Record, build_message_set, iterate
from tests.support.disks import Killed, KillingFiles
from tests.support.logs import DATA, HOME, NOW_MS, expected_records, open_log, plain, read_all
from tests.support.transactions import (
    abort,
    aborted,
    end_transaction,
    entries,
    index_files,
    without_indexes,
    write_in_transaction,
)

GOLDEN = DATA / "compacted"
CONFIG = LogConfig(segment_bytes=8192, index_interval_bytes=1024, compacted=True)
RECORDED = "d/t-0"


def cleaner_of(
    files: MemoryFiles,
    *,
    slots: int = 10_000,
    bytes_per_second: float | None = None,
    wait: Callable[[float], object] = lambda seconds: None,
    discard: Callable[[Log, list[str]], object] = lambda log, paths: None,
) -> Cleaner:
    return Cleaner(
        files,
        files.clock,
        OffsetMap(slots * SLOT_BYTES),
        discard,
        bytes_per_second=bytes_per_second,
        wait=wait,
    )


def clean(files: MemoryFiles, log: Log, first_dirty_offset: int = 0, **how: int) -> CleanReport:
    return cleaner_of(files, **how).clean(log, first_dirty_offset, log.segments[-1].base_offset)


def log_with(files: MemoryFiles, segments: dict[int, bytes], config: LogConfig = CONFIG) -> Log:
    """A log whose segments hold these bytes, in Kafka's own layout, written a second apart."""
    files.make_dirs(RECORDED)
    for base, data in segments.items():
        file = files.open(f"{RECORDED}/{base:020d}.log", create=True)
        file.write_at(0, data)
        file.close()
    log = open_log(files, config, directory=RECORDED, layout=Layout.APACHE)
    for number, segment in enumerate(log.segments):
        segment.file.set_modified_ms(NOW_MS + 1000 * number)
    return log


def recorded(path: Path) -> dict[int, bytes]:
    return {int(file.stem): file.read_bytes() for file in sorted(path.glob("*.log"))}


def bytes_of(files: MemoryFiles, log: Log) -> dict[int, bytes]:
    return {segment.base_offset: segment.file.read_at(0, segment.size) for segment in log.segments}


def append(log: Log, *pairs: tuple[bytes, bytes | None], codec: Codec = Codec.NONE, magic: int = 1) -> None:
    records = [Record(key, value, NOW_MS + log.end_offset) for key, value in pairs]
    data = bytearray(build_message_set(records, magic=magic, codec=codec))
    log.append(validate(data, Limits(max_magic=2, max_message_bytes=1 << 28), NOW_MS))


A, B, C = (b"a", b"1"), (b"b", b"2"), (b"c", b"3")


def small_log(files: MemoryFiles, *sets: list[tuple[bytes, bytes | None]], magic: int = 1) -> Log:
    """A segment of each set, and an empty active one."""
    log = open_log(files, CONFIG)
    for messages in sets:
        append(log, *messages, magic=magic)
        log.roll()
    return log


@pytest.mark.parametrize("name", ["magic1-none", "magic1-gzip"])
def test_a_recorded_log_is_left_as_the_release_left_it(files: MemoryFiles, name: str) -> None:
    log = log_with(files, recorded(GOLDEN / name / "before"))
    report = clean(files, log)
    after = recorded(GOLDEN / name / "after")
    assert [segment.base_offset for segment in log.segments] == list(after)
    assert plain(read_all(log)) == expected_records(GOLDEN / name / "after" / "expected.jsonl")
    if name == "magic1-none":
        assert bytes_of(files, log) == after
    topic = name.replace("magic1", "compact")
    checkpoint = (GOLDEN / "cleaner-offset-checkpoint-after").read_text().splitlines()
    assert f"{topic} 0 {report.end_offset}" in checkpoint


@pytest.mark.parametrize(
    ("name", "clean_up_to", "active"), [("magic1-none", 359, 478), ("magic1-gzip", 281, 556)]
)
def test_a_second_pass_drops_what_the_release_dropped(
    files: MemoryFiles, name: str, clean_up_to: int, active: int
) -> None:
    """Records written between the passes that were removed are not in the recording, and do not matter."""
    first, second = (recorded(GOLDEN / name / part) for part in ("after", "after-second-pass"))
    segments = {base: data for base, data in first.items() if base < clean_up_to}
    came = [record for record in iterate(b"".join(second.values())) if 400 <= record.offset < active]
    more = b"".join(
        build_message_set([Record(record.key, record.value, record.timestamp_ms)], base_offset=record.offset)
        for record in came
    )
    segments |= {clean_up_to: first[clean_up_to] + more, active: second[active]}
    log = log_with(files, segments, replace(CONFIG, delete_retention_ms=1))
    report = clean(files, log, clean_up_to)
    assert report.end_offset == active
    wanted = expected_records(GOLDEN / name / "after-second-pass" / "expected.jsonl")
    assert plain(read_all(log)) == wanted
    assert any(value is None for _, _, _, value in wanted)


def test_the_active_segment_is_not_touched(files: MemoryFiles) -> None:
    log = small_log(files, [A, B])
    append(log, A, A)
    clean(files, log)
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3]


def test_messages_above_the_bound_are_not_cleaned(files: MemoryFiles) -> None:
    log = small_log(files, [A], [A], [A])
    report = cleaner_of(files).clean(log, 0, 2)
    assert (report.end_offset, [r.offset for r in read_all(log)]) == (2, [1, 2])
    assert cleaner_of(files).clean(log, 0, 2).end_offset == 2


def test_neighbours_become_one_segment_as_far_as_it_has_room(files: MemoryFiles) -> None:
    log = small_log(files, *[[(b"%d" % number, bytes(2000))] for number in range(6)])
    clean(files, log)
    assert [segment.base_offset for segment in log.segments] == [0, 4, 6]
    assert len(read_all(log)) == 6


def test_small_indexes_bound_a_group_too(files: MemoryFiles) -> None:
    log = open_log(files, replace(CONFIG, index_interval_bytes=1, index_max_bytes=100))
    for number in range(40):
        append(log, (b"%d" % number, b"v"))
        if number % 8 == 7:
            log.roll()
    sizes = [len(group) for group in groups(log.segments, 40, log.config)]
    assert sizes == [1, 1, 1, 1, 1]
    assert [len(group) for group in groups(log.segments, 40, replace(log.config, index_max_bytes=250))] == [
        2,
        2,
        1,
    ]


def test_offsets_of_a_group_fit_its_index(files: MemoryFiles) -> None:
    far = (1 << 31) - 1
    sets = {
        0: build_message_set([Record(b"a", b"")]),
        5: build_message_set([Record(b"b", b"")], base_offset=5),
    }
    log = log_with(files, {**sets, far + 1: build_message_set([Record(b"c", b"")], base_offset=far + 1)})
    assert [len(group) for group in groups(log.segments, far + 1, log.config)] == [2]
    other = MemoryFiles(clock=ManualClock(NOW_MS))
    log = log_with(other, {**sets, far + 2: build_message_set([Record(b"c", b"")], base_offset=far + 2)})
    assert [len(group) for group in groups(log.segments, far + 2, log.config)] == [1, 1]


def test_a_log_of_which_nothing_stays_keeps_its_start(files: MemoryFiles) -> None:
    log = small_log(files, [A], [B])
    append(log, A, B)
    log.roll()
    clean(files, log)
    assert (log.start_offset, log.segments[0].base_offset) == (0, 0)
    assert [record.offset for record in read_all(log)] == [2, 3]


def test_a_map_that_is_too_small_takes_several_passes(files: MemoryFiles) -> None:
    sets = [[(b"%d" % (number % 30), b"%d" % number)] for number in range(60)]
    log = small_log(files, *sets)
    first_dirty, passes = 0, 0
    while first_dirty < 60:
        first_dirty = clean(files, log, first_dirty, slots=12).end_offset
        passes += 1
    assert passes > 3
    assert [record.offset for record in read_all(log)] == list(range(30, 60))


def test_the_cleaned_log_is_found_again_after_a_crash(files: MemoryFiles) -> None:
    files.make_dirs(HOME)
    for directory in ("", "data"):
        files.sync_dir(directory)
    log = small_log(files, [A, B], [A, C], [B])
    clean(files, log)
    left = read_all(log)
    files.power_cut()
    assert read_all(open_log(files, CONFIG, recovery_point=log.recovery_point)) == left
    assert [record.offset for record in left] == [2, 3, 4]


def test_the_log_is_flushed_up_to_its_active_segment_first(files: MemoryFiles) -> None:
    log = small_log(files, [A, B], [A])
    assert log.recovery_point == 0
    clean(files, log)
    assert log.recovery_point == 3


def test_the_files_of_replaced_segments_are_handed_over(files: MemoryFiles) -> None:
    log = small_log(files, [A], [A])
    given: list[str] = []
    cleaner = cleaner_of(files, discard=lambda cleaned, paths: given.extend(paths))
    cleaner.clean(log, 0, 2)
    assert [path for path in given if path.endswith(".kafka.deleted")] == [
        f"{HOME}/00000000000.kafka.deleted",
        f"{HOME}/00000000001.kafka.deleted",
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_tombstones_of_old_segments_go_in_a_later_pass(files: MemoryFiles, magic: int) -> None:
    """The modification times of segments decide; they are a second apart here."""
    log = open_log(files, replace(CONFIG, delete_retention_ms=2000, segment_bytes=100))
    for message in ((b"a", None), B, C, (b"d", b"4"), (b"e", b"5")):
        files.clock.advance(1000)
        append(log, message, (b"%d" % log.end_offset, bytes(20)), magic=magic)
        log.roll()
    files.clock.advance(86_400_000)
    left = []
    for begin, end in ((0, 4), (4, 6), (6, 8)):
        cleaner_of(files).clean(log, begin, end)
        left.append([record.offset for record in read_all(log) if record.value is None])
    assert left == [[0], [0], []]


def test_message_timestamps_remove_no_tombstone(files: MemoryFiles) -> None:
    log = open_log(files, replace(CONFIG, delete_retention_ms=1000, segment_bytes=100))
    for day, (key, value) in enumerate([(b"a", None), B, C, A]):
        data = bytearray(build_message_set([Record(key, value, 86_400_000 * day)]))
        log.append(validate(data, Limits(), NOW_MS))
        log.roll()
    cleaner_of(files).clean(log, 0, 3)
    log.config = replace(log.config, segment_bytes=1000)
    cleaner_of(files).clean(log, 3, 4)
    assert [record.offset for record in read_all(log)] == [1, 2, 3]  # "a" has a value again


def test_new_segment_has_the_time_of_those_it_replaces(files: MemoryFiles) -> None:
    log = small_log(files, [A, A], [B], [C])
    written_ms = [segment.file.modified_ms() for segment in log.segments]
    files.clock.advance(5000)
    clean(files, log)
    assert log.segments[0].file.modified_ms() == max(written_ms[:-1])


def test_tombstone_stays_in_the_first_pass_whatever_its_time(files: MemoryFiles) -> None:
    log = small_log(files, [A], [B])
    old = bytearray(build_message_set([Record(b"a", None, 5)]))
    log.append(validate(old, Limits(), NOW_MS))
    log.roll()
    log.config = replace(CONFIG, delete_retention_ms=0, segment_bytes=100)
    clean(files, log, 2)
    assert [record.offset for record in read_all(log)] == [1, 2]


def test_tombstones_of_magic_2_go_when_their_own_time_is_over(files: MemoryFiles) -> None:
    log = small_log(files, [A, (b"a", None)], magic=2)
    log.config = replace(CONFIG, delete_retention_ms=1000)
    for advance, left in ((0, [1]), (999, [1]), (1, [])):
        files.clock.advance(advance)
        first = log.end_offset
        append(log, (b"%d" % first, b"v"))
        log.roll()
        clean(files, log, 0 if first == 2 else first)
        assert [record.offset for record in read_all(log) if record.value is None] == left


def test_an_open_transaction_keeps_all_behind_it_from_being_cleaned(files: MemoryFiles) -> None:
    one = build_batch(
        [Record(b"a", b"1")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    plain_one = build_batch([Record(b"a", b"2")], base_offset=1)
    log = log_with(files, {0: one, 1: plain_one, 2: b""})
    report = clean(files, log)
    assert (report.end_offset, report.bytes_read) == (0, 0)
    mark = build_control_batch(
        ControlType.ABORT, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=5, base_offset=2
    )
    other = MemoryFiles(clock=ManualClock(NOW_MS))
    log = log_with(other, {0: one, 1: plain_one, 2: mark, 3: b""})
    assert clean(other, log).end_offset == 3
    assert [record.offset for record in read_all(log) if not record.control] == [1]


# --- aborted transactions -----------------------------------------------------------------------------------


def with_transactions(files: MemoryFiles) -> Log:
    """Two aborted transactions and a committed one, over four full segments, and an empty active one."""
    for directory in ("", "data", HOME):
        files.make_dirs(HOME)
        files.sync_dir(directory)
    log = open_log(files, CONFIG)
    append(log, A, magic=2)
    write_in_transaction(log, 1, key=b"a")
    log.roll()
    write_in_transaction(log, 2, 2, key=b"b")
    end_transaction(log, 1, commit=False)
    log.roll()
    abort(log, 3, key=b"c")
    log.roll()
    end_transaction(log, 2, commit=True)
    append(log, (b"d", b"4"), magic=2)
    log.roll()
    log.flush()
    return log


def test_cleaned_segments_keep_the_entries_of_the_transactions(files: MemoryFiles) -> None:
    log = with_transactions(files)
    before = entries(log)
    assert [(entry.producer_id, entry.last_offset) for entry in before] == [(1, 4), (3, 6)]
    clean(files, log)
    assert (len(log.segments), entries(log)) == (2, before)
    assert index_files(files, log)[0] == f"{0:011d}.txnindex"
    log.close()
    assert entries(open_log(files, CONFIG, clean=True)) == before


def test_entries_go_once_a_pass_finds_no_batch_of_the_transaction(files: MemoryFiles) -> None:
    log = with_transactions(files)
    log.producers.remove_expired(1 << 60, 0)
    for producer in (1, 3):
        append(log, (b"d", b"5"), magic=2)
        write_in_transaction(log, producer, key=b"e")
        end_transaction(log, producer, commit=True)
    log.roll()
    clean(files, log)
    assert len(entries(log)) == 2
    append(log, (b"d", b"6"), magic=2)
    log.roll()
    clean(files, log, log.segments[-2].base_offset)
    assert entries(log) == []


def test_aborted_batches_behind_the_map_stay_hidden(files: MemoryFiles) -> None:
    log = open_log(files, CONFIG)
    append(log, A, B, magic=2)
    abort(log, 1, 2, key=b"c")
    log.roll()
    clean(files, log, slots=2)
    assert aborted(log, 0) == [(1, 2)]
    assert entries(log) == [AbortedTransaction(1, 2, 4, 5)]


def test_a_log_without_indexes_gets_none_by_cleaning(files: MemoryFiles) -> None:
    log = without_indexes(files, with_transactions(files))
    clean(files, log)
    assert index_files(files, log) == []


def test_nothing_above_the_last_stable_offset_is_cleaned(files: MemoryFiles) -> None:
    log = small_log(files, [A], [A], magic=2)
    log.producers.high_watermark = 2
    write_in_transaction(log, 1, key=b"a")
    log.roll()
    end_transaction(log, 1, commit=True)
    append(log, A, magic=2)
    log.roll()
    log.producers.high_watermark = 3
    assert log_to_clean(log, 0, NOW_MS).upper_offset == 2
    assert clean(files, log).end_offset == 2
    log.producers.high_watermark = 5
    assert log_to_clean(log, 2, NOW_MS).upper_offset == 5
    assert clean(files, log, 2).end_offset == 5


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_no_entry_is_lost_by_a_crash_of_the_cleaner(seed: int | None) -> None:
    changes = 0
    while True:
        changes += 1
        files = KillingFiles(clock=ManualClock(NOW_MS))
        log = with_transactions(files)
        before = entries(log)
        files.changes_left = changes
        try:
            clean(files, log)
        except Killed:
            files.power_cut(None if seed is None else random.Random(seed * changes))
            log = open_log(files, CONFIG, recovery_point=log.recovery_point)
            assert entries(log) == before, changes
            assert not any(name.endswith((".swap", ".cleaned")) for name in files.list_dir(HOME))
            continue
        break
    assert changes > 20


def test_a_message_larger_than_a_window_is_cleaned(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", 200)
    log = small_log(files, [A, (b"b", bytes(3000)), A], [(b"c", bytes(5000))], [A])
    clean(files, log)
    assert [record.offset for record in read_all(log)] == [1, 3, 4]


def damage(log: Log, base: int, position: int) -> None:
    """Change a byte."""
    segment = next(segment for segment in log.segments if segment.base_offset == base)
    byte = segment.file.read_at(position, 1)[0]
    segment.file.write_at(position, bytes([byte ^ 1]))


@pytest.mark.parametrize("first_dirty_offset", [0, 2])
def test_a_damaged_message_makes_the_log_uncleanable(files: MemoryFiles, first_dirty_offset: int) -> None:
    log = small_log(files, [A, B], [A])
    damage(log, 0, 70)
    before = bytes_of(files, log)
    with pytest.raises(Uncleanable, match=r"00000000000.kafka: .*checksum.* at position 36"):
        clean(files, log, first_dirty_offset)
    assert bytes_of(files, log) == before
    assert not [name for name in files.list_dir(HOME) if name.endswith(".cleaned")]


def test_content_that_cannot_be_opened_makes_the_log_uncleanable(files: MemoryFiles) -> None:
    from tests.oracles import messages as oracle

    wrong = oracle.entry(0, magic=1, attributes=1, value=b"no gzip")
    log = log_with(files, {0: wrong, 1: b""})
    with pytest.raises(
        Uncleanable, match=r"000.log, counted from position 0: failed to decompress gzip content"
    ):
        clean(files, log)


def test_a_full_disk_leaves_the_log_as_it_was(files: MemoryFiles) -> None:
    log = small_log(files, [A, B], [A])
    before = bytes_of(files, log)
    log.flush(3)
    files.fail_next_write(match=".cleaned")
    with pytest.raises(StorageError):
        clean(files, log)
    assert not [name for name in files.list_dir(HOME) if name.endswith(".cleaned")]
    assert bytes_of(files, log) == before


def test_a_cleaning_stops_between_windows_when_it_is_asked_to(files: MemoryFiles) -> None:
    log = small_log(files, [A, B], [A], [B])
    log.config = replace(CONFIG, segment_bytes=100)
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 9

    with pytest.raises(CleaningStopped):
        cleaner_of(files).clean(log, 0, 4, should_stop)
    assert not [name for name in files.list_dir(HOME) if name.endswith(".cleaned")]
    assert {record.offset for record in read_all(log)} >= {2, 3}


def test_reading_and_writing_keep_to_the_rate(files: MemoryFiles) -> None:
    log = small_log(files, [(b"%d" % number, bytes(900)) for number in range(5)], [A])
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        files.clock.advance(round(1000 * seconds))

    report = cleaner_of(files, bytes_per_second=10_000, wait=wait).clean(log, 0, 6)
    moved = report.bytes_indexed + report.bytes_read + report.bytes_written
    assert moved > 3 * 4500
    assert sum(waits) == pytest.approx(moved / 10_000, abs=0.02)
    assert max(waits) <= 0.3


def test_another_rate_counts_at_once_and_another_map_from_the_next_pass(files: MemoryFiles) -> None:
    log = small_log(files, [(b"%d" % number, bytes(900)) for number in range(5)], [A])
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        files.clock.advance(max(1, round(1000 * seconds)))
        cleaner.reconfigure(OffsetMap(3 * SLOT_BYTES), 1e9)

    cleaner = cleaner_of(files, bytes_per_second=10, wait=wait)
    assert cleaner.clean(log, 0, 6).map_fullness == pytest.approx(6 / 10_000)
    assert [seconds for seconds in waits if seconds > 0.001] == [0.3]
    append(log, *((b"%d" % number, b"") for number in range(5)))
    log.roll()
    assert cleaner.clean(log, 6, 11).map_fullness == pytest.approx(2 / 3)


def test_a_throttled_cleaning_stops_while_it_waits(files: MemoryFiles) -> None:
    log = small_log(files, [(b"a", bytes(900))])
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        files.clock.advance(round(1000 * seconds))

    with pytest.raises(CleaningStopped):
        cleaner_of(files, bytes_per_second=1, wait=wait).clean(log, 0, 1, lambda: bool(waits))
    assert len(waits) == 1


def test_the_report_is_one_line_with_what_was_done(files: MemoryFiles) -> None:
    log = small_log(files, [A, B, A, A])
    report = clean(files, log, slots=100)
    assert (report.messages_read, report.messages_written, report.messages_without_key) == (4, 2, 0)
    assert (report.first_dirty_offset, report.end_offset, report.map_fullness) == (0, 4, 0.02)
    text = str(replace(report, messages_without_key=3, seconds=2.0))
    assert "\n" not in text
    assert text.startswith(f"cleaned log {HOME} from offset 0 to 4 in 2.0 s")
    assert "kept 0.0 of 0.0 MB (50.0% less) and 2 of 4 messages (50.0% fewer); dropped 3 messages" in text
