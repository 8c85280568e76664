"""The settings of a topic are changed in ZooKeeper, and hold in our running broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import KAFKA_0_10

PATIENCE_S = 20.0

pytestmark = pytest.mark.timeout(180)


class Topic:
    """One topic of a cluster."""

    def __init__(self, cluster: Cluster, name: str, producer: BatchingProducer) -> None:
        self._cluster = cluster
        self._name = name
        self._producer = producer
        cluster.create_topic(name)

    def alter(self, *options: str) -> None:
        """``kafka-configs --alter`` of 0.10.1.1 with these options."""
        printed = KAFKA_0_10.run(
            "kafka.admin.ConfigCommand",
            *("--zookeeper", self._cluster.zookeeper_connect, "--alter"),
            *("--entity-type", "topics", "--entity-name", self._name, *options),
        )
        assert f"Updated config for entity: topic '{self._name}'" in printed.out

    def set_by_hand(self, settings: bytes) -> None:
        """Write the settings and the news of them."""
        news = b'{"version":2,"entity_path":"topics/%s"}' % self._name.encode()
        store = ZooKeeperStore(self._cluster.zookeeper_connect)
        try:
            store.write(f"/config/topics/{self._name}", settings)
            store.create("/config/changes/config_change_", news, sequential=True)
        finally:
            store.close()

    def takes(self, size: int) -> bool:
        """Return True if the broker accepts a message of about ``size`` bytes."""
        delivery = self._producer.send(self._name, b"x" * size)
        try:
            delivery.result(60_000)
        except BrokerError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            return False
        return True

    def segments(self) -> dict[int, int]:
        """Base offset -> bytes of the files that hold messages."""
        directory = self._cluster.data_dir / "broker-0" / f"{self._name}-0"
        return {int(path.stem): path.stat().st_size for path in directory.glob("*.log")}


@pytest.fixture
def topic(apache_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Topic]:
    with Client(apache_cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
        yield Topic(apache_cluster, request.node.name, producer)


def test_settings_that_are_written_by_hand_hold(topic: Topic) -> None:
    assert topic.takes(1000)
    topic.set_by_hand(b'{"version":1,"config":{"max.message.bytes":"500"}}')
    assert wait_until(lambda: not topic.takes(1000), PATIENCE_S)


@pytest.mark.interop
@pytest.mark.usefixtures("kafka_libs")
def test_message_size_limit_changes_and_resets_at_run_time(topic: Topic) -> None:
    assert topic.takes(1000)
    topic.alter("--add-config", "max.message.bytes=500")
    assert wait_until(lambda: not topic.takes(1000), PATIENCE_S)
    assert topic.takes(400)
    topic.alter("--delete-config", "max.message.bytes")
    assert wait_until(lambda: topic.takes(1000), PATIENCE_S)


@pytest.mark.interop
@pytest.mark.usefixtures("kafka_libs")
def test_segments_are_small_from_the_change_on(topic: Topic) -> None:
    for _ in range(3):
        assert topic.takes(1000)
    topic.alter("--add-config", "segment.bytes=1200")
    # Every message above half of a segment has one of its own.
    assert wait_until(lambda: topic.takes(1000) and len(topic.segments()) > 1, PATIENCE_S)
    before = len(topic.segments())
    for _ in range(3):
        assert topic.takes(1000)
    assert len(topic.segments()) == before + 3
    assert topic.segments()[0] > 3000
