"""What the two sparse indexes of a segment share: entries of two numbers, in memory and in Kafka's file.

A file is big-endian, has no checksum and no header. Kafka preallocates its files, so zeros may follow the
last entry; they are passed over. The files of the segment that grows are written when it is full or the log
is closed: after a crash that segment is scanned anyway, and its indexes built anew. A full segment's are
flushed before the recovery point passes the segment.

One thread changes an index; others may look up meanwhile, as arrays only grow or are replaced as a pair.
"""

from __future__ import annotations

from array import array
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file

RELATIVE_OFFSET_MAX = (1 << 31) - 1


class IndexFile:
    """Entries of a first and a second number, in rising order."""

    __slots__ = ("_base_offset", "_entries", "_synced", "_written", "path")

    LAYOUT: ClassVar[np.dtype[np.void]]
    """Of an entry in the file; two fields."""
    CODES: ClassVar[tuple[str, str]]
    """The numbers in memory, as ``array`` names them."""
    EMPTY_FILES: ClassVar[bool]
    """Whether an index without entries has a file."""

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._entries: tuple[array[int], array[int]] = (array(self.CODES[0]), array(self.CODES[1]))
        self._written: int | None = None
        """Entries that the file is known to hold exactly; None: its content is unknown."""
        self._synced: int | None = None
        """The same of the disk."""

    def __len__(self) -> int:
        return len(self._entries[0])

    def _load(self, files: Files) -> npt.NDArray[np.void] | None:
        """Take the file's entries, and give them to be judged; None when it is absent or unreadable."""
        try:
            data = read_file(files, self.path)
        except (FileNotFoundError, StorageError):
            return None
        found = np.frombuffer(data, dtype=self.LAYOUT, count=len(data) // self.LAYOUT.itemsize)
        raw = np.frombuffer(data, dtype=np.uint8, count=found.nbytes).reshape(-1, self.LAYOUT.itemsize)
        filled = np.flatnonzero(raw.any(axis=1))
        found = found[: int(filled[-1]) + 1 if len(filled) else 0]
        first, second = (
            self._native(number, found[name]) for number, name in enumerate(found.dtype.names or ())
        )
        self._entries = (first, second)
        if len(data) == found.nbytes:
            # A file that may be believed at all belongs to a segment that was flushed or closed.
            self._written = self._synced = len(found)
        return found

    def _native(self, number: int, column: npt.NDArray[np.generic]) -> array[int]:
        values = array(self.CODES[number])
        values.frombytes(column.astype(f"=i{values.itemsize}").tobytes())
        return values

    def _keep(self, count: int) -> None:
        """Drop the entries behind the first ``count``."""
        first, second = self._entries
        self._entries = (first[:count], second[:count])
        if self._written is not None and self._written != count:
            self._written = self._synced = None

    def write_out(self, files: Files, *, sync: bool) -> bool:
        """Bring the file up to date, with ``sync`` on the disk too; whether its name is new. StorageError."""
        first, second = self._entries
        count = len(first)
        if self._written == count and (self._synced == count or not sync):
            return False
        new = not files.exists(self.path)
        if new and not count and not self.EMPTY_FILES:
            return False
        file = files.open(self.path, create=True)
        try:
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
        finally:
            file.close()
        return new
