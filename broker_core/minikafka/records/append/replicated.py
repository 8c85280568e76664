"""Message sets that a follower fetches from a leader. They have offsets, and are written unchanged.

They are checked like a log in recovery: whole entries, known formats, checksums, rising offsets. Gaps between
offsets are valid, as compaction leaves them. Compressed content is not decompressed: the leader did that.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.base.values import fast_value
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.message_set import NO_TIMESTAMP
from minikafka.records.kernels import layout
from minikafka.records.kernels.arrays import read_only
from minikafka.records.scan.producer_batches import EVERY_ENTRY
from minikafka.records.scan.scan import scan

_HEAD = layout.BATCH_FIELDS.struct("base_offset", "magic", "last_offset_delta")
"""First offset, magic and last offset delta of a batch."""


@fast_value
class FollowerRecords:
    """Whole entries of a leader's log.

    ``data``; ``offsets`` the last offset of each entry and ``positions`` its position (int64[n] both);
    ``first_offset`` of the first record: a batch may begin below the requested offset;
    ``epochs`` (leader epoch, first offset that was written under it), rising, of entries of magic 2 only;
    ``first_without_epoch`` the last offset of the first entry without a leader epoch, else ``next_offset``;
    ``max_timestamp_ms`` -1 for none, ``max_timestamp_at`` the last offset of the first entry that has it;
    ``classic``: no entry is of magic 2; ``settled``: no entry is transactional.
    """

    data: memoryview
    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]
    first_offset: int
    epochs: tuple[tuple[int, int], ...]
    first_without_epoch: int
    max_timestamp_ms: int
    max_timestamp_at: int
    classic: bool
    settled: bool

    @property
    def next_offset(self) -> int:
        """The last offset + 1."""
        return int(self.offsets[-1]) + 1

    def marks(self, interval_bytes: int) -> list[tuple[int, int]]:
        """Return last offset and position of the first entry, and of an entry in each ``interval_bytes``."""
        steps = np.arange(0, len(self.data), max(1, interval_bytes))
        chosen = np.unique(np.minimum(np.searchsorted(self.positions, steps), self.positions.size - 1))
        return list(zip(self.offsets[chosen].tolist(), self.positions[chosen].tolist(), strict=True))

    def split(self, most_bytes: int) -> list[FollowerRecords]:
        """Split into sets of at most ``most_bytes``, or of one larger entry."""
        if len(self.data) <= most_bytes:
            return [self]
        ends = np.append(self.positions[1:], len(self.data))
        cuts = [0]
        while cuts[-1] < len(self.data):
            fits = int(np.searchsorted(ends, cuts[-1] + most_bytes, side="right")) - 1
            first = int(np.searchsorted(self.positions, cuts[-1]))
            cuts.append(int(ends[max(fits, first)]))
        parts = [replicated(self.data[begin:end], 0) for begin, end in pairwise(cuts)]
        return [part for part in parts if part is not None]


def replicated(data: Buffer, next_offset: int) -> FollowerRecords | None:
    """Return the whole entries at the start of ``data``, or None if there are none.

    The last offset of each must be at least ``next_offset``.

    An entry that is cut off at the end is left out. Raises CORRUPT_MESSAGE for damage, with the position.
    """
    view = memoryview(data)
    next_offset = min(next_offset, _first_of_batch(view, next_offset))
    found = scan(view, base_offset=None, next_offset=next_offset, index_interval_bytes=EVERY_ENTRY)
    if found.problem is not None and not found.incomplete:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, found.problem)
    if not found.count:
        return None
    view = view[: found.valid_bytes]
    offsets, positions = _entries(view, next_offset, found.index_entries)
    batches = np.flatnonzero(read_only(view)[positions + layout.MAGIC_AT] == BATCH_MAGIC)
    epochs = _at(view, positions[batches], layout.LEADER_EPOCH_AT, ">i4")
    numbered = np.zeros(positions.size, dtype=np.bool_)
    numbered[batches] = epochs >= 0
    return FollowerRecords(
        view,
        offsets,
        positions,
        _first_of_batch(view, int(offsets[0])),
        _rises(view, positions[batches], epochs),
        int(offsets[np.argmin(numbered)]) if not numbered.all() else found.next_offset,
        found.max_timestamp_ms if found.max_timestamp_ms >= 0 else NO_TIMESTAMP,
        found.max_timestamp_at,
        batches.size == 0,
        not np.any(
            _at(view, positions[batches], layout.BATCH_ATTRIBUTES_AT, ">i2") & layout.TRANSACTION_BITS
        ),
    )


def _entries(
    view: memoryview, next_offset: int, noted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offsets and positions of all entries; a scan notes all but the first."""
    first_end = int(noted[0, 1]) if len(noted) else len(view)
    first = scan(view[:first_end], base_offset=None, next_offset=next_offset, check_crc=False)
    offsets = np.concatenate([np.array([first.next_offset - 1]), noted[:, 0]])
    return offsets, np.concatenate([np.zeros(1, dtype=np.int64), noted[:, 1]])


def _first_of_batch(view: memoryview, offset: int) -> int:
    """Return the first offset of the batch at the start if it contains ``offset``, else ``offset``."""
    if len(view) < _HEAD.size:
        return offset
    first, magic, more = _HEAD.unpack_from(view)
    return int(first) if magic == BATCH_MAGIC and first < offset <= first + more else offset


def _rises(
    view: memoryview, positions: NDArray[np.int64], epochs: NDArray[np.int64]
) -> tuple[tuple[int, int], ...]:
    """Return ``(epoch, first offset)`` where the leader epoch of batches rises; -1 (no epoch) is ignored."""
    highest = np.maximum.accumulate(epochs) if epochs.size else epochs
    before = np.concatenate([np.array([-1]), highest[:-1]])
    rises = np.flatnonzero(highest > before[: highest.size])
    first = _at(view, positions[rises], 0, ">i8")
    return tuple(zip(highest[rises].tolist(), first.tolist(), strict=True))


def _at(view: memoryview, positions: NDArray[np.int64], within: int, kind: str) -> NDArray[np.int64]:
    """Return a number from each entry, ``within`` bytes after its start."""
    field = np.dtype(kind)
    rows = read_only(view)[positions[:, None] + within + np.arange(field.itemsize)]
    numbers: NDArray[np.int64] = rows.view(field).reshape(-1).astype(np.int64)
    return numbers
