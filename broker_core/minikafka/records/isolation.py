"""Which transactions in a part of a log were aborted: what consumers that read only what was committed are
told.

A producer's transactions follow one another, and each ends with its mark. So a batch belongs to the one that
its producer's next mark ends, which may lie far behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minikafka.base.files import Buffer
from minikafka.records import kernels, stops
from minikafka.records.arrays import read_only
from minikafka.records.batch import BATCH_HEADER_BYTES, ControlType

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
    stop = stops.ROWS_FULL
    while stop == stops.ROWS_FULL:
        state[keys.SURVEYED] = 0
        stop = keys.survey(array, room.reshape(-1), state)
        found += room[: int(state[keys.SURVEYED])].tolist()
    if stop >= stops.FIRST_PROBLEM:
        raise stops.error(stop, int(state[keys.POSITION]))
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
