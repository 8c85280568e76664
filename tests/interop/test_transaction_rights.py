"""Transactions of clients without a right: each sees the same error on our brokers and on Kafka 3.9.1."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from minikafka import TransactionalProducer
from minikafka.base.acls import ANONYMOUS, Acl, AclFilter, Operation, Permission, Resource, ResourceType
from minikafka.base.config.property_files import write_properties
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.acls import AclBinding
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.admin.transactions import AbortTransactionSpec, TransactionAdmin
from minikafka.clients.group.consumer import Committed
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.net.ports import free_port
from tests.interop.java_transactions import outcomes
from tests.interop.releases import KAFKA_3_9
from tests.support.kafka_broker import running
from tests.support.python_clients import confluent_kafka
from tests.support.secured_kafka import PASSWORD, USER, client_of, jaas, login_of, quoted
from tests.support.transactional_clusters import KAFKA, OURS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
CONFIG = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas("PLAIN", f"user_{USER}={quoted(PASSWORD)}"),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": ANONYMOUS,
}
OK = ("ok",)
Right = tuple[Operation, ResourceType, str]
WRITE, READ, DESCRIBE = Operation.WRITE, Operation.READ, Operation.DESCRIBE
ID, TOPIC, GROUP = ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC, ResourceType.GROUP
RIGHTS: list[Right] = [
    (WRITE, ID, "all"),
    (WRITE, ID, "brief"),
    (DESCRIBE, ID, "seen"),
    (WRITE, TOPIC, "all"),
    (READ, TOPIC, "all"),
    (DESCRIBE, TOPIC, "seen"),
    (WRITE, TOPIC, "written"),
    (READ, GROUP, "all"),
    (DESCRIBE, GROUP, "seen"),
]
"""The rights of the user; of everything else it has none."""


@dataclass(frozen=True, slots=True)
class Case:
    """Commands of ``Transactions.java`` for a topic, and their outcomes by each client."""

    topic: str
    commands: tuple[str, ...]
    ours: tuple[str, ...]
    java: tuple[str, ...]
    librdkafka: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.topic}: {', '.join(self.commands)}"


NO_ID, NO_GROUP = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
NO_TOPIC = "TOPIC_AUTHORIZATION_FAILED"
OF_JAVA = {
    NO_ID: "TransactionalIdAuthorizationException",
    NO_GROUP: "GroupAuthorizationException",
    NO_TOPIC: "TopicAuthorizationException",
}
CASES = [
    Case("all", ("init all", "begin all", "send all 0 x", "offsets all all", "commit all"), *(OK * 5,) * 3),
    Case("all", ("init hidden",), (NO_ID,), (OF_JAVA[NO_ID],), (NO_ID,)),
    Case("all", ("init seen",), (NO_ID,), (OF_JAVA[NO_ID],), (NO_ID,)),
    *(
        Case(
            "all",
            ("init all", "begin all", f"offsets all {group}", "commit all", "abort all"),
            (*OK * 2, NO_GROUP, NO_GROUP, *OK),
            (*OK * 2, OF_JAVA[NO_GROUP], f"KafkaException {OF_JAVA[NO_GROUP]}", *OK),
            (*OK * 2, NO_GROUP, NO_GROUP, *OK),
        )
        for group in ("seen", "hidden")
    ),
    Case(  # librdkafka looks for the topic first, and finds an error before the transaction has one
        "hidden",
        ("init all", "begin all", "send all 0 x", "commit all", "abort all"),
        (*OK * 2, NO_TOPIC, NO_TOPIC, *OK),
        (*OK * 2, OF_JAVA[NO_TOPIC], f"KafkaException {OF_JAVA[NO_TOPIC]}", *OK),
        (*OK * 2, NO_TOPIC, "_INCONSISTENT", *OK),
    ),
    Case(  # librdkafka aborts at the coordinator, which does not know of a transaction
        "seen",
        ("init all", "begin all", "send all 0 x", "commit all", "abort all"),
        (*OK * 2, NO_TOPIC, NO_TOPIC, *OK),
        (*OK * 2, OF_JAVA[NO_TOPIC], f"KafkaException {OF_JAVA[NO_TOPIC]}", *OK),
        (*OK * 2, "_PURGE_QUEUE", NO_TOPIC, "INVALID_TXN_STATE"),
    ),
    Case(  # for Java's producer a topic that may not be read is fatal
        "written",
        ("init all", "begin all", "offsets all all", "commit all", "abort all"),
        (*OK * 2, NO_TOPIC, NO_TOPIC, *OK),
        (*OK * 2, "KafkaException", *("KafkaException KafkaException",) * 2),
        (*OK * 2, NO_TOPIC, NO_TOPIC, *OK),
    ),
]


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker for one user, and for its administrator on another listener."""

    bootstrap: str
    admin: str
    properties: dict[str, str]
    """Those of a client of the user."""
    file: str
    """The same in a file."""


