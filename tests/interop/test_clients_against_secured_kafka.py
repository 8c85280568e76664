"""Our clients and commands on Apache Kafka's secured listeners: 3.9.1 with every mechanism, and 0.10.1.1."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.config.property_files import write_properties
from minikafka.base.errors import AuthenticationFailed, FailedToSendMessage
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.consumer import Consumer
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.producer import KeyedMessage, Producer
from minikafka.clients.simple_consumer import FetchRequest, SimpleConsumer
from tests.support.command_line import CommandLine
from tests.support.secured_kafka import (
    LIMIT_S,
    MECHANISMS,
    MISTAKES,
    Properties,
    SecuredKafka,
    check_mistake,
    client_of,
    create_topic,
    login_of,
    produce_over_sessions,
    secured_kafka,
    secured_kafka_0_10,
    write_and_read,
    wrong_ones,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

SASL = [(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS]
LISTENERS = pytest.mark.parametrize(("listener", "mechanism"), [("SSL", None), ("MTLS", None), *SASL])


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured") / "kafka") as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_0_10(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka_0_10(tmp_path_factory.mktemp("secured-0.10") / "kafka") as broker:
        yield broker


@LISTENERS
def test_clients_write_and_read_on_each_listener(
    kafka: SecuredKafka, listener: str, mechanism: str | None
) -> None:
    write_and_read(kafka.client(listener, mechanism))


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_clients_write_and_read_on_each_listener_of_0_10_1(kafka_0_10: SecuredKafka, listener: str) -> None:
    write_and_read(kafka_0_10.client(listener, "PLAIN" if listener.startswith("SASL") else None))


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_silent_refusal_of_0_10_1_is_told_from_a_broken_connection(
    kafka_0_10: SecuredKafka, listener: str
) -> None:
    properties = kafka_0_10.client(listener) | login_of("PLAIN", password="no")
    with (
        client_of(properties) as cluster,
        pytest.raises(AuthenticationFailed, match="check username") as error,
    ):
        Admin(cluster).describe_cluster()
    assert "does so if it refuses the login" in str(error.value)


def test_clients_of_the_texts_write_and_read(kafka: SecuredKafka) -> None:
    properties = kafka.client("SASL_SSL", "SCRAM-SHA-512")
    with client_of(properties) as cluster:
        topic = create_topic(cluster)
        ends = {TopicPartition(topic, 0): None, TopicPartition(topic, 1): None}
        settings = {
            **properties,
            "metadata.broker.list": properties["bootstrap.servers"],
            "request.required.acks": "-1",
        }
        with Producer(settings) as producer:
            producer.send([KeyedMessage(topic, b"%d" % number, b"%d" % number) for number in range(20)])
        assert sum(Admin(cluster).offsets(dict.fromkeys(ends, -1)).values()) == 20  # type: ignore[arg-type]
    host, _, port = properties["bootstrap.servers"].rpartition(":")
    security = ClientSecurity.from_properties(properties)
    with SimpleConsumer(host, int(port), security=security) as simple:
        found = [
            message.value
            for partition in range(2)
            for message in simple.iterator(FetchRequest(topic, partition, 0, 65536))
        ]
    assert sorted(found) == sorted(b"%d" % number for number in range(20))


def test_streams_of_a_group_in_zookeeper_read_by_the_protocol_that_is_set(kafka: SecuredKafka) -> None:
    properties = kafka.client("SASL_SSL", "PLAIN")
    with client_of(properties) as cluster:
        topic = create_topic(cluster)
        with BatchingProducer(cluster, BatchingConfig(acks=-1)) as producer:
            for number in range(20):
                producer.send(topic, b"%d" % number)
    settings = {
        **properties,
        "group.id": f"old-{topic}",
        "zookeeper.connect": kafka.zookeeper,
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": "20000",
    }
    connector = Consumer.create(settings)
    try:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        found = [message.message for message in itertools.islice(stream, 20)]
    finally:
        connector.shutdown()
    assert sorted(found) == sorted(b"%d" % number for number in range(20))


def test_sessions_that_end_lose_and_repeat_nothing(kafka: SecuredKafka) -> None:
    produce_over_sessions(kafka)


def test_refused_producer_of_the_texts_raises_it_at_once(kafka: SecuredKafka) -> None:
    properties = kafka.client("SASL_PLAINTEXT") | login_of("PLAIN", password="no")
    settings = {**properties, "metadata.broker.list": properties["bootstrap.servers"]}
    began = time.monotonic()
    with Producer(settings) as producer, pytest.raises(FailedToSendMessage, match="refuses the login"):
        producer.send(KeyedMessage("t", b"v"))
    assert time.monotonic() - began < LIMIT_S


# --- commands


def command(
    directory: Path, properties: Properties, *arguments: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    file = directory / "client.properties"
    write_properties(str(file), properties)
    kept = {name: value for name, value in os.environ.items() if name != "MINIKAFKA_BOOTSTRAP"}
    return subprocess.run(
        [sys.executable, "-c", "from minikafka.cli.main import main; main()", *arguments],
        env=kept | {"MINIKAFKA_CONFIG": str(file)},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("listener", "mechanism"), [("MTLS", None), ("SASL_SSL", "SCRAM-SHA-512")])
def test_commands_take_a_file_of_properties(
    kafka: SecuredKafka, tmp_path: Path, listener: str, mechanism: str | None
) -> None:
    properties = kafka.client(listener, mechanism)
    topic = f"commands-{listener.lower()}"
    for arguments, given in (
        (("topic", "create", topic, "--partitions", "1"), ""),
        (("produce", topic), "a\nb\n"),
        (("consume", topic, "--max", "2"), ""),
        (("consume", topic, "--group", topic, "--max", "2"), ""),
        (("group", "describe", topic), ""),
    ):
        done = command(tmp_path, properties, *arguments, given=given)
        assert done.returncode == 0, done.stderr
        if arguments[0] == "consume":
            assert [line.split()[-1] for line in done.stdout.splitlines()] == ["a", "b"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_ends_a_command_with_its_line(
    kafka: SecuredKafka,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mistake: str,
) -> None:
    properties, words = wrong_ones(kafka)[mistake]
    monkeypatch.delenv("MINIKAFKA_BOOTSTRAP", raising=False)
    check_mistake(CommandLine(capfd), tmp_path, properties, words)
