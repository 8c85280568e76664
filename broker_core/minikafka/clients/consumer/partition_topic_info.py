"""One partition that a stream reads: how far it was fetched, and how far the application has come."""

from __future__ import annotations

import logging

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunk_queue import ChunkQueue
from minikafka.clients.consumer.fetched_data_chunk import FetchedDataChunk
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry

INVALID_OFFSET = -1
"""No offset is known: ``auto.offset.reset`` says where to begin."""

logger = logging.getLogger("minikafka.clients")


class PartitionTopicInfo:
    """A partition of one stream (``PartitionTopicInfo`` of text 004).

    consumed_offset  everything before it was consumed: what a commit writes down. The iterator moves it.
    fetched_offset   where the next fetch begins. The fetcher moves it.
    fetch_size       bytes that one fetch may bring
    high_watermark   as last heard; -1 before
    """

    __slots__ = (
        "client_id",
        "consumed_offset",
        "fetch_size",
        "fetched_offset",
        "high_watermark",
        "queue",
        "topic_partition",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        queue: ChunkQueue,
        consumed_offset: int,
        fetched_offset: int,
        fetch_size: int,
        client_id: str,
    ) -> None:
        self.topic_partition = TopicPartition(topic, partition)
        self.queue = queue
        self.consumed_offset = consumed_offset
        self.fetched_offset = fetched_offset
        self.fetch_size = fetch_size
        self.client_id = client_id
        self.high_watermark = -1

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.topic_partition.partition

    @property
    def lag(self) -> int:
        """Offsets between what was fetched and the end of the log, as last heard; 0 before."""
        return max(0, self.high_watermark - max(0, self.fetched_offset))

    def enqueue(self, messages: memoryview, next_offset: int, error: MinikafkaError | None = None) -> bool:
        """Give what was fetched to the stream, and go on behind it. Nothing is done, and False returned, when
        the queue has no room, or takes nothing any more.
        """
        chunk = FetchedDataChunk(messages, self, self.fetched_offset, next_offset, error)
        if not self.queue.offer(chunk):
            return False
        self.fetched_offset = next_offset
        if messages:
            ConsumerTopicStatsRegistry.get(self.client_id).received(self.topic, len(messages))
        return True

    def reset(self, offset: int) -> bool:
        """Go on at ``offset``, as the log does not have what was to come. False as ``enqueue``.

        What was fetched before is given out first, and counts.
        """
        if self.consumed_offset in {INVALID_OFFSET, self.fetched_offset}:
            self.consumed_offset = self.fetched_offset = offset
            return True
        before, self.fetched_offset = self.fetched_offset, offset
        if self.enqueue(memoryview(b""), offset):
            return True
        self.fetched_offset = before
        return False

    def __str__(self) -> str:
        return (
            f"{self.topic_partition}: fetched offset {self.fetched_offset}, "
            f"consumed offset {self.consumed_offset}"
        )


def no_partitions_error(error: MinikafkaError, queue: ChunkQueue) -> FetchedDataChunk:
    """What a stream raises ``error`` for that belongs to no partition."""
    nowhere = PartitionTopicInfo("", -1, queue, -1, -1, 0, "")
    return FetchedDataChunk(memoryview(b""), nowhere, -1, -1, error)
