"""All logs of a broker, in one or more data directories (``data_directory`` has the files in one).

The order of steps matters. The clean-shutdown marker is removed before the first append, and created after
all logs are flushed and the checkpoint is written. After a log was deleted or truncated, the checkpoint is
written, or the old one removed, before the log may grow again: a recovery point past a log's end would later
hide damage. A recovery point that is too low, or missing, only makes recovery longer: a full disk stops
neither open, delete nor close.

A new partition goes to the directory with the fewest partitions. Each directory keeps its layout. A directory
that cannot be used is offline, and the others are served; but meanwhile no partition that may be in it is
created again elsewhere.

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
from minikafka.base.metrics import TimeHistogram
from minikafka.log import maintenance
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.checkpoints.high_watermarks import HighWatermarkCheckpoints
from minikafka.log.checkpoints.leader_epoch_journal import LeaderEpochJournal
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnations, Tree
from minikafka.log.cleanup.cleaner_control import CleanerControl
from minikafka.log.cleanup.file_deletion import FileDeletion, remove_partitions
from minikafka.log.config import LogConfig
from minikafka.log.future_logs import FutureLogs
from minikafka.log.layout import STRAY_DIR_SUFFIX, Layout
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import LoadHints
from minikafka.log.recovery.opening_progress import OpeningProgress

Overrides = Mapping[str, Mapping[str, str]]
"""Topic -> its properties."""

Jobs = Sequence[Callable[[], None]]

_LONG_AGO_MS = -(1 << 62)
_logger = logging.getLogger(__name__)


def run_sequentially(jobs: Jobs) -> None:
    """Run the jobs one after the other on this thread."""
    for job in jobs:
        job()


class LogManager:
    """The logs of all partitions of a broker.

    One thread opens, creates, deletes, truncates and closes. ``flush_dirty_logs``,
    ``delete_old_segments``, ``file_deletion`` and ``checkpoint_offsets`` may run on another one, and
    ``Log.flush`` on any thread, when ``new_mutex`` creates locks.
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
        flush_times: TimeHistogram | None = None,
    ) -> None:
        """``config`` has the ``defaults``, which may be replaced; ``layout`` is that of empty directories.

        ``run_all`` runs jobs to their end, in any order, in parallel if it can: opening and closing of logs.
        ``flush_times``: see ``Log.open``.
        """
        self._flush_times = flush_times
        self._new_mutex = new_mutex
        self._run_all = run_all
        self._files = files
        self._paths = [path.rstrip("/") or "/" for path in directories]
        self.defaults = config
        self._layout = layout
        self._clock = clock
        self._directories: list[DataDirectory] = []
        self._offline: dict[str, str] = {}
        """Data directory that cannot be used -> the reason."""
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, DataDirectory] = {}
        self._flushed_ms: dict[TopicPartition, int] = {}
        self._unopened: dict[TopicPartition, LoadHints] = {}
        """Partitions on disk whose logs could not be opened."""
        self.file_deletion = FileDeletion(files, clock)
        self._warned: dict[str, list[str]] = {}
        self.high_watermarks = HighWatermarkCheckpoints()
        self.topic_incarnations = TopicIncarnations(files, new_mutex())
        """The incarnation of the topic of each log."""
        self.epoch_journal = LeaderEpochJournal(files)
        self.cleaner_control: CleanerControl | None = None
        """Called before and after a log is truncated, deleted or moved."""
        self.futures = FutureLogs(files, self, clock, new_mutex)
        """The logs that move to another data directory."""

    def open_all(self, overrides: Overrides | None = None, tree: Tree | None = None) -> None:
        """Lock the directories, created when absent, and open and recover every log in them.

        Raises DirectoryLocked when another process uses one; StorageError when none can be used, or a
        partition is in two. Then nothing stays locked. A log that cannot be opened in a usable directory is
        reported and left to ``create``. ``overrides`` should name at least the compacted topics: in others, a
        hole between unflushed segments counts as loss and ends the log. Here and below, invalid overrides,
        such as those of a newer Kafka, are skipped with a warning. ``tree``: for the topic incarnations.
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
                        partition: at for partition, at in self._directory_of.items() if at is not directory
                    }
            self._run_all(jobs)
            progress.end()
            self.futures.settle(some_offline=bool(self._offline))
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
        """The data directories that could not be opened, and those that failed or were removed since."""
        failed = (directory.path for directory in self._directories if directory.failure is not None)
        return (*self._offline, *failed)

    def by_directory(self) -> dict[DataDirectory, list[tuple[TopicPartition, Log]]]:
        """Return the logs in each data directory that is in use, in order, with the future logs."""
        return {directory: self._in(directory) for directory in self._directories}

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the partition's log; None when there is none."""
        return self._logs.get(partition)

    def logs(self) -> dict[TopicPartition, Log]:
        """Return all logs, as a copy that is safe to iterate while logs are created and deleted."""
        return dict(self._logs)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have a directory here."""
        return tuple(self._directory_of)

    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """Return the topic's partitions that have a directory here."""
        return tuple(sorted(partition for partition in list(self._directory_of) if partition.topic == topic))

    def create(
        self,
        partition: TopicPartition,
        overrides: Mapping[str, str] | None = None,
        *,
        new: bool = True,
        flush_name: bool = True,
    ) -> Log:
        """Return the partition's log, created in the directory with the fewest partitions when absent.

        The name of its directory is flushed on return, or by ``flush_names``; the directory's content is
        flushed with the first messages, as an empty directory is an empty log. A log that could not be opened
        is opened again in place. ``new``: the log was never created before, so it cannot be in an offline
        directory. Raises INVALID_TOPIC for a wrong name, StorageError when no disk accepts it.
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
        preferred = self.futures.preferred.pop(partition, None)
        self.delete(partition)  # an earlier deletion may have left files
        check_topic_name(partition.topic)
        homes = sorted(self._present(), key=lambda home: (home.path != preferred, len(home.partitions)))
        for home in homes:
            try:
                return self._create_in(home, partition, overrides, LoadHints(), flush_name=flush_name)
            except StorageError as error:
                if home is homes[-1]:
                    raise
                try:
                    self.delete(partition)
                except StorageError:
                    raise error from None  # a partition must not be in two directories
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
                log.flush()  # it was closed by ``give_up``, perhaps with unflushed messages
            if home.may_hold_above(partition, log.recovery_point):
                self.checkpoint(home)
            if flush_name:
                self._files.sync_dir(home.path)
        except (StorageError, FileNotFoundError):
            self.give_up(partition)
            raise
        return log

    def flush_names(self) -> None:
        """Flush the directory names of created partitions. Raises StorageError when a disk fails."""
        for directory in self._present():
            self._files.sync_dir(directory.path)

    def find_removed(self) -> str | None:
        """Take logs offline whose files were removed or moved away; return a reason if all directories were.

        Records that are written to such a file can be read, but no restart finds them.
        """
        for directory in self._directories:
            known, removed = directory.failure, directory.find_removed()
            if removed and known is None:
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
        """Abandon a log that is not served yet, so that ``create`` opens and recovers it again."""
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
        """Delete one partition as ``delete_all`` does; False when it is not here. Raises StorageError."""
        here = partition in self._directory_of
        for error in self.delete_all((partition,)).values():
            raise error
        return here

    def delete_all(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StorageError]:
        """Delete partitions and their files; return those that could not be deleted, with the errors.

        Those accept no more messages, and another call continues. Reads in progress keep their files. The
        directories are renamed first: a crash leaves a partition, or files that the next open removes. A
        directory that was removed by hand counts as deleted.
        """
        wanted = dict.fromkeys(partitions)
        failed = self.futures.drop_all(wanted)  # a later log of that name must not find them
        for home in self._directories:
            here = [key for key in wanted if self._directory_of.get(key) is home and key not in failed]
            if here:
                with contextlib.ExitStack() as paused:
                    for partition in here:
                        paused.enter_context(self._cleaning_paused(partition, deleted=True))
                    failed |= remove_partitions(
                        self._files,
                        home,
                        here,
                        put_away=partial(self._put_away, home),
                        checkpoint=partial(self.checkpoint, home),
                        forget=self._forget,
                    )
        return failed

    def _put_away(self, home: DataDirectory, partition: TopicPartition) -> None:
        log = self._logs.get(partition)
        if log is not None:
            log.abandon()
        if home.failure is None and (log is not None or partition in self._unopened):
            # A directory that was removed by hand counts as deleted.
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(home.partition_path(partition), home.unused_path(partition))
            self._logs.pop(partition, None)
            self._unopened.pop(partition, None)
            self._flushed_ms.pop(partition, None)

    def mark_stray(self, partition: TopicPartition) -> str | None:
        """Stop serving the partition, rename its directory, and return the new path; None when it is not
        here. After a StorageError another call continues.
        """
        home, log = self._directory_of.get(partition), self._logs.get(partition)
        if home is None:
            return None
        if home.failure is not None:
            self.delete(partition)
            return None
        self.futures.drop(partition)
        path = home.partition_path(partition)
        stray = home.unused_path(partition, STRAY_DIR_SUFFIX)
        with self._cleaning_paused(partition, deleted=True):
            if log is not None:
                log.abandon()
            # It may have been removed by hand, or renamed by an earlier call.
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, stray)
            self._files.sync_dir(home.path)
            self._forget((partition,))
            self.checkpoint(home)
        return stray

    def truncate(self, partition: TopicPartition, offset: int, *, restart: bool = False) -> None:
        """Truncate the log, or with ``restart`` restart it at ``offset``, and write the checkpoint."""
        with self._cleaning_paused(partition, deleted=False):
            log, home = self._logs[partition], self._directory_of[partition]
            self.futures.truncate(partition, offset, restart=restart)
            log.truncate_fully_and_start_at(offset) if restart else log.truncate_to(offset)
            if restart or home.may_hold_above(partition, offset):
                self.checkpoint(home)

    @contextlib.contextmanager
    def _cleaning_paused(self, partition: TopicPartition, *, deleted: bool) -> Iterator[None]:
        cleaner = self.cleaner_control
        if cleaner is not None:
            cleaner.pause(partition)
        try:
            yield
        finally:
            if cleaner is not None:
                (cleaner.forget if deleted else cleaner.resume)(partition)
                if not deleted and partition in self.futures:
                    cleaner.pause(partition)

    # Moves to another data directory.

    def home_of(self, partition: TopicPartition) -> DataDirectory | None:
        """Return the data directory of a partition; None when it is not here."""
        return self._directory_of.get(partition)

    def home_at(self, path: str) -> DataDirectory:
        """Return the data directory in use at a path. Raises StorageError."""
        for home in self._present():
            if home.path == path:
                return home
        raise StorageError(f"data directory {path} is offline")

    def adopt(self, partition: TopicPartition, log: Log, home: DataDirectory) -> None:
        """Serve ``log`` as the log of a partition from now on."""
        old_home = self._directory_of.get(partition)
        if old_home is not None:
            old_home.partitions.discard(partition)
        home.partitions.add(partition)
        self._directory_of[partition], self._logs[partition] = home, log
        self._unopened.pop(partition, None)
        self._flushed_ms.setdefault(partition, _LONG_AGO_MS)

    def increment_start_offset(self, partition: TopicPartition, offset: int) -> None:
        """Raise the log's start offset and write the checkpoint, so that it survives a restart.

        Raises UNKNOWN_TOPIC_OR_PARTITION when there is no log; StorageError when it may get lost.
        """
        log, home = self._logs.get(partition), self._directory_of.get(partition)
        if log is None or home is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        log.increment_start_offset(offset)
        if self._logs.get(partition) is not log:  # its copy has replaced it meanwhile
            self.increment_start_offset(partition, offset)
            return
        with home.writing:
            if not self._write_starts(home):
                raise StorageError(f"cannot write {home.start_offsets.path}")

    def set_overrides(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply these properties to the topic's logs, over those of the broker."""
        config = self._config_of(topic, overrides)
        for partition, log in self.logs().items():
            if partition.topic == topic:
                log.config = config

    def flush_dirty_logs(self, now_ms: int | None = None) -> list[TopicPartition]:
        """Run ``maintenance.flush_dirty_logs``. ``now_ms`` is monotonic time (default: now)."""
        now_ms = self._clock.monotonic_ms() if now_ms is None else now_ms
        return maintenance.flush_dirty_logs(self.logs(), self._flushed_ms, now_ms)

    def delete_old_segments(
        self, readable: Callable[[TopicPartition, Log], int], now_ms: int | None = None
    ) -> int:
        """Run ``maintenance.delete_old_segments``. ``now_ms`` is wall-clock time."""
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        return maintenance.delete_old_segments(self.logs(), readable, now_ms, self.file_deletion)

    def remove_expired_producers(self, now_ms: int | None = None) -> int:
        """Remove the producers of each log that were idle for too long; return their number. ``now_ms`` is
        wall-clock time.
        """
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        return sum(log.remove_expired_producers(now_ms) for log in self.logs().values())

    def checkpoint_offsets(self) -> None:
        """Write the recovery points and the start offsets of all logs, so that recovery has less to check.

        A failure is reported by one warning until it succeeds again.
        """
        for directory in self._directories:
            self.checkpoint(directory)
        for log in self.logs().values():
            log.epochs.save()

    def close(self) -> None:
        """Flush and close all logs, write checkpoints and clean-shutdown markers, release the locks.

        A directory with a failed log gets no marker; the others do, if it can be written. The first
        StorageError of a log is raised at the end: messages may be lost.
        """
        first: StorageError | None = None
        self.topic_incarnations.save_topic_ids()
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
        for partition, path in (*directory.found_futures(), *found.items()):
            known = LoadHints(clean, points.get(partition, 0), starts.get(partition, 0), progress.advance)
            if found.get(partition) != path or self.futures.is_replacing(path):
                config = self._config_of(partition.topic, overrides.get(partition.topic, {}))
                jobs.append(partial(self.futures.open_found, partition, path, directory, config, known))
                continue
            if partition in self._directory_of:
                other = self._directory_of[partition].path
                raise _DuplicatePartition(
                    f"duplicate logs of {partition} in {other} and {directory.path}; move one of them away"
                )
            self._directory_of[partition] = directory
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
        # First of all: while it cannot be opened, it must not be created in another directory.
        directory.partitions.add(partition)
        self._directory_of[partition] = directory
        known = replace(known, journal_epochs=self.epoch_journal.of(partition))
        self._unopened[partition] = replace(known, clean=False)
        self.topic_incarnations.load(partition, directory)
        log = Log.open(
            self._files,
            directory.partition_path(partition),
            config,
            directory.layout,
            known,
            now_ms=self._clock.now_ms(),
            new_mutex=self._new_mutex,
            flush_times=self._flush_times,
        )
        if log.recovery is not None:
            _logger.warning("%s", log.recovery)
        # The messages that recovery found may be of any age: the first check flushes them.
        self._flushed_ms[partition] = _LONG_AGO_MS if log.unflushed_messages else self._clock.monotonic_ms()
        self._logs[partition] = log
        del self._unopened[partition]
        return log

    def _config_of(self, topic: str, overrides: Mapping[str, str]) -> LogConfig:
        config, problems = self.defaults.with_known_overrides(overrides)
        # Warn once for all partitions, and again only when something has changed.
        if problems and problems != self._warned.get(topic):
            _logger.warning("topic %s: ignoring invalid properties: %s", topic, "; ".join(problems))
        self._warned[topic] = problems
        if topic in INTERNAL_TOPICS:
            # Compacted in every cluster: recovery must not treat their holes as losses.
            config = replace(config, compacted=True)
        return config

    def _in(self, directory: DataDirectory) -> list[tuple[TopicPartition, Log]]:
        logs = self.logs()
        here = {partition: logs[partition] for partition in set(directory.partitions) if partition in logs}
        return sorted((here | self.futures.logs_in(directory)).items())

    def _recovery_points_of(self, directory: DataDirectory) -> dict[TopicPartition, int]:
        points = {partition: log.recovery_point for partition, log in self._in(directory)}
        for partition, known in dict(self._unopened).items():
            if partition in directory.partitions:
                points.setdefault(partition, known.recovery_point)
        return points

    def _start_offsets_of(self, directory: DataDirectory) -> dict[TopicPartition, int]:
        """Return the start offsets that segment names do not give, or might not give after a power cut."""
        starts = {
            partition: log.start_offset
            for partition, log in self._in(directory)
            if log.start_offset > log.segment_start_offset
        }
        for partition, known in dict(self._unopened).items():
            if partition in directory.partitions and known.start_offset:
                starts.setdefault(partition, known.start_offset)
        return starts

    def checkpoint(self, directory: DataDirectory) -> bool:
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
        written = self.checkpoint(directory)
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
        self.futures = FutureLogs(self._files, self, self._clock, self._new_mutex)


class _DuplicatePartition(StorageError):
    """A partition is in two data directories."""
