"""One data directory: its lock, its clean-shutdown marker and its checkpoint files.

    .lock                              held while the directory is used; a second process is refused
    .kafka_cleanshutdown               from a clean close to the next open: no recovery
    recovery-point-offset-checkpoint   the offset below which each log is flushed (``offset_checkpoint``)
    log-start-offset-checkpoint        start offsets of logs whose deleted messages are still in a segment
    replication-offset-checkpoint      the high watermark of each log (``high_watermarks``)
    topic-creations.json               the incarnation of the topic of each log (``topic_incarnations``)
    leader-epochs-begun.json           epochs not yet in the logs' own files (``leader_epoch_journal``)
    NAME.N-delete                      a deleted partition that is being removed, at open if a crash left it
    NAME.N-stray                       the log of an earlier topic of that name, set aside
    NAME.N-future                      the copy of a log that moves to this directory (``future_logs``)

The possible content of a checkpoint file is always known: an offset that is too high would do harm (hidden
damage, hidden messages), so such a file is replaced, or removed when a full disk has no room for another.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from minikafka.base.errors import BrokerError, DirectoryLocked, ErrorCode, StorageError
from minikafka.base.files import DiskSpace, Files, Lock, make_dirs_durably, replace_file
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.base.text import counted, ranges
from minikafka.log.checkpoints.meta_properties import META_FILE
from minikafka.log.checkpoints.offset_checkpoint import read_checkpoint, write_checkpoint
from minikafka.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    NAME_MAX_BYTES,
    RECOVERY_POINT_FILE,
    Layout,
)

_logger = logging.getLogger(__name__)

_NAMED_MOST = 10
"""The most topics that ``contents`` names."""

_LEFTOVER = re.compile(rf"(.*)\.\d+{re.escape(DELETE_DIR_SUFFIX)}")


def contents(files: Files, path: str) -> str:
    """Describe the topics and partitions in a data directory: ``D has orders (partitions 0-2)``."""
    try:
        layout = Layout.recognise(files, path)
        found = layout.found(files, path) if layout else ()
        topics = numbers_by_topic(partition for partition, _ in found)
    except StorageError as error:
        return f"cannot read {path}: {error}"
    named = [
        f"{topic} (partition{'s' if len(numbers) > 1 else ''} {ranges(numbers)})"
        for topic, numbers in sorted(topics.items())
    ]
    more = f" and {counted(len(named) - _NAMED_MOST, 'more topic')}" if len(named) > _NAMED_MOST else ""
    return f"{path} has {', '.join(named[:_NAMED_MOST]) or 'no partitions'}{more}"


class OffsetCheckpointFile:
    """A checkpoint file of a data directory, and the offsets that it may hold (``held``)."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self.held: dict[TopicPartition, int] = {}
        self._files = files
        self._problem: str | None = None

    def read(self) -> dict[TopicPartition, int]:
        """Read the offsets; empty when the file is absent. Raises StorageError when it is not valid."""
        self.held = read_checkpoint(self._files, self.path)
        return self.held

    def holds_too_much(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether it may hold a larger offset than ``offsets``, or another partition."""
        return any(offset > offsets.get(partition, 0) for partition, offset in self.held.items())

    def holds(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether it certainly holds exactly these offsets."""
        return self._problem is None and self.held == offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Replace the file; return whether that succeeded. A failure is logged once until a success.

        Raises StorageError when an old file that holds too much can be neither replaced nor removed.
        """
        try:
            write_checkpoint(self._files, self.path, offsets)
        except StorageError as error:
            too_much = self.holds_too_much(offsets)
            # Either content is possible: the failure may have come after the rename.
            newer = {key: max(offset, self.held.get(key, 0)) for key, offset in offsets.items()}
            self.held = self.held | newer
            if too_much:
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(self.path)
                    self._files.sync_dir(os.path.dirname(self.path))
                self.held = {}
            if str(error) != self._problem:
                _logger.warning(
                    "%s; the next start may check more until this succeeds: free disk space, or fix the disk",
                    error,
                )
            self._problem = str(error)
            return False
        self.held, self._problem = dict(offsets), None
        return True


class DataDirectory:
    """A data directory in use. ``partitions`` are the partitions in it."""

    def __init__(
        self, files: Files, path: str, layout: Layout, lock: Lock, mutex: AbstractContextManager[object]
    ) -> None:
        self.path = path
        self.layout = layout
        self.partitions: set[TopicPartition] = set()
        self.recovery_points = OffsetCheckpointFile(files, self.file(RECOVERY_POINT_FILE))
        self.start_offsets = OffsetCheckpointFile(files, self.file(LOG_START_FILE))
        self.high_watermarks = OffsetCheckpointFile(files, self.file(HIGH_WATERMARK_FILE))
        self.failure: str | None = None
        """The reason why nothing can be written any more; None while the directory is usable."""
        self.writing = mutex
        """Held while a checkpoint is written, and the offsets read: older ones never overwrite newer ones."""
        self._files = files
        self._lock = lock

    @classmethod
    def enter(
        cls, files: Files, path: str, layout: Layout, mutex: AbstractContextManager[object]
    ) -> DataDirectory:
        """Lock the directory, created when absent, and remove the rest of deleted partitions.

        ``layout`` applies to an empty directory. Raises DirectoryLocked when another process uses it,
        StorageError when it cannot be used.
        """
        make_dirs_durably(files, path)
        lock = files.lock(os.path.join(path, LOCK_FILE))
        try:
            for name in files.list_dir(path):
                if name.endswith(DELETE_DIR_SUFFIX) and files.is_dir(os.path.join(path, name)):
                    files.remove_tree(os.path.join(path, name))
            return cls(files, path, Layout.recognise(files, path) or layout, lock, mutex)
        except BaseException:
            lock.release()
            raise

    def find_removed(self) -> bool:
        """Return whether the directory was removed, emptied, or locked by another process while in use.

        Then ``failure`` is set. If only the lock file was removed, it is created and locked again.
        """
        if self.failure is not None or self._lock.is_in_place():
            return self.failure is not None
        try:
            self._files.open(self.file(META_FILE), read_only=True).close()
        except FileNotFoundError:
            self.failure = f"data directory {self.path} was removed or emptied while in use"
            return True
        except StorageError:
            return False  # unknown
        try:
            lock = self._files.lock(self.file(LOCK_FILE))
        except DirectoryLocked as error:
            self.failure = f"lock file of {self.path} was removed while in use: {error}"
            return True
        except (StorageError, FileNotFoundError) as error:
            _logger.warning("lock file of %s was removed, failed to create it again: %s", self.path, error)
            return False
        self._lock.release()
        self._lock = lock
        _logger.warning("lock file of %s was removed; created and locked it again", self.path)
        return False

    def disk_space(self) -> DiskSpace | None:
        """Return the size of its disk; None if the directory has failed, or fails now."""
        try:
            return self._files.disk_space(self.path) if self.failure is None else None
        except (StorageError, FileNotFoundError):
            return None

    def leave(self) -> None:
        """Release the lock."""
        self._lock.release()

    def file(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return os.path.join(self.path, name)

    def write_json(self, name: str, content: Mapping[str, object]) -> None:
        """Replace a file of the directory durably. Raises StorageError, also if the directory is gone."""
        data = json.dumps(content, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            replace_file(self._files, self.file(name), data)
        except FileNotFoundError as error:
            raise StorageError(f"cannot write {name}: {self.path} was deleted") from error

    def partition_path(self, partition: TopicPartition) -> str:
        """Return the path of a partition's directory."""
        return self.file(self.layout.directory_name(partition))

    def found(self) -> Iterator[tuple[TopicPartition, str]]:
        """Yield the partitions in it, with their directories."""
        yield from self.layout.found(self._files, self.path)

    def found_futures(self) -> Iterator[tuple[TopicPartition, str]]:
        """Yield the partitions of the future logs in it, with their directories."""
        for name in self._files.list_dir(self.path):
            partition, path = self.layout.future_partition_of(name), self.file(name)
            if partition is not None and self._files.is_dir(path):
                yield partition, path

    def is_clean(self) -> bool:
        """Return whether the clean-shutdown marker exists."""
        return self._files.exists(self.file(CLEAN_SHUTDOWN_FILE))

    def mark_clean(self) -> None:
        """Create the clean-shutdown marker. A failure is only logged."""
        try:
            with contextlib.closing(self._files.open(self.file(CLEAN_SHUTDOWN_FILE), create=True)) as marker:
                marker.sync()
            self._files.sync_dir(self.path)
        except StorageError as error:
            _logger.warning("%s; all messages are flushed, but the next start will check the logs", error)

    def unmark(self) -> None:
        """Remove the marker, before logs may grow, and flush the names of partitions.

        The process that created the last partitions may have been killed before it flushed the names.
        """
        if self.is_clean():
            self._files.remove(self.file(CLEAN_SHUTDOWN_FILE))
        self._files.sync_dir(self.path)

    def may_hold_above(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether the checkpoint of recovery points or of start offsets may hold a larger offset.

        That would be too high for a log that was truncated there, or (0) deleted. Waits for a checkpoint
        that is being written.
        """
        with self.writing:
            return any(
                file.held.get(partition, 0) > offset for file in (self.recovery_points, self.start_offsets)
            )

    def leftovers_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[str]]:
        """Return the remaining directories of deleted partitions, each directory once.

        They may include those of another deleted partition with the same shortened name.
        """
        by_stem: dict[str, list[str]] = {}
        for name in self._files.list_dir(self.path):
            match = _LEFTOVER.fullmatch(name)
            if match is not None:
                by_stem.setdefault(match[1], []).append(self.file(name))
        return {partition: by_stem.pop(self.layout.leftover_stem(partition), []) for partition in partitions}

    def unused_path(self, partition: TopicPartition, suffix: str = DELETE_DIR_SUFFIX) -> str:
        """Return the path to which a partition's directory is renamed before it is removed or set aside."""
        return self._unused(self.layout.leftover_stem(partition), suffix)

    def future_path(self, partition: TopicPartition) -> str:
        """Return the path of a new future log. Raises INVALID_TOPIC if its name would be too long."""
        path = self._unused(self.layout.directory_name(partition), FUTURE_DIR_SUFFIX)
        if len(os.path.basename(path)) > NAME_MAX_BYTES:
            raise BrokerError(
                ErrorCode.INVALID_TOPIC,
                f"the log of {partition} cannot move: the name of its copy, {os.path.basename(path)}, is "
                f"longer than {NAME_MAX_BYTES} bytes",
            )
        return path

    def rename(self, old: str, new: str) -> None:
        """Rename a directory in it; the name is flushed on return. Raises StorageError, FileNotFoundError."""
        self._files.rename(old, new)
        self._files.sync_dir(self.path)

    def _unused(self, stem: str, suffix: str) -> str:
        path, number = self.file(stem), 0
        while self._files.exists(f"{path}.{number}{suffix}"):
            number += 1
        return f"{path}.{number}{suffix}"
