"""One cluster of both kinds: two brokers of ours beside one of Apache Kafka 0.10.1.1, each of which is the
controller, leads and follows, and is killed while producers wait for all replicas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import OFFSETS_TOPIC
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.broker import BrokerFailed, BrokerProcess
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from tests.interop.releases import KAFKA_0_10
from tests.support.kafka_broker import KafkaBroker
from tests.support.load import Load

KAFKA = 0
OURS = (1, 2)
BESIDE_0_10 = {"inter.broker.protocol.version": "0.10.1"}
PATIENCE_S = 60


class MixedCluster:
    """A ZooKeeper, broker 0 of Apache Kafka, and brokers 1 and 2 of ours."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        # 0.10.1.1 would have a replica lead that is not in sync.
        careful = {"unclean.leader.election.enable": "false"}
        self.kafka = KafkaBroker(KAFKA_0_10, directory / "kafka", zookeeper, config=careful)
        self.addresses: dict[int, str] = {KAFKA: self.kafka.bootstrap}
        self._ours: dict[int, BrokerProcess] = {}

    @property
    def bootstrap(self) -> str:
        """All addresses."""
        return ",".join(self.addresses.values())

    def start(self, number: int, **settings: str) -> None:
        """Start a broker, again on the port that it had."""
        if number == KAFKA:
            self.kafka.start()
            return
        port = self.addresses[number].rpartition(":")[2] if number in self.addresses else "0"
        properties = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(self.directory / f"data-{number}"),
            "zookeeper.connect": self.zookeeper,
            **(settings or BESIDE_0_10),
        }
        process = BrokerProcess(number, str(self.directory), properties)
        try:
            self.addresses[number] = process.wait_ready().address
        except BaseException:
            process.kill()
            raise
        self._ours[number] = process

    def kill(self, number: int) -> None:
        """SIGKILL."""
        if number == KAFKA:
            self.kafka.kill()
        else:
            self._ours.pop(number).kill()

    def close(self) -> None:
        """End all."""
        for number in (*self._ours, KAFKA):
            self.kill(number)

    def whole(self, *topics: str) -> bool:
        """Return True if all replicas are known to be in sync."""
        try:
            with Client(self.bootstrap) as client:
                described = Admin(client).describe_topics(list(topics))
        except MinikafkaError:
            return False
        return all(
            not isinstance(topic, MinikafkaError)
            and all(set(partition.in_sync) == {KAFKA, *OURS} for partition in topic.partitions)
            for topic in described.values()
        )

    def controller(self) -> int:
        """Return the controller."""
        with Client(self.bootstrap) as client:
            return Admin(client).describe_cluster().controller_id


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[MixedCluster]:
    KAFKA_0_10.libs()
    with (
        EmbeddedZooKeeper(str(tmp_path / "zookeeper")) as zookeeper,
        contextlib.closing(MixedCluster(tmp_path, f"{zookeeper.connect}/kafka")) as cluster,
    ):
        yield cluster


@pytest.mark.interop
@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", [(KAFKA, *OURS), (*OURS, KAFKA)], ids=["kafka first", "ours first"])
def test_killed_brokers_of_both_kinds_lose_no_acknowledged_data(
    mixed: MixedCluster, order: tuple[int, ...]
) -> None:
    for number in order:
        mixed.start(number)
    with Client(mixed.bootstrap) as client:
        Admin(client).create_topic(NewTopic("t", 6, 3))
    controllers = set()
    load = Load(mixed.bootstrap, idempotent=False, partitions=6)
    for victim in (*order, *order):
        load.run(300)
        controllers.add(mixed.controller())
        mixed.kill(victim)
        load.run(300)
        mixed.start(victim)
        # The group's offsets, too: one that is killed must not be the only one that has them.
        assert wait_until(lambda: mixed.whole("t", OFFSETS_TOPIC), PATIENCE_S)
    assert load.taken_back(load.committed) == {}
    load.finish()
    assert load.failed == load.changed == []
    assert load.acknowledged.items() <= load.consumed.items()
    assert {min(controllers), max(controllers)} > {KAFKA}


@pytest.mark.interop
@pytest.mark.timeout(120)
def test_broker_without_older_protocol_refuses_older_brokers(mixed: MixedCluster) -> None:
    mixed.start(KAFKA)
    with pytest.raises(BrokerFailed, match=r"older release: set inter.broker.protocol.version"):
        mixed.start(1, **{"broker.rack": "a"})
