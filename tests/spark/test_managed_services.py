"""Reads, streams and writes with the options of the guide, each with a stand-in for its service."""

from __future__ import annotations

import socketserver
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.clients import common_client_configs
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.network.cluster import ClusterClient
from minikafka.net import tls
from minikafka.security.sasl.plain import PlainSaslServer
from tests.support.gateway import EVENT_HUBS_2019, Gateway, connection_string
from tests.support.managed_services import (
    PROGRAMS,
    ManagedServices,
    Program,
    environment,
    managed_services,
    messages_of_tables,
    program_of,
)
from tests.support.network import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.process

ROWS = 20


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagedServices]:
    with managed_services(tmp_path_factory.mktemp("services")) as found:
        yield found


def new_topic(services: ManagedServices) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with ClusterClient(services.plain) as client:
        Admin(client).create_topic(NewTopic(name, partitions=2))
    return name


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_options_of_the_guide_write_read_and_stream(
    spark: SparkSession, services: ManagedServices, program: Program
) -> None:
    services.take_refusals()
    options, topic = services.options(program), new_topic(services)
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("minikafka").mode("append").options(**options).option("topic", topic).save()
    batch = spark.read.format("minikafka").options(**options).option("subscribe", topic).load()
    expected = sorted(str(number) for number in range(ROWS))
    assert sorted(row[0] for row in batch.selectExpr("cast(value as string)").collect()) == expected
    stream = spark.readStream.format("minikafka").options(**options).option("subscribe", topic)
    loaded = stream.option("startingOffsets", "earliest").load().selectExpr("cast(value as string)")
    name = topic.replace("-", "_")
    query = loaded.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    assert sorted(row[0] for row in spark.table(name).collect()) == expected
    assert services.take_refusals() == []


def test_tokens_are_requested_as_the_guide_configures(spark: SparkSession, services: ManagedServices) -> None:
    options = services.options(program_of("Azure Event Hubs", 2))
    spark.read.format("minikafka").options(**options).option("subscribe", new_topic(services)).load()
    requests = [
        parse_qs(body.decode()) for _, path, _, body in services.provider.received if "TENANT" in path
    ]
    assert requests[-1] == {
        "grant_type": ["client_credentials"],
        "scope": ["https://namespace.servicebus.windows.net/.default"],
    }


def test_writes_stay_below_the_limit_of_event_hubs(spark: SparkSession, services: ManagedServices) -> None:
    services.take_refusals()
    options = services.options(program_of("Azure Event Hubs", 1))
    options |= {"topic": new_topic(services), "kafka.max.request.size": "1000000"}

    def write(rows: int, size: int) -> None:
        frame = spark.range(rows).selectExpr(f"repeat('x', {size}) as value")
        frame.write.format("minikafka").mode("append").options(**options).save()

    write(200, 15_000)
    with pytest.raises(Exception, match=r"more than kafka\.max\.request\.size=1000000"):
        write(1, 1_000_000)
    assert services.take_refusals() == []


def test_connections_that_a_service_closes_lose_and_repeat_no_rows(
    spark: SparkSession, services: ManagedServices
) -> None:
    options, topic = services.options(program_of("Azure Event Hubs", 1)), new_topic(services)
    mechanisms = {"PLAIN": lambda: PlainSaslServer(connection_string)}
    with Gateway(services.plain, EVENT_HUBS_2019, mechanisms, idle_s=0.2) as gateway:
        options["kafka.bootstrap.servers"] = gateway.bootstrap
        for number in range(3):
            rows = spark.range(number * ROWS, (number + 1) * ROWS).selectExpr("cast(id as string) as value")
            rows.write.format("minikafka").mode("append").options(**options).option("topic", topic).save()
            eventually(lambda: gateway.open_connections == 0, "idle connections are closed")
            found = spark.read.format("minikafka").options(**options).option("subscribe", topic).load()
            values = [int(row[0]) for row in found.selectExpr("cast(value as string)").collect()]
            assert sorted(values) == [*range((number + 1) * ROWS)]
            eventually(lambda: gateway.open_connections == 0, "idle connections are closed")
        assert gateway.idle_closes > 0
        assert gateway.refused == []


