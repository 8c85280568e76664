"""What one answer brought of one partition, on its way to a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition


class Place(Protocol):
    """How far a partition was consumed: its ``PartitionTopicInfo``."""

    consumed_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it is."""


@dataclass(frozen=True, slots=True, eq=False)
class FetchedDataChunk:
    """Whole entries of one partition (``FetchedDataChunk`` of text 004).

    messages      the entries, in private memory; the first may hold messages before ``fetch_offset``, as a
                  compressed one is sent whole. Empty where the partition is read on at ``fetch_offset`` for
                  another reason.
    fetch_offset  what was asked for
    next_offset   behind the last entry
    error         in the place of messages: the stream raises it
    """

    messages: memoryview
    info: Place
    fetch_offset: int
    next_offset: int
    error: MinikafkaError | None = None
