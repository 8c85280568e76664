"""Retention: the policies, and the deletion of segments by a log."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ConfigError, OffsetOutOfRange, StorageError
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.log.retention import ByAgeAndSize, ByModificationTime, RetentionLimits, SegmentFacts, policy_of
from tests.support.logs import (
    HOME,
    NOW_MS,
    ONE,
    SMALL,
    TWO,
    fill,
    log_of,
    manager_of,
    names_of,
    numbered,
    open_log,
    read_all,
    valid_set,
)

HOUR_MS = 3_600_000
OURS = f"{__name__}:KeepsTwo"


class KeepsTwo:
    """A policy of an operator's own."""

    def expired(self, segments: Sequence[SegmentFacts], limits: RetentionLimits, now_ms: int) -> int:
        return len(segments) - 2


def facts(*segments: tuple[int, int]) -> list[SegmentFacts]:
    """Segments of (size, last time), ten offsets each."""
    return [
        SegmentFacts(10 * number, 10 * number + 10, size, last_ms, last_ms)
        for number, (size, last_ms) in enumerate(segments)
    ]


def expired(
    segments: list[SegmentFacts],
    *,
    now_ms: int = NOW_MS,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
) -> int:
    return ByAgeAndSize().expired(segments, RetentionLimits(retention_ms, retention_bytes), now_ms)


# The policy.


def test_segments_go_whose_newest_message_is_older_than_the_limit() -> None:
    segments = facts((1, NOW_MS - 11), (1, NOW_MS - 10), (1, NOW_MS))
    assert expired(segments, retention_ms=10) == 1
    assert expired(segments, retention_ms=9) == 2
    assert expired(segments, retention_ms=None) == 0


def test_a_policy_by_modification_time_ignores_what_producers_say() -> None:
    """The texts: "any log with a modification time of more than N days ago"."""
    future_ms, past_ms = NOW_MS + 1_000_000, 0
    segments = [
        SegmentFacts(0, 10, 1, future_ms, modified_ms=NOW_MS - 11),
        SegmentFacts(10, 20, 1, past_ms, modified_ms=NOW_MS - 10),
        SegmentFacts(20, 30, 1, past_ms, modified_ms=NOW_MS),
    ]
    policy = policy_of("minikafka.log.retention:ByModificationTime")
    assert isinstance(policy, ByModificationTime)
    assert policy.expired(segments, RetentionLimits(retention_ms=10, retention_bytes=None), NOW_MS) == 1
    assert policy.expired(segments, RetentionLimits(retention_ms=None, retention_bytes=2), NOW_MS) == 1


def test_a_segment_that_stays_keeps_those_behind_it() -> None:
    assert expired(facts((1, NOW_MS), (1, NOW_MS - 100), (1, NOW_MS)), retention_ms=10) == 0


def test_all_segments_can_be_too_old() -> None:
    assert expired(facts((1, 0), (1, 1)), retention_ms=10) == 2


def test_segments_go_while_the_rest_has_at_least_the_size() -> None:
    segments = facts((100, 0), (100, 0), (50, 0))
    assert expired(segments, retention_bytes=250) == 0
    assert expired(segments, retention_bytes=151) == 0
    assert expired(segments, retention_bytes=150) == 1
    assert expired(segments, retention_bytes=50) == 2
    assert expired(segments, retention_bytes=0) == 3


def test_the_stricter_of_age_and_size_counts() -> None:
    segments = facts((100, NOW_MS - 11), (100, NOW_MS), (100, NOW_MS))
    assert expired(segments, retention_ms=10, retention_bytes=1000) == 1
    assert expired(segments, retention_ms=10, retention_bytes=100) == 2


# Choosing one.


def test_the_brokers_properties_can_bring_in_a_class() -> None:
    config = LogConfig.from_properties({"log.cleanup.policy": f"compact,{OURS}"})
    assert config.compacted
    assert [type(policy) for policy in config.policies] == [KeepsTwo]


