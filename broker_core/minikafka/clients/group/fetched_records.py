"""What a poll of a consumer returns: fetched record sets of one partition, and single records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.records.format.message_set import StoredRecord, iterate
from minikafka.records.format.record import Headers

if TYPE_CHECKING:
    from minikafka.records.columns import Columns


class ConsumerRecord(NamedTuple):
    """One record, and where it lies (``ConsumerRecord`` of Kafka's consumers).

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
        """Where it lies."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole entries of one partition, in private memory: the records from ``start_offset`` to before
    ``next_offset``.

    The first entry may hold earlier ones too, as a compressed one is sent whole. A set may hold none at all,
    where there are only marks of transactions, or aborted ones with ``isolation.level`` read_committed.
    """

    topic_partition: TopicPartition
    data: memoryview
    start_offset: int
    next_offset: int
    high_watermark: int

    def records(self) -> Iterator[StoredRecord]:
        """The records, one by one. CORRUPT_MESSAGE with the position on damage."""
        for record in iterate(self.data):
            if record.offset >= self.start_offset and not record.control:
                yield record

    def starting_at(self, position: int) -> Fetched:
        """What is left where the records before ``position`` are done with."""
        return replace(self, start_offset=position)

    def columns(self, *, headers: bool = False) -> Iterator[Columns]:
        """The records as columns; in pieces where they are too many for one. Raises as ``records``."""
        from minikafka.records.columns import DamagedEntry, decode_pieces

        try:
            yield from decode_pieces(self.data, self.start_offset, self.next_offset, headers=headers)
        except DamagedEntry as damage:
            raise BrokerError(damage.code, damage.detail) from None
