"""What a read of a log gives: a slice of a file, and what is in it."""

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
    """What a read found. ``slice`` is None when there is nothing to send (yet)."""

    slice: FileSlice | None
    first_offset: int
    """Last offset of the first entry in the slice, or what was asked for."""
    segment: Segment | None = None
    more: bool = False
    """Whether something that could be read follows the slice."""

    @property
    def size_bytes(self) -> int:
        """Bytes in the slice."""
        return 0 if self.slice is None else self.slice.length

    def windows(self) -> Iterator[Buffer]:
        """The whole entries of the slice, in pieces of some size. StorageError."""
        if self.slice is not None and self.segment is not None:
            yield from self.segment.windows(self.slice.position, self.slice.position + self.slice.length)

    def classic_steps(self) -> Generator[int, None, bool]:
        """Return whether the slice has nothing of magic 2. In steps that read it where nobody knows yet.
        StorageError.
        """
        if self.slice is None or self.segment is None:
            return True
        end = self.slice.position + self.slice.length
        return (yield from self.segment.classic_steps(self.slice.position, end))

    def transaction_steps(self) -> Generator[int, None, bool]:
        """Whether a batch in the slice belongs to a transaction, or ends one. In steps that read it where
        nobody knows yet. StorageError, BrokerError.
        """
        if self.slice is None or self.segment is None:
            return False
        end = self.slice.position + self.slice.length
        return (yield from self.segment.transaction_steps(self.slice.position, end))


@fast_value
class ReadRule:
    """What ``Log.read`` gives where entries are larger than what is left."""

    at_least_one: bool
    partial: bool
    cut_first: bool


def read_segments(
    segments: Sequence[Segment],
    offset: int,
    bound: int,
    end_offset: int,
    max_bytes: int,
    how: ReadRule,
) -> LogRead:
    """Up to ``max_bytes`` of entries from the one that holds ``offset``, of a log that ends at
    ``end_offset``; of entries at and above ``bound`` nothing. See ``Log.read``.
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
            # A compressed entry across the bound is found here as well, and nothing of it is given.
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
