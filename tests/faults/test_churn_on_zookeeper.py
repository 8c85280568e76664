"""Consumers that come and go by chance, on real ZooKeeper: real sessions and threads; only what fetches is a
model, and there are no brokers.

What is handed out, and who begins with what, is seen in the order of time: whoever hands out a message of a
partition is the last one that began with it. Who was killed, or whose session was ended by force (which no
lease foresees), is not looked at until it begins anew.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.errors import ConsumerTimeout
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunks import PartitionTopicInfo
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.registry.consumer_offsets import read_offsets
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults.consumer_models import ModelFetcher, ModelTopics
from tests.support.seeds import seeds

GROUP = "g"
STEPS = 30
BACKOFF_MS = 300
PATIENCE_S = 60
CONSUMERS_MAX = 4


class Fetcher(ModelFetcher):
    """Goes on by itself, in a thread."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def start_connections(self, infos: list[PartitionTopicInfo]) -> None:
        with self._lock:
            super().start_connections(infos)

    def stop_connections(self) -> None:
        with self._lock:
            super().stop_connections()

    def shutdown(self) -> None:
        self.stop_connections()
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.005):
            with self._lock:
                # Of a model that waits for room while it holds the lock nothing could be stopped.
                if all(info.queue.has_room for info in self._infos):
                    self.pump(3)


class One:
    """A consumer, and the thread that reads its stream."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self._world = name, world
        self.killed = False
        self.expired = 0
        """Its session that was ended by force, and of which it may not know yet."""
        config = ConsumerConfig(
            group_id=GROUP,
            zookeeper_connect=world.connect,
            consumer_id=name,
            auto_commit_interval_ms=100,
            auto_offset_reset="smallest",
            rebalance_backoff_ms=BACKOFF_MS,
            rebalance_max_retries=50,
            zookeeper_session_timeout_ms=2_000,
            consumer_timeout_ms=50,
        )
        self.connector = ZookeeperConsumerConnector(config, fetcher=Fetcher(world))
        self.connector.set_consumer_rebalance_listener(self)
        (self._stream,) = self.connector.create_message_streams_by_filter(Whitelist("t.*"), 1)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        iterator = self._stream.iterator()
        while not self.killed:
            try:
                message = next(iterator)
            except ConsumerTimeout:
                continue
            except StopIteration:
                return
            self._world.handed_out(self, TopicPartition(message.topic, message.partition), message.offset)

    def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
        return

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, Any]]) -> None:
        if self.connector.registration.session_id != self.expired:
            self.expired = 0
            for topic, threads in assignment.items():
                mine = [number for number, thread in threads.items() if thread.consumer == consumer_id]
                self._world.begins(self, [TopicPartition(topic, number) for number in mine])

    def leave(self) -> None:
        self.connector.shutdown()
        self._thread.join()

    def kill(self, admin: ZooKeeperStore) -> None:
        """It stops reading with a message in its hands, and its session ends before it can commit."""
        self.killed = True
        self._thread.join()
        self.expire(admin)
        self.connector.shutdown()

    def expire(self, admin: ZooKeeperStore) -> None:
        store = self.connector.store
        assert isinstance(store, ZooKeeperStore)
        ticket = store.ticket
        assert ticket is not None
        self.expired = ticket.session_id
        admin.end_session(ticket)


class World(ModelTopics):
    """The messages, their consumers, and the messages that were read."""

    topics_max = 3

    def __init__(self, connect: str, admin: ZooKeeperStore, seed: int) -> None:
        super().__init__(admin, random.Random(seed))
        self.connect, self._zookeeper = connect, admin
        self.alive: list[One] = []
        self.faults: list[str] = []
        self.times: Counter[tuple[TopicPartition, int]] = Counter()
        self._reader: dict[TopicPartition, One] = {}
        self._lock = threading.Lock()

    # --- the log

    def begins(self, one: One, partitions: list[TopicPartition]) -> None:
        with self._lock:
            self._reader.update(dict.fromkeys(partitions, one))

    def handed_out(self, one: One, tp: TopicPartition, offset: int) -> None:
        with self._lock:
            self.times[tp, offset] += 1
            reader = self._reader.get(tp)
            if reader is not one and not one.expired:
                self.faults.append(f"{one.name} hands out {tp}@{offset}, {reader and reader.name} has begun")

    def all_is_read(self) -> bool:
        ends = {tp: end for tp, end in self.logs.items() if tp.topic in self.topics}
        return all(self.times[tp, offset] for tp, end in ends.items() for offset in range(end))

    # --- what happens

    def step(self) -> None:
        chance = self.random
        usual = [self.partitions_added, self.topic_made, self.topic_deleted]
        usual += [self.joins] * 3 if len(self.alive) < CONSUMERS_MAX else []
        usual += [self.expires] * 2 if self.alive else []
        usual += [self.leaves, self.is_killed] if len(self.alive) > 1 else []
        chance.choice(usual)()
        for tp in self.logs:
            self.logs[tp] += 3
        if self.alive and chance.random() < 0.5:
            # Or the next thing happens while this one has not settled.
            assert wait_until(self.all_is_read, PATIENCE_S), f"not all is read: {self.happened}"

    def joins(self) -> None:
        self.alive.append(One(self, self.new_name("c")))
        self.happened["joined"] += 1

    def leaves(self) -> None:
        self._any(remove=True).leave()
        self.happened["left"] += 1

    def is_killed(self) -> None:
        self._any(remove=True).kill(self._zookeeper)
        self.happened["killed"] += 1

    def expires(self) -> None:
        self._any().expire(self._zookeeper)
        self.happened["session ended"] += 1

    def close(self) -> None:
        for one in self.alive:
            one.leave()
        self.alive = []

    def _any(self, *, remove: bool = False) -> One:
        one = self.random.choice(self.alive)
        if remove:
            self.alive.remove(one)
        return one


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(300)
def test_each_partition_has_one_reader_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, logger="minikafka")
    zookeeper = EmbeddedZooKeeper(str(tmp_path / "z"))
    connect = zookeeper.start()
    try:
        for seed in seeds(1)[:20]:
            with contextlib.closing(ZooKeeperStore(f"{connect}/{seed}")) as admin:
                world = World(f"{connect}/{seed}", admin, seed)
                try:
                    world.topic_made()
                    world.joins()
                    for _ in range(STEPS):
                        world.step()
                    assert wait_until(world.all_is_read, PATIENCE_S), f"seed {seed}: {world.happened}"
                finally:
                    world.close()
                assert not world.faults, f"seed {seed}: {world.faults[:5]}"
                committed = read_offsets(admin, GROUP)
                left = {
                    tp for tp in world.logs if tp.topic in world.topics and committed[tp] != world.logs[tp]
                }
                assert not left, f"seed {seed}: {left} of {committed}"
                again = sum(world.times.values()) - len(world.times)
                told = ", ".join(f"{count} {what}" for what, count in sorted(world.happened.items()))
                sys.stdout.write(f"seed {seed}: {told}; {len(world.times)} messages, {again} again\n")
    finally:
        zookeeper.stop()
