"""Message sets as a leader gives them to a follower: numbered already, to be written as they are.

Checked as recovery checks a log: whole entries, known formats, checksums, offsets that rise. Holes between
offsets are good, as compaction leaves them. Compressed content is not opened: the leader did that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.base.values import fast_value
from minikafka.records.arrays import read_only
from minikafka.records.batch import ATTRIBUTES_AT as BATCH_ATTRIBUTES_AT
from minikafka.records.batch import LEADER_EPOCH_AT
from minikafka.records.batch import MAGIC as BATCH_MAGIC
from minikafka.records.message_set import MAGIC_AT, NO_TIMESTAMP
from minikafka.records.producers import EVERY_ENTRY
from minikafka.records.scan import scan

_IN_TRANSACTION = 0x30


@fast_value
class ReplicatedSet:
    """Whole entries of a leader's log.

    ``data``; ``offsets`` the last offset of each entry and ``positions`` where it lies (int64[n] both);
    ``epochs`` (leader epoch, first offset that was written under it), rising, of entries of magic 2 only;
    ``max_timestamp_ms`` -1 for none, ``max_timestamp_at`` the last offset of the first entry that has it;
    ``classic``: no entry is of magic 2; ``settled``: none is of a transaction.
    """

    data: memoryview
    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]
    epochs: tuple[tuple[int, int], ...]
    max_timestamp_ms: int
    max_timestamp_at: int
    classic: bool
    settled: bool

    @property
    def next_offset(self) -> int:
        """One more than the last offset."""
        return int(self.offsets[-1]) + 1

    def marks(self, interval_bytes: int) -> list[tuple[int, int]]:
        """Last offset and position of the first entry, and of one in each ``interval_bytes``."""
        steps = np.arange(0, len(self.data), max(1, interval_bytes))
        chosen = np.unique(np.minimum(np.searchsorted(self.positions, steps), self.positions.size - 1))
        return list(zip(self.offsets[chosen].tolist(), self.positions[chosen].tolist(), strict=True))

    def split(self, most_bytes: int) -> list[ReplicatedSet]:
        """Sets of at most so many bytes, or of one entry."""
        if len(self.data) <= most_bytes or self.positions.size == 1:
            return [self]
        cut = max(1, int(np.searchsorted(self.positions, most_bytes, side="right")) - 1)
        at = int(self.positions[cut])
        parts = [replicated(self.data[:at], 0), replicated(self.data[at:], 0)]
        return [one for part in parts if part is not None for one in part.split(most_bytes)]


def replicated(data: Buffer, next_offset: int) -> ReplicatedSet | None:
    """The whole entries at the beginning of ``data``, none of which may have an offset below ``next_offset``;
    None where there is not one.

    What is cut off at its end is left out. CORRUPT_MESSAGE for damage, with the position.
    """
    view = memoryview(data)
    found = scan(view, base_offset=None, next_offset=next_offset, index_interval_bytes=EVERY_ENTRY)
    if found.problem is not None and not found.incomplete:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, found.problem)
    if not found.count:
        return None
    view = view[: found.valid_bytes]
    offsets, positions = _entries(view, next_offset, found.index_entries)
    batches = np.flatnonzero(read_only(view)[positions + MAGIC_AT] == BATCH_MAGIC)
    return ReplicatedSet(
        view,
        offsets,
        positions,
        _epochs(view, positions, batches),
        found.max_timestamp_ms if found.max_timestamp_ms >= 0 else NO_TIMESTAMP,
        found.max_timestamp_at,
        batches.size == 0,
        not np.any(_at(view, positions[batches], BATCH_ATTRIBUTES_AT, ">i2") & _IN_TRANSACTION),
    )


def _entries(
    view: memoryview, next_offset: int, noted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A scan notes every entry but the first."""
    first_end = int(noted[0, 1]) if len(noted) else len(view)
    first = scan(view[:first_end], base_offset=None, next_offset=next_offset, check_crc=False)
    offsets = np.concatenate([np.array([first.next_offset - 1]), noted[:, 0]])
    return offsets, np.concatenate([np.zeros(1, dtype=np.int64), noted[:, 1]])


def _epochs(
    view: memoryview, positions: NDArray[np.int64], batches: NDArray[np.intp]
) -> tuple[tuple[int, int], ...]:
    """Where the leader epoch of batches rises; those without one (-1) say nothing."""
    epochs = _at(view, positions[batches], LEADER_EPOCH_AT, ">i4")
    highest = np.maximum.accumulate(epochs) if epochs.size else epochs
    before = np.concatenate([np.array([-1]), highest[:-1]])
    rises = np.flatnonzero(highest > before[: highest.size])
    first = _at(view, positions[batches[rises]], 0, ">i8")
    return tuple(zip(highest[rises].tolist(), first.tolist(), strict=True))


def _at(view: memoryview, positions: NDArray[np.int64], within: int, kind: str) -> NDArray[np.int64]:
    """A number of each entry, ``within`` bytes behind its beginning."""
    field = np.dtype(kind)
    rows = read_only(view)[positions[:, None] + within + np.arange(field.itemsize)]
    numbers: NDArray[np.int64] = rows.view(field).reshape(-1).astype(np.int64)
    return numbers