def refusal(options: Mapping[str, str]) -> str:
    """Return the message of a client with these options."""
    properties = {name.removeprefix("kafka."): value for name, value in options.items()}

    def ask() -> None:
        security = ClientSecurity.from_properties(properties)
        servers = properties["bootstrap.servers"]
        with ClusterClient(servers, security=security, request_timeout_ms=1_000) as client:
            client.metadata()

    with pytest.raises(MinikafkaError) as refused:
        ask()
    return str(refused.value)


def changed(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    return {name: value.replace(old, new) for name, value in options.items()}


MISTAKES = (
    "the broker refuses the login (Authentication failed",
    "no token: status",
    "the broker refuses the login (Access denied)",
    "the broker has not enabled",
    "the listener has no SASL",
    "cannot get AWS credentials",
    "unknown AWS region",
    "the broker refuses the login",
    "closed the connection before it answered during the login",
    "the broker closed the connection in the handshake",
    "that is not trusted",
    "the broker demands a certificate of this client",
    "the listener demands a login",
)
ELSEWHERE = {
    "not authorized:": "tests/unit/clients/produce/test_sender.py",
    "cannot connect: no answer within": "tests/unit/net/test_connection.py",
    "not acknowledged within": "tests/unit/clients/produce/test_sender.py",
    "no common version of": "tests/unit/clients/test_event_hubs_gateway.py",
}
"""Messages of the guide that other tests show."""


class Closing(socketserver.BaseRequestHandler):
    """Reads a little, and closes the connection."""

    def handle(self) -> None:
        self.request.recv(1)


@pytest.fixture
def closing_server() -> Iterator[str]:
    """The address of a server that closes every connection."""
    with socketserver.TCPServer(("127.0.0.1", 0), Closing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"localhost:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def wrong(
    services: ManagedServices, mistake: str, patch: pytest.MonkeyPatch, closing_server: str
) -> dict[str, str]:
    """Return the options of the guide with a mistake for which its table has the message."""
    confluent, oauth, iam, scram, mutual, hubs, entra, aiven, user = (
        services.options(program_of(service, number))
        for service, numbers in (
            ("Confluent Cloud", (1, 2)),
            ("Amazon MSK", (1, 2, 3)),
            ("Azure Event Hubs", (1, 2)),
            ("Aiven", (1, 3)),
        )
        for number in numbers
    )
    servers = "kafka.bootstrap.servers"
    if mistake == "the broker refuses the login (Access denied)":
        patch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    if mistake == "cannot get AWS credentials":
        iam = changed(iam, "required;", 'required awsProfileName="absent";')
    if mistake == "unknown AWS region":
        patch.delenv("AWS_DEFAULT_REGION")
    return {
        MISTAKES[0]: changed(confluent, "API_SECRET", "another"),
        MISTAKES[1]: changed(oauth, "/oauth2/token", "/refused"),
        MISTAKES[2]: iam,
        MISTAKES[3]: {**scram, servers: iam[servers]},
        MISTAKES[4]: {**scram, servers: mutual[servers], **_certificate(mutual)},
        MISTAKES[5]: iam,
        MISTAKES[6]: iam,
        MISTAKES[7]: changed(entra, "TENANT/oauth2/v2.0", "elsewhere"),
        MISTAKES[8]: changed(hubs, "SharedAccessKey=KEY=", "SharedAccessKey=KEY"),
        MISTAKES[9]: {**hubs, servers: closing_server},
        MISTAKES[10]: {name: value for name, value in user.items() if "truststore" not in name},
        MISTAKES[11]: {**user, servers: aiven[servers]},
        MISTAKES[12]: {**aiven, servers: user[servers]},
    }[mistake]


def _certificate(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if "keystore" in name}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_messages_of_the_guide_are_those_that_are_given(
    services: ManagedServices,
    closing_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mistake: str,
) -> None:
    for name, value in environment(str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    if mistake == "that is not trusted":
        monkeypatch.delenv("SSL_CERT_FILE")
    # A process keeps what it trusts and its logins, as other tests may have found them.
    tls._shared_context.cache_clear()
    common_client_configs._login.cache_clear()
    message = refusal(wrong(services, mistake, monkeypatch, closing_server))
    assert mistake in message
    assert "\n" not in message


def test_every_message_of_the_guide_is_shown_by_a_test() -> None:
    assert messages_of_tables() == {*MISTAKES, *ELSEWHERE}
