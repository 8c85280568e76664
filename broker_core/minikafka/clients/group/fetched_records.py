"""The results of a consumer's poll: fetched record sets of one partition, and single records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.message_set import StoredRecord, iterate
from minikafka.records.format.record import Headers
from minikafka.records.kernels.layout import BATCH_FLAGS_AT, CONTROL_BIT, COUNT_AT, MAGIC_AT, entry_size

if TYPE_CHECKING:
    from minikafka.records.columns import Columns


def bytes_of_rows(
    ends: NDArray[np.int32],
    data: NDArray[np.uint8],
    validity: NDArray[np.uint8] | None,
    start: int,
    stop: int,
) -> list[bytes | None]:
    """Return the values of rows ``start`` to before ``stop`` of a column in Arrow's layout; None for null."""
    if validity is not None and not validity.any():
        return [None] * (stop - start)
    first = int(ends[start])
    content = data[first : int(ends[stop])].tobytes()
    edges = (ends[start : stop + 1] - first).tolist()
    found: list[bytes | None] = [content[begin:end] for begin, end in pairwise(edges)]
    if validity is not None:
        for row in np.flatnonzero(np.unpackbits(validity, count=stop, bitorder="little")[start:] == 0):
            found[row] = None
    return found


class ConsumerRecord(NamedTuple):
    """One record with its partition and offset (``ConsumerRecord`` of Kafka's consumers).

    ``timestamp`` is in ms since the epoch, -1 for none. A tuple, as these are made by the million.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Complete entries of one partition, in private memory: the records from ``start_offset`` to before
    ``next_offset``.

    The first entry may also contain earlier records, as a compressed one is sent whole. A set may contain no
    records, if there are only control records, or aborted ones with ``isolation.level`` read_committed.
    """

    topic_partition: TopicPartition
    data: memoryview
    start_offset: int
    next_offset: int
    high_watermark: int

    def records(self) -> Iterator[StoredRecord]:
        """Yield the records. Raises CORRUPT_MESSAGE with the position on damage."""
        for record in iterate(self.data):
            if record.offset >= self.start_offset and not record.control:
                yield record

    @property
    def record_count(self) -> int:
        """The number of records, from the headers of batches; in older formats that of offsets. A batch that
        contains earlier records too counts no more than the set has offsets.
        """
        data, offsets, at, count = self.data, self.next_offset - self.start_offset, 0, 0
        while at < len(data):
            if data[at + MAGIC_AT] < BATCH_MAGIC:
                return offsets
            if not data[at + BATCH_FLAGS_AT] & CONTROL_BIT:
                count += int.from_bytes(data[at + COUNT_AT : at + COUNT_AT + 4], "big")
            at += entry_size(data, at)
        return min(count, offsets)

    def starting_at(self, position: int) -> Fetched:
        """Return the set without the records before ``position``."""
        return replace(self, start_offset=position)

    def columns(self, *, headers: bool = False) -> Iterator[Columns]:
        """Yield the records as columns; in pieces if they are too many for one. Raises as ``records``."""
        from minikafka.records.columns import DamagedEntry, decode_pieces

        try:
            yield from decode_pieces(self.data, self.start_offset, self.next_offset, headers=headers)
        except DamagedEntry as damage:
            raise BrokerError(damage.code, damage.detail) from None
