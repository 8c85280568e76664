"""The check of a segment and its two indexes, in bulk: ``minikafka log dump --verify`` and ``log verify``.

Segment: sizes, checksums, increasing offsets, and the whole content of compressed messages and batches
(``records.columns``). As in ``dump``, damage skips an entry, or the rest of the file when no plausible entry
follows; after damage, offsets may restart at a lower number.

Offset index: the facts that a look-up relies on. Both numbers increase, an entry of the segment begins at
each position, and the offset is greater than those before that entry, and not greater than those before the
next indexed one. (0.10.1 notes the first offset of an append, later releases the last, and a replica appends
several batches at once.)

Time index: timestamps increase, offsets do not decrease; each timestamp is the largest of the segment up to
that offset, and larger than all before the entry that has it. In a closed segment, the last timestamp is the
largest of the segment. After a crash, the indexes of the growing segment may lack entries, and Kafka
preallocates files with zeros. Neither is damage.

A segment is read in windows; from each, only the facts that the index entries need are kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from minikafka.base.errors import BrokerError
from minikafka.base.files import File, Files
from minikafka.log.file_scan import Window, windows
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.log.index.time_index import TimeIndex
from minikafka.log.tools.dump import Damage, FileWindow, damaged_entry, entry_size
from minikafka.records.columns import ColumnDecoder
from minikafka.records.format import batch
from minikafka.records.format.message_set import NO_TIMESTAMP, Codec
from minikafka.records.kernels import layout
from minikafka.records.kernels.arrays import INT64_MAX, INT64_MIN
from minikafka.records.scan.scan import MAX_RELATIVE_OFFSET

IndexEntries = npt.NDArray[np.int64]
"""int64[n, 2], as in the index file: relative offset and position, or timestamp and relative offset."""
Longs = npt.NDArray[np.int64]
Table = npt.NDArray[np.int64]
"""int64[n, 3]: last offset, position and largest timestamp so far, of each entry."""
OnBytes = Callable[[int], object]
"""Called with the number of bytes that were checked since the last call."""

_DECODE_BYTES = 1 << 20
"""Stored bytes that are decoded at once: compressed bytes may decode to many times as much."""
_MESSAGE = layout.MESSAGE_FIELDS.struct("offset", "magic", "timestamp")
"""Offset, magic and timestamp. The smallest message has as many bytes, even without a timestamp."""
_BATCH = layout.BATCH_FIELDS.struct("base_offset", "last_offset_delta", "max_timestamp")
"""Base offset, last offset delta and largest timestamp."""
_BAD_CRC = "the checksum does not match the message"
_NOTHING = -2
_NONE_ASKED = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """The result of checking a segment. Offsets are None when it has no valid record."""

    path: str
    size_bytes: int
    entries: int
    """The number of top-level messages and batches."""
    records: int
    first_offset: int | None
    last_offset: int | None
    newest_ms: int
    """The largest timestamp, -1 for none."""
    codecs: tuple[str, ...]
    magics: tuple[int, ...]
    damage: tuple[Damage, ...]
    looked_up: LookedUp

    def is_damaged(self, positions: Longs) -> npt.NDArray[np.bool_]:
        """Return for each position whether it is in a damaged part."""
        found = np.zeros(len(positions), dtype=np.bool_)
        for damage in self.damage:
            found |= (damage.position <= positions) & (positions < damage.position + damage.length)
        return found


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The facts of a segment for the entries of its indexes; -2 where the segment has no entry.

    precedes       for each requested position, the last offset before the entry that begins there
    newest         for each requested offset, the largest timestamp up to the entry that holds it
    newest_before  the same without that entry
    """

    precedes: Longs
    newest: Longs
    newest_before: Longs


def check_segment(
    files: Files,
    path: str,
    base_offset: int | None,
    *,
    positions: Longs = _NONE_ASKED,
    offsets: Longs = _NONE_ASKED,
    on_bytes: OnBytes = lambda count: None,
) -> SegmentCheck:
    """Check a whole segment.

    ``base_offset`` None: it is not known, and is taken from the first entry. ``positions`` and ``offsets``
    (not relative) are those in the indexes. Raises FileNotFoundError when there is no such file, StorageError
    when it cannot be read.
    """
    with contextlib.closing(files.open(path, read_only=True)) as file:
        return _Check(file, base_offset, positions, offsets, on_bytes).run()


