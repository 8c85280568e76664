"""The log of one partition: a list of segments, of which only the last one is appended to.

On disk, a directory with the segments and their two indexes (names: ``layout``). Invariants:

- Offsets increase through the whole log; it has those from ``start_offset`` up to, not including,
  ``end_offset``. Segments below the start are deleted whole, so part of the first one may be before it.
- Only the newest segment is written to. When it is full (``segment.bytes``, a full index, or an offset that
  no longer fits the index's int32), or has grown for ``segment.ms``, a new one follows, named with the log
  end offset.
- All below ``recovery_point`` survives a power cut: segments, their names and the indexes of full segments.
- The segment list is a tuple that is replaced, never changed: readers take it once and need no lock.

Any thread may call any method. Changes of the segment list hold a mutex of the log, only for memory
operations and renames; ``read``, the look-ups and ``flush`` run beside it. The caller of a truncation or of
``close`` must make sure that no other thread replaces segments meanwhile.

Crash behaviour, at open. With a clean-shutdown marker only the entries after the newest segment's last index
entry are checked. Without it, every segment at or past the recovery point, and always the newest one, is
scanned: sizes, offset order, CRC. Their indexes are rebuilt, and the bytes past the recovery point are
written back, as an earlier process may have failed to flush them. The newest segment and the names are
flushed. The log ends at the first damage, or where a segment ends before the next one begins (not in a
compacted log, which has holes): the rest is kept in ``.corrupt`` files and removed from the log. ``recovery``
reports it.

Disk failures while running. A failed append is removed again and the log stays in use. When that fails too,
or an fsync fails (after which the content of the disk is unknown), or the newest file was removed, the log
accepts no more appends until it is opened again; reads continue. One flush runs at a time: of two overlapping
fsyncs of a file, the kernel reports lost pages to one only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext

from minikafka.base.errors import BrokerError, ErrorCode, OffsetOutOfRange, StorageError, TooManyFiles
from minikafka.base.files import Buffer, Files
from minikafka.base.metrics import TimeHistogram
from minikafka.log import search
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.config import LogConfig
from minikafka.log.file_scan import RecoveryReport
from minikafka.log.layout import CLEANED_SUFFIX, SWAP_SUFFIX, Layout
from minikafka.log.producers.producer_state import BatchMetadata, Guard
from minikafka.log.reading import LogRead, ReadRule, read_segments
from minikafka.log.recovery import log_loader, segment_replacement
from minikafka.log.retention import SegmentFacts
from minikafka.log.search import segment_facts
from minikafka.log.segment import Marks, Newest, Segment, UnusableSegment
from minikafka.records.append.produced import LogAppendInfo, ValidatedRecords
from minikafka.records.append.replicated import FollowerRecords
from minikafka.records.append.validation import assign
from minikafka.records.format.batch import ControlType


class Log:
    """The log of one partition. Created by ``Log.open``."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        layout: Layout,
        found: log_loader.LoadedLog,
        new_mutex: Callable[[], AbstractContextManager[object]],
        flush_times: TimeHistogram | None,
    ) -> None:
        self.directory = directory
        self._flush_times = flush_times or TimeHistogram()
        self.config = config
        self.layout = layout
        self.recovery: RecoveryReport | None = found.report
        """The report of what was removed at open; None when nothing was."""
        self._files = files
        self._segments: tuple[Segment, ...] = found.segments
        self._start_offset = found.start_offset
        self._segment_start_offset = found.segments[0].base_offset
        self._end_offset = found.end_offset
        self.epochs = found.epochs
        """The offset at which each leader epoch begins."""
        self.producers = found.producers
        """The state of idempotent and transactional producers."""
        self._recovery_point = found.recovery_point
        """Raised by ``flush``, lowered by a truncation; both hold ``_mutex``."""
        self._truncations = 0
        """Number of truncations: a flush that began before one must not raise the recovery point."""
        # Counters, not flags: two threads may flush at once, and neither may rely on an unfinished sync of
        # the other.
        self._names_changed = int(found.names_changed)
        self._names_synced = 0
        self._mutex = new_mutex()
        """Held during appends and changes of the segment list."""
        self._segments_mutex = new_mutex()
        """Held during all steps of deleting or replacing segments; acquired before ``_mutex``."""
        self._flushing = new_mutex()
        """Held during a flush."""
        self._change: segment_replacement.SegmentReplacement | None = None
        """The change of the segment list that is not made in the directory yet."""
        self._deleted_files: list[str] = []
        """Files of deleted segments that were not returned to a caller yet."""
        self._failure: str | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        layout: Layout,
        known: log_loader.LoadHints = log_loader.LoadHints(),  # noqa: B008 - a frozen value
        *,
        now_ms: int | None = None,
        new_mutex: Callable[[], AbstractContextManager[object]] = nullcontext,
        flush_times: TimeHistogram | None = None,
    ) -> Log:
        """Open the log in ``directory``, created when absent, and recover it. Raises StorageError.

        ``new_mutex`` creates locks, for a log that several threads use. ``flush_times`` gets the time of each
        flush that had to write.
        """
        found = log_loader.load_log(files, directory, config, layout, known, now_ms)
        found.epochs.mutex = new_mutex()
        return cls(files, directory, config, layout, found, new_mutex, flush_times)

    # State.

    @property
    def start_offset(self) -> int:
        """The first offset that the log may hold."""
        return self._start_offset

    @property
    def segment_start_offset(self) -> int:
        """The start offset by the names of the segments, also after a power cut."""
        return self._segment_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next message gets (log end offset)."""
        return self._end_offset

    @property
    def recovery_point(self) -> int:
        """The offset before which all messages are flushed."""
        return self._recovery_point

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        return self._segments

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def unflushed_messages(self) -> int:
        """The number of messages that a power cut may lose."""
        return max(0, self._end_offset - self._recovery_point)

    @property
    def failure(self) -> str | None:
        """The reason why the log accepts no more appends; None while it accepts them."""
        return self._failure

    @property
    def closed(self) -> bool:
        """Return whether ``close`` or ``abandon`` was called."""
        return self._closed

    def needs_flush(self) -> bool:
        """Return whether at least ``flush.messages`` messages are unflushed."""
        limit = self.config.flush_messages
        return limit is not None and self.unflushed_messages >= limit

    # Writing.

    def append(
        self, valid: ValidatedRecords, *, now_ms: int = 0, leader_epoch: int = UNKNOWN, guard: Guard = None
    ) -> LogAppendInfo:
        """Assign the next offsets to the messages, which were verified with ``guard``, and append them.

        A batch that a producer sends again is not written: the result is ``duplicate``, with the offsets of
        the first append. Raises RECORD_LIST_TOO_LARGE when the records are larger than ``segment.bytes``, the
        codes of ``producer_state`` for sequence numbers that do not follow; StorageError when the disk fails:
        then the log is unchanged.
        """
        with self._mutex:
            return self._append(valid, now_ms, leader_epoch, guard)

    def _append(self, valid: ValidatedRecords, now_ms: int, leader_epoch: int, guard: Guard) -> LogAppendInfo:
        self._check_appendable()
        self.epochs.require_saved()
        batches = valid.batches
        writers = self.producers.analyze_batches(batches, self._end_offset, now_ms, guard) if batches else {}
        if isinstance(writers, BatchMetadata):
            return LogAppendInfo.of_duplicate(writers.first_offset, writers.last_offset, writers.timestamp_ms)
        epoch = max(leader_epoch, self.epochs.latest)  # a newer epoch may have started just now
        assigned = assign(valid, self._end_offset, epoch, mark_every=self.config.index_interval_bytes)
        if assigned.count == 0:
            return assigned
        size = len(assigned.data)
        if size > self.config.segment_bytes:
            raise BrokerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a message set of {size} bytes does not fit segment.bytes={self.config.segment_bytes}",
            )
        self._write_assigned(valid, assigned, now_ms)
        if writers:
            self.producers.update(writers)
        return assigned

    def _write_assigned(self, valid: ValidatedRecords, assigned: LogAppendInfo, now_ms: int) -> Segment:
        newest = assigned.max_timestamp_ms, assigned.max_timestamp_at
        last, marks, classic = assigned.last_offset, assigned.marks, not valid.batches
        settled = not any(batch.transactional for batch in valid.batches)
        return self._write(assigned.data, newest, last, marks, now_ms, classic=classic, settled=settled)

    def append_end_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        now_ms: int = 0,
        leader_epoch: int = UNKNOWN,
    ) -> LogAppendInfo:
        """Append the marker that ends the transaction of a producer, if it has one.

        Raises the codes of ``producer_state`` for old epochs, UNSUPPORTED_FOR_MESSAGE_FORMAT if the log
        stores magic 0 or 1; StorageError when the disk fails: then the log is unchanged.
        """
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        with self._mutex:
            self._check_appendable()
            self.epochs.require_saved()
            ended = self.producers.analyze_end_marker(producer_id, producer_epoch, coordinator_epoch, now_ms)
            limits = self.config.message_limits
            valid = ValidatedRecords.of_end_marker(
                kind, producer_id, producer_epoch, coordinator_epoch, limits, now_ms
            )
            assigned = assign(valid, self._end_offset, max(leader_epoch, self.epochs.latest))
            segment = self._write_assigned(valid, assigned, now_ms)
            aborted = self.producers.end_transaction(producer_id, ended, kind, assigned.first_offset)
            if aborted is not None:
                segment.transactions.add((aborted,))
            return assigned

    def append_as_follower(
        self, copied: FollowerRecords, *, epochs: Sequence[tuple[int, int]] = (), now_ms: int = 0
    ) -> None:
        """Append records of the leader unchanged, with their offsets, epochs and producers.

        ``epochs``: see ``LeaderEpochs.copy``. Raises StorageError when they begin before the log end offset,
        or when the disk fails: then a part of them, of whole entries, may have been appended.
        """
        with self._mutex:
            self._check_appendable()
            if copied.first_offset < self._end_offset:
                raise StorageError(
                    f"out of order: log {self.directory} ends at offset {self._end_offset}, "
                    f"the records to append begin at {copied.first_offset}"
                )
            self.epochs.copy(copied, epochs)
            self.epochs.require_saved()
            for part in copied.split(self.config.segment_bytes):
                newest = part.max_timestamp_ms, part.max_timestamp_at
                marks = part.marks(self.config.index_interval_bytes)
                kinds = {"classic": part.classic, "settled": part.settled}
                segment = self._write(part.data, newest, part.next_offset - 1, marks, now_ms, **kinds)
                aborted = self.producers.update_from_leader(part.data, part.positions, now_ms)
                if aborted:
                    segment.transactions.add(aborted)

    def _write(
        self, data: Buffer, newest: Newest, last_offset: int, marks: Marks, now_ms: int, **kinds: bool
    ) -> Segment:
        """Write entries of these ``kinds`` to the newest segment, or to a new one when that is full; return
        that segment.
        """
        segment = self._segments[-1]
        if self._is_full(segment, len(data), newest[0], last_offset, now_ms):
            segment = self._roll(now_ms)
        if not kinds["settled"] and not segment.transactions.is_indexed():
            segment = self._index_transactions(segment, now_ms)
        every = self.config.index_interval_bytes
        try:
            segment.append(data, newest, every, marks=marks, **kinds)
        except UnusableSegment as error:
            self._failure = str(error)
            raise
        self._end_offset = last_offset + 1
        return segment

    def _index_transactions(self, segment: Segment, now_ms: int) -> Segment:
        """Return a segment with an index of aborted transactions for the next entries, a new one if it is not
        known how the transactions in ``segment``, the newest, have ended.
        """
        damaged = segment.transactions.index() is not None
        if segment.transactions.has_unknown and (
            damaged or not any(earlier.transactions.is_indexed() for earlier in self._segments)
        ):
            segment = self._roll(now_ms)
        if segment.transactions.create():
            self._names_changed += 1
        return segment

    def _is_full(self, segment: Segment, more: int, newest_ms: int, last_offset: int, now_ms: int) -> bool:
        if segment.size == 0:
            return not segment.fits(last_offset)
        config = self.config
        return (
            segment.size + more > config.segment_bytes
            or segment.time_waited_for_roll_ms(newest_ms, now_ms) > config.max_segment_ms(segment.path)
            or len(segment.index()) >= config.index_entries_max
            or len(segment.times()) >= config.time_index_entries_max
            or not segment.fits(last_offset)
        )

    def roll(self, now_ms: int = 0) -> Segment:
        """Create a new segment at the log end offset, unless the newest is empty and begins there; return it.

        Nothing is flushed here, as that is slow. The recovery point tells which full segments are unflushed.
        """
        with self._mutex:
            return self._roll(now_ms)

    def _roll(self, now_ms: int) -> Segment:
        self._check_appendable()
        newest = self._segments[-1]
        if newest.base_offset == self._end_offset:
            return newest
        self._check_in_place()
        newest.trim()
        # Neither a later flush nor recovery looks at a segment that ends at the recovery point.
        flushed = self._recovery_point >= self._end_offset
        if flushed:
            self._sync_full(newest)
        newest.write_indexes(sync=flushed)
        at, room = self._end_offset, self.config.segment_bytes if self.config.preallocate else 0
        segment = log_loader.create_segment(
            self._files, self.directory, self.layout, at, now_ms, room_bytes=room
        )
        self._segments = (*self._segments, segment)
        self._names_changed += 1
        self.producers.take_snapshot(self._end_offset, self._recovery_point)
        return segment

    def _sync_full(self, segment: Segment) -> None:
        try:
            segment.file.sync()
        except StorageError as error:
            self._failure = f"flush failed: {error}"
            raise

    # Leader epochs, the start offset, deletion and truncation.

    def start_epoch(self, epoch: int) -> None:
        """Start a leader epoch at the log end offset. The caller saves it."""
        with self._mutex:
            self.epochs.assign(epoch, self._end_offset, write=False)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return ``LeaderEpochs.end_offset_for`` for this log."""
        return self.epochs.end_offset_for(epoch, self._end_offset, self._start_offset)

    def remove_expired_producers(self, now_ms: int) -> int:
        """Remove producers that were idle for ``transactional.id.expiration.ms``; return their number."""
        with self._mutex:
            return self.producers.remove_expired(now_ms, self.config.producer_expiration_ms)

    def increment_start_offset(self, offset: int) -> None:
        """Raise the start offset: messages before it are no longer readable, and may be deleted.

        Raises OffsetOutOfRange above the log end offset. The caller writes the checkpoint.
        """
        with self._mutex:
            if offset > self._end_offset:
                raise OffsetOutOfRange(offset, self._start_offset, self._end_offset)
            self._start_offset = max(self._start_offset, offset)

    def delete_old_segments(
        self, expired: Callable[[Sequence[SegmentFacts]], int], up_to: int, now_ms: int = 0
    ) -> list[str]:
        """Delete the oldest segments, as many as ``expired`` returns, and those below the start offset, but
        none with a message at or above ``up_to``. Return the files to remove later.

        When all are deleted, a new empty segment is created at the log end offset. A StorageError leaves no
        hole: the next call first renames the rest, or the next open brings it back.
        """
        with self._segments_mutex:
            self._complete_change()
            for segment in self._segments:
                # Before the mutex is held, as it may take long; readers in progress need the indexes.
                segment.load_indexes()
            with self._mutex:
                deleted = self._expired(expired, up_to)
                if not deleted:
                    return self._take_deleted_files()
                if len(deleted) == len(self._segments):
                    self._roll(now_ms)
                rest = self._segments[len(deleted) :]
                # The start first: a reader of the new list must find the new start too.
                self._start_offset = max(self._start_offset, rest[0].base_offset)
                self._segments = rest
                self.producers.delete_snapshots_before(rest[0].base_offset)
                self._change = segment_replacement.SegmentReplacement(deleted)
            self._complete_change()
            return self._take_deleted_files()

    def _expired(self, expired: Callable[[Sequence[SegmentFacts]], int], up_to: int) -> Sequence[Segment]:
        segments, facts = self._segments, segment_facts(self._segments, self._end_offset)
        ends = [fact.next_offset for fact in facts]
        count = max(expired(facts), sum(end <= self._start_offset for end in ends[:-1]))
        # An empty newest segment need not be replaced by another.
        may_go = len(ends) - 1 if segments[-1].size == 0 else len(ends)
        may_go = min(may_go, sum(end <= up_to for end in ends))
        return () if self._closed or self._failure is not None else segments[: min(count, may_go)]

    def replace_segments(self, new: Segment, old: Sequence[Segment]) -> list[str]:
        """Replace neighbouring full segments by ``new``, and return the files to remove later.

        ``new`` comes from ``log_loader.create_cleaned`` and has the base offset of the first old segment. All
        of the old segments must have been flushed. See ``segment_replacement`` for what a crash leaves.
        Raises StorageError when the disk fails or the log was closed meanwhile: ``new`` belongs to the log
        when its name no longer ends with ``.cleaned``, and the next call completes the change.
        """
        with self._segments_mutex:
            self._complete_change()
            new.trim()
            new.file.sync()
            for segment in old:
                segment.load_indexes()  # readers may need them after the index files are replaced
            final = new.path.removesuffix(CLEANED_SUFFIX)
            with self._mutex:
                self._put_in_place(new, old, final + SWAP_SUFFIX)
            self._complete_change()
            return self._take_deleted_files()

    def _complete_change(self) -> None:
        """Apply the pending change of the segment list to the directory."""
        if self._change is None or self._closed:
            return
        self._check_appendable()
        self._change.carry_out(
            self._files, self.directory, self.layout, self._sync_names, self._deleted_files
        )
        self._change = None
        # Not before: segments that a power cut can bring back keep their epochs, below the saved start.
        self._segment_start_offset = self._segments[0].base_offset
        self.epochs.truncate_from_start(self._segment_start_offset)

    def _sync_names(self) -> None:
        try:
            self._files.sync_dir(self.directory)
        except TooManyFiles:
            raise
        except StorageError as error:
            # The next sync may report success for lost names, and the old files would be removed then.
            self._failure = f"flush failed: {error}"
            raise

    def _take_deleted_files(self) -> list[str]:
        deleted, self._deleted_files = self._deleted_files, []
        return deleted

    def _put_in_place(self, new: Segment, old: Sequence[Segment], swap_path: str) -> None:
        segments = self._segments
        first = segments.index(old[0]) if old[0] in segments else len(segments)
        behind = first + len(old)
        self._check_appendable()
        if segments[first:behind] != tuple(old) or behind >= len(segments):
            raise StorageError(f"segments of {self.directory} have changed: {new.path} replaces none of them")
        new.move(swap_path)
        self._segments = (*segments[:first], new, *segments[behind:])
        self._change = segment_replacement.SegmentReplacement(old, new)

    def truncate_to(self, offset: int) -> None:
        """Remove all messages from ``offset`` on; the change is flushed. Does nothing at or past the end.

        A compressed message that holds ``offset`` is removed as a whole. With an ``offset`` below the first
        segment nothing remains, and the log starts again at ``offset``.
        """
        with self._segments_mutex:
            self._complete_change()
            with self._mutex:
                self._check_appendable()
                if offset < self._end_offset:
                    self._cut(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all messages; the next one gets ``offset``, which may be any. The change is flushed."""
        with self._segments_mutex:
            self._complete_change()
            with self._mutex:
                self._check_appendable()
                self._cut(offset, restart=True)

    def _cut(self, offset: int, *, restart: bool = False) -> None:
        try:
            self._truncate(offset, restart)
        except StorageError as error:
            self._failure = f"truncation to offset {offset} failed: {error}"
            raise
        finally:
            # Again: a flush that began during the truncation must not raise the recovery point either.
            self._lower_recovery_point(self._end_offset)

    def _lower_recovery_point(self, offset: int) -> None:
        self._truncations += 1
        self._recovery_point = min(self._recovery_point, offset)

    def _truncate(self, offset: int, restart: bool) -> None:
        segments = self._segments
        restart = restart or offset < segments[0].base_offset
        keep = segments[:1] if restart else [segment for segment in segments if segment.base_offset <= offset]
        deleted, newest = segments[len(keep) :], keep[-1]
        # In this order: a flush that reads the new recovery point has no target above ``offset``.
        self._end_offset = offset
        self._lower_recovery_point(offset)
        self._segments = tuple(keep)
        # Names before bytes: a crash between the two must not leave a hole in the log.
        log_loader.remove_segments(self._files, deleted)
        self.producers.delete_snapshots_after(-1 if restart else offset)
        self._files.sync_dir(self.directory)
        if restart:
            newest.cut(0)
            newest = log_loader.rename_empty(self._files, self.directory, self.layout, newest, offset)
            self._segments = (newest,)
            self._start_offset = self._segment_start_offset = offset
        else:
            entry = newest.translate_offset(offset)
            newest.transactions.index()
            if entry is not None:
                newest.cut(entry.position)
        self._end_offset = newest.next_offset()
        newest.transactions.cut(self._end_offset)
        self._start_offset = min(self._start_offset, self._end_offset)
        self.epochs.truncate_from_end(0 if restart else self._end_offset)
        self.producers.rebuild(self._segments, self._end_offset, self._end_offset)

    # Reading.

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to: int | None = None,
        at_least_one: bool = True,
        partial: bool = True,
        cut_first: bool = True,
    ) -> LogRead:
        """Read up to ``max_bytes`` of entries from the one that holds ``offset``: a slice of a segment file.

        ``up_to`` (the high watermark) leaves out entries at and above it. ``at_least_one``: the first entry
        is returned whole when it alone is larger than ``max_bytes``. ``partial``: the slice may end within
        an entry; ``cut_first``: also within the first one, otherwise the slice is empty then.
        OffsetOutOfRange outside ``start_offset`` to ``end_offset``; at the end there is nothing to read.
        """
        # The end first: the segments hold all below it. The start last: see ``delete_old_segments``.
        end_offset, segments = self._end_offset, self._segments
        if not self._start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(offset, self._start_offset, end_offset)
        bound = end_offset if up_to is None else min(up_to, end_offset)
        how = ReadRule(at_least_one, partial, cut_first)
        return read_segments(segments, offset, bound, end_offset, max_bytes, how)

    def offsets_before(self, timestamp_ms: int, max_count: int, *, now_ms: int | None = None) -> list[int]:
        """Return up to ``max_count`` base offsets of segments last written by ``timestamp_ms``, newest first.

        The log end offset counts as written at ``now_ms``. ``LATEST`` returns it first, ``EARLIEST`` only the
        start offset. (ListOffsets 0, ``getOffsetsBefore`` of the texts.)
        """
        return search.offsets_before(
            self._segments, self._start_offset, self._end_offset, timestamp_ms, max_count, now_ms
        )

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first message with at least the given timestamp, or None.

        Messages of magic 0 have no timestamp and are skipped.
        """
        return search.offset_for_timestamp(self._segments, self._start_offset, timestamp_ms)

    def steps_to_timestamp(self, timestamp_ms: int) -> Generator[int, None, tuple[int, int] | None]:
        """Run ``offset_for_timestamp`` in steps. Each yields the bytes of memory that the next step needs:
        first ``search.LOOK_UP_BYTES``, for a large batch the size of its content.
        """
        return search.steps_to_timestamp(self._segments, self._start_offset, timestamp_ms)

    # Durability.

    def flush(self, up_to: int | None = None) -> int:
        """Flush messages before ``up_to`` (default: all). Return the offset before which all are durable.

        That is at least ``up_to``, unless the log was truncated or closed meanwhile. Appends may continue.
        After a StorageError, except TooManyFiles, the log accepts no more appends.
        """
        with self._flushing:
            return self._flush(up_to)

    def _flush(self, up_to: int | None) -> int:
        truncations = self._truncations  # read before the recovery point, which a truncation lowers later
        durable = self._recovery_point
        target = self._end_offset if up_to is None else min(up_to, self._end_offset)
        if self._closed or (target <= durable and self._names_synced == self._names_changed):
            return self._recovery_point
        while True:
            segments = self._segments
            try:
                with self._flush_times.measure():
                    self._sync(segments, target, durable)
            except TooManyFiles:
                raise  # no fsync has failed: the next flush can do it
            except (StorageError, FileNotFoundError) as error:
                if self.closed:
                    return self._recovery_point  # deleted or closed meanwhile: nothing is left to flush
                self._failure = f"flush failed: {error}"
                raise StorageError(f"{self.directory}: {self._failure}") from error
            if self._failure is not None:
                # Another thread's flush failed: its pages are lost, and this one's success proves nothing.
                raise StorageError(f"{self.directory}: {self._failure}")
            with self._mutex:
                # Again when the newest segment has become full meanwhile: its indexes must be flushed too.
                if self._segments[-1] is segments[-1]:
                    if self._truncations == truncations:
                        self._recovery_point = max(self._recovery_point, target)
                    return self._recovery_point

    def _sync(self, segments: Sequence[Segment], target: int, durable: int) -> None:
        for number, segment in enumerate(segments):
            newest = number == len(segments) - 1
            behind = not newest and segments[number + 1].base_offset <= durable
            if behind or segment.base_offset >= max(target, 1):
                continue
            segment.file.sync()
            if newest and self.find_removed():
                raise StorageError(self._failure)
            if not newest and segment.write_indexes(sync=True):
                self._names_changed += 1
        if self.epochs.make_durable():
            self._names_changed += 1
        names = self._names_changed
        if self._names_synced < names:
            self._files.sync_dir(self.directory)
            self._names_synced = max(self._names_synced, names)

    def close(self) -> None:
        """Flush all files and close them; a second call does nothing. Raises StorageError."""
        if self._closed:
            return
        try:
            if self._failure is not None:
                raise StorageError(f"cannot close log {self.directory} cleanly: {self._failure}")
            self.flush()
            self._segments[-1].trim()
            new = [segment.write_indexes(sync=True) for segment in self._segments]
            # After the indexes: recovery reads only behind the snapshot, and rebuilds what it reads.
            self.producers.take_snapshot(self._end_offset, self._end_offset, closing=True)
            if self.epochs.make_durable() or any(new):
                self._files.sync_dir(self.directory)
        finally:
            self._closed = True
            for segment in self._segments:
                segment.file.close()

    def abandon(self) -> None:
        """Accept no more appends and flushes: the log is being deleted. Reads in progress keep their files.

        On return no segment is being replaced or deleted: from then on another log may use the names.
        """
        with self._segments_mutex:
            self._closed = True

    def find_removed(self) -> bool:
        """Return whether this call finds the newest segment's file removed or moved away. Then the log
        accepts no more messages: the kernel still accepts writes to the file, but no restart finds them.
        """
        if self._failure is None and not self._closed and not self._segments[-1].file.is_in_place():
            try:
                with self._mutex:  # a truncation may have renamed it just now
                    self._check_in_place()
            except StorageError:
                return True
        return False

    def fail(self, reason: str) -> None:
        """Take the log offline: it accepts no more messages, for this reason."""
        self._failure = self._failure or reason

    def _check_in_place(self) -> None:
        newest = self._segments[-1]
        # In this order: a deleted log is closed before it is renamed.
        if not newest.file.is_in_place() and not self._closed:
            self._failure = f"{newest.path} was removed or replaced"
            raise StorageError(self._failure)

    def _check_appendable(self) -> None:
        if self._closed:
            raise StorageError(f"log {self.directory} is closed")
        if self._failure is not None:
            raise StorageError(
                f"log {self.directory} is offline: {self._failure}; fix the disk, then restart the broker"
            )
