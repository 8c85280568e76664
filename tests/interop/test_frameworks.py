"""Frameworks on Kafka with their own defaults: Streams, MirrorMaker, Flink, Debezium and Spring.

They make topics by themselves, and what comes out is compared record by record. ``test_connect.py`` has
Kafka Connect.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.wire.apis.describe_configs import ConfigResourceType
from tests.interop.clients import kafkajs
from tests.interop.driver import Program
from tests.interop.frameworks import (
    PATIENCE_S,
    JavaProgram,
    Record,
    RunningProgram,
    brokers,
    commit,
    committed,
    create,
    ends,
    framework,
    kill_in_turn,
    of_release,
    properties,
    read,
    restarted,
    send,
    started,
    until,
    values,
)
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, KAFKA_4, Release
from tests.support.kafka_broker import running

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(420)]

FLINK = ("Flink", "MINIKAFKA_FLINK_LIBS", "flink-clients-*.jar")
DEBEZIUM = ("Debezium", "MINIKAFKA_DEBEZIUM_LIBS", "debezium-embedded-*.jar")
SPRING_KAFKA = ("Spring for Apache Kafka", "MINIKAFKA_SPRING_KAFKA_LIBS", "spring-kafka-*.jar")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with brokers(tmp_path_factory.mktemp("frameworks")) as addresses:
        yield addresses


# Kafka Streams.


WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_kafka_streams_counts_words_with_topics_of_its_own(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path, release: Release
) -> None:
    """Count words, with repartition and changelog topics of the brokers' replication factor."""
    libs = of_release(request, "Kafka Streams", release)
    application, lines, counts = (f"{name}-{release.number}" for name in ("words", "lines", "counts"))
    create(bootstrap, lines, 3)
    create(bootstrap, counts)
    texts = some_texts(release.number)
    expected = counted(texts)
    counting = JavaProgram("WordCount", libs, tmp_path)
    with counting.running(bootstrap, application, str(tmp_path / "state"), lines, counts) as program:
        for half in (texts[:250], texts[250:]):
            send_texts(bootstrap, lines, half)
        program.until(lambda: latest(read(bootstrap, counts)) == expected, "count all words")
    assert latest(read(bootstrap, counts)) == expected
    store = f"{application}-counts"
    changes = latest(read(bootstrap, f"{store}-changelog"))
    assert {key: int.from_bytes(value or b"", "big") for key, value in changes.items()} == {
        key: int(count) for key, count in expected.items()
    }
    # What it has counted it deletes from the repartition topic: only the offsets tell of it.
    assert sum(ends(bootstrap, f"{store}-repartition").values()) == 7 * len(texts)


def test_kafka_streams_hands_its_counts_to_other_instances(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path
) -> None:
    """Share the work with a second instance, which takes over the counts when the first one ends."""
    libs = of_release(request, "Kafka Streams", KAFKA_4)
    application, lines, counts = "shared-words", "shared-lines", "shared-counts"
    create(bootstrap, lines, 3)
    create(bootstrap, counts)
    texts = some_texts("shared")
    first, second = (JavaProgram("WordCount", libs, tmp_path / name) for name in ("first", "second"))

    def instance(program: JavaProgram) -> contextlib.AbstractContextManager[RunningProgram]:
        program.directory.mkdir()
        state = str(program.directory / "state")
        return program.running(bootstrap, application, state, lines, counts)

    with contextlib.ExitStack() as ends_second:
        with instance(first) as one:
            send_texts(bootstrap, lines, texts[:200])
            one.until(lambda: latest(read(bootstrap, counts)) == counted(texts[:200]), "count alone")
            two = ends_second.enter_context(instance(second))
            two.until(lambda: two.lines()[-1:] == ["RUNNING"], "get its share")
            send_texts(bootstrap, lines, texts[200:400])
            two.until(lambda: latest(read(bootstrap, counts)) == counted(texts[:400]), "count together")
        send_texts(bootstrap, lines, texts[400:])
        two.until(lambda: latest(read(bootstrap, counts)) == counted(texts), "count what the first one had")


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_kafka_streams_counts_exactly_once_under_kills(
    request: pytest.FixtureRequest, tmp_path: Path, release: Release
) -> None:
    """Count each word exactly once, in transactions, while brokers and the program itself are killed."""
    libs = of_release(request, "Kafka Streams", release)
    chance = random.Random(129)
    texts = some_texts("exactly once", 6_000)
    with Cluster(3, tmp_path / "data", EXACTLY_ONCE_BROKERS) as cluster:
        bootstrap = cluster.bootstrap_servers
        for name, partitions in (("lines", 3), ("counts", 2)):
            cluster.create_topic(name, partitions, replicas=3)
        arguments = [bootstrap, "words", str(tmp_path / "state"), "lines", "counts", *EXACTLY_ONCE_STREAMS]
        command = JavaProgram("WordCount", libs, tmp_path).command(*arguments)
        with restarted(command, tmp_path) as kill_streams, ThreadPoolExecutor(1) as beside:
            sending = beside.submit(send_texts_slowly, bootstrap, "lines", texts)
            assert wait_until(lambda: bool(read(bootstrap, "counts")), PATIENCE_S, 1.0)
            kill_in_turn(cluster, 4, chance, kill_streams, pause_s=(4.0, 8.0))
            sending.result()
            expected = counted(texts)
            wait_until(lambda: latest(read(bootstrap, "counts")) == expected, PATIENCE_S, 1.0)
        counts: dict[bytes | None, list[int]] = {}
        for word, count, _ in read(bootstrap, "counts"):
            counts.setdefault(word, []).append(int(count or 0))
    assert counts == {word: list(range(1, int(count) + 1)) for word, count in expected.items()}


