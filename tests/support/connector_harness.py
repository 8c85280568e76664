"""Connectors without threads, on a ZooKeeper in memory: tests step them, and provide the messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ConsumerTimeout
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunks import PartitionTopicInfo
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.streams import KafkaStream
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.registry import paths
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.paths import TopicAssignment
from tests.support.consumer_streams import Message, fill

GROUP = "g"


class Fetched:
    """Records the partitions that a connector fetches; a test fills the queues."""

    def __init__(self) -> None:
        self.infos: dict[TopicPartition, PartitionTopicInfo] = {}
        self.starts = 0
        self.ended = False

    def start_connections(self, infos: list[PartitionTopicInfo]) -> None:
        self.starts += 1
        self.infos = {info.topic_partition: info for info in infos}

    def stop_connections(self) -> None:
        self.infos = {}

    def shutdown(self) -> None:
        self.ended = True

    def bring(self, count: int) -> None:
        """Put as many messages of each partition into the queues."""
        for info in self.infos.values():
            if info.fetched_offset < 0:
                info.reset(0)
            if count:
                fill(info, count)


class Coordinator:
    """Keeps the offsets of ``offsets.storage=kafka``."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.connected = 0
        self.closed = False

    def connect(self) -> None:
        self.connected += 1

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets |= offsets

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.offsets[tp] for tp in partitions if tp in self.offsets}

    def close(self) -> None:
        self.closed = True


class ClockWaiter:
    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def wait(self, milliseconds: int) -> None:
        self._clock.advance(milliseconds)

    def stop(self) -> None:
        return


class ConsumerHarness:
    """One consumer."""

    def __init__(self, harness: GroupHarness, settings: Mapping[str, Any]) -> None:
        config = {
            "group_id": GROUP,
            "zookeeper_connect": "memory:1",
            "rebalance_backoff_ms": 200,
            "consumer_timeout_ms": 0,
            "queued_max_message_chunks": 10,
            "zookeeper_session_timeout_ms": 3_000,
            **settings,
        }
        self.store: MemoryStore = harness.zookeeper.connect()
        self.fetched = Fetched()
        self.connector = ZookeeperConsumerConnector(
            ConsumerConfig(**config),
            store=self.store,
            fetcher=self.fetched,
            channel=harness.coordinator,
            clock=harness.clock,
            waiter=ClockWaiter(harness.clock),
            threads=False,
        )
        self.streams: list[KafkaStream[Any, Any]] = []

    def reads(self, **topics: int) -> ConsumerHarness:
        """Create so many streams for each topic."""
        for streams in self.connector.create_message_streams(topics).values():
            self.streams += streams
        return self

    def take(self, count: int, stream: int = 0) -> list[Message]:
        """Take up to so many messages."""
        found: list[Message] = []
        with contextlib.suppress(ConsumerTimeout, StopIteration):
            for _ in range(count):
                found.append(next(self.streams[stream].iterator()))  # noqa: PERF401 - it may end in between
        return found


class GroupHarness:
    """ZooKeeper with a broker and topics, a coordinator, a clock, and the consumers of a group."""

    def __init__(self, **topics: int) -> None:
        self.clock = ManualClock()
        self.zookeeper = MemoryZooKeeper(self.clock)
        self.admin = self.zookeeper.connect()
        self.coordinator = Coordinator()
        self.consumers: list[ConsumerHarness] = []
        self.admin.create(f"{paths.BROKER_IDS}/0", b"{}", make_parents=True)
        for topic, partitions in topics.items():
            self.topic(topic, partitions)

    def topic(self, name: str, partitions: int) -> None:
        data = TopicAssignment(dict.fromkeys(range(partitions), (0,))).to_json()
        if self.admin.exists(paths.topic_path(name)) is None:
            self.admin.create(paths.topic_path(name), data, make_parents=True)
        else:
            self.admin.write(paths.topic_path(name), data)

    def consumer(self, name: str | None = None, **settings: Any) -> ConsumerHarness:
        self.consumers.append(ConsumerHarness(self, {"consumer_id": name, **settings}))
        return self.consumers[-1]

    def go(self, rounds: int = 60, *, asks: bool = True) -> None:
        """Step consumers and time, 10 ms a round. With ``asks`` applications request messages meanwhile."""
        for _ in range(rounds):
            self.zookeeper.deliver()
            for consumer in self.consumers:
                consumer.connector.step()
                if asks and consumer.connector.is_rebalancing:
                    for number in range(len(consumer.streams)):
                        consumer.take(1, number)
            self.clock.advance(10)

    def owners(self, topic: str = "t", group: str = GROUP) -> list[str]:
        """Return the owners of the partitions, in their order; only of those that have an owner."""
        above = f"{paths.CONSUMERS}/{group}/owners/{topic}"
        if self.admin.exists(above) is None:
            return []
        return [self.admin.read(f"{above}/{name}")[0].decode() for name in self.admin.children(above)]

    def offset(self, partition: int = 0, topic: str = "t") -> bytes | None:
        path = paths.consumer_offset_path(GROUP, topic, partition)
        return None if self.admin.exists(path) is None else self.admin.read(path)[0]


def cut_off(harness: GroupHarness, consumer: ConsumerHarness) -> None:
    """Cut ``consumer`` off until its session has expired."""
    harness.zookeeper.suspend(consumer.store)
    harness.clock.advance(3_000)
    harness.zookeeper.expire(consumer.store)
