"""The topic incarnation of each log, with several directories and faults."""

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
from minikafka.log.checkpoints.topic_incarnations import Children, TopicIncarnation
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager

ONE, TWO = TopicPartition("my_topic", 0), TopicPartition("my_topic", 1)
FILE = "topic-creations.json"
TREE = ("a-cluster", 2)


def manager_of(files: MemoryFiles, *directories: str) -> LogManager:
    manager = LogManager(files, directories, LogConfig(), Layout.CLASSIC, ManualClock(0))
    manager.open_all()
    manager.topic_incarnations.begin(TREE)
    return manager


def opened_again(files: MemoryFiles, *directories: str) -> LogManager:
    manager = LogManager(files, directories, LogConfig(), Layout.CLASSIC, ManualClock(0))
    manager.open_all(tree=TREE)
    return manager


def with_both(files: MemoryFiles) -> LogManager:
    """A log in each of two directories, of the topic created by change 7."""
    manager = manager_of(files, "d1", "d2")
    for partition in (ONE, TWO):
        manager.create(partition)
    manager.topic_incarnations.record({ONE: TopicIncarnation(7), TWO: TopicIncarnation(7)})
    return manager


def test_each_directory_says_it_of_its_own_logs(files: MemoryFiles) -> None:
    with_both(files)
    held = [json.loads(read_file(files, f"{directory}/{FILE}")) for directory in ("d1", "d2")]
    assert sorted(list(content["topics"]["my_topic"].items()) for content in held) == [[("0", 7)], [("1", 7)]]
    assert {(content["version"], content["cluster"], content["tree"]) for content in held} == {(1, *TREE)}


def test_it_is_known_after_a_restart_and_not_written_again(files: MemoryFiles) -> None:
    with_both(files).close()
    again = manager_of(files, "d1", "d2")
    before = len(files.operations)
    again.topic_incarnations.record({ONE: TopicIncarnation(7), TWO: TopicIncarnation(7)})
    assert [again.topic_incarnations.of(partition).created for partition in (ONE, TWO)] == [7, 7]
    assert len(files.operations) == before


