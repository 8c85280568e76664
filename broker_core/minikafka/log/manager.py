"""All logs of a broker, in one or more data directories (``data_directory`` has the files that lie in one).

Orders that matter: the marker goes before the first append can come, and is made after all logs are flushed
and the checkpoint is written; a checkpoint is written, or the old one removed, before a log may grow again
that was deleted or truncated, as a recovery point past a log's end would later keep damage from being looked
for. One that is too low, or none, only makes recovery longer: a disk that is full stops neither open, delete
nor close.

A new partition goes to the directory that holds the fewest. Each directory keeps the layout that it has. One
that cannot be used is left out, and the others are served; but while it is, a partition that may lie in it is
not made anew elsewhere.

Files of deleted segments are renamed at once and removed ``file.delete.delay.ms`` later.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from minikafka.base.clock import Clock
from minikafka.base.errors import BrokerError, DirectoryLocked, ErrorCode, StorageError
from minikafka.base.files import Files
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition, check_topic_name
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.checkpoints.high_watermarks import HighWatermarkCheckpoints
from minikafka.log.checkpoints.leader_epoch_journal import LeaderEpochJournal
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnations, Tree
from minikafka.log.cleanup.cleaner_control import CleanerControl
from minikafka.log.cleanup.file_deletion import FileDeletion, remove_partitions
from minikafka.log.config import LogConfig
from minikafka.log.layout import STRAY_SUFFIX, Layout
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import LoadHints
from minikafka.log.recovery.opening_progress import OpeningProgress
from minikafka.log.retention import SegmentFacts

Overrides = Mapping[str, Mapping[str, str]]
"""Topic -> its own properties."""

Jobs = Sequence[Callable[[], None]]


_LONG_AGO_MS = -(1 << 62)

_logger = logging.getLogger(__name__)


def run_sequentially(jobs: Jobs) -> None:
    """Run jobs here and now."""
    for job in jobs:
        job()


class LogManager:
    """The logs of all partitions that a broker has.

    One thread opens, creates, deletes, truncates and closes. ``flush_dirty_logs``,
    ``delete_old_segments``, ``file_deletion`` and ``checkpoint_offsets`` may run on another one, and
    ``Log.flush`` on any, when ``new_mutex`` makes locks.
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
        run_all: Callable[[Jobs], None] = run_sequentially,
    ) -> None:
        """``config`` has the broker's defaults; ``layout`` is that of directories that hold nothing yet.

        ``run_all`` runs jobs to their end, in any order, at once where it can: opening and closing of logs.
        """
        self._new_mutex = new_mutex
        self._run_all = run_all
        self._files = files
        self._paths = [path.rstrip("/") or "/" for path in directories]
        self._config = config
        self._layout = layout
        self._clock = clock
        self._directories: list[DataDirectory] = []
        self._offline: dict[str, str] = {}
        """Directories that cannot be used, and why."""
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, DataDirectory] = {}
        self._flushed_ms: dict[TopicPartition, int] = {}
        self._unopened: dict[TopicPartition, LoadHints] = {}
        """Partitions that lie here and could not be opened."""
        self.file_deletion = FileDeletion(files, clock)
        self._warned: dict[str, list[str]] = {}
        self.high_watermarks = HighWatermarkCheckpoints()
        self.topic_incarnations = TopicIncarnations(files)
        """Which topics the logs are of."""
        self.epoch_journal = LeaderEpochJournal(files)
        self.cleaner_control: CleanerControl | None = None
        """Told before a log is truncated or deleted, and after it."""

    def open_all(self, overrides: Overrides | None = None, tree: Tree | None = None) -> None:
        """Lock the directories, made when absent, and open and recover every log in them.

        DirectoryLocked when another process holds one; StorageError when none can be used, or a partition
        lies in two. Then nothing stays locked. A log that cannot be opened, while its directory can, is told
        and left to ``create``. ``overrides`` should name at least the compacted topics: in others, a hole
        between segments that were not flushed counts as loss and ends the log. Of overrides, here and below,
        what cannot be used, as of a newer Kafka, is skipped with a warning. ``tree``: for the incarnations.
        """
        try:
            for path in self._paths:
                self._enter(path)
            progress = OpeningProgress(self._clock, _logger)
            jobs: list[Callable[[], None]] = []
            for directory in tuple(self._directories):
                try:
                    jobs += self._jobs_of(directory, overrides or {}, progress)
                except (DirectoryLocked, _DuplicatePartition):
                    raise
                except (StorageError, FileNotFoundError) as error:
                    self._mark_offline(directory.path, error)
                    directory.leave()
                    self._directories.remove(directory)
                    self._directory_of = {
                        one: at for one, at in self._directory_of.items() if at is not directory
                    }
            self._run_all(jobs)
            progress.end()
            for directory in self._directories:
                for file, offsets in (
                    (directory.recovery_points, self._recovery_points_of(directory)),
                    (directory.start_offsets, self._start_offsets_of(directory)),
                ):
                    if file.holds_too_much(offsets):
                        file.write(offsets)
                directory.unmark()
            if tree is not None:
                self.topic_incarnations.begin(tree)
        except BaseException:
            self._leave()
            raise

    @property
    def paths(self) -> tuple[str, ...]:
        """The data directories that are in use."""
        return tuple(directory.path for directory in self._directories)

    @property
    def offline_paths(self) -> tuple[str, ...]:
        """The data directories that are left out, as they could not be opened, and those that are gone."""
        return (*self._offline, *(one.path for one in self._directories if one.failure is not None))

    def by_directory(self) -> dict[str, list[tuple[TopicPartition, Log]]]:
        """The logs in each data directory that is in use, in order."""
        return {directory.path: self._in(directory) for directory in self._directories}

    def get(self, partition: TopicPartition) -> Log | None:
        """The partition's log; None when there is none here."""
        return self._logs.get(partition)

    def logs(self) -> dict[TopicPartition, Log]:
        """All logs: a copy, safe to go through while others come and go."""
        return dict(self._logs)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of which anything lies here."""
        return tuple(self._directory_of)

    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """The topic's partitions of which anything lies here."""
        return tuple(sorted(partition for partition in list(self._directory_of) if partition.topic == topic))

    def create(
        self,
        partition: TopicPartition,
        overrides: Mapping[str, str] | None = None,
        *,
        new: bool = True,
        flush_name: bool = True,
    ) -> Log:
        """The partition's log, made where the fewest are when there is none.

        Its directory's name is flushed on return, or by ``flush_names``: what lies in it is with the first
        messages, as an empty directory is an empty log. One that could not be opened is opened again, where
        it lies. ``new``: it was never made before, so it cannot lie in a directory that is left out.
        INVALID_TOPIC for a wrong name, StorageError when no disk takes it.
        """
        log = self._logs.get(partition)
        if log is not None and not log.closed:
            return log
        if partition in self._unopened:
            home, known = self._directory_of[partition], self._unopened[partition]
            return self._create_in(home, partition, overrides, known, flush_name=flush_name)
        if self._offline and not new:
            path, reason = next(iter(self._offline.items()))
            raise StorageError(
                f"cannot create the log of {partition}: it may exist in {path}, which is offline: {reason}"
            )
        self.delete(partition)  # what an earlier deletion may have left
        check_topic_name(partition.topic)
        homes = sorted(self._present(), key=lambda home: len(home.partitions))
        for home in homes:
            try:
                return self._create_in(home, partition, overrides, LoadHints(), flush_name=flush_name)
            except StorageError as error:
                if home is homes[-1]:
                    raise
                try:
                    self.delete(partition)
                except StorageError:
                    raise error from None  # what lies there must not lie in two directories
                _logger.warning(
                    "failed to create the log of %s in %s, trying another directory: %s",
                    partition,
                    home.path,
                    error,
                )
        raise StorageError(f"cannot create the log of {partition}: no data directory is online")

    def _create_in(
        self,
        home: DataDirectory,
        partition: TopicPartition,
        overrides: Mapping[str, str] | None,
        known: LoadHints,
        *,
        flush_name: bool,
    ) -> Log:
        if home.failure is not None:
            raise StorageError(home.failure)
        log = self._open(partition, home, overrides or {}, known)
        try:
            if log.size_bytes:
                log.flush()  # it was given up, perhaps because of what the disk has
            if home.may_hold_above(partition, log.recovery_point):
                self._checkpoint(home)
            if flush_name:
                self._files.sync_dir(home.path)
        except (StorageError, FileNotFoundError):
            self.give_up(partition)
            raise
        return log

    def flush_names(self) -> None:
        """Flush the names of partitions that were made. StorageError when a disk fails."""
        for directory in self._present():
            self._files.sync_dir(directory.path)

    def find_removed(self) -> str | None:
        """Have logs whose files somebody removed, or moved away, take no more messages; the reason when that
        befell every data directory.

        What is written to such a file is read, and no restart finds it.
        """
        for directory in self._directories:
            known, gone = directory.failure, directory.find_removed()
            if gone and known is None:
                _logger.error("%s; all its logs are offline", directory.failure)
            for partition, log in self._in(directory):
                if directory.failure is not None:
                    log.fail(directory.failure)
                elif log.failure is None and not log.closed and log.find_removed():
                    _logger.error("log of %s is offline: %s", partition, log.failure)
        lost = [directory.failure for directory in self._directories]
        return None if None in lost else next(iter(lost), None)

    def _present(self) -> list[DataDirectory]:
        return [directory for directory in self._directories if directory.failure is None]

    def give_up(self, partition: TopicPartition) -> None:
        """Let go of a log that nobody serves yet, so that ``create`` opens and recovers it anew."""
        log = self._logs.pop(partition)
        log.abandon()
        self._unopened[partition] = LoadHints(
            recovery_point=log.recovery_point, start_offset=log.start_offset
        )

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        self.high_watermarks.forget(partitions)
        self.epoch_journal.forget(partitions)
        for partition in partitions:
            self.topic_incarnations.forget(partition)
            self._directory_of.pop(partition).partitions.discard(partition)
            self._unopened.pop(partition, None)
            self._logs.pop(partition, None)
            self._flushed_ms.pop(partition, None)

    def delete(self, partition: TopicPartition) -> bool:
        """``delete_all`` of one; False when there is none. Raises StorageError."""
        here = partition in self._directory_of
        for error in self.delete_all((partition,)).values():
            raise error
        return here

    def delete_all(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StorageError]:
        """Remove partitions and their files; those that could not be removed, which take no more messages:
        another call goes on with the rest. Reads in progress keep their files.

        The directories are renamed first: a crash leaves a partition, or rubbish that the next open removes.
        One that was removed by hand counts as deleted.
        """
        failed: dict[TopicPartition, StorageError] = {}
        wanted = dict.fromkeys(partitions)
        for home in self._directories:
            here = [partition for partition in wanted if self._directory_of.get(partition) is home]
            if here:
                with contextlib.ExitStack() as guarded:
                    for partition in here:
                        guarded.enter_context(self._guarded(partition, gone=True))
                    failed |= remove_partitions(
                        self._files,
                        home,
                        here,
                        put_away=partial(self._put_away, home),
                        checkpoint=partial(self._checkpoint, home),
                        forget=self._forget,
                    )
        return failed

    def _put_away(self, home: DataDirectory, partition: TopicPartition) -> None:
        log = self._logs.get(partition)
        if log is not None:
            log.abandon()
        if home.failure is None and (log is not None or partition in self._unopened):
            # Removed by hand counts as removed.
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(home.partition_path(partition), home.unused_path(partition))
            self._logs.pop(partition, None)
            self._unopened.pop(partition, None)
            self._flushed_ms.pop(partition, None)

    def mark_stray(self, partition: TopicPartition) -> str | None:
        """Serve what lies here of the partition no longer, and keep it under another name, which is returned;
        None when nothing lies here. After a StorageError another call goes on.
        """
        home, log = self._directory_of.get(partition), self._logs.get(partition)
        if home is None:
            return None
        if home.failure is not None:
            self.delete(partition)
            return None
        path = home.partition_path(partition)
        aside = home.unused_path(partition, STRAY_SUFFIX)
        with self._guarded(partition, gone=True):
            if log is not None:
                log.abandon()
            # Removed by hand, or set aside by a call before this one.
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, aside)
            self._files.sync_dir(home.path)
            self._forget((partition,))
            self._checkpoint(home)
        return aside

    def truncate(self, partition: TopicPartition, offset: int, *, anew: bool = False) -> None:
        """Truncate the log, or with ``anew`` begin it at ``offset``, and write the checkpoint."""
        with self._guarded(partition, gone=False):
            log, home = self._logs[partition], self._directory_of[partition]
            log.truncate_fully_and_start_at(offset) if anew else log.truncate_to(offset)
            if anew or home.may_hold_above(partition, offset):
                self._checkpoint(home)

    @contextlib.contextmanager
    def _guarded(self, partition: TopicPartition, *, gone: bool) -> Iterator[None]:
        guard = self.cleaner_control
        if guard is not None:
            guard.pause(partition)
        try:
            yield
        finally:
            if guard is not None:
                (guard.forget if gone else guard.resume)(partition)

    def increment_start_offset(self, partition: TopicPartition, offset: int) -> None:
        """``Log.increment_start_offset``, so that it holds over restarts.

        UNKNOWN_TOPIC_OR_PARTITION for no log; StorageError where it may not hold over one.
        """
        log, home = self._logs.get(partition), self._directory_of.get(partition)
        if log is None or home is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        log.increment_start_offset(offset)
        with home.writing:
            if not self._write_starts(home):
                raise StorageError(f"cannot write {home.start_offsets.path}")

    def set_overrides(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Give the topic's logs these properties over the broker's from now on."""
        config = self._config_of(topic, overrides)
        for partition, log in self.logs().items():
            if partition.topic == topic:
                log.config = config

    def flush_dirty_logs(self, now_ms: int | None = None) -> list[TopicPartition]:
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
                _logger.exception("failed to flush log %s; it is offline until the next start", log.directory)
                continue
            if everything:
                self._flushed_ms[partition] = now_ms
            if dirty:
                flushed.append(partition)
        return flushed

    def delete_old_segments(
        self, readable: Callable[[TopicPartition, Log], int], now_ms: int | None = None
    ) -> int:
        """Delete the segments that the policies of each log no longer want; how many files are to go.

        ``readable`` gives the offset that consumers may read up to (high watermark): nothing above it goes.
        ``now_ms`` is wall-clock time. A log where that fails is told, the others go on.
        """
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        count = 0
        for partition, log in self.logs().items():
            try:
                before, size = log.start_offset, log.size_bytes
                gone = log.delete_old_segments(
                    partial(_expired, log.config, now_ms), readable(partition, log), now_ms
                )
            except Exception as error:  # noqa: BLE001 - a policy of the operator's own can raise anything
                _logger.error("failed to delete old segments of %s: %s", partition, error)
                continue
            if gone:
                _logger.info(
                    "%s: deleted offsets %d to %d, %d bytes",
                    partition,
                    before,
                    log.start_offset - 1,
                    size - log.size_bytes,
                )
                self.file_deletion.add(log, gone)
                count += len(gone)
        return count

    def remove_expired_producers(self, now_ms: int | None = None) -> int:
        """Let each log forget the producers that were silent for too long; how many. ``now_ms`` is wall-clock
        time.
        """
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        return sum(log.remove_expired_producers(now_ms) for log in self.logs().values())

    def checkpoint_offsets(self) -> None:
        """Write down how far each log is flushed, so that recovery has less to check, and where it starts.

        Where it is not possible, a warning says so, once until it is possible again.
        """
        for directory in self._directories:
            self._checkpoint(directory)
        for log in self.logs().values():
            log.epochs.save()

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
                _logger.error("failed to close data directory %s cleanly: %s", directory.path, error)
                first = first or error
        self._leave()
        if first is not None:
            raise first

    def _enter(self, path: str) -> None:
        try:
            self._directories.append(DataDirectory.enter(self._files, path, self._layout, self._new_mutex()))
        except DirectoryLocked:
            raise
        except (StorageError, FileNotFoundError) as error:
            self._mark_offline(path, error)

    def _mark_offline(self, path: str, error: Exception) -> None:
        if len(self._offline) + 1 == len(self._paths):
            raise error
        self._offline[path] = str(error)
        _logger.error("data directory %s is offline until the next start: %s", path, error)

    def _jobs_of(
        self, directory: DataDirectory, overrides: Overrides, progress: OpeningProgress
    ) -> list[Callable[[], None]]:
        clean, points, starts = directory.is_clean(), {}, {}
        try:
            points = directory.recovery_points.read()
        except StorageError as error:
            _logger.warning("%s; all segments will be checked", error)
            clean = False
        try:
            starts = directory.start_offsets.read()
        except StorageError as error:
            _logger.warning("%s; deleted messages may be readable again", error)
        self.high_watermarks.enter(directory)
        jobs: list[Callable[[], None]] = []
        found = dict(directory.found())
        self.topic_incarnations.enter(directory, found)
        self.epoch_journal.enter(directory, found)
        for partition, path in found.items():
            if partition in self._directory_of:
                other = self._directory_of[partition].path
                raise _DuplicatePartition(
                    f"duplicate logs of {partition} in {other} and {directory.path}; move one of them away"
                )
            self._directory_of[partition] = directory
            known = LoadHints(clean, points.get(partition, 0), starts.get(partition, 0), progress.advance)
            progress.expect()
            jobs.append(partial(self._open_found, partition, path, overrides, known, progress))
        return jobs

    def _open_found(
        self,
        partition: TopicPartition,
        path: str,
        overrides: Overrides,
        known: LoadHints,
        progress: OpeningProgress,
    ) -> None:
        try:
            self._open(partition, self._directory_of[partition], overrides.get(partition.topic, {}), known)
        except (StorageError, FileNotFoundError) as error:
            _logger.warning("failed to open log %s, will retry: %s", path, error)
        progress.opened()

    def _open(
        self,
        partition: TopicPartition,
        directory: DataDirectory,
        overrides: Mapping[str, str],
        known: LoadHints,
    ) -> Log:
        config = self._config_of(partition.topic, overrides)
        # First of all: while it cannot be opened, nobody may make it anew in another directory.
        directory.partitions.add(partition)
        self._directory_of[partition] = directory
        known = replace(known, journal_epochs=self.epoch_journal.of(partition))
        self._unopened[partition] = replace(known, clean=False)
        log = Log.open(
            self._files,
            directory.partition_path(partition),
            config,
            directory.layout,
            known,
            now_ms=self._clock.now_ms(),
            new_mutex=self._new_mutex,
        )
        if log.recovery is not None:
            _logger.warning("%s", log.recovery)
        # What recovery found may be of any age: the first look flushes it.
        self._flushed_ms[partition] = _LONG_AGO_MS if log.unflushed_messages else self._clock.monotonic_ms()
        self._logs[partition] = log
        del self._unopened[partition]
        return log

    def _config_of(self, topic: str, overrides: Mapping[str, str]) -> LogConfig:
        config, problems = self._config.with_known_overrides(overrides)
        # Once for all partitions, and again only when something has changed.
        if problems and problems != self._warned.get(topic):
            _logger.warning("topic %s: ignoring invalid properties: %s", topic, "; ".join(problems))
        self._warned[topic] = problems
        if topic in INTERNAL_TOPICS:
            # Compacted in every cluster: recovery must not take their holes for losses.
            config = replace(config, compacted=True)
        return config

    def _in(self, directory: DataDirectory) -> list[tuple[TopicPartition, Log]]:
        logs = self.logs()
        return [
            (partition, logs[partition]) for partition in sorted(directory.partitions) if partition in logs
        ]

    def _recovery_points_of(self, directory: DataDirectory) -> dict[TopicPartition, int]:
        points = {partition: log.recovery_point for partition, log in self._in(directory)}
        for partition, known in dict(self._unopened).items():
            if partition in directory.partitions:
                points.setdefault(partition, known.recovery_point)
        return points

    def _start_offsets_of(self, directory: DataDirectory) -> dict[TopicPartition, int]:
        """Only those that the names of segments do not tell, or might not after a power cut."""
        starts = {
            partition: log.start_offset
            for partition, log in self._in(directory)
            if log.start_offset > log.segment_start_offset
        }
        for partition, known in dict(self._unopened).items():
            if partition in directory.partitions and known.start_offset:
                starts.setdefault(partition, known.start_offset)
        return starts

    def _checkpoint(self, directory: DataDirectory) -> bool:
        """Write the offsets; return whether that succeeded. Raises as ``OffsetCheckpointFile.write``."""
        if directory.failure is not None:
            return False
        with directory.writing:
            written = self._write_starts(directory)
            return directory.recovery_points.write(self._recovery_points_of(directory)) and written

    def _write_starts(self, directory: DataDirectory) -> bool:
        starts = self._start_offsets_of(directory)
        return directory.start_offsets.holds(starts) or directory.start_offsets.write(starts)

    def _close_directory(self, directory: DataDirectory) -> None:
        errors: list[StorageError] = []

        def close(log: Log) -> None:
            try:
                log.close()
            except StorageError as error:
                errors.append(error)

        self._run_all([partial(close, log) for _, log in self._in(directory)])
        written = self._checkpoint(directory)
        if errors:
            raise errors[0]
        if written and directory.partitions.isdisjoint(self._unopened):
            directory.mark_clean()

    def _leave(self) -> None:
        for directory in self._directories:
            directory.leave()
        self._directories = []
        self._offline = {}
        self._logs = {}
        self._directory_of = {}
        self._flushed_ms = {}
        self._unopened = {}
        self.file_deletion = FileDeletion(self._files, self._clock)


class _DuplicatePartition(StorageError):
    """A partition lies in two directories."""


def _expired(config: LogConfig, now_ms: int, segments: Sequence[SegmentFacts]) -> int:
    return max((policy.expired(segments, config.limits, now_ms) for policy in config.policies), default=0)
