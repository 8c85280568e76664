"""One data directory: its lock, its clean-shutdown marker and its checkpoint files.

    .lock                              held while the directory is used; a second process is refused
    .kafka_cleanshutdown               from a clean close to the next open: no recovery
    recovery-point-offset-checkpoint   below which offset each log is flushed (``checkpoint``)
    log-start-offset-checkpoint        below which messages were deleted, where their segment is still there
    replication-offset-checkpoint      the high watermark of each log (``high_watermarks``)
    topic-creations.json               which topic of that name each log is of (``creations``)
    leader-epochs-begun.json           epochs that the logs' own files may not hold yet (``begun``)
    NAME.N-delete                      a deleted partition that is being removed, at open if a crash left it
    NAME.N-stray                       the log of an earlier topic of that name, set aside

What a checkpoint file may hold is always known: one offset that is too high would do harm (damage not looked
for, messages hidden), so such a file is replaced, or removed where a full disk has no room for another.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from minikafka.base.errors import DirectoryLocked, StorageError
from minikafka.base.files import Files, Lock, make_dirs_durably
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted, ranges
from minikafka.log.checkpoints.meta_properties import META_FILE
from minikafka.log.checkpoints.offset_checkpoint import read_checkpoint, write_checkpoint
from minikafka.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    DELETED_SUFFIX,
    LOCK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    WATERMARKS_FILE,
    Layout,
)

_logger = logging.getLogger(__name__)

_NAMED_MOST = 10
"""Topics that ``contents`` names."""

_LEFTOVER = re.compile(rf"(.*)\.\d+{re.escape(DELETED_SUFFIX)}")


def contents(files: Files, path: str) -> str:
    """The topics and partitions in a data directory, for people: ``D has orders (partitions 0-2)``."""
    topics: dict[str, list[int]] = {}
    try:
        layout = Layout.recognise(files, path)
        for partition, _ in layout.found(files, path) if layout else ():
            topics.setdefault(partition.topic, []).append(partition.partition)
    except StorageError as error:
        return f"cannot read {path}: {error}"
    named = [
        f"{topic} (partition{'s' if len(numbers) > 1 else ''} {ranges(numbers)})"
        for topic, numbers in sorted(topics.items())
    ]
    more = f" and {counted(len(named) - _NAMED_MOST, 'more topic')}" if len(named) > _NAMED_MOST else ""
    return f"{path} has {', '.join(named[:_NAMED_MOST]) or 'no partitions'}{more}"


class OffsetCheckpointFile:
    """A checkpoint file of one directory, and what it may hold."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self.held: dict[TopicPartition, int] = {}
        self._files = files
        self._problem: str | None = None

    def read(self) -> dict[TopicPartition, int]:
        """The offsets in it; empty when it is absent. StorageError when it makes no sense."""
        self.held = read_checkpoint(self._files, self.path)
        return self.held

    def holds_too_much(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether it may hold an offset above the one given, or of a partition that is not given."""
        return any(offset > offsets.get(partition, 0) for partition, offset in self.held.items())

    def holds(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether it certainly holds these, and no others."""
        return self._problem is None and self.held == offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Replace the file; whether that was possible. A warning says so when not, once until it is again.

        StorageError when an old one that holds too much can be neither replaced nor removed.
        """
        try:
            write_checkpoint(self._files, self.path, offsets)
        except StorageError as error:
            too_much = self.holds_too_much(offsets)
            # Either may be there: the failure can have come behind the renaming.
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
    """A data directory in use. ``partitions``: those that lie in it."""

    def __init__(
        self,
        files: Files,
        path: str,
        layout: Layout,
        lock: Lock,
        mutex: AbstractContextManager[object],
    ) -> None:
        self.path = path
        self.layout = layout
        self.partitions: set[TopicPartition] = set()
        self.recovery_points = OffsetCheckpointFile(files, self.file(RECOVERY_POINT_FILE))
        self.start_offsets = OffsetCheckpointFile(files, self.file(LOG_START_FILE))
        self.high_watermarks = OffsetCheckpointFile(files, self.file(WATERMARKS_FILE))
        self.failure: str | None = None
        """Why nothing can be written there any more; None while it can be."""
        self.writing = mutex
        """Held by whoever writes these, from before the offsets are looked up: no older ones come after."""
        self._files = files
        self._lock = lock

    @classmethod
    def enter(
        cls, files: Files, path: str, layout: Layout, mutex: AbstractContextManager[object]
    ) -> DataDirectory:
        """Lock the directory, made when absent, and remove what deletions have left.

        ``layout`` is that of one that holds nothing yet. DirectoryLocked when another process holds it,
        StorageError when it cannot be used.
        """
        make_dirs_durably(files, path)
        lock = files.lock(os.path.join(path, LOCK_FILE))
        try:
            for name in files.list_dir(path):
                if name.endswith(DELETED_SUFFIX) and files.is_dir(os.path.join(path, name)):
                    files.remove_tree(os.path.join(path, name))
            return cls(files, path, Layout.recognise(files, path) or layout, lock, mutex)
        except BaseException:
            lock.release()
            raise

    def find_removed(self) -> bool:
        """Whether the directory was removed, emptied, or taken by another process while it is in use: then
        it is ``failure``. A lock file that alone was removed is made, and taken, again.
        """
        if self.failure is not None or self._lock.is_in_place():
            return self.failure is not None
        try:
            self._files.open(self.file(META_FILE), read_only=True).close()
        except FileNotFoundError:
            self.failure = f"data directory {self.path} was removed or emptied while in use"
            return True
        except StorageError:
            return False  # nobody can tell
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

    def leave(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def file(self, name: str) -> str:
        """The path of something in it."""
        return os.path.join(self.path, name)

    def partition_path(self, partition: TopicPartition) -> str:
        """The directory of a partition."""
        return self.file(self.layout.directory_name(partition))

    def found(self) -> Iterator[tuple[TopicPartition, str]]:
        """The partitions that lie in it, with their directories."""
        yield from self.layout.found(self._files, self.path)

    def is_clean(self) -> bool:
        """Return whether the marker is there."""
        return self._files.exists(self.file(CLEAN_SHUTDOWN_FILE))

    def mark_clean(self) -> None:
        """Make the marker, where that is possible."""
        try:
            marker = self._files.open(self.file(CLEAN_SHUTDOWN_FILE), create=True)
            try:
                marker.sync()
            finally:
                marker.close()
            self._files.sync_dir(self.path)
        except StorageError as error:
            _logger.warning("%s; all messages are flushed, but the next start will check the logs", error)

    def unmark(self) -> None:
        """Remove the marker: from now on logs may grow. Also flush the names of partitions: whoever made the
        last ones may have been killed before.
        """
        if self.is_clean():
            self._files.remove(self.file(CLEAN_SHUTDOWN_FILE))
        self._files.sync_dir(self.path)

    def may_hold_above(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a checkpoint of the log's own offsets may hold a larger one, which would be too high of a
        log that was cut there, or (0) removed. Waits for one that is being written.
        """
        with self.writing:
            return any(
                file.held.get(partition, 0) > offset for file in (self.recovery_points, self.start_offsets)
            )

    def leftovers_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[str]]:
        """Directories of deleted partitions that are still there, each once; perhaps also of another that is
        deleted, and whose name begins as one of theirs.
        """
        by_stem: dict[str, list[str]] = {}
        for name in self._files.list_dir(self.path):
            match = _LEFTOVER.fullmatch(name)
            if match is not None:
                by_stem.setdefault(match[1], []).append(self.file(name))
        return {one: by_stem.pop(self.layout.leftover_stem(one), []) for one in partitions}

    def unused_path(self, partition: TopicPartition, suffix: str = DELETED_SUFFIX) -> str:
        """What the directory of a partition is renamed to before it is removed, or when it is set aside."""
        path, number = self.file(self.layout.leftover_stem(partition)), 0
        while self._files.exists(f"{path}.{number}{suffix}"):
            number += 1
        return f"{path}.{number}{suffix}"
