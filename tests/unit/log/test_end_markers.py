"""Markers that end transactions, as the leader appends them, and the transaction index of each segment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.index.transaction_index import AbortedTransaction
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.producers import producer_state_manager
from minikafka.records.append.replicated import replicated
from minikafka.records.format.batch import ControlType, control_type, read_header
from minikafka.records.format.message_set import TimestampType, iterate
from tests.support.disks import WatchedReads
from tests.support.logs import DATA, HOME, NOW_MS, SMALL, fill, open_log, read_all
from tests.support.transactions import (
    ONE_SEGMENT,
    abort,
    aborted,
    end_transaction,
    entries,
    index_files,
    part_of_transaction,
    without_indexes,
    write_in_transaction,
)

INDEX = f"{HOME}/{0:011d}.txnindex"


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    return open_log(files, ONE_SEGMENT)


def code_of(log: Log, producer: int, epoch: int, coordinator_epoch: int) -> ErrorCode:
    before = log.end_offset
    with pytest.raises(BrokerError) as caught:
        log.append_end_marker(producer, epoch, coordinator_epoch, commit=True)
    assert log.end_offset == before
    return caught.value.code


# --- markers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_the_control_batch_of_kafka(log: Log, commit: bool) -> None:
    write_in_transaction(log, 7, 2)
    assigned = log.append_end_marker(7, 0, 3, commit=commit, now_ms=NOW_MS, leader_epoch=5)
    assert (assigned.first_offset, assigned.last_offset, assigned.count) == (2, 2, 1)
    header = read_header(assigned.data, 0)
    assert (header.control, header.transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (7, 0, 5)
    (record,) = iterate(assigned.data)
    assert control_type(record) is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert (record.value, record.timestamp_ms) == (b"\0\0\0\0\0\3", NOW_MS)


def test_a_marker_has_the_append_time_where_the_topic_has(files: MemoryFiles) -> None:
    log = open_log(files, replace(ONE_SEGMENT, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    (record,) = iterate(log.append_end_marker(7, 0, 0, commit=True, now_ms=NOW_MS).data)
    assert (record.timestamp_type, record.timestamp_ms) == (TimestampType.LOG_APPEND_TIME, NOW_MS)


def test_a_marker_of_an_older_producer_is_refused(log: Log) -> None:
    write_in_transaction(log, 7)
    log.append_end_marker(7, 4, 0, commit=True)
    assert code_of(log, 7, 3, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(log, 8, -1, 0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_of_an_older_coordinator_is_refused(log: Log) -> None:
    log.append_end_marker(7, 0, 4, commit=True)
    assert code_of(log, 7, 0, 3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert code_of(log, 7, 1, 3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.append_end_marker(7, 0, 4, commit=True)
    log.append_end_marker(8, 0, 1, commit=True)


def test_a_log_of_an_older_format_takes_no_marker(files: MemoryFiles) -> None:
    log = open_log(files, replace(ONE_SEGMENT, message_magic=1))
    assert code_of(log, 7, 0, 0) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_marker_that_raises_the_epoch_clears_the_batches(log: Log) -> None:
    write_in_transaction(log, 7, 3)
    log.append_end_marker(7, 1, 0, commit=False, now_ms=NOW_MS)
    producer = log.producers.known[7]
    assert (producer.epoch, producer.batches, producer.current_txn_first_offset) == (1, (), -1)
    with pytest.raises(BrokerError) as caught:
        log.append(part_of_transaction(7, 1, epoch=0, sequence=3))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_without_a_transaction_is_appended_but_not_indexed(log: Log) -> None:
    end_transaction(log, 7, commit=False)
    assert log.end_offset == 1
    assert entries(log) == []


def test_a_failed_append_of_a_marker_changes_nothing(log: Log, files: MemoryFiles) -> None:
    write_in_transaction(log, 7)
    files.fail_next_write(match=".kafka")
    with pytest.raises(StorageError):
        end_transaction(log, 7, commit=False)
    assert (log.end_offset, entries(log), log.producers.first_undecided_offset) == (1, [], 0)
    end_transaction(log, 7, commit=False)
    assert entries(log) == [AbortedTransaction(7, 0, 1, 2)]


def test_plain_data_in_a_transaction_is_refused_until_its_marker(log: Log) -> None:
    write_in_transaction(log, 7)
    plain = part_of_transaction(7, 1, sequence=1)
    plain = replace(plain, batches=(replace(plain.batches[0], transactional=False),))
    with pytest.raises(BrokerError) as caught:
        log.append(plain)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    end_transaction(log, 7, commit=True)
    log.append(plain)


def test_a_batch_without_sequence_is_checked_by_its_epoch_alone(log: Log) -> None:
    """As group coordinators append offsets of a transaction."""

    def offsets(epoch: int) -> int:
        one = part_of_transaction(7, 1, epoch=epoch, sequence=-1 % (1 << 31))
        one = replace(one, batches=(replace(one.batches[0], base_sequence=-1),))
        return log.append(one).first_offset

    assert [offsets(2), offsets(2)] == [0, 1]
    end_transaction(log, 7, commit=True)
    assert offsets(3) == 3
    with pytest.raises(BrokerError) as caught:
        offsets(2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


# --- the last stable offset ---------------------------------------------------------------------------------


def test_a_transaction_is_unstable_until_its_marker_is_replicated(log: Log) -> None:
    producers = log.producers
    producers.high_watermark = 0
    write_in_transaction(log, 1)
    write_in_transaction(log, 2)
    at_2 = end_transaction(log, 2, commit=True)
    at_1 = end_transaction(log, 1, commit=False)
    assert (at_2, at_1) == (2, 3)
    found = [producers.first_unstable_offset(high_watermark) for high_watermark in range(5)]
    assert found == [0, 0, 0, 0, None]
    write_in_transaction(log, 2)
    assert [producers.first_unstable_offset(high_watermark) for high_watermark in (3, 4, 5)] == [0, 4, 4]


def test_shorter_transactions_do_not_hide_a_longer_one(log: Log) -> None:
    log.producers.high_watermark = 0
    write_in_transaction(log, 1)
    for _ in range(3):
        write_in_transaction(log, 2)
        end_transaction(log, 2, commit=True)
    end_transaction(log, 1, commit=True)
    write_in_transaction(log, 2)
    end_transaction(log, 2, commit=True)
    found = [log.producers.first_unstable_offset(high_watermark) for high_watermark in range(11)]
    assert found == [0] * 8 + [8, 8, None]


def test_producers_with_an_open_transaction_are_never_forgotten(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state_manager, "PRODUCERS_MOST", 2)
    for producer in (1, 2, 3):
        write_in_transaction(log, producer)
    assert list(log.producers.known) == [1, 2, 3]
    end_transaction(log, 2, commit=True)
    write_in_transaction(log, 4)
    assert list(log.producers.known) == [1, 3, 4]
    for producer in (1, 3, 4):
        end_transaction(log, producer, commit=False)
    assert [entry.producer_id for entry in entries(log)] == [1, 3, 4]


# --- the transaction index ----------------------------------------------------------------------------------


def test_only_a_log_with_transactions_has_an_index(log: Log, files: MemoryFiles) -> None:
    fill(log, 10)
    log.flush()
    assert index_files(files, log) == []
    write_in_transaction(log, 1)
    assert read_file(files, INDEX) == b""


def test_an_entry_is_in_the_file_at_once(log: Log, files: MemoryFiles) -> None:
    write_in_transaction(log, 1)
    at = abort(log, 2)
    assert read_file(files, INDEX)[2:].hex() == "".join(f"{number:016x}" for number in (2, 1, at, 0))


def test_an_entry_that_cannot_be_written_is_written_later(log: Log, files: MemoryFiles) -> None:
    write_in_transaction(log, 1)
    files.fail_next_write(match=".txnindex")
    end_transaction(log, 1, commit=False)
    assert read_file(files, INDEX) == b""
    log.close()
    assert len(read_file(files, INDEX)) == 34


def test_no_segment_counts_as_durable_without_its_entries(files: MemoryFiles) -> None:
    log = open_log(files, ONE_SEGMENT)
    for directory in ("", "data"):
        files.sync_dir(directory)
    write_in_transaction(log, 1)
    files.fail_next_write(match=".txnindex")
    end_transaction(log, 1, commit=False)
    files.fail_next_write(match=".txnindex")
    with pytest.raises(StorageError):
        log.roll()
    log.roll()
    log.flush()
    files.power_cut()
    assert entries(open_log(files, ONE_SEGMENT, recovery_point=log.recovery_point)) == [
        AbortedTransaction(1, 0, 1, 2)
    ]


def test_a_transaction_over_segments_is_indexed_where_it_ends(files: MemoryFiles) -> None:
    log = open_log(files, SMALL)
    write_in_transaction(log, 1)
    for _ in range(3):
        log.roll()
        write_in_transaction(log, 1)
    at = end_transaction(log, 1, commit=False)
    sizes = [len(segment.transactions.index() or ()) for segment in log.segments]
    assert sizes == [0, 0, 0, 1]
    for offset in range(4):
        assert aborted(log, offset, 100) == [(1, 0)]
    assert log.segments[-1].base_offset <= at


def test_a_fetch_of_an_old_part_reads_no_later_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    files = WatchedReads()
    log = open_log(files, replace(SMALL, segment_bytes=4000))
    for _ in range(30):
        abort(log, 2)
        fill(log, 20)
    write_in_transaction(log, 1)
    log.close()
    log = open_log(files, log.config, clean=True)
    aborted(log, 0, 500)
    files.reads.clear()
    assert aborted(log, 0, 500) == [(2, 0)]
    assert {path for path, size in files.reads if size} <= {log.segments[0].path}


def test_truncation_removes_entries_and_opens_the_transaction_again(log: Log, files: MemoryFiles) -> None:
    abort(log, 1)
    at = abort(log, 2)
    log.truncate_to(at)
    assert entries(log) == [AbortedTransaction(1, 0, 1, 2)]
    assert len(read_file(files, INDEX)) == 34
    assert log.producers.first_undecided_offset == 2
    end_transaction(log, 2, commit=True)
    assert entries(log) == [AbortedTransaction(1, 0, 1, 2)]


def test_truncation_of_everything_removes_the_index(log: Log, files: MemoryFiles) -> None:
    abort(log, 1)
    log.truncate_fully_and_start_at(100)
    assert index_files(files, log) == []
    abort(log, 1)
    assert entries(log) == [AbortedTransaction(1, 100, 101, 102)]


def test_deletion_takes_the_index_along(files: MemoryFiles) -> None:
    log = open_log(files, SMALL)
    abort(log, 1)
    log.roll()
    write_in_transaction(log, 1)
    deleted = log.delete_old_segments(lambda segments: 1, 10)
    assert f"{INDEX}.deleted" in deleted
    assert index_files(files, log) == [f"{0:011d}.txnindex.deleted", f"{2:011d}.txnindex"]


def test_an_index_without_its_segment_is_removed_at_open(log: Log, files: MemoryFiles) -> None:
    files.open(f"{HOME}/{77:011d}.txnindex", create=True)
    log.close()
    open_log(files, ONE_SEGMENT, clean=True)
    assert index_files(files, log) == []


@pytest.mark.parametrize("change", ["removed", "emptied", "damaged", "surplus"])
def test_recovery_rebuilds_the_index_of_what_it_reads(log: Log, files: MemoryFiles, change: str) -> None:
    write_in_transaction(log, 1)
    abort(log, 2)
    end_transaction(log, 1, commit=True)
    before = read_file(files, INDEX)
    log.flush()
    files.kill_process()
    if change == "removed":
        files.remove(INDEX)
    else:
        content = {"emptied": b"", "damaged": b"\7" + before[1:], "surplus": before + before}[change]
        file = files.open(INDEX, create=True)
        file.truncate(0)
        file.write_at(0, content)
    log = open_log(files, ONE_SEGMENT)
    assert entries(log) == [AbortedTransaction(2, 1, 2, 0)]
    assert read_file(files, INDEX) == before


def test_a_follower_writes_the_same_index(log: Log, files: MemoryFiles) -> None:
    write_in_transaction(log, 1)
    abort(log, 2, 3)
    end_transaction(log, 1, commit=False)
    follower = open_log(files, SMALL, directory="data/f_0")
    while follower.end_offset < log.end_offset:
        found = log.read(follower.end_offset, 150, partial=False).slice
        assert found is not None
        copied = replicated(found.read(), follower.end_offset)
        assert copied is not None
        follower.append_as_follower(copied)
    assert read_file(files, f"data/f_0/{0:011d}.txnindex") == read_file(files, INDEX)


# --- logs of other releases ---------------------------------------------------------------------------------


def kafkas(files: MemoryFiles) -> None:
    """The segment of a real broker, in a directory of its layout."""
    files.make_dirs("d/t-0")
    for suffix in ("log", "txnindex"):
        data = (DATA / "segments" / f"magic2-transactions.{suffix}").read_bytes()
        files.open(f"d/t-0/{0:020d}.{suffix}", create=True).write_at(0, data)


def test_an_index_of_kafka_is_the_one_that_is_rebuilt(files: MemoryFiles) -> None:
    kafkas(files)
    path = f"d/t-0/{0:020d}.txnindex"
    before = read_file(files, path)
    files.remove(path)
    log = open_log(files, ONE_SEGMENT, directory="d/t-0", layout=Layout.APACHE)
    log.close()
    assert read_file(files, path) == before


def test_an_index_of_kafka_is_used_as_it_is(files: MemoryFiles) -> None:
    kafkas(files)
    files.open(f"d/t-0/{205:020d}.snapshot", create=True).write_at(
        0, (DATA / "segments" / "magic2-transactions.snapshot").read_bytes()
    )
    log = open_log(files, ONE_SEGMENT, clean=True, directory="d/t-0", layout=Layout.APACHE)
    assert aborted(log, 0, 100_000) == [(1, 31), (3, 67)]
    assert aborted(log, 62, 100_000) == [(3, 67)]
    assert aborted(log, 84, 100_000) == []


def test_a_log_without_indexes_is_searched(files: MemoryFiles) -> None:
    log = open_log(files, SMALL)
    write_in_transaction(log, 1)
    log.roll()
    abort(log, 2)
    end_transaction(log, 1, commit=False)
    log = without_indexes(files, log)
    assert aborted(log, 0, 100) == [(1, 0)]
    assert aborted(log, 1, 1000) == [(2, 1)]
    assert index_files(files, log) == []


def test_transactions_in_a_log_without_indexes_begin_a_segment(files: MemoryFiles) -> None:
    log = open_log(files, ONE_SEGMENT)
    abort(log, 1)
    write_in_transaction(log, 2)
    log = without_indexes(files, log)
    write_in_transaction(log, 3)
    end_transaction(log, 2, commit=False)
    end_transaction(log, 3, commit=True)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert index_files(files, log) == [f"{3:011d}.txnindex"]
    assert entries(log) == [AbortedTransaction(2, 2, 4, 3)]
    assert aborted(log, 0, 100) == [(1, 0)]
    assert aborted(log, 2, 100) == [(2, 2)]
    assert aborted(log, 3, 1000) == [(2, 2)]
    log.close()
    log = open_log(files, ONE_SEGMENT, clean=True)
    write_in_transaction(log, 3)
    assert len(log.segments) == 2
    assert aborted(log, 3, 1000) == [(2, 2)]


def test_no_segment_begins_where_a_crash_made_all_be_read(files: MemoryFiles) -> None:
    fill(open_log(files, ONE_SEGMENT), 10)
    files.kill_process()
    log = open_log(files, ONE_SEGMENT)
    abort(log, 1)
    assert len(log.segments) == 1


def test_a_damaged_index_is_not_believed(files: MemoryFiles) -> None:
    log = open_log(files, SMALL)
    abort(log, 1)
    log.roll()
    abort(log, 2)
    log.close()
    files.open(INDEX).write_at(0, b"\7")
    log = open_log(files, SMALL, clean=True)
    assert aborted(log, 0, 1000) == [(1, 0)]
    assert aborted(log, 2, 1000) == [(2, 2)]


def test_a_damaged_index_of_the_newest_segment_begins_another(files: MemoryFiles) -> None:
    log = open_log(files, SMALL)
    abort(log, 1)
    log.close()
    files.open(INDEX).write_at(0, b"\7")
    log = open_log(files, SMALL, clean=True)
    abort(log, 2)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert aborted(log, 0, 1000) == [(1, 0)]
    assert aborted(log, 2, 1000) == [(2, 2)]
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3]
