"""Streams that write exactly once, whose driver, Python workers and brokers are killed at random points.

The long ones are also run with at-least-once: it shows that rows were in danger, and that doubles are seen.
``MINIKAFKA_EXACTLY_ONCE_ROWS`` says how many rows they write (2,000,000), ``MINIKAFKA_EXACTLY_ONCE_KILLS``
how many kills they have (20), and ``MINIKAFKA_QUERY_SEED`` the seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from pyspark_minikafka import cache
from pyspark_minikafka.writing.writer import stream_writer
from tests.faults.exactly_once_stream import AT_LEAST_ONCE, EXACTLY_ONCE, last_batch
from tests.interop.releases import KAFKA_3_9
from tests.support.kafka_broker import running
from tests.support.processes import family_of, kill_family, output_of, python, spark_workers
from tests.support.python_clients import confluent_kafka
from tests.support.transactional_clusters import CLUSTERS, OURS, QUICK

if TYPE_CHECKING:
    Longs = np.ndarray[tuple[int], np.dtype[np.int64]]

SEED = int(os.environ.get("MINIKAFKA_QUERY_SEED", "1"))
ROWS = int(os.environ.get("MINIKAFKA_EXACTLY_ONCE_ROWS", "2000000"))
KILLS = int(os.environ.get("MINIKAFKA_EXACTLY_ONCE_KILLS", "20"))
PARTITIONS = 4
BATCHES = 4
"""For each kill, and as many after the last one."""
STEP_S = 300
"""The longest wait for a point of a batch."""
END_S = 3_600
VICTIMS = ("driver", "python", "broker")
KINDS = {
    "worker": "worker of tasks",
    "python_streaming_source_runner": "runner of the source",
    "python_streaming_sink_runner": "runner of the sink",
}
"""Python workers that are killed, by their module; the runner of the sink commits a batch."""
BEGUN, WRITTEN, VISIBLE = "begun", "written", "visible"
COMMITTED = IsolationLevel.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster whose brokers can be killed."""

    servers: str
    count: int
    kill: Callable[[int], None]
    restart: Callable[[int], None]


@contextlib.contextmanager
def brokers_of(kind: str, directory: Path) -> Iterator[Brokers]:
    """Three brokers of ours, or one of Apache Kafka."""
    if kind == OURS:
        config = {
            **QUICK,
            "zookeeper.session.timeout.ms": "2000",
            "transaction.state.log.num.partitions": "3",
        }
        with Cluster(3, directory, config) as cluster:
            yield Brokers(cluster.bootstrap_servers, 3, cluster.kill, cluster.restart)
        return
    with running(KAFKA_3_9, directory / "kafka", config=QUICK) as broker:
        yield Brokers(broker.bootstrap, 1, lambda _: broker.kill(), lambda _: broker.start())


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, ``after_s`` from a point of the batch that is ``ahead`` of the last one that was begun.

    at: BEGUN: the batch is in the offset log. WRITTEN: its rows come to the target. VISIBLE: they are there
    for readers, and the batch is not in the commit log; Spark's JVM is stopped meanwhile.
    """

    victim: str
    ahead: int
    at: str
    after_s: float


def planned_kills(chance: random.Random, count: int) -> list[Kill]:
    """Return the kills in their order. The first is that of a driver whose rows are visible."""
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(1, count)]
    chance.shuffle(victims)
    kills = [Kill("driver", 1, VISIBLE, 0.0)]
    for victim in victims:
        points = (BEGUN, WRITTEN) if victim == "broker" else (BEGUN, WRITTEN, VISIBLE)
        kills.append(Kill(victim, chance.randrange(BATCHES), chance.choice(points), chance.random() * 0.5))
    return kills


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows in the target, and what happened to the stream."""

    lost: int
    doubled: int
    strange: int
    struck: Counter[str]
    failures: list[str]
    took_s: float

    def __str__(self) -> str:
        kills = ", ".join(f"{victim} {count}" for victim, count in sorted(self.struck.items()))
        return (
            f"lost {self.lost}, doubled {self.doubled}, strange {self.strange}; killed: {kills}; "
            f"{len(self.failures)} failed queries, {self.took_s:.0f} s"
        )


