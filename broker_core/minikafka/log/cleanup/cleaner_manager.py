"""The state of log cleaning: it chooses the log to clean next, and keeps the first dirty offset of each log.

The dirtiest log is cleaned first: the one with the largest dirty part of all that can be cleaned, if that is
more than ``min.cleanable.dirty.ratio``, or if its dirty part has a segment that began more than
``max.compaction.lag.ms`` ago. The dirty part begins where the last pass ended, which is kept in
``cleaner-offset-checkpoint`` of the data directory (Kafka's own file, ``offset_checkpoint``), and ends before
the active segment, before the first one with a message younger than ``min.compaction.lag.ms``, and before the
one with the last stable offset.

After a crash between the swap of the last segments and the checkpoint, the next pass cleans them again.

A damaged log that cannot be cleaned is reported once and skipped until the broker is restarted, or the log
truncated. A log whose disk failed, or in which an open transaction prevents all cleaning, is retried after
a minute. The other logs are cleaned meanwhile.

(``LogCleanerManager.scala`` of 0.10.1; for a log that shrank, and for the largest lag, as 3.9.1.)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise

from minikafka.base.errors import StorageError
from minikafka.base.files import Files
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.data_directory import OffsetCheckpointFile
from minikafka.log.cleanup.cleaner import Cleaner, CleaningStopped, CleanReport, Uncleanable, position_of
from minikafka.log.layout import CLEANER_OFFSET_FILE
from minikafka.log.log import Log
from minikafka.log.segment import Segment

RETRY_MS = 60_000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogToClean:
    """The cleanable part of a log: ``[first_dirty_offset, upper_offset)`` is dirty, all before is clean."""

    first_dirty_offset: int
    upper_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """True if a full segment with dirt is older than ``max.compaction.lag.ms``."""

    @property
    def ratio(self) -> float:
        """The dirty fraction of all bytes that can be cleaned; 0 when there are none."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


def log_to_clean(log: Log, first_dirty_offset: int, now_ms: int) -> LogToClean:
    """Measure the cleanable part of a log that is clean below ``first_dirty_offset``, an offset in it."""
    segments, lag_ms = log.segments, log.config.min_compaction_lag_ms
    stable = log.producers.last_stable_offset
    number = 0
    while number < len(segments) - 1 and segments[number + 1].base_offset <= stable:
        is_dirty = segments[number + 1].base_offset > first_dirty_offset
        if is_dirty and lag_ms > 0 and segments[number].last_time_ms() > now_ms - lag_ms:
            break
        number += 1
    upper_offset = segments[number].base_offset
    clean = dirty = 0
    for segment, following in pairwise(segments[: number + 1]):
        begin = _bytes_before(segment, following, log.start_offset)
        middle = _bytes_before(segment, following, first_dirty_offset)
        clean += middle - begin
        dirty += segment.size - middle
    overdue_ms = now_ms - log.config.max_compaction_lag_ms
    # Without a largest lag, the default, no first message is read from the disk.
    overdue = overdue_ms > 0 and any(
        0 < segment.first_timestamp_ms() < overdue_ms
        for segment, following in pairwise(segments)
        if following.base_offset > first_dirty_offset
    )
    return LogToClean(first_dirty_offset, max(upper_offset, first_dirty_offset), clean, dirty, overdue)


def _bytes_before(segment: Segment, following: Segment, offset: int) -> int:
    """Return approximately how many bytes of a segment are before ``offset``."""
    return segment.size if following.base_offset <= offset else position_of(segment, offset)


def _home(log: Log) -> str:
    return os.path.dirname(log.directory)


