"""Broker properties in environment variables, as Kafka's container images read them."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.server.config.environment import (
    property_name,
    read_environment,
    variable_name,
    with_bind_addresses,
)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_BROKER_ID", "broker.id"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_SASL_JAAS_CONFIG",) * 2,
        ("KAFKA_INTER_BROKER_LISTENER_NAME", "inter.broker.listener.name"),
    ],
)
def test_a_variable_stands_for_a_property(variable: str, name: str) -> None:
    if name == variable:
        name = "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"
    assert property_name(variable) == name
    assert variable_name(name) == variable
    assert read_environment({variable: "x", "HOME": "/", "KAFKAX": "y"}).properties == {name: "x"}


def test_a_name_with_four_underscores_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"KAFKA_LOG____DIRS.*stands for no property"):
        read_environment({"KAFKA_LOG____DIRS": "x"})


def test_an_empty_variable_is_not_set() -> None:
    assert read_environment({"KAFKA_BROKER_RACK": "", "KAFKA_LOG_DIRS": " "}).properties == {}


def test_variables_of_java_and_scripts_are_ignored_by_name() -> None:
    found = read_environment({"KAFKA_HEAP_OPTS": "-Xmx1G", "KAFKA_LOG4J_LOGGERS": "a=DEBUG"})
    assert found.properties == {}
    assert found.ignored == ("KAFKA_HEAP_OPTS", "KAFKA_LOG4J_LOGGERS")


def test_variables_of_a_service_named_kafka_are_no_properties() -> None:
    found = read_environment(
        {
            "KAFKA_SERVICE_HOST": "10.0.0.1",
            "KAFKA_SERVICE_PORT_BROKER": "9092",
            "KAFKA_PORT": "tcp://10.0.0.1:9092",
            "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        }
    )
    assert (found.properties, found.ignored) == ({}, ())
    assert read_environment({"KAFKA_PORT": "9092"}).properties == {"port": "9092"}


def test_variables_of_kraft_leave_a_broker_with_its_id() -> None:
    found = read_environment(
        {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENERS": "CONTROLLER://:9093, PLAINTEXT://:9092",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:9092",
        }
    )
    assert found.properties == {
        "broker.id": "1",
        "listeners": "PLAINTEXT://:9092",
        "advertised.listeners": "PLAINTEXT://a:9092",
    }
    assert found.ignored == (
        "KAFKA_CONTROLLER_LISTENER_NAMES",
        "KAFKA_CONTROLLER_QUORUM_VOTERS",
        "KAFKA_PROCESS_ROLES",
    )


def test_secrets_come_from_files_that_variables_name() -> None:
    texts = {"/etc/kafka/secrets/key": "s3cret\n"}
    found = read_environment(
        {"KAFKA_SSL_KEYSTORE_FILENAME": "store.p12", "KAFKA_SSL_KEYSTORE_CREDENTIALS": "key"},
        texts.__getitem__,
    )
    assert found.properties == {
        "ssl.keystore.location": "/etc/kafka/secrets/store.p12",
        "ssl.keystore.password": "s3cret",
    }


@pytest.mark.parametrize(
    ("advertised", "bound"),
    [
        ("PLAINTEXT://kafka:9092", "PLAINTEXT://0.0.0.0:9092"),
        ("IN://a.b:1, OUT://[::1]:2", "IN://0.0.0.0:1,OUT://0.0.0.0:2"),
        ("IN://:9092", "IN://0.0.0.0:9092"),
    ],
)
def test_listeners_follow_the_advertised_ones(advertised: str, bound: str) -> None:
    assert with_bind_addresses({"advertised.listeners": advertised})["listeners"] == bound


def test_listeners_that_are_set_stay() -> None:
    given = {"listeners": "IN://10.0.0.1:1", "advertised.listeners": "IN://a:1"}
    assert with_bind_addresses(given) == given
    assert with_bind_addresses({"log.dirs": "d"}) == {"log.dirs": "d"}
