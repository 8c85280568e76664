"""Consumers of a group in processes of their own, which join, leave, are killed or paused, and lose sessions.

Each records its messages with the time, and ZooKeeper the owners of partitions with the time. The test checks
afterwards that no consumer got a message of a partition that another consumer owned already.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.registry.store import SessionTicket
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults.consumer_process import SESSION_MS
from tests.support.seeds import seeds

PROGRAM = Path(__file__).parent / "consumer_process.py"
PATIENCE_S = 90
STEPS = 30
SLACK_MS = 30
"""ZooKeeper stamps a znode a little before it is visible."""


class ConsumerProcess:
    """A consumer process and its records."""

    def __init__(self, zookeeper: str, name: str, storage: str) -> None:
        self.name = name
        self.ticket: SessionTicket | None = None
        self.owned: list[tuple[TopicPartition, int]] = []
        self.got: list[tuple[TopicPartition, int, str, int]] = []
        self.stood_still = 0
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), zookeeper, name, storage], stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            what, *words = line.split()
            if what == "session":
                self.ticket = SessionTicket(int(words[0]), bytes.fromhex(words[1]))
            elif what == "own":
                self.owned.append((TopicPartition(words[0], int(words[1])), int(words[2])))
            elif len(words) == 5:  # the last line of a killed process may be incomplete
                self.got.append(
                    (TopicPartition(words[0], int(words[1])), int(words[2]), words[3], int(words[4]))
                )

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def end(self, number: int) -> None:
        self.send(signal.SIGCONT)
        self.send(number)
        self._process.wait(PATIENCE_S)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Load:
    """Messages for all partitions, all the while."""

    def __init__(self, client: Client) -> None:
        self.sent: set[str] = set()
        self.partitions: dict[str, int] = {}
        self._producer = BatchingProducer(client)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._producer.close()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            for topic, count in list(self.partitions.items()):
                for partition in range(count):
                    value = str(len(self.sent))
                    self._producer.send(topic, value.encode(), partition=partition)
                    self.sent.add(value)
            self._producer.flush()


class Churn:
    def __init__(self, cluster: Cluster, admin: Admin, load: Load, seed: int, storage: str) -> None:
        self.cluster = cluster
        self.admin = admin
        self.load = load
        self.storage = storage
        self.random = random.Random(seed)
        self.store = ZooKeeperStore(cluster.zookeeper_connect)
        self.alive: list[ConsumerProcess] = []
        self.all: list[ConsumerProcess] = []
        self.expired: list[tuple[ConsumerProcess, int]] = []
        """The consumers whose session was ended while they ran, with the time."""
        self.happened: Counter[str] = Counter()

    def joins(self) -> None:
        consumer = ConsumerProcess(self.cluster.zookeeper_connect, f"c{len(self.all)}", self.storage)
        self.alive.append(consumer)
        self.all.append(consumer)

    def leaves(self) -> None:
        self._any(remove=True).end(signal.SIGTERM)

    def is_killed(self) -> None:
        self._any(remove=True).end(signal.SIGKILL)

    def stands_still(self) -> None:
        consumer = self._any()
        consumer.send(signal.SIGSTOP)
        time.sleep(self.random.choice((0.3, 1.0, SESSION_MS / 1_000 + 1.5)))
        consumer.stood_still += 1
        consumer.send(signal.SIGCONT)

    def loses_its_session(self) -> None:
        consumer = self._any()
        if consumer.ticket is not None:
            self.expired.append((consumer, time.time_ns() // 1_000_000))
            self.store.end_session(consumer.ticket)

    def topic_grows(self) -> None:
        topic = self.random.choice(list(self.load.partitions))
        count = self.load.partitions[topic]
        if count < 6:
            self.admin.create_partitions(topic, count + 1)
            self.load.partitions[topic] = count + 1

    def topic_is_made(self) -> None:
        if len(self.load.partitions) < 3:
            name = f"churn-{len(self.load.partitions)}"
            self.admin.create_topic(NewTopic(name, 3))
            self.load.partitions[name] = 3

    def step(self) -> None:
        usual = [self.topic_grows, self.topic_is_made]
        if len(self.alive) < 4:
            usual += [self.joins] * 4
        if self.alive:
            usual += [self.stands_still, self.loses_its_session]
        if len(self.alive) > 1:
            usual += [self.leaves, self.is_killed]
        action = self.random.choice(usual)
        self.happened[action.__name__] += 1
        action()
        time.sleep(self.random.uniform(0.1, 1.5))

    def end(self) -> None:
        for consumer in self.alive:
            consumer.end(signal.SIGTERM)
        self.alive = []
        self.store.close()

    def _any(self, *, remove: bool = False) -> ConsumerProcess:
        consumer = self.random.choice(self.alive)
        if remove:
            self.alive.remove(consumer)
        return consumer

    def trespasses(self) -> list[str]:
        """Return messages delivered from a partition that another consumer owned at that moment."""
        owned: dict[TopicPartition, list[tuple[int, str]]] = {}
        for consumer in self.all:
            for tp, since_ms in consumer.owned:
                owned.setdefault(tp, []).append((since_ms, consumer.name))
        for times in owned.values():
            times.sort()
        found = []
        for consumer in self.all:
            excused = consumer.stood_still  # a pause between the check of the lease and the delivery
            for tp, offset, _, at_ms in consumer.got:
                owners = [name for since_ms, name in owned[tp] if since_ms + SLACK_MS <= at_ms]
                near = {name for since_ms, name in owned[tp] if abs(since_ms - at_ms) < SLACK_MS}
                if owners and owners[-1] != consumer.name and consumer.name not in near:
                    if any(o is consumer and 0 <= at_ms - when < 2 * SESSION_MS for o, when in self.expired):
                        continue
                    if excused > 0:
                        excused -= 1
                        continue
                    found.append(f"{consumer.name} got {tp}@{offset} at {at_ms}, owned: {owned[tp]}")
        return found


@contextlib.contextmanager
def churn(tmp_path: Path, seed: int, storage: str) -> Iterator[Churn]:
    with (
        Cluster(data_dir=tmp_path / f"data-{seed}") as cluster,
        Client(cluster.bootstrap_servers) as client,
        Load(client) as load,
    ):
        made = Churn(cluster, Admin(client), load, seed, storage)
        try:
            yield made
        finally:
            made.end()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_each_partition_has_one_reader_and_nothing_is_lost(tmp_path: Path, storage: str) -> None:
    for seed in seeds(1)[:3]:
        with churn(tmp_path, seed, storage) as made:
            made.topic_is_made()
            made.joins()
            for _ in range(STEPS):
                made.step()
            if not made.alive:
                made.joins()
            made.load.stop()

            def all_read(made: Churn = made) -> bool:
                return made.load.sent <= {value for consumer in made.all for _, _, value, _ in consumer.got}

            whole = wait_until(all_read, PATIENCE_S, every_s=0.1)
            made.end()
            assert whole, f"seed {seed}: {dict(made.happened)}"
            assert not made.trespasses(), f"seed {seed}: {made.trespasses()[:5]}"
            twice = Counter(value for consumer in made.all for _, _, value, _ in consumer.got)
            repeated = sum(count - 1 for count in twice.values())
            sys.stdout.write(f"seed {seed}: {dict(made.happened)}, {len(twice)} messages, {repeated} again\n")