def test_a_topic_can_only_choose_a_class_that_the_broker_names() -> None:
    with pytest.raises(ConfigError, match=r"is not in log\.cleanup\.policy of the broker"):
        LogConfig().with_overrides({"cleanup.policy": OURS})
    broker = LogConfig.from_properties({"log.cleanup.policy": f"delete,{OURS}"})
    assert broker.with_overrides({"cleanup.policy": OURS}).deletion_policies == (OURS,)


def test_policy_class_that_the_broker_does_not_name_is_not_imported() -> None:
    config, problems = LogConfig().with_known_overrides({"cleanup.policy": "no.such.module:Policy"})
    assert config == replace(LogConfig(), deletion_policies=())
    assert "no.such.module:Policy" in problems[0]


@pytest.mark.parametrize("name", ["no.such.module:Policy", f"{__name__}:Missing", "math:pi", "io:StringIO"])
def test_invalid_policy_class_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=r"log\.cleanup\.policy"):
        LogConfig.from_properties({"log.cleanup.policy": name})


def test_a_topic_that_is_only_compacted_has_no_policy_that_deletes() -> None:
    assert LogConfig().with_overrides({"cleanup.policy": "compact"}).policies == ()
    assert policy_of("delete") in LogConfig().with_overrides({"cleanup.policy": "compact,delete"}).policies


# What a log does.


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    """40 messages in segments of 15: 0, 15, 30."""
    log = fill(open_log(files), 40)
    assert [segment.base_offset for segment in log.segments] == [0, 15, 30]
    return log


def test_deleted_segments_are_renamed_and_the_log_starts_behind_them(log: Log) -> None:
    log.flush()
    deleted = log.delete_old_segments(lambda segments: 1, 40)
    assert deleted == [
        f"{HOME}/00000000000.timeindex.deleted",
        f"{HOME}/00000000000.index.deleted",
        f"{HOME}/00000000000.kafka.deleted",
    ]
    assert log.start_offset == 15
    with pytest.raises(OffsetOutOfRange, match="15"):
        log.read(14, 100)
    assert [record.value for record in read_all(log)] == numbered(15, 25)
    assert log.offsets_before(-2, 1) == [15]


def test_a_policy_sees_offsets_sizes_and_times(log: Log) -> None:
    seen: list[SegmentFacts] = []

    def look(segments: Sequence[SegmentFacts]) -> int:
        seen.extend(segments)
        return 0

    for number, segment in enumerate(log.segments):
        segment.file.set_modified_ms(NOW_MS + number)
    assert log.delete_old_segments(look, 40) == []
    sizes = [segment.size for segment in log.segments]
    assert seen == [
        SegmentFacts(0, 15, sizes[0], NOW_MS + 14, NOW_MS),
        SegmentFacts(15, 30, sizes[1], NOW_MS + 29, NOW_MS + 1),
        SegmentFacts(30, 40, sizes[2], NOW_MS + 39, NOW_MS + 2),
    ]


def test_a_segment_without_timestamps_is_as_old_as_its_file() -> None:
    clock = ManualClock()
    files = MemoryFiles(clock=clock)
    log = open_log(files)
    clock.advance(5_000)
    log.append(valid_set(numbered(0, 5), magic=0))
    written_ms = clock.now_ms()
    clock.advance(5_000)
    seen: list[int] = []
    log.delete_old_segments(lambda segments: seen.append(segments[0].last_time_ms) or 0, 5)
    assert seen == [written_ms]


@pytest.mark.parametrize("reopened", [False, True])
def test_a_copied_directory_is_as_old_as_its_messages(reopened: bool) -> None:
    clock = ManualClock()
    files = MemoryFiles(clock=clock)
    fill(open_log(files), 40).close()
    clock.advance(1_000_000)
    for name in files.list_dir(HOME):
        file = files.open(f"{HOME}/{name}")
        file.write_at(0, file.read_at(0, file.size()))  # as a copy: written now
        if reopened and name.endswith("index"):
            files.remove(f"{HOME}/{name}")
    log = open_log(files, clean=True)
    seen: list[int] = []
    log.delete_old_segments(
        lambda segments: seen.extend(segment.last_time_ms for segment in segments) or 0, 40
    )
    assert seen == [NOW_MS + 14, NOW_MS + 29, NOW_MS + 39]


