"""Future logs: copies of logs that move to another data directory of the same broker (KIP-113).

    T-P.N-future        the future log: it grows until it has all that the current log has
    T-P/log-replacement in the new directory, while the log there replaces the current one: ``pending`` until
                        all is durable, then ``complete``

A move: ``create``, ``copy`` until there is nothing left to copy, ``replace_current``. That runs in these
steps, and the table tells what the next start makes of a crash behind each:

    the copy is closed, marked ``pending`` and named ``T-P``     the longer one of the two logs serves: until
    the last messages are copied, and the copy serves            here the old one is never shorter, and from
      (within one step of the caller: nothing is appended)       then on the new one is not
    the copy is flushed and marked ``complete``                  the new one serves
    the old directory is renamed and removed                     the new one serves
    the mark is removed                                          the move is over

A pending log that does not serve after a start is a future log again. Without a mark two logs of one
partition are refused. A future log never has messages that the current log does not have: a truncation
shortens it first, and what may not be in the current log after a crash is removed before it is copied on.

The cleaner leaves a partition alone while it has a future log. Retention works on the current log only; the
future log follows when it has fallen behind the start.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from minikafka.base.clock import Clock
from minikafka.base.errors import BrokerError, OffsetOutOfRange, StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.checkpoints.high_watermarks import HighWatermarkCheckpoints
from minikafka.log.checkpoints.leader_epoch_journal import LeaderEpochJournal
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnations
from minikafka.log.cleanup.cleaner_control import CleanerControl
from minikafka.log.config import LogConfig
from minikafka.log.layout import LOG_REPLACEMENT_FILE, STRAY_DIR_SUFFIX
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import LoadHints, create_segment
from minikafka.records.append.replicated import replicated

SLICE_BYTES = 1 << 20
"""The bytes that one step copies."""
_SLICES_BEFORE_SWITCH = 64
"""The slices that are copied at most for ``replace_current`` before it gives up and is tried again."""
_PENDING, _COMPLETE = b"pending\n", b"complete\n"

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class FutureLog:
    """A future log. ``mutex`` is held while it is changed."""

    log: Log
    home: DataDirectory
    mutex: AbstractContextManager[object]
    checked: bool = True
    """False after a start, until messages that the current log may not have were removed."""


class CurrentLogs(Protocol):
    """The logs that serve (implemented by ``manager``)."""

    high_watermarks: HighWatermarkCheckpoints
    topic_incarnations: TopicIncarnations
    epoch_journal: LeaderEpochJournal
    cleaner_control: CleanerControl | None

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition."""

    def home_of(self, partition: TopicPartition) -> DataDirectory | None:
        """Return the data directory of a partition."""

    def home_at(self, path: str) -> DataDirectory:
        """Return the data directory in use at a path. Raises StorageError."""

    def adopt(self, partition: TopicPartition, log: Log, home: DataDirectory) -> None:
        """Serve ``log`` as the log of a partition from now on."""

    def checkpoint(self, directory: DataDirectory) -> bool:
        """Write the offsets of the logs in a data directory. Raises StorageError."""


