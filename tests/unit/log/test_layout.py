"""Names of directories and files in both layouts."""

from __future__ import annotations

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.data_directory import contents
from minikafka.log.layout import Layout

CLASSIC, APACHE = Layout.CLASSIC, Layout.APACHE


def disk_with(*paths: str) -> MemoryFiles:
    files = MemoryFiles()
    files.make_dirs("d")
    for path in paths:
        directory, _, name = path.rpartition("/")
        files.make_dirs(f"d/{directory}")
        if name:
            files.open(f"d/{path}", create=True).close()
    return files


def test_the_texts_own_names_are_the_classic_ones() -> None:
    assert CLASSIC.directory_name(TopicPartition("my_topic", 0)) == "my_topic_0"
    assert CLASSIC.segment_name(0) == "00000000000.kafka"
    assert CLASSIC.index_name(4711) == "00000004711.index"


def test_the_releases_names_are_the_apache_ones() -> None:
    assert APACHE.directory_name(TopicPartition("my_topic", 0)) == "my_topic-0"
    assert APACHE.segment_name(4711) == "00000000000000004711.log"
    assert APACHE.index_name(0) == "00000000000000000000.index"


@pytest.mark.parametrize("topic", ["a", "a_1", "a_1_0", "a-1", "a-1-0", "_", "-", "a.b", "1", "1_2"])
@pytest.mark.parametrize("layout", list(Layout))
def test_directory_names_are_read_back_by_their_own_layout_alone(layout: Layout, topic: str) -> None:
    partition = TopicPartition(topic, 12)
    name = layout.directory_name(partition)
    other = APACHE if layout is CLASSIC else CLASSIC
    assert layout.partition_of(name) == partition
    assert other.partition_of(name) is None


@pytest.mark.parametrize("name", ["a", "a_", "_0", "a_x", "a_01", "a_0.3-delete", "lost+found", "a b_0"])
def test_other_directories_hold_no_partition(name: str) -> None:
    assert CLASSIC.partition_of(name) is None
    assert APACHE.partition_of(name) is None


def test_offsets_past_eleven_digits_have_longer_names() -> None:
    base = 123_456_789_012
    assert CLASSIC.segment_name(base) == "123456789012.kafka"
    assert CLASSIC.segment_base("123456789012.kafka") == base


@pytest.mark.parametrize(
    "name",
    [
        "000.kafka",
        "000000000000.kafka",
        "0000000000x.kafka",
        "00000000000.log",
        "00000000000.kafka.corrupt",
        ".kafka",
    ],
)
def test_other_files_are_no_segments(name: str) -> None:
    assert CLASSIC.segment_base(name) is None


def test_an_index_belongs_to_its_base_offset() -> None:
    assert APACHE.index_base("00000000000000000042.index") == 42
    assert APACHE.index_base("00000000000000000042.timeindex") == 42


def test_a_directory_is_recognised_by_what_lies_in_it() -> None:
    assert Layout.recognise(disk_with("a_0/00000000000.kafka"), "d") is CLASSIC
    assert Layout.recognise(disk_with("a-0/00000000000000000000.log"), "d") is APACHE
    assert Layout.recognise(disk_with("a-0/", "logs/x", "meta.properties"), "d") is APACHE
    assert Layout.recognise(disk_with("notes_2/readme.txt", ".lock"), "d") is None
    assert Layout.recognise(MemoryFiles(), "absent") is None


def test_both_layouts_in_one_directory_are_refused() -> None:
    files = disk_with("a_0/00000000000.kafka", "b-0/00000000000000000000.log")
    with pytest.raises(StorageError, match=r"classic layout \(a_0\) and the apache layout \(b-0\)"):
        Layout.recognise(files, "d")


def test_contents_of_a_data_directory_are_told_by_topic() -> None:
    files = disk_with("b_0/00000000000.kafka", "a_1/", "a_0/", "a_7/", "a_2.0-stray/", "notes_2/readme.txt")
    assert contents(files, "d") == "d has a (partitions 0-1, 7), b (partition 0)"
    assert contents(disk_with(), "d") == "d has no partitions"
    many = [f"{letter}_0/" for letter in "abcdefghijkl"]
    assert contents(disk_with(*many), "d").endswith("j (partition 0) and 2 more topics")


def test_unreadable_data_directory_is_described_as_such() -> None:
    assert contents(disk_with("a_0/", "b-0/"), "d").startswith("cannot read d: d holds partitions in the")
