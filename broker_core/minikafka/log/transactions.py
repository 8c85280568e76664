"""The transactions in a part of a log that were aborted."""

from __future__ import annotations

from collections.abc import Generator
from operator import itemgetter

from minikafka.base.errors import OffsetOutOfRange
from minikafka.base.files import Buffer
from minikafka.log.log import Log
from minikafka.log.reading import LogRead
from minikafka.records.scan.isolation import AbortedSearch
from minikafka.records.scan.scan import scan

LOOK_BYTES = 1 << 20
"""What is read at once in search of a mark."""


def aborted_steps(log: Log, read: LogRead, up_to: int) -> Generator[int, None, list[tuple[int, int]]]:
    """Producer and first offset, in what was read, of each transaction that has batches there and was
    aborted, by that offset.

    Reads on until the ends of all of them were seen, or to ``up_to``, which may be far: in steps that read
    ``LOOK_BYTES`` or an entry, and need no memory to speak of. StorageError, CORRUPT_MESSAGE.
    """
    has_transactions = yield from read.transaction_steps()
    if not has_transactions:
        return []
    search = AbortedSearch()
    data: Buffer = b""
    for data in read.windows():
        search.begin_in(data)
        yield 0
    while search.open:
        at = scan(data, base_offset=None, check_crc=False).next_offset
        try:
            more = log.read(at, LOOK_BYTES, up_to=up_to, partial=False) if at < up_to else None
        except OffsetOutOfRange:
            break  # deleted meanwhile
        if more is None or more.slice is None:
            break
        data = more.slice.read()
        search.end_in(data)
        yield 0
    return sorted(search.aborted, key=itemgetter(1))
