"""The sparse offset index of a segment, in Kafka's own binary form.

    offset     int32   offset of an entry minus the segment's base offset, not negative
    position   int32   byte position in the segment file of the entry that holds this offset, or a later one

Eight bytes an entry, in increasing order of both fields; about one entry for each ``index.interval.bytes`` of
the segment, none for its first entry: a small segment has an empty file. A file that is absent, out of order,
or points outside its segment is never trusted: ``load`` returns None and the caller rebuilds it. See
``index_file``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from minikafka.base.errors import StorageError
from minikafka.base.files import Files
from minikafka.log.index.index_file import RELATIVE_OFFSET_MAX, IndexFile

Entries = npt.NDArray[np.int64]
"""Shape (n, 2): offset (not relative) and position."""


class OffsetIndex(IndexFile):
    """The positions of offsets in a segment file, one for each interval. Offsets here are not relative."""

    __slots__ = ()

    LAYOUT = np.dtype([("offset", ">i4"), ("position", ">i4")])
    CODES = ("i", "i")

    @classmethod
    def load(cls, files: Files, path: str, base_offset: int, segment_bytes: int) -> OffsetIndex | None:
        """Read the file; None when it is absent, unreadable, or not valid for a segment of
        ``segment_bytes``.
        """
        index = cls(path, base_offset)
        found = index._load(files)
        if found is None:
            return None
        if len(found):
            offsets, positions = found["offset"].astype(np.int64), found["position"].astype(np.int64)
            rising = bool((np.diff(offsets) > 0).all() and (np.diff(positions) > 0).all())
            if not rising or min(offsets[0], positions[0]) < 0 or positions[-1] >= segment_bytes:
                return None
        return index

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return (offset, position) of the last entry at or before ``offset``, or the segment's beginning."""
        offsets, positions = self._entries
        number = bisect_right(offsets, offset - self._base_offset) - 1
        if number < 0:
            return self._base_offset, 0
        return self._base_offset + int(offsets[number]), int(positions[number])

    def last(self) -> tuple[int, int]:
        """Return (offset, position) of the last entry; the segment's beginning when there is none."""
        offsets, positions = self._entries
        number = len(offsets) - 1
        if number < 0:
            return self._base_offset, 0
        return self._base_offset + int(offsets[number]), int(positions[number])

    def append(self, offset: int, position: int) -> None:
        """Append an entry.

        Raises StorageError when it is not greater than the last one, or does not fit int32.
        """
        last_offset, last_position = self.last()
        relative = offset - self._base_offset
        if (
            len(self) and (offset <= last_offset or position <= last_position)
        ) or relative > RELATIVE_OFFSET_MAX:
            raise StorageError(
                f"{self.path}: an entry ({offset}, {position}) cannot follow ({last_offset}, {last_position})"
            )
        offsets, positions = self._own()
        positions.append(position)
        offsets.append(relative)

    def extend_by_marks(self, marks: Sequence[tuple[int, int]], position: int, interval_bytes: int) -> None:
        """Append the marks that are more than the interval after the previous entry.

        A mark is an offset and a position relative to ``position``. Marks increase, and follow the last entry
        of the index.
        """
        indexed = self.last()[1]
        offsets, positions = self._own()
        for offset, at in marks:
            if position + at - indexed > interval_bytes:
                indexed = position + at
                positions.append(indexed)
                offsets.append(offset - self._base_offset)

    def extend(self, entries: Entries) -> None:
        """Append the entries of a scan, in increasing order, that follow the last entry."""
        last_offset, last_position = self.last()
        follows = entries[:, 1] > last_position
        if len(self):
            follows &= entries[:, 0] > last_offset
        offsets, positions = self._own()
        positions.frombytes(entries[follows, 1].astype(np.int32).tobytes())
        offsets.frombytes((entries[follows, 0] - self._base_offset).astype(np.int32).tobytes())

    def position_within(self, end: int) -> int:
        """Return the last indexed position at or before ``end``; 0 when there is none."""
        positions = self._entries[1]
        number = bisect_right(positions, end) - 1
        return int(positions[number]) if number >= 0 else 0

    def offset_from(self, position: int) -> int | None:
        """Return the offset of the first entry at ``position`` or after it; None when there is none."""
        offsets, positions = self._entries
        number = bisect_left(positions, position)
        return self._base_offset + int(offsets[number]) if number < len(offsets) else None

    def cut(self, position: int) -> None:
        """Remove the entries at ``position`` and after it."""
        self._keep(bisect_left(self._entries[1], position))
