"""Assigns the rows of a record batch to partitions, by whole columns. Pure, except for the hash kernel.

A row goes to the partition that its column ``partition`` names; without one, to the partition of its key
(murmur2, as in Kafka's Java client); without a key, to the next partition in turn. Rows without a key are
assigned in blocks, one for each partition, that differ by at most one row: as even as row by row, and cheaper
to group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyspark_minikafka.schema import BadColumn

if TYPE_CHECKING:
    import numpy.typing as npt

    Ids = npt.NDArray[np.int32]
    Rows = npt.NDArray[np.int64]


class RoundRobin:
    """The next partition of one topic for rows without a key, from one record batch to the next."""

    def __init__(self, first: int) -> None:
        self._next = first

    def blocks(self, count: int, partitions: Sequence[int]) -> list[tuple[int, int]]:
        """Return the partition and the size of each block of ``count`` rows, the longer ones first."""
        number = len(partitions)
        short, longer = divmod(count, number)
        first = self._next
        self._next += longer
        sizes = [short + 1] * longer + [short] * (number - longer if short else 0)
        return [(partitions[(first + turn) % number], size) for turn, size in enumerate(sizes)]

    def take(self, count: int, partitions: Sequence[int]) -> Ids:
        """Return partition ids for ``count`` rows: those of the ``blocks``."""
        blocks = self.blocks(count, partitions)
        turned = np.array([partition for partition, _ in blocks], dtype=np.int32)
        return np.repeat(turned, [size for _, size in blocks])


def fill_unassigned(ids: Ids, round_robin: RoundRobin, available: Sequence[int]) -> Ids:
    """Return ``ids`` with every -1 (no partition yet) replaced by an ``available`` partition."""
    unassigned = ids < 0
    count = int(np.count_nonzero(unassigned))
    if count == len(ids):
        return round_robin.take(count, available)
    if count:
        ids = ids.copy()
        ids[unassigned] = round_robin.take(count, available)
    return ids


def override(ids: Ids, column: Any, partitions: int, topic: str) -> Ids:
    """Return ``ids`` with the column's partitions where it is not null. Raise BadColumn for a partition that
    does not exist.

    column: pa.Int32Array, one value a row.
    """
    named = np.asarray(column.is_valid())
    chosen = np.asarray(column.fill_null(0))
    wrong = named & ((chosen < 0) | (chosen >= partitions))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadColumn(
            f"the column partition holds {chosen[row]}, but topic {topic} has only 0 to {partitions - 1}"
        )
    return np.where(named, chosen, ids).astype(np.int32, copy=False)