def test_when_all_goes_an_empty_segment_keeps_the_offset(log: Log, files: MemoryFiles) -> None:
    log.delete_old_segments(len, 40)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (40, 40, 0)
    log.close()
    again = open_log(files, clean=True)
    assert (again.start_offset, again.end_offset) == (40, 40)
    assert again.append(valid_set([b"a"])).first_offset == 40


def test_an_empty_segment_is_not_replaced_by_another(files: MemoryFiles) -> None:
    log = open_log(files)
    assert log.delete_old_segments(len, 0) == []
    assert files.list_dir(HOME) == names_of(0)


@pytest.mark.parametrize(("up_to", "start"), [(14, 0), (15, 15), (29, 15), (39, 30), (40, 40)])
def test_nothing_above_the_high_watermark_goes(log: Log, up_to: int, start: int) -> None:
    log.delete_old_segments(len, up_to)
    assert log.start_offset == start


def test_a_reader_finishes_on_the_files_that_it_has(log: Log, files: MemoryFiles) -> None:
    found = log.read(3, 1000)
    segments = log.segments
    for path in log.delete_old_segments(lambda segments: 2, 40):
        files.remove(path)
    assert found.slice is not None
    assert len(found.slice.read()) == found.size_bytes
    entry = segments[0].translate_offset(7)
    assert entry is not None
    assert entry.offset == 7


def test_transaction_index_and_snapshot_go_with_their_segment(log: Log, files: MemoryFiles) -> None:
    for name in (f"{0:011d}.txnindex", f"{0:020d}.snapshot"):
        files.open(f"{HOME}/{name}", create=True)
    deleted = log.delete_old_segments(lambda segments: 1, 40)
    assert f"{HOME}/{0:011d}.txnindex.deleted" in deleted
    assert f"{HOME}/{0:020d}.snapshot.deleted" in deleted


def test_deleted_segments_do_not_come_back_with_the_next_open(log: Log, files: MemoryFiles) -> None:
    log.flush()
    log.delete_old_segments(lambda segments: 2, 40)
    files.kill_process()
    again = open_log(files)
    assert (again.start_offset, again.end_offset) == (30, 40)
    assert not [name for name in files.list_dir(HOME) if name.endswith(".deleted")]


def test_a_rename_that_fails_leaves_no_hole(log: Log, files: MemoryFiles) -> None:
    log.flush()
    files.fail_next_rename(match="00000000015.kafka")
    with pytest.raises(StorageError):
        log.delete_old_segments(lambda segments: 2, 40)
    assert log.start_offset == 30
    files.kill_process()
    assert open_log(files).start_offset == 15
    assert open_log(files).recovery is None


# All logs.


def everything(partition: object, log: Log) -> int:
    return log.end_offset


def test_each_log_is_held_to_its_own_limits(files: MemoryFiles) -> None:
    manager = manager_of(files)
    for partition, limit in ((ONE, "600"), (TWO, "5000")):
        fill(manager.create(partition, {"retention.bytes": limit}), 40)
    assert manager.delete_old_segments(everything, NOW_MS) == 3
    assert log_of(manager, ONE).start_offset == 15
    assert log_of(manager, TWO).start_offset == 0


