"""Consumer groups and queries of real Spark: where a query starts, and who sees how far it is."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.group.description import EMPTY, GroupDescription
from minikafka.embedded.process import wait_until
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import read_offsets, write_offsets
from minikafka.registry.consumers import ConsumerRegistration
from minikafka.registry.zookeeper import ZooKeeperStore
from pyspark_minikafka.location import Target
from pyspark_minikafka.reading.groups import GroupProgress, ZooKeeperMember
from tests.spark.conftest import Kafka
from tests.spark.streams import PATIENCE_S, Streams
from tests.spark.test_stream_read import needs_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from minikafka.embedded.cluster import Cluster

ALL = ["a", "b", "c", "d"]
BEFORE_THE_SESSION_ENDS_S = 6
"""Its time-out is 10 s, and a query is heard every three."""


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


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def test_batch_starts_at_group_offsets_in_kafka_or_zookeeper(
    kafka: Kafka,
    read: Callable[..., DataFrame],
    groups: GroupAdmin,
    zookeeper: ZooKeeperStore,
    minikafka_cluster: Cluster,
    group: str,
) -> None:
    topic = kafka.topic_with(ALL)
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


def test_stream_starts_at_group_once_then_uses_its_checkpoint(
    kafka: Kafka, streams: Streams, groups: GroupAdmin, group: str
) -> None:
    topic = kafka.topic_with(ALL)
    groups.set_offsets(group, {TopicPartition(topic, 0): 2})
    given = {"subscribe": topic, "startingOffsets": f"group:{group}"}
    assert streams.start(trigger={"availableNow": True}, **given).ended() == ["c", "d"]
    groups.set_offsets(group, {TopicPartition(topic, 0): 0})
    kafka.produce(topic, ["e"])
    assert streams.start(trigger={"availableNow": True}, **given).ended() == ["e"]


NOW = {"availableNow": True}


def committed(groups: GroupAdmin, group: str) -> dict[int, int]:
    return {tp.partition: one.offset for tp, one in groups.offsets(group).items()}


def until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    assert wait_until(condition, seconds)


def test_a_group_follows_a_running_query_and_shows_it_as_its_member(
    kafka: Kafka, streams: Streams, groups: GroupAdmin, group: str
) -> None:
    topic = kafka.topic_with(ALL, partitions=2)
    given = {"subscribe": topic, "startingOffsets": "earliest", "minikafka.commit.group": group}
    running = streams.start(**given)
    running.wait_for(4)
    until(lambda: committed(groups, group) == {0: 4, 1: 0})
    kafka.produce(topic, ["e"], partition=1)
    running.wait_for(5)
    until(lambda: committed(groups, group) == {0: 4, 1: 1})
    described: GroupDescription = groups.describe(group)
    (member,) = described.members
    assert described.protocol.startswith(f"{group}_")
    assert member.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert [partition.lag for partition in groups.lags(described)] == [0, 0]
    running.stop()
    if not wait_until(lambda: groups.describe(group).state == EMPTY, BEFORE_THE_SESSION_ENDS_S):
        # Spark leaves it little time, and this machine less: once more.
        again = streams.start(**given)
        kafka.produce(topic, ["f"])
        again.wait_for(1)
        again.stop()
        until(lambda: groups.describe(group).state == EMPTY, BEFORE_THE_SESSION_ENDS_S)


@needs_limits
def test_the_end_of_a_finished_run_is_committed(
    kafka: Kafka, streams: Streams, groups: GroupAdmin, group: str
) -> None:
    topic = kafka.topic_with(ALL)
    given = {"subscribe": topic, "startingOffsets": "earliest", "minikafka.commit.group": group}
    assert streams.start(trigger=NOW, maxOffsetsPerTrigger="3", **given).ended() == ALL
    until(lambda: committed(groups, group) == {0: 4})


def test_a_restart_commits_where_its_checkpoint_is(
    kafka: Kafka, streams: Streams, groups: GroupAdmin, group: str
) -> None:
    topic = kafka.topic_with(ALL)
    given = {"subscribe": topic, "startingOffsets": "earliest"}
    assert streams.start(trigger=NOW, **given).ended() == ALL
    streams.start(trigger=NOW, **given, **{"minikafka.commit.group": group}).ended()
    until(lambda: committed(groups, group) == {0: 4})


def test_query_in_zookeeper_group_owns_partitions_while_running(
    kafka: Kafka, streams: Streams, zookeeper: ZooKeeperStore, minikafka_cluster: Cluster, group: str
) -> None:
    topic = kafka.topic_with(ALL, partitions=2)
    running = streams.start(
        subscribe=topic,
        startingOffsets="earliest",
        minikafka__commit__group=group,
        kafka__offsets__storage="zookeeper",
        kafka__zookeeper__connect=minikafka_cluster.zookeeper_connect,
    )
    running.wait_for(4)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    until(lambda: read_offsets(zookeeper, group) == {first: 4, second: 0})
    (name,) = zookeeper.children(paths.consumer_ids_path(group))
    assert name.startswith(f"{group}_")
    path = paths.consumer_id_path(group, name)
    assert ConsumerRegistration.from_json(zookeeper.read(path)[0], path).subscription == {topic: 1}
    for tp in (first, second):
        assert zookeeper.read(paths.consumer_owner_path(group, *tp))[0] == f"{name}-0".encode()
    running.stop()
    until(lambda: not zookeeper.children(paths.consumer_ids_path(group)))
    assert zookeeper.children(f"/consumers/{group}/owners/{topic}") == []


@pytest.mark.slow
def test_second_query_in_group_is_refused_with_owner_name(
    spark: SparkSession,
    kafka: Kafka,
    streams: Streams,
    zookeeper: ZooKeeperStore,
    groups: GroupAdmin,
    minikafka_cluster: Cluster,
    group: str,
    tmp_path: Path,
) -> None:
    topic = kafka.topic_with(ALL)
    given = {"subscribe": topic, "startingOffsets": "earliest", "minikafka.commit.group": group}
    old = {"offsets.storage": "zookeeper", "zookeeper.connect": minikafka_cluster.zookeeper_connect}
    firsts = [streams, Streams(spark, kafka, tmp_path / "b")]
    for one, storage in zip(firsts, ({}, old), strict=True):
        one.start(**given, **storage).wait_for(4)
    names = [groups.describe(group).protocol, *zookeeper.children(paths.consumer_ids_path(group))]
    seconds = [Streams(spark, kafka, tmp_path / "c"), Streams(spark, kafka, tmp_path / "d")]
    runs = [one.start(**given, **storage) for one, storage in zip(seconds, ({}, old), strict=True)]
    for run, name in zip(runs, names, strict=True):
        failure = run.failure()
        assert "minikafka.commit.group" in failure
        assert name in failure
        assert run.values == []
    for query in (*firsts, *seconds):
        query.close()


def runners() -> set[int]:
    """The processes in which queries' readers live."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "python_streaming_source_runner" in " ".join(process.cmdline()):
                found.add(process.pid)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_restart_of_killed_query_waits_for_session_and_continues(
    kafka: Kafka,
    streams: Streams,
    zookeeper: ZooKeeperStore,
    groups: GroupAdmin,
    minikafka_cluster: Cluster,
    group: str,
    storage: str,
) -> None:
    def offsets() -> list[int]:
        if storage == "kafka":
            return list(committed(groups, group).values())
        return list(read_offsets(zookeeper, group).values())

    def owners() -> list[str]:
        if storage == "kafka":
            return [groups.describe(group).protocol]
        return zookeeper.children(paths.consumer_ids_path(group))

    topic = kafka.topic_with(ALL)
    given = {"subscribe": topic, "startingOffsets": "earliest", "minikafka.commit.group": group}
    given |= {"offsets.storage": storage, "zookeeper.connect": minikafka_cluster.zookeeper_connect}
    others = runners()
    killed = streams.start(**given)
    killed.wait_for(4)
    until(lambda: offsets() == [4])
    before = owners()
    (runner,) = runners() - others
    os.kill(runner, signal.SIGKILL)
    kafka.produce(topic, ["e"])
    killed.failure()
    assert owners() == before
    restarted = streams.start(**given)
    assert restarted.wait_for(1)[-1] == "e"
    until(lambda: offsets() == [5])
    assert owners() != before
    restarted.stop()


def test_a_query_whose_session_has_expired_is_registered_anew(
    zookeeper: ZooKeeperStore, minikafka_cluster: Cluster, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(
        minikafka_cluster.bootstrap_servers, zookeeper_connect=minikafka_cluster.zookeeper_connect
    )
    member = ZooKeeperMember(target, group, f"{group}_here-1-aa")
    monkeypatch.setattr(member, "heartbeat_ms", 50)
    progress = GroupProgress(member, group)
    progress.start()
    tp = TopicPartition("t", 0)
    progress.reached({tp: 5})
    owner = paths.consumer_owner_path(group, *tp)
    until(lambda: zookeeper.exists(owner) is not None)
    ticket = member.store.ticket
    assert zookeeper.end_session(ticket)

    def registered_anew() -> bool:
        stat = zookeeper.exists(owner)
        return stat is not None and stat.ephemeral_owner != ticket.session_id

    until(registered_anew)
    assert zookeeper.children(paths.consumer_ids_path(group)) == [f"{group}_here-1-aa"]
    progress.close()
    assert zookeeper.children(paths.consumer_ids_path(group)) == []