class FutureLogs:
    """The future logs of a broker.

    One thread, that of the manager's changes, calls all methods but ``copy``, which may run on another.
    """

    def __init__(
        self,
        files: Files,
        current: CurrentLogs,
        clock: Clock,
        new_mutex: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._files = files
        self._current = current
        self._clock = clock
        self._new_mutex = new_mutex
        self._futures: dict[TopicPartition, FutureLog] = {}
        self.preferred: dict[TopicPartition, str] = {}
        """The data directories of logs that do not exist yet."""

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._futures

    def get(self, partition: TopicPartition) -> FutureLog | None:
        """Return the future log of a partition; None when it has none."""
        return self._futures.get(partition)

    def all(self) -> dict[TopicPartition, FutureLog]:
        """Return all future logs, as a copy."""
        return dict(self._futures)

    def logs_in(self, home: DataDirectory) -> dict[TopicPartition, Log]:
        """Return the future logs in a data directory."""
        return {partition: future.log for partition, future in self.all().items() if future.home is home}

    # At the start.

    def is_replacing(self, path: str) -> bool:
        """Return whether the log in a partition's directory was replacing another at the last stop."""
        return self._files.exists(f"{path}/{LOG_REPLACEMENT_FILE}")

    def open_found(
        self, partition: TopicPartition, path: str, home: DataDirectory, config: LogConfig, known: LoadHints
    ) -> None:
        """Open a future log that the start has found. A second one of its partition, or one that cannot be
        opened, is removed, unless it was replacing the log of the partition.
        """
        try:
            if partition in self._futures:
                raise StorageError(f"another copy is in {self._futures[partition].log.directory}")
            log = self._open(path, home, config, known)
        except (StorageError, FileNotFoundError) as error:
            if self.is_replacing(path):
                _logger.error("failed to open log %s, which replaces another: %s", path, error)
                return
            _logger.warning("removing the copy %s of the log of %s: %s", path, partition, error)
            with contextlib.suppress(StorageError, FileNotFoundError):
                self._remove(path, home, partition)
            return
        self._futures[partition] = FutureLog(log, home, self._new_mutex(), checked=False)

    def settle(self, *, some_offline: bool) -> None:
        """Decide which logs serve, once all were opened. ``some_offline``: current logs may be missing."""
        for partition, future in sorted(self.all().items()):
            try:
                self._settle(partition, future, some_offline=some_offline)
            except (StorageError, FileNotFoundError) as error:
                _logger.error("failed to continue the move of %s: %s", partition, error)
                self._close(partition)

    def _settle(self, partition: TopicPartition, future: FutureLog, *, some_offline: bool) -> None:
        log, home, old_home = future.log, future.home, self._current.home_of(partition)
        mark = self._mark_of(log) if log.directory == home.partition_path(partition) else None
        if old_home is None and some_offline and mark != _COMPLETE:
            _logger.error(
                "leaving the copy %s of the log of %s, which may be in an offline data directory",
                log.directory,
                partition,
            )
            self._close(partition)
        elif old_home is home and mark is None:
            self.drop(partition)  # it has moved back since
        elif old_home is None and mark is None:
            self._close(partition)
            stray = home.unused_path(partition, STRAY_DIR_SUFFIX)
            home.rename(log.directory, stray)
            _logger.warning("set aside the copy of the log of %s as %s: it has no log", partition, stray)
        elif mark is not None:
            old = self._current.get(partition)
            if mark == _COMPLETE or old_home is None or (old is not None and _is_prefix(old, log)):
                self._current.topic_incarnations.load(partition, home)
                self._current.adopt(partition, log, home)
                del self._futures[partition]
                if old_home is not None or not some_offline:
                    self._retire(partition, old, old_home, future)
            elif old is None:
                raise StorageError(f"it is unknown whether {log.directory} has all: its log cannot be opened")
            else:
                self._make_future_again(partition, future)

    def _mark_of(self, log: Log) -> bytes | None:
        try:
            return read_file(self._files, f"{log.directory}/{LOG_REPLACEMENT_FILE}")
        except FileNotFoundError:
            return None

    def _close(self, partition: TopicPartition) -> None:
        with contextlib.suppress(StorageError):
            self._futures.pop(partition).log.close()

    # A move.

    def begin(self, partition: TopicPartition, path: str) -> None:
        """Begin to move a log to another data directory: another move of it, or with its own directory any
        move, is dropped. Raises INVALID_TOPIC for a name that is too long, StorageError when a disk fails.
        """
        home, future = self._current.home_at(path), self._futures.get(partition)
        if future is not None and (future.home is not home or future.log.failure is not None):
            self.abort(partition)
        if partition not in self._futures and self._current.home_of(partition) is not home:
            self.pause_cleaning(partition)
            try:
                self._create(partition, home)
            except (StorageError, BrokerError):
                self._resume_cleaning(partition)
                raise

    def abort(self, partition: TopicPartition) -> None:
        """Delete the future log of a partition, and let the partition be cleaned. Raises StorageError."""
        self.drop(partition)
        self._resume_cleaning(partition)

    def pause_cleaning(self, partition: TopicPartition) -> None:
        """Keep the cleaner from a partition with a future log."""
        if self._current.cleaner_control is not None:
            self._current.cleaner_control.pause(partition)

    def _resume_cleaning(self, partition: TopicPartition) -> None:
        if self._current.cleaner_control is not None:
            self._current.cleaner_control.resume(partition)

    def _create(self, partition: TopicPartition, home: DataDirectory) -> None:
        current = self._current.get(partition)
        if current is None:
            raise StorageError(f"the log of {partition} is not open")
        path = home.future_path(partition)
        if self._files.exists(home.partition_path(partition)):
            self._remove(home.partition_path(partition), home, partition)
        log = self._open(path, home, current.config, LoadHints(start_offset=current.start_offset))
        self._files.sync_dir(home.path)
        self._futures[partition] = FutureLog(log, home, self._new_mutex())

    def drop(self, partition: TopicPartition) -> None:
        """Delete the future log of a partition, if it has one. Raises StorageError: another call goes on."""
        future = self._futures.get(partition)
        if future is None:
            return
        with future.mutex:
            future.log.abandon()
            if future.home.failure is None:
                with contextlib.suppress(FileNotFoundError):
                    self._remove(future.log.directory, future.home, partition)
            del self._futures[partition]
            self._checkpoint(future.home, partition, 0)

    def drop_all(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StorageError]:
        """Delete the future logs of partitions that are deleted; return the errors."""
        failed: dict[TopicPartition, StorageError] = {}
        for partition in partitions:
            self.preferred.pop(partition, None)
            try:
                self.drop(partition)
            except StorageError as error:
                failed[partition] = error
        return failed

    def _checkpoint(self, home: DataDirectory, partition: TopicPartition, offset: int) -> None:
        if home.failure is None and home.may_hold_above(partition, offset):
            self._current.checkpoint(home)

    def truncate(self, partition: TopicPartition, offset: int, *, restart: bool) -> None:
        """Truncate the future log of a partition before its log is truncated."""
        future = self._futures.get(partition)
        if future is None:
            return
        with future.mutex:
            try:
                self._truncate(partition, future, offset, restart=restart)
            except StorageError as error:
                _logger.error("failed to truncate the copy of the log of %s: %s", partition, error)
                future.log.fail(str(error))

    def _truncate(
        self, partition: TopicPartition, future: FutureLog, offset: int, *, restart: bool = False
    ) -> None:
        log = future.log
        log.truncate_fully_and_start_at(offset) if restart else log.truncate_to(offset)
        self._checkpoint(future.home, partition, offset)

    def copy(self, partition: TopicPartition) -> int:
        """Copy the next messages to the future log; return their bytes, 0 when it has all.

        Raises StorageError when a disk fails.
        """
        future, current = self._futures.get(partition), self._current.get(partition)
        if future is None or current is None:
            return 0
        with future.mutex:
            if self._futures.get(partition) is not future or current.closed:
                return 0
            if not future.checked:
                self._remove_unshared(partition, future, current)
                future.checked = True
            copied = self._copy_slice(partition, future, current)
            if future.log.segments[-1].base_offset > future.log.recovery_point:
                future.log.flush(future.log.segments[-1].base_offset)
            return copied

    def has_almost_all(self, partition: TopicPartition, copied: int) -> bool:
        """Return True if the copy of a partition is almost complete. Its last slice had ``copied`` bytes."""
        future, current = self._futures.get(partition), self._current.get(partition)
        return future is None or current is None or _has_almost_all(future.log, current, copied)

    def _remove_unshared(self, partition: TopicPartition, future: FutureLog, current: Log) -> None:
        """Remove what the current log may not have, or may have written anew since."""
        log = future.log
        end = min(log.end_offset, current.end_offset, self._current.high_watermarks.of(partition))
        shared = current.end_offset_for_epoch(log.epochs.latest)[1]
        if shared != UNKNOWN:
            end = min(end, shared)
        if end < log.end_offset:
            self._truncate(partition, future, end)
        end = log.end_offset
        if log.start_offset < end > current.start_offset and not _same_entry(log, current, end - 1):
            _logger.warning("the copy of the log of %s has other messages: copying it again", partition)
            self._truncate(partition, future, current.start_offset, restart=True)

    def _copy_slice(self, partition: TopicPartition, future: FutureLog, current: Log) -> int:
        log = future.log
        start_offset, end_offset = current.start_offset, current.end_offset
        if not start_offset <= log.end_offset <= end_offset:
            self._truncate(partition, future, start_offset, restart=True)
        try:
            found = current.read(log.end_offset, SLICE_BYTES, partial=False)
        except OffsetOutOfRange:
            return 0  # retention or a truncation comes in between
        copied = None if found.slice is None else replicated(found.slice.read(), log.end_offset)
        if copied is None:
            return 0
        if copied.first_offset < log.end_offset == log.start_offset:
            # The log starts within a batch (DeleteRecords): the copy must begin with the batch.
            self._truncate(partition, future, copied.first_offset, restart=True)
        log.append_as_follower(copied, epochs=current.epochs.entries, now_ms=self._clock.now_ms())
        return len(copied.data)

    # The replacement of the current log.

    def replace_current(
        self, partition: TopicPartition, switch: Callable[[Callable[[], Log | None]], bool]
    ) -> bool:
        """Let the future log of a partition replace its log; return whether it does.

        ``switch`` calls its argument within a step in which nothing is appended, serves the log that this
        returns, and returns True; or returns False when it returns None. Raises StorageError when a disk
        fails before that; later failures are only logged: the next start goes on.
        """
        future, current = self._futures.get(partition), self._current.get(partition)
        old_home = self._current.home_of(partition)
        if future is None or current is None or current.closed or current.failure is not None:
            return False
        with future.mutex:
            try:
                if not future.checked or not self._catch_up(partition, future, current):
                    return False
                self._take_final_name(partition, future, current)
                switched = self._catch_up(partition, future, current) and switch(
                    lambda: self._complete(partition, future, current)
                )
            except (StorageError, BrokerError, FileNotFoundError) as error:
                with contextlib.suppress(StorageError, FileNotFoundError):
                    self._make_future_again(partition, future)
                future.log.fail(str(error))
                raise
            if not switched:
                self._make_future_again(partition, future)
                return False
        self._retire(partition, current, old_home, future)
        self._resume_cleaning(partition)
        return True

    def _catch_up(self, partition: TopicPartition, future: FutureLog, current: Log) -> bool:
        """Copy until little is left; return False if the log grows as fast."""
        for _ in range(_SLICES_BEFORE_SWITCH):
            copied = self._copy_slice(partition, future, current)
            if _has_almost_all(future.log, current, copied):
                return True
        return False

    def _take_final_name(self, partition: TopicPartition, future: FutureLog, current: Log) -> None:
        log, home = future.log, future.home
        journal = self._current.epoch_journal
        if journal.of(partition) or journal.may_contain(partition):
            current.epochs.save_durably()
            journal.forget((partition,))
        log.close()
        newest = current.segments[-1].base_offset
        if log.end_offset < newest and current.read(log.end_offset, 1, up_to=newest).slice is None:
            # Compaction has removed the messages before the newest segment.
            create_segment(self._files, log.directory, log.layout, newest)
        self._current.topic_incarnations.save_topic_id_of_copy(partition, log.directory)
        self._mark(log.directory, _PENDING)
        path = home.partition_path(partition)
        home.rename(log.directory, path)
        future.log = self._open(path, home, current.config, _clean_hints(log))
        for epoch, first_offset in current.epochs.entries:
            # Also those of which there are no messages. A new one cannot begin meanwhile.
            future.log.epochs.assign(epoch, first_offset, write=False)
        future.log.epochs.save_durably()

    def _complete(self, partition: TopicPartition, future: FutureLog, current: Log) -> Log | None:
        """Copy the last messages and return the log if it has all now. Called within a step."""
        log = future.log
        self._copy_slice(partition, future, current)
        if log.end_offset != current.end_offset or current.failure is not None:
            return None
        log.increment_start_offset(current.start_offset)
        log.config = current.config
        # Also producers whose records retention has deleted.
        log.producers.take_over(current.producers)
        self._current.adopt(partition, log, future.home)
        del self._futures[partition]
        return log

    def _make_future_again(self, partition: TopicPartition, future: FutureLog) -> None:
        log, home, known = future.log, future.home, LoadHints(start_offset=future.log.start_offset)
        with contextlib.suppress(StorageError):
            log.close()
            known = _clean_hints(log)
        path = home.future_path(partition)
        home.rename(log.directory, path)
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(f"{path}/{LOG_REPLACEMENT_FILE}")
        future.log = self._open(path, home, log.config, known)

    def _retire(
        self, partition: TopicPartition, old: Log | None, old_home: DataDirectory | None, future: FutureLog
    ) -> None:
        """Remove the log that was replaced. A failure is logged, and the next start does the rest."""
        log = future.log
        try:
            log.flush()
            self._mark(log.directory, _COMPLETE)
            path = None
            if old is not None:
                for segment in old.segments:
                    segment.load_indexes()  # for the readers that still use it
                old.abandon()
                log.increment_start_offset(old.start_offset)  # DeleteRecords may have come in between
            if old_home is not None and old_home.failure is None:
                path = old_home.unused_path(partition)
                old_home.rename(old_home.partition_path(partition), path)
            self._current.checkpoint(future.home)
            if old_home is not None:
                self._current.high_watermarks.move(partition, old_home, future.home)
                self._current.checkpoint(old_home)
                self._current.topic_incarnations.move(old_home, future.home)
            if old is not None and self._current.cleaner_control is not None:
                self._current.cleaner_control.move(partition, old)
            self._files.remove(f"{log.directory}/{LOG_REPLACEMENT_FILE}")
            self._files.sync_dir(log.directory)
            if path is not None:
                self._files.remove_tree(path)
        except (StorageError, FileNotFoundError) as error:
            _logger.error(
                "the log of %s is in %s now, but what was left is not removed before the next start: %s",
                partition,
                future.home.path,
                error,
            )

    def _mark(self, directory: str, state: bytes) -> None:
        replace_file(self._files, f"{directory}/{LOG_REPLACEMENT_FILE}", state)

    def _open(self, path: str, home: DataDirectory, config: LogConfig, known: LoadHints) -> Log:
        now_ms = self._clock.now_ms()
        return Log.open(
            self._files, path, config, home.layout, known, now_ms=now_ms, new_mutex=self._new_mutex
        )

    def _remove(self, path: str, home: DataDirectory, partition: TopicPartition) -> None:
        aside = home.unused_path(partition)
        home.rename(path, aside)
        self._files.remove_tree(aside)


def _clean_hints(closed: Log) -> LoadHints:
    return LoadHints(clean=True, recovery_point=closed.end_offset, start_offset=closed.start_offset)


def _has_almost_all(log: Log, current: Log, copied: int) -> bool:
    """Return whether a copy is almost complete. The last slice of each segment may be short."""
    in_newest = log.end_offset >= current.segments[-1].base_offset
    return not copied or (in_newest and copied < SLICE_BYTES // 2)


def _is_prefix(old: Log, new: Log) -> bool:
    """Return whether ``new`` continues ``old``: it has more messages under the same epochs."""
    if new.end_offset <= old.end_offset:
        return False
    epoch, end_offset = new.end_offset_for_epoch(old.epochs.latest)
    return epoch == old.epochs.latest and (end_offset == UNKNOWN or end_offset >= old.end_offset)


def _same_entry(log: Log, other: Log, offset: int) -> bool:
    """Return whether two logs have the same bytes at the entry that holds ``offset``."""
    entries = [source.read(offset, 1, partial=False).slice for source in (log, other)]
    return len({None if entry is None else bytes(entry.read()) for entry in entries}) == 1
