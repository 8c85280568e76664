"""All logs of a broker: its data directories, their lock, marker and checkpoint.

In each data directory, beside the partitions' own directories:

    .lock                              held from ``open_all`` to ``close``; a second process is refused
    .kafka_cleanshutdown               from a clean ``close`` to the next ``open_all``: no recovery
    recovery-point-offset-checkpoint   below which offset each log is flushed (``checkpoint``)
    NAME.N-delete                      a deleted partition that is being removed, at open if a crash left it

Orders that matter: the marker goes before the first append can come, and is made after all logs are flushed
and the checkpoint is written; a checkpoint is written, or the old one removed, before a log may grow again
that was deleted or truncated, as a recovery point past a log's end would later keep damage from being looked
for. One that is too low, or none, only makes recovery longer: a disk that is full stops neither open, delete
nor close.

A new partition goes to the directory that holds the fewest. Each directory keeps the layout that it has.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from minikafka.base.clock import Clock
from minikafka.base.errors import StorageError
from minikafka.base.files import Files, Lock, make_dirs_durably
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition, check_topic_name
from minikafka.log.checkpoint import read_checkpoint, write_checkpoint
from minikafka.log.config import LogConfig
from minikafka.log.layout import CLEAN_SHUTDOWN_FILE, DELETED_SUFFIX, LOCK_FILE, RECOVERY_POINT_FILE, Layout
from minikafka.log.log import Log

Overrides = Mapping[str, Mapping[str, str]]
"""Topic -> its own properties."""

_logger = logging.getLogger(__name__)


class _Directory:
    """One data directory."""

    def __init__(self, path: str, layout: Layout, lock: Lock) -> None:
        self.path = path
        self.layout = layout
        self.lock = lock
        self.partitions: set[TopicPartition] = set()
        self.points: dict[TopicPartition, int] = {}
        """What the checkpoint file may hold."""
        self.checkpoint_problem: str | None = None
        """Why the last checkpoint could not be written; None when it was."""

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def points_lie_too_far(self, reached: Mapping[TopicPartition, int]) -> bool:
        """Whether the checkpoint file may hold a point beyond what its log has reached."""
        return any(point > reached.get(partition, 0) for partition, point in self.points.items())


class LogManager:
    """The logs of all partitions that a broker has.

    One thread opens, creates, deletes, truncates and closes. ``flush_due`` and ``checkpoint_recovery_points``
    may run on another one, and ``Log.flush`` on any, when ``new_mutex`` makes locks.
    """

    def __init__(
        self,
        files: Files,
        directories: Sequence[str],
        config: LogConfig,
        layout: Layout,
        clock: Clock,
        *,
        new_mutex: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """``config`` has the broker's defaults; ``layout`` is that of directories that hold nothing yet."""
        self._new_mutex = new_mutex
        self._mutex = new_mutex()
        self._files = files
        self._paths = [path.rstrip("/") or "/" for path in directories]
        self._config = config
        self._layout = layout
        self._clock = clock
        self._directories: list[_Directory] = []
        self._logs: dict[TopicPartition, Log] = {}
        self._homes: dict[TopicPartition, _Directory] = {}
        self._flushed_ms: dict[TopicPartition, int] = {}
        self._unopened: dict[TopicPartition, int] = {}
        """Partitions that lie here and could not be opened, with their recovery points."""
        self._warned: dict[str, list[str]] = {}

    def open_all(self, overrides: Overrides | None = None) -> None:
        """Lock the directories, made when absent, and open and recover every log in them.

        DirectoryLocked when another process holds one; StorageError when one cannot be used. Then
        nothing stays locked. A log that cannot be opened, while its directory can, is told and left to
        ``create``. ``overrides`` should name at least the compacted topics: in others, a hole between
        segments that were not flushed counts as loss and ends the log. Of overrides, here and below, what
        cannot be used is left out with a warning: a newer Kafka may have written them.
        """
        try:
            for path in self._paths:
                self._directories.append(self._enter(path))
            for directory in self._directories:
                self._open_directory(directory, overrides or {})
        except BaseException:
            self._leave()
            raise

    def get(self, partition: TopicPartition) -> Log | None:
        """The partition's log; None when there is none here."""
        return self._logs.get(partition)

    def logs(self) -> dict[TopicPartition, Log]:
        """All logs: a copy, safe to go through while others come and go."""
        return dict(self._logs)

    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """The topic's partitions of which anything lies here."""
        return tuple(sorted(partition for partition in list(self._homes) if partition.topic == topic))

    def create(self, partition: TopicPartition, overrides: Mapping[str, str] | None = None) -> Log:
        """The partition's log, made where the fewest are when there is none. Its name is flushed on return.

        One that could not be opened is opened again, where it lies. INVALID_TOPIC for a wrong name,
        StorageError when the disk fails.
        """
        log = self._logs.get(partition)
        if log is not None and not log.closed:
            return log
        if partition in self._unopened:
            directory, point = self._homes[partition], self._unopened[partition]
        else:
            self.delete(partition)  # what an earlier deletion may have left
            check_topic_name(partition.topic)
            directory, point = min(self._directories, key=lambda home: len(home.partitions)), 0
        log = self._open(partition, directory, overrides or {}, clean=False, recovery_point=point)
        try:
            log.flush()
            self._files.sync_dir(directory.path)
        except (StorageError, FileNotFoundError):
            self.give_up(partition)
            raise
        return log

    def give_up(self, partition: TopicPartition) -> None:
        """Let go of a log that nobody serves yet, so that ``create`` opens and recovers it anew."""
        log = self._logs.pop(partition)
        log.abandon()
        self._unopened[partition] = log.recovery_point

    def delete(self, partition: TopicPartition) -> bool:
        """Remove the partition and its files; False when there is none. Reads in progress keep their files.

        The directory is renamed first: a crash leaves the partition, or rubbish that the next open removes.
        One that was removed by hand counts as deleted. After a StorageError the partition takes no more
        messages, and another call goes on with the rest.
        """
        home = self._homes.get(partition)
        if home is None:
            return False
        log = self._logs.get(partition)
        if log is not None:
            log.abandon()
        if log is not None or partition in self._unopened:
            path = home.file(home.layout.directory_name(partition))
            # Removed by hand counts as removed.
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, self._free_rubbish_name(path))
            self._logs.pop(partition, None)
            self._unopened.pop(partition, None)
            self._flushed_ms.pop(partition, None)
        try:
            self._files.sync_dir(home.path)
            # Before the checkpoint: on a full disk this makes the room for it.
            for rubbish in self._rubbish_of(home, partition):
                self._files.remove_tree(rubbish)
            self._checkpoint(home)
        except FileNotFoundError as error:
            raise StorageError(f"{partition} is not removed whole: {error.filename} is gone") from error
        home.partitions.discard(partition)
        del self._homes[partition]
        return True

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """``Log.truncate_to`` and the checkpoint that belongs to it."""
        self._logs[partition].truncate_to(offset)
        self._checkpoint(self._homes[partition])

    def set_overrides(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Give the topic's logs these properties over the broker's from now on."""
        config = self._config_of(topic, overrides)
        for partition, log in self.logs().items():
            if partition.topic == topic:
                log.config = config

    def flush_due(self, now_ms: int | None = None) -> list[TopicPartition]:
        """Flush logs with messages that may be S (``flush.ms``) old, and all full segments. Gives which.

        ``now_ms`` is of the clock's monotonic scale (default: read from it). A log that cannot be flushed is
        reported and takes no more appends; the others are flushed all the same.
        """
        now_ms = self._clock.monotonic_ms() if now_ms is None else now_ms
        flushed = []
        for partition, log in self.logs().items():
            limit = log.config.flush_ms
            since = self._flushed_ms.get(partition, now_ms)
            everything = limit is not None and now_ms - since >= limit
            if (
                log.failure is not None
                or log.closed
                or not (everything or log.segments[-1].base_offset > log.recovery_point)
            ):
                continue
            dirty = log.unflushed_messages
            try:
                log.flush(None if everything else log.segments[-1].base_offset)
            except StorageError:
                _logger.exception("%s cannot be flushed and takes no more messages", log.directory)
                continue
            if everything:
                self._flushed_ms[partition] = now_ms
            if dirty:
                flushed.append(partition)
        return flushed

    def checkpoint_recovery_points(self) -> None:
        """Write down how far each log is flushed, so that recovery has less to check.

        Where it is not possible, a warning says so, once until it is possible again.
        """
        for directory in self._directories:
            self._checkpoint(directory)

    def close(self) -> None:
        """Flush and close all logs, write checkpoints and clean-shutdown markers, release the locks.

        A directory with a log that failed gets no marker; the others do, where it can be written. The first
        StorageError of a log is raised at the end: messages may be lost.
        """
        first: StorageError | None = None
        for directory in self._directories:
            try:
                self._close_directory(directory)
            except StorageError as error:
                _logger.error("%s is not closed cleanly: %s", directory.path, error)
                first = first or error
        self._leave()
        if first is not None:
            raise first

    def _enter(self, path: str) -> _Directory:
        files = self._files
        make_dirs_durably(files, path)
        lock = files.lock(os.path.join(path, LOCK_FILE))
        try:
            for name in files.list_dir(path):
                if name.endswith(DELETED_SUFFIX) and files.is_dir(os.path.join(path, name)):
                    files.remove_tree(os.path.join(path, name))
            return _Directory(path, Layout.recognise(files, path) or self._layout, lock)
        except BaseException:
            lock.release()
            raise

    def _open_directory(self, directory: _Directory, overrides: Overrides) -> None:
        files = self._files
        marker = directory.file(CLEAN_SHUTDOWN_FILE)
        clean = files.exists(marker)
        try:
            points = read_checkpoint(files, directory.file(RECOVERY_POINT_FILE))
        except StorageError as error:
            _logger.warning("%s; all segments will be checked", error)
            points, clean = {}, False
        for partition, path in self._partitions_in(directory):
            if partition in self._homes:
                other = self._homes[partition].path
                raise StorageError(f"{partition} lies in {other} and in {directory.path}; move one away")
            point = points.get(partition, 0)
            settings = overrides.get(partition.topic, {})
            try:
                self._open(partition, directory, settings, clean=clean, recovery_point=point)
            except (StorageError, FileNotFoundError) as error:
                _logger.warning("%s cannot be opened, it is tried again: %s", path, error)
        directory.points = points
        if directory.points_lie_too_far(self._points_of(directory)):
            self._checkpoint(directory)
        if files.exists(marker):
            files.remove(marker)
            files.sync_dir(directory.path)

    def _open(
        self,
        partition: TopicPartition,
        directory: _Directory,
        overrides: Mapping[str, str],
        *,
        clean: bool,
        recovery_point: int,
    ) -> Log:
        config = self._config_of(partition.topic, overrides)
        if partition.topic in INTERNAL_TOPICS:
            # Compacted in every cluster: recovery must not take their holes for losses.
            config = replace(config, compacted=True)
        # First of all: while it cannot be opened, nobody may make it anew in another directory.
        directory.partitions.add(partition)
        self._homes[partition] = directory
        self._unopened[partition] = recovery_point
        path = directory.file(directory.layout.directory_name(partition))
        log = Log.open(
            self._files, path, config, directory.layout, clean=clean, recovery_point=recovery_point
        )
        if log.recovery is not None:
            _logger.warning("%s", log.recovery)
        log.flushing = self._new_mutex()
        self._flushed_ms[partition] = self._clock.monotonic_ms()
        self._logs[partition] = log
        del self._unopened[partition]
        return log

    def _partitions_in(self, directory: _Directory) -> Iterator[tuple[TopicPartition, str]]:
        for name in self._files.list_dir(directory.path):
            partition = directory.layout.partition_of(name)
            path = directory.file(name)
            if partition is None or not self._files.is_dir(path):
                continue
            if directory.layout.fits(self._files, path):
                yield partition, path

    def _config_of(self, topic: str, overrides: Mapping[str, str]) -> LogConfig:
        config, problems = self._config.with_known_overrides(overrides)
        # Once for all partitions, and again only when something has changed.
        if problems and problems != self._warned.get(topic):
            _logger.warning(
                "topic %s: properties that cannot be used are left out: %s", topic, "; ".join(problems)
            )
        self._warned[topic] = problems
        return config

    def _in(self, directory: _Directory) -> list[tuple[TopicPartition, Log]]:
        logs = self.logs()
        return [
            (partition, logs[partition]) for partition in sorted(directory.partitions) if partition in logs
        ]

    def _points_of(self, directory: _Directory) -> dict[TopicPartition, int]:
        points = {partition: log.recovery_point for partition, log in self._in(directory)}
        for partition, point in dict(self._unopened).items():
            if partition in directory.partitions:
                points.setdefault(partition, point)
        return points

    def _checkpoint(self, directory: _Directory) -> bool:
        """Write the recovery points down; whether that was possible.

        StorageError when an old checkpoint that is wrong by now can be neither replaced nor removed.
        """
        path = directory.file(RECOVERY_POINT_FILE)
        with self._mutex:
            points = self._points_of(directory)
            try:
                write_checkpoint(self._files, path, points)
            except StorageError as error:
                if directory.points_lie_too_far(points):
                    with contextlib.suppress(FileNotFoundError):
                        self._files.remove(path)
                        self._files.sync_dir(directory.path)
                    directory.points = {}
                else:
                    # The new ones may be there: the failure can have come behind the renaming.
                    directory.points |= points
                if str(error) != directory.checkpoint_problem:
                    _logger.warning(
                        "%s; until it can be, the next start may have more to check: make room, or mend "
                        "the disk",
                        error,
                    )
                directory.checkpoint_problem = str(error)
                return False
            directory.points, directory.checkpoint_problem = points, None
            return True

    def _close_directory(self, directory: _Directory) -> None:
        first: StorageError | None = None
        for _, log in self._in(directory):
            try:
                log.close()
            except StorageError as error:
                first = first or error
        written = self._checkpoint(directory)
        if first is not None:
            raise first
        if written and directory.partitions.isdisjoint(self._unopened):
            self._mark_clean(directory)

    def _mark_clean(self, directory: _Directory) -> None:
        try:
            marker = self._files.open(directory.file(CLEAN_SHUTDOWN_FILE), create=True)
            try:
                marker.sync()
            finally:
                marker.close()
            self._files.sync_dir(directory.path)
        except StorageError as error:
            _logger.warning("%s; all messages are flushed, but the next start checks the logs", error)

    def _leave(self) -> None:
        for directory in self._directories:
            directory.lock.release()
        self._directories = []
        self._logs = {}
        self._homes = {}
        self._flushed_ms = {}
        self._unopened = {}

    def _rubbish_of(self, directory: _Directory, partition: TopicPartition) -> list[str]:
        name = re.escape(directory.layout.directory_name(partition))
        pattern = re.compile(rf"{name}\.\d+{re.escape(DELETED_SUFFIX)}")
        return [
            directory.file(found)
            for found in self._files.list_dir(directory.path)
            if pattern.fullmatch(found)
        ]

    def _free_rubbish_name(self, path: str) -> str:
        number = 0
        while self._files.exists(f"{path}.{number}{DELETED_SUFFIX}"):
            number += 1
        return f"{path}.{number}{DELETED_SUFFIX}"
