"""The result of reading a log: a slice of a segment file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from operator import attrgetter

from minikafka.base.files import Buffer, FileSlice
from minikafka.base.values import fast_value
from minikafka.log.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


@fast_value
class LogRead:
    """The result of a read. ``slice`` is None when there is nothing to send (yet)."""

    slice: FileSlice | None
    first_offset: int
    """The last offset of the first entry in the slice, or the requested offset when there is no slice."""
    segment: Segment | None = None
    more: bool = False
    """True if readable entries follow the slice."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes in the slice."""
        return 0 if self.slice is None else self.slice.length

    def windows(self) -> Iterator[Buffer]:
        """Yield the whole entries of the slice, in windows. Raises StorageError."""
        if self.slice is not None and self.segment is not None:
            yield from self.segment.windows(self.slice.position, self.slice.position + self.slice.length)

    def classic_steps(self) -> Generator[int, None, bool]:
        """Return whether the slice has no entry of magic 2.

        In steps that read it where that is not known yet. Raises StorageError.
        """
        if self.slice is None or self.segment is None:
            return True
        end = self.slice.position + self.slice.length
        return (yield from self.segment.classic_steps(self.slice.position, end))

    def transaction_steps(self) -> Generator[int, None, bool]:
        """Return whether a batch in the slice belongs to a transaction, or ends one.

        In steps that read it where that is not known yet. Raises StorageError, BrokerError.
        """
        if self.slice is None or self.segment is None:
            return False
        end = self.slice.position + self.slice.length
        return (yield from self.segment.transaction_steps(self.slice.position, end))


@fast_value
class ReadRule:
    """The rule of ``Log.read`` for entries that are larger than the bytes that are left."""

    at_least_one: bool
    partial: bool
    cut_first: bool


def read_segments(
    segments: Sequence[Segment], offset: int, bound: int, end_offset: int, max_bytes: int, how: ReadRule
) -> LogRead:
    """Read up to ``max_bytes`` of entries from the one that holds ``offset``. See ``Log.read``.

    The log ends at ``end_offset``. Entries at and above ``bound`` are not read.
    """
    number = bisect_right(segments, offset, key=_BASE_OFFSET) - 1
    while offset < bound and number < len(segments):
        segment = segments[number]
        number += 1
        size = segment.size
        entry = segment.translate_offset(offset)
        if entry is None:
            continue  # compaction may leave a segment without its last offsets
        if bound < end_offset:
            # This also finds a compressed entry across the bound, which is left out as a whole.
            last = segment.translate_offset(bound)
            size = size if last is None else last.position
        wanted = max(max_bytes, entry.size) if how.at_least_one else max_bytes
        if wanted < entry.size and not how.cut_first:
            break
        length = min(wanted, size - entry.position)
        if not how.partial and length < size - entry.position:
            length = segment.whole_within(entry.position, length)
        if length <= 0:
            break
        more = length < size - entry.position or (
            number < len(segments) and segments[number].base_offset < bound
        )
        return LogRead(segment.slice(entry.position, length), entry.offset, segment, more)
    return LogRead(None, offset)
