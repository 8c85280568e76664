"""A follower's log: a copy of the leader's log, byte for byte, whatever happens to the follower."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.log import Log
from minikafka.log.producers.producer_state import ProducerStateEntry
from minikafka.records.append.produced import Limits
from minikafka.records.append.replicated import FollowerRecords, replicated
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch
from minikafka.records.format.message_set import Codec, Record
from tests.oracles import batches
from tests.oracles.batches import Batch
from tests.oracles.messages import Message
from tests.support.disks import Killed, KillingFiles
from tests.support.logs import NOW_MS, SMALL, fill, numbered, open_log, read_all, valid_set

LEADER, FOLLOWER = "leader/t_0", "follower/t_0"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles(clock=ManualClock(NOW_MS))
    for directory in ("", "leader", "follower", LEADER, FOLLOWER):
        files.make_dirs(directory or LEADER)
    files.make_dirs(FOLLOWER)
    for directory in ("", "leader", "follower"):
        files.sync_dir(directory)
    return files


def leader_of(files: MemoryFiles, config: LogConfig = SMALL) -> Log:
    return open_log(files, config, directory=LEADER)


def follower_of(files: MemoryFiles, config: LogConfig = SMALL, **known: int) -> Log:
    return open_log(files, config, directory=FOLLOWER, **known)  # type: ignore[arg-type]


def given(leader: Log, offset: int, max_bytes: int = 1 << 20) -> FollowerRecords | None:
    found = leader.read(offset, max_bytes).slice
    return None if found is None else replicated(found.read(), offset)


def copy(
    leader: Log, follower: Log, max_bytes: int = 1 << 20, **options: tuple[tuple[int, int], ...]
) -> None:
    """Fetch after fetch, until there is nothing more."""
    while (copied := given(leader, follower.end_offset, max_bytes)) is not None:
        follower.append_as_follower(copied, now_ms=NOW_MS, **options)


def content(log: Log) -> bytes:
    return b"".join(bytes(segment.file.read_at(0, segment.size)) for segment in log.segments)


def batch(
    count: int = 2, *, producer: int = -1, epoch: int = 0, sequence: int = 0, codec: Codec = Codec.NONE
) -> bytearray:
    records = [Record(None, b"%d" % number + bytes(60), NOW_MS) for number in range(count)]
    numbers = (
        {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence} if producer >= 0 else {}
    )
    return bytearray(build_batch(records, codec=codec, **numbers))  # type: ignore[arg-type]


def write(log: Log, data: bytearray, leader_epoch: int = 0) -> None:
    log.append(validate(data, Limits(max_magic=2), NOW_MS), now_ms=NOW_MS, leader_epoch=leader_epoch)


def mixed(log: Log) -> None:
    """Sets of all formats and some codecs, over several segments."""
    for turn in range(6):
        write(log, batch(3, producer=7, sequence=3 * turn), leader_epoch=turn // 2)
        log.append(valid_set(numbered(log.end_offset, 3), codec=Codec.GZIP), now_ms=NOW_MS)
        write(log, batch(4, codec=Codec.LZ4), leader_epoch=turn // 2)
        log.append(valid_set(numbered(log.end_offset, 2), magic=0), now_ms=NOW_MS)


@pytest.mark.parametrize("max_bytes", [1, 200, 700, 1 << 20])
def test_the_copy_is_the_leaders_log_byte_for_byte(files: MemoryFiles, max_bytes: int) -> None:
    leader, follower = leader_of(files), follower_of(files)
    mixed(leader)
    copy(leader, follower, max_bytes)
    assert len(leader.segments) > 3
    assert content(follower) == content(leader)
    assert (follower.start_offset, follower.end_offset) == (leader.start_offset, leader.end_offset)
    assert follower.offset_for_timestamp(NOW_MS) == leader.offset_for_timestamp(NOW_MS)


@pytest.mark.parametrize("max_bytes", [1, 700, 1 << 20])
def test_copy_survives_a_clean_stop_a_crash_and_a_power_cut(files: MemoryFiles, max_bytes: int) -> None:
    leader, follower = leader_of(files), follower_of(files)
    mixed(leader)
    copy(leader, follower, max_bytes)
    whole = content(leader)
    follower.close()
    follower = follower_of(files, clean=True)
    assert content(follower) == whole
    files.kill_process()
    follower = follower_of(files)
    assert (follower.recovery, content(follower)) == (None, whole)
    follower.flush()
    files.power_cut()
    assert content(follower_of(files, recovery_point=follower.recovery_point)) == whole


@pytest.mark.parametrize("seed", range(20))
def test_power_cut_leaves_a_prefix_of_an_unflushed_copy(files: MemoryFiles, seed: int) -> None:
    leader, follower = leader_of(files), follower_of(files)
    mixed(leader)
    copy(leader, follower, 300)
    whole = content(leader)
    leader.flush()
    files.power_cut(random.Random(seed))
    leader, follower = leader_of(files, SMALL), follower_of(files)
    assert whole.startswith(content(follower))
    copy(leader, follower, 300)
    assert content(follower) == content(leader) == whole


def test_offsets_and_times_are_looked_up_as_on_the_leader(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    fill(leader, 200, in_set=5)
    copy(leader, follower)
    assert sum(len(segment.index()) for segment in follower.segments) > len(follower.segments)
    for offset in range(0, 200, 7):
        assert follower.read(offset, 100).first_offset == leader.read(offset, 100).first_offset
        assert follower.offset_for_timestamp(NOW_MS + offset) == leader.offset_for_timestamp(NOW_MS + offset)
    follower.close()
    again = follower_of(files, clean=True)
    assert [again.read(offset, 100).first_offset for offset in range(200)] == [
        leader.read(offset, 100).first_offset for offset in range(200)
    ]


def test_segments_are_as_large_as_this_brokers_settings_say(files: MemoryFiles) -> None:
    leader, follower = leader_of(files, LogConfig()), follower_of(files)
    fill(leader, 200)
    copy(leader, follower)
    assert len(leader.segments) == 1
    assert len(follower.segments) > 5
    assert all(segment.size <= SMALL.segment_bytes for segment in follower.segments)


def test_entry_larger_than_a_segment_gets_a_segment_of_its_own(files: MemoryFiles) -> None:
    leader, follower = leader_of(files, LogConfig()), follower_of(files)
    leader.append(valid_set(numbered(0, 2)))
    leader.append(valid_set([bytes(5000)]))
    leader.append(valid_set(numbered(3, 2)))
    copy(leader, follower)
    assert [segment.base_offset for segment in follower.segments] == [0, 2, 3]
    assert content(follower) == content(leader)


def test_holes_stay_as_compaction_left_them(files: MemoryFiles) -> None:
    leader, follower = leader_of(files, LogConfig()), follower_of(files)
    fill(leader, 20, in_set=1)
    whole = bytes(content(leader))
    size = len(whole) // 20
    kept = b"".join(whole[at * size : at * size + size] for at in (0, 1, 7, 8, 19))
    copied = replicated(kept, 0)
    assert copied is not None
    follower.append_as_follower(copied)
    assert [record.offset for record in read_all(follower)] == [0, 1, 7, 8, 19]
    files.kill_process()
    assert [record.offset for record in read_all(follower_of(files))] == [0, 1, 7, 8, 19]


def test_an_offset_that_no_index_could_hold_begins_a_new_segment(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    leader.append(valid_set(numbered(0, 1)))
    copy(leader, follower)
    leader.truncate_fully_and_start_at(1 << 33)
    leader.append(valid_set(numbered(0, 1)))
    copied = given(leader, 1 << 33)
    assert copied is not None
    follower.append_as_follower(copied)
    assert [record.offset for record in read_all(follower)] == [0, 1 << 33]


def test_copy_that_does_not_follow_is_refused_unchanged(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    fill(leader, 10)
    copy(leader, follower)
    again = given(leader, 5)
    assert again is not None
    with pytest.raises(StorageError, match="ends at offset 10, the records to append begin at 5"):
        follower.append_as_follower(again)
    assert content(follower) == content(leader)


def test_disk_failure_in_a_copy_leaves_whole_entries(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    mixed(leader)
    copied = given(leader, 0)
    assert copied is not None
    files.fail_next_write(after_bytes=100, match="follower/t_0/0000")
    with pytest.raises(StorageError):
        copy(leader, follower)
    assert content(leader).startswith(content(follower))
    copy(leader, follower)
    assert content(follower) == content(leader)


# --- producers ----------------------------------------------------------------------------------------------


def test_a_follower_knows_the_producers_that_its_leader_knows(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    for turn in range(8):
        write(leader, batch(2, producer=7, epoch=turn // 4, sequence=2 * (turn % 4)))
        write(leader, batch(1, producer=9, sequence=turn))
    copy(leader, follower, 700)
    assert dict(follower.producers.known) == dict(leader.producers.known)
    files.kill_process()
    again = follower_of(files)
    assert {one: known.batches for one, known in again.producers.known.items()} == {
        one: known.batches for one, known in leader.producers.known.items()
    }


def test_copied_batch_costs_the_same_with_any_number_of_producers(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NotWalked(dict[int, ProducerStateEntry]):
        def values(self) -> Any:
            raise AssertionError("each known producer was looked at")

        items = __iter__ = values

    leader, follower = leader_of(files), follower_of(files)
    monkeypatch.setattr(follower.producers, "_known", NotWalked())
    write(leader, batch(2, producer=7))
    write(leader, batch(1, producer=9))
    copy(leader, follower, 1)
    assert follower.producers.known[9].last_offset == 2


def test_batch_retried_at_a_new_leader_is_not_written_twice(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    write(leader, batch(2, producer=7))
    copy(leader, follower)
    again = follower.append(validate(batch(2, producer=7), Limits(max_magic=2), NOW_MS), now_ms=NOW_MS)
    assert (again.duplicate, again.first_offset, follower.end_offset) == (True, 0, 2)


def test_transaction_of_another_release_stays_open_until_its_end(files: MemoryFiles) -> None:
    follower = follower_of(files)
    one = Message(0, NOW_MS, 0, None, b"x")
    about = Batch(transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    begun = batches.batch([one], about)
    ended = build_control_batch(
        ControlType.COMMIT,
        coordinator_epoch=0,
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
        base_offset=1,
    )
    copied = replicated(begun, 0)
    assert copied is not None
    follower.append_as_follower(copied)
    assert follower.producers.first_undecided_offset == 0
    marker = replicated(ended, 1)
    assert marker is not None
    follower.append_as_follower(marker)
    assert follower.producers.first_undecided_offset is None


# --- leader epochs ------------------------------------------------------------------------------------------


def test_batches_tell_where_leaders_began(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    for epoch in (1, 1, 3, 4):
        leader.epochs.assign(epoch, leader.end_offset)
        write(leader, batch(), epoch)
    copy(leader, follower, 1)
    assert follower.epochs.entries == leader.epochs.entries == ((1, 0), (3, 4), (4, 6))
    files.kill_process()
    assert follower_of(files).epochs.entries == ((1, 0), (3, 4), (4, 6))


def test_messages_without_an_epoch_make_what_was_known_unsure(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    write(leader, batch(), 0)
    copy(leader, follower)
    leader.append(valid_set(numbered(2, 2)), leader_epoch=1)
    copy(leader, follower)
    assert follower.epochs.entries == ()
    write(leader, batch(), 1)
    copy(leader, follower)
    assert follower.epochs.entries == ((1, 4),)
    # Epoch 1 began at offset 2, which nobody here knows: of epoch 0 nothing can be said.
    assert follower.end_offset_for_epoch(0) == (-1, -1)
    assert follower.end_offset_for_epoch(1) == (1, 6)


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_epochs_reported_by_the_leader_cover_messages_without_one(files: MemoryFiles, max_bytes: int) -> None:
    leader, follower = leader_of(files), follower_of(files)
    for epoch in (1, 3, 4):
        leader.epochs.assign(epoch, leader.end_offset)
        leader.append(valid_set(numbered(leader.end_offset, 2)), leader_epoch=epoch)
        write(leader, batch(), epoch)
    reported = leader.epochs.entries
    copy(leader, follower, max_bytes, epochs=reported)
    assert follower.epochs.entries == reported


def test_an_epoch_is_not_noted_before_it_is_reached(files: MemoryFiles) -> None:
    leader, follower = leader_of(files), follower_of(files)
    for epoch in (1, 3):
        leader.epochs.assign(epoch, leader.end_offset)
        leader.append(valid_set(numbered(leader.end_offset, 2)), leader_epoch=epoch)
    copied = given(leader, 0, 60)
    assert copied is not None
    follower.append_as_follower(copied, epochs=leader.epochs.entries)
    assert follower.epochs.entries == ((1, 0),)


# --- beginning anew -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 14, 15, 30, 33, 40, 41, 1000])
def test_a_log_that_begins_anew_has_nothing_and_goes_on_at_that_offset(
    files: MemoryFiles, offset: int
) -> None:
    log = follower_of(files)
    fill(log, 40)
    log.epochs.assign(2, 10)
    log.truncate_fully_and_start_at(offset)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (offset, offset, 0)
    assert (log.recovery_point, log.epochs.entries, log.segment_start_offset) == (min(offset, 0), (), offset)
    assert [segment.base_offset for segment in log.segments] == [offset]
    assert read_all(log) == []
    fill(log, 20)
    expected = list(range(offset, offset + 20))
    assert [record.offset for record in read_all(log)] == expected
    files.kill_process()
    log = follower_of(files)
    assert (log.start_offset, [record.offset for record in read_all(log)]) == (offset, expected)
    log.flush()
    log.close()
    files.power_cut()
    log = follower_of(files, clean=True)
    assert (log.start_offset, [record.offset for record in read_all(log)]) == (offset, expected)


def test_nobody_who_wrote_to_the_old_log_is_known_to_the_new_one(files: MemoryFiles) -> None:
    log = follower_of(files)
    for turn in range(8):
        write(log, batch(2, producer=7, sequence=2 * turn))
    assert len(log.segments) > 1
    log.truncate_fully_and_start_at(4)
    assert dict(log.producers.known) == {}
    files.kill_process()
    assert dict(follower_of(files).producers.known) == {}


@pytest.mark.parametrize("offset", [0, 15, 17, 30, 100])
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("point", [0, 40])
def test_crash_at_any_disk_change_leaves_the_old_log_or_a_prefix(
    offset: int, power: bool, point: int
) -> None:
    for left in range(1, 60):
        files = KillingFiles(clock=ManualClock(NOW_MS))
        for directory in (LEADER, FOLLOWER):
            files.make_dirs(directory)
        for directory in ("", "follower"):
            files.sync_dir(directory)
        log = follower_of(files)
        fill(log, 40, flush=True)
        files.changes_left = left
        try:
            log.truncate_fully_and_start_at(offset)
        except Killed:
            if power:
                files.power_cut(random.Random(left))
            else:
                files.kill_process()
            log = follower_of(files, recovery_point=point)
            held = [record.offset for record in read_all(log)]
            assert held == list(range(len(held)))
            if not held:
                assert (log.start_offset, log.end_offset) in {(offset, offset), (0, 0)}
            log.truncate_fully_and_start_at(offset)
            fill(log, 5)
            assert [record.offset for record in read_all(log)] == list(range(offset, offset + 5))
        else:
            assert left > 3
            return
    raise AssertionError("it has no end")


def test_a_disk_that_fails_leaves_a_log_that_takes_nothing_more(files: MemoryFiles) -> None:
    log = follower_of(files)
    fill(log, 40)
    files.fail_next_sync(match=FOLLOWER)
    with pytest.raises(StorageError):
        log.truncate_fully_and_start_at(100)
    with pytest.raises(StorageError, match="is offline"):
        log.append(valid_set(numbered(0, 1)))


def test_settings_of_segments_hold_for_copies_too(files: MemoryFiles) -> None:
    leader = leader_of(files, LogConfig())
    follower = follower_of(files, replace(SMALL, preallocate=True))
    fill(leader, 60)
    copy(leader, follower)
    follower.close()
    assert content(follower_of(files, replace(SMALL, preallocate=True), clean=True)) == content(leader)
