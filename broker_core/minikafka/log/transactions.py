"""The aborted transactions in a part of a log.

They are looked up in the transaction indexes of the segments (``index.transaction_index``). A log that was
written without them, by an earlier release of minikafka or before the first aborted transaction of a log of
Kafka, has the markers only: then the search reads on until the end of each transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from operator import attrgetter, itemgetter

from minikafka.base.errors import OffsetOutOfRange
from minikafka.base.files import Buffer
from minikafka.log.index.transaction_index import AbortedTransaction
from minikafka.log.log import Log
from minikafka.log.reading import LogRead
from minikafka.log.segment import Segment
from minikafka.records.scan.isolation import AbortedSearch
from minikafka.records.scan.scan import scan

LOOK_BYTES = 1 << 20
"""Bytes that are read at once in search of a transaction marker."""
_BASE_OFFSET = attrgetter("base_offset")


def aborted_steps(log: Log, read: LogRead) -> Generator[int, None, list[tuple[int, int]]]:
    """Find the aborted transactions that have batches in ``read``: (producer id, first offset), by offset.

    There may be more, which begin shortly behind it. The first offset of a transaction that began before the
    log, or that no index has, is that of its first batch in ``read``. Works in steps that read
    ``LOOK_BYTES`` or an entry, and need little memory. Raises StorageError, CORRUPT_MESSAGE.
    """
    has_transactions = yield from read.transaction_steps()
    if not has_transactions or read.segment is None:
        return []
    indexed = aborted_between(log, read.segment, read.first_offset, _end_offset(log, read, read.segment))
    if indexed is not None:
        found = [(aborted.producer_id, aborted.first_offset) for aborted in indexed]
    else:
        found = yield from _search(log, read)
    return sorted(found, key=itemgetter(1))


def aborted_between(
    log: Log, segment: Segment, start_offset: int, end_offset: int
) -> list[AbortedTransaction] | None:
    """Look up the aborted transactions with a batch or marker at or after ``start_offset``, which is in
    ``segment``, and one before ``end_offset``; None if the log has no indexes there.

    ``segment`` may have been replaced by compaction since.
    """
    segments = log.segments
    number = bisect_right(segments, start_offset, key=_BASE_OFFSET) - 1
    following = [other for other in segments[number + 1 :] if other.base_offset > segment.base_offset]
    before = (other for other in reversed(segments[: number + 1]) if other.base_offset < segment.base_offset)
    if not segment.transactions.is_indexed() and not any(other.transactions.is_indexed() for other in before):
        return None
    found: list[AbortedTransaction] = []
    for other in (segment, *following):
        index = other.transactions.index()
        if index is None:
            continue
        if index.damaged:
            return None
        overlapping, complete = index.overlapping(start_offset, end_offset)
        found += overlapping
        if complete:
            break
    return found


def _end_offset(log: Log, read: LogRead, segment: Segment) -> int:
    """Return an offset at or shortly after the end of ``read``, by the index of its segment."""
    assert read.slice is not None
    behind = segment.index().offset_from(read.slice.position + read.slice.length)
    if behind is not None:
        return behind
    bases = (other.base_offset for other in log.segments if other.base_offset > segment.base_offset)
    return next(bases, log.end_offset)


def _search(log: Log, read: LogRead) -> Generator[int, None, list[tuple[int, int]]]:
    search = AbortedSearch()
    data: Buffer = b""
    for data in read.windows():
        search.begin_in(data)
        yield 0
    while search.open:
        at = scan(data, base_offset=None, check_crc=False).next_offset
        try:
            more = log.read(at, LOOK_BYTES, partial=False) if at < log.end_offset else None
        except OffsetOutOfRange:
            break  # deleted meanwhile
        if more is None or more.slice is None:
            break
        data = more.slice.read()
        search.end_in(data)
        yield 0
    return search.aborted
