"""The common part of the two sparse indexes of a segment: pairs of numbers, in memory and in Kafka's file.

A file is big-endian, has no checksum and no header. Kafka preallocates its files, so zeros may follow the
last entry; they are ignored. A new segment gets empty files at once: Kafka and its tools expect both beside
every segment, also without entries. The files of the growing segment are written when it is full or the log
is closed: after a crash that segment is scanned anyway, and its indexes are rebuilt. The files of a full
segment are flushed before the recovery point passes the segment.

A large file is mapped into memory, not read: in a log of many full segments, only the pages that are looked
up cost memory. A mapped file is never changed, only replaced.

One thread changes an index; others may look up meanwhile, as arrays only grow or are replaced as a pair.
"""

from __future__ import annotations

import contextlib
from array import array
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from minikafka.base.errors import StorageError
from minikafka.base.files import Files

RELATIVE_OFFSET_MAX = (1 << 31) - 1
MAPPED_FROM_BYTES = 1 << 14
"""Smaller files are read: a mapping costs the system a page or two, and the number of mappings is limited."""


class IndexFile:
    """Entries of two numbers, in increasing order."""

    __slots__ = ("_base_offset", "_entries", "_mapped", "_name_is_new", "_synced", "_written", "path")

    LAYOUT: ClassVar[np.dtype[np.void]]
    """The layout of an entry in the file; two fields."""
    CODES: ClassVar[tuple[str, str]]
    """The ``array`` type codes of the two numbers in memory."""

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._entries: tuple[Any, Any] = (array(self.CODES[0]), array(self.CODES[1]))
        """Two arrays, or two columns of a mapped file."""
        self._mapped = False
        self._written: int | None = None
        """The number of entries that the file has; None: its content is unknown."""
        self._synced: int | None = None
        """The number of entries that the disk has; None: unknown."""
        self._name_is_new = False
        """True if the file was created since ``write_out`` last returned."""

    def __len__(self) -> int:
        return len(self._entries[0])

    def _load(self, files: Files) -> npt.NDArray[np.void] | None:
        """Load the file's entries and return them to be checked; None when it is absent or unreadable."""
        data = self._data(files)
        if data is None:
            return None
        found = np.frombuffer(data, dtype=self.LAYOUT, count=len(data) // self.LAYOUT.itemsize)
        raw = np.frombuffer(data, dtype=np.uint8, count=found.nbytes).reshape(-1, self.LAYOUT.itemsize)
        filled = np.flatnonzero(raw.any(axis=1))
        found = found[: int(filled[-1]) + 1 if len(filled) else 0]
        first, second = found.dtype.names or ()
        self._entries = (found[first], found[second])
        if not self._mapped:
            self._own()
        if len(data) == found.nbytes:
            # A file that is trusted at all belongs to a segment that was flushed or closed.
            self._written = self._synced = len(found)
        return found

    def _data(self, files: Files) -> bytes | memoryview | None:
        try:
            file = files.open(self.path, read_only=True)
        except (FileNotFoundError, StorageError):
            return None
        try:
            size = file.size()
            if size >= MAPPED_FROM_BYTES:
                # The number of mappings is limited; when none is left the file is read.
                with contextlib.suppress(StorageError, FileNotFoundError):
                    data = files.map(self.path)
                    self._mapped = True
                    return data
            return file.read_at(0, size)
        except StorageError:
            return None
        finally:
            file.close()

    def _own(self) -> tuple[array[int], array[int]]:
        """Return the entries as arrays that can grow."""
        first, second = self._entries
        if not isinstance(first, array):
            first, second = self._native(0, first), self._native(1, second)
            self._entries = (first, second)
        return first, cast("array[int]", second)

    def _native(self, number: int, column: npt.NDArray[np.generic]) -> array[int]:
        values = array(self.CODES[number])
        values.frombytes(column.astype(f"=i{values.itemsize}").tobytes())
        return values

    def _keep(self, count: int) -> None:
        """Remove the entries after the first ``count``."""
        first, second = self._own()
        self._entries = (first[:count], second[:count])
        if self._written is not None and self._written != count:
            self._written = self._synced = None

    def remove_file(self, files: Files) -> None:
        """Remove the file, if it exists; the entries stay."""
        self._written = self._synced = None
        self._mapped = False  # readers of the mapping keep the old file
        if files.exists(self.path):
            files.remove(self.path)

    def create_empty(self, files: Files) -> bool:
        """Create an empty file; the entries stay. Return whether the file is new. Raises StorageError.

        Not flushed: recovery rebuilds an index that a power cut has lost.
        """
        if files.exists(self.path):
            with contextlib.closing(files.open(self.path, read_only=True)) as file:
                size = file.size()
            if not size:
                return False
            self.remove_file(files)  # not truncated in place: a reader may have mapped it
        files.open(self.path, create=True).close()
        self._written = self._synced = 0
        self._name_is_new = True
        return True

    def write_out(self, files: Files, *, sync: bool) -> bool:
        """Bring the file up to date, flushed with ``sync``; return whether its name is new.

        Raises StorageError.
        """
        first, second = self._entries
        count = len(first)
        new, self._name_is_new = self._name_is_new, False
        if self._written == count and (self._synced == count or not sync):
            return new
        if self._mapped:
            self.remove_file(files)
        new = not files.exists(self.path) or new
        with contextlib.closing(files.open(self.path, create=True)) as file:
            if self._written != count:
                begin = self._written if self._written is not None and self._written < count else 0
                entries = np.empty(count - begin, dtype=self.LAYOUT)
                for name, column in zip(self.LAYOUT.names or (), (first, second), strict=True):
                    entries[name] = column[begin:count]
                file.write_at(begin * self.LAYOUT.itemsize, entries.tobytes())
                if file.size() != count * self.LAYOUT.itemsize:
                    file.truncate(count * self.LAYOUT.itemsize)
                self._written = count
            if sync:
                file.sync()
                self._synced = count
        return new
