"""Connectors without threads, on a broker in memory: tests step them, and provide the messages."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from minikafka.base.errors import ConsumerTimeout
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.offsets import GroupOffsetsChannel
from minikafka.clients.consumer.streams import KafkaStream
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.registry import paths
from minikafka.registry.memory import MemoryStore
from tests.support.broker_harness import BrokerHarness
from tests.support.consumer_streams import Message
from tests.support.fetcher_harness import SteppedFetcher

GROUP = "g"


class ConsumerHarness:
    """A connector with its fetcher and its session."""

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
        checked = ConsumerConfig(**config)
        self.fetcher = SteppedFetcher(harness.brokers, checked)
        self.connector = ZookeeperConsumerConnector(
            checked,
            store=self.store,
            fetcher=self.fetcher,
            channel=harness.coordinator,
            clock=harness.clock,
            waiter=harness.brokers.make_waiter(),
            threads=False,
        )
        self.streams: list[KafkaStream[Any, Any]] = []
        self._harness = harness

    def reads(self, **topics: int) -> ConsumerHarness:
        """Create the given number of streams for each topic."""
        for streams in self.connector.create_message_streams(topics).values():
            self.streams += streams
        return self

    def joins(self, **topics: int) -> ConsumerHarness:
        """Create streams, and wait for the rebalance."""
        self.reads(**topics)
        self._harness.go()
        return self

    def receives(self, count: int) -> ConsumerHarness:
        """Bring the next ``count`` messages of each partition."""
        self.fetcher.deliver(count)
        return self

    def take(self, count: int, stream: int = 0) -> list[Message]:
        """Take up to ``count`` messages of a stream."""
        found: list[Message] = []
        with contextlib.suppress(ConsumerTimeout, StopIteration):
            for _ in range(count):
                found.append(next(self.streams[stream].iterator()))  # noqa: PERF401 - the stream may end early
        return found


class ZooKeeperGroupHarness:
    """A broker in memory with topics, its ZooKeeper, and a group's consumers."""

    def __init__(self, **topics: int) -> None:
        self.brokers = BrokerHarness(1, topics)
        self.clock = self.brokers.clock
        self.zookeeper = self.brokers.zookeeper
        self.admin = self.zookeeper.connect()
        self.coordinator = GroupOffsetsChannel(self.brokers.client, GROUP, 10_000)
        self.consumers: list[ConsumerHarness] = []

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
            self.brokers.advance(10)

    def deliver(self, consumer: ConsumerHarness, count: int) -> None:
        """Step the group, then bring the next ``count`` messages to a consumer."""
        self.go()
        consumer.fetcher.deliver(count)

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
