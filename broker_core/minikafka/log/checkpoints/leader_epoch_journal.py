"""Epochs that this broker has begun to lead in and that the logs' own files may not hold yet after a power
cut: ``leader-epochs-begun.json``.

    {"version":1,"topics":{"my_topic":{"0":[[0,0],[3,4711]]}}}

Of each partition all its epochs and the offsets where they begin, as in ``leader-epoch-checkpoint``, which
gets them later. A broker that comes to lead a thousand partitions writes and flushes this one file and not a
thousand: clients wait for it meanwhile. What it says counts where its newest epoch is newer than that of the
log's file; so what it says of a log has to go, durably, before the log is cut or copies another's messages.

One file in each data directory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.layout import BEGUN_FILE

_logger = logging.getLogger(__name__)

VERSION = 1

Entries = tuple[tuple[int, int], ...]
"""(epoch, first offset), rising."""


class LeaderEpochJournal:
    """Of the data directories that were entered. For the thread that opens and creates logs."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._directories: list[DataDirectory] = []
        self._known: dict[TopicPartition, Entries] = {}
        self._stale: set[str] = set()
        """Directories whose file does not say what is known."""
        self._told: dict[str, set[TopicPartition]] = {}
        """Of which partitions the file of each directory may say something, written whole or not."""

    def enter(self, directory: DataDirectory, partitions: Collection[TopicPartition]) -> None:
        """Read the file of a directory in which these lie; nothing where it makes no sense."""
        self._directories.append(directory)
        path = directory.file(BEGUN_FILE)
        try:
            held = _parse(read_file(self._files, path))
            self._told[directory.path] = set(held)
            self._known |= {key: entries for key, entries in held.items() if key in partitions}
            if not held.keys() <= set(partitions):
                self._stale.add(directory.path)  # a log of such a name that is made has nothing of these
        except FileNotFoundError:
            return
        except (StorageError, ValueError, KeyError, TypeError, AttributeError) as error:
            _logger.warning("ignoring %s, using the epochs in the files of the logs: %r", path, error)
            self._stale.add(directory.path)  # the next start may read it

    def of(self, partition: TopicPartition) -> Entries:
        """What the file says; nothing of a partition whose log has it durably."""
        return self._known.get(partition, ())

    def may_tell(self, partition: TopicPartition) -> bool:
        """Return whether the file, as it is on the disk, may say something of a partition."""
        return any(
            partition in one.partitions and partition in self._told.get(one.path, ())
            for one in self._directories
        )

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """The logs are gone: the next ones of their names have begun nothing. StorageError where a disk keeps
        what they had.
        """
        self.record(dict.fromkeys(partitions, ()))

    def record(self, epochs: Mapping[TopicPartition, Entries]) -> None:
        """Write down what has begun, and of those with no entries that nothing has. A directory that takes
        nothing does not keep the others from it. After a StorageError nobody knows which of it is written,
        until another call is through.
        """
        changed = {key: entries for key, entries in epochs.items() if self.of(key) != entries}
        self._known = {key: entries for key, entries in (self._known | changed).items() if entries}
        # All before the first is written: what is known of the others has changed, too, if that fails.
        self._stale |= {one.path for one in self._directories if not one.partitions.isdisjoint(changed)}
        failure: StorageError | None = None
        for directory in self._directories:
            if directory.failure is not None:
                continue
            if directory.path in self._stale and not directory.partitions.isdisjoint(epochs):
                try:
                    self._write(directory)
                except StorageError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _write(self, directory: DataDirectory) -> None:
        topics: dict[str, dict[str, Entries]] = {}
        told = directory.partitions & self._known.keys()
        self._told.setdefault(directory.path, set()).update(told)
        for key in sorted(told):
            topics.setdefault(key.topic, {})[str(key.partition)] = self._known[key]
        held = {"version": VERSION, "topics": topics}
        data = json.dumps(held, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            replace_file(self._files, directory.file(BEGUN_FILE), data)
        except FileNotFoundError as error:
            raise StorageError(f"cannot write {BEGUN_FILE}: {directory.path} was deleted") from error
        self._told[directory.path] = set(told)
        self._stale.discard(directory.path)


def _parse(data: bytes) -> dict[TopicPartition, Entries]:
    held = json.loads(data)
    if held["version"] != VERSION:
        raise ValueError(f"version {held['version']}")
    return {
        TopicPartition(topic, int(partition)): tuple((int(epoch), int(offset)) for epoch, offset in entries)
        for topic, partitions in held["topics"].items()
        for partition, entries in partitions.items()
    }
