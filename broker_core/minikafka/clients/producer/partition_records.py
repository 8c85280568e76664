"""The messages of one partition that are sent to its leader: encoded batches, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from minikafka.base.ids import TopicPartition
from minikafka.clients.producer.messages import MessageColumns
from minikafka.records.columns import EncodedRecords, encode
from minikafka.records.format.message_set import Codec

Rows = NDArray[np.int64]

MAX_BATCH_BYTES = 900_000
"""Limit of one batch, which a broker with default settings accepts."""


class PartitionRecords:
    """Rows of ``columns``, encoded batch by batch. A batch is sent after the one before it was acknowledged,
    so that failures keep the order.

    leader_id: the broker to send to, which accepts ``magic``. timestamps: int64[all rows].
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        leader_id: int,
        columns: MessageColumns,
        rows: Rows,
        timestamps: NDArray[np.int64],
        *,
        magic: int,
        codec: Codec,
    ) -> None:
        self.topic_partition = topic_partition
        self.leader_id = leader_id
        self.magic = magic
        self.columns = columns
        self.timestamps = timestamps
        self._codec = codec
        self._max_bytes = MAX_BATCH_BYTES
        self.remaining = rows
        """Rows that are not acknowledged."""
        self._batches = self._encode()
        self._next: EncodedRecords | None = None
        self.current = self._next_batch()

    def acknowledge(self) -> bool:
        """Remove the current batch, which the broker has written; return False if it was the last."""
        self.remaining = self.remaining[self.current.count :]
        if not len(self.remaining):
            return False
        self.current = self._next_batch()
        return True

    def prepare(self) -> None:
        """Encode the batch after the current one, if there is one."""
        if self._next is None and len(self.remaining) > self.current.count:
            self._next = next(self._batches)

    def split(self) -> bool:
        """Continue with batches of half the size; return False if the current one has only one message."""
        if self.current.count == 1:
            return False
        self._max_bytes = min(self._max_bytes, len(self.current.data)) // 2
        self._restart_encoding()
        return True

    def skip(self) -> tuple[Rows, bool]:
        """Give up the current batch. Return its rows, and whether there are others."""
        given_up, self.remaining = self.remaining[: self.current.count], self.remaining[self.current.count :]
        if len(self.remaining):
            self._restart_encoding()
        return given_up, len(self.remaining) > 0

    def _restart_encoding(self) -> None:
        self._batches = self._encode()
        self._next = None
        self.current = self._next_batch()

    def _next_batch(self) -> EncodedRecords:
        following, self._next = self._next, None
        return next(self._batches) if following is None else following

    def _encode(self) -> Iterator[EncodedRecords]:
        return encode(
            self.columns.keys,
            self.columns.values,
            self.timestamps,
            self.remaining,
            magic=self.magic,
            codec=self._codec,
            max_bytes=self._max_bytes,
        )


def group_rows(ids: NDArray[np.int32]) -> Iterator[tuple[int, Rows]]:
    """Yield ``(id, row numbers)`` for every id; rows keep their order."""
    if not len(ids):
        return
    if (ids == ids[0]).all():
        yield int(ids[0]), np.arange(len(ids), dtype=np.int64)
        return
    # numpy sorts 16-bit integers by radix, five times as fast.
    narrow = ids.astype(np.int16) if ids.max() < 1 << 15 else ids
    order = np.argsort(narrow, kind="stable").astype(np.int64, copy=False)
    ordered = ids[order]
    starts = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(order, starts):
        yield int(ids[rows[0]]), rows
