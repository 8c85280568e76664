"""Checkpoint files in Kafka's text form."""

from __future__ import annotations

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import read_file
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.offset_checkpoint import read_checkpoint, write_checkpoint


def file_with(text: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.open("c", create=True).write_at(0, text)
    return files


def test_offsets_come_back_and_the_text_is_kafkas() -> None:
    files = MemoryFiles()
    offsets = {TopicPartition("my_topic", 1): 12, TopicPartition("my_topic", 0): 4711}
    write_checkpoint(files, "c", offsets)
    assert read_file(files, "c") == b"0\n2\nmy_topic 0 4711\nmy_topic 1 12\n"
    assert read_checkpoint(files, "c") == offsets


def test_an_absent_or_empty_file_has_no_offsets() -> None:
    assert read_checkpoint(MemoryFiles(), "c") == {}
    assert read_checkpoint(file_with(b""), "c") == {}


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\nx\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -5\n",
        b"0\n",
        b"\xff\n0\n",
        b"\0" * 20,
    ],
)
def test_invalid_file_is_refused_with_its_path(text: bytes) -> None:
    with pytest.raises(StorageError, match="c is not a checkpoint file"):
        read_checkpoint(file_with(text), "c")


def test_the_file_survives_a_power_cut_as_soon_as_it_is_written() -> None:
    files = MemoryFiles()
    write_checkpoint(files, "c", {TopicPartition("t", 0): 5})
    files.power_cut()
    assert read_checkpoint(files, "c") == {TopicPartition("t", 0): 5}
