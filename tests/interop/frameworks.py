"""Frameworks on Kafka as processes: how they are started and awaited, and what is in their topics."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.java import find_java
from minikafka.embedded.process import ChildProcess, wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from tests.interop.clients import compile_java
from tests.interop.conftest import is_kafka_wanted, recorded
from tests.interop.releases import JVM, KAFKA_3_9, QUIET, Release, folder_of, java_environment, version_in
from tests.support.kafka_broker import KafkaBroker

PATIENCE_S = 150.0

Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def framework(request: pytest.FixtureRequest, name: str, variable: str, jar: str) -> Path:
    """Record which framework the test runs, and of which version; return the folder with its jars."""
    recorded(request, name)
    libs = folder_of(variable, jar)
    request.node.user_properties.append(("version", version_in(libs, jar)))
    return libs


def of_release(request: pytest.FixtureRequest, name: str, release: Release) -> Path:
    """Record a framework that is a part of Apache Kafka, as ``framework`` does; return its folder."""
    return framework(request, name, release.variable, release.broker_jar)


@contextlib.contextmanager
def brokers(directory: Path, count: int = 1) -> Iterator[str]:
    """Brokers of ours, or of Apache Kafka (see ``conftest``), with three partitions by default."""
    config = {"num.partitions": "3"}
    with contextlib.ExitStack() as stack:
        if not is_kafka_wanted():
            yield stack.enter_context(Cluster(count, directory, config)).bootstrap_servers
            return
        zookeeper = stack.enter_context(EmbeddedZooKeeper(str(directory / "zookeeper"))).connect
        peers = [
            KafkaBroker(KAFKA_3_9, directory / f"{number}", zookeeper, number=number, config=config)
            for number in range(count)
        ]
        for peer in peers:
            stack.callback(peer.kill)
            peer.start()
        yield ",".join(peer.bootstrap for peer in peers)


def create(bootstrap: str, topic: str, partitions: int = 2) -> None:
    """Create a topic."""
    with ClusterClient(bootstrap) as client:
        Admin(client).create_topic(NewTopic(topic, partitions))


def send(bootstrap: str, topic: str, records: Sequence[Record], **config: str) -> None:
    """Produce records with librdkafka."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **config})
    for key, value, headers in records:
        producer.produce(topic, value, key, headers=list(headers) or None)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Record]:
    """All records that the topic has now, by partition and offset; none where there is no topic yet."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(
        {**config, "isolation.level": isolation, "auto.offset.reset": "error"}
    )
    try:
        known = consumer.list_topics(topic, 30).topics[topic]
        partitions = sorted(known.partitions) if known.error is None else []
        found: dict[int, list[Record]] = {partition: [] for partition in partitions}
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, number, beginning) for number in partitions])
        unfinished = set(partitions)
        while unfinished:
            message = consumer.poll(30)
            assert message is not None, f"nothing came of {topic}"
            error = message.error()
            if error is None:
                headers = tuple(message.headers() or [])
                found[message.partition()].append((message.key(), message.value(), headers))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise AssertionError(str(error))
        return [record for partition in partitions for record in found[partition]]
    finally:
        consumer.close()


def values(bootstrap: str, topic: str) -> list[str]:
    """The values of all records that the topic has now, in order of themselves."""
    return sorted((value or b"").decode() for _, value, _ in read(bootstrap, topic))


def ends(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """The end of each partition of the topic; none where there is no topic yet."""
    with ClusterClient(bootstrap) as client:
        admin = Admin(client)
        described = admin.describe_topics([topic])[topic]
        if isinstance(described, Exception):
            return {}
        partitions = [partition.topic_partition for partition in described.partitions]
        return {at: end or 0 for at, end in admin.offsets(dict.fromkeys(partitions, LATEST)).items()}


def commit(bootstrap: str, group: str, topic: str) -> None:
    """Commit the ends of the topic for the group."""
    positions = [
        confluent_kafka.TopicPartition(topic, at.partition, end) for at, end in ends(bootstrap, topic).items()
    ]
    with contextlib.closing(member(bootstrap, group)) as consumer:
        consumer.commit(offsets=positions, asynchronous=False)


def committed(bootstrap: str, group: str, topic: str) -> dict[TopicPartition, int]:
    """The group's offset in each partition of the topic; negative where it has none."""
    partitions = [confluent_kafka.TopicPartition(topic, at.partition) for at in ends(bootstrap, topic)]
    with contextlib.closing(member(bootstrap, group)) as consumer:
        found = consumer.committed(partitions, timeout=PATIENCE_S)
    return {TopicPartition(topic, at.partition): at.offset for at in found}


