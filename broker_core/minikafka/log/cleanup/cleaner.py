"""The cleaner of a log: it keeps only the last message of each key (``cleanup.policy=compact``).

    clean part                       | dirty part                       | not to be cleaned
    start                first dirty |                     end .. upper |  ... active segment

A pass builds the map of the dirty part's keys, as far as its memory allows (``records.compaction``), reads
the log from its start to the map's end, and writes the retained messages into new segments. Each replaces as
many neighbours as fit one segment (``segment.bytes``, ``segment.index.bytes``, offsets in int32 of the base
offset), so that segments do not become tiny. ``Log.replace_segments`` swaps them in, crash-safely; after a
crash or a stop the log is partly cleaned. A group without retained messages becomes an empty segment: the
log's start does not move.

Only full segments that are flushed are touched: the log is flushed up to its active segment first.

**Removal of tombstones.** In magic 2 they carry their own time: ``delete.retention.ms`` from the pass that
first met them, as in 3.9.1. The older formats have no room for it, and as in 0.10.1 the modification times of
the files count instead: tombstones are removed from segments that were last written ``delete.retention.ms``
before the last segment of the clean part was, and a new segment gets the time of those it replaces. (Not the
messages' timestamps: a producer may set old ones, and the tombstones of old data would be removed within
seconds.) In all formats a tombstone stays in the first pass that meets it, so that a consumer that reads the
log from its start in less than that time misses none.

The log is read in windows of ``log.file_scan``, which checks every checksum and order. A message larger than
a window is read whole after its checksum was verified piece by piece; 0.10.1 limits it by
``max.message.bytes``, and then never cleans the log. Damage raises ``Uncleanable``.

(``Cleaner`` in ``LogCleaner.scala`` of 0.10.1 and 3.9.1.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from minikafka.base.clock import Clock
from minikafka.base.errors import BrokerError, StorageError
from minikafka.base.files import Files
from minikafka.log.config import LogConfig
from minikafka.log.file_scan import Window, windows
from minikafka.log.index.index_file import RELATIVE_OFFSET_MAX
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.log.index.time_index import TimeIndex
from minikafka.log.index.transaction_index import AbortedTransaction
from minikafka.log.layout import CLEANED_SUFFIX
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import create_cleaned
from minikafka.log.segment import Segment
from minikafka.records.compaction import OffsetMap, RecordFilter, Transactions
from minikafka.records.scan.isolation import has_transactions

_WAIT_MOST_S = 0.3
"""The interval at which a throttled pass checks whether it must stop."""
_POSITION_MAX = (1 << 31) - 1
_MB = 1 << 20


class CleaningStopped(Exception):
    """The pass was asked to stop. The segments that it has replaced stay replaced."""


class Uncleanable(Exception):
    """The log cannot be cleaned. The text has the file, the position and the reason."""


@dataclass(frozen=True, slots=True)
class CleanReport:
    """The statistics of a pass. ``str()`` returns one line for the broker's log."""

    directory: str
    first_dirty_offset: int
    """The first offset of the dirty part before the pass."""
    end_offset: int
    """The first offset of the dirty part now: below, the log is clean."""
    bytes_indexed: int
    """Bytes of the dirty part that were read for the map."""
    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    messages_without_key: int
    seconds_indexing: float
    seconds: float
    """The duration of the whole pass."""
    map_fullness: float
    """The fraction of the map's slots in use."""

    def __str__(self) -> str:
        def smaller(before: int, after: int) -> float:
            return 100 * (1 - after / before) if before else 0.0

        text = (
            f"cleaned log {self.directory} from offset {self.first_dirty_offset} to {self.end_offset} in "
            f"{self.seconds:.1f} s ({self.bytes_read / _MB / max(self.seconds, 0.001):.1f} MB/s; indexed "
            f"{self.bytes_indexed / _MB:.1f} MB in {self.seconds_indexing:.1f} s, offset map "
            f"{100 * self.map_fullness:.1f}% full): kept {self.bytes_written / _MB:.1f} of "
            f"{self.bytes_read / _MB:.1f} MB ({smaller(self.bytes_read, self.bytes_written):.1f}% less) and "
            f"{self.messages_written} of {self.messages_read} messages "
            f"({smaller(self.messages_read, self.messages_written):.1f}% fewer)"
        )
        if self.messages_without_key:
            text += f"; dropped {self.messages_without_key} messages without a key"
        return text


