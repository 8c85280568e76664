"""Aborted transactions in a part of a log, for consumers that read only committed records: the search for
them in a broker, and the filter in a client.

A producer's transactions follow one another, and each ends with a marker. So a batch belongs to the
transaction that its producer's next marker ends, which may be far behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.format.batch import ControlType
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import read_only
from minikafka.records.kernels.layout import BATCH_HEADER_BYTES, entry_size
from minikafka.records.scan.scan import find_position

_ROWS = 4096
_ABORT = 0


def _rows(data: Buffer) -> list[list[int]]:
    """Return a row of producer, its epoch, last offset, time, first offset and kind for each transactional
    batch, and each marker, among the whole entries at the start of ``data``. Raises CORRUPT_MESSAGE on
    damage.
    """
    keys = kernels.keys
    array = read_only(data)
    room = np.empty((min(_ROWS, array.size // BATCH_HEADER_BYTES + 1), keys.SURVEY_FIELDS), dtype=np.int64)
    state = np.zeros(keys.SURVEY_STATE_SIZE, dtype=np.int64)
    found: list[list[int]] = []
    stop = decode_status.ROWS_FULL
    while stop == decode_status.ROWS_FULL:
        state[keys.SURVEYED] = 0
        stop = keys.survey(array, room.reshape(-1), state)
        found += room[: int(state[keys.SURVEYED])].tolist()
    if stop >= decode_status.FIRST_PROBLEM:
        raise decode_status.error(stop, int(state[keys.POSITION]))
    return found


def has_transactions(data: Buffer) -> bool:
    """Return True if one of the whole entries at the start of ``data`` is transactional, or is a marker."""
    return bool(_rows(data))


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """A transactional batch, or the marker that ends a transaction: ``mark`` is None for a batch."""

    producer_id: int
    first_offset: int
    last_offset: int
    mark: ControlType | None


def transaction_parts(data: Buffer) -> list[TransactionPart]:
    """Return the parts of transactions in the whole entries at the start of ``data``, in their order.

    Raises CORRUPT_MESSAGE on damage.
    """
    keys = kernels.keys
    return [
        TransactionPart(producer, base, last, None if kind == keys.SURVEY_DATA else ControlType(kind))
        for producer, _, last, _, base, kind in _rows(data)
        if kind != keys.SURVEY_UNKNOWN
    ]


def without_aborted(data: memoryview, aborted: Iterable[tuple[int, int]]) -> memoryview:
    """Return the whole entries without the batches of aborted transactions. Markers are kept.

    ``aborted`` is the list from the fetch response of ``data``: producer and first offset of each
    transaction. The result is a part of ``data`` if it is contiguous, else a copy. Raises CORRUPT_MESSAGE on
    damage of headers; checksums are not verified. The rule of ``Fetcher.java`` (2.1): the batches of a
    producer from an aborted transaction's first offset to its next abort marker are left out.
    """
    pieces: list[memoryview] = []
    at = 0
    for last_offset in _last_offsets_of_aborted(data, aborted):
        start = find_position(data, last_offset, position=at)
        assert start is not None
        if start > at:
            pieces.append(data[at:start])
        at = start + entry_size(data, start)
    if at < len(data):
        pieces.append(data[at:])
    if not pieces:
        return data[:0]
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


def _last_offsets_of_aborted(data: memoryview, aborted: Iterable[tuple[int, int]]) -> list[int]:
    """Return the last offset of each batch of an aborted transaction."""
    to_start = sorted(((first, producer) for producer, first in aborted), reverse=True)
    started: set[int] = set()
    found: list[int] = []
    for part in transaction_parts(data):
        while to_start and to_start[-1][0] <= part.last_offset:
            started.add(to_start.pop()[1])
        if part.mark is ControlType.ABORT:
            started.discard(part.producer_id)
        elif part.mark is None and part.producer_id in started:
            found.append(part.last_offset)
    return found


class AbortedSearch:
    """A search for the ends of the transactions in a part of a log. Some of them are after that part."""

    def __init__(self) -> None:
        self.aborted: list[tuple[int, int]] = []
        """The producer of each aborted transaction, and the offset of its first batch in the part."""
        self.open: dict[int, int] = {}
        """The same for transactions whose end was not found yet."""

    def begin_in(self, data: Buffer) -> None:
        """Search the next whole entries of the part."""
        self._take(data, begins=True)

    def end_in(self, data: Buffer) -> None:
        """Search the next whole entries after the part."""
        self._take(data, begins=False)

    def _take(self, data: Buffer, *, begins: bool) -> None:
        keys = kernels.keys
        for producer, _, _, _, base, kind in _rows(data):
            if kind == keys.SURVEY_DATA:
                if begins:
                    self.open.setdefault(producer, base)
            elif kind != keys.SURVEY_UNKNOWN:
                first = self.open.pop(producer, None)
                if first is not None and kind == _ABORT:
                    self.aborted.append((producer, first))