def test_failed_write_is_repeated_with_the_next_one(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1")
    manager.create(ONE)
    files.fail_next_open(errno.ENOSPC, match=FILE)
    with pytest.raises(StorageError, match="No space"):
        manager.topic_incarnations.record({ONE: TopicIncarnation(7)})
    manager.topic_incarnations.record({ONE: TopicIncarnation(7)})
    manager.close()
    assert manager_of(files, "d1").topic_incarnations.of(ONE).created == 7


def test_deleted_or_stray_log_has_no_record_even_if_the_file_has(files: MemoryFiles) -> None:
    manager = with_both(files)
    manager.delete(ONE)
    assert manager.mark_stray(TWO) in {"d1/my_topic_1.0-stray", "d2/my_topic_1.0-stray"}
    assert [manager.topic_incarnations.of(partition).created for partition in (ONE, TWO)] == [None, None]
    manager.close()
    again = manager_of(files, "d1", "d2")
    assert [again.topic_incarnations.of(partition).created for partition in (ONE, TWO)] == [None, None]
    assert again.partitions_of("my_topic") == ()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version":2}', b'{"version":1,"cluster":"a","tree":1,"topics":7}']
)
def test_a_file_of_nonsense_is_named_and_nothing_is_known(
    files: MemoryFiles, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with_both(files).close()
    replace_file(files, f"d1/{FILE}", data)
    replace_file(files, f"d2/{FILE}", data)
    with caplog.at_level(logging.WARNING):
        manager = manager_of(files, "d1", "d2")
    assert [manager.topic_incarnations.of(partition).created for partition in (ONE, TWO)] == [None, None]
    assert f"d1/{FILE}" in caplog.text


def test_stray_log_keeps_its_files_and_a_new_one_is_created(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1")
    manager.create(ONE)
    names = files.list_dir("d1/my_topic_0")
    assert manager.mark_stray(ONE) == "d1/my_topic_0.0-stray"
    manager.create(ONE)
    assert manager.mark_stray(ONE) == "d1/my_topic_0.1-stray"
    assert files.list_dir("d1/my_topic_0.0-stray") == names
    assert manager.mark_stray(ONE) is None


def test_restored_zookeeper_with_fewer_changes_keeps_the_logs(files: MemoryFiles) -> None:
    manager = with_both(files)
    manager.topic_incarnations.update_children(Children(5, 9, 3))
    manager.topic_incarnations.record({ONE: TopicIncarnation(8), TWO: TopicIncarnation(8)})
    assert manager.topic_incarnations.is_of_another(ONE, TopicIncarnation(12))
    manager.topic_incarnations.update_children(Children(4, 7, 3))
    assert not manager.topic_incarnations.is_of_another(ONE, TopicIncarnation(12))
    assert manager.topic_incarnations.is_of_later(ONE, TopicIncarnation(12))
    assert not manager.topic_incarnations.is_of_later(ONE, TopicIncarnation(8))


@pytest.mark.parametrize(
    ("children", "is_another"),
    [
        (Children(5, 9, 3), True),
        (Children(6, 11, 3), True),
        (Children(4, 7, 3), False),
        (Children(5, 10, 3), False),
        # Removed with all topics, and made again.
        (Children(0, 10, 10), True),
        (Children(1, 11, 10), True),
        (Children(6, 11, 10), True),
        # Of a copy from before it was made again, or of another history than was seen.
        (Children(7, 8, 2), False),
        (Children(6, 7, 4), False),
        # No topic was made by a later change: only a deletion may be missing.
        (Children(5, 8, 3), True),
        # One was.
        (Children(5, 7, 3), False),
    ],
)
def test_a_start_tells_by_the_topics_whether_zookeeper_went_back(
    files: MemoryFiles, children: Children, is_another: bool
) -> None:
    manager = with_both(files)
    manager.topic_incarnations.update_children(Children(5, 9, 3))
    manager.topic_incarnations.record({ONE: TopicIncarnation(8), TWO: TopicIncarnation(8)})
    manager.close()
    for _ in range(2):  # what was seen once is known afterwards too
        again = opened_again(files, "d1", "d2")
        again.topic_incarnations.update_children(children)
        assert [
            again.topic_incarnations.is_of_another(partition, TopicIncarnation(12))
            for partition in (ONE, TWO)
        ] == [is_another] * 2
        again.close()
        children = Children(max(children.changes, 7), 20, children.made_at)


def test_log_belongs_to_its_topic_again_once_it_is_recorded() -> None:
    manager = with_both(MemoryFiles())
    manager.topic_incarnations.update_children(Children(5, 9, 3))
    manager.topic_incarnations.update_children(Children(4, 7, 3))
    manager.topic_incarnations.record({ONE: TopicIncarnation(12)})
    assert [
        manager.topic_incarnations.is_of_another(partition, TopicIncarnation(15)) for partition in (ONE, TWO)
    ] == [True, False]


def test_a_log_that_was_made_later_than_the_topic_is_taken_for_it() -> None:
    manager = with_both(MemoryFiles())
    assert not manager.topic_incarnations.is_of_another(ONE, TopicIncarnation(3))
    assert manager.topic_incarnations.is_of_later(ONE, TopicIncarnation(3))


def test_server_that_misses_a_deletion_is_not_a_restored_zookeeper() -> None:
    manager = with_both(MemoryFiles())
    for children in (Children(5, 9, 3), Children(5, 8, 3), Children(5, 9, 3)):
        manager.topic_incarnations.update_children(children)
    assert manager.topic_incarnations.is_of_another(ONE, TopicIncarnation(12))


@pytest.mark.parametrize(
    ("children", "is_another"), [(Children(1, 11, 10), True), (Children(1, 4, 3), False)]
)
def test_a_file_that_does_not_tell_which_change_made_the_znode_is_read(
    files: MemoryFiles, children: Children, is_another: bool
) -> None:
    manager = with_both(files)
    manager.topic_incarnations.update_children(Children(5, 9, 3))
    manager.topic_incarnations.record({ONE: TopicIncarnation(8), TWO: TopicIncarnation(8)})
    manager.close()
    for directory in ("d1", "d2"):
        held = json.loads(read_file(files, f"{directory}/{FILE}"))
        held["children"].pop()
        replace_file(files, f"{directory}/{FILE}", json.dumps(held).encode())
    again = opened_again(files, "d1", "d2")
    again.topic_incarnations.update_children(children)
    assert [
        again.topic_incarnations.is_of_another(partition, TopicIncarnation(12)) for partition in (ONE, TWO)
    ] == [is_another] * 2


def test_a_directory_without_logs_does_not_tell_how_far_zookeeper_came(files: MemoryFiles) -> None:
    manager = with_both(files)
    manager.topic_incarnations.update_children(Children(5, 9, 3))
    manager.topic_incarnations.record({ONE: TopicIncarnation(8), TWO: TopicIncarnation(8)})
    manager.delete(ONE)  # its directory keeps its file
    manager.topic_incarnations.update_children(Children(4, 7, 3))
    manager.topic_incarnations.record({TWO: TopicIncarnation(12)})
    manager.close()
    again = opened_again(files, "d1", "d2")
    again.topic_incarnations.update_children(Children(4, 7, 3))
    assert again.topic_incarnations.is_of_another(TWO, TopicIncarnation(13))


def test_a_file_of_an_earlier_version_is_read(files: MemoryFiles) -> None:
    with_both(files).close()
    held = json.loads(read_file(files, f"d1/{FILE}"))
    del held["children"], held["rolled_back"]
    replace_file(files, f"d1/{FILE}", json.dumps(held).encode())
    again = opened_again(files, "d1")
    again.topic_incarnations.update_children(Children(1, 1, 1))
    assert [again.topic_incarnations.of(partition).created for partition in (ONE, TWO)].count(7) == 1
