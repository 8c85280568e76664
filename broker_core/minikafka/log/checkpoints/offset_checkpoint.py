"""Checkpoint files of a data directory: one offset for each partition, in Kafka's text form.

    0                          version
    2                          number of lines that follow
    my_topic 0 4711            topic, partition, offset
    my_topic 1 12

Written to a temporary file, flushed and renamed, so that a crash leaves the old content or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.base.ids import TopicPartition

VERSION = 0


def write_checkpoint(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file durably. Raises StorageError."""
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    try:
        replace_file(files, path, "".join(f"{line}\n" for line in lines).encode())
    except FileNotFoundError as error:
        raise StorageError(f"cannot write {path}: its directory was deleted") from error


def read_checkpoint(files: Files, path: str) -> dict[TopicPartition, int]:
    """The offsets in the file; empty when it is absent or empty. StorageError when it makes no sense."""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return {}
    if not data:
        return {}  # what 0.10.1 leaves before its first checkpoint
    try:
        return _parse(counted_lines(data.decode("ascii")))
    except (ValueError, IndexError) as error:
        raise StorageError(f"{path} is not a checkpoint file of version {VERSION}: {error}") from None


def counted_lines(text: str) -> list[str]:
    """The lines behind a version and their number. ValueError or IndexError when these make no sense.

    Kafka writes its files of leader epochs in this form too.
    """
    lines = text.splitlines()
    if int(lines[0]) != VERSION:
        raise ValueError(f"version {lines[0]}")
    count, entries = int(lines[1]), [line for line in lines[2:] if line.strip()]
    if count != len(entries):
        raise ValueError(f"expected {count} lines, found {len(entries)}")
    return entries


def _parse(entries: list[str]) -> dict[TopicPartition, int]:
    offsets = {}
    for line in entries:
        topic, partition, offset = line.split()
        if int(offset) < 0:
            raise ValueError(f"negative offset in {line!r}")
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets
