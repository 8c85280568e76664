"""A broker's properties."""

import pytest

from minikafka.base.errors import ConfigError
from minikafka.log.layout import Layout
from minikafka.server.config import BrokerConfig, parse_properties


def config(**properties: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181", **named})


def test_without_properties_the_defaults_are_those_of_the_release() -> None:
    made = config()
    assert made.bind_port == 9092
    assert made.network_threads == 3
    assert made.request_max_bytes == 104857600
    assert made.zookeeper_session_timeout_ms == 6000
    assert made.zookeeper_connection_timeout_ms == 6000
    assert made.auto_create_topics
    assert made.log.segment_bytes == 1 << 30


def test_topics_can_be_deleted_by_default_and_new_directories_are_classic() -> None:
    assert config().delete_topics
    assert config().layout is Layout.CLASSIC


def test_zookeeper_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        BrokerConfig.from_properties({})


def test_a_listener_gives_host_and_port_to_bind_and_to_advertise() -> None:
    made = config(listeners="PLAINTEXT://127.0.0.1:19092")
    assert (made.bind_host, made.bind_port) == ("127.0.0.1", 19092)
    assert (made.advertised_host, made.advertised_port) == ("127.0.0.1", 19092)


def test_an_advertised_listener_wins_over_the_bound_one() -> None:
    made = config(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://broker.example:29092")
    assert made.bind_host == ""
    assert (made.advertised_host, made.advertised_port) == ("broker.example", 29092)


def test_a_broker_that_listens_everywhere_advertises_a_name_that_others_can_use() -> None:
    assert config(listeners="PLAINTEXT://0.0.0.0:9092").advertised_host not in {"", "0.0.0.0"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("broker.id", "-2"),
        ("port", "70000"),
        ("num.network.threads", "0"),
        ("num.partitions", "many"),
        ("auto.create.topics.enable", "yes"),
        ("listeners", "SSL://localhost:9093"),
        ("listeners", "PLAINTEXT://localhost"),
        ("listeners", "PLAINTEXT://localhost:x"),
        ("log.dirs", ","),
        ("log.dirs", "a,b,a"),
        ("log.layout", "modern"),
        ("log.segment.bytes", "3"),
    ],
)
def test_a_bad_value_is_refused_with_name_and_value(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181", name: value})
    assert refused.value.name == name
    assert refused.value.value == value


def test_names_that_nobody_uses_are_listed_for_one_warning() -> None:
    made = BrokerConfig.from_properties(
        {"zookeeper.connect": "localhost:2181", "num.io.threads": "8", "log.segment.bytes": "1024"}
    )
    assert made.unknown == ("num.io.threads",)
    assert made.log.segment_bytes == 1024


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = "# a comment\n! another\n\nbroker.id=3\nlog.dirs : one,\\\n    two\nempty=\n"
    assert parse_properties(text, "f") == {"broker.id": "3", "log.dirs": "one,two", "empty": ""}


def test_a_line_that_is_no_property_is_named_by_its_number() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        parse_properties("broker.id=1\nnonsense\n", "server.properties")