@contextlib.contextmanager
def secured(kind: str, directory: Path) -> Iterator[Secured]:
    plain, sasl = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with contextlib.ExitStack() as stack:
        listener = f"SASL_PLAINTEXT://{sasl}"
        if kind == OURS:
            listeners = {"listeners": f"PLAINTEXT://{plain},{listener}"}
            stack.enter_context(Cluster(1, directory / "data", {**CONFIG, **listeners}))
        else:
            broker = stack.enter_context(
                running(KAFKA_3_9, directory / "kafka", config=CONFIG, listeners=[listener])
            )
            plain = broker.bootstrap
        file = str(directory / "client.properties")
        properties = {"bootstrap.servers": sasl, "security.protocol": "SASL_PLAINTEXT", **login_of("PLAIN")}
        write_properties(file, properties)
        yield Secured(sasl, plain, properties, file)


@pytest.fixture(scope="module", params=[OURS, KAFKA])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with (
        secured(request.param, tmp_path_factory.mktemp("rights")) as broker,
        ClusterClient(broker.admin) as cluster,
    ):
        admin = Admin(cluster)
        for topic in ("all", "seen", "written", "hidden"):
            admin.create_topic(NewTopic(topic, partitions=1))
        bindings = [
            AclBinding(Resource(kind, name), Acl(f"User:{USER}", Permission.ALLOW, "*", operation))
            for operation, kind, name in RIGHTS
        ]
        made = admin.create_acls(bindings)
        assert set(made.values()) == {None}
        assert wait_until(lambda: len(admin.describe_acls()) == len(bindings), PATIENCE_S)
        # Creates the topics of the coordinators, for whose creation librdkafka may wait for very long.
        first = ("init all", "begin all", "offsets all all", "commit all")
        assert wait_until(lambda: java(broker, "all", *first) == ["ok"] * 4, PATIENCE_S)
        yield broker


def java(broker: Secured, topic: str, *commands: str) -> list[str]:
    return outcomes(broker.file, topic, *commands)


