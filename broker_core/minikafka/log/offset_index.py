"""The sparse offset index of a segment, in Kafka's own binary form.

    offset     int32   offset of an entry minus the segment's base offset, not negative
    position   int32   byte position in the segment file of the entry that holds this offset, or a later one

Eight bytes an entry, big-endian, in rising order of both fields; about one entry for each
``index.interval.bytes`` of the segment, none for its very beginning. There is no checksum. Kafka
preallocates its files, so zeros may follow the last entry; they are passed over.

In memory the entries are two int32 arrays. The file of the segment that grows is written when the segment
is full or the log is closed: after a crash that segment is scanned anyway, and its index built anew. A full
segment's index is flushed before the recovery point passes the segment. A file that is absent, out of
order, or points outside its segment is never trusted: ``load`` gives None and the caller rebuilds it.

One thread changes an index; others may look up meanwhile, as arrays only grow or are replaced as a pair.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file

ENTRY_BYTES = 8
RELATIVE_OFFSET_MAX = (1 << 31) - 1

Entries = npt.NDArray[np.int64]
"""Shape (n, 2): offset (not relative) and position."""


class OffsetIndex:
    """Where in a segment file an offset lies, to within an interval. Offsets here are not relative."""

    __slots__ = ("_base_offset", "_entries", "_synced", "_written", "path")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._entries: tuple[array[int], array[int]] = (array("i"), array("i"))
        self._written: int | None = None
        """Entries that the file is known to hold exactly; None: its content is unknown."""
        self._synced: int | None = None
        """The same of the disk."""

    @classmethod
    def load(cls, files: Files, path: str, base_offset: int, segment_bytes: int) -> OffsetIndex | None:
        """Read the file; None when it is absent, unreadable, or cannot be right for a segment of
        ``segment_bytes``.
        """
        try:
            data = read_file(files, path)
        except (FileNotFoundError, StorageError):
            return None
        pairs = np.frombuffer(data, dtype=">i4", count=len(data) // ENTRY_BYTES * 2).reshape(-1, 2)
        filled = np.flatnonzero(pairs.any(axis=1))
        pairs = pairs[: int(filled[-1]) + 1 if len(filled) else 0]
        index = cls(path, base_offset)
        if len(pairs):
            rising = bool((np.diff(pairs.astype(np.int64), axis=0) > 0).all())
            if not rising or pairs[0].min() < 0 or pairs[-1, 1] >= segment_bytes:
                return None
            index._entries = (_native(pairs[:, 0]), _native(pairs[:, 1]))
        if len(data) == len(pairs) * ENTRY_BYTES:
            # A file that may be believed at all belongs to a segment that was flushed or closed.
            index._written = index._synced = len(pairs)
        return index

    def __len__(self) -> int:
        return len(self._entries[0])

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or before ``offset``, or the segment's beginning."""
        offsets, positions = self._entries
        number = bisect_right(offsets, offset - self._base_offset) - 1
        if number < 0:
            return self._base_offset, 0
        return self._base_offset + offsets[number], positions[number]

    def last(self) -> tuple[int, int]:
        """(offset, position) of the last entry; the segment's beginning when there is none."""
        return self.lookup(self._base_offset + RELATIVE_OFFSET_MAX)

    def append(self, offset: int, position: int) -> None:
        """Add an entry behind the last one. StorageError when it does not rise, or does not fit int32."""
        last_offset, last_position = self.last()
        relative = offset - self._base_offset
        if (
            len(self) and (offset <= last_offset or position <= last_position)
        ) or relative > RELATIVE_OFFSET_MAX:
            raise StorageError(
                f"{self.path}: an entry ({offset}, {position}) cannot follow ({last_offset}, {last_position})"
            )
        offsets, positions = self._entries
        positions.append(position)
        offsets.append(relative)

    def extend(self, entries: Entries) -> None:
        """Add entries of a scan, which rise among themselves, where they follow the last one here."""
        last_offset, last_position = self.last()
        follows = entries[:, 1] > last_position
        if len(self):
            follows &= entries[:, 0] > last_offset
        offsets, positions = self._entries
        positions.frombytes(entries[follows, 1].astype(np.int32).tobytes())
        offsets.frombytes((entries[follows, 0] - self._base_offset).astype(np.int32).tobytes())

    def cut(self, position: int) -> None:
        """Drop the entries at ``position`` and behind it."""
        offsets, positions = self._entries
        count = bisect_left(positions, position)
        self._entries = (offsets[:count], positions[:count])
        if self._written is not None and self._written != count:
            self._written = self._synced = None

    def write_out(self, files: Files, *, sync: bool) -> bool:
        """Bring the file up to date, with ``sync`` on the disk too; whether its name is new. StorageError.

        An index without entries gets no file.
        """
        offsets, positions = self._entries
        count = len(offsets)
        if self._written == count and (self._synced == count or not sync):
            return False
        new = not files.exists(self.path)
        if new and not count:
            return False
        file = files.open(self.path, create=True)
        try:
            if self._written != count:
                begin = self._written if self._written is not None and self._written < count else 0
                pairs = np.empty((count - begin, 2), dtype=">i4")
                pairs[:, 0], pairs[:, 1] = offsets[begin:count], positions[begin:count]
                file.write_at(begin * ENTRY_BYTES, pairs.tobytes())
                if file.size() != count * ENTRY_BYTES:
                    file.truncate(count * ENTRY_BYTES)
                self._written = count
            if sync:
                file.sync()
                self._synced = count
        finally:
            file.close()
        return new


def _native(column: npt.NDArray[np.int32]) -> array[int]:
    values = array("i")
    values.frombytes(column.astype("=i4").tobytes())
    return values