EXACTLY_ONCE_BROKERS = {
    "zookeeper.session.timeout.ms": "3000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}
EXACTLY_ONCE_STREAMS = (
    "processing.guarantee=exactly_once_v2",
    "statestore.cache.max.bytes=0",  # each count is written
    "consumer.session.timeout.ms=6000",
    "consumer.heartbeat.interval.ms=1000",
)


def send_texts_slowly(bootstrap: str, topic: str, texts: Sequence[str]) -> None:
    """Send each text once, for as long as brokers are killed."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for text in texts:
        producer.produce(topic, text.encode())
        producer.poll(0.008)
    assert producer.flush(PATIENCE_S) == 0


def some_texts(seed: str, number: int = 500) -> list[str]:
    """Texts of a few words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=7)) for _ in range(number)]


def send_texts(bootstrap: str, topic: str, texts: Sequence[str]) -> None:
    """Send each text as a record without a key."""
    send(bootstrap, topic, [(None, text.encode(), ()) for text in texts])


def counted(texts: Sequence[str]) -> dict[bytes, bytes]:
    """The number of each word, as the program writes them."""
    return {word.encode(): str(count).encode() for word, count in Counter(" ".join(texts).split()).items()}


def latest(records: Sequence[Record]) -> dict[bytes | None, bytes | None]:
    """The last value of each key."""
    return {key: value for key, value, _ in records}


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
    """The records in an order that does not depend on partitions."""
    return sorted(records, key=repr)


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours to theirs", "theirs to ours"])
def test_mirror_maker_of_0_10_copies_exactly(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path, ours_first: bool
) -> None:
    """Copy a topic from and to a broker of its release."""
    of_release(request, "MirrorMaker", KAFKA_0_10)
    records, topic = hard_records(headers=False), f"mirrored-{ours_first}"
    with running(KAFKA_0_10, tmp_path / "theirs") as broker:
        servers = [bootstrap, broker.bootstrap]
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


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_mirror_maker_2_copies_both_ways_exactly(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path, release: Release
) -> None:
    """Copy topics from and to Kafka 3.9.1, with their settings and the offsets of groups."""
    of_release(request, "MirrorMaker", release)
    records, own = hard_records(headers=True), release.number
    with running(KAFKA_3_9, tmp_path / "theirs") as broker:
        servers = {"ours": bootstrap, "theirs": broker.bootstrap}
        for name, server in servers.items():
            topic = f"both-{own}-{name}"
            create(server, topic)
            send(server, topic, records)
            with Client(server) as client:
                Admin(client).change_configs(ConfigResourceType.TOPIC, topic, {"retention.ms": "123456789"})
            commit(server, f"readers-of-{topic}", topic)
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        file = properties(tmp_path / "mirror.properties", mirror_settings(servers, f"both-{own}-.*"))
        copies = {
            "theirs": (f"both-{own}-ours", f"ours.both-{own}-ours"),
            "ours": (f"both-{own}-theirs", f"theirs.both-{own}-theirs"),
        }
        with started(release, tmp_path, main, file, name="mirror") as process:
            for name, (topic, copy) in copies.items():
                server, group = servers[name], f"readers-of-{topic}"
                until(process, reads(server, copy, len(records)), f"{len(records)} records in {copy}")
                until(process, has_committed(server, group, copy), f"offsets of {group} in {copy}")
        for name, (_, copy) in copies.items():
            assert sorted_records(read(servers[name], copy)) == sorted_records(records)
            with Client(servers[name]) as client:
                described = Admin(client).describe_configs(ConfigResourceType.TOPIC, copy)
            assert next(config.value for config in described if config.name == "retention.ms") == "123456789"