class LibrdkafkaTransactions:
    """Runs the commands of ``Transactions.java`` by librdkafka."""

    def __init__(self, broker: Secured, topic: str) -> None:
        self._topic = topic
        self._settings: dict[str, object] = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
        self._producers: dict[str, confluent_kafka.Producer] = {}

    def run(self, command: str) -> str:
        """Return "ok" or the name of the error."""
        name, transactional_id, *words = command.split()
        if name == "init":
            settings = {**self._settings, "transactional.id": transactional_id}
            self._producers[transactional_id] = confluent_kafka.Producer(settings)
        try:
            return self._run(name, self._producers[transactional_id], words)
        except confluent_kafka.KafkaException as error:
            found: str = error.args[0].name()
            return found

    def _run(self, name: str, producer: confluent_kafka.Producer, words: list[str]) -> str:
        if name == "send":
            return self._send(producer, int(words[0]), words[1])
        if name == "offsets":
            consumer = confluent_kafka.Consumer({**self._settings, "group.id": words[0]})
            offsets = [confluent_kafka.TopicPartition(self._topic, 0, 1)]
            try:
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(offsets, metadata, PATIENCE_S)
            finally:
                consumer.close()
        elif name == "begin":
            producer.begin_transaction()
        else:
            calls = {
                "init": "init_transactions",
                "commit": "commit_transaction",
                "abort": "abort_transaction",
            }
            getattr(producer, calls[name])(PATIENCE_S)
        return "ok"

    def _send(self, producer: confluent_kafka.Producer, partition: int, value: str) -> str:
        errors: list[confluent_kafka.KafkaError | None] = []
        producer.produce(
            self._topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
        assert producer.flush(PATIENCE_S) == 0
        (error,) = errors
        return "ok" if error is None else str(error.name())


class OurTransactions:
    """Runs the commands of ``Transactions.java`` by our producer."""

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._producers: dict[str, TransactionalProducer] = {}

    def run(self, command: str) -> str:
        """Return "ok" or the name of the error."""
        name, transactional_id, *words = command.split()
        if name == "init":
            self._producers[transactional_id] = TransactionalProducer(
                self._cluster, transactional_id=transactional_id
            )
        try:
            self._run(name, self._producers[transactional_id], words)
        except BrokerError as error:
            return error.code.name
        return "ok"

    def _run(self, name: str, producer: TransactionalProducer, words: list[str]) -> None:
        if name == "send":
            producer.send(self._topic, words[1].encode(), partition=int(words[0])).result()
        elif name == "offsets":
            producer.send_offsets({TopicPartition(self._topic, 0): Committed(1)}, words[0])
        else:
            calls = {"init": producer.init_transactions, "begin": producer.begin}
            {**calls, "commit": producer.commit, "abort": producer.abort}[name]()

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_our_client_sees_which_right_is_missing(broker: Secured, case: Case) -> None:
    with client_of(broker.properties) as own, contextlib.closing(OurTransactions(own, case.topic)) as ours:
        assert [ours.run(command) for command in case.commands] == list(case.ours)


def test_error_of_a_hidden_id_names_the_missing_right_once(broker: Secured) -> None:
    with (
        client_of(broker.properties) as own,
        TransactionalProducer(own, transactional_id="hidden") as producer,
        pytest.raises(BrokerError) as error,
    ):
        producer.init_transactions()
    assert error.value.detail == (
        "FindCoordinator for transaction 'hidden': not authorized: Write on TransactionalId:hidden "
        "(see `minikafka acl list`)"
    )


def test_java_client_sees_which_right_is_missing(broker: Secured) -> None:
    commands = [command for case in CASES for command in (f"topic {case.topic}", *case.commands)]
    said = iter(java(broker, "all", *commands))
    found = {str(case): list(itertools.islice(said, 1 + len(case.commands))) for case in CASES}
    assert found == {str(case): [*OK, *case.java] for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_librdkafka_sees_which_right_is_missing(broker: Secured, case: Case) -> None:
    transactions = LibrdkafkaTransactions(broker, case.topic)
    assert [transactions.run(command) for command in case.commands] == list(case.librdkafka)


def test_right_that_is_taken_away_ends_the_producer(broker: Secured) -> None:
    transactions = LibrdkafkaTransactions(broker, "all")
    for command in ("init brief", "begin brief", "send brief 0 x"):
        assert transactions.run(command) == "ok"
    with ClusterClient(broker.admin) as cluster:
        Admin(cluster).delete_acls([AclFilter.of(Resource(ID, "brief"))])
    with client_of(broker.properties) as own:
        assert wait_until(lambda: not may_see(own, "brief"), PATIENCE_S)
    assert transactions.run("commit brief") == NO_ID


def may_see(cluster: ClusterClient, transactional_id: str) -> bool:
    try:
        TransactionAdmin(cluster).describe(transactional_id)
    except BrokerError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        return False
    return True


def test_client_may_not_write_markers(broker: Secured) -> None:
    tp = TopicPartition("all", 0)
    with client_of(broker.properties) as own, ClusterClient(broker.admin) as cluster:
        end = Admin(cluster).offsets({tp: LATEST})
        with pytest.raises(BrokerError) as refused:
            TransactionAdmin(own).abort(AbortTransactionSpec(tp, 0, 0, 0))
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert Admin(cluster).offsets({tp: LATEST}) == end
