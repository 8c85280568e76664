"""Queries seen by Apache Kafka's own tools for groups, and groups of Apache Kafka's brokers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.group.description import EMPTY
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.process import wait_until
from minikafka.registry.consumer_offsets import read_offsets
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, KAFKA_4, Release
from tests.spark.conftest import Kafka
from tests.spark.streams import PATIENCE_S, Running, Streams
from tests.support.kafka_broker import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minikafka.embedded.cluster import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

ALL = ["a", "b", "c", "d"]


def until(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, PATIENCE_S)


def rows_of(text: str, topic: str) -> list[list[str]]:
    """The fields of the lines about a topic, by partitions."""
    found = [line.replace(",", " ").split() for line in text.splitlines() if topic in line]
    return sorted(found, key=lambda row: row[row.index(topic) + 1])


class Query:
    """A query that has read two partitions, of which the first has four records, for a group of its own."""

    def __init__(self, streams: Streams, kafka: Kafka, **options: str) -> None:
        self.group = f"g-{uuid.uuid4().hex[:12]}"
        self.topic = kafka.topic(2)
        kafka.produce(self.topic, ALL)
        given = {"subscribe": self.topic, "startingOffsets": "earliest", **options}
        self.run: Running = streams.start(minikafka__commit__group=self.group, **given)
        self.run.wait_for(4)


def test_the_tools_of_0_10_1_1_see_a_query_that_is_registered_in_zookeeper(
    streams: Streams, kafka: Kafka, minikafka_cluster: Cluster
) -> None:
    KAFKA_0_10.libs()
    connect = minikafka_cluster.zookeeper_connect
    query = Query(streams, kafka, offsets__storage="zookeeper", zookeeper__connect=connect)
    store = ZooKeeperStore(connect)
    try:
        until(lambda: len(read_offsets(store, query.group)) == 2)
        until(lambda: sum(read_offsets(store, query.group).values()) == 4)
        (name,) = store.children(f"/consumers/{query.group}/ids")
    finally:
        store.close()
    of_group = ("--zookeeper", connect, "--group", query.group)
    checked = KAFKA_0_10.run("kafka.tools.ConsumerOffsetChecker", *of_group, "--topic", query.topic).out
    described = KAFKA_0_10.run("kafka.admin.ConsumerGroupCommand", *of_group, "--describe").out
    for text in (checked, described):
        expected = [
            [query.group, query.topic, "0", "4", "4", "0", f"{name}-0"],
            [query.group, query.topic, "1", "0", "0", "0", f"{name}-0"],
        ]
        assert rows_of(text, query.topic) == expected


@pytest.mark.parametrize("release", [KAFKA_0_10, KAFKA_3_9], ids=str)
def test_the_tools_for_groups_see_a_query_as_a_member_with_its_lag(
    streams: Streams, kafka: Kafka, minikafka_cluster: Cluster, release: Release
) -> None:
    release.libs()
    query = Query(streams, kafka)
    groups = GroupAdmin(kafka.client)
    until(lambda: [committed.offset for committed in groups.offsets(query.group).values()] == [4, 0])
    until(lambda: len(groups.describe(query.group).members[0].partitions) == 2)
    servers = ("--bootstrap-server", minikafka_cluster.bootstrap_servers)
    asked = ("--describe", "--group", query.group)
    if release is KAFKA_0_10:
        text = release.run("kafka.admin.ConsumerGroupCommand", "--new-consumer", *servers, *asked).out
    else:
        text = release.run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *servers, *asked).out
    first, second = rows_of(text, query.topic)
    assert first[:6] == [query.group, query.topic, "0", "4", "4", "0"]
    assert second[:6] == [query.group, query.topic, "1", "0", "0", "0"]
    assert "minikafka-spark" in " ".join(first)


@pytest.mark.parametrize("release", [KAFKA_0_10, KAFKA_3_9, KAFKA_4], ids=str)
def test_query_commits_to_kafka_brokers_and_another_starts_there(
    spark: SparkSession, tmp_path: Path, release: Release
) -> None:
    with running(release, tmp_path / "kafka") as broker, Client(broker.bootstrap) as client:
        kafka = Kafka(broker.bootstrap)
        streams = Streams(spark, kafka, tmp_path / "checkpoint")
        groups = GroupAdmin(client)
        try:
            query = Query(streams, kafka)
            tp = TopicPartition(query.topic, 0)
            until(lambda: groups.offsets(query.group)[tp].offset == 4)
            assert groups.describe(query.group).protocol.startswith(f"{query.group}_")
            query.run.stop()
            until(lambda: groups.describe(query.group).state == EMPTY)
            kafka.produce(query.topic, ["e"])
            given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": query.topic}
            frame = spark.read.format("minikafka").options(**given, startingOffsets=f"group:{query.group}")
            assert [bytes(row.value) for row in frame.load().collect()] == [b"e"]
        finally:
            streams.close()
            kafka.client.close()
