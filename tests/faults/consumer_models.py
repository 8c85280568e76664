"""What stands in for fetchers, messages, the coordinator and a process, where consumers are simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from minikafka.base.errors import NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunk_queue import ChunkQueue
from minikafka.clients.consumer.fetched_data_chunk import FetchedDataChunk
from minikafka.clients.consumer.lease import Lease
from minikafka.clients.consumer.partition_topic_info import PartitionTopicInfo
from minikafka.clients.consumer.zookeeper_consumer_connector import ZookeeperConsumerConnector
from minikafka.registry.memory import MemoryStore


class World(Protocol):
    """What they know of the world."""

    logs: dict[TopicPartition, int]
    """How many messages each partition has."""
    kafka_offsets: dict[TopicPartition, int]
    """What the coordinator has."""
    unanswered: int
    """How many of the next requests it does not answer."""


class ModelIterator:
    """As ConsumerIterator, on messages that are nothing but offsets."""

    def __init__(self, queue: ChunkQueue, lease: Lease) -> None:
        self._queue = queue
        self._lease = lease
        self._chunk: FetchedDataChunk | None = None
        self._at = 0
        self._in_hand: tuple[PartitionTopicInfo, int] | None = None
        self.counted: Callable[[TopicPartition, int], None] = lambda tp, offset: None

    def next(self) -> tuple[PartitionTopicInfo, int] | None:
        """The next message, or None where the product's would wait."""
        self.count_delivered()
        while self._lease.valid:
            chunk = self._chunk
            if chunk is None:
                taken = self._queue.take(0)
                if not isinstance(taken, FetchedDataChunk):
                    return None
                if taken.error is not None:
                    raise taken.error
                self._chunk, self._at = taken, taken.fetch_offset
                taken.info.consumed_offset = taken.fetch_offset
            elif self._at < chunk.next_offset:
                self._in_hand = chunk.info, self._at
                chunk.info.consumed_offset = self._at
                self._at += 1
                return self._in_hand
            else:
                chunk.info.consumed_offset = chunk.next_offset
                self._chunk = None
        return None

    def clear_current_chunk(self) -> None:
        self._queue.clear()
        self._chunk = None

    @property
    def settled(self) -> bool:
        return self._in_hand is None

    def settle(self, timeout_ms: int) -> bool:
        settled, self._in_hand = self.settled, None
        return settled

    def count_delivered(self) -> None:
        if self._in_hand is not None:
            info, offset = self._in_hand
            info.consumed_offset = offset + 1
            self.counted(info.topic_partition, offset)
            self._in_hand = None


class ModelStream:
    def __init__(self, queue: ChunkQueue, lease: Lease) -> None:
        self._iterator = ModelIterator(queue, lease)

    def iterator(self) -> ModelIterator:
        return self._iterator

    def clear(self) -> None:
        self._iterator.clear_current_chunk()


class ModelFetcher:
    """Fills the queues, whenever it is asked to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._infos: list[PartitionTopicInfo] = []

    def start_connections(self, infos: list[PartitionTopicInfo]) -> None:
        self._infos = infos

    def stop_connections(self) -> None:
        self._infos = []

    shutdown = stop_connections

    def pump(self, most: int) -> None:
        for info in self._infos:
            end = self._world.logs.get(info.topic_partition, 0)
            if info.fetched_offset < 0:
                info.reset(0)
            upto = min(end, info.fetched_offset + most)
            if upto > info.fetched_offset:
                info.enqueue(memoryview(b""), upto)


class ModelChannel:
    """The group's coordinator: it may not answer for a while."""

    def __init__(self, world: World) -> None:
        self._world = world

    def connect(self) -> None:
        return

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self._ask()
        self._world.kafka_offsets |= offsets
        self._ask()

    def fetch(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._ask()
        return {tp: self._world.kafka_offsets[tp] for tp in partitions if tp in self._world.kafka_offsets}

    def close(self) -> None:
        return

    def _ask(self) -> None:
        if self._world.unanswered > 0:
            self._world.unanswered -= 1
            raise NetworkError("the coordinator did not answer")


class ProcessStore:
    """A session whose news reach the process only when it looks for them."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.news: deque[Callable[[], None]] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def watch_children(self, path: str, callback: Callable[..., None]) -> Any:
        return self._store.watch_children(path, partial(self._put, callback))

    def watch_data(self, path: str, callback: Callable[..., None]) -> Any:
        return self._store.watch_data(path, partial(self._put, callback))

    def on_session(self, callback: Callable[..., None]) -> None:
        self._store.on_session(partial(self._put, callback))

    def _put(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.news.append(partial(callback, *arguments))

    def learn(self, most: int) -> None:
        for _ in range(min(most, len(self.news))):
            self.news.popleft()()


class ModelConnector(ZookeeperConsumerConnector):
    """The product's, with streams of the model."""

    def _stream(self, queue: ChunkQueue, *decoders: Any) -> Any:
        return ModelStream(queue, self.lease)


class NoWaiter:
    def wait(self, milliseconds: int) -> None:
        return

    def stop(self) -> None:
        return
