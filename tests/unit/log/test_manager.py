"""All logs of a broker: directories, locks, markers, checkpoints."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, DirectoryLocked, ErrorCode, StorageError
from minikafka.base.files import Files, RealFiles, read_file
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager
from minikafka.records.format.message_set import iterate
from tests.support.logs import (
    CHECKPOINT,
    MARKER,
    ONE,
    OTHER,
    SMALL,
    TWO,
    fill,
    log_of,
    manager_of,
    numbered,
    read_all,
    valid_set,
)


def test_a_partition_is_made_once_and_found_again_after_a_restart(
    manager: LogManager, files: MemoryFiles
) -> None:
    assert manager.get(ONE) is None
    log = manager.create(ONE)
    assert manager.create(ONE) is log
    fill(log, 40)
    manager.close()
    again = manager_of(files)
    assert set(again.logs()) == {ONE}
    assert [record.value for record in read_all(log_of(again, ONE))] == numbered(0, 40)


def test_both_layouts_are_served_each_directory_keeping_its_own(files: MemoryFiles) -> None:
    first = manager_of(files, "d1", layout=Layout.APACHE)
    first.create(ONE)
    first.close()
    manager = manager_of(files, "d1", "d2", layout=Layout.CLASSIC)
    manager.create(TWO)
    manager.create(OTHER)
    manager.close()
    assert [name for name in files.list_dir("d1") if "topic" in name or "other" in name] == [
        "my_topic-0",
        "other-0",
    ]
    assert "my_topic_1" in files.list_dir("d2")


def test_a_new_partition_goes_where_the_fewest_are(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2", "d3")
    for number in range(7):
        manager.create(TopicPartition("t", number))
    held = [sum(name.startswith("t_") for name in files.list_dir(path)) for path in ("d1", "d2", "d3")]
    assert held == [3, 2, 2]


def test_wrong_names_are_refused_before_anything_is_made(manager: LogManager, files: MemoryFiles) -> None:
    with pytest.raises(BrokerError) as caught:
        manager.create(TopicPartition("a/b", 0))
    assert caught.value.code is ErrorCode.INVALID_TOPIC
    assert files.list_dir("d1") == [".lock"]


def test_invalid_settings_are_ignored_with_one_warning_a_topic(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    newer = {"segment.bytes": "5000", "remote.storage.enable": "true", "flush.messages": "often"}
    manager = manager_of(files)
    for partition in (ONE, TWO, OTHER):
        config = manager.create(partition, newer if partition.topic == "my_topic" else {}).config
        assert config.segment_bytes == (5000 if partition.topic == "my_topic" else 1000)
    manager.set_overrides("my_topic", newer)
    assert log_of(manager, ONE).config.segment_bytes == 5000
    [warning] = caplog.messages
    assert warning.startswith("topic my_topic: ")
    assert "flush.messages='often'" in warning
    assert "remote.storage.enable='true'" in warning

    manager.close()
    caplog.clear()
    manager = LogManager(files, ["d1"], SMALL, Layout.CLASSIC, ManualClock())
    manager.open_all({"my_topic": newer})
    assert {log.config.segment_bytes for log in manager.logs().values()} == {5000, 1000}
    assert len(caplog.messages) == 1
    manager.set_overrides("my_topic", {"segment.bytes": "7000"})
    assert len(caplog.messages) == 1
    manager.set_overrides("my_topic", {"segment.bytes": "x"})
    assert len(caplog.messages) == 2
    assert log_of(manager, TWO).config.segment_bytes == 1000


def test_a_topics_own_settings_hold_from_open_on_and_can_change(
    manager: LogManager, files: MemoryFiles
) -> None:
    assert manager.create(ONE, {"segment.bytes": "5000"}).config.segment_bytes == 5000
    manager.close()
    manager = LogManager(files, ["d1"], SMALL, Layout.CLASSIC, ManualClock())
    manager.open_all({"my_topic": {"segment.bytes": "6000"}})
    log = log_of(manager, ONE)
    assert (log.config.segment_bytes, log.config.index_interval_bytes) == (6000, 100)
    manager.set_overrides("my_topic", {"flush.messages": "1"})
    assert (log.config.segment_bytes, log.config.flush_messages) == (1000, 1)


def test_a_second_process_is_refused_and_leaves_nothing_locked(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    second = LogManager(files, ["d0", "d2"], SMALL, Layout.CLASSIC, ManualClock())
    with pytest.raises(DirectoryLocked, match="d2 is in use"):
        second.open_all()
    manager_of(files, "d0").close()
    manager.close()
    second.open_all()


def test_marker_exists_only_from_a_clean_close_to_the_next_open(
    manager: LogManager, files: MemoryFiles
) -> None:
    assert not files.exists(f"d1/{MARKER}")
    manager.close()
    assert files.exists(f"d1/{MARKER}")
    manager_of(files)
    assert not files.exists(f"d1/{MARKER}")
    files.power_cut()
    assert not files.exists(f"d1/{MARKER}")


def test_the_marker_is_safe_only_after_everything_else_is(manager: LogManager, files: MemoryFiles) -> None:
    fill(manager.create(ONE), 40)
    del files.operations[:]
    manager.close()
    marker = next(number for number, one in enumerate(files.operations) if one.path.endswith(MARKER))
    synced = {
        operation.path for operation in files.operations[:marker] if operation.kind in {"sync", "sync_dir"}
    }
    assert {operation.path for operation in files.operations if operation.kind == "write"} <= synced
    assert not [operation for operation in files.operations[marker:] if operation.kind == "write"]


def test_a_clean_close_survives_a_power_cut_behind_it(files: MemoryFiles) -> None:
    files.make_dirs("d1")
    files.sync_dir("")
    manager = manager_of(files)
    fill(manager.create(ONE), 40)
    manager.close()
    files.power_cut()
    assert files.exists(f"d1/{MARKER}")
    assert [record.value for record in read_all(log_of(manager_of(files), ONE))] == numbered(0, 40)


def test_a_log_that_failed_keeps_its_directory_from_counting_as_clean(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    fill(manager.create(ONE), 5)
    fill(manager.create(TWO), 5)
    files.fail_next_sync(match="d1/my_topic_0")
    with pytest.raises(StorageError):
        log_of(manager, ONE).flush()
    with pytest.raises(StorageError, match=r"cannot close log .* cleanly"):
        manager.close()
    assert not files.exists(f"d1/{MARKER}")
    assert files.exists(f"d2/{MARKER}")
    again = manager_of(files, "d1", "d2")
    assert [len(read_all(log)) for log in again.logs().values()] == [5, 5]


def test_recovery_points_are_written_down_and_limit_what_is_checked(
    manager: LogManager, files: MemoryFiles
) -> None:
    log = fill(manager.create(ONE), 40, flush=True)
    manager.checkpoint_offsets()
    assert read_file(files, f"d1/{CHECKPOINT}") == b"0\n1\nmy_topic 0 40\n"
    fill(log, 40)
    files.kill_process()
    again = log_of(manager_of(files), ONE)
    assert (again.end_offset, again.recovery_point) == (80, 40)


def test_a_checkpoint_that_makes_no_sense_means_that_all_is_checked(
    manager: LogManager, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    fill(manager.create(ONE), 40)
    manager.close()
    files.open(f"d1/{CHECKPOINT}").write_at(0, b"x")
    files.open("d1/my_topic_0/00000000000.kafka").write_at(54 + 40, b"\xff")
    with caplog.at_level(logging.WARNING):
        log = log_of(manager_of(files), ONE)
    assert log.end_offset == 1
    assert "all segments will be checked" in caplog.text


def test_recovery_is_logged_and_the_checkpoint_follows(
    manager: LogManager, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(manager.create(ONE), 10, flush=True)
    manager.checkpoint_offsets()
    files.kill_process()
    path = "d1/my_topic_0/00000000000.kafka"
    file = files.open(path)
    file.truncate(file.size() - 3)
    with caplog.at_level(logging.WARNING):
        log = log_of(manager_of(files), ONE)
    assert log.end_offset == 9
    assert "removed 51 bytes from position 486" in caplog.text
    assert read_file(files, f"d1/{CHECKPOINT}") == b"0\n1\nmy_topic 0 9\n"


def test_a_deleted_partition_is_gone_with_its_files_and_its_checkpoint(files: MemoryFiles) -> None:
    files.make_dirs("d1")
    files.sync_dir("")
    manager = manager_of(files)
    fill(manager.create(ONE), 40)
    fill(manager.create(TWO), 40)
    for log in manager.logs().values():
        log.flush()
    manager.checkpoint_offsets()
    assert manager.delete(ONE)
    assert not manager.delete(ONE)
    assert manager.get(ONE) is None
    assert [name for name in files.list_dir("d1") if "topic" in name] == ["my_topic_1"]
    assert b"my_topic 0" not in read_file(files, f"d1/{CHECKPOINT}")
    files.power_cut()
    assert set(manager_of(files).logs()) == {TWO}


class CountingFiles(MemoryFiles):
    """Counts directory listings and replaced files; does not rename files of ``held``."""

    looks = 0
    replaced = 0
    held = "?"

    def list_dir(self, path: str) -> list[str]:
        self.looks += 1
        return super().list_dir(path)

    def rename(self, old: str, new: str) -> None:
        if self.held in old:
            raise StorageError(f"cannot rename {old}")
        self.replaced += new.endswith(("-checkpoint", ".json"))
        super().rename(old, new)


MANY = [TopicPartition("many", number) for number in range(100)]


def with_many(files: CountingFiles) -> LogManager:
    manager = manager_of(files)
    for partition in (*MANY, ONE):
        fill(manager.create(partition), 5)
    for log in manager.logs().values():
        log.flush()
    manager.checkpoint_offsets()
    files.looks = files.replaced = 0
    return manager


def test_partitions_that_go_together_cost_one_look_and_one_checkpoint() -> None:
    files = CountingFiles()
    manager = with_many(files)
    manager.high_watermarks.write(dict.fromkeys(MANY, 3))
    files.replaced = 0
    assert manager.delete_all(MANY) == {}
    assert (files.looks, files.replaced) == (1, 2)  # recovery points, high watermarks
    assert set(manager.logs()) == {ONE}
    assert [name for name in files.list_dir("d1") if "many" in name] == []
    assert read_file(files, f"d1/{CHECKPOINT}") == b"0\n1\nmy_topic 0 5\n"


def test_a_partition_that_cannot_be_removed_does_not_keep_the_others() -> None:
    files = CountingFiles()
    manager = with_many(files)
    files.held = "many_7"
    failed = manager.delete_all(MANY)
    assert failed.keys() == {key for key in MANY if str(key.partition).startswith("7")}
    assert set(manager.logs()) == {ONE, *failed}
    assert "cannot rename d1/many_7" in str(failed[MANY[7]])
    files.held = "?"
    assert manager.delete_all(MANY) == {}
    assert set(manager.logs()) == {ONE}


def test_delete_and_truncate_without_checkpoint_entry_write_none() -> None:
    files = CountingFiles()
    manager = with_many(files)
    for partition in (TWO, OTHER):
        fill(manager.create(partition), 10, flush=True)
    files.replaced = 0
    manager.truncate(OTHER, 5)
    manager.delete(TWO)
    assert files.replaced == 0
    manager.truncate(ONE, 5)
    assert files.replaced == 0
    manager.truncate(ONE, 4)
    assert files.replaced == 1
    assert b"my_topic 0 4\n" in read_file(files, f"d1/{CHECKPOINT}")


def test_a_partition_can_be_made_again_after_its_deletion(manager: LogManager) -> None:
    fill(manager.create(ONE), 40)
    manager.delete(ONE)
    log = manager.create(ONE)
    assert log.end_offset == 0
    fill(log, 5)
    assert len(read_all(log)) == 5


def test_a_deletion_that_a_crash_cut_short_is_finished_at_open(
    manager: LogManager, files: MemoryFiles
) -> None:
    fill(manager.create(ONE), 40)
    files.rename("d1/my_topic_0", "d1/my_topic_0.0-delete")
    files.kill_process()
    assert manager_of(files).logs() == {}
    assert not files.exists("d1/my_topic_0.0-delete")


@pytest.mark.parametrize("kind", ["memory", "real"])
def test_partition_removed_by_hand_can_be_deleted(kind: str, tmp_path: Path) -> None:
    files: Files = MemoryFiles() if kind == "memory" else RealFiles()
    home = str(tmp_path / "d1")
    manager = manager_of(files, home)
    fill(manager.create(ONE), 40, flush=True)
    manager.checkpoint_offsets()
    files.remove_tree(f"{home}/my_topic_0")
    assert manager.delete(ONE)
    assert not manager.delete(ONE)
    assert manager.logs() == {}
    assert read_file(files, f"{home}/{CHECKPOINT}") == b"0\n0\n"
    assert manager.create(ONE).end_offset == 0
    manager.close()


@pytest.mark.parametrize("kind", ["memory", "real"])
def test_removed_data_directory_fails_its_logs_only(kind: str, tmp_path: Path) -> None:
    files: Files = MemoryFiles() if kind == "memory" else RealFiles()
    clock = ManualClock()
    homes = [str(tmp_path / name) for name in ("d1", "d2")]
    manager = manager_of(files, *homes, config=LogConfig(flush_ms=10), clock=clock)
    for partition in (ONE, TWO):
        fill(manager.create(partition), 5)
    log_of(manager, ONE).roll()
    files.remove_tree(homes[0])
    clock.advance(10)
    assert manager.flush_dirty_logs() == [TWO]
    manager.checkpoint_offsets()
    assert read_file(files, f"{homes[1]}/{CHECKPOINT}") == b"0\n1\nmy_topic 1 5\n"
    with pytest.raises(StorageError, match=f"cannot delete {ONE} completely"):
        manager.delete(ONE)
    manager.close()
    assert files.exists(f"{homes[1]}/{MARKER}")


@pytest.mark.parametrize("kind", ["memory", "real"])
def test_a_read_in_progress_keeps_the_bytes_of_a_deleted_partition(kind: str, tmp_path: Path) -> None:
    files: Files = MemoryFiles() if kind == "memory" else RealFiles()
    manager = manager_of(files, str(tmp_path / "d1"))
    log = fill(manager.create(ONE), 10)
    found = log.read(0, 10_000)
    del log
    manager.delete(ONE)
    assert found.slice is not None
    assert len(list(iterate(found.slice.read()))) == 10
    manager.close()


def test_a_truncation_takes_the_checkpoint_with_it(manager: LogManager, files: MemoryFiles) -> None:
    fill(manager.create(ONE), 40, flush=True)
    manager.checkpoint_offsets()
    manager.truncate(ONE, 7)
    assert read_file(files, f"d1/{CHECKPOINT}") == b"0\n1\nmy_topic 0 7\n"


def test_partition_in_two_directories_is_refused(files: MemoryFiles) -> None:
    for path in ("d1", "d2"):
        manager = manager_of(files, path)
        manager.create(ONE)
        manager.close()
    with pytest.raises(StorageError, match="duplicate logs of my_topic-0 in d1 and d2"):
        manager_of(files, "d1", "d2")
    manager_of(files, "d1").close()


@pytest.mark.parametrize(
    ("partition", "overrides", "end_offset"),
    [
        (ONE, {}, 4),
        (ONE, {"my_topic": {"cleanup.policy": "compact"}}, 10),
        (TopicPartition("__consumer_offsets", 0), {}, 10),
    ],
)
def test_holes_between_segments_are_losses_but_in_compacted_topics(
    files: MemoryFiles, partition: TopicPartition, overrides: dict[str, dict[str, str]], end_offset: int
) -> None:
    log = manager_of(files).create(partition)
    fill(log, 5)
    log.roll()
    fill(log, 5)
    log.segments[0].file.truncate(log.segments[0].size * 4 // 5)
    files.kill_process()
    manager = LogManager(files, ["d1"], SMALL, Layout.CLASSIC, ManualClock())
    manager.open_all(overrides)
    assert log_of(manager, partition).end_offset == end_offset


def test_other_directories_and_files_are_left_alone(files: MemoryFiles) -> None:
    for path in ("d1/logs", "d1/zookeeper_1", "d1/lost+found"):
        files.make_dirs(path)
    files.open("d1/zookeeper_1/snapshot.0", create=True)
    manager = manager_of(files)
    assert manager.logs() == {}
    manager.close()
    assert files.exists("d1/zookeeper_1/snapshot.0")


# Flushing by time.


def test_messages_are_flushed_before_they_are_s_seconds_old(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = manager_of(files, config=LogConfig(flush_ms=1000), clock=clock)
    log = manager.create(ONE)
    for _ in range(20):
        clock.advance(250)
        fill(log, 5)
        manager.flush_dirty_logs()
        appended_ms_ago = 250 * (log.unflushed_messages // 5)
        assert appended_ms_ago < 1000
    assert log.recovery_point > 0


def test_a_log_without_s_is_flushed_only_where_segments_are_full(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = manager_of(files, clock=clock)
    log = fill(manager.create(ONE), 5)
    clock.advance(10**9)
    assert manager.flush_dirty_logs() == []
    assert log.recovery_point == 0
    fill(log, 40)
    assert manager.flush_dirty_logs() == [ONE]
    assert log.recovery_point == log.segments[-1].base_offset
    assert manager.flush_dirty_logs() == []


def test_a_log_that_cannot_be_flushed_does_not_hold_up_the_others(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    manager = manager_of(files, config=LogConfig(flush_ms=10), clock=clock)
    for partition in (ONE, TWO):
        fill(manager.create(partition), 5)
    files.fail_next_sync(match="my_topic_0")
    clock.advance(10)
    assert manager.flush_dirty_logs() == [TWO]
    assert "failed to flush log d1/my_topic_0" in caplog.text
    with pytest.raises(StorageError):
        fill(log_of(manager, ONE), 5)
    fill(log_of(manager, TWO), 5)
    caplog.clear()
    clock.advance(10)
    manager.flush_dirty_logs()
    assert caplog.text == ""


def test_checkpoints_from_two_threads_take_turns(tmp_path: Path) -> None:
    manager = LogManager(
        RealFiles(), [str(tmp_path / "d")], SMALL, Layout.CLASSIC, ManualClock(), new_mutex=threading.Lock
    )
    manager.open_all()
    manager.create(ONE)
    stop, problems = threading.Event(), []

    def checkpoint() -> None:
        while not stop.is_set():
            try:
                manager.checkpoint_offsets()
                manager.flush_dirty_logs()
            except Exception as problem:  # noqa: BLE001
                problems.append(problem)

    thread = threading.Thread(target=checkpoint)
    thread.start()
    for _ in range(30):
        log = manager.create(TWO)
        log.append(valid_set(numbered(0, 5)))
        manager.truncate(TWO, 3)
        manager.delete(TWO)
    stop.set()
    thread.join()
    assert problems == []
    manager.close()


def test_the_machines_files_hold_a_broker_too(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    manager = manager_of(RealFiles(), root)
    fill(manager.create(ONE), 40)
    with pytest.raises(DirectoryLocked):
        manager_of(RealFiles(), root)
    manager.close()
    manager = manager_of(RealFiles(), root)
    assert [record.value for record in read_all(log_of(manager, ONE))] == numbered(0, 40)
    manager.delete(ONE)
    manager.close()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [MARKER, ".lock", CHECKPOINT]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("length", [230, 240, 244, 245, 249])
def test_partition_of_any_legal_name_is_deleted_and_created_again(
    tmp_path: Path, layout: Layout, length: int
) -> None:
    partition, neighbour = (
        TopicPartition("l" * length, 99_999),
        TopicPartition("l" * (length - 1) + "x", 99_999),
    )
    files = RealFiles()
    manager = manager_of(files, str(tmp_path), layout=layout)
    for one in (partition, neighbour):
        fill(manager.create(one), 15)
    assert manager.delete(partition)
    fill(manager.create(partition), 10)
    aside = manager.mark_stray(partition)
    assert aside is not None
    assert Path(aside).is_dir()
    fill(manager.create(partition), 5)
    manager.close()
    again = manager_of(files, str(tmp_path), layout=layout)
    assert {one: log.end_offset for one, log in again.logs().items()} == {partition: 5, neighbour: 15}
    assert again.delete(partition)
    again.close()
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert left == sorted([layout.directory_name(neighbour), Path(aside).name])
