"""Programs that are built on Kafka, with their own defaults: Kafka Streams, Kafka Connect and MirrorMaker.

They make topics by themselves, and what comes out is compared record by record.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import confluent_kafka
import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.java import find_java
from minikafka.embedded.process import ChildProcess, wait_until
from minikafka.net.ports import free_port
from tests.interop.clients import HERE, kafkajs, run_to_its_end
from tests.interop.driver import Program
from tests.interop.releases import JVM, KAFKA_0_10, KAFKA_3_9, KAFKA_4, QUIET, Release, java_environment
from tests.support.kafka_broker import running

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(420)]

PATIENCE_S = 150.0

Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(data_dir=tmp_path_factory.mktemp("frameworks"), config={"num.partitions": "3"}) as cluster:
        yield cluster


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


def latest(records: Sequence[Record]) -> dict[bytes | None, bytes | None]:
    """The last value of each key."""
    return {key: value for key, value, _ in records}


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


def until(process: ChildProcess, condition: object, what: str) -> None:
    """Wait for something that the running process does."""
    assert callable(condition)
    holds = wait_until(lambda: process.exit_code is not None or condition(), PATIENCE_S, every_s=0.5)
    if not holds or process.exit_code is not None:
        raise process.failure(f"has not done it: {what}")


# Kafka Streams.


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_kafka_streams_counts_words_with_topics_of_its_own(
    cluster: Cluster, tmp_path: Path, release: Release
) -> None:
    libs, bootstrap = release.libs(), cluster.bootstrap_servers
    if shutil.which("javac") is None:
        pytest.skip("javac is not on PATH: a JDK is needed, 17 or newer")
    compiled = ["javac", "-d", str(tmp_path), "-cp", f"{libs}/*", str(HERE / "java" / "WordCount.java")]
    run_to_its_end(compiled, java_environment())
    application, lines, counts = (f"{name}-{release.number}" for name in ("words", "lines", "counts"))
    cluster.create_topic(lines, partitions=3)
    cluster.create_topic(counts, partitions=2)
    chance = random.Random(release.number)
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    texts = [" ".join(chance.choices(words, k=7)) for _ in range(500)]
    expected = {
        word.encode(): str(count).encode() for word, count in Counter(" ".join(texts).split()).items()
    }
    command = [find_java().path, *JVM, "-cp", f"{tmp_path}:{libs}/*", "WordCount"]
    command += [bootstrap, application, str(tmp_path / "state"), lines, counts]
    said = tmp_path / "said"
    with (
        said.open("w") as out,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=out, stdout=out, text=True) as program,
    ):
        try:
            for half in (texts[:250], texts[250:]):
                send(bootstrap, lines, [(None, text.encode(), ()) for text in half])
            wait_until(
                lambda: program.poll() is not None or latest(read(bootstrap, counts)) == expected,
                PATIENCE_S,
                every_s=1.0,
            )
            assert program.poll() is None, said.read_text()[-3000:]
            assert latest(read(bootstrap, counts)) == expected, said.read_text()[-3000:]
            assert program.stdin is not None
            program.stdin.close()
            assert program.wait(60) == 0, said.read_text()[-3000:]
        finally:
            program.kill()
    assert latest(read(bootstrap, counts)) == expected
    store = f"{application}-counts"
    changes = latest(read(bootstrap, f"{store}-changelog"))
    assert {key: int.from_bytes(value or b"", "big") for key, value in changes.items()} == {
        key: int(count) for key, count in expected.items()
    }
    # What it has counted it deletes from the repartition topic: only the offsets tell of it.
    with Client(bootstrap) as client:
        partitions = [TopicPartition(f"{store}-repartition", number) for number in range(3)]
        ends = Admin(client).offsets(dict.fromkeys(partitions, LATEST))
    assert sum(end or 0 for end in ends.values()) == 7 * len(texts)


# Kafka Connect.


def test_connect_carries_a_file_through_a_topic_exactly(cluster: Cluster, tmp_path: Path) -> None:
    source, sink, topic = tmp_path / "source.txt", tmp_path / "sink.txt", "connected"
    cluster.create_topic(topic, 1)  # of several, each worker's producer would take one by chance
    text = "org.apache.kafka.connect.storage.StringConverter"
    worker = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "key.converter": text,
        "value.converter": text,
        "offset.storage.file.filename": tmp_path / "offsets",
        "offset.flush.interval.ms": 1000,
        "listeners": f"http://127.0.0.1:{free_port()}",
    }
    connectors = "org.apache.kafka.connect.file.FileStream"
    reading = {
        "name": "reading",
        "connector.class": f"{connectors}SourceConnector",
        "file": source,
        "topic": topic,
    }
    writing = {
        "name": "writing",
        "connector.class": f"{connectors}SinkConnector",
        "file": sink,
        "topics": topic,
    }
    files = [
        properties(tmp_path / f"{name}.properties", settings)
        for name, settings in (("worker", worker), ("reading", reading), ("writing", writing))
    ]
    lines = [f"line {number}" for number in range(1_000)]
    for begin in (0, 500):
        # The second worker goes on where the first one stopped.
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[begin : begin + 500])
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        with started(KAFKA_3_9, tmp_path, main, *files, name="connect") as process:
            wanted = begin + 500
            until(process, lambda: written(sink) >= wanted, f"{wanted} lines in {sink}")  # noqa: B023
    assert sorted(sink.read_text().splitlines()) == sorted(lines)
    sent = [(value or b"").decode() for _, value, _ in read(cluster.bootstrap_servers, topic)]
    assert sent == lines


def written(path: Path) -> int:
    """Lines in the file, if there is one."""
    return path.read_text().count("\n") if path.exists() else 0


# MirrorMaker.


def hard_records(*, headers: bool) -> list[Record]:
    """Keys and values that are hard to carry; of some of them headers."""
    chance = random.Random(20130101)
    records: list[Record] = [
        (b"key", None, ()),
        (b"", b"", ()),
        (b"\xff\xfe\x00", b"\x80\x00\xff", ((("h", b"\xfe"), ("null", None), ("h", b"")) if headers else ())),
        (b"large", chance.randbytes(200_000), ()),
    ]
    return records + [(b"k%d" % number, chance.randbytes(chance.randrange(300)), ()) for number in range(500)]


def sorted_records(records: Sequence[Record]) -> list[Record]:
    """In an order that does not depend on partitions."""
    return sorted(records, key=repr)


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours to theirs", "theirs to ours"])
def test_mirror_maker_of_0_10_copies_exactly(cluster: Cluster, tmp_path: Path, ours_first: bool) -> None:
    records, topic = hard_records(headers=False), f"mirrored-{ours_first}"
    with running(KAFKA_0_10, tmp_path / "theirs") as broker:
        servers = [cluster.bootstrap_servers, broker.bootstrap]
        source, target = servers if ours_first else servers[::-1]
        for server in servers:
            create(server, topic)
        send(source, topic, records)
        reading = {"bootstrap.servers": source, "group.id": "mirror", "auto.offset.reset": "earliest"}
        files = [
            properties(tmp_path / "consumer.properties", reading),
            properties(tmp_path / "producer.properties", {"bootstrap.servers": target}),
        ]
        arguments = ["--consumer.config", files[0], "--producer.config", files[1], "--whitelist", topic]
        arguments += ["--new.consumer"]
        with started(KAFKA_0_10, tmp_path, "kafka.tools.MirrorMaker", *arguments, name="mirror") as process:
            until(process, lambda: len(read(target, topic)) >= len(records), f"{len(records)} records")
        assert sorted_records(read(target, topic)) == sorted_records(records)


def create(bootstrap: str, topic: str) -> None:
    """A topic with two partitions."""
    with Client(bootstrap) as client:
        Admin(client).create_topic(NewTopic(topic, 2))


def test_mirror_maker_2_copies_both_ways_exactly(cluster: Cluster, tmp_path: Path) -> None:
    records = hard_records(headers=True)
    with running(KAFKA_3_9, tmp_path / "theirs") as broker:
        servers = {"ours": cluster.bootstrap_servers, "theirs": broker.bootstrap}
        settings: dict[str, object] = {
            "clusters": "ours, theirs",
            **{f"{name}.bootstrap.servers": server for name, server in servers.items()},
            "ours->theirs.enabled": "true",
            "theirs->ours.enabled": "true",
            "topics": "both-.*",
            "sync.topic.acls.enabled": "false",
            "refresh.topics.interval.seconds": 5,
            "replication.factor": 1,
            **{
                f"{name}.topic.replication.factor": 1
                for name in ("checkpoints", "heartbeats", "offset-syncs")
            },
            **{f"{name}.storage.replication.factor": 1 for name in ("offset", "status", "config")},
            "dedicated.mode.enable.internal.rest": "false",
        }
        for name, server in servers.items():
            create(server, f"both-{name}")
            send(server, f"both-{name}", records)
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        file = properties(tmp_path / "mirror.properties", settings)
        copies = {"theirs": "ours.both-ours", "ours": "theirs.both-theirs"}
        with started(KAFKA_3_9, tmp_path, main, file, name="mirror") as process:
            for name, topic in copies.items():
                until(
                    process,
                    lambda: len(read(servers[name], topic)) >= len(records),  # noqa: B023
                    f"{len(records)} records in {topic}",
                )
        for name, topic in copies.items():
            assert sorted_records(read(servers[name], topic)) == sorted_records(records)


# KafkaJS.


def test_kafkajs_makes_a_topic_with_the_brokers_defaults(cluster: Cluster, tmp_path: Path) -> None:
    prepared = kafkajs(tmp_path)
    program = Program([*prepared.command, cluster.bootstrap_servers], prepared.environment)
    try:
        program.ask("create", "by-default", "default")
        assert sorted(program.ask("describe", "by-default")) == [[str(n), "0", "1"] for n in range(3)]
    finally:
        program.close()
