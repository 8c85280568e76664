"""Our group consumer and the commands of groups, beside other people's clients, on several brokers."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from minikafka import embedded
from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.cli.commands import run
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.group.consumer import (
    Committed,
    ConsumerRecord,
    GroupConsumer,
    GroupConsumerConfig,
    Reset,
)
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.process import wait_until
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, RELEASES, Release
from tests.support.kafka_broker import running
from tests.support.python_clients import confluent_kafka, kafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PATIENCE_S = 60
_NUMBERS = itertools.count()
# The records have times of long ago: retention would delete them in the middle of a test.
_CONFIG = {"offsets.topic.num.partitions": 4, "group.min.session.timeout.ms": 500, "log.retention.ms": -1}
_OF_3_9 = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module", params=[*RELEASES, None], ids=lambda one: str(one or "minikafka"))
def release(request: pytest.FixtureRequest) -> Release | None:
    """Of Apache Kafka, or None for our own broker."""
    found: Release | None = request.param
    if found is not None:
        found.libs()
    return found


@pytest.fixture(scope="module")
def bootstrap(release: Release | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("groups")
    if release is None:
        config = {name: str(value) for name, value in _CONFIG.items()}
        with embedded.Cluster(data_dir=directory / "data", config=config) as ours:
            yield ours.bootstrap_servers
        return
    config = _CONFIG | (_OF_3_9 if release is KAFKA_3_9 else {})
    with running(release, directory, config=config) as broker:
        yield broker.bootstrap


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[ClusterClient]:
    with ClusterClient(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: ClusterClient) -> str:
    name = f"topic-{next(_NUMBERS)}"
    Admin(cluster).create_topic(NewTopic(name, partitions=6))
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_NUMBERS)}"


def fill(cluster: ClusterClient, topic: str, count: int, start: int = 0) -> list[bytes]:
    values = [b"%04d" % number for number in range(start, start + count)]
    with BatchingProducer(cluster) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 6, timestamp_ms=1_700_000_000_000 + number)
    return values


def ours(cluster: ClusterClient, group: str, topic: str, **settings: Any) -> GroupConsumer:
    settings = {"auto_offset_reset": Reset.EARLIEST, "heartbeat_interval_ms": 200} | settings
    consumer = GroupConsumer(cluster, GroupConsumerConfig(group, **settings))
    consumer.subscribe([topic])
    return consumer


Poll = Callable[[], list[bytes]]


def polls_of(consumer: GroupConsumer) -> Poll:
    return lambda: [record.value or b"" for fetched in consumer.poll(50) for record in fetched.records()]


def of_kafka_python(bootstrap: str, group: str, topic: str) -> tuple[Any, Poll, Callable[[], int]]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
    )

    def poll() -> list[bytes]:
        return [record.value for records in consumer.poll(50).values() for record in records]

    return consumer, poll, lambda: len(consumer.assignment())


def of_librdkafka(bootstrap: str, group: str, topic: str) -> tuple[Any, Poll, Callable[[], int]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe([topic])

    def poll() -> list[bytes]:
        found = consumer.consume(100, 0.05)
        assert [message.error() for message in found if message.error()] == []
        return [message.value() for message in found]

    return consumer, poll, lambda: len(consumer.assignment())


@pytest.mark.parametrize("other_client", [of_kafka_python, of_librdkafka])
def test_two_members_of_ours_and_one_of_another_client_share_a_topic(
    cluster: ClusterClient,
    bootstrap: str,
    topic: str,
    group: str,
    other_client: Callable[[str, str, str], tuple[Any, Poll, Callable[[], int]]],
) -> None:
    one, two = ours(cluster, group, topic), ours(cluster, group, topic)
    other, poll_other, count_other = other_client(bootstrap, group, topic)
    polls = [polls_of(one), polls_of(two), poll_other]
    try:

        def shared() -> bool:
            for poll in polls:
                poll()
            return [len(one.assignment), len(two.assignment), count_other()] == [2, 2, 2]

        assert wait_until(shared, PATIENCE_S)
        values = fill(cluster, topic, 60)
        found: list[Counter[bytes]] = [Counter(), Counter(), Counter()]

        def all_read() -> bool:
            for number, poll in enumerate(polls):
                found[number].update(poll())
            return sum(map(Counter.total, found)) >= 60

        assert wait_until(all_read, PATIENCE_S)
        assert [counted.total() for counted in found] == [20, 20, 20]
        assert found[0] + found[1] + found[2] == Counter(values)
        one.close()
        two.close()

        def took_over() -> bool:
            poll_other()
            return count_other() == 6

        assert wait_until(took_over, PATIENCE_S)
    finally:
        one.close()
        two.close()
        other.close()


def test_a_group_goes_on_where_it_has_committed(cluster: ClusterClient, topic: str, group: str) -> None:
    values = fill(cluster, topic, 60)
    with ours(cluster, group, topic, auto_commit=False) as consumer:
        poll, found = polls_of(consumer), Counter[bytes]()
        assert wait_until(lambda: not found.update(poll()) and found.total() >= 60, PATIENCE_S)
        consumer.commit_sync({TopicPartition(topic, 0): Committed(3, "three of ten")})
        wanted = [TopicPartition(topic, number) for number in range(6)]
        assert consumer.committed(wanted) == {TopicPartition(topic, 0): Committed(3, "three of ten")}
    with ours(cluster, group, topic) as consumer:
        poll, found = polls_of(consumer), Counter[bytes]()
        assert wait_until(lambda: not found.update(poll()) and found.total() >= 57, PATIENCE_S)
        assert found == Counter(value for value in values if value not in {b"0000", b"0006", b"0012"})
    # The second one has committed by itself when it was closed.
    with ours(cluster, group, topic) as consumer:
        assert wait_until(lambda: bool(consumer.poll(50) or len(consumer.assignment) == 6), PATIENCE_S)
        fill(cluster, topic, 6, start=60)
        poll, found = polls_of(consumer), Counter[bytes]()
        assert wait_until(lambda: not found.update(poll()) and found.total() >= 6, PATIENCE_S)
        assert sorted(found) == [b"%04d" % number for number in range(60, 66)]


def test_commits_of_other_clients_and_ours_are_the_same_ones(
    cluster: ClusterClient, bootstrap: str, topic: str, group: str
) -> None:
    fill(cluster, topic, 60)
    theirs = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    partition = kafka.TopicPartition(topic, 2)
    with ours(cluster, group, topic, auto_commit=False) as consumer:
        assert wait_until(lambda: bool(consumer.poll(50) or consumer.assignment), PATIENCE_S)
        consumer.commit_sync({TopicPartition(topic, 2): Committed(7, "ours")})
        assert theirs.committed(partition) == 7
    theirs.close()
    with confluent_consumer(bootstrap, group) as librdkafka:
        place = confluent_kafka.TopicPartition(topic, 2, 4)
        librdkafka.commit(offsets=[place], asynchronous=False)
    with ours(cluster, group, topic, auto_commit=False) as consumer:
        tp = TopicPartition(topic, 2)
        assert consumer.committed([tp]) == {tp: Committed(4)}


class confluent_consumer:  # noqa: N801
    """One of librdkafka that only commits, closed at the end of the block."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})

    def __enter__(self) -> Any:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def test_assigned_partitions_are_read_as_tables_and_committed(
    cluster: ClusterClient, topic: str, group: str
) -> None:
    fill(cluster, topic, 60)
    config = GroupConsumerConfig(group, auto_offset_reset=Reset.EARLIEST, auto_commit=False)
    two, four = TopicPartition(topic, 2), TopicPartition(topic, 4)
    with GroupConsumer(cluster, config) as consumer:
        consumer.assign([two, four])
        assert consumer.end_offsets([two, four]) == {two: 10, four: 10}
        assert consumer.offsets_for_times({two: 1_700_000_000_020}) == {two: 3}
        rows: list[dict[str, Any]] = []

        def all_read() -> bool:
            rows.extend(consumer.poll_table(50, max_records=7).to_pylist())
            return len(rows) >= 20

        assert wait_until(all_read, PATIENCE_S)
        assert sorted((row["partition"], row["offset"], row["value"]) for row in rows) == [
            (number, offset, b"%04d" % (6 * offset + number)) for number in (2, 4) for offset in range(10)
        ]
        consumer.commit_sync()
    with GroupConsumer(cluster, config) as consumer:
        consumer.assign([two])
        assert consumer.committed([two, four]) == {two: Committed(10), four: Committed(10)}
        fill(cluster, topic, 6, start=60)
        assert next(iter(consumer)).value == b"0062"