def test_deleted_files_are_removed_after_their_delay(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = manager_of(files, clock=clock)
    fill(manager.create(ONE, {"retention.bytes": "500", "file.delete.delay.ms": "60000"}), 40)
    manager.delete_old_segments(everything, NOW_MS)
    clock.advance(59_999)
    manager.file_deletion.remove_due()
    assert files.exists("d1/my_topic_0/00000000000.kafka.deleted")
    clock.advance(1)
    manager.file_deletion.remove_due()
    assert not [name for name in files.list_dir("d1/my_topic_0") if name.endswith(".deleted")]


def test_files_that_went_with_their_partition_are_no_error(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    manager = manager_of(files, clock=clock)
    fill(manager.create(ONE, {"retention.bytes": "500"}), 40)
    manager.delete_old_segments(everything, NOW_MS)
    manager.delete(ONE)
    clock.advance(HOUR_MS)
    manager.file_deletion.remove_due()
    assert caplog.messages == []


def test_a_log_that_cannot_be_shortened_does_not_hold_up_the_others(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manager_of(files, config=replace(SMALL, retention_bytes=600))
    for partition in (ONE, TWO):
        fill(manager.create(partition), 40)
    files.fail_next_rename(match="my_topic_0")
    manager.delete_old_segments(everything, NOW_MS)
    assert log_of(manager, TWO).start_offset == 15
    assert "failed to delete old segments of my_topic-0" in caplog.text


def test_a_policy_that_raises_is_told_and_deletes_nothing(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def expired(self, segments: Sequence[SegmentFacts], limits: RetentionLimits, now_ms: int) -> int:
            raise RuntimeError("out of order")

    manager = manager_of(files)
    log = fill(manager.create(ONE), 40)
    broken = Broken()

    class Config(LogConfig):
        @property
        def policies(self) -> tuple[Broken, ...]:  # type: ignore[override]
            return (broken,)

    log.config = Config()
    manager.delete_old_segments(everything, NOW_MS)
    assert log.start_offset == 0
    assert "out of order" in caplog.text


def test_the_kept_start_is_that_of_the_messages_not_of_the_manager(files: MemoryFiles) -> None:
    manager: LogManager = manager_of(files, config=replace(SMALL, retention_ms=10))
    fill(manager.create(ONE), 40)
    manager.delete_old_segments(everything, NOW_MS + 14 + 11)
    assert log_of(manager, ONE).start_offset == 15
    manager.close()
    assert log_of(manager_of(files), ONE).start_offset == 15


def test_failed_rename_is_repeated_before_later_segments(log: Log, files: MemoryFiles) -> None:
    files.fail_next_rename(match="00000000000.kafka")
    with pytest.raises(StorageError, match="cannot rename"):
        log.delete_old_segments(lambda segments: 1, 40)
    deleted = log.delete_old_segments(lambda segments: 1, 40)
    assert [path.removeprefix(f"{HOME}/") for path in deleted if ".kafka" in path] == [
        "00000000000.kafka.deleted",
        "00000000015.kafka.deleted",
    ]
    files.kill_process()
    again = open_log(files)
    assert (again.recovery, again.start_offset, again.end_offset) == (None, 30, 40)


def test_a_segment_that_was_removed_by_hand_does_not_keep_the_others(log: Log, files: MemoryFiles) -> None:
    files.remove(f"{HOME}/00000000000.kafka")
    log.delete_old_segments(lambda segments: 2, 40)
    assert not files.exists(f"{HOME}/00000000015.kafka")


def test_a_log_is_deleted_once_nobody_takes_segments_away(files: MemoryFiles) -> None:
    manager = LogManager(files, ["d1"], SMALL, Layout.CLASSIC, ManualClock(), new_mutex=threading.Lock)
    manager.open_all()
    log = fill(manager.create(ONE), 40)
    rename = files.rename

    def made_anew() -> None:
        manager.delete(ONE)
        fill(manager.create(ONE), 40)

    other = threading.Thread(target=made_anew)

    def interrupted(old: str, new: str) -> None:
        if not other.ident:
            other.start()
            other.join(0.1)
        rename(old, new)

    files.rename = interrupted  # type: ignore[method-assign]
    log.delete_old_segments(lambda segments: 2, 40)
    other.join()
    manager.close()
    again = manager_of(files)
    assert [record.offset for record in read_all(log_of(again, ONE))] == list(range(40))
