"""Members of one group in memory, as the tests of the group consumer turn them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.net.interfaces import Connector
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import OFFSETS, BrokerHarness

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


class Listener:
    """Notes what it is told, and does what a test wants then."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.then: dict[str, Callable[[], object]] = {}

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def _note(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.told.append((what, tuple(partitions)))
        self.then.get(what, lambda: None)()


class GroupHarness:
    """Two brokers, a topic of four partitions with five records each, and consumers of group ``g``."""

    def __init__(self) -> None:
        self.brokers = BrokerHarness(2, {"t": 4, OFFSETS.topic: 1})
        self.consumers: list[GroupConsumer] = []
        for tp in (T0, T1, T2, T3):
            self.brokers.fill(tp, *(b"%s-%d" % (str(tp).encode(), number) for number in range(5)))

    def consumer(self, listener: Listener | None = None, **settings: Any) -> GroupConsumer:
        """One that subscribes to the topic."""
        consumer = self.bare(listener, **settings)
        consumer.subscribe(["t"])
        return consumer

    def bare(
        self, listener: Listener | None = None, connector: Connector | None = None, **settings: Any
    ) -> GroupConsumer:
        usual = {"auto_commit": False, "auto_offset_reset": Reset.EARLIEST, "heartbeat_interval_ms": 200}
        settings = usual | settings
        cluster = self.brokers.client(
            unknown_topic_timeout_ms=100, connector=connector or self.brokers.network
        )
        consumer = GroupConsumer(
            cluster, GroupConsumerConfig("g", **settings), listener=listener, threads=False
        )
        self.consumers.append(consumer)
        return consumer

    def member(self, listener: Listener | None = None, **settings: Any) -> GroupConsumer:
        """One that has its partitions and has read what there is of them."""
        consumer = self.consumer(listener, **settings)
        self.read(consumer)
        return consumer

    def read(self, *consumers: GroupConsumer, rounds: int = 16) -> Counter[bytes | None]:
        """The values of all records that come while these poll in turn."""
        found: Counter[bytes | None] = Counter()
        for _ in range(rounds):
            for consumer in consumers:
                for fetched in consumer.poll(50):
                    found.update(record.value for record in fetched.records())
        return found

    def committed(self) -> dict[TopicPartition, int]:
        return self.brokers.committed("g")

    def asked(self, key: ApiKey) -> int:
        return len(self.brokers.asked(key))


def everything(*except_partitions: TopicPartition) -> set[bytes]:
    return {
        b"t-%d-%d" % (tp.partition, number)
        for tp in (T0, T1, T2, T3)
        if tp not in except_partitions
        for number in range(5)
    }
