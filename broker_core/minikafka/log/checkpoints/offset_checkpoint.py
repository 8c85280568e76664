"""Checkpoint files of a data directory: an offset for each partition, in Kafka's text form.

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
    """Read the offsets; empty when the file is absent or empty. Raises StorageError when it is not valid."""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return {}
    if not data:
        return {}  # 0.10.1 leaves it empty before its first checkpoint
    try:
        return _parse(counted_lines(data.decode("ascii")))
    except (ValueError, IndexError) as error:
        raise StorageError(f"{path} is not a checkpoint file of version {VERSION}: {error}") from None


def counted_lines(text: str) -> list[str]:
    """Return the lines after the version and the number of lines.

    Raises ValueError or IndexError when not valid.

    Kafka writes its leader epoch files in this form too.
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
