"""Consumer groups and queries of real Spark: where a query starts, and who sees how far it is."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.group_admin import GroupAdmin
from minikafka.registry.consumers import write_offsets
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.spark.conftest import Kafka
from tests.spark.test_stream_read import Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from minikafka.embedded.cluster import Cluster

ALL = ["a", "b", "c", "d"]


@pytest.fixture
def group() -> str:
    """A name that no other test has."""
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def groups(kafka: Kafka) -> GroupAdmin:
    return GroupAdmin(kafka.client)


@pytest.fixture
def zookeeper(minikafka_cluster: Cluster) -> Iterator[ZooKeeperStore]:
    store = ZooKeeperStore(minikafka_cluster.zookeeper_connect)
    yield store
    store.close()


@pytest.fixture
def streams(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Iterator[Streams]:
    found = Streams(spark, kafka, tmp_path / "checkpoint")
    yield found
    found.close()


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def test_a_batch_starts_where_a_group_has_committed_in_kafka_or_in_zookeeper(
    kafka: Kafka,
    read: Callable[..., DataFrame],
    groups: GroupAdmin,
    zookeeper: ZooKeeperStore,
    minikafka_cluster: Cluster,
    group: str,
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ALL)
    tp = TopicPartition(topic, 0)
    groups.set_offsets(group, {tp: 2})
    write_offsets(zookeeper, group, {tp: 3})
    asked = {"subscribe": topic, "startingOffsets": f"group:{group}"}
    assert values(read(**asked)) == ["c", "d"]
    asked["zookeeper.connect"] = minikafka_cluster.zookeeper_connect
    assert values(read(**asked)) == ["d"]
    assert values(read(**asked, **{"offsets.storage": "kafka"})) == ["c", "d"]


def test_a_group_that_nobody_knows_is_an_error_that_names_it(
    kafka: Kafka, read: Callable[..., DataFrame], group: str
) -> None:
    with pytest.raises(Exception, match=f"no group '{group}'"):
        read(subscribe=kafka.topic(), startingOffsets=f"group:{group}").collect()


def test_a_stream_starts_at_a_group_once_and_then_goes_on_by_its_checkpoint(
    kafka: Kafka, streams: Streams, groups: GroupAdmin, group: str
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ALL)
    groups.set_offsets(group, {TopicPartition(topic, 0): 2})
    given = {"subscribe": topic, "startingOffsets": f"group:{group}"}
    assert streams.start(trigger={"availableNow": True}, **given).ended() == ["c", "d"]
    groups.set_offsets(group, {TopicPartition(topic, 0): 0})
    kafka.produce(topic, ["e"])
    assert streams.start(trigger={"availableNow": True}, **given).ended() == ["e"]
