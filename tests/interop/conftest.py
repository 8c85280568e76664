"""Fixtures of the interoperability tests: the broker under test, and records of difficult content.

``MINIKAFKA_INTEROP_BROKER=3.9.1`` has the clients' tests use Apache Kafka 3.9.1 instead of our broker: what
fails there too is no fault of ours.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Connection
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9
from tests.support.kafka_broker import KafkaBroker

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="session")
def pairs() -> list[Pair]:
    """Keys and values: null, empty, no UTF-8, one large, many small."""
    chance = random.Random(20130101)
    hard: list[Pair] = [
        (None, None),
        (b"", b""),
        (b"key", None),
        (None, b"value"),
        (b"\xff\xfe\x00", b"\x80\x00\xff"),
        (b"large", chance.randbytes(200_000)),
    ]
    return hard + [(b"k%d" % number, chance.randbytes(chance.randrange(300))) for number in range(500)]


@pytest.fixture
def kafka_libs() -> Path:
    """The folder with the jars of Apache Kafka 0.10.1.1; the test is skipped where nobody gave one."""
    return KAFKA_0_10.libs()


@pytest.fixture(scope="session")
def apache_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that names its files as the release does, so that the release's tools can read them."""
    data_dir = tmp_path_factory.mktemp("apache-layout")
    config = {"log.layout": "apache", "log.index.interval.bytes": "512", "log.retention.ms": "-1"}
    with Cluster(data_dir=data_dir, config=config) as cluster:
        yield cluster


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker under test."""

    bootstrap: str
    zookeeper: str
    data: Path

    def create_topic(self, partitions: int) -> str:
        """A new topic."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        with Connection(self.bootstrap) as connection:
            Admin(connection).create_topic(NewTopic(name, partitions))
        return name

    def segments(self, topic: str) -> bytes:
        """Return the contents of the topic's log files, in either directory layout."""
        return b"".join(path.read_bytes() for path in sorted(self.data.glob(f"**/{topic}*/*.[lk]*")))


def is_kafka_wanted() -> bool:
    """Return True if the tests are to use Apache Kafka's brokers."""
    return os.environ.get("MINIKAFKA_INTEROP_BROKER") == KAFKA_3_9.number


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Ours, or Apache Kafka's."""
    if not is_kafka_wanted():
        with Cluster() as cluster:
            yield Broker(cluster.bootstrap_servers, cluster.zookeeper_connect, cluster.data_dir)
        return
    directory = tmp_path_factory.mktemp("peer")
    zookeeper = EmbeddedZooKeeper(str(directory / "zookeeper"))
    peer = KafkaBroker(
        KAFKA_3_9,
        directory / "kafka",
        zookeeper.start(),
        config={"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 5},
    )
    try:
        peer.start()
        yield Broker(peer.bootstrap, zookeeper.connect, directory / "kafka" / "data")
    finally:
        peer.stop()
        zookeeper.stop()


def recorded(request: pytest.FixtureRequest, client: str, version: str | None = None) -> None:
    """Record the feature that a test shows: the first line of the test's docstring."""
    feature = (request.function.__doc__ or "").splitlines()[0].rstrip(".")
    spec = getattr(request.node, "callspec", None)
    codec = None if spec is None else spec.params.get("codec")
    properties = request.node.user_properties
    properties.extend([("client", client), ("feature", f"{feature}, {codec}" if codec else feature)])
    if version is not None:
        properties.append(("version", version))