class LogCleanerManager:
    """Cleans the logs of a broker, one at a time.

    ``begin`` is called first. One thread calls ``run_once``; any thread may call the other methods, when
    ``new_mutex`` creates locks. A caller of ``pause`` must not hold a lock that a flush or
    ``Log.replace_segments`` acquires.
    """

    def __init__(
        self,
        files: Files,
        logs: Callable[[], Mapping[TopicPartition, Log]],
        cleaner: Cleaner,
        *,
        new_mutex: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """``logs`` returns all logs of the broker (``LogManager.logs``); compacted logs are cleaned."""
        self._files = files
        self._logs = logs
        self._cleaner = cleaner
        self._new_mutex = new_mutex
        self._mutex = new_mutex()
        self._points: dict[str, OffsetCheckpointFile] = {}
        """Data directory -> the checkpoint of first dirty offsets."""
        self._paused: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, str] = {}
        self._later_ms: dict[TopicPartition, int] = {}
        """Partition -> the time of the next try, in monotonic time, which no clock change affects."""
        self._running: tuple[TopicPartition, AbstractContextManager[object]] | None = None
        """The partition that is being cleaned, and the lock that is held meanwhile."""
        self._stopped = False

    def begin(self, directories: Iterable[str]) -> None:
        """Read the checkpoints, once the logs are open and before they grow.

        Entries without a log are removed, and an offset after a log's end does not count: otherwise a new
        log of that name, or new messages, would count as clean, and a tombstone could be removed before the
        messages that it deletes.
        """
        logs = self._logs()
        for directory in directories:
            file = self._file_in(directory)
            held = {
                partition: offset
                for partition, offset in file.held.items()
                if partition in logs and _home(logs[partition]) == directory
            }
            with self._mutex:
                if held.keys() != file.held.keys():
                    self._write(file, held)
            for partition in held:
                self.first_dirty(partition, logs[partition])

    # For the cleaner thread.

    def run_once(self, now_ms: int) -> CleanReport | None:
        """Clean the dirtiest log that needs it; None when none does, or the cleaning was stopped. ``now_ms``
        is wall-clock time, for ``min.compaction.lag.ms`` and ``max.compaction.lag.ms``.

        Errors of a log are not raised but logged.
        """
        while not self._stopped:
            busy = self._new_mutex()
            with busy:
                chosen = self._begin(now_ms, busy)
                if chosen is None:
                    return None
                partition, log, cleanable = chosen
                try:
                    report = self._clean(partition, log, cleanable)
                finally:
                    self._running = None
            if report is not None:
                _logger.info("%s", report)
                return report
        return None

    def _begin(
        self, now_ms: int, busy: AbstractContextManager[object]
    ) -> tuple[TopicPartition, Log, LogToClean] | None:
        found = self.next_cleanable(now_ms)
        while found is not None:
            with self._mutex:
                if found[0] not in self._paused:
                    self._running = (found[0], busy)
                    return found
            found = self.next_cleanable(now_ms)
        return None

    def next_cleanable(self, now_ms: int) -> tuple[TopicPartition, Log, LogToClean] | None:
        """Return the dirtiest log that may be cleaned now, for ``run_once``; None when there is none."""
        best: tuple[TopicPartition, Log, LogToClean] | None = None
        for partition, log in sorted(self._logs().items()):
            if not log.config.compacted or log.closed or log.failure is not None:
                continue  # a failed log cannot be flushed, so none of its segments may be replaced
            if not self._may_clean(partition):
                continue
            try:
                cleanable = log_to_clean(log, self.first_dirty(partition, log), now_ms)
            except StorageError as error:
                self._put_off(partition, error)
                continue
            is_due = cleanable.overdue and cleanable.dirty_bytes > 0
            if (is_due or cleanable.ratio > log.config.min_cleanable_dirty_ratio) and (
                best is None or cleanable.ratio > best[2].ratio
            ):
                best = partition, log, cleanable
        return best

    def _may_clean(self, partition: TopicPartition) -> bool:
        now_ms = self._cleaner.clock.monotonic_ms()
        return (
            partition not in self._paused
            and partition not in self._uncleanable
            and self._later_ms.get(partition, now_ms) <= now_ms
        )

    def _put_off(self, partition: TopicPartition, error: Exception) -> None:
        _logger.warning(
            "failed to clean the log of %s, retrying in %d s: %s", partition, RETRY_MS // 1000, error
        )
        self._try_later(partition)

    def _try_later(self, partition: TopicPartition) -> None:
        self._later_ms[partition] = self._cleaner.clock.monotonic_ms() + RETRY_MS

    def _clean(self, partition: TopicPartition, log: Log, cleanable: LogToClean) -> CleanReport | None:
        try:
            report = self._cleaner.clean(
                log,
                cleanable.first_dirty_offset,
                cleanable.upper_offset,
                lambda: self._stopped or partition in self._paused or log.closed,
            )
        except CleaningStopped:
            return None
        except Uncleanable as error:
            self._uncleanable[partition] = str(error)
            _logger.error(
                "cannot clean the log of %s: %s; it is served, but grows and is not cleaned until the next "
                "start; `minikafka log verify` shows what is damaged",
                partition,
                error,
            )
            return None
        except Exception as error:  # noqa: BLE001 - one log must not keep the others from being cleaned
            # A log that was deleted or closed meanwhile needs no cleaning.
            if not log.closed:
                self._put_off(partition, error)
            return None
        if report.end_offset <= cleanable.first_dirty_offset:
            self._try_later(partition)
            return None
        with self._mutex:
            if partition not in self._paused:
                self._set_point(partition, log, report.end_offset)
        return report

    # The first dirty offsets.

    def first_dirty(self, partition: TopicPartition, log: Log) -> int:
        """Return the first dirty offset of a log: that of the checkpoint, if it is in the log.

        Otherwise a warning is logged, and all of the log counts as dirty. (No warning for an offset below the
        start of a topic that also deletes: its old segments were deleted.)
        """
        point = self._file_of(log).held.get(partition, log.start_offset)
        if log.start_offset <= point <= log.end_offset:
            return point
        if point > log.end_offset or not log.config.deletion_policies:
            _logger.warning(
                "%s: invalid first dirty offset in %s: %d is not in the log (offsets %d to %d); the log will "
                "be cleaned from its start",
                log.directory,
                CLEANER_OFFSET_FILE,
                point,
                log.start_offset,
                log.end_offset,
            )
        with self._mutex:
            self._set_point(partition, log, log.start_offset)
        return log.start_offset

    def _file_of(self, log: Log) -> OffsetCheckpointFile:
        return self._file_in(_home(log))

    def _file_in(self, directory: str) -> OffsetCheckpointFile:
        file = self._points.get(directory)
        if file is None:
            file = OffsetCheckpointFile(self._files, os.path.join(directory, CLEANER_OFFSET_FILE))
            try:
                file.read()
            except StorageError as error:
                _logger.warning("%s; its logs will be cleaned from their start", error)
            self._points[directory] = file
        return file

    def _set_point(self, partition: TopicPartition, log: Log, offset: int) -> None:
        """Set a log's first dirty offset, and drop those of deleted logs. A failure is only logged."""
        file = self._file_of(log)
        logs = self._logs()
        points = {other: point for other, point in file.held.items() if other in logs}
        self._write(file, {**points, partition: offset})

    def _write(self, file: OffsetCheckpointFile, points: dict[TopicPartition, int]) -> None:
        try:
            file.write(points)
        except StorageError as error:
            _logger.error(
                "%s; after a restart some messages may not be compacted: the checkpoint may be too high",
                error,
            )

    # For the threads that change logs.

    def pause(self, partition: TopicPartition) -> None:
        """Stop the cleaning of a partition that will be truncated or deleted, and start none until
        ``resume``. On return none is running.
        """
        with self._mutex:
            self._paused.add(partition)
            running = self._running
        if running is not None and running[0] == partition:
            with running[1]:
                pass  # it is held until the cleaning has ended

    def resume(self, partition: TopicPartition) -> None:
        """Let a paused partition be cleaned again. Its first dirty offset is at most the log end offset."""
        log = self._logs().get(partition)
        with self._mutex:
            if log is not None and self._file_of(log).held.get(partition, 0) > log.end_offset:
                self._set_point(partition, log, log.end_offset)
            self._uncleanable.pop(partition, None)
            self._later_ms.pop(partition, None)
            self._paused.discard(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Remove the state of a deleted partition, also from the checkpoints."""
        self.pause(partition)
        with self._mutex:
            for file in self._points.values():
                if partition in file.held:
                    self._write(file, {other: at for other, at in file.held.items() if other != partition})
            self._uncleanable.pop(partition, None)
            self._later_ms.pop(partition, None)
            self._paused.discard(partition)

    def move(self, partition: TopicPartition, old: Log) -> None:
        """Move the first dirty offset of a partition to the checkpoint of the directory of its new log.

        An offset that stayed behind would count again if the log moved back after a truncation.
        """
        log, file = self._logs().get(partition), self._file_of(old)
        with self._mutex:
            point = file.held.get(partition)
            if point is not None:
                if log is not None:
                    self._set_point(partition, log, point)
                self._write(file, {other: at for other, at in file.held.items() if other != partition})

    def stop(self) -> None:
        """Stop the running cleaning, and start no other. On return none is running."""
        with self._mutex:
            self._stopped = True
            running = self._running
        if running is not None:
            with running[1]:
                pass

    @property
    def running(self) -> TopicPartition | None:
        """The partition that is being cleaned."""
        running = self._running
        return None if running is None else running[0]

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """Partitions that cannot be cleaned, with the reasons."""
        return dict(self._uncleanable)
