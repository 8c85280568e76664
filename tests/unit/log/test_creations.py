"""Which topic each log is of, over several directories and faults."""

from __future__ import annotations

import errno
import json
import logging

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import StorageError
from minikafka.base.files import read_file, replace_file
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager

ONE, TWO = TopicPartition("my_topic", 0), TopicPartition("my_topic", 1)
FILE = "topic-creations.json"
TREE = ("a-cluster", 2)


def manager_of(files: MemoryFiles, *directories: str) -> LogManager:
    manager = LogManager(files, directories, LogConfig(), Layout.CLASSIC, ManualClock(0))
    manager.open_all()
    manager.creations.begin(TREE)
    return manager


def with_both(files: MemoryFiles) -> LogManager:
    """A log in each of two directories, of the topic that change 7 made."""
    manager = manager_of(files, "d1", "d2")
    for partition in (ONE, TWO):
        manager.create(partition)
    manager.creations.record({ONE: 7, TWO: 7})
    return manager


def test_each_directory_says_it_of_its_own_logs() -> None:
    files = MemoryFiles()
    with_both(files)
    held = [json.loads(read_file(files, f"{directory}/{FILE}")) for directory in ("d1", "d2")]
    assert sorted(list(one["topics"]["my_topic"].items()) for one in held) == [[("0", 7)], [("1", 7)]]
    assert {(one["version"], one["cluster"], one["tree"]) for one in held} == {(1, *TREE)}


def test_it_is_known_after_a_restart_and_not_written_again() -> None:
    files = MemoryFiles()
    with_both(files).close()
    again = manager_of(files, "d1", "d2")
    before = len(files.operations)
    again.creations.record({ONE: 7, TWO: 7})
    assert [again.creations.of(one) for one in (ONE, TWO)] == [7, 7]
    assert len(files.operations) == before


def test_what_could_not_be_written_is_written_with_what_comes_next() -> None:
    files = MemoryFiles()
    manager = manager_of(files, "d1")
    manager.create(ONE)
    files.fail_next_open(errno.ENOSPC, match=FILE)
    with pytest.raises(StorageError, match="No space"):
        manager.creations.record({ONE: 7})
    manager.creations.record({ONE: 7})
    manager.close()
    assert manager_of(files, "d1").creations.of(ONE) == 7


def test_nothing_is_known_of_a_log_that_was_deleted_or_set_aside_also_where_the_file_still_names_it() -> None:
    files = MemoryFiles()
    manager = with_both(files)
    manager.delete(ONE)
    assert manager.set_aside(TWO) in {"d1/my_topic_1.0-stray", "d2/my_topic_1.0-stray"}
    assert [manager.creations.of(one) for one in (ONE, TWO)] == [None, None]
    manager.close()
    again = manager_of(files, "d1", "d2")
    assert [again.creations.of(one) for one in (ONE, TWO)] == [None, None]
    assert again.partitions_of("my_topic") == ()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version":2}', b'{"version":1,"cluster":"a","tree":1,"topics":7}']
)
def test_a_file_of_nonsense_is_named_and_nothing_is_known(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    with_both(files).close()
    replace_file(files, f"d1/{FILE}", data)
    replace_file(files, f"d2/{FILE}", data)
    with caplog.at_level(logging.WARNING):
        manager = manager_of(files, "d1", "d2")
    assert [manager.creations.of(one) for one in (ONE, TWO)] == [None, None]
    assert f"d1/{FILE}" in caplog.text


def test_a_log_that_was_set_aside_keeps_its_files_and_another_one_is_made_in_its_place() -> None:
    files = MemoryFiles()
    manager = manager_of(files, "d1")
    manager.create(ONE)
    names = files.list_dir("d1/my_topic_0")
    assert manager.set_aside(ONE) == "d1/my_topic_0.0-stray"
    manager.create(ONE)
    assert manager.set_aside(ONE) == "d1/my_topic_0.1-stray"
    assert files.list_dir("d1/my_topic_0.0-stray") == names
    assert manager.set_aside(ONE) is None
