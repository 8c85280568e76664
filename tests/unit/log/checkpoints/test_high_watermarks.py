"""The high watermark checkpoint: ``replication-offset-checkpoint``, as in 0.10.1."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.files import read_file
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.manager import LogManager
from tests.support.logs import DATA, ONE, OTHER, TWO, fill, manager_of

FILE = "replication-offset-checkpoint"


@pytest.fixture
def manager(files: MemoryFiles) -> LogManager:
    """Three partitions in two directories."""
    manager = manager_of(files, "d1", "d2")
    for partition in (ONE, TWO, OTHER):
        fill(manager.create(partition), 10)
    return manager


def put(files: MemoryFiles, path: str, text: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.write_at(0, text)
    file.close()


def test_checkpoint_of_kafka_0_10_1_1_is_read(files: MemoryFiles) -> None:
    files.make_dirs("d1")
    put(files, f"d1/{FILE}", (DATA / "log-dir" / "data" / FILE).read_bytes())
    watermarks = manager_of(files).high_watermarks
    assert [watermarks.of(TopicPartition(*name)) for name in (("alpha", 1), ("beta", 0))] == [250, 600]
    assert watermarks.of(TopicPartition("gamma", 0)) == 0


def test_each_directory_has_those_of_the_partitions_in_it(manager: LogManager, files: MemoryFiles) -> None:
    manager.high_watermarks.write({ONE: 3, TWO: 5, OTHER: 7})
    texts = [read_file(files, f"{directory}/{FILE}").decode().split("\n", 2) for directory in ("d1", "d2")]
    assert [text[0] for text in texts] == ["0", "0"]
    assert sorted(line for text in texts for line in text[2].splitlines()) == [
        "my_topic 0 3",
        "my_topic 1 5",
        "other 0 7",
    ]


def test_they_come_back_after_a_power_cut(manager: LogManager, files: MemoryFiles) -> None:
    for partition in (ONE, TWO, OTHER):
        log = manager.get(partition)
        assert log is not None
        log.flush()
    manager.high_watermarks.write({ONE: 3, TWO: 5, OTHER: 7})
    files.power_cut()
    again = manager_of(files, "d1", "d2").high_watermarks
    assert [again.of(partition) for partition in (ONE, TWO, OTHER)] == [3, 5, 7]


def test_unchanged_high_watermarks_are_not_written_again(manager: LogManager, files: MemoryFiles) -> None:
    manager.high_watermarks.write({ONE: 3, TWO: 5})
    del files.operations[:]
    manager.high_watermarks.write({ONE: 3, TWO: 5})
    assert files.operations == []


def test_a_partition_that_nobody_serves_keeps_the_one_that_it_had(
    manager: LogManager, files: MemoryFiles
) -> None:
    manager.high_watermarks.write({ONE: 3, TWO: 5, OTHER: 7})
    manager.high_watermarks.write({ONE: 4})
    files.kill_process()
    again = manager_of(files, "d1", "d2").high_watermarks
    assert [again.of(partition) for partition in (ONE, TWO, OTHER)] == [4, 5, 7]


def test_a_partition_that_was_deleted_is_left_out(manager: LogManager, files: MemoryFiles) -> None:
    manager.high_watermarks.write({ONE: 3, TWO: 5, OTHER: 7})
    manager.delete(TWO)
    manager.high_watermarks.write({ONE: 3, OTHER: 7})
    assert b"my_topic 1" not in read_file(files, f"d1/{FILE}") + read_file(files, f"d2/{FILE}")


def test_nonsense_is_told_and_counts_as_nothing_known(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.make_dirs("d1")
    put(files, f"d1/{FILE}", b"0\n1\nmy_topic 0\n")
    with caplog.at_level(logging.WARNING):
        manager = manager_of(files)
    assert manager.high_watermarks.of(ONE) == 0
    assert f"d1/{FILE}" in caplog.text
    fill(manager.create(ONE), 10)
    manager.high_watermarks.write({ONE: 3})
    assert read_file(files, f"d1/{FILE}") == b"0\n1\nmy_topic 0 3\n"


def test_full_disk_is_logged_once_and_the_file_is_written_later(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manager_of(files)
    fill(manager.create(ONE), 10)
    files.capacity_bytes = files.used_bytes()
    with caplog.at_level(logging.WARNING):
        manager.high_watermarks.write({ONE: 3})
        manager.high_watermarks.write({ONE: 4})
    assert caplog.text.count(FILE) == caplog.text.count("free disk space")
    assert caplog.text.count("free disk space") == 1
    files.capacity_bytes = None
    manager.high_watermarks.write({ONE: 4})
    assert read_file(files, f"d1/{FILE}") == b"0\n1\nmy_topic 0 4\n"
