"""The index of the aborted transactions that end in a segment, in Kafka's own binary form.

    version             int16   0
    producer id         int64
    first offset        int64   of the transaction's first batch, perhaps in an earlier segment
    last offset         int64   of the marker that aborts it, in this segment
    last stable offset  int64   behind the marker: no transaction that ends later begins before it

34 bytes an entry, big-endian, last offsets increasing; no header and no checksum. Transactions that are
committed have no entry, nor has a marker without a batch before it.

Kafka creates the file with the first entry. Here a segment gets it with its first transactional batch, so
that an empty file tells that nothing was aborted. The rule for readers:

    a segment with a file, and every later segment, has all its aborted transactions in its file

Before the first file, the segments may be of a release without this index: their markers are read instead
(``transactions``).

An entry is written at once, and flushed with the other indexes of a full segment. After a crash the entries
of the checked segments are derived from their batches again (``recovery.log_loader``). One thread changes an
index; others may read it meanwhile: columns only grow, or are replaced together.

(``TransactionIndex.java`` and ``AbortedTxn.java`` of 3.9.)
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from minikafka.base.errors import StorageError, TooManyFiles
from minikafka.base.files import Files, read_file
from minikafka.log.layout import CLEANED_SUFFIX

VERSION = 0
_COLUMNS = ("producer", "first", "last", "stable")
_LAYOUT = np.dtype([("version", ">i2"), *((name, ">i8") for name in _COLUMNS)])
ENTRY_BYTES = _LAYOUT.itemsize

_INDEX = "index"

_Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its producer, and the offsets of its first batch and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """Behind the marker: every transaction that ends later begins at this offset or after it."""


class TransactionIndex:
    """The aborted transactions that end in one segment."""

    __slots__ = ("_columns", "_in_file", "_surplus", "_synced", "damaged", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.damaged = False
        """True if the file is not valid: then the entries are unknown."""
        self._columns: _Columns = (array("q"), array("q"), array("q"), array("q"))
        """Producers, first, last and last stable offsets; the last offset of an entry is added last."""
        self._in_file = self._synced = 0
        """The number of entries that the file has, and the disk."""
        self._surplus = False
        """True if the file may have other bytes behind these entries."""

    @classmethod
    def load(cls, files: Files, path: str, base_offset: int) -> TransactionIndex | None:
        """Read the file; None when it is absent. A file that is not valid gives a ``damaged`` index.

        Raises TooManyFiles.
        """
        index = cls(path)
        try:
            data = read_file(files, path)
        except FileNotFoundError:
            return None
        except TooManyFiles:
            raise
        except StorageError:
            index.damaged = True
            return index
        found = np.frombuffer(data, dtype=_LAYOUT, count=len(data) // ENTRY_BYTES)
        first, last = found["first"].astype(np.int64), found["last"].astype(np.int64)
        rising = bool((np.diff(last) > 0).all() and (first >= 0).all() and (first <= last).all())
        if not rising or found["version"].any() or (len(last) and last[0] < base_offset):
            index.damaged = True
            return index
        for column, name in zip(index._columns, _COLUMNS, strict=True):
            column.frombytes(found[name].astype(np.int64).tobytes())
        index._in_file = index._synced = len(found)
        index._surplus = len(data) != found.nbytes
        return index

    def __len__(self) -> int:
        return len(self._columns[2])

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries, in file order."""
        columns = self._columns
        return self._rows(columns, 0, len(columns[2]))

    @staticmethod
    def _rows(columns: _Columns, begin: int, end: int) -> list[AbortedTransaction]:
        producers, first, last, stable = (column[begin:end] for column in columns)
        return [AbortedTransaction(*row) for row in zip(producers, first, last, stable, strict=True)]

    def overlapping(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions with a batch or marker at or after ``start_offset`` and one before
        ``end_offset``, and whether no later entry, of any segment, can be one of them.
        """
        columns = self._columns
        count = len(columns[2])
        begin = bisect_left(columns[2], start_offset, hi=count)
        found = []
        for number in range(begin, count):
            if columns[1][number] < end_offset:
                found.append(self._rows(columns, number, number + 1)[0])
            if columns[3][number] >= end_offset:
                return found, True
        return found, False

    def add(self, aborted: AbortedTransaction) -> None:
        """Add an entry, whose marker is behind those of all others. ``write_out`` writes it."""
        producers, first, last, stable = self._columns
        if len(last) and aborted.last_offset <= last[-1]:
            raise StorageError(f"{self.path}: an entry of {aborted} cannot follow offset {last[-1]}")
        producers.append(aborted.producer_id)
        first.append(aborted.first_offset)
        stable.append(aborted.last_stable_offset)
        last.append(aborted.last_offset)

    def replace_from(self, offset: int, aborted: Iterable[AbortedTransaction]) -> None:
        """Replace the entries with markers at ``offset`` and behind it."""
        columns = self._columns
        wanted = list(aborted)
        count = bisect_left(columns[2], offset)
        same = 0
        kept = self._rows(columns, count, len(columns[2]))
        for before, after in zip(kept, wanted, strict=False):
            if before != after:
                break
            same += 1
        if same == len(kept) == len(wanted):
            return
        count += same
        producers, first, last, stable = (column[:count] for column in columns)
        self._surplus = self._surplus or self._in_file > count
        self._in_file, self._synced = min(self._in_file, count), min(self._synced, count)
        self._columns = (producers, first, last, stable)
        for entry in wanted[same:]:
            self.add(entry)

    def create(self, files: Files) -> None:
        """Create the file, without entries. Raises StorageError."""
        with contextlib.closing(files.open(self.path, create=True)) as file:
            if file.size():
                file.truncate(0)

    def write_out(self, files: Files, *, sync: bool) -> None:
        """Bring the file up to date, flushed with ``sync``. Raises StorageError."""
        columns = self._columns
        count = len(columns[2])
        if self.damaged or (
            self._in_file == count and not self._surplus and (self._synced == count or not sync)
        ):
            return
        with contextlib.closing(files.open(self.path, create=True)) as file:
            begin = self._in_file
            if begin < count:
                file.write_at(begin * ENTRY_BYTES, encoded(self._rows(columns, begin, count)))
            if file.size() != count * ENTRY_BYTES:
                file.truncate(count * ENTRY_BYTES)
            self._in_file, self._surplus = count, False
            if sync:
                file.sync()
                self._synced = count

    def move(self, files: Files, path: str) -> None:
        """Rename the file. Raises StorageError."""
        files.rename(self.path, path)
        self.path = path


def encoded(entries: Sequence[AbortedTransaction]) -> bytes:
    """Return the bytes of entries in a file."""
    rows = np.zeros(len(entries), dtype=_LAYOUT)
    for number, name in enumerate(_COLUMNS):
        rows[name] = [entry[number] for entry in entries]
    return rows.tobytes()


class SegmentTransactions:
    """The aborted transactions that end in one segment: its index, if it has one, looked up at first use."""

    __slots__ = ("_base_offset", "_files", "_found", "_path", "has_unknown")

    def __init__(self, files: Files, path: str, base_offset: int, *, is_new: bool) -> None:
        """``path``: of the index file. ``is_new``: the segment has no batches."""
        self._files = files
        self._path = path
        self._base_offset = base_offset
        self._found: dict[str, TransactionIndex | None] = {_INDEX: None} if is_new else {}
        """The index, once it was looked up. Two threads may look it up at once, and must get the same one: a
        dict can tell."""
        self.has_unknown = not is_new
        """True if transactions may end in the segment that have no entry: another process wrote it."""

    def index(self) -> TransactionIndex | None:
        """The index; None if there is no file. Raises TooManyFiles."""
        found = self._found
        if _INDEX not in found:
            return found.setdefault(_INDEX, TransactionIndex.load(self._files, self._path, self._base_offset))
        return found[_INDEX]

    def is_indexed(self) -> bool:
        """Return whether this segment, and every later one, has an entry for all aborted transactions."""
        index = self.index()
        return index is not None and not index.damaged

    def create(self) -> bool:
        """Create the index unless it exists; return whether a name is new. Raises StorageError.

        All transactions that end in the segment must be known.
        """
        if self.is_indexed():
            return False
        index = TransactionIndex(self._path)
        index.create(self._files)
        self._found = {_INDEX: index}
        return True

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add entries to the index, which exists."""
        index = self.index()
        assert index is not None
        for entry in aborted:
            index.add(entry)
        # They are written again with the other indexes, before the segment counts as durable.
        with contextlib.suppress(StorageError, FileNotFoundError):
            index.write_out(self._files, sync=False)

    def write_out(self, *, sync: bool) -> None:
        """Bring the file up to date, flushed with ``sync``, if it was looked up. Raises StorageError."""
        index = self._found.get(_INDEX)
        if index is not None:
            index.write_out(self._files, sync=sync)

    def restore(
        self, from_offset: int, aborted: Iterable[AbortedTransaction], *, transactional: bool, complete: bool
    ) -> None:
        """Replace the entries with markers at or after ``from_offset``: the segment was read from there.

        ``transactional``: it has transactional batches there. ``complete``: a segment without an index has no
        aborted transaction before that offset. Raises StorageError.
        """
        if from_offset <= self._base_offset:
            self.has_unknown = False
        if not self.is_indexed():
            damaged = self.index() is not None
            unknown = not complete or (damaged and from_offset > self._base_offset)
            if unknown or not (transactional or damaged):
                return
            self.create()
        index = self.index()
        assert index is not None
        index.replace_from(from_offset, aborted)
        index.write_out(self._files, sync=False)

    def cut(self, offset: int) -> None:
        """Remove the entries of transactions that end at or after ``offset``. Raises StorageError."""
        index = self.index()
        if index is not None and not index.damaged:
            index.replace_from(offset, ())
            index.write_out(self._files, sync=False)

    def prepare(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Write and flush the index of a segment that will replace others; ``place`` gives it its name."""
        index = TransactionIndex(self._path + CLEANED_SUFFIX)
        self._found = {_INDEX: index}
        index.create(self._files)
        for entry in aborted:
            index.add(entry)
        index.write_out(self._files, sync=True)

    def place(self) -> None:
        """Give a prepared index its name, once the segment is the one that counts."""
        index = self.index()
        if index is not None and index.path != self._path:
            index.move(self._files, self._path)

    def remove_file(self) -> None:
        """Remove the file; the entries stay for readers."""
        self._remove(self._path)

    def remove_prepared(self) -> None:
        """Remove a prepared index that will not be used."""
        self._remove(self._path + CLEANED_SUFFIX)

    def _remove(self, path: str) -> None:
        if self._files.exists(path):
            self._files.remove(path)