class Cleaner:
    """Cleans logs one after another, with one offset map and one rate limit. Used by one thread.

    ``discard`` gets the files of replaced segments, after each swap (``file_deletion``). ``bytes_per_second``
    limits reading and writing together (``log.cleaner.io.max.bytes.per.second``); None for no limit.
    ``wait`` is called with seconds when the limit is exceeded, and may return earlier.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        offsets: OffsetMap,
        discard: Callable[[Log, list[str]], object],
        *,
        bytes_per_second: float | None = None,
        wait: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self._files = files
        self.clock = clock
        self._offsets = offsets
        self._discard = discard
        self._bytes_per_second = bytes_per_second
        self._wait = wait
        self._free_at_ms = 0.0
        """The earliest time for all that was read and written so far, at that rate."""

    def reconfigure(self, offsets: OffsetMap, bytes_per_second: float) -> None:
        """Use another map, from the next log on, and another limit, at once. Any thread may call it."""
        self._offsets, self._bytes_per_second = offsets, bytes_per_second

    def clean(
        self,
        log: Log,
        first_dirty_offset: int,
        upper_offset: int,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> CleanReport:
        """Clean ``log`` from its start to ``upper_offset`` at most, where a full segment ends.

        Nothing is rewritten when the first dirty message belongs to an open transaction: then ``end_offset``
        is ``first_dirty_offset``. ``should_stop`` is called between windows. Raises CleaningStopped,
        Uncleanable, and StorageError when the disk fails or the log was closed or changed meanwhile.
        """
        offsets = self._offsets
        try:
            return _Pass(self, offsets, log, first_dirty_offset, upper_offset, should_stop).run()
        finally:
            offsets.clear()

    def throttle(self, size_bytes: int, check: Callable[[], None]) -> None:
        """Wait as the rate limit requires after that many bytes; ``check`` is called from time to time."""
        bytes_per_second = self._bytes_per_second
        if bytes_per_second is None:
            return
        now = self.clock.monotonic_ms()
        self._free_at_ms = max(self._free_at_ms, now) + 1000 * size_bytes / bytes_per_second
        while now < self._free_at_ms:
            self._wait(min(_WAIT_MOST_S, (self._free_at_ms - now) / 1000))
            check()
            now = self.clock.monotonic_ms()
            if self._bytes_per_second != bytes_per_second:
                self._free_at_ms = now  # the rest of a slow rate's wait could take hours


class _Pass:
    """One cleaning of one log."""

    def __init__(
        self,
        cleaner: Cleaner,
        offsets: OffsetMap,
        log: Log,
        first_dirty: int,
        upper: int,
        should_stop: Callable[[], bool],
    ) -> None:
        self._cleaner = cleaner
        self._files, self._clock, self._offsets = cleaner._files, cleaner.clock, offsets
        self._discard = cleaner._discard
        self._log = log
        self._config: LogConfig = log.config
        self._first_dirty = first_dirty
        self._upper = upper
        self._should_stop = should_stop
        self._transactions: Transactions | None = None
        self._segments: tuple[Segment, ...] = ()
        """The segments that may be cleaned, and the one behind them."""
        self._clean_before = self._horizon_ms = 0
        """Tombstones are removed from segments below this offset that are not newer than this time."""
        self._bytes_indexed = self._bytes_read = self._bytes_written = 0

    def run(self) -> CleanReport:
        log, offsets = self._log, self._offsets
        began_ms = self._clock.monotonic_ms()
        log.flush(log.segments[-1].base_offset)
        segments = log.segments
        stable = log.producers.last_stable_offset
        upper = min(self._upper, stable, log.recovery_point, segments[-1].base_offset)
        count = sum(segment.base_offset < upper for segment in segments[:-1])
        while count and segments[count].base_offset > upper:
            count -= 1
        self._segments = segments[: count + 1]
        self._upper = self._segments[-1].base_offset
        self._map_keys()
        indexed_ms = self._clock.monotonic_ms()
        end_offset = max(self._first_dirty, min(offsets.end_offset, self._upper))
        record_filter = RecordFilter(
            offsets,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=self._config.delete_retention_ms,
            transactions=self._transactions,
            producers=log.producers.last_offsets(),
        )
        if end_offset > self._first_dirty:
            self._find_horizon()
            for group in groups(self._segments, end_offset, self._config):
                self._rewrite(group, record_filter)
        done_ms = self._clock.monotonic_ms()
        return CleanReport(
            directory=log.directory,
            first_dirty_offset=self._first_dirty,
            end_offset=end_offset,
            bytes_indexed=self._bytes_indexed,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            messages_read=record_filter.messages_read,
            messages_written=record_filter.messages_kept,
            messages_without_key=record_filter.messages_without_key,
            seconds_indexing=(indexed_ms - began_ms) / 1000,
            seconds=(done_ms - began_ms) / 1000,
            map_fullness=len(offsets) / offsets.slots,
        )

    def _check(self) -> None:
        if self._should_stop():
            raise CleaningStopped(f"cleaning of {self._log.directory} was stopped")

    def _dirty(self) -> Iterator[tuple[Segment, int, int]]:
        """Yield the dirty segments, with the position where the dirty part begins and the offset after it."""
        for segment, following in pairwise(self._segments):
            if following.base_offset > self._first_dirty:
                yield segment, position_of(segment, self._first_dirty), following.base_offset

    def _windows(self, segment: Segment, begin: int = 0) -> Iterator[Window]:
        """Yield whole entries up to the segment's end, within the rate limit, until asked to stop."""
        reached, problem = begin, None
        self._check()
        for window in windows(segment.file, begin, segment.size, segment.base_offset):
            reached, problem = window.position + len(window.data), window.result.problem
            self._cleaner.throttle(len(window.data), self._check)
            yield window
            self._check()
        if reached < segment.size:
            raise Uncleanable(f"{segment.path}: {problem or f'unexpected end at position {reached}'}")

    def _map_keys(self) -> None:
        offsets = self._offsets
        offsets.begin(self._first_dirty)
        for segment, begin, behind in self._dirty():
            for window in self._windows(segment, begin):
                self._bytes_indexed += len(window.data)
                with _located(segment, window):
                    whole = offsets.add(window.data, self._upper, self._find_transactions)
                if not whole:
                    return
            offsets.pass_gap(behind)

    def _find_transactions(self) -> Transactions:
        """Return the outcomes of the dirty part's transactions; they are read when the first is met."""
        if self._transactions is None:
            found = Transactions(self._first_dirty)
            for segment, begin, _ in self._dirty():
                for window in self._windows(segment, begin):
                    self._bytes_indexed += len(window.data)
                    with _located(segment, window):
                        found.add(window.data)
            self._transactions = found
        return self._transactions

    def _find_horizon(self) -> None:
        """Set the age limit of tombstones from the last segment of the clean part."""
        for segment, following in pairwise(self._segments):
            if following.base_offset <= self._first_dirty and segment.size:
                self._clean_before = following.base_offset
                self._horizon_ms = segment.file.modified_ms() - self._config.delete_retention_ms

    def _tombstones_stay(self, segment: Segment) -> bool:
        """Return whether tombstones of magic 0 and 1 stay."""
        return segment.base_offset >= self._clean_before or segment.file.modified_ms() > self._horizon_ms

    def _rewrite(self, group: Sequence[Segment], record_filter: RecordFilter) -> None:
        """Replace neighbouring segments by one with their retained messages."""
        log = self._log
        cleaned = create_cleaned(self._files, log.directory, log.layout, group[0].base_offset)
        try:
            for segment in group:
                record_filter.tombstones_stay = self._tombstones_stay(segment)
                for window in self._windows(segment):
                    self._bytes_read += len(window.data)
                    with _located(segment, window):
                        kept = record_filter.filter(window.data)
                    if kept is None:
                        continue
                    if cleaned.size + len(kept.data) > _POSITION_MAX:
                        raise Uncleanable(f"{segment.path}: the retained data does not fit one segment")
                    cleaned.append(
                        kept.data,
                        kept.newest,
                        self._config.index_interval_bytes,
                        classic=kept.classic,
                        settled=kept.classic or not has_transactions(kept.data),
                    )
                    self._bytes_written += len(kept.data)
                    self._cleaner.throttle(len(kept.data), self._check)
            cleaned.file.set_modified_ms(max(segment.file.modified_ms() for segment in group))
            aborted = self._aborted(group, record_filter)
            if aborted is not None:
                cleaned.transactions.prepare(aborted)
                self._files.sync_dir(log.directory)
            self._discard(log, log.replace_segments(cleaned, group))
        except BaseException:
            if cleaned.path.endswith(CLEANED_SUFFIX):
                with contextlib.suppress(StorageError, FileNotFoundError):
                    self._files.remove(cleaned.path)
                    cleaned.transactions.remove_prepared()
            raise

    def _aborted(
        self, group: Sequence[Segment], record_filter: RecordFilter
    ) -> list[AbortedTransaction] | None:
        """Return the entries of the transaction index of the new segment: the old ones of transactions with a
        batch before the marker. None if it needs no index, or the old segments have no complete one.
        """
        indexes = [index for segment in group if (index := segment.transactions.index()) is not None]
        before = (segment for segment in self._segments if segment.base_offset < group[0].base_offset)
        if (
            not indexes
            or any(index.damaged for index in indexes)
            or not (
                group[0].transactions.is_indexed()
                or any(segment.transactions.is_indexed() for segment in before)
            )
        ):
            return None
        needed, end_offset = record_filter.markers_needed, self._offsets.end_offset
        return [
            entry
            for index in indexes
            for entry in index.entries()
            if entry.last_offset in needed or entry.last_offset >= end_offset
        ]


