"""Streams without brokers: tests fill their queues."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from minikafka.base.errors import ConsumerTimeout
from minikafka.clients.consumer.chunks import ChunkQueue, PartitionTopicInfo
from minikafka.clients.consumer.message_and_metadata import MessageAndMetadata
from minikafka.clients.consumer.stats import ConsumerTopicStats, ConsumerTopicStatsRegistry
from minikafka.clients.consumer.streams import ALWAYS_VALID, ConsumerIterator, KafkaStream, LeaseState
from minikafka.clients.serializer import DefaultDecoder
from minikafka.records.format.message_set import Codec, Record, build_message_set

CLIENT = "streams-of-tests"
FETCH_SIZE = 1 << 20

Message = MessageAndMetadata[bytes, bytes]


@dataclass
class StreamHarness:
    """A stream, its queue, and its partitions."""

    queue: ChunkQueue
    stream: KafkaStream[bytes, bytes]

    def partition(self, number: int = 0, offset: int = 0, topic: str = "t") -> PartitionTopicInfo:
        return PartitionTopicInfo(topic, number, self.queue, offset, offset, FETCH_SIZE, CLIENT)

    def take(self, count: int) -> list[Message]:
        return [next(self.stream.iterator()) for _ in range(count)]

    def drain(self) -> list[Message]:
        """Take all available messages."""
        found: list[Message] = []
        with contextlib.suppress(ConsumerTimeout):
            found.extend(self.stream)
        return found


@contextlib.contextmanager
def stream_harness(
    max_chunks: int = 10, timeout_ms: int = 0, lease: LeaseState = ALWAYS_VALID
) -> Iterator[StreamHarness]:
    queue = ChunkQueue(max_chunks)
    decoder = DefaultDecoder()
    try:
        iterator = ConsumerIterator(queue, timeout_ms, decoder, decoder, CLIENT, lease)
        yield StreamHarness(queue, KafkaStream(iterator))
    finally:
        ConsumerTopicStatsRegistry.remove(CLIENT)


def stats() -> ConsumerTopicStats:
    return ConsumerTopicStatsRegistry.get(CLIENT)


def message_set(
    first: int, count: int, *, magic: int = 1, codec: Codec = Codec.NONE, key: bytes | None = b"k"
) -> memoryview:
    """Return ``count`` values, which are the offsets as text, from offset ``first``."""
    records = [Record(key, b"%d" % offset, 1_000 + offset) for offset in range(first, first + count)]
    return memoryview(build_message_set(records, magic=magic, codec=codec, base_offset=first))


def fill(
    info: PartitionTopicInfo, count: int, *, magic: int = 1, codec: Codec = Codec.NONE
) -> PartitionTopicInfo:
    """Put the next ``count`` messages of a partition into the queue, as one chunk. Return the partition."""
    first = info.fetched_offset
    assert info.enqueue(message_set(first, count, magic=magic, codec=codec), first + count)
    return info


def offsets(messages: list[Message]) -> list[int]:
    return [message.offset for message in messages]