def mirror_settings(servers: Mapping[str, str], topics: str) -> dict[str, object]:
    """Both directions between two clusters of one broker, with short intervals."""
    names = list(servers)
    internal = ("checkpoints", "heartbeats", "offset-syncs")
    return {
        "clusters": ", ".join(names),
        **{f"{name}.bootstrap.servers": server for name, server in servers.items()},
        **{f"{source}->{target}.enabled": "true" for source, target in (names, names[::-1])},
        "topics": topics,
        "refresh.topics.interval.seconds": 5,
        "refresh.groups.interval.seconds": 5,
        "emit.checkpoints.interval.seconds": 1,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "sync.topic.configs.interval.seconds": 5,
        **{f"{name}.offset.flush.interval.ms": 1000 for name in names},
        "replication.factor": 1,
        **{f"{name}.topic.replication.factor": 1 for name in internal},
        **{f"{name}.storage.replication.factor": 1 for name in ("offset", "status", "config")},
    }


def reads(bootstrap: str, topic: str, count: int) -> Callable[[], bool]:
    """A condition: the topic has so many records."""
    return lambda: len(read(bootstrap, topic)) >= count


def has_committed(bootstrap: str, group: str, topic: str) -> Callable[[], bool]:
    """A condition: the group has the ends of all partitions of the topic."""
    return lambda: committed(bootstrap, group, topic) == ends(bootstrap, topic)


# Flink.


def test_flink_goes_on_from_the_offsets_of_its_checkpoints(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path
) -> None:
    """Copy a topic at least once, and go on from the committed offsets in another job."""
    libs = framework(request, *FLINK)
    source, target = "flink-in", "flink-out"
    create(bootstrap, source)
    create(bootstrap, target)
    copying = JavaProgram("FlinkCopy", libs, tmp_path)
    lines = [f"line {number:04}" for number in range(1_000)]
    for half in (lines[:500], lines[500:]):
        send(bootstrap, source, [(line.encode(), line.encode(), ()) for line in half])
        with copying.running(bootstrap, source, target, (tmp_path / "savepoints").as_uri()) as program:
            program.until(has_committed(bootstrap, source, source), "commit the ends of its input")
        assert values(bootstrap, target)[-len(half) :] == half
    assert values(bootstrap, target) == lines


# Debezium.


def test_debeziums_engine_keeps_its_offsets_in_a_topic(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path
) -> None:
    """Go on from the offsets that the engine keeps in a topic."""
    libs = framework(request, *DEBEZIUM)
    file, topic = tmp_path / "lines.txt", "debezium-offsets"
    engine = JavaProgram("DebeziumFile", libs, tmp_path)
    for half in ([f"line {number}" for number in range(begin, begin + 50)] for begin in (0, 50)):
        with file.open("a") as out:
            out.writelines(f"{line}\n" for line in half)
        before = sum(ends(bootstrap, topic).values())
        with engine.running(bootstrap, str(file), topic) as program:
            program.until(lambda: half[-1] in program.lines(), f"{half[-1]} printed")  # noqa: B023
            program.until(lambda: sum(ends(bootstrap, topic).values()) > before, "an offset kept")  # noqa: B023
            printed = program.lines()
        assert printed == half


def test_debeziums_schema_history_comes_back_from_its_topic(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path
) -> None:
    """Keep changes of tables in a topic of the brokers' replication factor, and recover them."""
    libs = framework(request, *DEBEZIUM)
    history = JavaProgram("DebeziumHistory", libs, tmp_path)
    with history.running(bootstrap, "debezium-history") as program:
        program.until(lambda: len(program.lines()) >= 4, "print the tables")
    assert program.lines() == ["exists false", "exists true", "db.t0 [a, b0]", "db.t2 [a, b2]"]
    with Client(bootstrap) as client:
        described = Admin(client).describe_configs(ConfigResourceType.TOPIC, "debezium-history")
    settings = {config.name: config.value for config in described}
    assert settings["retention.ms"] == str(2**63 - 1)
    assert settings["retention.bytes"] == "-1"


# Spring.


def test_spring_retries_by_topics_and_ends_with_dead_letters(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path
) -> None:
    """Answer records in another topic; those that fail go through a retry topic to dead letters."""
    libs = framework(request, *SPRING_KAFKA)
    answers = {str(number) for number in range(1, 101) if number % 10}
    dead = {f"dead letter {number}" for number in range(10, 101, 10)}
    with JavaProgram("SpringRetries", libs, tmp_path).running(bootstrap) as program:
        program.until(lambda: dead <= set(program.lines()), "all dead letters")
        program.until(lambda: answers <= set(values(bootstrap, "answers")), "all answers")
    assert values(bootstrap, "answers") == sorted(answers)
    assert values(bootstrap, "numbers-dlt") == sorted(letter.split()[-1] for letter in dead)
    assert set(ends(bootstrap, "numbers")) == {TopicPartition("numbers", number) for number in range(3)}


# KafkaJS.


def test_kafkajs_makes_a_topic_with_the_brokers_defaults(bootstrap: str, tmp_path: Path) -> None:
    prepared = kafkajs(tmp_path)
    program = Program([*prepared.command, bootstrap], prepared.environment)
    try:
        program.ask("create", "by-default", "default")
        assert sorted(program.ask("describe", "by-default")) == [[str(n), "0", "1"] for n in range(3)]
    finally:
        program.close()
