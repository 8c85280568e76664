"""The journal of leader epochs that the logs' own files may lack after a power cut:
``leader-epochs-begun.json``.

    {"version":1,"topics":{"my_topic":{"0":[[0,0],[3,4711]]}}}

For each partition it has all epochs and their start offsets, as in ``leader-epoch-checkpoint``, which gets
them later. A broker that becomes the leader of a thousand partitions writes and flushes this file instead of
a thousand: clients wait for it meanwhile. An entry counts when its newest epoch is newer than that of the
log's file. So a log's entry must be removed, durably, before the log is truncated or copies from a leader.

One file in each data directory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.layout import LEADER_EPOCH_JOURNAL_FILE

_logger = logging.getLogger(__name__)

VERSION = 1

EpochEntries = tuple[tuple[int, int], ...]
"""(epoch, first offset), increasing."""


class LeaderEpochJournal:
    """The journals of all data directories. Used by the thread that opens and creates logs."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._directories: list[DataDirectory] = []
        self._known: dict[TopicPartition, EpochEntries] = {}
        self._stale: set[str] = set()
        """Directories whose file differs from ``_known``."""
        self._on_disk: dict[str, set[TopicPartition]] = {}
        """The partitions that the file of each directory may contain, also after a failed write."""

    def enter(self, directory: DataDirectory, partitions: Collection[TopicPartition]) -> None:
        """Add a data directory with these partitions and read its file; an invalid file counts as empty."""
        self._directories.append(directory)
        path = directory.file(LEADER_EPOCH_JOURNAL_FILE)
        try:
            held = _parse(read_file(self._files, path))
            self._on_disk[directory.path] = set(held)
            self._known |= {key: entries for key, entries in held.items() if key in partitions}
            if not held.keys() <= set(partitions):
                self._stale.add(directory.path)  # a log created with such a name must not get these epochs
        except FileNotFoundError:
            return
        except (StorageError, ValueError, KeyError, TypeError, AttributeError) as error:
            _logger.warning("ignoring %s, using the epochs in the files of the logs: %r", path, error)
            self._stale.add(directory.path)  # the next start may read it

    def of(self, partition: TopicPartition) -> EpochEntries:
        """Return the entries of a partition; none when its log has them durably."""
        return self._known.get(partition, ())

    def may_contain(self, partition: TopicPartition) -> bool:
        """Return whether the file on disk may contain entries of a partition."""
        return any(
            partition in home.partitions and partition in self._on_disk.get(home.path, ())
            for home in self._directories
        )

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the entries of deleted logs, so that new logs of their names have none.

        Raises StorageError when a disk keeps them.
        """
        self.record(dict.fromkeys(partitions, ()))

    def record(self, epochs: Mapping[TopicPartition, EpochEntries]) -> None:
        """Write the entries of partitions durably; empty entries remove a partition.

        A directory that cannot be written does not stop the others. After a StorageError it is unknown what
        was written, until another call succeeds.
        """
        changed = {key: entries for key, entries in epochs.items() if self.of(key) != entries}
        self._known = {key: entries for key, entries in (self._known | changed).items() if entries}
        # Before the first write: the other directories are stale too if that fails.
        self._stale |= {home.path for home in self._directories if not home.partitions.isdisjoint(changed)}
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
        topics: dict[str, dict[str, EpochEntries]] = {}
        written = directory.partitions & self._known.keys()
        self._on_disk.setdefault(directory.path, set()).update(written)
        for key in sorted(written):
            topics.setdefault(key.topic, {})[str(key.partition)] = self._known[key]
        directory.write_json(LEADER_EPOCH_JOURNAL_FILE, {"version": VERSION, "topics": topics})
        self._on_disk[directory.path] = set(written)
        self._stale.discard(directory.path)


def _parse(data: bytes) -> dict[TopicPartition, EpochEntries]:
    held = json.loads(data)
    if held["version"] != VERSION:
        raise ValueError(f"version {held['version']}")
    return {
        TopicPartition(topic, int(partition)): tuple((int(epoch), int(offset)) for epoch, offset in entries)
        for topic, partitions in held["topics"].items()
        for partition, entries in partitions.items()
    }