class KilledStream:
    """One stream from topic to topic, and its kills."""

    def __init__(self, brokers: Brokers, directory: Path, delivery: str, rows: int, kills: int) -> None:
        self.brokers, self.directory, self.rows = brokers, directory, rows
        self.source, self.target = f"source-{delivery}", f"target-{delivery}"
        self.chance = random.Random(SEED)
        self.kills = deque(planned_kills(self.chance, kills))
        self.struck: Counter[str] = Counter()
        directory.mkdir()
        arguments = {
            "directory": str(directory),
            "servers": brokers.servers,
            "source": self.source,
            "target": self.target,
            "delivery": delivery,
            "total": rows,
            "batch_rows": max(1, rows // (BATCHES * (kills + 1))),
            "seed": SEED,
        }
        self.command = ["-m", "tests.faults.exactly_once_stream", json.dumps(arguments)]

    def run(self) -> Outcome:
        """Write the source, kill the stream as planned, let it end, and compare."""
        began = time.monotonic()
        with ClusterClient(self.brokers.servers) as client:
            self.admin = Admin(client)
            for topic in (self.source, self.target):
                make_topic(self.admin, topic, self.brokers.count)
            write_numbers(self.brokers.servers, self.source, self.rows)
            ended = False
            while not ended:
                with python(self.command, self.directory) as program:
                    ended = self._run(program)
            assert wait_until(lambda: self._end(COMMITTED) == self._end() > 0, STEP_S), (
                "a transaction is open"
            )
        values, counts = np.unique(committed_numbers(self.brokers.servers, self.target), return_counts=True)
        answer = np.arange(self.rows, dtype=np.int64) * 3 + 1
        failures = self.directory / "failures"
        return Outcome(
            lost=len(np.setdiff1d(answer, values)),
            doubled=int((counts - 1).sum()),
            strange=len(np.setdiff1d(values, answer)),
            struck=self.struck,
            failures=failures.read_text().splitlines() if failures.exists() else [],
            took_s=time.monotonic() - began,
        )

    def _run(self, program: subprocess.Popen[str]) -> bool:
        """Kill as planned until the driver is killed. Return True if none was left, and it has ended."""
        while self.kills:
            kill = self.kills.popleft()
            held = self._await(program, kill)
            assert program.poll() is None, self._told(kill)
            victim = self._strike(program, kill)
            self.struck[victim] += 1
            if victim == "driver":
                return False
            if held is not None:
                held.resume()
        assert program.wait(END_S) == 0, self._told()
        return True

    def _await(self, program: subprocess.Popen[str], kill: Kill) -> psutil.Process | None:
        """Wait for the point of a kill. Return the JVM if it was stopped there."""

        def reached(condition: Callable[[], bool]) -> None:
            assert wait_until(lambda: program.poll() is not None or condition(), STEP_S), self._told(kill)
            assert program.poll() is None, self._told(kill)

        # The last batch of the driver before may have been begun: let this one start.
        reached(lambda: bool(busy_workers(program)))
        jvm = jvm_of(program)
        wanted = self._last("offsets") + kill.ahead
        reached(lambda: self._last("offsets") >= wanted)
        isolation = COMMITTED if kill.at == VISIBLE else IsolationLevel.READ_UNCOMMITTED
        while kill.at != BEGUN:
            reached(lambda: self._last("offsets") > self._last("commits"))
            batch, end = self._last("offsets"), self._end(isolation)
            reached(lambda: self._end(isolation) > end or self._last("commits") >= batch)  # noqa: B023
            if kill.at == WRITTEN:
                break
            jvm.suspend()
            if self._last("offsets") == batch > self._last("commits") and self._end(isolation) > end:
                return jvm
            jvm.resume()
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(kill.after_s)
        return None

    def _strike(self, program: subprocess.Popen[str], kill: Kill) -> str:
        """Execute a kill. Return its victim: the driver if there is no such Python worker."""
        if kill.victim == "broker":
            number = self.chance.randrange(self.brokers.count)
            self.brokers.kill(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(self.chance.random() * 4)
            self.brokers.restart(number)
            return "broker"
        workers = busy_workers(program) if kill.victim == "python" else {}
        if not workers:
            kill_family(program.pid)
            return "driver"
        kind = self.chance.choice(sorted(workers))
        with contextlib.suppress(psutil.NoSuchProcess):
            self.chance.choice(workers[kind]).kill()
        return kind

    def _last(self, log: str) -> int:
        return last_batch(self.directory / "checkpoint" / log)

    def _end(self, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        """The number of offsets of the target; 0 while brokers do not answer."""
        wanted = {TopicPartition(self.target, number): LATEST for number in range(PARTITIONS)}
        with contextlib.suppress(MinikafkaError):
            return sum(end or 0 for end in self.admin.offsets(wanted, isolation=isolation).values())
        return 0

    def _told(self, kill: Kill | None = None) -> str:
        return f"seed {SEED}, {kill or 'no kill'}, killed {self.struck}: {output_of(self.directory)[-4_000:]}"


def jvm_of(program: subprocess.Popen[str]) -> psutil.Process:
    """The JVM of a program that has Python workers."""
    return next(process for process in family_of(program.pid) if process.name() == "java")


def busy_workers(program: subprocess.Popen[str]) -> dict[str, list[psutil.Process]]:
    """The Python workers of a program by their kind; not those that wait for the start of another query."""
    found = defaultdict(list)
    for process in spark_workers(program.pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            kind = KINDS.get(process.cmdline()[-1].rpartition(".")[2])
            if kind is not None:
                found[kind].append(process)
    return found


def make_topic(admin: Admin, name: str, brokers: int) -> None:
    """Create a topic that keeps what a broker has acknowledged before it is killed."""
    config = {"min.insync.replicas": str(min(2, brokers)), "retention.ms": "-1"}
    admin.create_topic(NewTopic(name, PARTITIONS, brokers, configs=config))


def write_numbers(servers: str, topic: str, count: int) -> None:
    """Write as many numbers from 0 on, the values of as many records."""
    numbers = np.arange(count, dtype=np.int64)
    columns = {
        "key": pa.array(numbers % 1000).cast(pa.string()),
        "value": pa.array(numbers).cast(pa.string()),
    }
    schema = StructType([StructField(name, StringType()) for name in columns])
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    try:
        stream_writer(options, schema).write(iter([pa.record_batch(columns)]))
    finally:
        cache.close_all()


def committed_numbers(servers: str, topic: str) -> Longs:
    """Read all committed values with librdkafka, which knows nothing of who has written them."""
    config = {
        "bootstrap.servers": servers,
        "group.id": "answer",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer = confluent_kafka.Consumer(config)
    found: list[int] = []
    ended: set[int] = set()
    deadline = time.monotonic() + STEP_S
    try:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, begin) for number in range(PARTITIONS)]
        )
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"{topic} is not read to its end"
            for message in consumer.consume(10_000, 0.2):  # it waits for as many
                error = message.error()
                if error is None:
                    found.append(int(message.value()))
                else:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
    finally:
        consumer.close()
    return np.array(found, dtype=np.int64)


def outcome(brokers: Brokers, directory: Path, delivery: str, rows: int, kills: int) -> Outcome:
    """Run a stream with a delivery."""
    found = KilledStream(brokers, directory / delivery, delivery, rows, kills).run()
    print(f"{delivery}, seed {SEED}, {rows} rows: {found}")  # noqa: T201  # scripts/soak shows it
    for failure in found.failures:
        print(f"    {failure}")  # noqa: T201
    return found


def check_exactly_once(found: Outcome) -> None:
    assert (found.lost, found.doubled, found.strange) == (0, 0, 0), f"seed {SEED}: {found}"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_stream_killed_a_few_times_is_written_once(kind: str, tmp_path: Path) -> None:
    with brokers_of(kind, tmp_path / "cluster") as brokers:
        check_exactly_once(outcome(brokers, tmp_path, EXACTLY_ONCE, 40_000, 3))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(2 * END_S)
@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_stream_killed_all_the_time_is_written_once(kind: str, tmp_path: Path) -> None:
    with brokers_of(kind, tmp_path / "cluster") as brokers:
        check_exactly_once(outcome(brokers, tmp_path, EXACTLY_ONCE, ROWS, KILLS))
        found = outcome(brokers, tmp_path, AT_LEAST_ONCE, ROWS, KILLS)
    assert (found.lost, found.strange) == (0, 0), f"seed {SEED}: {found}"
    assert found.doubled > 0, f"seed {SEED}: {found}"