class _Check:
    """One check of a segment."""

    def __init__(
        self, file: File, base_offset: int | None, positions: Longs, offsets: Longs, on_bytes: OnBytes
    ) -> None:
        self._file = file
        self._end = file.size()
        self._reader = FileWindow(file, self._end)
        if base_offset is None:
            head = self._reader.take(0, layout.SIZE_AT) if self._end >= layout.ENTRY_HEADER_BYTES else b""
            base_offset = max(0, int.from_bytes(head, "big", signed=True))
        self._base = base_offset
        self._on_bytes = on_bytes
        self._damage: list[Damage] = []
        self._entries = self._records = 0
        self._first_offset: int | None = None
        self._codecs: set[int] = set()
        self._magics: set[int] = set()
        self._last_entry = self._last_record = base_offset - 1
        """The offsets of the last entry and the last record so far."""
        self._newest_ms = NO_TIMESTAMP
        self._positions, self._offsets = positions, offsets
        self._precedes = np.full(len(positions), _NOTHING, dtype=np.int64)
        self._newest = np.full(len(offsets), _NOTHING, dtype=np.int64)
        self._newest_before = np.full(len(offsets), _NOTHING, dtype=np.int64)

    def run(self) -> SegmentCheck:
        position = 0
        while position < self._end:
            position, why = self._good_from(position)
            if position < self._end:
                position = self._behind_damage(position, why)
        return SegmentCheck(
            path=self._file.path,
            size_bytes=self._end,
            entries=self._entries,
            records=self._records,
            first_offset=self._first_offset,
            last_offset=None if self._first_offset is None else self._last_entry,
            newest_ms=self._newest_ms,
            codecs=tuple(Codec(codec).name.lower() for codec in sorted(self._codecs)),
            magics=tuple(sorted(self._magics)),
            damage=tuple(self._damage),
            looked_up=LookedUp(self._precedes, self._newest, self._newest_before),
        )

    def _good_from(self, begin: int) -> tuple[int, str | None]:
        """Check the entries from ``begin`` up to the next damage; return its position, and the reason."""
        position, why = begin, None
        # An interval below the smallest entry lists every entry. Checksums are checked with the content.
        interval = layout.MIN_MESSAGE_BYTES - 1
        for window in windows(
            self._file, begin, self._end, self._base, interval_bytes=interval, check_crc=False
        ):
            if len(window.data):
                self._take(window, _table(window, begin))
            position = window.position + len(window.data)
            why = _BAD_CRC if window.result.incomplete else window.result.problem
            self._on_bytes(len(window.data))
        return position, why

    def _behind_damage(self, position: int, why: str | None) -> int:
        """Record the damage at ``position``, and return the next position at which an entry may begin."""
        rest = self._end - position
        if why is None:
            self._note(Damage(self._file.path, position, rest, "the file was truncated while it was read"))
            return self._end
        _, reason = entry_size(self._reader, position, self._end)
        if reason is not None:
            self._note(Damage(self._file.path, position, rest, reason), hopeless=True)
            return self._end
        damage = damaged_entry(self._reader, position, self._end, why.rpartition(", at position")[0] or why)
        self._note(damage)
        self._on_bytes(damage.length)
        # Offsets may restart from here, also in a file with a wrong name.
        offset = int.from_bytes(self._reader.take(position, layout.SIZE_AT), "big")
        if not self._base <= offset <= self._base + MAX_RELATIVE_OFFSET:
            self._base = offset
        self._last_record = self._base - 1
        return position + damage.length

    def _note(self, damage: Damage, *, hopeless: bool = False) -> None:
        """Record damage.

        ``hopeless``: no valid entry; it extends damage before it, whose size may be wrong.
        """
        before = self._damage[-1] if self._damage else None
        if hopeless and before is not None and before.position + before.length == damage.position:
            self._damage[-1] = replace(before, length=before.length + damage.length)
        else:
            self._damage.append(damage)

    def _take(self, window: Window, table: Table) -> None:
        """Check the entries of a window, which ``table`` lists."""
        last, newest_ms = table[:, 0], np.maximum(table[:, 2], self._newest_ms)
        self._look_up(last, table[:, 1], newest_ms)
        begins = table[:, 1] - window.position
        good = np.ones(len(begins), dtype=np.bool_)
        first = 0
        while first < len(begins):
            # At least one entry.
            stop = max(first + 1, int(begins.searchsorted(begins[first] + _DECODE_BYTES)))
            self._decode(window, begins, good, first, stop)
            first = stop
        self._count(window, begins[good])
        self._last_entry, self._newest_ms = int(last[-1]), int(newest_ms[-1])

    def _look_up(self, last: Longs, positions: Longs, newest_ms: Longs) -> None:
        """Look up the requested facts in these entries: last offset, position, largest timestamp so far."""
        asked = np.flatnonzero((self._positions >= positions[0]) & (self._positions <= positions[-1]))
        number = positions.searchsorted(self._positions[asked])
        hit = positions[number] == self._positions[asked]
        asked, number = asked[hit], number[hit]
        self._precedes[asked] = np.where(number > 0, last[number - 1], self._last_entry)
        asked = np.flatnonzero((self._offsets > self._last_entry) & (self._offsets <= last[-1]))
        number = last.searchsorted(self._offsets[asked])
        self._newest[asked] = newest_ms[number]
        self._newest_before[asked] = np.where(number > 0, newest_ms[number - 1], self._newest_ms)

    def _decode(
        self, window: Window, begins: Longs, good: npt.NDArray[np.bool_], first: int, stop: int
    ) -> None:
        """Decode the entries from number ``first`` up to ``stop``; damaged entries are not ``good``."""
        end = int(begins[stop]) if stop < len(begins) else len(window.data)
        at, next_offset = int(begins[first]), INT64_MIN
        while at < end:
            decoder = ColumnDecoder(next_offset, INT64_MAX)
            with contextlib.suppress(BrokerError):
                decoder.add(window.data[at:end])
            columns = decoder.columns()
            offsets = columns.offsets
            if len(offsets) and (offsets <= np.concatenate(([self._last_record], offsets[:-1]))).any():
                if stop - first > 1:
                    # Decode each entry by itself, to find the one that is out of order.
                    for number in range(int(begins.searchsorted(at)), stop):
                        self._decode(window, begins, good, number, number + 1)
                    return
                reason = f"offset {offsets.min()} does not follow offset {self._last_record}"
                self._note(Damage(self._file.path, window.position + at, end - at, reason))
            if len(offsets):
                self._records += len(offsets)
                self._last_record = int(offsets[-1])
                self._first_offset = int(offsets[0]) if self._first_offset is None else self._first_offset
            at, next_offset = at + columns.valid_bytes, columns.next_offset
            if at < end and columns.complete:
                number = int(begins.searchsorted(at))
                good[number] = False
                behind = int(begins[number + 1]) if number + 1 < len(begins) else len(window.data)
                position, reason = window.position + at, _fault(window.data[at:behind])
                self._note(Damage(self._file.path, position, behind - at, reason))
                at, next_offset = behind, INT64_MIN

    def _count(self, window: Window, begins: Longs) -> None:
        """Count the formats and codecs of the good entries, and the records of control batches."""
        data = np.frombuffer(window.data, dtype=np.uint8)
        magics = data[begins + layout.MAGIC_AT]
        batches = magics == batch.MAGIC
        # The low byte of the two attribute bytes of a batch.
        attributes = data[begins + np.where(batches, layout.BATCH_FLAGS_AT, layout.MESSAGE_ATTRIBUTES_AT)]
        self._entries += len(begins)
        self._magics.update(np.unique(magics).tolist())
        self._codecs.update(np.unique(attributes & layout.CODEC_MASK).tolist())
        if self._first_offset is None and len(begins):
            self._first_offset = int.from_bytes(window.data[begins[0] : begins[0] + layout.SIZE_AT], "big")
        for begin in begins[batches & (attributes & layout.CONTROL_BIT != 0)].tolist():
            self._records += batch.read_header(window.data, begin, check_crc=False).count


