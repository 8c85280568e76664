"""One segment of a log: a file of message set entries beside its two sparse indexes, and the index of aborted
transactions if it has transactions (``transaction_index``).

    offset   int64     of the message; of a compressed one, the offset of the last message inside; of a batch
                       (magic 2), that of its first record
    size     int32     of the message that follows
    message  size bytes

Invariants: the file up to ``size`` holds whole entries with increasing offsets, each at or above
``base_offset``. Bytes after ``size`` (left by a failed append that could not be removed) are never read.
``size`` grows only after the write returned, so that a reader in another thread sees whole entries.

A preallocated file (``preallocate``) is longer than ``size`` while the segment grows: zeros follow.

A file is closed with the last reference to it: fetches in progress continue to send from a deleted segment.
Rebuilt indexes are written by flush and close only: a reader of a deleted segment must not write files
beside the segment that now has its name.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from minikafka.base.errors import StorageError
from minikafka.base.files import Buffer, File, Files, FileSlice
from minikafka.log.file_scan import FileScan, scan_file
from minikafka.log.index.index_file import RELATIVE_OFFSET_MAX
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.log.index.time_index import TimeIndex
from minikafka.log.index.transaction_index import SegmentTransactions
from minikafka.records.format import batch
from minikafka.records.format.message_set import NO_TIMESTAMP
from minikafka.records.kernels import layout
from minikafka.records.scan.isolation import has_transactions
from minikafka.records.scan.scan import scan

_HEADER = layout.BATCH_FIELDS.struct("base_offset", "size", "magic", "last_offset_delta")
"""Offset, size, magic and, in a batch, the last offset's distance from the first."""
_TIMESTAMP = struct.Struct(">q")
_WINDOW_BYTES = 1 << 20
_LOOK_BYTES = 5120
"""Bytes that a look-up reads at once: an index interval with some room."""


Marks = Sequence[tuple[int, int]]
Newest = tuple[int, int]
"""The largest timestamp in ms, and the last offset of the first entry that has it."""


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """The place of a message set entry: file position, last offset, and size with the 12 bytes of header."""

    position: int
    offset: int
    size: int