def test_a_pattern_finds_a_topic_that_comes_later(cluster: ClusterClient, topic: str, group: str) -> None:
    config = GroupConsumerConfig(group, auto_offset_reset=Reset.EARLIEST, metadata_max_age_ms=500)
    with GroupConsumer(cluster, config) as consumer:
        consumer.subscribe(pattern=f"{topic}(-late)?")
        assert wait_until(lambda: not consumer.poll(50) and len(consumer.assignment) == 6, PATIENCE_S)
        Admin(cluster).create_topic(NewTopic(f"{topic}-late", partitions=1))
        with BatchingProducer(cluster) as producer:
            producer.send(f"{topic}-late", b"at last").result()
        found: list[ConsumerRecord] = []
        assert wait_until(lambda: not found.extend(consumer.poll_records(50)) and bool(found), PATIENCE_S)
        assert [(record.topic, record.value) for record in found] == [(f"{topic}-late", b"at last")]


def test_member_working_longer_than_its_session_stays(cluster: ClusterClient, topic: str, group: str) -> None:
    with ours(cluster, group, topic, session_timeout_ms=1_000) as consumer:
        assert wait_until(lambda: not consumer.poll(50) and len(consumer.assignment) == 6, PATIENCE_S)
        generation = consumer.generation
        ends_s = time.monotonic() + 2.5
        admin = GroupAdmin(cluster)
        while time.monotonic() < ends_s:
            assert admin.describe(group).state == "Stable"
        consumer.commit_sync()
        assert consumer.generation == generation