@contextlib.contextmanager
def _located(segment: Segment, window: Window) -> Iterator[None]:
    """Add the file and the position to an error about damage."""
    try:
        yield
    except BrokerError as error:
        where = f"{segment.path}, counted from position {window.position}"
        raise Uncleanable(f"{where}: {error.detail}") from error


def position_of(segment: Segment, offset: int) -> int:
    """Return the position of an entry at or shortly before ``offset``, by the index."""
    return segment.index().lookup(offset)[1] if offset > segment.base_offset else 0


def groups(segments: Sequence[Segment], end_offset: int, config: LogConfig) -> list[list[Segment]]:
    """Group neighbours that fit one segment; of ``segments``, all but the last that begin below the end.

    (``groupSegmentsBySize`` of 3.9.1.)
    """
    found: list[list[Segment]] = []
    room = _Room(0, 0, 0)
    for segment, following in pairwise(segments):
        if segment.base_offset >= end_offset:
            break
        room = room.less(segment)
        far = following.base_offset - 1 - (found[-1][0].base_offset if found else 0)
        if found and min(room.size, room.index, room.times) >= 0 and far <= RELATIVE_OFFSET_MAX:
            found[-1].append(segment)
        else:
            found.append([segment])
            room = _Room(config.segment_bytes, config.index_max_bytes, config.index_max_bytes).less(segment)
    return found


@dataclass(frozen=True, slots=True)
class _Room:
    """Bytes that may still be added to a segment and its indexes."""

    size: int
    index: int
    times: int

    def less(self, segment: Segment) -> _Room:
        """Return the bytes that may still be added after ``segment``."""
        return _Room(
            self.size - segment.size,
            self.index - len(segment.index()) * OffsetIndex.LAYOUT.itemsize,
            self.times - len(segment.times()) * TimeIndex.LAYOUT.itemsize,
        )