class Segment:
    """One segment of a log. One thread changes it while others read."""

    __slots__ = (
        "_appended",
        "_created_ms",
        "_files",
        "_first_timestamp_ms",
        "_found",
        "_index",
        "_index_path",
        "_kinds",
        "_time_index_path",
        "_times",
        "base_offset",
        "file",
        "size",
        "transactions",
    )

    def __init__(
        self,
        files: Files,
        file: File,
        index_path: str,
        time_index_path: str,
        transaction_index_path: str,
        base_offset: int,
        *,
        empty: bool = False,
        created_ms: int | None = None,
    ) -> None:
        """``empty``: the segment is new, its file may be preallocated. ``created_ms``: the time of creation,
        where that is known.
        """
        self._files = files
        self._index_path = index_path
        self._time_index_path = time_index_path
        self.file = file
        self.base_offset = base_offset
        self.size = 0 if empty else file.size()
        self._created_ms = created_ms
        self._first_timestamp_ms: int | None = None
        # The largest timestamp with an offset as in the time index, in two fields, each with its own writer:
        # a scan may miss the messages appended meanwhile.
        self._found: Newest = (-1, base_offset)
        """That of the messages that were here at open, as far as they were scanned."""
        self._appended: Newest = (-1, base_offset)
        """That of the messages appended since."""
        self._kinds = _Kinds(0)
        self._index: OffsetIndex | None = None if self.size else OffsetIndex(index_path, base_offset)
        self._times: TimeIndex | None = None if self.size else TimeIndex(time_index_path, base_offset)
        self.transactions = SegmentTransactions(
            files, transaction_index_path, base_offset, is_new=self.size == 0
        )
        """The aborted transactions that end in the segment."""

    @property
    def path(self) -> str:
        """The path of the segment file."""
        return self.file.path

    def max_timestamp(self) -> Newest:
        """The largest timestamp, -1 for none, and the offset of the first entry that has it."""
        self.times()
        return max(self._found, self._appended, key=lambda newest: newest[0])

    def update_max_timestamp(self, found: Newest) -> None:
        """Merge the largest timestamp that a scan has found. Messages may have been appended meanwhile."""
        if found[0] > self._found[0]:
            self._found = found

    def times(self, interval_bytes: int = 4096) -> TimeIndex:
        """The time index: loaded at first use, rebuilt from the segment when its file is not valid."""
        if self._times is None and not self.load_times():
            self.rebuild_indexes(interval_bytes)
        assert self._times is not None
        return self._times

    def load_times(self) -> bool:
        """Load the time index from its file; return whether that is valid."""
        times = TimeIndex.load(self._files, self._time_index_path, self.base_offset)
        if times is None:
            return False
        self.update_max_timestamp(times.last())
        self._times = times
        return True

    def index(self, interval_bytes: int = 4096) -> OffsetIndex:
        """The offset index: loaded at first use, rebuilt from the segment when its file is not valid."""
        index = self._index
        if index is None:
            index = OffsetIndex.load(self._files, self._index_path, self.base_offset, self.size)
            if index is None:
                return self.rebuild_indexes(interval_bytes)
            self._index = index
        return index

    def rebuild_indexes(self, interval_bytes: int = 4096) -> OffsetIndex:
        """Rebuild both indexes from the segment, without computing checksums."""
        size, base = self.size, self.base_offset
        return self.adopt_scan(
            scan_file(self.file, 0, size, base, interval_bytes=interval_bytes, check_crc=False)
        )

    def load_indexes(self) -> None:
        """Load the indexes into memory now, as that may take long when they are needed."""
        self.index()
        self.times()
        self.transactions.index()

    def adopt_scan(self, found: FileScan) -> OffsetIndex:
        """Replace the indexes and the largest timestamp by those of a scan of the whole segment."""
        index = OffsetIndex(self._index_path, self.base_offset)
        times = TimeIndex(self._time_index_path, self.base_offset)
        for entries, time_entries in zip(found.entries, found.time_entries, strict=True):
            index.extend(entries)
            times.extend(time_entries)
        times.append(*found.max_timestamp)
        self.update_max_timestamp(found.max_timestamp)
        self._index, self._times = index, times
        return index

    def fits(self, last_offset: int) -> bool:
        """Return whether an entry of this offset fits the index of this segment."""
        return last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def time_waited_for_roll_ms(self, newest_ms: int, now_ms: int) -> int:
        """Return the age of the segment when a message of ``newest_ms`` arrives at ``now_ms``.

        The age counts in message time from the first message's timestamp; without one, from the creation of
        the file. (``LogSegment.timeWaitedForRoll`` of 0.10.1.) The segment must not be empty.
        """
        first_ms = self.first_timestamp_ms()
        if first_ms >= 0:
            return newest_ms - first_ms
        if self._created_ms is None:
            # The broker was started since: the segment is at least as old as its last modification.
            self._created_ms = self.file.modified_ms()
        return now_ms - self._created_ms

    def first_timestamp_ms(self) -> int:
        """Return the timestamp of the first message, or the largest one of the first batch; -1 for none."""
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = self._read_first_timestamp()
        return self._first_timestamp_ms

    def _read_first_timestamp(self) -> int:
        head = self.file.read_at(0, layout.MAX_TIMESTAMP_AT + _TIMESTAMP.size)
        magic = head[layout.MAGIC_AT] if len(head) > layout.MAGIC_AT else 0
        at = {1: layout.MESSAGE_TIMESTAMP_AT, batch.MAGIC: layout.MAX_TIMESTAMP_AT}.get(magic)
        if at is None or len(head) < at + _TIMESTAMP.size:
            return NO_TIMESTAMP
        return int(_TIMESTAMP.unpack_from(head, at)[0])

    def last_time_ms(self) -> int:
        """Return the largest timestamp; where messages have none, the file's last modification time."""
        newest_ms = self.max_timestamp()[0]
        return newest_ms if newest_ms >= 0 else self.file.modified_ms()

    def append(
        self,
        data: Buffer,
        newest: Newest,
        interval_bytes: int,
        *,
        classic: bool = True,
        settled: bool = True,
        marks: Marks | None = None,
    ) -> None:
        """Append entries. After a StorageError none of them can be read.

        ``marks``: last offset and position in ``data`` of one entry in each interval, from which the index
        takes its entries (``records.append.validation.assign``); without them ``data`` is scanned.
        ``classic``: no entry is of magic 2; ``settled``: none belongs to a transaction.
        ``UnusableSegment`` when the failed append could not be removed from the file.
        """
        position = self.size
        try:
            self.file.write_at(position, data)
        except StorageError as error:
            self._cut_back(position, error)
            raise
        # Before the size: a reader that sees the message must see its timestamp.
        if newest[0] > self._appended[0]:
            self._appended = newest
        self._index_appended(data, marks, position, interval_bytes)
        kinds = self._kinds
        if classic and kinds.classic_bytes == position:
            kinds.classic_bytes = position + len(data)
        if settled:
            kinds.settle(position, position + len(data))
        self.size = position + len(data)

    def _cut_back(self, size: int, error: StorageError) -> None:
        try:
            self.file.truncate(size)
        except StorageError as second:
            raise UnusableSegment(f"{error}; and the failed append cannot be removed: {second}") from error

    def _index_appended(self, data: Buffer, marks: Marks | None, position: int, interval_bytes: int) -> None:
        index = self.index(interval_bytes)
        indexed = index.last()[1]
        if position + len(data) - indexed <= interval_bytes:
            return
        if marks is None:
            found = scan(
                data, base_offset=self.base_offset, index_interval_bytes=interval_bytes, check_crc=False
            )
            marks = found.index_entries.tolist()
        # Large records get index entries inside, or look-ups would have to scan all of them.
        index.extend_by_marks(marks, position, interval_bytes)
        if index.last()[1] > indexed:
            self.times(interval_bytes).append(*self.max_timestamp())

    def translate_offset(self, offset: int) -> OffsetPosition | None:
        """Find the first entry whose offset is at or above ``offset``; None when all are below.

        Reads the headers from an index entry to the wanted one. Raises StorageError when they are not valid.
        """
        try:
            return self._find_entry(offset)
        except _CorruptPosition:
            # The index has no checksum and may point between entries. The segment itself decides.
            self.rebuild_indexes()
            try:
                return self._find_entry(offset)
            except _CorruptPosition as nonsense:
                raise StorageError(
                    f"{self.path} is damaged at position {nonsense.position}: no valid message there; "
                    "`minikafka log verify` shows the damage and the offset from which it can be read"
                ) from None

    def _find_entry(self, offset: int) -> OffsetPosition | None:
        # The busiest loop of a look-up: there are some 15 headers between two index entries.
        end, unpack, batch_magic, header, least_size = (
            self.size,
            _HEADER.unpack_from,
            batch.MAGIC,
            layout.ENTRY_HEADER_BYTES,
            layout.MIN_SIZE,
        )
        least, window_at = self.index().lookup(offset)
        # The index may say the entry's last offset, or its first.
        before = least - 1
        while window_at < end:
            window = self.file.read_at(window_at, min(_LOOK_BYTES, end - window_at))
            if window_at + len(window) >= end:
                window += b"\0"  # the smallest message is a byte shorter than _HEADER
            at, last_at = 0, len(window) - _HEADER.size
            if last_at < 0:
                raise _CorruptPosition(window_at)
            while at <= last_at:
                last, size, magic, more = unpack(window, at)
                if magic == batch_magic:
                    last += more
                if last <= before or size < least_size:
                    raise _CorruptPosition(window_at + at)
                if last >= offset:
                    if window_at + at + header + size > end:
                        raise _CorruptPosition(window_at + at)
                    return OffsetPosition(window_at + at, last, header + size)
                before = last
                at += header + size
            window_at += at
        if window_at > end:
            raise _CorruptPosition(window_at)  # the last entry is longer than the rest of the file
        return None

    def whole_within(self, position: int, length: int) -> int:
        """Return how many of ``length`` bytes from ``position``, where an entry begins, are whole entries."""
        end = position + length
        if end >= self.size:
            return self.size - position
        begin = max(position, self.index().position_within(end))
        found = scan(self.file.read_at(begin, end - begin), base_offset=None, check_crc=False)
        return begin + found.valid_bytes - position

    def classic_steps(self, position: int, end: int) -> Generator[int, None, bool]:
        """Return whether every whole entry between two positions, the first of an entry, is of magic 0 or 1.

        Entries are examined once, in order and in steps of a window each; the kinds of appended entries are
        known. The steps need little memory.
        """
        # In this order: ``kinds`` is right for the entries below this size until it is replaced.
        kinds = self._kinds
        stable = self.size
        at = max(position, min(kinds.classic_bytes, end)) if position <= kinds.classic_bytes else position
        while at < end:
            data = self.file.read_at(at, min(_WINDOW_BYTES, end - at))
            if data[layout.MAGIC_AT : layout.MAGIC_AT + 1] == b"\2":
                return False  # the first entry, as all that follows in most logs
            found = scan(data, base_offset=None, check_crc=False, max_magic=1)
            if found.problem is not None and not found.incomplete:
                return False
            # A large entry need not be read: its size and its magic byte are enough.
            size = found.valid_bytes or (found.wanted_bytes if len(data) > layout.MAGIC_AT else 0)
            if not size or at + size > end:
                break
            if at <= kinds.classic_bytes and at + size <= stable:
                kinds.classic_bytes = max(kinds.classic_bytes, at + size)
            at += size
            yield 0
        return True

    def transaction_steps(self, position: int, end: int) -> Generator[int, None, bool]:
        """Return whether a whole entry between two positions, the first of an entry, is of a transaction.

        The marker that ends a transaction counts too. Entries that are read in order are examined once; the
        kinds of appended entries are known. In steps of a window each, which need little memory.
        """
        kinds = self._kinds
        stable = self.size
        begin, behind = kinds.settled
        if begin <= position and end <= behind:
            return False
        at = position
        for data in self.windows(position, end):
            if has_transactions(data):
                return True
            at += len(data)
            yield 0
        kinds.settle(position, min(at, stable))
        return False

    def windows(self, position: int, end: int) -> Iterator[Buffer]:
        """Yield the whole entries between two positions, the first of an entry, in windows."""
        size = _WINDOW_BYTES
        while position < end:
            data = memoryview(self.file.read_at(position, min(size, end - position)))
            whole = scan(data, base_offset=None, check_crc=False).valid_bytes
            if whole:
                yield data[:whole]
                position, size = position + whole, _WINDOW_BYTES
            elif len(data) == size:
                size *= 4
            else:
                return

    def slice(self, position: int, length: int) -> FileSlice:
        """Return a range of the file, without reading it."""
        return FileSlice(self.file, position, length)

    def next_offset(self) -> int:
        """Return the offset after the last entry. Scans from the last index entry, without checksums."""
        _, position = self.index().last()
        found = scan_file(self.file, position, self.size, self.base_offset, check_crc=False)
        return found.next_offset

    def cut(self, size: int) -> None:
        """Truncate the segment to ``size``, where an entry begins, and flush that. Raises StorageError."""
        self.size = size
        self.index().cut(size)
        # After the size, and a new object: a reader of the removed part still updates the old one.
        self._kinds = _Kinds(min(self._kinds.classic_bytes, size))
        # The largest timestamp of the rest is looked up again when it is needed.
        self._found = self._appended = (-1, self.base_offset)
        self._first_timestamp_ms = self._first_timestamp_ms if size else None
        self._times = None if size else TimeIndex(self._time_index_path, self.base_offset)
        self.remove_indexes()
        if size:
            # No time index: an empty one would mean a segment without timestamps.
            self.index().create_empty(self._files)
        else:
            self.create_index_files()
        self.file.truncate(size)
        self.file.sync()

    def trim(self) -> None:
        """Release the preallocated space after ``size``."""
        if self.file.size() != self.size:
            self.file.truncate(self.size)

    def move(self, path: str) -> None:
        """Rename the segment file."""
        self._files.rename(self.path, path)
        self.file.path = path

    def write_indexes(self, *, sync: bool) -> bool:
        """Bring the index files up to date, when the indexes are loaded; return whether names have changed.

        Files that cannot be written are removed: the indexes are in memory, and the next open rebuilds them.
        Not that of aborted transactions, which only recovery rebuilds: raises StorageError.
        """
        try:
            self.transactions.write_out(sync=sync)
        except FileNotFoundError as error:
            raise StorageError(f"the directory of {self.path} was deleted") from error
        if self._index is None and self._times is None:
            return False
        try:
            if not self.size:
                return self.create_index_files()  # not flushed: 2,000 idle partitions would cost as many
            self.times().append(*self.max_timestamp())
            return self._write_out(sync=sync)
        except FileNotFoundError as error:
            raise StorageError(f"the directory of {self.path} was deleted") from error
        except StorageError:
            # A remaining file could be trusted although parts of it may be older than the segment.
            self.remove_indexes()
            return True

    def _write_out(self, *, sync: bool) -> bool:
        new = self.index().write_out(self._files, sync=sync)
        return self.times().write_out(self._files, sync=sync) or new

    def create_index_files(self) -> bool:
        """Create empty index files for an empty segment; return whether a name is new.

        Raises StorageError.
        """
        # The offset index is created first and removed last: Kafka's tools read it for a time index.
        new = self.index().create_empty(self._files)
        return self.times().create_empty(self._files) or new

    def remove_indexes(self) -> None:
        """Remove the index files; the indexes in memory stay."""
        index, times = self._index, self._times
        if times is None:
            times = TimeIndex(self._time_index_path, self.base_offset)
        times.remove_file(self._files)
        if index is None:
            index = OffsetIndex(self._index_path, self.base_offset)
        index.remove_file(self._files)


class _Kinds:
    """The known kinds of a segment's entries, until it is truncated. Readers and appends both add to it."""

    __slots__ = ("classic_bytes", "settled")

    def __init__(self, classic_bytes: int) -> None:
        self.classic_bytes = classic_bytes
        """The entries before this position are of magic 0 and 1."""
        self.settled = (0, 0)
        """The entries between these positions belong to no transaction."""

    def settle(self, position: int, end: int) -> None:
        """Record that no entry in this range belongs to a transaction, if it adjoins the known range."""
        begin, behind = self.settled
        if end <= position:
            return
        if begin == behind:
            self.settled = (position, end)
        elif position <= behind and begin <= end:
            self.settled = (min(begin, position), max(behind, end))


class UnusableSegment(StorageError):
    """The end of a segment is unknown: nothing may be appended to it until it is recovered."""


class _CorruptPosition(Exception):
    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position
