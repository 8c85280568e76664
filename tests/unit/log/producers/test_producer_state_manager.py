"""Idempotent producers over the life of a log: crashes, truncation, retention, compaction."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.files import Files, RealFiles, read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log import file_scan
from minikafka.log.cleanup.cleaner import Cleaner
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout, snapshot_name
from minikafka.log.log import Log
from minikafka.log.producers import producer_state_manager
from minikafka.log.producers.producer_state import Producers
from minikafka.log.producers.producer_state_manager import ProducerStateManager, snapshot_offsets
from minikafka.log.producers.snapshots import encode_producers, parse_producers
from minikafka.records.append.produced import Limits, LogAppendInfo
from minikafka.records.append.validation import validate
from minikafka.records.compaction import OffsetMap
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Record, iterate
from tests.support.logs import DATA, HOME, NOW_MS, fill, open_log, valid_set

SEGMENTS = DATA / "segments"
COMPACTED = LogConfig(segment_bytes=1000, index_interval_bytes=100, compacted=True)


def send(
    log: Log,
    first: int,
    count: int = 2,
    *,
    producer: int = 7,
    epoch: int = 0,
    size: int = 60,
    key: bytes | None = None,
    timestamp_ms: int = NOW_MS,
    now_ms: int = NOW_MS,
) -> LogAppendInfo:
    """Have a producer send its records ``first`` to ``first + count - 1``."""
    values = [b"%d/%d:" % (producer, first + number) + bytes(size) for number in range(count)]
    data = build_batch(
        [Record(key, value, timestamp_ms) for value in values],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=first,
    )
    return log.append(validate(bytearray(data), Limits(max_magic=2), NOW_MS), now_ms=now_ms)


def send_all(log: Log, records: int, *, producer: int = 7, size: int = 60) -> None:
    """Have it send so many records, two at a time, from the first on."""
    for first in range(0, records, 2):
        send(log, first, producer=producer, size=size)


def snapshots(files: Files) -> list[int]:
    return snapshot_offsets(files.list_dir(HOME))


def known(log: Log) -> dict[int, tuple[int, int, int]]:
    """Return epoch, last sequence and last offset of each producer, which must survive any restart."""
    return {
        number: (one.epoch, one.batches[-1].last_sequence, one.last_offset)
        for number, one in log.producers.known.items()
    }


def test_a_batch_that_comes_again_is_not_written_again(log: Log) -> None:
    assert (send(log, 0).first_offset, send(log, 2).first_offset) == (0, 2)
    size = log.size_bytes
    again = send(log, 0)
    assert again.duplicate
    assert (again.first_offset, again.last_offset, again.count) == (0, 1, 2)
    assert (log.end_offset, log.size_bytes) == (4, size)


def test_a_refused_batch_leaves_the_log_as_it_was(log: Log) -> None:
    send(log, 0)
    with pytest.raises(BrokerError) as raised:
        send(log, 5)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 2
    send(log, 2)


def test_batch_that_the_disk_refused_can_be_sent_again(log: Log, files: MemoryFiles) -> None:
    send(log, 0)
    files.fail_next_write()
    with pytest.raises(StorageError):
        send(log, 2)
    assert send(log, 2).first_offset == 2


def test_snapshot_is_written_at_a_roll_and_the_newest_two_stay(log: Log, files: MemoryFiles) -> None:
    send_all(log, 60)
    log.flush()
    send(log, 60)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    while len(log.segments) == len(bases):
        send(log, log.end_offset)
    assert snapshots(files) == [segment.base_offset for segment in log.segments][-2:]


def test_snapshots_of_unflushed_parts_keep_the_last_safe_one(log: Log, files: MemoryFiles) -> None:
    send_all(log, 60)
    assert snapshots(files) == [segment.base_offset for segment in log.segments][-2:]
    safe = log.segments[-1].base_offset
    log.flush(safe)
    for first in range(60, 120, 2):
        send(log, first)
    assert snapshots(files)[0] == safe
    assert len(snapshots(files)) > 2


def test_a_clean_close_keeps_all_that_is_needed_to_go_on(log: Log, files: MemoryFiles) -> None:
    send_all(log, 20)
    send(log, 0, producer=8, epoch=3)
    before = known(log)
    log.close()
    assert snapshots(files)[-1] == 22
    again = open_log(files, clean=True)
    assert known(again) == before
    assert send(again, 18).duplicate
    assert send(again, 20).first_offset == 22


def test_older_batches_are_duplicates_after_a_clean_close(log: Log, files: MemoryFiles) -> None:
    send_all(log, 20)
    log.close()
    again = open_log(files, clean=True)
    with pytest.raises(BrokerError) as raised:
        send(again, 14)
    assert raised.value.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_log_without_producers_writes_no_snapshot_when_it_is_closed(files: MemoryFiles) -> None:
    fill(open_log(files), 5).close()
    assert snapshots(files) == []


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("window_bytes", [8 << 20, 700])
def test_a_crash_takes_nothing_of_what_is_known(
    files: MemoryFiles, window_bytes: int, flushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", window_bytes)
    log = open_log(files)
    send_all(log, 60)
    if flushed:
        log.flush()
    send_all(log, 30, producer=9)
    before = known(log)
    files.kill_process()
    again = open_log(files, recovery_point=log.recovery_point)
    assert known(again) == before
    assert again.producers.known[9].batches == log.producers.known[9].batches
    assert send(again, 58).duplicate
    assert send(again, 60).first_offset == 90


def test_without_any_snapshot_all_of_the_log_is_read(log: Log, files: MemoryFiles) -> None:
    send_all(log, 60)
    send(log, 0, producer=3)
    before = log.producers.known
    files.kill_process()
    for offset in snapshots(files):
        files.remove(f"{HOME}/{snapshot_name(offset)}")
    again = open_log(files)
    assert {number: one.batches for number, one in again.producers.known.items()} == {
        number: one.batches for number, one in before.items()
    }


def test_batches_are_found_among_small_messages_of_older_formats(files: MemoryFiles) -> None:
    log = open_log(files, LogConfig())
    for first in range(0, 20, 2):
        log.append(valid_set([b""]))
        log.append(valid_set([b""], magic=0))
        send(log, first, size=0)
    files.kill_process()
    again = open_log(files, LogConfig())
    assert again.producers.known[7].batches == log.producers.known[7].batches


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "damage",
    [b"", b"\0\1", struct.pack(">hIi", 1, 0, 0), struct.pack(">hIi", 9, 0, 0), bytes(100), b"\0\1" * 200],
)
def test_invalid_snapshot_is_ignored_and_the_log_is_read(
    log: Log, files: MemoryFiles, damage: bytes, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    send_all(log, 60)
    before = known(log)
    log.close()
    for offset in snapshots(files):
        file = files.open(f"{HOME}/{snapshot_name(offset)}")
        file.truncate(0)
        file.write_at(0, damage)
    again = open_log(files, clean=clean, recovery_point=60)
    assert known(again) == before
    assert "ignoring producer snapshot" in caplog.text
    assert snapshots(files) == []


def test_snapshot_past_the_end_or_recovery_point_is_not_used(log: Log, files: MemoryFiles) -> None:
    send_all(log, 20)
    files.kill_process()
    lie = encode_producers(
        {7: log.producers.known[7].with_batch(5, log.producers.known[7].batches[0], 1, transactional=False)}
    )
    for offset in (19, 21, 4000):
        files.open(f"{HOME}/{snapshot_name(offset)}", create=True).write_at(0, lie)
    again = open_log(files, recovery_point=15)
    assert again.producers.known[7].batches == log.producers.known[7].batches
    assert all(offset <= 15 for offset in snapshots(files))


def test_clean_open_reads_only_headers_behind_the_snapshot(
    log: Log, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_all(log, 60)
    log.close()
    monkeypatch.setattr(producer_state_manager, "windows", None)  # nothing may be read at all
    assert known(open_log(files, clean=True)) == {7: (0, 59, 59)}


def test_log_without_producers_is_not_read_after_a_clean_close(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(open_log(files), 40).close()
    for offset in snapshots(files):
        files.remove(f"{HOME}/{snapshot_name(offset)}")
    monkeypatch.setattr(producer_state_manager, "windows", None)
    assert known(open_log(files, clean=True)) == {}


def test_failed_snapshot_at_close_makes_the_next_open_read_the_log(log: Log, files: MemoryFiles) -> None:
    send_all(log, 60)
    files.fail_next_write(match=".snapshot")
    log.close()
    assert known(open_log(files, clean=True)) == {7: (0, 59, 59)}


def test_a_close_that_would_let_producers_be_forgotten_is_no_clean_one(log: Log, files: MemoryFiles) -> None:
    send(log, 0)
    files.fail_next_write(match=".snapshot")
    with pytest.raises(StorageError, match="cannot save the producer state"):
        log.close()


def test_a_roll_goes_on_where_no_snapshot_can_be_written(
    log: Log, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.fail_next_write(match=".snapshot")
    send_all(log, 60)
    assert "the next start will rebuild the producer state" in caplog.text
    files.kill_process()
    assert known(open_log(files)) == {7: (0, 59, 59)}


@pytest.mark.parametrize("offset", [58, 31, 6, 1, 0])
def test_a_cut_log_knows_what_is_left(log: Log, files: MemoryFiles, offset: int) -> None:
    send_all(log, 60)
    log.truncate_to(offset)
    left = log.end_offset
    if left:
        assert send(log, left - 2).duplicate
    assert send(log, left).first_offset == left
    assert all(at <= offset for at in snapshots(files))
    files.kill_process()
    assert known(open_log(files)) == {7: (0, left + 1, left + 1)}


def test_a_log_that_is_cut_below_its_start_knows_nobody(files: MemoryFiles) -> None:
    log = open_log(files, start_offset=100)
    send_all(log, 60)
    log.truncate_to(50)
    assert log.producers.known == {}
    assert snapshots(files) == []
    with pytest.raises(BrokerError) as raised:
        send(log, 60)
    assert raised.value.code is ErrorCode.UNKNOWN_PRODUCER_ID


def test_snapshots_go_with_their_segments_and_producers_stay(log: Log, files: MemoryFiles) -> None:
    send(log, 0, producer=3)
    send_all(log, 60)
    log.flush()
    assert log.delete_old_segments(len, 100)
    assert log.start_offset == log.end_offset == 62
    assert snapshots(files) == [62]
    assert send(log, 2, producer=3).first_offset == 62
    log.close()
    again = open_log(files, clean=True)
    assert send(again, 2, producer=3).duplicate
    assert send(again, 60).first_offset == 64


@pytest.mark.parametrize("stays", [0, 1])
def test_a_crash_does_not_take_producers_whose_messages_were_deleted(
    log: Log, files: MemoryFiles, stays: int
) -> None:
    send(log, 0, producer=3)
    send_all(log, 60)
    assert log.delete_old_segments(lambda segments: len(segments) - stays, 100)
    before = known(log)
    files.kill_process()
    again = open_log(files, recovery_point=0)
    assert known(again) == before
    assert send(again, 2, producer=3).first_offset == 62


def test_idle_producer_expires(files: MemoryFiles) -> None:
    config = LogConfig(producer_expiration_ms=1000)
    log = open_log(files, config)
    send(log, 0, producer=1)
    send(log, 0, producer=2, now_ms=NOW_MS + 500)
    assert log.remove_expired_producers(NOW_MS + 999) == 0
    assert log.remove_expired_producers(NOW_MS + 1000) == 1
    assert list(log.producers.known) == [2]
    with pytest.raises(BrokerError) as raised:
        send(log, 2, producer=1)
    assert raised.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    assert send(log, 0, producer=1).first_offset == 4


def test_producer_of_old_messages_is_active_by_its_last_append(tmp_path: Path) -> None:
    files, clock = RealFiles(), 1_000_000_000_000
    log = open_log(files, directory=str(tmp_path))
    send(log, 0, timestamp_ms=0)
    again = open_log(files, directory=str(tmp_path))
    assert again.producers.known[7].last_timestamp_ms > clock


def test_only_the_most_recent_producers_are_kept(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state_manager, "PRODUCERS_MOST", 3)
    log = open_log(files)
    for number in (1, 2, 3):
        send(log, 0, producer=number)
    send(log, 2, producer=1)
    send(log, 0, producer=4)
    assert list(log.producers.known) == [3, 1, 4]


# Recorded files.


@pytest.mark.parametrize("name", ["magic2-idempotent-lz4", "magic2-transactions", "magic2-none"])
def test_a_recorded_snapshot_is_written_again_byte_for_byte(name: str) -> None:
    data = (SEGMENTS / f"{name}.snapshot").read_bytes()
    found, wrong = parse_producers(name, data)
    assert wrong is None
    assert encode_producers(found) == data


@pytest.mark.parametrize("window_bytes", [8 << 20, 700])
@pytest.mark.parametrize("name", ["magic2-idempotent-lz4", "magic2-transactions", "magic2-none"])
def test_a_recorded_log_gives_the_recorded_snapshot(
    files: MemoryFiles, name: str, window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_scan, "WINDOW_BYTES", window_bytes)
    wanted = (SEGMENTS / f"{name}.snapshot").read_bytes()
    files.make_dirs(HOME)
    segment = files.open(f"{HOME}/{0:020d}.log", create=True)
    segment.write_at(0, (SEGMENTS / f"{name}.log").read_bytes())
    segment.set_modified_ms(0)  # later than its messages it would count as the producers' last activity
    log = open_log(files, LogConfig(), layout=Layout.APACHE, recovery_point=1000)
    if not log.producers.known:
        assert encode_producers({}) == wanted
        return
    log.close()
    (offset,) = snapshots(files)
    assert read_file(files, f"{HOME}/{snapshot_name(offset)}") == wanted


def test_a_recorded_log_goes_on_with_its_producers(files: MemoryFiles) -> None:
    files.make_dirs(HOME)
    for suffix, offset in (("log", 0), ("snapshot", 200)):
        data = (SEGMENTS / f"magic2-idempotent-lz4.{suffix}").read_bytes()
        files.open(f"{HOME}/{offset:020d}.{suffix}", create=True).write_at(0, data)
    log = open_log(files, LogConfig(), layout=Layout.APACHE, clean=True)
    assert send(log, 200, producer=0).first_offset == 200
    with pytest.raises(BrokerError) as raised:
        send(log, 100, producer=0)
    assert raised.value.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_marks_without_records_and_of_unknown_kinds_do_no_harm(files: MemoryFiles) -> None:
    mark = build_control_batch(
        ControlType.COMMIT, coordinator_epoch=4, producer_id=7, producer_epoch=0, timestamp_ms=9
    )
    unknown = build_batch(
        [Record(b"\0\0\0\7", b"", 9)], base_offset=1, producer_id=7, producer_epoch=0, control=True
    )
    shell = build_batch([Record(b"", b"", 9)], base_offset=2, producer_id=8, producer_epoch=0, control=True)
    files.make_dirs(HOME)
    files.open(f"{HOME}/{0:011d}.kafka", create=True).write_at(0, mark + unknown + shell)
    log = open_log(files)
    assert list(log.producers.known) == [7]
    assert log.producers.known[7].coordinator_epoch == 4
    send(log, 0)


# Compaction.


def clean(files: MemoryFiles, log: Log, *, now_ms: int = NOW_MS) -> None:
    clock = ManualClock(now_ms)
    cleaner = Cleaner(
        files, clock, OffsetMap(1 << 16), lambda log, deleted: [files.remove(path) for path in deleted]
    )
    cleaner.clean(log, 0, log.end_offset)


def test_compaction_keeps_the_last_batch_of_a_producer_even_empty(files: MemoryFiles) -> None:
    log = open_log(files, COMPACTED)
    send(log, 0, 1, producer=3, key=b"k")
    for first in range(0, 40, 2):
        send(log, first, key=b"k")
    log.roll()
    log.flush()
    clean(files, log)
    stored = [segment.slice(0, segment.size).read() for segment in log.segments]
    assert [record.offset for data in stored for record in iterate(data)] == [40]
    files.kill_process()
    for offset in snapshots(files):
        files.remove(f"{HOME}/{snapshot_name(offset)}")
    again = open_log(files, COMPACTED)
    assert known(again) == {3: (0, 0, 0), 7: (0, 39, 40)}
    assert send(again, 40, key=b"k").first_offset == 41
    assert send(again, 1, producer=3, key=b"k").first_offset == 43


def test_compaction_does_not_take_what_is_known_of_producers(files: MemoryFiles) -> None:
    log = open_log(files, COMPACTED)
    for first in range(0, 40, 2):
        send(log, first, key=b"k", timestamp_ms=600_000_000_000)
    log.roll()
    log.flush()
    clean(files, log)
    assert send(log, 40, key=b"k", timestamp_ms=600_000_000_000).first_offset == 40
    log.close()
    again = open_log(files, COMPACTED, clean=True)
    assert send(again, 42, key=b"k").first_offset == 42


def test_old_messages_do_not_make_compaction_forget_their_producer(files: MemoryFiles) -> None:
    log = open_log(files, COMPACTED)
    send(log, 0, 1, producer=3, key=b"k", timestamp_ms=600_000_000_000)
    for first in range(0, 40, 2):
        send(log, first, key=b"k")
    log.roll()
    log.flush()
    clean(files, log)
    files.kill_process()
    for offset in snapshots(files):
        files.remove(f"{HOME}/{snapshot_name(offset)}")
    assert 3 in open_log(files, COMPACTED).producers.known


def test_producers_of_a_thousand_batches_are_read_in_bulk(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(files, LogConfig())
    for first in range(1000):
        send(log, first, 1, size=0)
    files.kill_process()
    replayed: list[object] = []
    put = ProducerStateManager._put

    def counted(self: ProducerStateManager, changed: Producers) -> None:
        replayed.append(changed)
        put(self, changed)

    monkeypatch.setattr(ProducerStateManager, "_put", counted)
    again = open_log(files, LogConfig())
    assert len(replayed) == 5
    assert again.producers.known[7].batches == log.producers.known[7].batches


def test_half_a_snapshot_goes_at_the_next_open(log: Log, files: MemoryFiles) -> None:
    send(log, 0)
    files.kill_process()
    left = f"{HOME}/{snapshot_name(2)}.tmp"
    files.open(left, create=True)
    assert known(open_log(files)) == {7: (0, 1, 1)}
    assert not files.exists(left)
