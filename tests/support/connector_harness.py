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
from minikafka.registry.topics import TopicAssignment
from tests.support.consumer_streams import Message, fill

GROUP = "g"


class FakeFetcher:
    """Records the partitions that a connector starts to fetch; tests fill the queues."""

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

    def deliver(self, count: int) -> None:
        """Put the next ``count`` messages of each partition into the queues."""
        for info in self.infos.values():
            if info.fetched_offset < 0:
                info.reset(0)
            if count:
                fill(info, count)


class FakeOffsetsChannel:
    """Stores the offsets of ``offsets.storage=kafka``."""

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
    """Waits by advancing the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def wait(self, milliseconds: int) -> None:
        self._clock.advance(milliseconds)

    def stop(self) -> None:
        return


class ConsumerHarness:
    """A connector with its fake fetcher and its session."""

    def __init__(self, harness: ZooKeeperGroupHarness, settings: Mapping[str, Any]) -> None:
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
        self.fetcher = FakeFetcher()
        self.connector = ZookeeperConsumerConnector(
            ConsumerConfig(**config),
            store=self.store,
            fetcher=self.fetcher,
            channel=harness.coordinator,
            clock=harness.clock,
            waiter=ClockWaiter(harness.clock),
            threads=False,
        )
        self.streams: list[KafkaStream[Any, Any]] = []

    def reads(self, **topics: int) -> ConsumerHarness:
        """Create the given number of streams for each topic."""
        for streams in self.connector.create_message_streams(topics).values():
            self.streams += streams
        return self

    def take(self, count: int, stream: int = 0) -> list[Message]:
        """Take up to ``count`` messages of a stream."""
        found: list[Message] = []
        with contextlib.suppress(ConsumerTimeout, StopIteration):
            for _ in range(count):
                found.append(next(self.streams[stream].iterator()))  # noqa: PERF401 - the stream may end early
        return found


class ZooKeeperGroupHarness:
    """ZooKeeper in memory with a broker and topics, an offsets channel, a clock, and a group's consumers."""

    def __init__(self, **topics: int) -> None:
        self.clock = ManualClock()
        self.zookeeper = MemoryZooKeeper(self.clock)
        self.admin = self.zookeeper.connect()
        self.coordinator = FakeOffsetsChannel()
        self.consumers: list[ConsumerHarness] = []
        self.admin.create(f"{paths.BROKER_IDS}/0", b"{}", make_parents=True)
        for topic, partitions in topics.items():
            self.topic(topic, partitions)

    def topic(self, name: str, partitions: int) -> None:
        """Create a topic, or change its number of partitions."""
        data = TopicAssignment(dict.fromkeys(range(partitions), (0,))).to_json()
        if self.admin.exists(paths.topic_path(name)) is None:
            self.admin.create(paths.topic_path(name), data, make_parents=True)
        else:
            self.admin.write(paths.topic_path(name), data)

    def consumer(self, name: str | None = None, **settings: Any) -> ConsumerHarness:
        """Create a consumer."""
        self.consumers.append(ConsumerHarness(self, {"consumer_id": name, **settings}))
        return self.consumers[-1]

    def go(self, rounds: int = 60, *, requests: bool = True) -> None:
        """Step consumers and time, 10 ms a round. With ``requests`` applications request messages during a
        rebalance.
        """
        for _ in range(rounds):
            self.zookeeper.deliver()
            for consumer in self.consumers:
                consumer.connector.step()
                if requests and consumer.connector.is_rebalancing:
                    for number in range(len(consumer.streams)):
                        consumer.take(1, number)
            self.clock.advance(10)

    def owners(self, topic: str = "t", group: str = GROUP) -> list[str]:
        """Return the owners of a topic's partitions, in order of the partitions that have one."""
        parent = f"{paths.CONSUMERS}/{group}/owners/{topic}"
        if self.admin.exists(parent) is None:
            return []
        return [self.admin.read(f"{parent}/{name}")[0].decode() for name in self.admin.children(parent)]

    def offset(self, partition: int = 0, topic: str = "t") -> bytes | None:
        """Return the committed offset in ZooKeeper, or None."""
        path = paths.consumer_offset_path(GROUP, topic, partition)
        return None if self.admin.exists(path) is None else self.admin.read(path)[0]


def cut_off(harness: ZooKeeperGroupHarness, consumer: ConsumerHarness) -> None:
    """Disconnect ``consumer`` from ZooKeeper until its session has expired."""
    harness.zookeeper.suspend(consumer.store)
    harness.clock.advance(3_000)
    harness.zookeeper.expire(consumer.store)
