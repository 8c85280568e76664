"""Models of topics, fetchers, messages, the coordinator and a process, for simulated consumers."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol

from minikafka.base.errors import ConsumerTimeout, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunks import ChunkQueue, PartitionTopicInfo
from minikafka.clients.consumer.registration import Lease
from minikafka.clients.consumer.runtime import Steps
from minikafka.clients.consumer.streams import ConsumerIterator
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.clients.serializer import DefaultDecoder
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.registry import paths
from minikafka.registry.memory import MemoryStore
from minikafka.registry.store import Store
from minikafka.registry.topics import TopicAssignment


class ModelBackend(Protocol):
    """The state that the models read."""

    logs: dict[TopicPartition, int]
    """The number of messages of each partition."""
    kafka_offsets: dict[TopicPartition, int]
    """The offsets of the coordinator."""
    unanswered: int
    """The number of next requests without an answer."""


class ModelTopics:
    """Topics in ZooKeeper that come, go and grow, and whose messages are numbers (see ``ModelBackend``)."""

    topics_max = 4
    partitions_max = 6

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.logs: dict[TopicPartition, int] = {}
        self.kafka_offsets: dict[TopicPartition, int] = {}
        self.unanswered = 0
        self.topics: list[str] = []
        self.happened: Counter[str] = Counter()
        self.admin, self.random = store, chance
        self._names = 0
        store.create(f"{paths.BROKER_IDS}/0", b"{}", make_parents=True)
        store.create(paths.BROKER_TOPICS, make_parents=True)

    def new_name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def partitions_added(self) -> None:
        topic = self.random.choice(self.topics)
        count = sum(tp.topic == topic for tp in self.logs)
        if count < self.partitions_max:
            self._write(topic, count + self.random.randint(1, 2))
            self.happened["partitions were added"] += 1

    def topic_made(self) -> None:
        if len(self.topics) < self.topics_max:
            self.topics.append(self.new_name("t"))
            self._write(self.topics[-1], self.random.randint(1, 4))
            self.happened["a topic was made"] += 1

    def topic_deleted(self) -> None:
        if len(self.topics) > 1:
            topic = self.random.choice(self.topics)
            self.topics.remove(topic)
            self.admin.delete(paths.topic_path(topic))
            self.happened["a topic was deleted"] += 1

    def _write(self, topic: str, partitions: int) -> None:
        data = TopicAssignment(dict.fromkeys(range(partitions), (0,))).to_json()
        for number in range(partitions):
            self.logs.setdefault(TopicPartition(topic, number), 0)
        if self.admin.exists(paths.topic_path(topic)) is None:
            self.admin.create(paths.topic_path(topic), data)
        else:
            self.admin.write(paths.topic_path(topic), data)


class WatchedIterator:
    """Wraps the product's iterator. ``counted`` is called for each processed message."""

    def __init__(self, queue: ChunkQueue, lease: Lease) -> None:
        decoder = DefaultDecoder()
        self._iterator = ConsumerIterator(queue, 0, decoder, decoder, "churn", lease)
        self._in_hand: tuple[TopicPartition, int] | None = None
        self.counted: Callable[[TopicPartition, int], None] = lambda tp, offset: None

    def next(self) -> tuple[TopicPartition, int] | None:
        in_hand, self._in_hand = self._in_hand, None
        if in_hand is not None:
            self.counted(*in_hand)
        try:
            message = next(self._iterator)
        except (ConsumerTimeout, StopIteration):
            return None
        assert message.message == b"%d" % message.offset
        self._in_hand = TopicPartition(message.topic, message.partition), message.offset
        return self._in_hand

    def clear_current_chunk(self) -> None:
        self._iterator.clear_current_chunk()

    @property
    def processing_partition(self) -> object:
        return self._iterator.processing_partition

    def forget_processing(self, kept: Collection[PartitionTopicInfo]) -> None:
        self._iterator.forget_processing(kept)
        if self._iterator.processing_partition is None:
            self._in_hand = None

    def next_fetch_offset(self, info: PartitionTopicInfo) -> int:
        return self._iterator.next_fetch_offset(info)

    def mark_delivered_consumed(self) -> None:
        self._iterator.mark_delivered_consumed()
        in_hand, self._in_hand = self._in_hand, None
        if in_hand is not None:
            self.counted(*in_hand)


class WatchedStream:
    def __init__(self, queue: ChunkQueue, lease: Lease) -> None:
        self._iterator = WatchedIterator(queue, lease)

    def iterator(self) -> WatchedIterator:
        return self._iterator

    def clear(self) -> None:
        self._iterator.clear_current_chunk()


class ModelFetcher:
    """Fills the queues on request, with messages whose values are their offsets."""

    def __init__(self, world: ModelBackend) -> None:
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
                records = [Record(None, b"%d" % offset, 0) for offset in range(info.fetched_offset, upto)]
                sets = build_message_set(records, magic=1, base_offset=info.fetched_offset)
                info.enqueue(memoryview(sets), upto)


class ModelChannel:
    """The group's coordinator, which may not answer for a while."""

    def __init__(self, world: ModelBackend) -> None:
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
    """A session whose events reach the process only when it polls."""

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


class WatchedConnector(ZookeeperConsumerConnector):
    """The product's connector, with watched streams."""

    committing = 0
    """The number of commits under way; another one would wait for them on its thread."""

    def commit_steps(self, **given: Any) -> Steps[None]:
        self.committing += 1
        try:
            yield from super().commit_steps(**given)
        finally:
            self.committing -= 1

    def auto_commit(self) -> None:
        if not self.committing:
            super().auto_commit()

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self.topic_registry._new_stream = self._watched  # type: ignore[assignment]

    def _watched(self, queue: ChunkQueue, *decoders: Any) -> WatchedStream:
        return WatchedStream(queue, self.lease)


class NoWaiter:
    def wait(self, milliseconds: int) -> None:
        return

    def stop(self) -> None:
        return
