"""One cluster of both kinds: two brokers of ours beside one of Apache Kafka 0.10.1.1, each of which is the
controller, leads and follows, and is killed while producers wait for all replicas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka import TransactionalProducer
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.ids import OFFSETS_TOPIC
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.broker import BrokerFailed, BrokerProcess
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.connection import connect
from minikafka.net.ports import free_port
from minikafka.wire.apis.init_producer_id import INIT_PRODUCER_ID
from minikafka.wire.framing import RequestHeader
from tests.interop.releases import KAFKA_0_10
from tests.interop.test_transactions import outcomes
from tests.support import transaction_requests
from tests.support.kafka_broker import KafkaBroker
from tests.support.load import Load

KAFKA = 0
OURS = (1, 2)
BESIDE_0_10 = {"inter.broker.protocol.version": "0.10.1"}
BETWEEN = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
"""The settings of brokers that log in to each other: ours have the secret there, Kafka's in a file."""
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="tiger" user_broker="tiger";'
)
OUR_LOGIN = {"listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN}
PATIENCE_S = 60


class MixedCluster:
    """A ZooKeeper, broker 0 of Apache Kafka, and brokers 1 and 2 of ours.

    secured: brokers connect to each other with SASL, on a listener of their own.
    """

    def __init__(self, directory: Path, zookeeper: str, *, secured: bool = False) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.secured = secured
        # 0.10.1.1 would have a replica lead that is not in sync.
        careful = {"unclean.leader.election.enable": "false"}
        jaas = directory / "jaas.conf"
        jaas.write_text(f"KafkaServer {{ {LOGIN} }};\n")
        self.kafka = KafkaBroker(
            KAFKA_0_10,
            directory / "kafka",
            zookeeper,
            config=careful | (BETWEEN if secured else {}),
            jvm=[f"-Djava.security.auth.login.config={jaas}"] if secured else [],
            listeners=[f"SASL_PLAINTEXT://127.0.0.1:{free_port()}"] if secured else [],
        )
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
        between = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        if self.secured:
            own = f"{between['listeners']},SASL_PLAINTEXT://127.0.0.1:0"
            between = {**BETWEEN, **OUR_LOGIN, "listeners": own}
        properties = {
            **between,
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
def secured() -> bool:
    """Whether brokers log in to each other."""
    return False


@pytest.fixture
def mixed(tmp_path: Path, secured: bool) -> Iterator[MixedCluster]:
    KAFKA_0_10.libs()
    with EmbeddedZooKeeper(str(tmp_path / "zookeeper")) as zookeeper:
        cluster = MixedCluster(tmp_path, f"{zookeeper.connect}/kafka", secured=secured)
        with contextlib.closing(cluster):
            yield cluster


@pytest.mark.interop
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("order", "secured"),
    [((KAFKA, *OURS), False), ((*OURS, KAFKA), False), ((*OURS, KAFKA), True)],
    ids=["kafka first", "ours first", "with SASL"],
)
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
@pytest.mark.timeout(300)
def test_transactions_are_refused_by_name(mixed: MixedCluster) -> None:
    mixed.start(KAFKA)
    mixed.start(1)
    ours = mixed.addresses[1]
    with Client(mixed.bootstrap) as client:
        Admin(client).create_topic(NewTopic("t", 2, 2))
    for bootstrap in (mixed.addresses[KAFKA], ours):
        with Client(bootstrap) as client, TransactionalProducer(client, transactional_id="x") as producer:
            with pytest.raises(BrokerError, match="it lacks InitProducerId") as caught:
                producer.init_transactions()
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert outcomes(bootstrap, "t", "init x") == ["UnsupportedVersionException"]
    # A client that does not ask for the versions first.
    host, _, port = ours.rpartition(":")
    connection = connect(host, int(port))
    asked = transaction_requests.init("x", version=0)
    header = RequestHeader(int(asked.key), asked.version, 1, "c")
    pending = connection.request([header.encode(), *INIT_PRODUCER_ID.encode_request(0, asked.body)])
    with pytest.raises(NetworkError, match="the peer closed the connection"):
        pending.result()
    log = (mixed.directory / "logs" / "broker-1.log").read_text()
    assert (
        "unsupported version 0 of InitProducerId: inter.broker.protocol.version limits this broker to the "
        "versions of 0.10.1"
    ) in log


@pytest.mark.interop
@pytest.mark.timeout(120)
def test_broker_without_older_protocol_refuses_older_brokers(mixed: MixedCluster) -> None:
    mixed.start(KAFKA)
    with pytest.raises(BrokerFailed, match=r"older release: set inter.broker.protocol.version"):
        mixed.start(1, **{"broker.rack": "a"})
