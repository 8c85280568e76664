"""Replicas whose disk, or whose ZooKeeper, fails while the controller tells what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import CoordinationLost
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.server.context import RequestContext
from minikafka.server.core.metadata_cache import MetadataCache
from minikafka.server.handlers.update_metadata import handle
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.update_metadata import UpdateMetadataRequest
from minikafka.wire.framing import RequestHeader

ONE = TopicPartition("my_topic", 0)
OWN, OTHER = 1, 2
BROKERS = {broker_id: LiveBroker.plaintext(broker_id, "host", 9092 + broker_id) for broker_id in (OWN, OTHER)}


class ReplicaFetcherManager:
    """Whom each partition follows."""

    def __init__(self) -> None:
        self.followed: dict[TopicPartition, int] = {}
        self.owner: ReplicaManager | None = None

    def follow(
        self, partition: Partition, leader: BrokerAddress, epoch: int, *, is_ahead: bool = False
    ) -> None:
        self.followed[partition.topic_partition] = leader.broker_id

    def leave(self, topic_partition: TopicPartition) -> None:
        self.followed.pop(topic_partition, None)

    def sweep(self) -> None:
        pass


def nothing(*_: object) -> None:
    pass


def run(step: Callable[[], Any]) -> None:
    step()


def broker_of(files: MemoryFiles) -> Any:
    logs = LogManager(files, ["data"], LogConfig(), Layout.CLASSIC, ManualClock(0))
    logs.open_all()
    partitions: dict[TopicPartition, Partition] = {}
    return SimpleNamespace(
        broker_id=OWN,
        clock=ManualClock(0),
        logs=logs,
        partitions=partitions,
        add_partition=lambda partition: partitions.update({partition.topic_partition: partition}),
        remove_partition=lambda topic_partition: partitions.pop(topic_partition, None),
        zk_client=SimpleNamespace(
            settings=SimpleNamespace(of_topics=lambda topics: {topic: {} for topic in topics}),
            creations=lambda _: {},
            topics=SimpleNamespace(incarnations=lambda _: {}),
            store=MemoryZooKeeper().connect(),
        ),
        replication_quotas=SimpleNamespace(set_topic=nothing),
        worker=SimpleNamespace(submit=run),
        run=run,
        touch=nothing,
        log_failed=nothing,
    )


def led_by(leader: int, epoch: int) -> dict[TopicPartition, LeaderAndIsr]:
    return {ONE: LeaderAndIsr(leader, epoch, (OWN, OTHER), (OWN, OTHER), 1, 0)}


def lost(*_: object) -> Any:
    raise CoordinationLost("the connection broke")


def test_serving_broker_updates_metadata_without_zookeeper() -> None:
    broker = broker_of(MemoryFiles())
    broker.metadata_cache = MetadataCache("cluster")
    broker.zk_client.has_topics = lambda: False
    coordinator: Any = SimpleNamespace(partitions_deleted=nothing)
    fetching: Any = ReplicaFetcherManager()
    served: list[bool] = []
    replicas = ReplicaManager(broker, coordinator, fetching, serving=lambda: served.append(True))
    replicas.update_metadata({}, {}, {})
    assert served
    broker.zk_client.has_topics = lost
    replicas.update_metadata(BROKERS, {}, {})
    assert broker.metadata_cache.brokers == BROKERS


def test_metadata_update_holds_the_lock_for_1000_topics_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, touched, locked = broker_of(MemoryFiles()), [], []

    def step_of(step: Callable[[], Any]) -> None:
        touched.append(0)
        locked.append(True)
        step()
        locked.pop()

    def touch(key: object) -> None:
        assert locked
        touched[-1] += 1

    def updated(metadata_cache: MetadataCache, *state: Any) -> MetadataCache:
        assert not locked
        return real(metadata_cache, *state)

    broker.metadata_cache, broker.run, broker.touch = MetadataCache("cluster"), step_of, touch
    broker.zk_client.has_topics = lambda: False
    real = MetadataCache.updated
    monkeypatch.setattr(MetadataCache, "updated", updated)
    coordinator: Any = SimpleNamespace(partitions_deleted=nothing, leadership_changed=nothing)
    fetching: Any = ReplicaFetcherManager()
    replicas = ReplicaManager(broker, coordinator, fetching, serving=nothing)
    state = led_by(OTHER, 0)[ONE]
    for leader in (OTHER, LEADER_DURING_DELETE):
        named = {TopicPartition(f"t{number}", 0): replace(state, leader=leader) for number in range(3_500)}
        replicas.update_metadata(BROKERS, named, {})
        assert len(broker.metadata_cache.topics) == (0 if leader == LEADER_DURING_DELETE else 3_500)
    assert sum(touched) >= 3 * 3_500
    assert max(touched) <= 1_000


def test_control_request_without_zookeeper_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    broker, closed = broker_of(MemoryFiles()), []
    broker.metadata_cache = MetadataCache("cluster")
    broker.zk_client.has_topics = lost
    collaborator: Any = SimpleNamespace(partitions_deleted=nothing)
    replicas = ReplicaManager(broker, collaborator, collaborator, serving=nothing)
    exchange: Any = SimpleNamespace(close=closed.append)
    key = ApiKey.UPDATE_METADATA
    context = RequestContext(RequestHeader(key, 2, 1, "controller"), APIS[key], exchange)
    handle(replicas, context, UpdateMetadataRequest(0, 1, (), ()))
    assert closed == ["failed to build the response"]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.exc_info is None
    assert "the connection broke" in record.getMessage()


def test_unclaimed_logs_are_told_once_zookeeper_is_back(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    broker = broker_of(files)
    broker.metadata_cache = MetadataCache("cluster")
    broker.logs.create(ONE)
    coordinator: Any = SimpleNamespace(partitions_deleted=nothing)
    fetching: Any = ReplicaFetcherManager()
    replicas = ReplicaManager(broker, coordinator, fetching, serving=nothing)
    broker.zk_client.creations = lost
    replicas.update_metadata(BROKERS, led_by(OWN, 0), {})
    broker.zk_client.creations = lambda _: {}
    for _ in range(2):
        replicas.update_metadata(BROKERS, led_by(OWN, 0), {})
    warnings = [
        record.getMessage()
        for record in caplog.records
        if record.name == "minikafka.server.replication.unassigned_logs"
    ]
    named = [line.count("there is no topic my_topic") for line in warnings if "without a replica" in line]
    assert named == [1]


@pytest.mark.parametrize("file", ["leader-epochs-begun", "leader-epoch-checkpoint"])
def test_former_leader_stops_leading_and_follows_after_a_disk_error(file: str) -> None:
    files, fetchers = MemoryFiles(), ReplicaFetcherManager()
    broker = broker_of(files)
    coordinator: Any = SimpleNamespace(leadership_changed=nothing)
    fetching: Any = fetchers
    replicas = ReplicaManager(broker, coordinator, fetching, serving=nothing)
    for epoch in (0, 1):  # the first one is in the log's own file
        replicas.become_leader_or_follower(led_by(OWN, epoch), BROKERS, {})
    assert broker.partitions[ONE].is_leader
    assert broker.logs.epoch_journal.may_contain(ONE)

    files.fail_next_sync(match=file)
    replicas.become_leader_or_follower(led_by(OTHER, 2), BROKERS, {})
    assert ONE not in broker.partitions
    assert not fetchers.followed
    if file == "leader-epochs-begun":  # a second failure is none the less one
        files.fail_next_sync(match=file)
        broker.clock.advance(60_000)
        replicas.retry()
        assert not fetchers.followed

    broker.clock.advance(60_000)
    replicas.retry()
    assert fetchers.followed == {ONE: OTHER}
    assert not broker.logs.epoch_journal.may_contain(ONE)