def _table(window: Window, begin: int) -> Table:
    """List the entries of a window: last offset, position, and the largest timestamp so far.

    ``begin`` is where the windows begin: the scan does not list the entry there.
    """
    listed = np.column_stack((window.result.index_entries, window.result.time_entries[:, 0]))
    if window.position != begin:
        return listed
    if window.data[layout.MAGIC_AT] == batch.MAGIC:
        offset, delta, timestamp_ms = _BATCH.unpack_from(window.data)
        offset += delta
    else:
        offset, magic, timestamp_ms = _MESSAGE.unpack_from(window.data)
        timestamp_ms = timestamp_ms if magic else NO_TIMESTAMP
    first = (offset, begin, max(timestamp_ms, NO_TIMESTAMP))
    return np.concatenate((np.array([first], dtype=np.int64), listed))


def _fault(entry: memoryview) -> str:
    """Return the reason why an entry cannot be decoded."""
    try:
        ColumnDecoder(INT64_MIN, INT64_MAX).add(entry)
    except BrokerError as error:
        return f"{error.detail} of the entry"
    return "its content cannot be decoded"


def check_offset_index(
    path: str, entries: IndexEntries, base_offset: int, segment: SegmentCheck, *, growing: bool = False
) -> list[Damage]:
    """Return the damage of an offset index; ``segment`` was checked with its positions.

    ``growing``: entries beyond the segment were written after the segment was read.
    """
    found = _Findings(path, entries, ("offset", "position"), (base_offset, 0), OffsetIndex.LAYOUT.itemsize)
    relative, position = entries.T
    offset, precedes = base_offset + relative, segment.looked_up.precedes
    end = segment.last_offset if segment.last_offset is not None else base_offset - 1
    found.add(np.minimum(relative, position) < 0, lambda i: "negative number")
    falls = np.zeros(len(entries), dtype=np.bool_)
    falls[1:] = (np.diff(relative) <= 0) | (np.diff(position) <= 0)
    found.add(falls, lambda i: "not greater than the entry before it")
    beyond = position >= segment.size_bytes
    if growing:
        found.pass_over(beyond)
    found.add(beyond, lambda i: f"the segment has {segment.size_bytes} bytes")
    found.pass_over(segment.is_damaged(position))
    found.add(precedes == _NOTHING, lambda i: "no entry of the segment begins there")
    found.add(offset <= precedes, lambda i: f"the entries before that position reach offset {precedes[i]}")
    # A wrong entry must not make the one before it look wrong.
    reaches = np.append(np.where(found.open, precedes, end)[1:], end)[: len(entries)]
    found.add(
        (offset > reaches) & ~(growing & (reaches == end)),
        lambda i: f"offsets from there to the next indexed position reach {reaches[i]}",
    )
    return found.damage()


