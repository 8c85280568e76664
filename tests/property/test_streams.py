"""Streams in random histories: leaders move, brokers stop and start, connections break, a group rebalances.

In every history each partition's messages are delivered in order and without a gap. Only one message may be
delivered twice: the one in process when the streams were cleared, if its partition was released.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection

import pytest

from minikafka.base.errors import ConsumerTimeout
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunks import PartitionTopicInfo
from minikafka.net.memory import Fault
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import FIRST_PORT, HOST, BrokerHarness
from tests.support.fetcher_harness import FetcherHarness

BROKERS, PARTITIONS = 3, 7
STEPS = 120
SEEDS = 30


class StreamsHarness:
    """A consumer, and the next offset that it must deliver of each partition."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.brokers = BrokerHarness(BROKERS, {"t": PARTITIONS}, replicas=BROKERS)
        self.brokers.newest[ApiKey.FETCH] = self.chance.choice([2, 3, 10])
        self.fetcher = FetcherHarness(
            self.brokers,
            fetch_message_max_bytes=self.chance.choice([1_000, 4_000, 1 << 20]),
            queued_max_message_chunks=self.chance.randrange(1, 4),
            num_consumer_fetchers=self.chance.randrange(1, 3),
            socket_timeout_ms=1_000,
        )
        self.streams = [self.fetcher.stream() for _ in range(self.chance.randrange(1, 4))]
        self.partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
        self.next = dict.fromkeys(self.partitions, 0)
        self.last: dict[int, TopicPartition] = {}
        """The message in process of each stream's application."""
        self.infos: dict[TopicPartition, PartitionTopicInfo] = {}
        self.down: set[int] = set()
        self.start()

    def start(self, kept: Collection[TopicPartition] = ()) -> None:
        for tp in self.partitions:
            if tp in kept:
                continue
            stream = self.chance.choice(self.streams)
            self.infos[tp] = self.fetcher.info(stream, tp.partition, self.next[tp])
        self.fetcher.manager.start_connections(self.infos.values())

    # --- events

    def produce(self) -> None:
        tp = self.chance.choice(self.partitions)
        first = self.brokers.logs[tp].end_offset
        offsets = range(first, first + self.chance.randrange(1, 12))
        records = [Record(b"k", b"%d of %s" % (offset, str(tp).encode()), 1_000) for offset in offsets]
        codec = self.chance.choice([Codec.NONE, Codec.NONE, Codec.LZ4])
        magic = self.chance.randrange(3)
        data = build_message_set(records, codec=codec, magic=magic, base_offset=first)
        self.brokers.produce(tp, data)

    def fetch(self) -> None:
        self.fetcher.step(self.chance.randrange(1, 4))

    def take(self) -> None:
        number = self.chance.randrange(len(self.streams))
        with contextlib.suppress(ConsumerTimeout):
            for _ in range(self.chance.randrange(1, 30)):
                self.last.pop(number, None)
                (message,) = self.streams[number].take(1)
                tp = TopicPartition(message.topic, message.partition)
                self.last[number] = tp
                assert message.offset == self.next[tp], f"{tp}: {message.offset}, not {self.next[tp]}"
                assert message.message == b"%d of %s" % (message.offset, str(tp).encode())
                self.next[tp] += 1

    def rebalance(self) -> None:
        self.fetcher.manager.stop_connections()
        stay = [
            tp for tp in self.partitions if self.infos[tp].consumed_offset >= 0 and self.chance.random() < 0.5
        ]
        kept = {tp: self.infos[tp] for tp in stay}
        for stream in self.streams:
            stream.stream.clear()
            stream.stream.iterator().forget_processing(kept.values())
        in_process, self.last = (
            set(self.last.values()),
            {number: tp for number, tp in self.last.items() if tp in kept},
        )
        for tp, info in self.infos.items():
            assert info.consumed_offset == self.next[tp] - (tp in in_process), str(info)
            if tp in kept:
                info.fetched_offset = max(
                    stream.stream.iterator().next_fetch_offset(info) for stream in self.streams
                )
                assert info.fetched_offset == self.next[tp]
            else:
                self.next[tp] = info.consumed_offset
        self.start(kept)

    def move(self) -> None:
        tp = self.chance.choice(self.partitions)
        if not self.down:
            self.brokers.move_leader(tp, self.chance.choice(self.brokers.in_sync(tp)))

    def break_connection(self) -> None:
        self.brokers.fault(self.chance.randrange(BROKERS) + 1, self.chance.choice(list(Fault)))

    def stop_or_start(self) -> None:
        broker = self.chance.randrange(BROKERS) + 1
        if broker in self.down:
            self.down.discard(broker)
            self.brokers.start(broker)
        elif len(self.down) < BROKERS - 1:
            self.down.add(broker)
            self.brokers.stop(broker)

    def settle(self) -> None:
        """Repair everything, and read to the ends of the logs."""
        for broker in range(1, BROKERS + 1):
            self.brokers.network.heal(HOST, FIRST_PORT + broker)
            if broker in self.down:
                self.brokers.start(broker)
        for _ in range(1_000):
            self.fetch()
            self.take()
            if all(self.next[tp] == self.brokers.logs[tp].end_offset for tp in self.partitions):
                return
        missing = {tp: (self.next[tp], self.brokers.logs[tp].end_offset) for tp in self.partitions}
        raise AssertionError(f"messages are missing (next offset, end of the log): {missing}")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_streams_deliver_everything_once_and_in_order(seed: int) -> None:
    run = StreamsHarness(seed)
    frequent = [run.produce] * 6 + [run.fetch] * 8 + [run.take] * 6
    rare = [run.rebalance, run.move, run.break_connection, run.stop_or_start]
    for _ in range(STEPS):
        run.chance.choice(frequent + rare)()
    run.settle()
