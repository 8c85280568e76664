"""The choice of the log to clean next, the first dirty offsets, and pausing the cleaner."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.files import read_file
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.cleanup.cleaner import Cleaner
from minikafka.log.cleanup.cleaner_manager import RETRY_MS, LogCleanerManager, log_to_clean
from minikafka.log.config import LogConfig
from minikafka.log.log import Log
from minikafka.log.segment import Segment
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.compaction import SLOT_BYTES, OffsetMap
from minikafka.records.format.message_set import Record, build_message_set
from tests.support.logs import NOW_MS, ONE, OTHER, TWO, open_log, read_all

CHECKPOINT = "data/cleaner-offset-checkpoint"
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, compacted=True, deletion_policies=())
SEGMENT_BYTES = 10 * 100
"""The size of ten messages, as ``fill`` makes them."""


class Broker:
    """Some logs in memory, and their cleaner."""

    def __init__(self) -> None:
        self.files = MemoryFiles(clock=ManualClock(NOW_MS))
        self.files.make_dirs("data")
        self.logs: dict[TopicPartition, Log] = {}
        self.begin()

    def begin(self, **how: object) -> None:
        """Restart the cleaner, as a restarted broker does."""
        cleaner = Cleaner(
            self.files, self.files.clock, OffsetMap(1000 * SLOT_BYTES), lambda log, paths: None, **how
        )
        self.cleaning = LogCleanerManager(self.files, lambda: self.logs, cleaner, new_mutex=threading.Lock)

    def add(self, partition: TopicPartition, *, segments: int = 0, config: LogConfig = CONFIG) -> Log:
        log = open_log(self.files, config, directory=f"data/{partition.topic}_{partition.partition}")
        self.logs[partition] = log
        self.fill(partition, segments)
        return log

    def fill(self, partition: TopicPartition, segments: int) -> None:
        """Full segments of ten messages of 100 bytes and five keys, a second apart."""
        log = self.logs[partition]
        for _ in range(10 * segments):
            record = Record(b"%d" % (log.end_offset % 5), bytes(65), NOW_MS + 1000 * log.end_offset)
            log.append(validate(bytearray(build_message_set([record])), Limits(), NOW_MS))
            if log.end_offset % 10 == 0:
                log.roll()

    def run(self) -> TopicPartition | None:
        """Return the partition that was cleaned."""
        report = self.cleaning.run_once(self.files.clock.now_ms())
        if report is None:
            return None
        (partition,) = (one for one, log in self.logs.items() if log.directory == report.directory)
        return partition

    def checkpoint(self) -> str:
        return read_file(self.files, CHECKPOINT).decode()


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_dirt_is_measured_in_bytes_of_full_segments(broker: Broker) -> None:
    log = broker.add(ONE, segments=4)
    log.append(validate(bytearray(build_message_set([Record(b"k", bytes(65))])), Limits(), NOW_MS))
    cleanable = log_to_clean(log, 10, NOW_MS)
    assert (cleanable.upper_offset, cleanable.clean_bytes, cleanable.dirty_bytes) == (
        40,
        SEGMENT_BYTES,
        3 * SEGMENT_BYTES,
    )
    assert cleanable.ratio == 0.75
    assert log_to_clean(log, 40, NOW_MS).ratio == 0.0


def test_a_segment_that_is_partly_clean_is_shared_out(broker: Broker) -> None:
    cleanable = log_to_clean(broker.add(ONE, segments=2), 15, NOW_MS)
    assert cleanable.clean_bytes + cleanable.dirty_bytes == 2 * SEGMENT_BYTES
    assert 300 <= cleanable.dirty_bytes <= 700


def test_an_empty_log_has_no_dirt(broker: Broker) -> None:
    assert log_to_clean(broker.add(ONE), 0, NOW_MS).ratio == 0.0
    assert broker.run() is None


def test_segments_with_a_young_message_are_not_cleaned(broker: Broker) -> None:
    log = broker.add(ONE, segments=4, config=replace(CONFIG, min_compaction_lag_ms=5000))
    # The messages' times are NOW_MS and a second more for each.
    assert log_to_clean(log, 0, NOW_MS + 24_000).upper_offset == 20
    assert log_to_clean(log, 0, NOW_MS + 23_999).upper_offset == 10
    assert log_to_clean(log, 20, NOW_MS).upper_offset == 20


def test_segments_without_timestamps_are_as_young_as_their_files(broker: Broker) -> None:
    log = broker.add(ONE, config=replace(CONFIG, min_compaction_lag_ms=5000))
    log.append(validate(bytearray(build_message_set([Record(b"k", b"v")], magic=0)), Limits(), NOW_MS))
    log.roll()
    assert log_to_clean(log, 0, NOW_MS + 4999).upper_offset == 0
    assert log_to_clean(log, 0, NOW_MS + 5000).upper_offset == 1


def test_the_filthiest_log_is_cleaned_first(broker: Broker) -> None:
    for partition in (ONE, TWO, OTHER):
        broker.add(partition, segments=2)
        assert broker.run() == partition
    broker.fill(ONE, 2)
    broker.fill(TWO, 4)
    assert [broker.run(), broker.run(), broker.run()] == [TWO, ONE, None]


def test_a_log_is_cleaned_when_its_dirt_is_more_than_the_ratio(broker: Broker) -> None:
    log = broker.add(ONE, segments=2, config=replace(CONFIG, min_cleanable_dirty_ratio=0.0))
    assert broker.run() == ONE
    clean = sum(segment.size for segment in log.segments)
    broker.fill(ONE, 1)
    log.config = replace(CONFIG, min_cleanable_dirty_ratio=SEGMENT_BYTES / (clean + SEGMENT_BYTES))
    assert broker.run() is None
    log.config = replace(CONFIG, min_cleanable_dirty_ratio=SEGMENT_BYTES / (clean + SEGMENT_BYTES) - 0.01)
    assert broker.run() == ONE


def test_overdue_log_is_cleaned_below_the_dirty_ratio(broker: Broker) -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000)
    broker.add(ONE, segments=2, config=config)
    # The messages' times are NOW_MS and a second more for each.
    broker.files.clock.advance(60_000)
    assert broker.run() is None
    broker.files.clock.advance(1)
    assert broker.run() == ONE
    broker.fill(ONE, 1)
    assert broker.run() is None
    broker.files.clock.advance(20_000)
    assert broker.run() == ONE


def test_without_a_largest_lag_no_first_message_is_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, asked = broker.add(ONE, segments=2), []
    monkeypatch.setattr(Segment, "first_timestamp_ms", lambda segment: asked.append(segment) or -1)
    assert not log_to_clean(log, 0, NOW_MS).overdue
    assert not asked


def test_overdue_messages_of_the_newest_segment_are_not_cleaned(broker: Broker) -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1)
    log = broker.add(ONE, config=config)
    log.append(validate(bytearray(build_message_set([Record(b"k", b"v", NOW_MS)])), Limits(), NOW_MS))
    broker.files.clock.advance(60_000)
    assert broker.run() is None


def test_logs_that_do_not_compact_are_left_alone(broker: Broker) -> None:
    broker.add(ONE, segments=2, config=replace(CONFIG, compacted=False))
    assert broker.run() is None


def test_first_dirty_offsets_are_in_kafkas_checkpoint_file(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.add(OTHER, segments=1)
    broker.run()
    broker.run()
    assert broker.checkpoint() == "0\n2\nmy_topic 0 20\nother 0 10\n"
    broker.begin()
    assert broker.run() is None


def test_partitions_that_are_gone_leave_the_file(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.run()
    del broker.logs[ONE]
    broker.add(OTHER, segments=1)
    broker.run()
    assert broker.checkpoint() == "0\n1\nother 0 10\n"


def test_a_file_that_makes_no_sense_counts_as_none(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.add(ONE, segments=2)
    broker.files.open(CHECKPOINT, create=True).write_at(0, b"what?\n")
    assert broker.run() == ONE
    assert "its logs will be cleaned from their start" in caplog.text


def write_checkpoint(broker: Broker, offset: int) -> None:
    broker.files.open(CHECKPOINT, create=True).write_at(0, b"0\n1\nmy_topic 0 %d\n" % offset)


@pytest.mark.parametrize(("policies", "warned"), [((), True), (("delete",), False)])
def test_a_checkpoint_below_the_start_is_the_start(
    broker: Broker, caplog: pytest.LogCaptureFixture, policies: tuple[str, ...], warned: bool
) -> None:
    write_checkpoint(broker, 3)
    config = replace(CONFIG, deletion_policies=policies)
    broker.add(ONE, segments=3)
    broker.logs[ONE] = open_log(broker.files, config, directory="data/my_topic_0", start_offset=10)
    assert broker.cleaning.first_dirty(ONE, broker.logs[ONE]) == 10
    assert (": 3 is not in the log" in caplog.text) == warned


def test_a_checkpoint_beyond_the_end_is_told_once_and_all_is_dirty(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    write_checkpoint(broker, 99)
    log = broker.add(ONE, segments=3)
    assert [broker.cleaning.first_dirty(ONE, log) for _ in range(2)] == [0, 0]
    assert caplog.text.count(": 99 is not in the log") == 1


def test_a_full_disk_for_the_checkpoint_does_not_stop_cleaning(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.files.fail_next_write(match="checkpoint")
    assert broker.run() == ONE
    assert broker.run() is None


def damage(broker: Broker, partition: TopicPartition) -> None:
    broker.logs[partition].segments[0].file.write_at(50, b"!")


def test_uncleanable_log_is_logged_once_and_others_are_cleaned(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.add(ONE, segments=2)
    broker.add(OTHER, segments=2)
    damage(broker, ONE)
    assert [broker.run(), broker.run()] == [OTHER, None]
    assert list(broker.cleaning.uncleanable) == [ONE]
    assert "00000000000.kafka" in broker.cleaning.uncleanable[ONE]
    assert "checksum" in broker.cleaning.uncleanable[ONE]
    assert caplog.text.count("cannot clean the log of") == 1


def test_a_truncation_lets_an_uncleanable_log_be_tried_again(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    damage(broker, ONE)
    broker.run()
    broker.logs[ONE].segments[0].file.write_at(50, b"\0")
    assert broker.run() is None
    broker.cleaning.pause(ONE)
    broker.cleaning.resume(ONE)
    assert broker.run() == ONE


def test_a_log_whose_disk_failed_is_tried_again_after_a_while(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.add(ONE, segments=2)
    broker.files.fail_next_write(match=".cleaned")
    assert broker.run() is None
    assert "failed to clean the log of my_topic-0, retrying in 60 s" in caplog.text
    assert broker.run() is None
    broker.files.clock.advance(RETRY_MS)
    assert broker.run() == ONE


@pytest.mark.parametrize("jump_ms", [-3_600_000, -31_536_000_000])
def test_a_wall_clock_that_is_set_back_does_not_put_off_the_next_try(broker: Broker, jump_ms: int) -> None:
    broker.add(ONE, segments=2)
    broker.files.fail_next_write(match=".cleaned")
    assert broker.run() is None
    broker.files.clock.adjust_wall_clock(jump_ms)
    broker.files.clock.advance(RETRY_MS)
    assert broker.run() == ONE


def test_a_wall_clock_that_is_set_on_does_not_hasten_the_next_try(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.files.fail_next_write(match=".cleaned")
    assert broker.run() is None
    broker.files.clock.adjust_wall_clock(31_536_000_000)
    assert broker.run() is None


def test_a_log_that_takes_no_more_messages_is_not_cleaned(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    log = broker.add(ONE, segments=2)
    broker.files.fail_next_sync(match="my_topic_0")
    with pytest.raises(StorageError):
        log.flush()
    assert broker.run() is None
    assert caplog.text == ""


def test_log_removed_by_hand_does_not_stop_the_cleaning_of_others(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.add(OTHER, segments=2)
    broker.files.remove_tree("data/my_topic_0")
    assert [broker.run(), broker.run()] == [OTHER, None]


def test_open_transaction_does_not_hold_up_the_cleaning_of_others(broker: Broker) -> None:
    from minikafka.records.format.batch import build_batch

    log = broker.add(ONE)
    data = build_batch(
        [Record(b"a", bytes(900))], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append(validate(bytearray(data), Limits(max_magic=2), NOW_MS))
    log.roll()
    broker.add(OTHER, segments=2)
    assert [broker.run(), broker.run()] == [OTHER, None]


def test_a_paused_partition_is_not_cleaned(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.cleaning.pause(ONE)
    assert broker.run() is None
    broker.cleaning.resume(ONE)
    assert broker.run() == ONE


def test_truncated_messages_do_not_count_as_clean(broker: Broker) -> None:
    log = broker.add(ONE, segments=4)
    broker.run()
    broker.cleaning.pause(ONE)
    log.truncate_to(35)
    broker.cleaning.resume(ONE)
    assert broker.checkpoint() == f"0\n1\nmy_topic 0 {log.end_offset}\n"
    assert log.end_offset < 40


def test_a_partition_that_was_forgotten_begins_anew(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.run()
    broker.cleaning.forget(ONE)
    assert broker.checkpoint() == "0\n0\n"


def test_partition_deleted_before_the_first_cleaning_is_forgotten(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.run()
    broker.begin()
    broker.cleaning.begin(["data"])
    broker.cleaning.forget(ONE)
    assert broker.checkpoint() == "0\n0\n"


def test_a_partition_that_went_while_the_broker_was_away_is_forgotten(broker: Broker) -> None:
    broker.add(ONE, segments=2)
    broker.run()
    del broker.logs[ONE]
    broker.begin()
    broker.cleaning.begin(["data"])
    assert broker.checkpoint() == "0\n0\n"


def test_messages_behind_the_end_that_a_start_found_are_dirty(broker: Broker) -> None:
    log = broker.add(ONE, segments=4)
    broker.run()
    log.truncate_to(20)  # as recovery does
    broker.begin()
    broker.cleaning.begin(["data"])
    broker.fill(ONE, segments=3)
    assert log.end_offset > 40
    assert broker.cleaning.first_dirty(ONE, log) <= 20


def test_an_error_that_nobody_expects_does_not_hold_up_the_other_logs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = broker.add(ONE, segments=2)
    broker.add(OTHER, segments=2)
    monkeypatch.setattr(log, "flush", lambda up_to: up_to // 0)
    assert [broker.run(), broker.run()] == [OTHER, None]


def in_a_cleaning(broker: Broker, action: Callable[[], None]) -> threading.Thread:
    """Run ``action`` in another thread during the next cleaning; return the thread."""
    thread = threading.Thread(target=action)
    begun: list[bool] = []

    def wait(seconds: float) -> None:
        if not begun:
            begun.append(True)
            thread.start()
            thread.join(0.05)
        broker.files.clock.advance(max(1, round(1000 * seconds)))

    broker.begin(bytes_per_second=1000, wait=wait)
    return thread


@pytest.mark.parametrize(
    "ask", [lambda one: one.pause(ONE), lambda one: one.stop(), lambda one: one.forget(ONE)]
)
def test_pause_waits_for_the_end_of_the_cleaning(
    broker: Broker, ask: Callable[[LogCleanerManager], None]
) -> None:
    log = broker.add(ONE, segments=3)
    before = read_all(log)
    seen: list[TopicPartition | None] = []

    def stop() -> None:
        seen.append(broker.cleaning.running)
        ask(broker.cleaning)
        seen.append(broker.cleaning.running)

    thread = in_a_cleaning(broker, stop)
    assert broker.run() is None
    thread.join()
    assert seen == [ONE, None]
    assert read_all(log) == before
    assert not broker.files.exists(CHECKPOINT)


def test_nobody_waits_for_the_cleaning_of_another_partition(broker: Broker) -> None:
    broker.add(ONE, segments=3)
    thread = in_a_cleaning(broker, lambda: broker.cleaning.pause(TWO))
    assert broker.run() == ONE
    thread.join()


def test_a_log_that_is_closed_meanwhile_stops_its_cleaning(broker: Broker) -> None:
    log = broker.add(ONE, segments=3)
    thread = in_a_cleaning(broker, log.abandon)
    assert broker.run() is None
    thread.join()
    assert broker.cleaning.uncleanable == {}


def test_a_pass_is_told_in_the_brokers_log(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker.add(ONE, segments=2)
    broker.run()
    assert "cleaned log data/my_topic_0 from offset 0 to 20" in caplog.text


def test_the_first_dirty_offset_moves_with_a_log(broker: Broker) -> None:
    old = broker.add(ONE, segments=5)
    broker.add(TWO, segments=5)
    assert broker.cleaning.run_once(NOW_MS) is not None
    assert broker.cleaning.run_once(NOW_MS) is not None
    point = broker.cleaning.first_dirty(ONE, old)
    assert point > 0
    broker.logs[ONE] = open_log(broker.files, CONFIG, directory="other/my_topic_0")
    broker.cleaning.move(ONE, old)
    held = read_file(broker.files, "other/cleaner-offset-checkpoint").decode()
    assert f"my_topic 0 {point}" in held
    left = read_file(broker.files, CHECKPOINT).decode()
    assert "my_topic 0 " not in left
    assert "my_topic 1 " in left
