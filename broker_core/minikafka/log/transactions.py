"""The aborted transactions in a part of a log."""

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
"""Bytes that are read at once in search of a transaction marker."""


def aborted_steps(log: Log, read: LogRead, up_to: int) -> Generator[int, None, list[tuple[int, int]]]:
    """Find the aborted transactions that have batches in ``read``: (producer id, first offset), by offset.

    Reads on until the end of each transaction was found, or to ``up_to``, which may be far. Works in steps
    that read ``LOOK_BYTES`` or an entry, and need little memory. Raises StorageError, CORRUPT_MESSAGE.
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