def member(bootstrap: str, group: str) -> confluent_kafka.Consumer:
    """A consumer of the group, which has subscribed to nothing."""
    return confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})


def properties(path: Path, settings: Mapping[str, object]) -> str:
    """Write a properties file and return its path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@contextlib.contextmanager
def started(
    release: Release, directory: Path, *arguments: str, name: str = "program"
) -> Iterator[ChildProcess]:
    """A program of the release, which is stopped with SIGTERM; its output is in ``directory``."""
    logging = directory / "log4j.properties"
    logging.write_text(QUIET)
    options = f"-Dlog4j.configuration=file:{logging}"
    command = [find_java().path, *JVM, options, "-cp", f"{release.libs()}/*", *arguments]
    log = str(directory / f"{name}.log")
    process = ChildProcess(command, name=name, log=log, environment=java_environment(), grace_s=60.0)
    try:
        yield process
    finally:
        process.stop()


def until(process: ChildProcess, condition: Callable[[], bool], what: str) -> None:
    """Wait for something that the running process does."""
    holds = wait_until(lambda: process.exit_code is not None or condition(), PATIENCE_S, every_s=0.5)
    if not holds or process.exit_code is not None:
        raise process.failure(f"has not done it: {what}")


@contextlib.contextmanager
def restarted(command: list[str], directory: Path) -> Iterator[Callable[[], None]]:
    """Run a program; the callable kills it and begins another. Its output is in ``directory``."""
    running: list[subprocess.Popen[bytes]] = []
    with (directory / "restarted.log").open("wb") as log, contextlib.ExitStack() as stack:

        def begin() -> None:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=java_environment()
            )
            running.append(stack.enter_context(process))

        def again() -> None:
            running[-1].kill()
            running[-1].wait()
            begin()

        begin()
        try:
            yield again
        finally:
            for process in running:
                process.kill()


def kill_in_turn(
    cluster: Cluster,
    kills: int,
    chance: random.Random,
    kill_program: Callable[[], None],
    pause_s: tuple[float, float],
) -> None:
    """Kill a broker so many times and restart it, and with every other one the program too.

    pause_s: the shortest and the longest pause before each.
    """
    for number in range(kills):
        wait_until(lambda: False, chance.uniform(*pause_s), 1.0)
        if number % 2:
            kill_program()
        broker = chance.randrange(cluster.count)
        cluster.kill(broker)
        wait_until(lambda: False, chance.uniform(0.0, 2.0), 1.0)
        cluster.restart(broker)


QUIET_JVM = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util")),
)
"""Options by which frameworks print errors only, and Flink runs on Java 17."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """A program of ours in ``java``, which runs until its input ends."""

    main: str
    libs: Path
    """The jars of its framework."""
    directory: Path
    """It gets the classes and the output."""

    def command(self, *arguments: str) -> list[str]:
        """The command that runs it, compiled."""
        if not (self.directory / f"{self.main}.class").exists():
            compile_java(self.directory, self.libs, self.main)
        path = f"{self.directory}:{self.libs}/*"
        return [find_java().path, *JVM, *QUIET_JVM, "-cp", path, self.main, *arguments]

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[RunningProgram]:
        """Run it in the block; after that it must end without an error."""
        output = self.directory / f"{self.main}.out"
        with (
            output.open("w") as out,
            subprocess.Popen(
                self.command(*arguments),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                text=True,
                env=java_environment(),
            ) as process,
        ):
            try:
                program = RunningProgram(process, output)
                yield program
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(60) == 0, program.failure("does not end")
            finally:
                process.kill()


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A ``JavaProgram`` that runs."""

    process: subprocess.Popen[str]
    output: Path

    def lines(self) -> list[str]:
        """The lines that it has printed."""
        return self.output.read_text().splitlines()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that it does."""
        holds = wait_until(lambda: self.process.poll() is not None or condition(), PATIENCE_S, every_s=0.5)
        assert holds, self.failure(f"has not done it: {what}")
        assert self.process.poll() is None, self.failure(f"has not done it: {what}")

    def failure(self, what: str) -> str:
        """A message about it, with the end of its output."""
        return f"{self.output.stem} {what}: {self.output.read_text()[-3000:]}"