def test_who_does_not_poll_is_replaced_and_comes_back_as_a_new_member(
    cluster: ClusterClient, topic: str, group: str
) -> None:
    with (
        ours(cluster, group, topic, max_poll_interval_ms=1_000) as slow,
        ours(cluster, group, topic) as other,
    ):
        assert wait_until(
            lambda: not slow.poll(50) and not other.poll(50) and len(other.assignment) == 3, PATIENCE_S
        )
        assert wait_until(lambda: not other.poll(50) and len(other.assignment) == 6, PATIENCE_S)
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            slow.commit_sync()
        assert wait_until(
            lambda: not slow.poll(50) and not other.poll(50) and len(slow.assignment) == 3, PATIENCE_S
        )


# The command line.


def rows_of(capfd: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert run([*arguments, "--format", "json"]) == 0
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_groups_are_listed_described_reset_and_deleted(
    cluster: ClusterClient,
    bootstrap: str,
    release: Release | None,
    topic: str,
    group: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", bootstrap)
    fill(cluster, topic, 60)
    with ours(cluster, group, topic, auto_commit=False) as consumer:
        assert wait_until(lambda: not consumer.poll(50) and len(consumer.assignment) == 6, PATIENCE_S)
        consumer.commit_sync({TopicPartition(topic, number): Committed(number) for number in range(5)})
        listed = {row["group"]: row for row in rows_of(capfd, "group", "list")}
        assert (listed[group]["state"], listed[group]["members"]) == ("Stable", 1)
        rows = rows_of(capfd, "group", "describe", group)
        assert [(row["partition"], row["offset"], row["end_offset"], row["lag"]) for row in rows] == [
            *((number, number, 10, 10 - number) for number in range(5)),
            (5, None, 10, None),
        ]
        assert {(row["member"], row["client"], row["host"]) for row in rows} == {
            (consumer.member_id, "minikafka", "127.0.0.1")
        }
        for arguments in (["reset", group, "--to-earliest", "--execute"], ["delete", group]):
            status = run(["group", *arguments])
            err = capfd.readouterr().err
            assert (status, "has members" in err) == (1, True), err
    check_resets(capfd, group, topic)
    check_deleting(capfd, group, release)


def check_resets(capfd: pytest.CaptureFixture[str], group: str, topic: str) -> None:
    def reset(*arguments: str) -> dict[int, int]:
        rows = rows_of(capfd, "group", "reset", group, *arguments)
        return {row["partition"]: row["new_offset"] for row in rows}

    def described() -> dict[int, int]:
        return {row["partition"]: row["offset"] for row in rows_of(capfd, "group", "describe", group)}

    assert reset("--to-latest") == dict.fromkeys(range(5), 10)
    assert described() == {number: number for number in range(5)}
    assert reset("--shift-by", "2", "--topic", f"{topic}:0,4", "--execute") == {0: 2, 4: 6}
    assert reset("--to-time", "2023-11-14T22:13:20.030Z", "--topic", f"{topic}:1", "--execute") == {1: 5}
    assert reset("--to-offset", "99", "--topic", f"{topic}:5", "--execute") == {5: 10}
    assert described() == {0: 2, 1: 5, 2: 2, 3: 3, 4: 6, 5: 10}
    assert reset("--to-earliest", "--topic", topic, "--execute") == dict.fromkeys(range(6), 0)
    assert described() == dict.fromkeys(range(6), 0)


def check_deleting(capfd: pytest.CaptureFixture[str], group: str, release: Release | None) -> None:
    if release is KAFKA_0_10:
        assert run(["group", "delete", group]) == 1
        assert "deleting a group needs Kafka 1.1 or newer" in capfd.readouterr().err
        return
    assert run(["group", "delete", group]) == 0
    assert capfd.readouterr().out == f"deleted {group}\n"
    for command in ("describe", "delete"):
        assert run(["group", command, group]) == 1
        assert f"there is no group '{group}'" in capfd.readouterr().err


@contextlib.contextmanager
def consume(bootstrap: str, topic: str, group: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "minikafka.cli.main", "consume", topic, "--group", group, *options]
    command += ["--bootstrap", bootstrap, "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def values_of(text: str) -> list[str]:
    return [json.loads(line)["value"] for line in text.splitlines()]


def test_consume_commits_what_it_has_printed_and_goes_on_behind_it(
    cluster: ClusterClient, bootstrap: str, topic: str, group: str
) -> None:
    values = [value.decode() for value in fill(cluster, topic, 60)]
    with consume(bootstrap, topic, group, "--max", "25") as first:
        out, err = first.communicate(timeout=PATIENCE_S)
        assert (first.returncode, err) == (0, "")
    seen = values_of(out)
    assert len(seen) == 25
    with consume(bootstrap, topic, group) as rest:
        assert rest.stdout is not None
        seen += values_of("".join(rest.stdout.readline() for _ in range(35)))
        assert sorted(seen) == sorted(values)
        groups = GroupAdmin(cluster)
        # What is printed is committed soon after.
        assert wait_until(
            lambda: {committed.offset for committed in groups.offsets(group).values()} == {10}, PATIENCE_S
        )
        rest.send_signal(signal.SIGINT)
        assert rest.communicate(timeout=PATIENCE_S) == ("", "")
        assert rest.returncode == 0
        assert groups.describe(group).state == "Empty"
    fill(cluster, topic, 6, start=60)
    with consume(bootstrap, topic, group, "--max", "6") as last:
        out, _ = last.communicate(timeout=PATIENCE_S)
    assert sorted(values_of(out)) == [f"{number:04d}" for number in range(60, 66)]


def test_the_latency_of_a_message_is_measured(
    bootstrap: str, cluster: ClusterClient, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (row,) = rows_of(capfd, "perf", "latency", topic, "--records", "50", "--bootstrap", bootstrap)
    assert row["records"] == 50
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["p999_ms"] <= row["max_ms"]


def test_kafkas_own_tool_sees_what_we_have_committed(
    cluster: ClusterClient, bootstrap: str, release: Release | None, topic: str, group: str
) -> None:
    release = release or KAFKA_3_9
    release.libs()
    fill(cluster, topic, 12)
    with ours(cluster, group, topic) as consumer:
        poll, found = polls_of(consumer), Counter[bytes]()
        assert wait_until(lambda: not found.update(poll()) and found.total() >= 12, PATIENCE_S)
        consumer.commit_sync()
        tool, options, owner = _TOOLS[release.number]
        printed = release.run(
            tool, *options, "--bootstrap-server", bootstrap, "--describe", "--group", group
        ).out
        assert printed.count(owner.format(consumer.member_id)) == 6
        assert printed.count(topic) == 6


_TOOLS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    KAFKA_0_10.number: ("kafka.admin.ConsumerGroupCommand", ("--new-consumer",), "minikafka_/127.0.0.1"),
    KAFKA_3_9.number: ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", (), "{}"),
}
"""The class, its options, and how it names a member."""