def check_time_index(
    path: str,
    entries: IndexEntries,
    base_offset: int,
    segment: SegmentCheck,
    *,
    closed: bool,
    growing: bool = False,
) -> list[Damage]:
    """Return the damage of a time index; ``segment`` was checked with its offsets (not relative).

    ``closed``: the last entry must have the largest timestamp. ``growing`` as for the offset index.
    """
    found = _Findings(path, entries, ("timestamp", "offset"), (0, base_offset), TimeIndex.LAYOUT.itemsize)
    timestamp, relative = entries.T
    looked_up = segment.looked_up
    found.add(np.minimum(timestamp, relative) < 0, lambda i: "negative number")
    falls = np.zeros(len(entries), dtype=np.bool_)
    falls[1:] = (np.diff(timestamp) <= 0) | (np.diff(relative) < 0)
    found.add(falls, lambda i: "not greater than the entry before it")
    missing = looked_up.newest == _NOTHING
    if growing or segment.damage:
        found.pass_over(missing)
    found.add(missing, lambda i: "the segment does not hold that offset")
    found.add(
        looked_up.newest != timestamp,
        lambda i: f"the largest timestamp up to that offset is {looked_up.newest[i]}",
    )
    found.add(
        looked_up.newest_before >= timestamp,
        lambda i: f"timestamp {looked_up.newest_before[i]} occurs before that offset",
    )
    damage = found.damage()
    noted = int(timestamp[-1]) if len(entries) else NO_TIMESTAMP
    # An entry of time 0 and offset 0 cannot be distinguished from preallocated zeros.
    if closed and not damage and not segment.damage and noted < segment.newest_ms and segment.newest_ms > 0:
        end = len(entries) * TimeIndex.LAYOUT.itemsize
        reason = f"the last timestamp is {noted}, the largest of the segment is {segment.newest_ms}"
        damage.append(Damage(path, end, 0, reason))
    return damage


class _Findings:
    """The first problem of each entry of an index."""

    def __init__(
        self,
        path: str,
        entries: IndexEntries,
        names: tuple[str, str],
        base: tuple[int, int],
        entry_bytes: int,
    ) -> None:
        self._path = path
        self._shown = entries + np.array(base)
        self._names = names
        self._entry_bytes = entry_bytes
        self.open = np.ones(len(entries), dtype=np.bool_)
        """True for the entries without a problem so far."""
        self._reasons: dict[int, str] = {}

    def add(self, wrong: npt.NDArray[np.bool_], why: Callable[[int], str]) -> None:
        """Record wrong entries; ``why`` returns the reason for an entry."""
        for number in np.flatnonzero(wrong & self.open).tolist():
            self._reasons[number] = why(number)
        self.open &= ~wrong

    def pass_over(self, entries: npt.NDArray[np.bool_]) -> None:
        """Skip these entries in all further checks."""
        self.open &= ~entries

    def damage(self) -> list[Damage]:
        """Return the damage, in file order."""
        return [
            Damage(self._path, number * self._entry_bytes, self._entry_bytes, self._text(number))
            for number in sorted(self._reasons)
        ]

    def _text(self, number: int) -> str:
        first, second = self._shown[number].tolist()
        first_name, second_name = self._names
        return f"{first_name} {first}, {second_name} {second}: {self._reasons[number]}"
