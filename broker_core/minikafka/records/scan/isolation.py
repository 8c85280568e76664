"""Which transactions in a part of a log were aborted: what consumers that read only what was committed are
told, and what they then leave out.

A producer's transactions follow one another, and each ends with its mark. So a batch belongs to the one that
its producer's next mark ends, which may lie far behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.format.batch import BATCH_HEADER_BYTES, ControlType, size_of
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import read_only
from minikafka.records.scan.scan import find_position

_ROWS = 4096
_ABORT = 0


def _rows(data: Buffer) -> list[list[int]]:
    """A row of producer, its epoch, last offset, time, first offset and kind for each batch of a transaction,
    and each mark, among the whole entries that ``data`` begins with. CORRUPT_MESSAGE on damage.
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
    """Whether one of the whole entries that ``data`` begins with belongs to a transaction, or ends one."""
    return bool(_rows(data))


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """A batch of a transaction, or the mark that ends one: ``mark`` is None for a batch."""

    producer_id: int
    first_offset: int
    last_offset: int
    mark: ControlType | None


def transaction_parts(data: Buffer) -> list[TransactionPart]:
    """All in the whole entries that ``data`` begins with, in their order. CORRUPT_MESSAGE on damage."""
    keys = kernels.keys
    return [
        TransactionPart(producer, base, last, None if kind == keys.SURVEY_DATA else ControlType(kind))
        for producer, _, last, _, base, kind in _rows(data)
        if kind != keys.SURVEY_UNKNOWN
    ]


def without_aborted(data: memoryview, aborted: Iterable[tuple[int, int]]) -> memoryview:
    """Whole entries without the batches of aborted transactions; marks stay.

    ``aborted`` is what the broker told with ``data``: producer and first offset of each transaction. A part
    of ``data`` itself where what is left lies in one piece, else a copy. CORRUPT_MESSAGE on damage of
    headers; the checksums are not looked at. The rule of ``Fetcher.java`` (2.1): a producer's batches do not
    count from an aborted transaction's first offset to its next mark that says so.
    """
    pieces: list[memoryview] = []
    at = 0
    for last_offset in _last_offsets_of_aborted(data, aborted):
        start = find_position(data, last_offset, position=at)
        assert start is not None
        if start > at:
            pieces.append(data[at:start])
        at = start + size_of(data, start)
    if at < len(data):
        pieces.append(data[at:])
    if not pieces:
        return data[:0]
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


def _last_offsets_of_aborted(data: memoryview, aborted: Iterable[tuple[int, int]]) -> list[int]:
    """Of each batch of an aborted transaction."""
    to_begin = sorted(((first, producer) for producer, first in aborted), reverse=True)
    begun: set[int] = set()
    found: list[int] = []
    for part in transaction_parts(data):
        while to_begin and to_begin[-1][0] <= part.last_offset:
            begun.add(to_begin.pop()[1])
        if part.mark is ControlType.ABORT:
            begun.discard(part.producer_id)
        elif part.mark is None and part.producer_id in begun:
            found.append(part.last_offset)
    return found


class AbortedSearch:
    """The search for the ends of the transactions in a part of a log, some of which lie behind it."""

    def __init__(self) -> None:
        self.aborted: list[tuple[int, int]] = []
        """Producer, and the first of its batches in that part, of each transaction that was aborted."""
        self.open: dict[int, int] = {}
        """The same, of those whose end was not seen yet."""

    def begin_in(self, data: Buffer) -> None:
        """Take in the next whole entries of that part."""
        self._take(data, begins=True)

    def end_in(self, data: Buffer) -> None:
        """Take in the next whole entries behind it."""
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
