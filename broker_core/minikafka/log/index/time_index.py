"""The sparse time index of a segment, in Kafka's own binary form.

    timestamp   int64   the largest of the segment up to some message, in ms
    offset      int32   the last of the first entry that has it, minus the segment's base offset

Twelve bytes an entry, timestamps increasing, offsets not decreasing. An entry is added with an entry of the
offset index, when there is a larger timestamp than the last entry's. When the segment is full, or the log is
closed, the last entry has the segment's largest timestamp: retention and look-ups by time need not read the
segment. A segment without timestamps (magic 0) has an empty file.

No entry before that offset has as large a timestamp: a search for that time or a later one begins there. A
file that is absent or out of order is never trusted. See ``index_file``.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from minikafka.base.files import Files
from minikafka.log.index.index_file import RELATIVE_OFFSET_MAX, IndexFile
from minikafka.log.index.offset_index import Entries
from minikafka.records.format.message_set import NO_TIMESTAMP


class TimeIndex(IndexFile):
    """The first offset that can have a message of a given time. Offsets here are not relative."""

    __slots__ = ()

    LAYOUT = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
    CODES = ("q", "i")

    @classmethod
    def load(cls, files: Files, path: str, base_offset: int) -> TimeIndex | None:
        """Read the file. Return None when it is absent, unreadable, or not valid."""
        index = cls(path, base_offset)
        found = index._load(files)
        if found is None:
            return None
        times, offsets = found["timestamp"].astype(np.int64), found["offset"].astype(np.int64)
        if not len(found) and index._written is None:
            return None  # only zeros: space that Kafka preallocated, or one entry of time 0
        rising = bool((np.diff(times) > 0).all() and (np.diff(offsets) >= 0).all())
        if not rising or (len(found) and min(times[0], offsets[0]) < 0):
            return None
        return index

    def lookup(self, timestamp_ms: int) -> int:
        """Return an offset such that no message of this time or a later one is before it."""
        times, offsets = self._entries
        number = bisect_right(times, timestamp_ms) - 1
        return self._base_offset + (int(offsets[number]) if number >= 0 else 0)

    def last(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry; NO_TIMESTAMP and the base offset without entries."""
        times, offsets = self._entries
        if not len(times):
            return NO_TIMESTAMP, self._base_offset
        return int(times[-1]), self._base_offset + int(offsets[-1])

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Append an entry, if its timestamp is larger than the last one."""
        last_ms, last_offset = self.last()
        relative = max(offset, last_offset) - self._base_offset
        if timestamp_ms > last_ms and relative <= RELATIVE_OFFSET_MAX:
            times, offsets = self._own()
            offsets.append(relative)
            times.append(timestamp_ms)

    def extend(self, entries: Entries) -> None:
        """Append the entries of a scan (timestamp, offset), in which neither number decreases."""
        last_ms, last_offset = self.last()
        larger = entries[:, 0] > np.concatenate(([last_ms], np.maximum(entries[:-1, 0], last_ms)))
        larger &= entries[:, 1] >= last_offset
        times, offsets = self._own()
        offsets.frombytes((entries[larger, 1] - self._base_offset).astype(np.int32).tobytes())
        times.frombytes(entries[larger, 0].astype(np.int64).tobytes())
