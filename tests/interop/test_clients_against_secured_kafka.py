"""Our clients and commands on Apache Kafka's secured listeners: all of 4.3.1 and 3.9.1, and of 0.10.1.1."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import AuthenticationFailed, FailedToSendMessage
from minikafka.clients.admin.admin import Admin
from minikafka.clients.consumer import Consumer
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.producer import KeyedMessage, Producer
from tests.interop.compatibility import COMMANDS, PRODUCER_AND_CONSUMER, record_ours
from tests.interop.releases import KAFKA_3_9, KAFKA_4
from tests.support.command_line import CommandLine
from tests.support.secured_kafka import (
    ACCESSES,
    LIMIT_S,
    MISTAKES,
    SecuredKafka,
    check_mistake,
    client_of,
    connect_by,
    create_topic,
    login_of,
    produce_over_sessions,
    run_commands,
    secured_kafka,
    secured_kafka_0_10,
    write_and_read,
    write_and_read_by_the_texts,
    wrong_ones,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

LISTENERS = pytest.mark.parametrize(("listener", "mechanism"), ACCESSES)


@pytest.fixture(scope="module", params=[KAFKA_3_9, KAFKA_4], ids=str)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(request.param, tmp_path_factory.mktemp("secured") / "kafka") as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_0_10(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka_0_10(tmp_path_factory.mktemp("secured-0.10") / "kafka") as broker:
        yield broker


@LISTENERS
def test_clients_write_and_read_on_each_listener(
    request: pytest.FixtureRequest, kafka: SecuredKafka, listener: str, mechanism: str | None
) -> None:
    record_ours(request, PRODUCER_AND_CONSUMER, kafka.release, connect_by(listener, mechanism))
    write_and_read(kafka.client(listener, mechanism))


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_clients_write_and_read_on_each_listener_of_0_10_1(
    request: pytest.FixtureRequest, kafka_0_10: SecuredKafka, listener: str
) -> None:
    mechanism = "PLAIN" if listener.startswith("SASL") else None
    record_ours(request, PRODUCER_AND_CONSUMER, kafka_0_10.release, connect_by(listener, mechanism))
    write_and_read(kafka_0_10.client(listener, mechanism))


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
    write_and_read_by_the_texts(kafka.client("SASL_SSL", "SCRAM-SHA-512"))


@pytest.mark.parametrize("kafka", [KAFKA_3_9], indirect=True, ids=str)
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
    produce_over_sessions(kafka.client("REAUTH", "SCRAM-SHA-256"))


def test_refused_producer_of_the_texts_raises_it_at_once(kafka: SecuredKafka) -> None:
    properties = kafka.client("SASL_PLAINTEXT") | login_of("PLAIN", password="no")
    settings = {**properties, "metadata.broker.list": properties["bootstrap.servers"]}
    began = time.monotonic()
    with Producer(settings) as producer, pytest.raises(FailedToSendMessage, match="refuses the login"):
        producer.send(KeyedMessage("t", b"v"))
    assert time.monotonic() - began < LIMIT_S


# --- commands


@LISTENERS
def test_commands_write_and_read_on_each_listener(
    request: pytest.FixtureRequest,
    kafka: SecuredKafka,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    listener: str,
    mechanism: str | None,
) -> None:
    record_ours(request, COMMANDS, kafka.release, connect_by(listener, mechanism))
    topic = f"commands-{listener.lower()}-{mechanism}"
    run_commands(CommandLine(capfd), tmp_path, kafka.client(listener, mechanism), topic)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_ends_a_command_with_its_line(
    request: pytest.FixtureRequest,
    kafka: SecuredKafka,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mistake: str,
) -> None:
    record_ours(request, COMMANDS, kafka.release, f"name the mistake: {mistake}")
    properties, words = wrong_ones(kafka)[mistake]
    monkeypatch.delenv("MINIKAFKA_BOOTSTRAP", raising=False)
    check_mistake(CommandLine(capfd), tmp_path, properties, words)
