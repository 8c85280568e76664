"""Other people's Python clients as groups of our broker: sharing, committing, going on after a crash."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from minikafka.embedded.cluster import Cluster
from tests.support.python_clients import confluent_kafka, kafka

PARTITIONS = 6
PER_PARTITION = 50
PATIENCE_S = 40.0
Record = tuple[int, int]
"""Partition and offset."""


class Consumer(Protocol):
    """The interface of a client under test."""

    def poll(self) -> list[Record]:
        """Return the messages that arrive within a short time."""

    def commit(self) -> None:
        """Commit what was polled, and wait for the answer."""

    def assigned(self) -> set[int]:
        """The partitions that it has."""

    def close(self) -> None:
        """Leave the group."""


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Record]:
        message = self._consumer.poll(0.05)
        if message is None or message.error() is not None:
            return []
        return [(message.partition(), message.offset())]

    def commit(self) -> None:
        for partition in self._consumer.commit(asynchronous=False):
            assert partition.error is None

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """kafka-python."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
        )

    def poll(self) -> list[Record]:
        polled = self._consumer.poll(timeout_ms=1000)  # a join that takes longer is begun anew
        return [(record.partition, record.offset) for records in polled.values() for record in records]

    def commit(self) -> None:
        self._consumer.commit()

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close(autocommit=False)


CLIENTS: list[Callable[[str, str, str], Consumer]] = [Librdkafka, KafkaPython]
every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
EVERYTHING = {(partition, offset) for partition in range(PARTITIONS) for offset in range(PER_PARTITION)}

NEXT = {(partition, PER_PARTITION) for partition in range(PARTITIONS)}
"""What one more round of records is."""


def fill(servers: str, topic: str, rounds: int = PER_PARTITION) -> None:
    """One more record in each partition for each round."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(rounds * PARTITIONS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def topic(minikafka_cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A full topic of this test's own."""
    name = f"groups-{abs(hash(request.node.name)):x}"
    minikafka_cluster.create_topic(name, partitions=PARTITIONS)
    fill(minikafka_cluster.bootstrap_servers, name)
    return name


def read(consumer: Consumer, count: int) -> set[Record]:
    """Poll until there are so many records."""
    deadline, found = time.monotonic() + PATIENCE_S, set[Record]()
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found.update(consumer.poll())
    return found


def shares(consumers: Sequence[Consumer], sizes: list[int]) -> list[list[int]]:
    """Poll on a thread per consumer until the shares have these sizes, and return the assignment."""
    found: list[set[int]] = [set() for _ in consumers]
    stop = threading.Event()

    def go_on(number: int) -> None:
        while not stop.is_set():
            consumers[number].poll()
            found[number] = consumers[number].assigned()

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(len(consumers))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while sorted(map(len, found)) != sizes:
            assert time.monotonic() < deadline, f"at last the shares were {found}"
            stop.wait(0.02)
        return sorted(sorted(share) for share in found)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@every_client
def test_a_group_goes_on_where_it_has_committed(
    minikafka_cluster: Cluster, topic: str, client: Callable[[str, str, str], Consumer]
) -> None:
    servers, group = minikafka_cluster.bootstrap_servers, f"{topic}-resume"
    first = client(servers, group, topic)
    assert read(first, len(EVERYTHING)) == EVERYTHING
    first.commit()
    first.close()
    fill(servers, topic, rounds=1)
    second = client(servers, group, topic)
    assert read(second, PARTITIONS) == NEXT
    second.close()


@every_client
def test_members_share_the_partitions_and_take_over_from_who_goes(
    minikafka_cluster: Cluster, topic: str, client: Callable[[str, str, str], Consumer]
) -> None:
    servers, group = minikafka_cluster.bootstrap_servers, f"{topic}-share"
    members = [client(servers, group, topic) for _ in range(3)]
    assert shares(members, [2, 2, 2]) == [[0, 1], [2, 3], [4, 5]]
    members.pop().close()
    assert shares(members, [3, 3]) == [[0, 1, 2], [3, 4, 5]]
    for member in members:
        member.close()


def test_clients_of_two_kinds_are_in_one_group(minikafka_cluster: Cluster, topic: str) -> None:
    servers, group = minikafka_cluster.bootstrap_servers, f"{topic}-mixed"
    members: list[Consumer] = [Librdkafka(servers, group, topic), KafkaPython(servers, group, topic)]
    assert shares(members, [3, 3]) == [[0, 1, 2], [3, 4, 5]]
    for member in members:
        member.close()


@every_client
def test_a_killed_broker_remembers_what_a_group_has_committed(
    tmp_path: Path, client: Callable[[str, str, str], Consumer]
) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        fill(cluster.bootstrap_servers, "t")
        member = client(cluster.bootstrap_servers, "g", "t")
        assert read(member, len(EVERYTHING)) == EVERYTHING
        member.commit()
        member.close()
        cluster.kill(0)
        cluster.restart(0)
        fill(cluster.bootstrap_servers, "t", rounds=1)
        another = client(cluster.bootstrap_servers, "g", "t")
        assert read(another, PARTITIONS) == NEXT
        another.close()


def test_a_member_survives_the_death_of_its_broker(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t", partitions=PARTITIONS)
        fill(servers, "t")
        member = Librdkafka(servers, "g", "t")
        assert read(member, len(EVERYTHING)) == EVERYTHING
        member.commit()
        cluster.kill(0)
        cluster.restart(0)
        fill(servers, "t", rounds=1)
        assert read(member, PARTITIONS) == NEXT
        member.commit()
        member.close()


def test_librdkafka_administers_groups(minikafka_cluster: Cluster, topic: str) -> None:
    servers, group = minikafka_cluster.bootstrap_servers, f"{topic}-admin"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
    member = Librdkafka(servers, group, topic)
    read(member, len(EVERYTHING))
    member.commit()

    def state() -> Any:
        described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        return described.state.name, [len(member.assignment.topic_partitions) for member in described.members]

    def offsets() -> dict[int, int]:
        wish = confluent_kafka.ConsumerGroupTopicPartitions(group)
        (answer,) = admin.list_consumer_group_offsets([wish]).values()
        return {part.partition: part.offset for part in answer.result(PATIENCE_S).topic_partitions}

    assert state() == ("STABLE", [PARTITIONS])
    assert offsets() == dict.fromkeys(range(PARTITIONS), PER_PARTITION)
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    member.close()
    assert state() == ("EMPTY", [])
    back = confluent_kafka.ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 1, 7)])
    (altered,) = admin.alter_consumer_group_offsets([back]).values()
    altered.result(PATIENCE_S)
    assert offsets()[1] == 7
    assert group in {listing.group_id for listing in admin.list_consumer_groups().result(PATIENCE_S).valid}
    admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    assert group not in {
        listing.group_id for listing in admin.list_consumer_groups().result(PATIENCE_S).valid
    }


def test_aiokafka_is_a_member(minikafka_cluster: Cluster, topic: str) -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    servers, group = minikafka_cluster.bootstrap_servers, f"{topic}-aio"

    async def talk(count: int) -> set[Record]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        found = set()
        try:
            while len(found) < count:
                record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
                found.add((record.partition, record.offset))
            await consumer.commit()
        finally:
            await consumer.stop()
        return found

    assert asyncio.run(talk(len(EVERYTHING))) == EVERYTHING
    fill(servers, topic, rounds=1)
    assert asyncio.run(talk(PARTITIONS)) == NEXT
