"""Simulate a group of high-level consumers that come and go for some seconds, as one seed decides.

The consumers are the product's connectors without threads, on a ZooKeeper in memory and a clock that is
turned by hand. Only what fetches, and the coordinator, are models: a log only grows, and its messages have
their offsets as values. Between two steps of one consumer, also in the middle of its rebalance, any other may
do anything. A process that is paused or cut off does not learn that its session has gone, and ZooKeeper ends
it no earlier than the session's time-out after it has last heard of it.

What must hold is looked at whenever a message is handed out, and after every step (``Oracle``):

- whoever hands out a message owns its partition in ZooKeeper at that moment
- committed offsets never go back
- no message is handed out twice, in a seed whose consumers all leave in order (``gentle``)
- in the end every partition has an owner, and of every message the application has asked for the next one (or
  has left in order): whoever was killed has taken none with it
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import cast

from minikafka.base.clock import ManualClock
from minikafka.base.errors import CoordinationError, MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.registry import paths
from minikafka.registry.memory import MemoryZooKeeper
from tests.faults.consumer_models import (
    ModelChannel,
    ModelFetcher,
    ModelTopics,
    NoWaiter,
    ProcessStore,
    WatchedConnector,
    WatchedStream,
)

GROUP = "g"
SESSION_MS = 3_000
BACKOFF_MS = 200
STEPS = 200
QUIET_ROUNDS = 400
CONSUMERS_MAX = 5


class Process:
    """One consumer process."""

    def __init__(self, world: Churn, name: str, config: ConsumerConfig) -> None:
        self.world = world
        self.name = name
        self.memory = world.zookeeper.connect()
        self.store = ProcessStore(self.memory)
        self.fetcher = ModelFetcher(world)
        self.connector = WatchedConnector(
            config,
            store=self.store,
            fetcher=self.fetcher,
            channel=ModelChannel(world),
            clock=world.clock,
            waiter=NoWaiter(),
            threads=False,
        )
        self.thread_prefix = f"{self.connector.consumer_id_string}-"
        self.away_until_ms = 0
        """The end of a pause or disconnection; 0 while running and connected."""
        self.paused = False
        self.heard_ms = 0
        """The last contact with ZooKeeper, while disconnected."""
        self.reads_all = False
        world._begun.append(self)
        self.sleepy = False
        """True if the application processes longer than a rebalance waits."""

    def begin(self, topics: dict[str, int] | str, streams: int = 1) -> None:
        self.reads_all = isinstance(topics, str)
        if isinstance(topics, str):
            self.connector.create_message_streams_by_filter(Whitelist(topics), streams)
        else:
            self.connector.create_message_streams(topics)
        for stream in self.streams:
            stream.iterator().counted = self.world.oracle.counted

    @property
    def streams(self) -> list[WatchedStream]:
        return cast(list[WatchedStream], self.connector.topic_registry.streams)

    @property
    def runs(self) -> bool:
        return not self.paused

    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.connector.step()

    def take(self, stream: int, most: int) -> None:
        """The application requests messages."""
        iterator = self.streams[stream % len(self.streams)].iterator()
        for _ in range(most):
            try:
                found = iterator.next()
            except MinikafkaError as error:
                self.world.happened[f"a stream raised {type(error).__name__}"] += 1
                return
            if found is None:
                return
            self.world.oracle.delivered(self, *found)


class Oracle:
    """The invariants."""

    def __init__(self, world: Churn) -> None:
        self._world = world
        self.handed_out: Counter[tuple[TopicPartition, int]] = Counter()
        self.done: dict[TopicPartition, set[int]] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}

    def delivered(self, process: Process, tp: TopicPartition, offset: int) -> None:
        world = self._world
        node = world.zookeeper._znodes.get(paths.consumer_owner_path(GROUP, *tp))
        owner = None if node is None else node.data.decode()
        if owner is None or not owner.startswith(process.thread_prefix):
            raise AssertionError(f"{world}: {process.name} hands out {tp}@{offset}, which {owner} owns")
        self.handed_out[tp, offset] += 1
        if world.gentle and self.handed_out[tp, offset] > 1:
            raise AssertionError(f"{world}: {tp}@{offset} is handed out again, by {process.name}")

    def counted(self, tp: TopicPartition, offset: int) -> None:
        self.done.setdefault(tp, set()).add(offset)

    def look(self) -> None:
        """Check the committed offsets."""
        world = self._world
        for tp in world.logs:
            node = world.zookeeper._znodes.get(paths.consumer_offset_path(GROUP, *tp))
            if node is not None:
                self._never_back("ZooKeeper", tp, int(node.data))
            if tp in world.kafka_offsets:
                self._never_back("the coordinator", tp, world.kafka_offsets[tp])

    def _never_back(self, where: str, tp: TopicPartition, offset: int) -> None:
        before = self._committed.get((where, tp), 0)
        if offset < before:
            raise AssertionError(f"{self._world}: {tp} goes back in {where} from {before} to {offset}")
        self._committed[where, tp] = offset

    def finished(self) -> bool:
        """Return whether every partition has an owner and all its messages are processed."""
        world = self._world
        return all(
            paths.consumer_owner_path(GROUP, *tp) in world.zookeeper._znodes
            and len(self.done.get(tp, ())) == world.logs[tp]
            for tp in world.logs
            if tp.topic in world.topics
        )

    def missing(self) -> str:
        world = self._world
        found = []
        for tp in world.logs:
            if tp.topic in world.topics:
                node = world.zookeeper._znodes.get(paths.consumer_owner_path(GROUP, *tp))
                lost = [n for n in range(world.logs[tp]) if n not in self.done.get(tp, ())]
                if node is None or lost:
                    found.append(f"{tp} of {None if node is None else node.data!r} lacks {lost[:5]}")
        return "; ".join(found)


class Churn(ModelTopics):
    """The history of one seed."""

    def __init__(self, seed: int, *, gentle: bool | None = None) -> None:
        self.seed = seed
        self.gentle = seed % 3 == 0 if gentle is None else gentle
        self.clock = ManualClock()
        self.zookeeper = MemoryZooKeeper(self.clock)
        super().__init__(self.zookeeper.connect(), random.Random(seed))
        self.processes: list[Process] = []
        self._begun: list[Process] = []
        self._sessions_to_end: list[tuple[int, int]] = []
        self.oracle = Oracle(self)
        chance = self.random
        self._storage = chance.choice(("zookeeper", "zookeeper", "kafka"))
        self._dual = chance.random() < 0.3
        self._strategy = chance.choice(("range", "range", "roundrobin"))
        self._streams = chance.randint(1, 3)
        self.topic_made()

    def __str__(self) -> str:
        return f"seed {self.seed}{' (gentle)' if self.gentle else ''}, {self._storage}, {self._strategy}"

    # --- what happens

    def run(self, steps: int = STEPS) -> None:
        usual = [self.works] * 12 + [self.takes] * 6 + [self.fetches] * 5 + [self.produces] * 4
        usual += [self.time_passes] * 6 + [self.joins] * 2 + [self.leaves] + [self.commits]
        usual += [self.partitions_added, self.topic_made, self.topic_deleted, self.answer_lost]
        if not self.gentle:
            usual += [self.killed, self.paused, self.cut, self.cut, self.coordinator_away]
        try:
            self.joins()
            for _ in range(steps):
                action = self.random.choice(usual)
                action()
                self.news()
            self.quiet()
        finally:
            # Half a rebalance may hold a lock of this thread, which the collector cannot release on another.
            for process in self._begun:
                process.connector._stepper.cancel()

    def news(self) -> None:
        """ZooKeeper delivers its events, and expires silent sessions."""
        now_ms = self.clock.monotonic_ms()
        for ending in list(self._sessions_to_end):
            if ending[0] <= now_ms:
                self._sessions_to_end.remove(ending)
                self.zookeeper._end(ending[1])
                self.happened["a session expired"] += 1
        for process in self.processes:
            if process.away_until_ms:
                if process.away_until_ms <= now_ms:
                    self._comes_back(process)
                elif process.heard_ms + SESSION_MS <= now_ms and self.zookeeper.alive(
                    process.memory.session_id
                ):
                    self.zookeeper.expire(process.memory)
                    self.happened["a session expired"] += 1
        self.zookeeper.deliver()
        self.oracle.look()

    def works(self) -> None:
        process = self._any()
        if process is not None:
            process.store.learn(self.random.randint(0, 3))
            process.step(self.random.randint(1, 5))
            self._bury(process)

    def takes(self) -> None:
        process = self._any()
        if process is not None:
            process.take(self.random.randrange(4), self.random.randint(1, 6))

    def fetches(self) -> None:
        process = self._any()
        if process is not None:
            process.fetcher.pump(self.random.randint(1, 5))

    def produces(self) -> None:
        for _ in range(3):
            tp = self.random.choice(list(self.logs))
            if tp.topic in self.topics:
                self.logs[tp] += self.random.randint(1, 4)

    def time_passes(self) -> None:
        if self.gentle:
            # Every application asks for its next message before a rebalance has waited for too long.
            self.everybody_works()
        self.clock.advance(self.random.randint(1, BACKOFF_MS // 2 if self.gentle else 500))

    def everybody_works(self) -> None:
        """Step the processes in turn, until all rebalances wait for time to pass."""
        for _ in range(60):
            stepped = False
            for process in self.random.sample(self.processes, len(self.processes)):
                process.store.learn(1)
                stepped |= process.connector.step()
                if process.connector.is_rebalancing and not process.sleepy:
                    for number in range(len(process.streams)):
                        process.take(number, 1)
                self._bury(process)
            if not stepped:
                return

    def joins(self) -> None:
        if len(self.processes) >= CONSUMERS_MAX:
            return
        chance, process = self.random, self._new_process()
        if self._strategy == "roundrobin" or chance.random() < 0.6:
            process.begin("t.*", self._streams)
        else:
            process.begin({topic: chance.randint(1, 2) for topic in self.topics[:2]})
        process.sleepy = not self.gentle and chance.random() < 0.2
        self.processes.append(process)
        self.happened["a consumer joined"] += 1

    def leaves(self) -> None:
        process = self._any()
        if process is not None and process.away_until_ms == 0 and len(self.processes) > 1:
            process.connector.shutdown()
            self.processes.remove(process)
            self.happened["a consumer left"] += 1

    def commits(self) -> None:
        process = self._any()
        if process is not None and not process.connector.committing:
            with contextlib.suppress(CoordinationError, NetworkError):
                process.connector.commit_offsets()

    def answer_lost(self) -> None:
        process = self._any()
        if process is not None and process.away_until_ms == 0:
            self.zookeeper.lose_next_answer(process.memory)
            self.happened["an answer was lost"] += 1

    def killed(self) -> None:
        process = self._any()
        if process is not None and len(self.processes) > 1:
            self.processes.remove(process)
            self.zookeeper.suspend(process.memory)
            if process.away_until_ms == 0:
                process.heard_ms = self.clock.monotonic_ms()
            self._sessions_to_end.append((process.heard_ms + SESSION_MS, process.memory.session_id))
            self.happened["a consumer was killed"] += 1

    def paused(self) -> None:
        """Pause the whole process."""
        self._away(paused=True)

    def cut(self) -> None:
        """Cut the connection to ZooKeeper."""
        self._away(paused=False)

    def coordinator_away(self) -> None:
        self.unanswered = self.random.randint(1, 6)

    def _away(self, *, paused: bool) -> None:
        process = self._any()
        if process is not None and process.away_until_ms == 0:
            process.paused = paused
            process.heard_ms = self.clock.monotonic_ms()
            process.away_until_ms = process.heard_ms + self.random.choice((200, 1_000, SESSION_MS, 6_000))
            self.zookeeper.suspend(process.memory)
            self.happened["a process was paused" if paused else "a process was cut off"] += 1

    def _comes_back(self, process: Process) -> None:
        if process.paused:
            # The application runs before anything else in the process has noticed.
            process.paused = False
            for number in range(3):
                process.take(number, 2)
        process.away_until_ms = 0
        self.zookeeper.resume(process.memory)

    # --- the end

    def quiet(self) -> None:
        """End all faults, and let time pass."""
        self.unanswered = 0
        if not any(process.reads_all for process in self.processes):
            process = self._new_process()
            process.begin("t.*", self._streams)
            self.processes.append(process)
        for process in self.processes:
            process.sleepy = False
        for _ in range(QUIET_ROUNDS):
            self.news()
            for process in list(self.processes):
                if not process.runs:
                    continue
                process.store.learn(99)
                process.step(10)
                process.fetcher.pump(20)
                for number in range(len(process.streams)):
                    process.take(number, 100)
                self._bury(process)
            if self.oracle.finished():
                self.oracle.look()
                return
            self.clock.advance(100)
        raise AssertionError(f"{self}: not all is done with: {self.oracle.missing()}")

    # --- help

    def _any(self) -> Process | None:
        """Return a running process."""
        running = [process for process in self.processes if process.runs]
        return self.random.choice(running) if running else None

    def _bury(self, process: Process) -> None:
        if process.connector.is_shutting_down and process in self.processes:
            self.processes.remove(process)
            self.happened["a consumer gave up"] += 1
            if not self.processes:
                self.joins()

    def _new_process(self) -> Process:
        name = self.new_name("c")
        return Process(self, name, self._config(name))

    def _config(self, name: str) -> ConsumerConfig:
        return ConsumerConfig(
            group_id=GROUP,
            zookeeper_connect="memory:1",
            consumer_id=name,
            auto_commit_interval_ms=500,
            auto_commit_enable=self.gentle or self.random.random() < 0.9,
            rebalance_backoff_ms=BACKOFF_MS,
            rebalance_max_retries=20,
            zookeeper_session_timeout_ms=SESSION_MS,
            consumer_timeout_ms=0,
            partition_assignment_strategy=self._strategy,
            offsets_storage=self._storage,
            dual_commit_enabled=self._dual,
            auto_offset_reset="smallest",
        )
